"""NRCCR's losses against an independent float64 computation, forward and gradient, and where they could break."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import losscases
import numpy as np
import pytest
import torch
from losscases import Array, Mask
from scipy.special import log_expit, rel_entr, softmax

from ccr_cli.losses.nrccr import feature_distillation, language_cross_entropy, similarity_distillation
from ccr_cli.nets.heads import reverse_gradient

DISTANCES: tuple[Literal["l1", "smooth"], ...] = ("l1", "smooth")

# Float32 against float64, relative and absolute: about twice the largest error measured over all cases.
VALUE_32 = (1e-6, 1e-8)
GRADIENT_32 = (1e-6, 6e-7)  # Euclidean norm


# ---- the oracles: loops over explicit candidate lists, no code shared with the package


def oracle_similarity(teacher: Array, student: Array, mask: Mask, weight: Array, tau: float = 0.07) -> float:
    """Eq. (8): the two divergences, each a weighted mean over the rows (columns) that have a rival."""
    out = 0.0
    for q, p, m in ((teacher, student, mask), (teacher.T, student.T, mask.T)):
        cost, mass = 0.0, 0.0
        for i in np.flatnonzero(weight > 0).tolist():
            keep = [j for j in range(len(m)) if j == i or (m[i, j] and weight[j] > 0)]
            if len(keep) > 1:
                cost += weight[i] * rel_entr(softmax(q[i, keep] / tau), softmax(p[i, keep] / tau)).sum()
                mass += weight[i]
        out += cost / mass / 2 if mass else 0.0
    return out


def oracle_features(distance: str, teacher: Array, student: Array, weight: Array) -> float:
    cost = 0.0
    for h, t, w in zip(teacher, student, weight, strict=True):
        gap = np.abs(h - t)
        smooth = np.where(gap < 4, gap**2 / 8, gap - 2)
        cost += w * (gap.sum() if distance == "l1" else smooth.mean())
    return float(cost / weight.sum())


def oracle_language(source: Array, target: Array) -> float:
    return float(-np.mean(log_expit(source) + log_expit(-target)))  # 1 - F(x) = F(-x)


# ---- cases


def vectors(size: int, kind: str, dim: int = 7) -> tuple[Array, Array, Array]:
    """Unit vectors of teacher and student, and weights."""
    rng = np.random.default_rng(size)
    h, t = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in rng.normal(size=(2, size, dim)))
    if kind == "saturated":
        h, t = -20 * t, 20 * t  # far beyond unit vectors: the line of smooth L1
    return (h, h.copy() if kind == "equal" else t, rng.uniform(0.0, 1.0, size))


def exact32(*arrays: Array) -> list[Array]:
    return [x.astype(np.float32).astype(np.float64) for x in arrays]


# ---- against the oracles


@pytest.mark.parametrize("mask_kind", losscases.MASKS)
@pytest.mark.parametrize("kind", losscases.KINDS)
@pytest.mark.parametrize("size", losscases.SIZES)
def test_similarity_view_equals_the_oracle(size: int, kind: str, mask_kind: str) -> None:
    teacher, student, mask, weight = exact_case(size, kind, mask_kind)

    def loss(p: torch.Tensor) -> torch.Tensor:
        q, w = torch.tensor(teacher, dtype=p.dtype), torch.tensor(weight, dtype=p.dtype)
        return similarity_distillation(q, p, torch.tensor(mask), weight_B=w)

    value, gradient = losscases.derivative(loss, student, torch.float64)
    assert value == pytest.approx(oracle_similarity(teacher, student, mask, weight), rel=1e-6, abs=1e-12)
    losscases.check_slope(lambda p: oracle_similarity(teacher, p, mask, weight), student, gradient)
    losscases.check_float32(loss, student, VALUE_32, GRADIENT_32)


def exact_case(size: int, kind: str, mask_kind: str) -> tuple[Array, Array, Mask, Array]:
    (teacher, student), mask, weight = losscases.make(size, kind, mask_kind, 2)
    teacher, student, weight = exact32(teacher, student, weight)
    return teacher, student, mask, weight


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("kind", losscases.KINDS)
@pytest.mark.parametrize("size", [1, *losscases.SIZES])
def test_feature_view_equals_the_oracle(size: int, kind: str, distance: Literal["l1", "smooth"]) -> None:
    teacher, student, weight = exact32(*vectors(size, kind))

    def loss(t: torch.Tensor) -> torch.Tensor:
        h, w = torch.tensor(teacher, dtype=t.dtype), torch.tensor(weight, dtype=t.dtype)
        return feature_distillation(h, t, distance=distance, weight_B=w)

    value, gradient = losscases.derivative(loss, student, torch.float64)
    assert value == pytest.approx(oracle_features(distance, teacher, student, weight), rel=1e-6, abs=1e-12)
    if kind != "equal" or distance != "l1":  # there every entry is at the kink
        losscases.check_slope(lambda t: oracle_features(distance, teacher, t, weight), student, gradient, h=1e-6)
    losscases.check_float32(loss, student, VALUE_32, GRADIENT_32)


@pytest.mark.parametrize("scale", [1.0, 0.0, 15.0])
@pytest.mark.parametrize("size", [1, *losscases.SIZES])
def test_language_loss_equals_the_oracle(size: int, scale: float) -> None:
    logits = exact32(scale * np.random.default_rng(size).normal(size=(2, size)))[0]
    value, gradient = losscases.derivative(lambda x: language_cross_entropy(x[0], x[1]), logits, torch.float64)
    assert value == pytest.approx(oracle_language(*logits), rel=1e-6)
    losscases.check_slope(lambda x: oracle_language(*x), logits, gradient)
    losscases.check_float32(lambda x: language_cross_entropy(x[0], x[1]), logits, VALUE_32, GRADIENT_32)


# ---- by hand


def test_similarity_view_by_hand() -> None:
    teacher = torch.log(torch.tensor([[0.8, 0.2], [0.5, 0.5]], dtype=torch.float64))
    student = torch.log(torch.tensor([[0.5, 0.5], [0.5, 0.5]], dtype=torch.float64))
    rows = 0.8 * math.log(1.6) + 0.2 * math.log(0.4)
    columns = [(0.8 / 1.3, 0.5 / 1.3), (0.2 / 0.7, 0.5 / 0.7)]
    cols = sum(p * math.log(2 * p) + q * math.log(2 * q) for p, q in columns)
    got = similarity_distillation(teacher, student, temperature=1.0).item()
    assert got == pytest.approx((rows / 2 + cols / 2) / 2)
    assert similarity_distillation(teacher, teacher).item() == pytest.approx(0, abs=1e-12)


def test_feature_view_by_hand() -> None:
    h, t = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.5, 0.5], [0.0, 1.0]])
    assert feature_distillation(h, t).item() == pytest.approx((1 + 0) / 2)
    assert feature_distillation(h, t, distance="smooth").item() == pytest.approx((0.25 / 8 + 0) / 2)
    assert feature_distillation(h, t, weight_B=torch.tensor([1.0, 0.0])).item() == pytest.approx(1)


def test_language_loss_at_chance_and_when_certain() -> None:
    zero = torch.zeros(5)
    assert language_cross_entropy(zero, zero).item() == pytest.approx(2 * math.log(2))
    sure = torch.full((5,), 1e4)
    assert language_cross_entropy(sure, -sure).item() == 0
    assert language_cross_entropy(-sure, sure).item() == pytest.approx(2e4)


# ---- behaviour


def test_the_teacher_gets_no_gradient() -> None:
    h, t = torch.rand(4, 4, requires_grad=True), torch.rand(4, 4, requires_grad=True)
    torch.autograd.backward(similarity_distillation(h, t) + feature_distillation(h, t))
    assert h.grad is None and t.grad is not None and t.grad.any()


def test_entries_of_one_item_get_no_gradient() -> None:
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[0, 2] = mask[2, 0] = False
    student = torch.rand(4, 4, requires_grad=True)
    torch.autograd.backward(similarity_distillation(torch.rand(4, 4), student, mask))
    assert student.grad is not None and not student.grad[~mask].any() and student.grad[mask].any()


def test_a_pair_of_weight_zero_is_as_if_it_were_not_there() -> None:
    teacher, student = torch.rand(2, 5, 5, dtype=torch.float64)
    rest = torch.tensor([0, 1, 3, 4])
    weight = torch.tensor([0.3, 1.0, 0.0, 0.7, 0.2])
    got = similarity_distillation(teacher, student, weight_B=weight)
    want = similarity_distillation(teacher[rest][:, rest], student[rest][:, rest], weight_B=weight[rest])
    assert got.item() == pytest.approx(want.item(), rel=1e-12)


def test_the_discriminator_goes_down_and_the_encoder_up() -> None:
    torch.manual_seed(0)
    tokens, weight = torch.randn(6, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    value = language_cross_entropy(*torch.split(reverse_gradient(tokens) @ weight, 3))
    torch.autograd.backward(value)
    assert tokens.grad is not None and weight.grad is not None
    with torch.no_grad():
        better = language_cross_entropy(*torch.split(tokens @ (weight - 1e-2 * weight.grad), 3))
        confused = language_cross_entropy(*torch.split((tokens - 1e-2 * tokens.grad) @ weight, 3))
    assert better < value < confused


def similarity_of(h: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return similarity_distillation(h.detach() @ h.detach().T, h.detach() @ t.T)


TERMS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "similarity": similarity_of,
    "feature-l1": lambda h, t: feature_distillation(h, t),
    "feature-smooth": lambda h, t: feature_distillation(h, t, distance="smooth"),
    "language": lambda h, t: language_cross_entropy(h @ h.new_ones(h.shape[1]), t @ t.new_ones(t.shape[1])),
}


@pytest.mark.parametrize("size", [1, 2, 128])
@pytest.mark.parametrize("name", TERMS)
def test_finite_under_bfloat16_autocast(name: str, size: int) -> None:
    torch.manual_seed(size)
    h, t = torch.nn.functional.normalize(torch.randn(2, size, 8), dim=2)
    for student in (t.clone().requires_grad_(), h.clone().requires_grad_()):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = TERMS[name](h, student)
        assert value.dtype == torch.float32 and value.isfinite()
        torch.autograd.backward(value)
        assert student.grad is not None and student.grad.isfinite().all()


@pytest.mark.parametrize("case", ["one", "masked", "empty", "no weight"])
def test_nothing_to_compare_gives_zero(case: str) -> None:
    size = {"one": 1, "masked": 3, "empty": 0, "no weight": 3}[case]
    mask = torch.ones(size, size, dtype=torch.bool) if case == "no weight" else torch.eye(size, dtype=torch.bool)
    student = torch.rand(size, size, requires_grad=True)
    weight = torch.zeros(size) if case == "no weight" else None
    value = similarity_distillation(torch.rand(size, size), student, mask, weight_B=weight)
    torch.autograd.backward(value)
    assert value.item() == 0 and student.grad is not None and not student.grad.any()


def test_empty_batches_of_vectors_and_logits_give_zero() -> None:
    for value in (feature_distillation(torch.rand(0, 3), torch.rand(0, 3)), language_cross_entropy(*torch.rand(2, 0))):
        assert value.item() == 0


X = torch.rand(3, 3)
UNFIT: dict[str, Callable[[], object]] = {
    "temperature": lambda: similarity_distillation(X, X, temperature=0.0),
    "two sizes": lambda: similarity_distillation(X, X[:2]),
    "not square": lambda: similarity_distillation(X[:2], X[:2]),
    "features": lambda: feature_distillation(X, X[:2]),
    "distance": lambda: feature_distillation(X, X, distance="l2"),  # type: ignore[arg-type]
    "two lengths": lambda: language_cross_entropy(X[0], X[0, :2]),
    "matrices": lambda: language_cross_entropy(X, X),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"""0\.0|\(2, 3\)|\(2,\)|\(3, 3\)|'l2'"""):
        UNFIT[name]()
