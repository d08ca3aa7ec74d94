"""cream: its terms against an independent float64 computation, its stages, and an interrupted run."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import smallbatch
import stopped
import torch
import toy
from toy import Chain

from ccr_cli.methods.cream import Method

Array = npt.NDArray[np.float64]
P = torch.tensor([[0.9, 0.2, 0.7, 0.55, 0.4, 1.0, 0.6, 0.1], [0.3, 0.1, 0.6, 0.2, 0.35, 0.7, 0.51, 0.5]]).T
"""Three pairs are clean for both models, two for the first one alone, three for neither."""
KINDS = {"clean": [2, 5, 6], "hard": [0, 3], "noisy": [1, 4, 7]}
LAST = 12


def similarities(model: Any, batch: Any) -> list[Array]:
    with torch.no_grad():
        v, s, t = (
            x.double().numpy()
            for x in (model.embed_visual(batch.visual), *map(model.embed_text, (batch.source, batch.target)))
        )
    return [v @ s.T, v @ t.T]


def softmax(x: Array) -> Array:
    return np.asarray(np.exp(x / 0.07) / np.exp(x / 0.07).sum(axis=1, keepdims=True))


def consistency(sim: Array) -> Array:
    return np.asarray((softmax(sim).diagonal() + softmax(sim.T).diagonal()) / 2)


def contrast(sim: Array, label: Array, least: float) -> float:
    cost = 0.0
    for x in (sim, sim.T):
        q = softmax(x)
        for i in range(len(x)):
            rivals = [j for j in range(len(x)) if j != i]
            total = sum(max(x[i, j], 0) for j in rivals) + 1e-6
            share = {j: (1 - label[i]) * max(x[i, j], 0) / total for j in rivals}
            cost -= label[i] * np.log(q[i, i])
            cost -= sum(share[j] * np.log(q[i, j]) for j in rivals if share[j] >= least)
    return cost / smallbatch.SIZE


def expected_terms(method: Any, batch: Any, trained: list[list[Array]]) -> dict[str, float]:
    """All six terms, of rates that no epoch has yet switched off."""
    mode = method.training
    method.eval()
    steady = [similarities(model, batch) for model in method.encoders()]
    method.train(mode)
    out = {f"{kind}_{side}": 0.0 for side in ("vs", "vt") for kind in KINDS}
    for view, side in enumerate(("vs", "vt")):
        for model in range(2):
            own = {
                kind: [consistency(each[view][np.ix_(rows, rows)]) for each in steady] for kind, rows in KINDS.items()
            }
            p, mean = P[:, 1 - model].double().numpy(), P.double().numpy().mean(axis=1)
            label = {
                "clean": p[KINDS["clean"]] + (1 - p[KINDS["clean"]]) * own["clean"][model],
                "hard": mean[KINDS["hard"]] + (1 - mean[KINDS["hard"]]) * own["hard"][model],
                "noisy": (own["noisy"][0] + own["noisy"][1]) / 2,
            }
            usual = float(np.concatenate(list(label.values())).mean())
            for kind, rows in KINDS.items():
                out[f"{kind}_{side}"] += contrast(trained[model][view][np.ix_(rows, rows)], label[kind], usual)
    return out


def test_terms_of_all_kinds() -> None:
    """Dropout shows that labels are predicted in evaluation mode; it draws the same numbers as without them."""
    batch, method = smallbatch.batch(p=P), smallbatch.make("cream", dropout=0.3, text_dropout=0.3)
    method.start_epoch(LAST)
    torch.manual_seed(4)
    trained = [similarities(model, batch) for model in method.encoders()]
    torch.manual_seed(4)
    terms = {name: value.item() for name, value in method.losses(batch).items()}
    assert all(part.training for part in method.modules())
    expected = expected_terms(method, batch, trained)
    assert terms == pytest.approx(expected, rel=1e-4)
    assert len(set(expected.values())) == 6 and min(expected.values()) > 0


def test_hard_and_noisy_pairs_are_learned_later() -> None:
    batch = smallbatch.batch(p=P)
    for epoch, kinds in ((2, {"clean"}), (3, {"clean"}), (4, {"clean", "hard"}), (5, {"clean", "hard"}), (6, {*KINDS})):
        method = smallbatch.make("cream")  # 11 epochs after the warm-up
        method.start_epoch(epoch)
        assert {name.partition("_")[0] for name in method.losses(batch)} == kinds, epoch
    never = smallbatch.make("cream", hard_from=1, noisy_from=1)
    never.start_epoch(LAST)
    assert set(never.losses(batch)) == {"clean_vs", "clean_vt"}


def test_rivals_share_the_targets_only_of_mostly_clean_batches() -> None:
    """Seven clean pairs of eight keep the rivals' shares from the first epoch on, six do not."""
    for clean, keeps in ((7, True), (6, False)):
        p = torch.full((8, 2), 0.9)
        p[clean:] = 0.1
        batch, method = smallbatch.batch(p=p), smallbatch.make("cream")
        method.start_epoch(2)
        expected = dict.fromkeys(("clean_vs", "clean_vt"), 0.0)
        for model in method.encoders():
            for name, sim in zip(expected, similarities(model, batch), strict=True):
                sim = sim[:clean, :clean]
                expected[name] += contrast(sim, 0.9 + 0.1 * consistency(sim), 0.0 if keeps else 1.0)
        assert {name: value.item() for name, value in method.losses(batch).items()} == pytest.approx(expected, rel=1e-4)


def test_the_warm_up_has_no_split() -> None:
    batch, method = smallbatch.batch(judged=False), smallbatch.make("cream")
    expected = dict.fromkeys(("warmup_vs", "warmup_vt"), 0.0)
    for model in method.encoders():
        for name, sim in zip(expected, similarities(model, batch), strict=True):
            expected[name] -= sum(float(np.log(softmax(x).diagonal()).mean()) for x in (sim, sim.T))
    terms = {name: value.item() for name, value in method.losses(batch).items()}
    assert terms == pytest.approx(expected, rel=1e-5)


def test_a_judge_that_reads_no_model_leaves_no_hard_pair() -> None:
    batch, method = smallbatch.batch(p=P[:, 0]), smallbatch.make("cream")
    method.start_epoch(LAST)
    terms = method.losses(batch)
    assert terms["hard_vt"].item() == 0 and terms["clean_vt"].item() > 0 and terms["noisy_vt"].item() > 0


def test_the_presets_are_the_code_s_settings() -> None:
    small = {"dim": smallbatch.DIM}
    flickr, coco = (smallbatch.make("cream", **Method.PRESETS[name] | small).config for name in ("paper", "paper-coco"))
    for config, span in ((flickr, 40), (coco, 20)):
        assert config.epochs - config.warmup_epochs == span and config.lr_drop - config.warmup_epochs == 11
        assert (span * config.hard_from, span * config.noisy_from) == (10, 15)
    assert (flickr.temperature, flickr.lr, flickr.judge, flickr.judge_side) == (0.07, 2e-4, "nce", "cross_modal")


TRAIN = ("train", "--method", "cream", "--noise", "0.4", "--epochs", "3", *toy.SMALL, "--set", "noisy_from=0.3")


@pytest.mark.parametrize("judge", ["nce", pytest.param("triangle", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_an_interrupted_run_has_the_bytes_of_a_whole_one(judge: str, workspace: Chain) -> None:
    whole, states = stopped.train(*TRAIN, "--set", f"judge={judge}", workspace=workspace.root)
    assert len(states) > 3
    last = json.loads((whole.path / "history.jsonl").read_text().splitlines()[-1])
    assert {"clean_vt", "hard_vt", "noisy_vt"} <= last["loss"].keys()
