"""DisNCL's losses against independent float64 computations, forward and gradient, and where nothing is to compare."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import losscases
import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.special import log_expit, logsumexp

from ccr_cli.losses import disncl

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Oracle = Callable[[Array, Mask, Array], float]
Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
TAU, HARD, ALPHA, BASE = 0.05, 0.3, 0.2, 10.0

# Float32 against float64: two to four times the largest error measured over all cases. Absolute errors count where
# differences of nearly equal numbers are taken (soft targets that are almost met).
VALUE_32 = 1e-6
GRADIENT_32 = (1e-6, 5e-6)  # Euclidean norm, relative and absolute

# ---- the oracles: loops over explicit candidate lists, no code shared with the package


def candidates(mask: Mask, weight: Array, i: int) -> list[int]:
    return [j for j in range(len(mask)) if j == i or (mask[i, j] and weight[j] > 0)]


def oracle_align(reduction: str, constant: bool = False, frozen: Array | None = None) -> Oracle:
    """Eq. (3). The margin is a constant for the gradient: `frozen` holds the similarities that it is taken from."""

    def total(sim: Array, mask: Mask, weight: Array) -> float:
        out = 0.0
        for s, m in ((sim, mask), (sim.T, mask.T)):
            cost, mass = 0.0, 0.0
            for i in np.flatnonzero(weight > 0).tolist():
                h = ((sim if frozen is None else frozen)[i, i] + 1) / 2
                margin = ALPHA if constant else (BASE**h - 1) / (BASE - 1) * ALPHA
                rivals = [s[i, j] for j in candidates(m, weight, i) if j != i]
                if rivals:
                    cost += weight[i] * max(0.0, margin + max(rivals) - s[i, i])
                    mass += weight[i]
            out += cost if reduction == "sum" else cost / mass if mass else 0.0
        return out

    return total


def oracle_soft(reduction: str, frozen: Array | None = None) -> Oracle:
    """Eq. (4) to (6). `frozen` holds the similarities that the targets are taken from."""

    def total(sim: Array, mask: Mask, weight: Array) -> float:
        target = sim if frozen is None else frozen
        both = mask & mask.T
        cost, mass = 0.0, 0.0
        for i in np.flatnonzero(weight > 0).tolist():
            keep = candidates(both, weight, i)
            if len(keep) < 2:
                continue
            mass += weight[i]
            for s, t in ((sim, target.T), (sim.T, target)):
                log_p = s[i, keep] / TAU - logsumexp(s[i, keep] / TAU)
                other = np.exp(t[i, keep] / TAU - logsumexp(t[i, keep] / TAU))
                cost -= weight[i] * float((((1 - HARD) * other + HARD * (np.array(keep) == i)) * log_p).sum())
        return cost if reduction == "sum" else cost / mass if mass else 0.0

    return total


def oracle_jsd(sim: Array, mask: Mask, weight: Array) -> float:
    """Eq. (9) of the logits 10 sim: the pairs on the diagonal against all that are unmasked beside it."""
    joint, joint_mass, marginal, marginal_mass = 0.0, 0.0, 0.0, 0.0
    for i in range(len(sim)):
        joint += weight[i] * log_expit(10 * sim[i, i])
        joint_mass += weight[i]
        for j in range(len(sim)):
            if j != i and mask[i, j]:
                marginal += weight[i] * weight[j] * log_expit(-10 * sim[i, j])
                marginal_mass += weight[i] * weight[j]
    return float(joint / joint_mass + marginal / marginal_mass) if joint_mass and marginal_mass else 0.0


def jsd(sim: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    off = mask & ~torch.eye(len(sim), dtype=torch.bool)
    outer = torch.where(off, weight[:, None] * weight[None, :], 0.0)
    return disncl.jensen_shannon(10 * sim.diagonal(), 10 * sim.reshape(-1), weight, outer.reshape(-1))


def oracle_bound(sim: Array, mask: Mask, weight: Array) -> float:
    """Eq. (10) of the rows of a matrix and of its transpose."""
    cost = sum(w * ((a - b) ** 2).sum() / 2 for w, a, b in zip(weight, sim, sim.T, strict=True))
    return float(cost / weight.sum()) if weight.sum() else 0.0


LOSSES: dict[str, tuple[Loss, Oracle]] = {
    "align-sum": (lambda s, m, w: disncl.align(s, m, weight_B=w), oracle_align("sum")),
    "align-mean": (lambda s, m, w: disncl.align(s, m, reduction="mean", weight_B=w), oracle_align("mean")),
    "align-warm-up": (lambda s, m, w: disncl.align(s, m, base=None, weight_B=w), oracle_align("sum", constant=True)),
    "soft-sum": (lambda s, m, w: disncl.soft_alignment(s, m, hard_share=HARD, weight_B=w), oracle_soft("sum")),
    "soft-mean": (
        lambda s, m, w: disncl.soft_alignment(s, m, hard_share=HARD, reduction="mean", weight_B=w),
        oracle_soft("mean"),
    ),
    "jensen-shannon": (jsd, oracle_jsd),
    "conditional-bound": (lambda s, m, w: disncl.conditional_bound(s, s.T, w), oracle_bound),
}
FROZEN: dict[str, Callable[[Array], Oracle]] = {
    "align-sum": lambda at: oracle_align("sum", frozen=at),
    "align-mean": lambda at: oracle_align("mean", frozen=at),
    "soft-sum": lambda at: oracle_soft("sum", frozen=at),
    "soft-mean": lambda at: oracle_soft("mean", frozen=at),
}
SIMS = ("random", "saturated", "equal")
MASKS = ("full", "duplicates", "one-sided", "weights")


def make_case(size: int, kind: str, mask_kind: str) -> tuple[Array, Mask, Array]:
    """Similarities, a mask and weights of one batch."""
    rng = np.random.default_rng(size * 100 + SIMS.index(kind) * 10 + MASKS.index(mask_kind))
    sim = rng.normal(0.05, 0.15, (size, size)) + 0.4 * np.eye(size)
    if kind == "saturated":
        sim = np.sign(sim + 0.05)
    if kind == "equal":
        sim = np.full((size, size), 0.3)
    item = np.arange(size)
    if mask_kind != "full":
        item[-1] = item[0]  # two captions of one item
    mask = (item[:, None] != item[None, :]) | np.eye(size, dtype=bool)
    if mask_kind == "one-sided" and size > 2:
        mask[1, 2:] = False  # rows and columns with different candidates
        mask[1, 0] = False  # row 1 is left with its diagonal; its column is not
    weight = rng.uniform(0.1, 1.0, size)
    if mask_kind == "weights":
        weight[: size // 2] = 0.0
    return sim, mask, weight


def gradient(loss: Loss, sim: Array, mask: Mask, weight: Array, dtype: torch.dtype) -> tuple[float, Array]:
    tensor = torch.tensor(sim, dtype=dtype, requires_grad=True)
    value = loss(tensor, torch.tensor(mask), torch.tensor(weight, dtype=dtype))
    torch.autograd.backward(value)
    assert tensor.grad is not None
    return float(value.detach().double()), tensor.grad.double().numpy()


@pytest.mark.parametrize("mask_kind", MASKS)
@pytest.mark.parametrize("kind", SIMS)
@pytest.mark.parametrize("size", losscases.SIZES)
@pytest.mark.parametrize("name", LOSSES)
def test_equals_the_oracle(name: str, size: int, kind: str, mask_kind: str) -> None:
    loss, oracle = LOSSES[name]
    sim, mask, weight = make_case(size, kind, mask_kind)
    value, grad = gradient(loss, sim, mask, weight, torch.float64)
    assert value == pytest.approx(oracle(sim, mask, weight), rel=1e-6, abs=1e-12)
    hinge = name.startswith("align")
    if hinge and kind != "random":
        return  # a tie is a kink: no derivative to compare with
    h = 1e-7 if hinge else 1e-4  # piecewise linear: step over as few kinks as possible
    at = FROZEN[name](sim) if name in FROZEN else oracle
    rng = np.random.default_rng(0)
    for _ in range(6 if size < 10 else 2):
        step = rng.normal(size=sim.shape)

        def along(t: float, step: Array = step) -> float:
            return at(sim + t * step, mask, weight)

        expected = (8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12 * h)
        rounding = 1e-9 + 1e-15 * abs(value) / h
        assert (grad * step).sum() == pytest.approx(
            expected, rel=1e-6, abs=1e-6 * float(np.linalg.norm(grad)) + rounding
        )


@pytest.mark.parametrize("name", LOSSES)
def test_float32_is_as_close_as_stated(name: str) -> None:
    loss, _ = LOSSES[name]
    for size, kind, mask_kind in product([2, 3, 128], SIMS, MASKS):
        sim, mask, weight = make_case(size, kind, mask_kind)
        # the inputs rounded to float32, so that only the computation differs
        sim, weight = (x.astype(np.float32).astype(np.float64) for x in (sim, weight))
        value, grad = gradient(loss, sim, mask, weight, torch.float64)
        value32, grad32 = gradient(loss, sim, mask, weight, torch.float32)
        assert value32 == pytest.approx(value, rel=VALUE_32, abs=1e-7)
        assert np.linalg.norm(grad32 - grad) <= GRADIENT_32[0] * np.linalg.norm(grad) + GRADIENT_32[1]


@pytest.mark.parametrize("size", [1, 2, 128])
@pytest.mark.parametrize("name", LOSSES)
def test_finite_under_bfloat16_autocast(name: str, size: int) -> None:
    torch.manual_seed(size)
    left, right = torch.nn.functional.normalize(torch.randn(2, size, 8), dim=2)
    left.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sim = left @ right.T
        assert sim.dtype == torch.bfloat16
        loss = LOSSES[name][0](sim, torch.ones(size, size, dtype=torch.bool), torch.linspace(0, 1, size))
    assert loss.dtype in (torch.float32, torch.float64) and loss.isfinite()
    torch.autograd.backward(loss)
    assert left.grad is not None and left.grad.isfinite().all()


@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize("name", [name for name in LOSSES if name != "conditional-bound"])
def test_nothing_to_compare_gives_zero(name: str, size: int) -> None:
    sim = torch.rand(size, size, requires_grad=True)
    loss = LOSSES[name][0](sim, torch.eye(size, dtype=torch.bool), torch.ones(size))
    torch.autograd.backward(loss)
    assert loss.item() == 0
    assert sim.grad is not None and not sim.grad.any()


@pytest.mark.parametrize("name", LOSSES)
def test_no_weight_gives_zero(name: str) -> None:
    sim = torch.rand(4, 4, requires_grad=True)
    loss = LOSSES[name][0](sim, torch.ones(4, 4, dtype=torch.bool), torch.zeros(4))
    torch.autograd.backward(loss)
    assert loss.item() == 0
    assert sim.grad is not None and not sim.grad.any()


def test_the_soft_margin_grows_from_nothing_to_the_whole() -> None:
    bounds = disncl.soft_margin(torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0]), ALPHA, BASE)
    assert bounds[0] == 0 and bounds[-1] == pytest.approx(ALPHA)
    assert (bounds.diff() > 0).all()
    with pytest.raises(ValueError, match=r"\b1\.0\b"):
        disncl.soft_margin(torch.ones(2), ALPHA, 1.0)


def test_a_noisy_column_takes_no_share_of_the_softmax() -> None:
    sim = torch.rand(5, 5)
    weight = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0])
    kept = torch.tensor([0, 1, 3])
    whole = disncl.soft_alignment(sim, weight_B=weight)
    assert whole.item() == pytest.approx(disncl.soft_alignment(sim[kept][:, kept]).item(), rel=1e-6)
    assert whole.item() != pytest.approx(disncl.soft_alignment(sim).item(), rel=1e-2)


def test_targets_of_the_other_direction_are_soft() -> None:
    sim = torch.tensor([[0.5, 0.5], [0.0, 0.5]])  # picture 0 fits both captions
    hard = disncl.soft_alignment(sim, hard_share=1.0)
    assert hard.item() == pytest.approx(2 * (np.log(2) + np.log1p(np.exp(-10))), rel=1e-5)
    assert disncl.soft_alignment(sim, hard_share=0.0).item() != pytest.approx(hard.item(), rel=0.1)


@pytest.mark.parametrize("loss", [disncl.align, disncl.soft_alignment])
def test_an_unknown_reduction_is_refused(loss: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="'median'"):
        loss(torch.rand(2, 2), reduction="median")


# ---- mutual information


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("logit", [30.0, -30.0, 1000.0, -1000.0])
def test_a_saturated_discriminator_gives_finite_values_and_slopes(logit: float, dtype: torch.dtype) -> None:
    joint = torch.full((4,), logit, dtype=dtype, requires_grad=True)
    marginal = torch.full((4,), logit, dtype=dtype, requires_grad=True)
    value = disncl.jensen_shannon(joint, marginal)
    torch.autograd.backward(value)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(-abs(logit), rel=1e-6)  # one of the two sides is wholly wrong
    wrong = marginal if logit > 0 else joint
    assert wrong.grad is not None
    torch.testing.assert_close(wrong.grad.float().abs(), torch.full((4,), 0.25))


def test_an_undecided_discriminator_gives_minus_log_4() -> None:
    assert disncl.jensen_shannon(torch.zeros(3), torch.zeros(5)).item() == pytest.approx(-np.log(4), rel=1e-6)


def test_joint_pairs_without_any_stranger_teach_nothing() -> None:
    joint = torch.rand(4, requires_grad=True)
    value = disncl.jensen_shannon(joint, torch.rand(4), None, torch.zeros(4))
    torch.autograd.backward(value)
    assert value.item() == 0 and joint.grad is not None and not joint.grad.any()


@pytest.mark.parametrize(
    ("items", "other", "found"),
    [
        ([], [], []),
        ([7], [0], [False]),
        ([7, 7, 7], [0, 1, 2], [False] * 3),
        ([1, 2], [1, 0], [True] * 2),
        ([1, 2, 3], [1, 2, 0], [True] * 3),
        ([1, 1, 2, 1], [2, 2, 3, 2], [True] * 4),
    ],
)
def test_strangers_are_the_next_rows_of_other_items(items: list[int], other: list[int], found: list[bool]) -> None:
    row, there = disncl.strangers(torch.tensor(items, dtype=torch.int64))
    assert row.tolist() == other and there.tolist() == found


def test_strangers_differ_for_almost_all_rows() -> None:
    item = torch.randperm(128, generator=torch.Generator().manual_seed(0)) // 2  # every item twice
    row, there = disncl.strangers(item)
    assert there.all() and (item[row] != item).all()
    assert len(set(row.tolist())) > 120


def test_the_bound_is_what_separates_the_means() -> None:
    one, two = torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    assert disncl.conditional_bound(one, two).item() == pytest.approx((0.5 + 12.5) / 2)
    assert disncl.conditional_bound(one, two, torch.tensor([1.0, 0.0])).item() == pytest.approx(0.5)
