"""FUME's losses and uncertainties against independent float64 computations, forward and gradient; hard cases."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.special import digamma, gammaln
from scipy.stats import dirichlet

from ccr_cli.losses import credibility as fume

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
SIZES = (2, 24, pytest.param(128, marks=pytest.mark.soak))
KINDS = ("random", "ties", "one-hot")

# Float32 against float64, relative and absolute: two to four times the largest error measured over all cases.
VALUE_32 = (1e-6, 1e-6)
GRADIENT_32 = (2e-5, 2e-6)  # Euclidean norm


# ---- the oracles: loops, no code shared with the package


def oracle_credibility(m: Array) -> Array:
    out = np.empty_like(m)
    for i, k in np.ndindex(*m.shape):
        others = [m[i, other] for other in range(m.shape[1]) if other != k]
        out[i, k] = (m[i, k] + 1 - max(others, default=0.0)) / 2
    return out


def oracle_fuzzy(m: Array, label: npt.NDArray[np.int64], weight: Array) -> float:
    total = 0.0
    for i, true in enumerate(label):
        r = np.array([(m[i, k] + 1 - m[i, true]) / 2 for k in range(m.shape[1])])
        r[true] = oracle_credibility(m[i : i + 1])[0, true] - 1
        total += weight[i] * np.sqrt((r**2).sum())
    return float(total / weight.sum()) if weight.any() else 0.0


def oracle_consistency(views: list[Array], tau: float, mask: Mask, weights: Array, include_self: bool) -> float:
    """Eq. (6), (7), an anchor after the other; a view counts among its own item's by its weight."""
    total, count, size = 0.0, len(views), len(views[0])
    for j in range(count):
        cost, mass = 0.0, 0.0
        for i in range(size):
            e = np.exp(np.stack(views) @ views[j][i] / tau)  # (views, items)
            there = weights > 0
            mine = [v for v in range(count) if there[v, i] and (v != j or include_self)]
            others = there & mask[i] & (np.arange(size) != i)
            if mine and others.any() and weights[j, i] > 0:
                own, rivals = sum(weights[v, i] * e[v, i] for v in mine), e[others].sum()
                cost -= weights[j, i] * np.log(own / (own + rivals))
                mass += weights[j, i]
        total += cost / mass if mass else 0.0
    return total


def oracle_evidential(e: Array, label: npt.NDArray[np.int64], kl_weight: float, weight: Array) -> float:
    """Expected squared error under the Dirichlet (its mean and variance by scipy), and the divergence from uniform."""
    total = 0.0
    for i, true in enumerate(label):
        alpha, y = e[i] + 1, np.eye(e.shape[1])[true]
        cost = ((y - dirichlet.mean(alpha)) ** 2 + dirichlet.var(alpha)).sum()
        a = np.where(y == 1, 1.0, alpha)
        kl = gammaln(a.sum()) - gammaln(a).sum() - gammaln(len(a)) + ((a - 1) * (digamma(a) - digamma(a.sum()))).sum()
        total += weight[i] * (cost + kl_weight * kl)
    return float(total / weight.sum()) if weight.any() else 0.0


# ---- cases


def memberships(classes: int, kind: str) -> tuple[Array, npt.NDArray[np.int64], Array]:
    """Memberships of six items, their labels, and weights, one of them 0."""
    rng = np.random.default_rng(classes)
    label = rng.integers(0, classes, 6)
    m = {
        "random": rng.uniform(0.05, 0.9, (6, classes)),
        "ties": np.full((6, classes), 0.25),
        "one-hot": np.eye(classes)[label],
    }[kind]
    weight = rng.uniform(0.1, 1.0, 6)
    weight[2] = 0.0
    return m, label, weight


def unit_views(size: int, kind: str, count: int = 3) -> tuple[list[Array], Mask, Array]:
    """Views of a batch with two captions of one item, and weights with a zero; `ties`: captions that are identical."""
    rng = np.random.default_rng(size)
    views = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in rng.normal(size=(count, size, 5))]
    if kind == "ties":
        views = [np.tile(x[:1], (size, 1)) for x in views]
    if kind == "one-hot":
        views = [views[0].copy() for _ in views]
    item = np.arange(size)
    if size > 2:
        item[-1] = item[0]
    mask = (item[:, None] != item[None, :]) | np.eye(size, dtype=bool)
    weights = rng.uniform(0.1, 1.0, (count, size))
    weights[0] = 1.0
    weights[1, 1] = 0.0
    return views, mask, weights


def check(
    loss: Callable[[list[torch.Tensor]], torch.Tensor], oracle: Callable[[list[Array]], float], inputs: list[Array]
) -> None:
    """Value, gradient along random directions, and float32 against float64."""
    value, grads = run(loss, inputs, torch.float64)
    assert value == pytest.approx(oracle(inputs), rel=1e-6, abs=1e-12)
    rng, h = np.random.default_rng(0), 1e-5
    norm = np.sqrt(sum((g**2).sum() for g in grads))
    for _ in range(3):
        steps = [rng.normal(size=x.shape) for x in inputs]

        def at(t: float, steps: list[Array] = steps) -> float:
            return oracle([x + t * d for x, d in zip(inputs, steps, strict=True)])

        along = sum(float((g * d).sum()) for g, d in zip(grads, steps, strict=True))
        slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
        assert along == pytest.approx(slope, rel=1e-6, abs=1e-6 * norm + 1e-9)
    close_in_float32(loss, inputs)


def run(
    loss: Callable[[list[torch.Tensor]], torch.Tensor], inputs: list[Array], dtype: torch.dtype
) -> tuple[float, list[Array]]:
    tensors = [torch.tensor(x, dtype=dtype, requires_grad=True) for x in inputs]
    value = loss(tensors)
    assert value.dtype == dtype and value.shape == ()
    torch.autograd.backward(value)
    assert all(t.grad is not None and t.grad.isfinite().all() for t in tensors)
    return float(value.detach().double()), [t.grad.double().numpy() for t in tensors if t.grad is not None]


def close_in_float32(loss: Callable[[list[torch.Tensor]], torch.Tensor], inputs: list[Array]) -> None:
    rounded = [x.astype(np.float32).astype(np.float64) for x in inputs]
    value, grads = run(loss, rounded, torch.float64)
    value32, grads32 = run(loss, rounded, torch.float32)
    assert value32 == pytest.approx(value, rel=VALUE_32[0], abs=VALUE_32[1])
    for g, g32 in zip(grads, grads32, strict=True):
        assert np.linalg.norm(g32 - g) <= GRADIENT_32[0] * np.linalg.norm(g) + GRADIENT_32[1]


# ---- values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [1, *SIZES])
def test_credibility_equals_the_oracle(classes: int, kind: str) -> None:
    m, _, _ = memberships(classes, kind)
    np.testing.assert_allclose(fume.credibility(torch.tensor(m)).numpy(), oracle_credibility(m), rtol=1e-12)


def test_credibility_by_hand() -> None:
    # eq. (2): (0.8 + 1 - 0.3)/2, (0.3 + 1 - 0.8)/2, (0.1 + 1 - 0.8)/2; eq. (5) with the true class 1 and 0
    m = torch.tensor([[0.8, 0.3, 0.1]], dtype=torch.float64)
    torch.testing.assert_close(fume.credibility(m), torch.tensor([[0.75, 0.25, 0.15]], dtype=torch.float64))
    wrong, right = (fume.training_credibility(m, torch.tensor([true])) for true in (1, 0))
    torch.testing.assert_close(wrong, torch.tensor([[0.75, 0.25, 0.4]], dtype=torch.float64))
    torch.testing.assert_close(right, torch.tensor([[0.75, 0.25, 0.15]], dtype=torch.float64))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", SIZES)
def test_fuzzy_loss_equals_the_oracle(classes: int, weighted: bool) -> None:
    m, label, weight = memberships(classes, "random")
    weight = weight if weighted else np.ones(6)
    w = torch.tensor(weight) if weighted else None
    check(
        lambda x: fume.fuzzy_loss(x[0], torch.tensor(label), w),
        lambda x: oracle_fuzzy(x[0], label, weight),
        [m],
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", SIZES)
def test_fuzzy_loss_equals_the_oracle_where_it_has_a_kink(classes: int, kind: str) -> None:
    m, label, weight = memberships(classes, kind)
    value = fume.fuzzy_loss(torch.tensor(m), torch.tensor(label), torch.tensor(weight)).item()
    assert value == pytest.approx(oracle_fuzzy(m, label, weight), rel=1e-12, abs=1e-15)
    assert (value == 0) == (kind == "one-hot")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_consistency_loss_equals_the_oracle(size: int, include_self: bool, kind: str) -> None:
    views, mask, weights = unit_views(size, kind)
    for tau, w in ((1.0, None), (0.1, weights)):
        given = None if w is None else list(torch.tensor(w))
        truth = np.ones_like(weights) if w is None else w

        def loss(x: list[torch.Tensor], tau: float = tau, given: list[torch.Tensor] | None = given) -> torch.Tensor:
            return fume.consistency_loss(x, tau, torch.tensor(mask), given, include_self=include_self)

        def oracle(x: list[Array], tau: float = tau, truth: Array = truth) -> float:
            return oracle_consistency(x, tau, mask, truth, include_self)

        check(loss, oracle, views)


def test_consistency_loss_of_two_views_by_hand() -> None:
    # orthogonal items, identical views, tau = 1: P = 2e / (2e + 2), without the anchor itself e / (e + 2)
    views = [torch.eye(2, dtype=torch.float64)] * 2
    e = np.e
    assert fume.consistency_loss(views).item() == pytest.approx(-2 * np.log(2 * e / (2 * e + 2)))
    assert fume.consistency_loss(views, include_self=False).item() == pytest.approx(-2 * np.log(e / (e + 2)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", SIZES)
def test_evidential_classification_equals_the_oracle(classes: int, weighted: bool) -> None:
    rng = np.random.default_rng(classes)
    e, label = rng.gamma(1.0, 4.0, (6, classes)), rng.integers(0, classes, 6)
    weight = rng.uniform(0.1, 1.0, 6) if weighted else np.ones(6)
    w = torch.tensor(weight) if weighted else None
    check(
        lambda x: fume.evidential_classification(x[0], torch.tensor(label), 0.7, w),
        lambda x: oracle_evidential(x[0], label, 0.7, weight),
        [e],
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", SIZES)
def test_decision_uncertainty_equals_the_oracle(classes: int, kind: str) -> None:
    c = oracle_credibility(memberships(classes, kind)[0])
    entropy = np.zeros(len(c))
    for i, k in np.ndindex(*c.shape):
        entropy[i] -= sum(x * np.log2(x) for x in (c[i, k], 1 - c[i, k]) if x > 0) / c.shape[1]
    np.testing.assert_allclose(fume.decision_uncertainty(torch.tensor(c)).numpy(), entropy, rtol=1e-12, atol=1e-15)


def test_uncertainty_of_a_sure_and_of_an_ignorant_view() -> None:
    m = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.5, 0.5, 0.5]])
    torch.testing.assert_close(fume.decision_uncertainty(fume.credibility(m)), torch.tensor([0.0, 1.0, 1.0]))


def test_pair_uncertainty_has_the_properties_of_the_paper() -> None:
    u, v = torch.linspace(0, 1, 11), torch.linspace(0, 1, 7)
    pair = fume.pair_uncertainty(u, v)
    assert pair.shape == (11, 7) and pair.min() == 0 and pair.max() == 1
    assert (pair >= torch.maximum(u[:, None], v[None, :]) - 1e-6).all()
    assert (pair[-1] == 1).all() and (pair[:, -1] == 1).all()
    assert (pair.diff(dim=0) >= 0).all() and (pair.diff(dim=1) >= 0).all()


def test_evidential_uncertainty_is_blind_to_conflict() -> None:
    e = torch.tensor([[9.0, 0.0, 0.0], [3.0, 3.0, 3.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(fume.evidential_uncertainty(e), torch.tensor([0.25, 0.25, 1.0]))


# ---- hard cases


@pytest.mark.parametrize("kind", KINDS)
def test_the_norm_has_no_infinite_gradient(kind: str) -> None:
    m, label, _ = memberships(4, kind)
    given = torch.tensor(m, requires_grad=True)
    loss = fume.fuzzy_loss(given, torch.tensor(label))
    torch.autograd.backward(loss)
    assert given.grad is not None and given.grad.isfinite().all()
    if kind == "one-hot":  # r = y
        assert loss.item() == 0 and not given.grad.any()


def test_raising_a_third_class_never_helps() -> None:
    """The point of eq. (5): as eq. (2) has it, a wrong class loses credibility by another wrong class's rise."""
    m = torch.tensor([[0.3, 0.3, 0.3]], requires_grad=True)
    torch.autograd.backward(fume.fuzzy_loss(m, torch.tensor([0])))
    assert m.grad is not None
    assert m.grad[0, 0] < 0 < min(m.grad[0, 1].item(), m.grad[0, 2].item())


@pytest.mark.parametrize("size", [1, 2, 24])
def test_finite_under_bfloat16_autocast(size: int) -> None:
    torch.manual_seed(size)
    linear = torch.nn.Linear(6, 4)
    label, weight = torch.arange(size) % 4, torch.linspace(0, 1, size)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        raw = [linear(torch.randn(size, 6)) for _ in range(3)]
        assert raw[0].dtype == torch.bfloat16
        z = [torch.nn.functional.normalize(x, dim=1) for x in raw]
        m = fume.membership(z[0], torch.eye(4))
        terms = [
            fume.fuzzy_loss(m, label, weight),
            fume.consistency_loss(z, 0.05, None, [weight] * 3),
            fume.consistency_loss(z, 0.05, include_self=False),
            fume.evidential_classification(torch.nn.functional.softplus(raw[1]), label, 1.0, weight),
        ]
        rest = [fume.decision_uncertainty(fume.credibility(m)), fume.evidential_uncertainty(raw[1].relu())]
    assert all(x.dtype == torch.float32 and x.isfinite().all() for x in [*terms, *rest])
    torch.autograd.backward(torch.stack(terms).sum())
    assert linear.weight.grad is not None and linear.weight.grad.isfinite().all()


@pytest.mark.parametrize("case", ["one", "one item", "no weight"])
def test_nothing_to_compare_gives_zero(case: str) -> None:
    size = 1 if case == "one" else 4
    z = torch.nn.functional.normalize(torch.randn(size, 5), dim=1).requires_grad_()
    mask = torch.eye(size, dtype=torch.bool) if case == "one item" else None
    weights = [torch.zeros(size)] * 2 if case == "no weight" else None
    for include_self in (True, False):
        loss = fume.consistency_loss([z, z], 1.0, mask, weights, include_self=include_self)
        (grad,) = torch.autograd.grad(loss, z)
        assert loss.item() == 0 and not grad.any()
    m = torch.rand(3, 4, requires_grad=True)
    nothing = fume.fuzzy_loss(m, torch.tensor([0, 1, 2]), torch.zeros(3))
    (grad,) = torch.autograd.grad(nothing, m)
    assert nothing.item() == 0 and not grad.any()


def test_a_view_of_weight_zero_might_as_well_not_be_there() -> None:
    torch.manual_seed(0)
    views = list(torch.nn.functional.normalize(torch.randn(3, 6, 5, dtype=torch.float64), dim=2))
    gone = [torch.ones(6), torch.ones(6), torch.zeros(6)]
    torch.testing.assert_close(fume.consistency_loss(views, weights=gone), fume.consistency_loss(views[:2]))


def test_captions_of_one_item_are_not_rivals() -> None:
    torch.manual_seed(0)
    one, two = (torch.nn.functional.normalize(torch.randn(4, 5), dim=1).requires_grad_() for _ in range(2))
    mask = torch.eye(4, dtype=torch.bool)
    mask[2:, :2] = mask[:2, 2:] = True  # 0 and 1 are one item, 2 and 3 another
    loss = fume.consistency_loss([one, two], 1.0, mask)
    moved = [one.detach().clone(), two.detach()]
    moved[0][1] = moved[0][0]
    assert loss.item() == pytest.approx(fume.consistency_loss([one, two], 1.0, mask).item())
    # the share of item 0 alone does not depend on item 1
    weights = [torch.tensor([1.0, 1e-30, 1e-30, 1e-30])] * 2
    before = fume.consistency_loss([one, two], 1.0, mask, weights)
    after = fume.consistency_loss(moved, 1.0, mask, weights)
    assert before.item() == pytest.approx(after.item())


def test_what_makes_no_sense_is_refused() -> None:
    z = torch.eye(3)
    with pytest.raises(ValueError, match=r"temperature 0\.0"):
        fume.consistency_loss([z, z], 0.0)
    with pytest.raises(ValueError, match=r"5 rows, .* 2 views of 3"):
        fume.consistency_loss([z, z[:2]])
    with pytest.raises(ValueError, match=r"0\.\.2"):
        fume.fuzzy_loss(z, torch.tensor([0, 1, 3]))
