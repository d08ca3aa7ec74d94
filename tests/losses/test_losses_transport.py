"""L2RM's plan and loss: the worked values, linear programming, and independent float64 computations."""

import losscases
import numpy as np
import pytest
import torch
from losscases import Array, Mask, every_case
from scipy.optimize import linprog, minimize

from ccr_cli.losses.transport import partial_plan_BB, rematch

COST = np.array([[0.9, 0.1, 0.8], [0.7, 0.9, 0.2], [0.3, 0.8, 0.9]])
OFF = ~np.eye(3, dtype=bool)


def plan(cost: Array, allowed: Mask, *settings: float) -> Array:
    found = partial_plan_BB(torch.from_numpy(cost), torch.from_numpy(allowed), *settings)
    return np.asarray(found.numpy())


def test_worked_values() -> None:
    at_7, at_1 = plan(COST, OFF, 0.1, 0.07, 1e-12), plan(COST, OFF, 0.1, 0.01, 1e-12)
    assert [at_7[0, 1], at_7[1, 2], at_7[2, 0]] == pytest.approx([0.070325, 0.023402, 0.006246], abs=1e-6)
    assert at_1[0, 1] == pytest.approx(0.099991, abs=1e-6)
    assert at_7.sum() == pytest.approx(0.1, abs=1e-6) and at_1.sum() == pytest.approx(0.1, abs=1e-9)
    assert at_7.diagonal().tolist() == [0, 0, 0]


def test_the_plan_is_the_least_of_what_it_minimises() -> None:
    """By a general solver, over the entries and what rows, columns and the corner leave over, at the code's costs."""
    mass, weight = 0.4, 0.3
    cost = np.zeros((4, 4))
    cost[:3, :3], cost[3, 3] = COST, 0.9
    open_ = np.ones((4, 4), dtype=bool)
    open_[:3, :3] = OFF
    share = np.array([1 / 3, 1 / 3, 1 / 3, 1 - mass])
    at = np.argwhere(open_)
    rows, columns = (np.equal.outer(range(4), at[:, axis]).astype(float) for axis in (0, 1))

    def value(x: Array) -> float:
        return float((cost[open_] * x).sum() + weight * (x * np.log(x)).sum())

    found = minimize(
        value,
        np.outer(share, share)[open_],
        method="SLSQP",
        bounds=[(1e-12, 1)] * len(at),
        constraints={"type": "eq", "fun": lambda x: np.concatenate([rows @ x - share, (columns @ x - share)[1:]])},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    whole = np.zeros((4, 4))
    whole[open_] = found.x
    np.testing.assert_allclose(plan(COST, OFF, mass, weight, 1e-12), whole[:3, :3], atol=1e-5)


@pytest.mark.parametrize("size", [2, 5, 20])
@pytest.mark.parametrize("mass", [0.1, 0.5])
def test_with_little_entropy_it_is_the_linear_optimum(size: int, mass: float) -> None:
    rng = np.random.default_rng(size)
    cost, allowed = 1 - rng.uniform(-1, 1, (size, size)), ~np.eye(size, dtype=bool)
    at = np.argwhere(allowed)
    rows, columns = (np.equal.outer(range(size), at[:, axis]).astype(float) for axis in (0, 1))
    best = linprog(
        cost[allowed],
        A_ub=np.concatenate([rows, columns]),
        b_ub=np.full(2 * size, 1 / size),
        A_eq=np.ones((1, len(at))),
        b_eq=[mass],
    )
    found = plan(cost, allowed, mass, 0.005)
    assert found.sum() == pytest.approx(mass, abs=1e-3) and not found[~allowed].any()
    assert max(found.sum(0).max(), found.sum(1).max()) <= 1 / size + 1e-4
    assert best.fun - 1e-3 <= (cost * found).sum() <= best.fun + 0.02


@pytest.mark.parametrize("mass", [0.1, 1.0])
def test_more_mass_than_is_allowed(mass: float) -> None:
    cost = np.random.default_rng(0).uniform(0, 2, (30, 30))
    star = np.zeros((30, 30), dtype=bool)
    star[0, 1:] = star[1:, 0] = True
    found = plan(cost, star, mass, 0.01)
    assert np.isfinite(found).all() and (found >= 0).all() and not found[~star].any()
    assert 0 < found.sum() <= 2 / 30 + 1e-6 and max(found.sum(0).max(), found.sum(1).max()) <= 1 / 30 + 1e-6
    for none in (np.zeros((3, 3), dtype=bool), np.zeros((1, 1), dtype=bool), np.zeros((0, 0), dtype=bool)):
        assert not plan(np.ones(none.shape), none).any()


def test_the_plan_does_not_depend_on_the_order_and_keeps_half_precision_out() -> None:
    rng = np.random.default_rng(3)
    cost, allowed, order = rng.uniform(0, 2, (12, 12)), ~np.eye(12, dtype=bool), rng.permutation(12)
    shuffled = plan(cost[order][:, order], allowed)
    np.testing.assert_allclose(shuffled, plan(cost, allowed)[order][:, order], atol=1e-12)
    half = torch.from_numpy(cost).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found = partial_plan_BB(half, torch.from_numpy(allowed))
    assert torch.equal(found, partial_plan_BB(half.float(), torch.from_numpy(allowed)))


@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_a_plan_without_entropy_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match=str(weight)):
        partial_plan_BB(torch.ones(2, 2), torch.ones(2, 2, dtype=torch.bool), 0.1, weight)


def kl(p: Array, q: Array) -> float:
    return float((p * np.log(p / q)).sum())


@every_case
def test_the_loss_of_new_matches(size: int, kind: str, mask_kind: str) -> None:
    (sim, other), mask, _ = losscases.make(size, kind, mask_kind, count=2)
    moved = np.where(mask & ~np.eye(size, dtype=bool), np.exp(3 * other), 0) / size**2
    if size > 2:
        moved[2] = 0  # a row without mass

    def oracle(x: Array) -> float:
        total = 0.0
        for sims, allowed, masses in ((x, mask, moved), (x.T, mask.T, moved.T)):
            cost, weight = 0.0, 0.0
            for i in np.flatnonzero(masses.sum(axis=1)).tolist():
                keep = losscases.kept(allowed, i)
                target = np.maximum(masses[i, keep], 1e-10)
                target /= target.sum()
                q = np.exp((sims[i, keep] - sims[i, keep].max()) / 0.1)
                q /= q.sum()
                cost += masses[i].sum() * (kl(target, q) + kl(q, target))
                weight += masses[i].sum()
            total += cost / weight / 2 if weight else 0.0
        return total

    def loss(x: torch.Tensor) -> torch.Tensor:
        return rematch(x, torch.from_numpy(moved), torch.from_numpy(mask), 0.1)

    value, gradient = losscases.derivative(loss, sim)
    assert value == pytest.approx(oracle(sim), rel=1e-9, abs=1e-12)
    losscases.check_slope(oracle, sim, gradient)
    losscases.check_float32(loss, sim, (1e-4, 1e-4), (1e-3, 1e-4))


def test_without_mass_there_is_no_loss() -> None:
    for size in (0, 1, 3):
        sim = torch.zeros(size, size, requires_grad=True)
        value = rematch(sim, torch.zeros(size, size).double(), torch.ones(size, size, dtype=torch.bool))
        value.backward()  # type: ignore[no-untyped-call]
        assert value.item() == 0 and sim.grad is not None and not sim.grad.any()
