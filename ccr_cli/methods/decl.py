"""Deep evidential learning: evidential regression and a hinge that hardens.

Qin et al., "Deep Evidential Learning with Noisy Correspondence for Cross-modal Retrieval", ACM MM 2022, doi
10.1145/3503161.3547922; what the paper leaves open is taken from the authors' code. The paper has one language;
here V-S and V-T are both learned, with equal weights. docs/methods/decl.md lists the other differences.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ccr_cli.losses.decl import dynamic_hinge, evidential_mse, hard_negatives
from ccr_cli.losses.evidential import evidence
from ccr_cli.losses.masks import kept_rows_B, without_zero_weights_BB
from ccr_cli.methods import base
from ccr_cli.methods.config import Count, LeastTau, NotNegative, Whole, equal_rates


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `decl`."""

    tau: LeastTau = 0.1
    """Scale of the evidence, exp(tanh(sim) / tau)."""
    evidential_weight: NotNegative = 1.0
    """Weight of the evidential regression and its KL; 0 drops both."""
    kl_weight: NotNegative = 0.001
    """Weight of the KL to the uniform distribution in the regression, lambda_2. The paper's 0.1 greatly worsens
    retrieval when training from scratch."""
    hinge_weight: NotNegative = 102.4
    """Weight of the dynamic hinge, a mean over the batch: the paper's lambda_1, 0.8, times its batch of 128, since
    the reference code sums the hinge but averages the regression."""
    margin: NotNegative = 0.2
    """Margin of the hinge, in units of tanh(sim)."""
    eta: NotNegative = 0.3
    """Decrease per step in the hinge's number of negatives, which starts at the batch size. The paper's 0.025 reaches
    `mu` after a tenth of its 50,000 steps, 0.3 at step 410."""
    mu: Count = 5
    """Smallest number of negatives of the hinge."""
    noisy_target: Literal["weight", "zero"] = "weight"
    """Treatment of noisy rows: `weight` their loss, or give them the target `zero` (the paper)."""
    alpha: NotNegative = 1.0
    """Weight of V-T relative to V-S."""
    candidates: Whole = 2
    """Number of most similar candidates that determine a query's uncertainty; 0: the whole gallery."""
    judge: str = "two-group"
    judge_side: base.Side = "both"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.evidential_weight == self.hinge_weight == 0:
            raise ValueError("evidential_weight and hinge_weight are both 0, which leaves nothing to train")


class Method(base.EvidentialMethod):
    """Cross-modal evidential learning and the robust dynamic hinge."""

    PRESETS: ClassVar[dict[str, dict[str, object]]] = {
        "paper": {
            "kl_weight": 0.1,
            "eta": 0.025,
            "noisy_target": "zero",
            "judge": "argmax",
            "judge_side": "cross_modal",
            "warmup_epochs": 5,
            "candidates": 0,
            "epochs": 45,
            "lr_drop": 26,
            "batch_size": 128,
            **equal_rates(2e-4),
            "dim": 1024,
        }
    }

    config: Config
    step: Tensor

    def __init__(self, config: Config, visual_dim: int, text_encoder: base.TextEncoder) -> None:
        super().__init__(config, visual_dim, text_encoder)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))  # batches; a resumed run goes on counting

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """Evidential regression and hinge of both views, means over the batch; the judge's labels weight the pairs."""
        c = self.config
        self.step += 1
        count = hard_negatives(math.ceil(int(self.step) / c.accumulate), first=c.batch_size, least=c.mu, rate=c.eta)
        sim = base.views(self, batch)
        p = base.clean_probabilities(self, batch, sim)
        terms = {}
        for view, weight in (("VS", 1.0), ("VT", c.alpha)):
            sim_BB, p_B = getattr(sim, view), getattr(p, view)
            mask_BB = sim.mask if c.noisy_target == "zero" else without_zero_weights_BB(sim.mask, p_B)
            rows_B = kept_rows_B(mask_BB).to(p_B)
            share = weight / rows_B.sum().clamp(min=1)
            if weight and c.evidential_weight:
                mse_B = evidential_mse(
                    evidence(sim_BB, c.tau), p_B, mask_BB, kl_weight=c.kl_weight, noisy_target=c.noisy_target
                )
                terms[f"evidential_{view.lower()}"] = c.evidential_weight * share * (rows_B * mse_B).sum()
            if weight and c.hinge_weight:
                hinge_B = dynamic_hinge(sim_BB.tanh(), count, mask_BB, margin=c.margin)
                terms[f"hinge_{view.lower()}"] = c.hinge_weight * share * (rows_B * p_B * hinge_B).sum()
        return terms

    def evidence(self, sim: Tensor) -> Tensor:
        """The trained evidence: exp(tanh(sim) / tau)."""
        return evidence(sim, self.config.tau)
