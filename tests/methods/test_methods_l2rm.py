"""l2rm: its terms against an independent float64 computation, its judges, and an interrupted run."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import smallbatch
import stopped
import torch
import toy
from toy import Chain

from ccr_cli.methods.l2rm import Method

Array = npt.NDArray[np.float64]
P = torch.tensor([0.9, 0.2, 0.7, 0.55, 0.4, 1.0, 0.5, 0.1])
SETTINGS: dict[str, Any] = {"mass": 0.3, "regularization": 0.2, "temperature": 0.1}


def similarities(method: Any, batch: Any) -> dict[str, Array]:
    with torch.no_grad():
        v, s, t = (
            x.double().numpy()
            for x in (method.embed_visual(batch.visual), *map(method.embed_text, (batch.source, batch.target)))
        )
    return {"vs": v @ s.T, "vt": v @ t.T}


def hinge(sim: Array) -> float:
    size = len(sim)
    rivals = [[(x[i, i], max(x[i, j] for j in range(size) if j != i)) for i in range(size)] for x in (sim, sim.T)]
    return float(sum(max(0.0, 0.2 + rival - own) for each in rivals for own, rival in each))


def moved(sim: Array, allowed: npt.NDArray[np.bool_], mass: float, weight: float) -> Array:
    """Sinkhorn in logarithms with the code's dummy costs, to the end."""
    size, cost = len(sim), 1 - sim
    whole = np.full((size + 1, size + 1), 100 * cost.max())
    whole[:size, :size], whole[size, size] = np.where(allowed, cost, np.inf), 201 * cost.max()
    log_share = np.log(np.append(np.full(size, 1 / size), 1 - mass))
    u, v = np.zeros(size + 1), np.zeros(size + 1)
    for _ in range(3000):
        u = log_share - np.logaddexp.reduce(v - whole / weight, axis=1)
        v = log_share - np.logaddexp.reduce(u[:, None] - whole / weight, axis=0)
    return np.asarray(np.exp(u[:, None] + v - whole / weight)[:size, :size])


def rematched(sim: Array, plan: Array, temperature: float) -> float:
    total = 0.0
    for x, masses in ((sim, plan), (sim.T, plan.T)):
        each = []
        for row, mass in zip(x, masses, strict=True):
            q, y = np.exp(row / temperature), np.maximum(mass, 1e-10)
            q, y = q / q.sum(), y / y.sum()
            each.append(((q - y) * np.log(q / y)).sum())
        total += float(np.average(each, weights=masses.sum(axis=1))) / 2
    return total


def test_terms_after_the_warm_up() -> None:
    method, batch = smallbatch.make("l2rm", **SETTINGS), smallbatch.batch(p=P)
    terms = {name: value.item() for name, value in method.losses(batch).items()}
    clean = P.numpy() > 0.5
    expected = {}
    for view, sim in similarities(method, batch).items():
        apart = sim[~clean][:, ~clean]
        expected[f"clean_{view}"] = hinge(sim[clean][:, clean])
        plan = moved(apart, ~np.eye(len(apart), dtype=bool), 0.3, 0.2)
        expected[f"rematched_{view}"] = rematched(apart, plan, 0.1)
    assert terms == pytest.approx(expected, rel=1e-4) and min(expected.values()) > 0


def test_the_warm_up_has_no_split() -> None:
    method, batch = smallbatch.make("l2rm"), smallbatch.batch(judged=False)
    terms = {name: value.item() for name, value in method.losses(batch).items()}
    expected = {}
    for view, sim in similarities(method, batch).items():
        rows = [np.exp(x / 0.05) / np.exp(x / 0.05).sum(axis=1, keepdims=True) for x in (sim, sim.T)]
        own = np.concatenate([q.diagonal() for q in rows])
        expected[f"warmup_{view}"] = float(np.mean(-np.log(own) - np.log(1e-7) * (1 - own)))
    assert terms == pytest.approx(expected, rel=1e-4)


def test_captions_of_one_item_are_no_new_match() -> None:
    """Two noisy captions of one item have nothing to be matched with; with a third pair they have."""
    p = torch.ones(8)
    p[:2] = 0
    method, batch = smallbatch.make("l2rm"), smallbatch.batch(p=p)
    object.__setattr__(batch, "item_B", torch.tensor([0, 0, 2, 3, 4, 5, 6, 7]))
    assert method.losses(batch)["rematched_vt"].item() == 0
    p[2] = 0
    assert method.losses(batch)["rematched_vt"].item() > 0


def test_what_weighs_nothing_is_not_computed() -> None:
    terms = smallbatch.make("l2rm", mass=0).losses(smallbatch.batch(p=P))
    assert set(terms) == {"clean_vs", "clean_vt"}


def test_the_presets() -> None:
    small = {"dim": smallbatch.DIM}
    flickr, coco = (smallbatch.make("l2rm", **Method.PRESETS[name] | small).config for name in ("paper", "paper-coco"))
    assert (flickr.epochs - flickr.warmup_epochs, coco.epochs - coco.warmup_epochs) == (35, 20)
    assert (flickr.lr_drop - flickr.warmup_epochs, coco.lr_drop - coco.warmup_epochs) == (16, 11)
    assert (flickr.regularization, coco.regularization) == (0.01, 0.07)
    assert (flickr.mass, flickr.temperature, flickr.judge, flickr.judge_side) == (0.1, 0.05, "beta", "cross_modal")


TRAIN = ("train", "--method", "l2rm", "--noise", "0.4", "--epochs", "3", *toy.SMALL)


@pytest.mark.parametrize("judge", ["beta", pytest.param("triangle", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_an_interrupted_run_has_the_bytes_of_a_whole_one(judge: str, workspace: Chain) -> None:
    whole, states = stopped.train(*TRAIN, "--set", f"judge={judge}", workspace=workspace.root)
    assert len(states) > 3
    p = pd.read_parquet(whole.path / "evidence" / "epoch-003.parquet")["p_clean"]
    assert p.between(0, 1).all() and p.nunique() > 1
