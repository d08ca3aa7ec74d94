"""Losses of a student against float64 oracles in numpy: values, gradients, and what weights of 0 do.

Shape suffixes: B pairs, D embedding.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.autograd import gradcheck

from ccr_cli.losses.distil import cosine, mse, relational

Array = npt.NDArray[np.float64]
LOSSES: dict[str, Callable[..., torch.Tensor]] = {"mse": mse, "cosine": cosine, "relational": relational}


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def oracle(name: str, f_BD: Array, g_BD: Array, p_B: Array, tau: float = 0.07) -> float:
    """The sum over rows of p d, divided by the sum of p, row by row as the equations have it."""
    total = 0.0
    for i in range(len(f_BD)):
        f, g = f_BD[i], g_BD[i]
        if name == "mse":
            d = sum((f - g) ** 2) / len(f)
        elif name == "cosine":
            d = 1 - f @ g / np.sqrt(f @ f) / np.sqrt(g @ g)
        else:
            others = [k for k in range(len(f_BD)) if p_B[k] > 0]
            p, q = (np.array([np.exp(x @ g_BD[k] / tau) for k in others]) for x in (g, f))
            d = sum(p / p.sum() * np.log(p / p.sum() / (q / q.sum())))
        total += p_B[i] * d if p_B[i] else 0.0
    return float(total / p_B.sum())


def drawn(seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    f_BD, g_BD = rng.standard_normal((2, 6, 5))
    g_BD /= np.linalg.norm(g_BD, axis=1, keepdims=True)
    return f_BD / np.linalg.norm(f_BD, axis=1, keepdims=True), g_BD, rng.random(6)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("without", [(), (0, 3)])
def test_values_are_those_of_the_equation(name: str, without: tuple[int, ...]) -> None:
    f_BD, g_BD, p_B = drawn()
    p_B[list(without)] = 0
    value = LOSSES[name](tensor(f_BD), tensor(g_BD), weight_B=tensor(p_B))
    assert value.item() == pytest.approx(oracle(name, f_BD, g_BD, p_B), rel=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_is_the_students_alone(name: str) -> None:
    f_BD, g_BD, p_B = (tensor(x).requires_grad_() for x in drawn())
    assert gradcheck(lambda f: LOSSES[name](f, g_BD.detach(), weight_B=p_B.detach()), (f_BD,))
    LOSSES[name](f_BD, g_BD, weight_B=p_B).backward()  # type: ignore[no-untyped-call]
    assert f_BD.grad is not None and f_BD.grad.abs().sum() > 0 and g_BD.grad is None and p_B.grad is None


@pytest.mark.parametrize("name", LOSSES)
def test_a_pair_of_weight_0_is_neither_row_nor_candidate(name: str) -> None:
    f_BD, g_BD, p_B = (tensor(x) for x in drawn())
    p_B[2] = 0
    kept = torch.arange(6) != 2
    whole, rest = LOSSES[name](f_BD, g_BD, weight_B=p_B), LOSSES[name](f_BD[kept], g_BD[kept], weight_B=p_B[kept])
    torch.testing.assert_close(whole, rest)
    f_BD.requires_grad_()
    LOSSES[name](f_BD, g_BD, weight_B=p_B).backward()  # type: ignore[no-untyped-call]
    assert f_BD.grad is not None and f_BD.grad.isfinite().all() and f_BD.grad[2].abs().sum() == 0
    (grad_BD,) = torch.autograd.grad(LOSSES[name](f_BD, g_BD, weight_B=torch.zeros(6)), f_BD)
    assert not grad_BD.any()


def test_published_values() -> None:
    f, g = tensor([[0.6, 0.8]]), tensor([[1.0, 0.0]])
    assert mse(f, g).item() == pytest.approx(0.4) and cosine(f, g).item() == pytest.approx(0.4)
    f, g = tensor([[0.6, 0.8], [0.0, 1.0]]), tensor([[1.0, 0.0], [1.0, 0.0]])
    assert mse(f, g, tensor([1.0, 0.25])).item() == pytest.approx(0.52)
    f, g = tensor([[0.8, 0.6], [0.6, 0.8]]), tensor([[1.0, 0.0], [0.6, 0.8]])
    rows = [relational(f, g, 0.5, tensor(weights)).item() for weights in ([1.0, 1e-12], [1e-12, 1.0])]
    assert rows == pytest.approx([0.147564, 0.0], abs=1e-6)


def test_on_unit_vectors_mse_is_cosine_scaled() -> None:
    f_BD, g_BD, p_B = map(tensor, drawn())
    torch.testing.assert_close(mse(f_BD, g_BD, p_B), 2 * cosine(f_BD, g_BD, p_B) / f_BD.shape[1])


def test_under_switching_the_optimum_leans_towards_the_mean() -> None:
    """Two texts with the vector of the right caption half of the time, else of one drawn from both."""
    g_BD = tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]])
    f_D = tensor([0.3, 0.3]).requires_grad_()
    optimizer = torch.optim.SGD([f_D], lr=0.2)
    for _ in range(200):
        optimizer.zero_grad()
        mse(f_D.expand(4, 2), g_BD).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    torch.testing.assert_close(f_D.detach(), tensor([0.75, 0.25]), atol=1e-6, rtol=0)


def test_what_cannot_be_compared_is_refused() -> None:
    for loss in LOSSES.values():
        with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 4\)"):
            loss(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(ValueError, match=r"0\.0"):
        relational(torch.zeros(2, 3), torch.zeros(2, 3), 0.0)
