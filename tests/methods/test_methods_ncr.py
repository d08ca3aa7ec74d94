"""ncr: its terms against an independent float64 computation; either model is judged by itself and obeys the other."""

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

from ccr_cli.methods.base import views
from ccr_cli.methods.ncr import Method

Array = npt.NDArray[np.float64]
EPOCHS = 6
P = torch.tensor([[0.9, 0.2, 0.7, 0.55, 0.4, 1.0, 0.6, 0.1], [0.3, 0.8, 0.6, 0.2, 0.95, 0.7, 0.51, 0.5]]).T
"""What either model is believed to know, in columns."""


def similarities(model: Any, batch: Any) -> list[Array]:
    with torch.no_grad():
        v, s, t = (
            x.double().numpy()
            for x in (model.embed_visual(batch.visual), *map(model.embed_text, (batch.source, batch.target)))
        )
    return [v @ s.T, v @ t.T]


def labels(sim: Array) -> Array:
    size = len(sim)
    hinge = np.zeros(size)
    for i in range(size):
        for x in (sim, sim.T):
            hinge[i] += sum(max(0.0, 0.2 + x[i, j] - x[i, i]) for j in range(size) if j != i) / size
    left = np.clip(0.2 - hinge / 2, 0, 0.2)
    best = np.sort(left)[::-1][: size // 10 + 1].mean()
    return np.clip(left / best, 0, 1) if best else left


def hardest(sim: Array, label: Array) -> float:
    margin = 0.2 * (10**label - 1) / 9
    cost = 0.0
    for i in range(len(sim) if len(sim) > 1 else 0):
        for x in (sim, sim.T):
            cost += max(0.0, margin[i] + max(x[i, j] for j in range(len(sim)) if j != i) - x[i, i])
    return cost


@pytest.mark.parametrize("epoch", [2, 5])
def test_terms_in_the_first_and_in_the_second_half(epoch: int) -> None:
    """Dropout shows that labels are predicted in evaluation mode; it draws the same numbers as without them."""
    options: dict[str, Any] = {"dropout": 0.3, "text_dropout": 0.3, "epochs": EPOCHS}
    batch, method = smallbatch.batch(p=P), smallbatch.make("ncr", **options)
    method.start_epoch(epoch)
    torch.manual_seed(4)
    trained = [similarities(model, batch) for model in method.encoders()]
    torch.manual_seed(4)
    terms = method.losses(batch)
    assert method.training and all(part.training for part in method.modules())
    method.eval()
    steady = [similarities(model, batch) for model in method.encoders()]
    clean, noisy = np.zeros(2), np.zeros(2)
    for view in range(2):
        for model in range(2):
            p = P[:, 1 - model].double().numpy()
            for total, rows in ((clean, p > 0.5), (noisy, p <= 0.5)):
                at = np.ix_(rows, rows)
                own, other = (labels(steady[number][view][at]) for number in (model, 1 - model))
                label = p[rows] + (1 - p[rows]) * own if total is clean else (own + other) / 2
                total[view] += hardest(trained[model][view][at], label)
    # 5 epochs after the warm-up: noisy pairs are learned from the third of them
    expected = {"clean_vs": clean[0], "clean_vt": clean[1]}
    expected |= {"noisy_vs": noisy[0], "noisy_vt": noisy[1]} if epoch > 3 else {}
    assert {name: value.item() for name, value in terms.items()} == pytest.approx(expected, rel=1e-4)
    assert len(set(expected.values())) == len(expected) and min(expected.values()) > 0


def test_noisy_pairs_may_be_left_out() -> None:
    for epoch, share, learned in ((3, 0.5, False), (4, 0.5, True), (2, 0.0, True), (EPOCHS, 1.0, False)):
        method = smallbatch.make("ncr", epochs=EPOCHS, noisy_from=share)
        method.start_epoch(epoch)
        assert ("noisy_vt" in method.losses(smallbatch.batch(p=P))) == learned


def test_the_warm_up_has_all_negatives_and_no_split() -> None:
    batch, method = smallbatch.batch(judged=False), smallbatch.make("ncr")
    expected = np.zeros(2)
    for model in method.encoders():
        for view, sim in enumerate(similarities(model, batch)):
            size = len(sim)
            cost = [np.maximum(0, 0.2 + x - np.diag(x)[:, None]) for x in (sim, sim.T)]
            expected[view] += sum((each.sum() - 0.2 * size) / size for each in cost)
    terms = {name: value.item() for name, value in method.losses(batch).items()}
    assert terms == pytest.approx({"warmup_vs": expected[0], "warmup_vt": expected[1]}, rel=1e-5)


def test_a_judge_of_batches_reads_the_other_model() -> None:
    """The first model is given what the second one finds in the batch."""
    batch, method = smallbatch.batch(), smallbatch.make("ncr", judge="mutual", judge_side="cross_modal")
    with torch.no_grad():
        one, two = (views(model, batch) for model in method.encoders())
        beliefs = method.peers_beliefs(batch, [one, two])
    for belief, sim in zip(beliefs, (two, one), strict=True):
        top = [(x.argmax(dim=1) == torch.arange(len(x))) for x in (sim.VT, sim.VT.T)]
        assert torch.equal(belief.VT, (top[0] & top[1]).float())
    assert not torch.equal(beliefs[0].VT, beliefs[1].VT)


def test_the_presets_are_the_code_s_settings() -> None:
    small = {"dim": smallbatch.DIM}
    flickr, coco = (smallbatch.make("ncr", **Method.PRESETS[name] | small).config for name in ("paper", "paper-coco"))
    assert (flickr.epochs - flickr.warmup_epochs, coco.epochs - coco.warmup_epochs) == (40, 20)
    assert (flickr.lr_drop - flickr.warmup_epochs, coco.lr_drop - coco.warmup_epochs) == (31, 11)
    assert flickr.margin == 0.2 and flickr.lr == 2e-4 and flickr.clip_norm == 2.0


TRAIN = ("train", "--method", "ncr", "--noise", "0.4", "--epochs", "3", *toy.SMALL, "--set", "judge=structure")


@pytest.mark.slow
def test_each_model_is_judged_by_itself_and_remembered(workspace: Chain) -> None:
    """A judge with a memory has one for each model; a run stopped after each epoch has the bytes of a whole one."""
    whole, states = stopped.train(*TRAIN, workspace=workspace.root)
    judged = [state for state in states if state["epoch"]]
    for state in judged:
        own = [state["memory"][f"model {number}"] for number in range(2)]
        one, two = (sides["VT"].min(dim=0).values * sides["ST"].min(dim=0).values for sides in own)
        torch.testing.assert_close(state["p"][1], torch.stack([one, two], dim=1).float().clamp(min=1e-6))
        assert not torch.equal(one, two)
    evidence = pd.read_parquet(whole.path / "evidence" / "epoch-003.parquet")
    assert evidence["p_clean"].to_numpy() == pytest.approx(judged[-1]["p"][1].mean(dim=1).numpy(), abs=1e-5)
