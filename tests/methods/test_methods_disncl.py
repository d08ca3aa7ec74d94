"""DisNCL: its switches, who feels which gradient, who is whose stranger, and whether it takes a known mixture apart.

Shape suffixes: B triplets in a batch, V visual items, D dimension.
"""

from __future__ import annotations

from typing import Any

import pytest
import smallbatch
import torch

from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import NgramTokenizer, Tokens
from ccr_cli.errors import UsageError
from ccr_cli.losses.disncl import align, conditional_bound
from ccr_cli.methods import base, disncl
from ccr_cli.nets.text import NgramTextEncoder
from ccr_cli.stages.shared.options import configure

DIM, VISUAL_DIM, BUCKETS = 16, 10, 256
SOURCE = ["red ring", "blue bar", "black cross", "a green bird", "two dogs", "one cold morning"]
TARGET = ["anillo rojo", "barra azul", "cruz negra", "un pájaro verde", "dos perros", "una mañana fría"]
TERMS = {"align_vs", "align_vt", "soft_vs", "soft_vt", "invariant", "exclusive", "adversary", "reg"}


def tokens(texts: list[str]) -> Tokens:
    return NgramTokenizer(buckets=BUCKETS).encode(texts).select(torch.arange(len(texts)))


def batch(
    source: list[str] = SOURCE,
    target: list[str] = TARGET,
    items: list[int] | None = None,
    p: list[float] | None = None,
    judged: bool = True,
    shift: float = 0.0,
) -> base.Batch:
    """A batch; `shift` moves the picture of triplet 0."""
    item_B = torch.tensor(items or list(range(len(source))))
    features = torch.randn(64, VISUAL_DIM, generator=torch.Generator().manual_seed(3))[: len(source)]
    features[0] += shift * torch.arange(VISUAL_DIM)
    p_B = torch.tensor(p or [1.0] * len(source))
    belief = base.Belief(p_B, p_B.clone(), p_B.clone())
    return base.Batch(Frames.single(features), tokens(source), tokens(target), item_B, belief, judged)


def make(visual_dim: int = VISUAL_DIM, **options: Any) -> disncl.Method:
    """A small model without dropout that believes what the batch says, unless a judge is named."""
    small = {"dim": DIM, "part_dim": 8, "buckets": BUCKETS, "dropout": 0.0, "text_dropout": 0.0, "judge": "none"}
    config = configure(disncl.Config, {**small, **options}, "disncl")
    torch.manual_seed(1)
    return disncl.Method(config, visual_dim, NgramTextEncoder(config.buckets, config.dim))


def values(terms: dict[str, torch.Tensor]) -> dict[str, float]:
    return {name: value.item() for name, value in terms.items()}


# ---- switches

CROSS = {"V_X-V", "T_X-T", "V_X-T", "T_X-V"}
INSIDE = {"V_X-V_S", "T_X-T_S"}
SHARED = {"V_S-T", "T_S-V"}


@pytest.mark.parametrize(
    ("off", "terms", "discriminators", "exclusive"),
    [
        ({}, TERMS, CROSS | INSIDE | SHARED, True),
        ({"align_weight": 0}, TERMS - {"align_vs", "align_vt"}, CROSS | INSIDE | SHARED, True),
        ({"soft_weight": 0}, TERMS - {"soft_vs", "soft_vt"}, CROSS | INSIDE | SHARED, True),
        ({"reg_weight": 0}, TERMS - {"reg"}, CROSS | SHARED, True),
        ({"dis_weight": 0}, TERMS - {"invariant", "exclusive", "adversary"}, INSIDE, True),
        ({"gamma": 1}, TERMS - {"exclusive", "adversary"}, INSIDE | SHARED, True),
        ({"gamma": 0}, TERMS - {"invariant"}, CROSS | INSIDE, True),
        ({"gamma": 1, "reg_weight": 0}, TERMS - {"exclusive", "adversary", "reg"}, SHARED, False),
        ({"dis_weight": 0, "reg_weight": 0}, {t for t in TERMS if t.startswith(("align", "soft"))}, set(), False),
    ],
    ids=lambda given: str(given) if isinstance(given, dict) else "",  # a set has no order
)
def test_a_term_that_is_off_has_no_modules(
    off: dict[str, Any], terms: set[str], discriminators: set[str], exclusive: bool
) -> None:
    method = make(**off)
    found = method.losses(batch())
    assert set(found) == terms
    assert set(method.discriminators) == discriminators
    assert (method.visual_own is not None) == exclusive == ("exclusive" in method.readings())
    torch.autograd.backward(torch.stack(list(found.values())).sum())
    assert [name for name, weight in method.named_parameters() if weight.grad is None] == []


def test_switching_parts_off_leaves_the_start_of_the_rest() -> None:
    whole, less = make().state_dict(), make(dis_weight=0, reg_weight=0).state_dict()
    assert set(less) < set(whole)
    assert all(torch.equal(less[name], whole[name]) for name in less)


@pytest.mark.parametrize(
    "options",
    [
        {"align_weight": 0, "soft_weight": 0},
        {"reg_weight": -1},
        {"gamma": 1.5},
        {"margin_base": 1},
        {"part_layers": 0},
        {"tau": 0},
    ],
    ids=str,
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        make(**options)


@pytest.mark.parametrize(
    ("change", "term", "factor"),
    [
        ({"gamma": 0.25}, "exclusive", 1.5),
        ({"gamma": 0.25}, "adversary", 1.5),
        ({"beta_2": 1.2}, "adversary", 2.0),
        ({"dis_weight": 3.0}, "invariant", 3.0),
        ({"reg_weight": 3.0}, "reg", 3.0),
        ({"soft_weight": 3.0}, "soft_vt", 3.0),
        ({"source_weight": 3.0}, "soft_vs", 3.0),
        ({"align_weight": 3.0}, "align_vt", 3.0),
    ],
    ids=str,
)
def test_weights_multiply_their_terms(change: dict[str, Any], term: str, factor: float) -> None:
    first: dict[str, Any] = {"gamma": 0.5, "beta_2": 0.1}
    before, after = (make(**options).losses(batch())[term].item() for options in (first, {**first, **change}))
    assert after == pytest.approx(factor * before, rel=1e-5)


def test_the_bound_enters_once_for_either_side() -> None:
    given = batch()
    method = make(source_weight=0, beta_1=0)
    without = method.losses(given)["invariant"].item()
    bound = conditional_bound(method.embed_visual(given.visual), method.embed_text(given.target)).item()
    found = make(source_weight=0, beta_1=0.4).losses(given)["invariant"].item()
    assert found == pytest.approx(without + 0.5 * 0.4 * 2 * bound, rel=1e-5)


# ---- the warm-up


def test_the_warm_up_of_the_paper_is_the_hinge_alone_with_a_constant_margin() -> None:
    method, given = make(warmup_terms="align"), batch(judged=False)
    terms = method.losses(given)
    assert set(terms) == {"align_vs", "align_vt"}
    sim_BB = method.embed_visual(given.visual) @ method.embed_text(given.target).T
    assert terms["align_vt"].item() == pytest.approx(align(sim_BB, base=None, reduction="mean").item(), rel=1e-5)
    assert method.losses(batch())["align_vt"].item() < terms["align_vt"].item(), "the soft margin is smaller"


def test_by_default_the_warm_up_has_all_terms() -> None:
    assert set(make().losses(batch(judged=False))) == TERMS


# ---- who is clean, who is a stranger


def test_a_pair_called_noisy_takes_no_part_in_any_term() -> None:
    method = make()
    p = [0.0, 1.0, 1.0, 1.0, 0.5, 1.0]
    before, after = (values(method.losses(batch(p=p, shift=shift))) for shift in (0.0, 3.0))
    assert before == pytest.approx(after, rel=1e-6)
    assert values(method.losses(batch(shift=3.0))) != pytest.approx(values(method.losses(batch())), rel=1e-3)


def test_rows_of_one_item_are_never_strangers() -> None:
    """Informations need pairs of different items: without any, nothing but the bound is left."""
    terms = values(make(beta_1=0).losses(batch(items=[4] * len(SOURCE))))
    assert all(abs(value) == 0 for value in terms.values()), terms


def test_a_caption_of_the_same_item_is_no_negative() -> None:
    """Triplets 0 and 1 are of one item; whichever of the two is put between the others, no term sees it as another."""
    method = make(align_weight=0, dis_weight=0)
    terms = method.losses(batch(items=[0, 0, 1, 2, 3, 4]))
    doubled = method.losses(batch(items=[0, 5, 1, 2, 3, 4]))
    assert terms["reg"].item() != pytest.approx(doubled["reg"].item(), rel=1e-6)
    assert terms["soft_vt"].item() < doubled["soft_vt"].item()


def test_a_batch_of_one_is_finite_and_teaches_nothing() -> None:
    method = make(beta_1=0)
    terms = method.losses(batch(SOURCE[:1], TARGET[:1]))
    torch.autograd.backward(torch.stack(list(terms.values())).sum())
    assert all(value.item() == 0 for value in terms.values())
    assert not any(weight.grad.to_dense().any() for weight in method.parameters() if weight.grad is not None)


def test_a_judge_that_leaves_no_two_pairs_has_told_nothing() -> None:
    """Of two pairs, in one of two orders, eq. (2) calls at most one clean: then both are presumed to match."""
    given, swapped = batch(SOURCE[:2], TARGET[:2]), batch(SOURCE[1::-1], TARGET[1::-1])
    plain, judged = make(judge="none"), make(judge="mutual")
    told = 0
    for each in (given, swapped):
        sim_BB = plain.embed_visual(each.visual) @ plain.embed_text(each.target).T
        if sim_BB.trace() < sim_BB.sum() - sim_BB.trace():
            told += 1
            for term in ("soft_vt", "align_vt"):
                assert judged.losses(each)[term].item() == plain.losses(each)[term].item() != 0
    assert told == 1


@pytest.mark.parametrize(("weight", "same"), [(0.0, True), (1.0, False)])
def test_without_weight_the_source_captions_are_not_read(weight: float, same: bool) -> None:
    method = make(source_weight=weight)
    one, other = values(method.losses(batch())), values(method.losses(batch(source=SOURCE[::-1])))
    assert (one == pytest.approx(other, rel=1e-6)) == same


# ---- gradients


def slopes(method: disncl.Method, term: str, module: torch.nn.Module) -> list[torch.Tensor]:
    found = torch.autograd.grad(method.losses(batch())[term], list(module.parameters()), allow_unused=True)
    return [torch.zeros(1) if grad is None else grad for grad in found]


@pytest.mark.parametrize("term", ["adversary", "reg"])
def test_the_part_flees_what_its_discriminator_seeks(term: str) -> None:
    method = make()
    given = batch()
    names = {"adversary": ("V_X-T", "T_X-V"), "reg": ("V_X-V_S", "T_X-T_S")}[term]
    assert method.visual_own is not None
    scores = [p for name in names for p in method.discriminators[name].parameters()]
    parts = [p for p in method.visual_own.parameters()]
    optimizer = torch.optim.SGD([{"params": scores}, {"params": parts}], lr=0.0)

    def step(score_lr: float, part_lr: float) -> float:
        """The discriminators' loss after one small step of either player."""
        kept = {name: value.clone() for name, value in method.state_dict().items()}
        loss = method.losses(given)[term]
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.param_groups[0]["lr"], optimizer.param_groups[1]["lr"] = score_lr, part_lr
        optimizer.step()
        after = method.losses(given)[term].item()
        method.load_state_dict(kept)
        return after - loss.item()

    assert step(1e-2, 0.0) < 0 < step(0.0, 1e-2)


@pytest.mark.parametrize("side", ["visual_own", "text_own"])
@pytest.mark.parametrize(("term", "flees"), [("exclusive", False), ("adversary", True), ("reg", True)])
def test_what_a_part_flees_and_what_it_seeks(term: str, flees: bool, side: str) -> None:
    """Down the slope of a term its value grows where the gradient is reversed."""
    method = make()
    part, before = getattr(method, side), values(method.losses(batch()))[term]
    down = slopes(method, term, part)
    with torch.no_grad():
        for weight, slope in zip(part.parameters(), down, strict=True):
            weight.sub_(0.1 * slope)
    after = values(method.losses(batch()))[term]
    assert after > before if flees else after < before


@pytest.mark.parametrize(("opposed", "moved"), [("part", False), ("both", True)])
def test_who_flees_is_an_option(opposed: str, moved: bool) -> None:
    method = make(opposed=opposed)
    for side in (method.visual_shared, method.text_shared):
        assert any(grad.any() for grad in slopes(method, "reg", side)) == moved
    assert method.visual_own is not None
    assert all(grad.any() for grad in slopes(method, "reg", method.visual_own))


def test_the_shared_parts_feel_their_information() -> None:
    method = make(beta_1=0)
    for side in (method.visual_shared, method.text_shared):
        assert all(grad.any() for grad in slopes(method, "invariant", side))


# ---- what is learned


def test_the_exclusive_reading_is_of_the_other_parts() -> None:
    method, given = make(part_dim=5).eval(), batch()
    exclusive = method.readings()["exclusive"]
    for main_BD, own_BD in (
        (method.embed_visual(given.visual), exclusive.embed_visual(given.visual)),
        (method.embed_text(given.target), exclusive.embed_text(given.target)),
    ):
        assert main_BD.shape == own_BD.shape == (len(SOURCE), 5)
        torch.testing.assert_close(own_BD.norm(dim=1), torch.ones(len(SOURCE)))
        assert not torch.allclose(main_BD, own_BD)


def explained(part_VD: torch.Tensor, about_VD: torch.Tensor) -> float:
    """Share of the variance that a linear map of the part explains."""
    part_VD = torch.cat([part_VD, torch.ones(len(part_VD), 1)], dim=1)
    rest_VD = about_VD - part_VD @ torch.linalg.lstsq(part_VD, about_VD).solution
    return 1 - float(rest_VD.square().sum() / (about_VD - about_VD.mean(0)).square().sum())


@pytest.mark.slow
def test_a_known_mixture_comes_apart() -> None:
    """A picture is a word, which its caption says, and a background, which no caption mentions."""
    words, count = 16, 64
    draws = torch.Generator().manual_seed(11)
    look_WD = torch.randn(words, 8, generator=draws)
    table = NgramTokenizer(buckets=1024).encode([f"word{number}" for number in range(words)])

    def draw(size: int) -> tuple[Frames, Tokens, torch.Tensor, torch.Tensor]:
        word_B = torch.randint(words, (size,), generator=draws)
        ground_BD = torch.randn(size, 8, generator=draws)
        visual = Frames.single(torch.cat([look_WD[word_B], ground_BD], dim=1))
        return visual, table.select(word_B), look_WD[word_B], ground_BD

    method = make(16, dim=32, part_dim=12, part_layers=3, buckets=1024)
    dense, sparse = smallbatch.trained(method)
    optimizers = [torch.optim.Adam(dense, lr=3e-3), torch.optim.SparseAdam(sparse, lr=1e-2)]
    one_B = torch.ones(count)
    belief = base.Belief(one_B, one_B, one_B)
    for _ in range(300):
        visual, texts, _, _ = draw(count)
        terms = method.losses(base.Batch(visual, texts, texts, torch.arange(count), belief, judged=True))
        for optimizer in optimizers:
            optimizer.zero_grad()
        torch.autograd.backward(torch.stack(list(terms.values())).sum())
        for optimizer in optimizers:
            optimizer.step()
    visual, _, look_BD, ground_BD = draw(512)
    with torch.no_grad():
        v_S, v_X = method.embed_visual(visual), method.readings()["exclusive"].embed_visual(visual)
    assert explained(v_S, look_BD) > explained(v_X, look_BD) + 0.3
    assert explained(v_X, ground_BD) > explained(v_S, ground_BD) + 0.1
