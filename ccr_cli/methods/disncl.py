"""Disentangled learning: embeddings with shared and exclusive parts (DisNCL).

Dang et al., "Disentangled Noisy Correspondence Learning". The paper has pairs of a picture and a text; here a
triplet gives two, V-S and V-T, which share every head and discriminator. Similarity is that of the shared parts.
Terms that minimise information (eq. (7), (11), (12)) train a discriminator against a reversed gradient, so that one
optimiser serves both players. docs/methods/disncl.md lists the choices where the paper is silent.
"""

import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, rms_norm

from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import Tokens
from ccr_cli.losses.disncl import align, conditional_bound, jensen_shannon, soft_alignment, soft_targets, strangers
from ccr_cli.methods import base
from ccr_cli.methods.config import Count, NotNegative, Positive, Share, equal_rates
from ccr_cli.nets.heads import reverse_gradient
from ccr_cli.nets.plain import Plain, Unit

SLOPE = 0.2
EPS = 1e-6


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `disncl`."""

    part_dim: Count = 256
    """Dimension of the shared part, and of the exclusive part."""
    part_layers: Count = 1
    """Layers of a head; 1 is a linear map."""
    part_hidden: Count = 128
    """Hidden units of heads and discriminators."""
    margin: NotNegative = 0.2
    """Largest margin of L_align, alpha of eq. (3), and the constant margin of the warm-up."""
    margin_base: Positive = 10.0
    """Steepness of the margin in the pair's similarity, m of eq. (3)."""
    tau: Positive = 0.07
    """Temperature of eq. (5)."""
    hard_share: Share = 0.5
    """Share of the one-hot target in eq. (6), beta_3."""
    gamma: Share = 0.5
    """Share of L_S in L_Dis, eq. (1); the rest is that of L_X."""
    beta_1: NotNegative = 0.1
    """Weight of the bound on I(V; V_S | T) in L_S."""
    beta_2: NotNegative = 0.1
    """Weight, in addition to 1, of I(T; V_X) and I(V; T_X) in L_X, eq. (11)."""
    align_weight: NotNegative = 1.0
    """Weight of L_align, eq. (3)."""
    soft_weight: NotNegative = 1.0
    """Weight of L_soft, eq. (6)."""
    dis_weight: NotNegative = 1.0
    """Weight of L_Dis, eq. (1)."""
    reg_weight: NotNegative = 1.0
    """Weight of L_reg, eq. (7)."""
    opposed: Literal["part", "both"] = "part"
    """Inputs trained against a discriminator: the exclusive `part` alone, or `both` (eq. (12) as printed)."""
    source_weight: NotNegative = 1.0
    """Weight of V-S relative to V-T."""
    warmup_terms: Literal["align", "all"] = "all"
    """Terms of the warm-up: `align` (L_align alone, as in the paper) or `all`; the margin is constant either way."""
    reduction: Literal["sum", "mean"] = "mean"
    """Reduction of eq. (3), (6) over the clean pairs: `sum` as printed; `mean` does not depend on their number."""
    judge: str = "two-group"
    judge_side: base.Side = "both"
    drop_below: Share = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.margin_base == 1:
            raise ValueError("margin_base=1 has no soft margin")
        if not (self.align_weight or self.soft_weight):
            raise ValueError("align_weight > 0 or soft_weight > 0 is needed: nothing else brings the sides together")

    def unaligned(self) -> str:
        """It trains heads of its own on both sides."""
        return "disncl trains networks of its own that divide the vectors of both sides"


class Method(base.Method):
    """Disentangled heads, discriminators, soft margin and soft targets."""

    PRESETS: ClassVar[dict[str, dict[str, object]]] = {
        "paper": {
            "dim": 1024,
            "part_dim": 512,
            "part_layers": 3,
            "tau": 0.05,
            "part_hidden": 256,
            "warmup_terms": "align",
            "reduction": "sum",
            "opposed": "both",
            "judge": "mutual",
            "judge_side": "cross_modal",
            "warmup_epochs": 5,
            "epochs": 55,
            **equal_rates(2e-4),
            "lr_drop": 31,
            "batch_size": 128,
        }
    }

    config: Config

    def __init__(self, config: Config, visual_dim: int, text_encoder: base.TextEncoder) -> None:
        super().__init__(config, visual_dim, text_encoder)
        c = config
        invariant, exclusive = c.dis_weight * c.gamma > 0, c.dis_weight * (1 - c.gamma) > 0

        def head() -> Head:
            return Head(c.dim, c.part_dim, c.part_hidden, c.part_layers)

        self.visual_shared, self.text_shared = head(), head()  # first, so they start as in a model without the rest
        self.visual_own: Head | None = None
        self.text_own: Head | None = None
        if exclusive or c.reg_weight > 0:
            self.visual_own, self.text_own = head(), head()
        widths: dict[str, int] = {}  # for each pair of vectors the length of the second one
        if invariant:
            widths |= {"V_S-T": c.dim, "T_S-V": c.dim}
        if exclusive:
            widths |= {"V_X-V": c.dim, "T_X-T": c.dim, "V_X-T": c.dim, "T_X-V": c.dim}
        if c.reg_weight > 0:
            widths |= {"V_X-V_S": c.part_dim, "T_X-T_S": c.part_dim}
        self.discriminators = nn.ModuleDict({n: Discriminator(c.part_dim, d, c.part_hidden) for n, d in widths.items()})

    def embed_visual(self, visual: Frames) -> Tensor:
        """V_S, unit vectors (V, D)."""
        out_VD: Tensor = self.visual_shared(super().embed_visual(visual))
        return out_VD

    def embed_text(self, tokens: Tokens) -> Tensor:
        """T_S, unit vectors (T, D)."""
        out_TD: Tensor = self.text_shared(super().embed_text(tokens))
        return out_TD

    def plain(self) -> list[Plain]:
        """The shared parts."""
        whole = self.encoder.plain()
        text, visual = self.text_shared.plain(), self.visual_shared.plain()
        return [Plain(whole.text_encoder, (*whole.text, *text), (*whole.visual, *visual))]

    def readings(self) -> dict[str, base.Embedder]:
        """`exclusive`: retrieval by V_X and T_X, which should be chance."""
        return {} if self.visual_own is None else {"exclusive": Exclusive(self)}

    def soft_targets(self, visual_BD: Tensor, text_BD: Tensor) -> Tensor:
        """Targets of L_soft, eq. (6), for the texts of a batch of different items: shares of the pictures (B, B)."""
        forth_BB = torch.log_softmax(visual_BD @ text_BD.T / self.config.tau, dim=1)
        return soft_targets(forth_BB, self.config.hard_share)

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """Eq. (8), with a constant margin in the warm-up."""
        c = self.config
        v_BD = batch.whole(super().embed_visual(batch.visual))
        text_2BD = batch.whole_texts(super().embed_text(batch.source.join(batch.target)))
        shared_BD, text_shared_2BD = self.visual_shared(v_BD), self.text_shared(text_2BD)
        sim = base.compare(shared_BD, text_shared_2BD, batch.item_B)
        p = base.clean_probabilities(self, batch, sim)
        p_VS, p_VT = _clean(p.VS, batch.p.VS), _clean(p.VT, batch.p.VT)
        whole = batch.judged or c.warmup_terms == "all" or not c.align_weight
        terms: dict[str, Tensor] = {}
        for name, sim_BB, p_B, weight in (("vs", sim.VS, p_VS, c.source_weight), ("vt", sim.VT, p_VT, 1.0)):
            if not weight:
                continue
            if c.align_weight:
                bound = c.margin_base if batch.judged else None
                loss = align(sim_BB, sim.mask, margin=c.margin, base=bound, reduction=c.reduction, weight_B=p_B)
                terms[f"align_{name}"] = c.align_weight * weight * loss
            if c.soft_weight and whole:
                share = c.hard_share
                loss = soft_alignment(
                    sim_BB, sim.mask, temperature=c.tau, hard_share=share, reduction=c.reduction, weight_B=p_B
                )
                terms[f"soft_{name}"] = c.soft_weight * weight * loss
        if self.discriminators and whole:
            weight_2B = torch.cat([c.source_weight * p_VS, p_VT])
            rows_N = weight_2B.nonzero().squeeze(1)  # noisy pairs are not drawn as strangers either
            pair_N = rows_N % len(v_BD)
            stranger_N, found_N = strangers(batch.item_B[pair_N])
            weight_N = weight_2B[rows_N]
            both = weight_N * weight_N[stranger_N] * found_N
            clean = _Pairs(
                v_BD[pair_N], text_2BD[rows_N], shared_BD[pair_N], text_shared_2BD[rows_N], weight_N, stranger_N, both
            )
            terms |= self._disentangle(clean)
        return terms

    def _disentangle(self, pairs: "_Pairs") -> dict[str, Tensor]:
        """L_Dis, eq. (1), in three terms, and L_reg, eq. (7)."""
        c, v, t, v_S, t_S = self.config, pairs.v, pairs.t, pairs.v_S, pairs.t_S

        def known(name: str, left_ND: Tensor, right_ND: Tensor) -> Tensor:
            """The bound that both players maximise, eq. (9)."""
            joint_N, marginal_N = self.discriminators[name](left_ND, right_ND, pairs.stranger_N)
            return jensen_shannon(joint_N, marginal_N, pairs.weight_N, pairs.stranger_weight_N)

        def hidden(name: str, left_ND: Tensor, right_ND: Tensor) -> Tensor:
            """The bound that the discriminator maximises and the part minimises, eq. (12)."""
            right_ND = reverse_gradient(right_ND) if c.opposed == "both" else right_ND.detach()
            return known(name, reverse_gradient(left_ND), right_ND)

        terms = {}
        if "V_S-T" in self.discriminators:
            bound = conditional_bound(v_S, t_S, pairs.weight_N)  # both terms contain it
            terms["invariant"] = 2 * c.beta_1 * bound - known("V_S-T", v_S, t) - known("T_S-V", t_S, v)
            terms["invariant"] = c.dis_weight * c.gamma * terms["invariant"]
        if self.visual_own is None or self.text_own is None:
            return terms
        v_X, t_X = self.visual_own(v), self.text_own(t)
        if "V_X-V" in self.discriminators:
            share = c.dis_weight * (1 - c.gamma)
            terms["exclusive"] = -share * (known("V_X-V", v_X, v) + known("T_X-T", t_X, t))
            terms["adversary"] = -share * (1 + c.beta_2) * (hidden("V_X-T", v_X, t) + hidden("T_X-V", t_X, v))
        if "V_X-V_S" in self.discriminators:
            terms["reg"] = -c.reg_weight * (hidden("V_X-V_S", v_X, v_S) + hidden("T_X-T_S", t_X, t_S))
        return terms


class _Pairs(NamedTuple):
    """N clean pairs, V-S and V-T alike: embeddings and shared parts, unit vectors (N, D)."""

    v: Tensor
    t: Tensor
    v_S: Tensor
    t_S: Tensor
    weight_N: Tensor
    stranger_N: Tensor
    """For each pair, the row of a pair of another item."""
    stranger_weight_N: Tensor


def _clean(p_B: Tensor, prior_B: Tensor) -> Tensor:
    """C of eq. (2) as weights, or `prior_B` if the judge leaves fewer than two pairs of the batch."""
    return torch.where((p_B > 0).sum() < 2, prior_B, p_B)


class Exclusive:
    """The exclusive parts of a trained model, V_X and T_X."""

    def __init__(self, method: Method) -> None:
        """Takes a model with exclusive heads."""
        assert method.visual_own is not None and method.text_own is not None
        self.method, self.visual_head, self.text_head = method, method.visual_own, method.text_own

    def embed_visual(self, visual: Frames) -> Tensor:
        """V_X, unit vectors (V, D)."""
        out_VD: Tensor = self.visual_head(base.Method.embed_visual(self.method, visual))
        return out_VD

    def embed_text(self, tokens: Tokens) -> Tensor:
        """T_X, unit vectors (T, D)."""
        out_TD: Tensor = self.text_head(base.Method.embed_text(self.method, tokens))
        return out_TD


class Head(nn.Module):
    """One part of an embedding, f_S and f_X of pictures, g_S and g_X of texts.

    The paper does not say how long a part is. It is a unit vector here: similarity is a cosine anyway, the bound of
    eq. (10) depends on the length, and a part cannot hide from a discriminator by shrinking.
    """

    def __init__(self, in_dim: int, out_dim: int, hidden: int, layers: int = 3) -> None:
        super().__init__()
        self.layers = _perceptron([in_dim, *[hidden] * (layers - 1), out_dim])

    def forward(self, x_BD: Tensor) -> Tensor:
        """Returns unit vectors (B, out_dim)."""
        return normalize(self.layers(_evened(x_BD)), dim=-1)

    def plain(self) -> tuple[nn.Module, ...]:
        """Returns equivalent plain layers for unit vectors, all of which `_evened` divides by the same number."""
        first, *rest = self.layers
        assert isinstance(first, nn.Linear)
        evened = copy.deepcopy(first).requires_grad_(False)
        evened.weight /= (1 / first.in_features + EPS) ** 0.5
        return (evened, *rest, Unit())


class Discriminator(nn.Module):
    """Scores whether two vectors belong together, f of DisNCL eq. (9) and (12); sigmoid(score) is its probability.

    It computes in float32 even under autocast: half precision would round confident answers to certainty. The first
    layer reads the two vectors concatenated.
    """

    def __init__(self, left_dim: int, right_dim: int, hidden: int) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(left_dim, hidden), nn.Linear(right_dim, hidden, bias=False)
        self.rest = nn.Sequential(nn.LeakyReLU(SLOPE), _perceptron([hidden, hidden, 1]))

    def forward(self, left_BD: Tensor, right_BD: Tensor, stranger_B: Tensor) -> tuple[Tensor, Tensor]:
        """Scores each left vector with the right vector of its own row, and with that of row `stranger_B`.

        Returns:
            Logits (B,) of the pairs that occur together, and of those put together.
        """
        with torch.autocast(left_BD.device.type, enabled=False):
            left_BH = self.left(_evened(left_BD.to(self.left.weight.dtype)))
            right_BH = self.right(_evened(right_BD.to(self.right.weight.dtype)))
            score_2B = self.rest(torch.cat([left_BH + right_BH, left_BH + right_BH[stranger_B]])).squeeze(1)
        return score_2B[: len(left_BD)], score_2B[len(left_BD) :]


def _perceptron(dims: list[int]) -> nn.Sequential:
    """Linear maps between the dimensions, LeakyReLU between the maps."""
    layers: list[nn.Module] = []
    for in_dim, out_dim in pairwise(dims):
        layers += [nn.Linear(in_dim, out_dim), nn.LeakyReLU(SLOPE)]
    return nn.Sequential(*layers[:-1])


def _evened(x_BD: Tensor) -> Tensor:
    """Scales vectors to a mean square of 1: the components of unit vectors are so small that biases would dominate."""
    return rms_norm(x_BD, x_BD.shape[-1:], eps=EPS)
