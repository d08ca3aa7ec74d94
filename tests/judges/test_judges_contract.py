"""What every judge declares about itself is true of what it reads; a judge of a new kind needs one file."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
import toy
from toy import Chain

from ccr_cli import registry
from ccr_cli.artifacts import base
from ccr_cli.judges.base import BatchJudge, Belief, FloatArray, Judge, Opinion, load_judge

N, M = 60, 200
SIDES = ("VS", "VT", "ST")
READS_MODEL = {"similarities", "null", "leads", "batches", "ends"}


class Readings:
    """Random readings that note which of them were read."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        rng = np.random.default_rng(0)
        self.given = {side: rng.normal(0.4, 0.2, N) for side in SIDES}
        self.shuffled = {side: rng.normal(0.0, 0.1, M) for side in SIDES}

    def __len__(self) -> int:
        return N

    def similarities(self) -> dict[str, FloatArray]:
        self.read.add("similarities")
        return self.given

    def null(self) -> dict[str, FloatArray]:
        self.read.add("null")
        return self.shuffled

    def leads(self, believed: Belief[FloatArray] | None = None) -> tuple[FloatArray, FloatArray]:
        self.read.add("leads")
        return np.stack(list(self.given.values()), axis=1), np.stack(list(self.shuffled.values()), axis=1)

    def batches(self, side: str) -> Iterator[tuple[npt.NDArray[np.int64], torch.Tensor, torch.Tensor]]:
        self.read.add("batches")
        generator = torch.Generator().manual_seed(SIDES.index(side))
        for rows in np.split(np.arange(N), 3):
            yield rows, torch.rand(20, 20, generator=generator), ~torch.eye(20, dtype=torch.bool)

    def ends(self, side: str) -> Iterator[tuple[npt.NDArray[np.int64], torch.Tensor, torch.Tensor, torch.Tensor]]:
        self.read.add("ends")
        generator = torch.Generator().manual_seed(SIDES.index(side))
        for rows in np.split(np.arange(N), 3):
            one_BD, two_BD = torch.randn(2, 20, 4, generator=generator).unbind()
            yield rows, one_BD, two_BD, torch.ones(20, 20, dtype=torch.bool)

    @property
    def memory(self) -> dict[str, torch.Tensor] | None:
        return None

    def agreement(self) -> tuple[FloatArray, FloatArray]:
        self.read.add("agreement")
        return 100 * self.given["ST"], 100 * self.shuffled["ST"]

    def coverage(self) -> tuple[FloatArray, FloatArray]:
        self.read.add("coverage")
        return self.given["ST"] - 1, self.shuffled["ST"] - 1

    def margin(self) -> tuple[FloatArray, FloatArray]:
        self.read.add("margin")
        return self.given["ST"], self.shuffled["ST"]

    def sentence_similarities(self) -> tuple[FloatArray, FloatArray] | None:
        return None

    def witness_scores(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        self.read.add("witness_scores")
        return {"coverage": (self.given["ST"], self.shuffled["ST"]), "scores": (self.given["VT"], self.shuffled["VT"])}

    def file_scores(self) -> FloatArray:
        self.read.add("file_scores")
        return self.given["ST"]

    def wrong(self) -> dict[str, npt.NDArray[np.bool_]] | None:
        self.read.add("wrong")
        return {side: self.given[side] < 0.3 for side in SIDES}


def sides(opinion: Opinion) -> FloatArray:
    return np.stack([opinion.p.VS, opinion.p.VT, opinion.p.ST])


@pytest.mark.parametrize("name", registry.names("judges"))
def test_a_judge_reads_what_it_declares(name: str) -> None:
    judge, readings = load_judge(name), Readings()
    assert isinstance(judge, Judge) and judge.speaks in ("never", "step", "epoch", "first", "start")
    p = sides(judge.judge(readings, "cross_lingual"))
    assert p.shape == (3, N) and ((p >= 0) & (p <= 1)).all()
    assert bool(readings.read & READS_MODEL) == judge.needs_model
    assert ("agreement" in readings.read) == judge.compares_texts
    assert ("wrong" in readings.read) == judge.knows_truth
    assert isinstance(judge, BatchJudge) == (judge.speaks in ("step", "never")) == ("batches" in readings.read)
    other = sides(judge.judge(Readings(), "cross_modal"))
    assert np.array_equal(p, other) == (not judge.takes_side or judge.speaks == "never")


NEW_KIND = '''
"""Pairs whose caption and picture are about equally similar in both languages match."""

import numpy as np

from ccr_cli.judges.base import Belief, Judge, Opinion, Readings


class DifferenceJudge(Judge):
    speaks = "epoch"

    def judge(self, readings: Readings, side: str) -> Opinion:
        similarity = readings.similarities()
        p_N = np.exp(-np.abs(similarity["VS"] - similarity["VT"]))
        return Opinion(Belief(np.ones(len(readings)), p_N, p_N), {"difference": float(1 - p_N.mean())})


JUDGE = DifferenceJudge()
'''


def test_a_judge_of_a_new_kind_is_one_file(workspace: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains and diagnoses with a judge that no other file knows of."""
    (tmp_path / "judges").mkdir()
    (tmp_path / "judges" / "difference.py").write_text(NEW_KIND.lstrip(), encoding="utf-8")
    judges = importlib.import_module("ccr_cli.judges")
    monkeypatch.setattr(judges, "__path__", [*judges.__path__, str(tmp_path / "judges")])
    plugin = registry.Plugin("judges", "difference", tmp_path / "judges" / "difference.py", "ccr_cli.judges.difference")
    monkeypatch.setattr(registry, "installed", lambda: (plugin,))
    options = ("--method", "infonce", "--set", "judge=difference", "--noise", "0.4", "--epochs", "2")
    trained = toy.ok("train", *options, *toy.SMALL, workspace=workspace.root).made
    history = [json.loads(line) for line in (trained.path / "history.jsonl").read_text().splitlines()]
    assert all(0 < epoch["judge"]["wrong_difference"] < 1 for epoch in history)
    made = toy.ok("diagnose", trained.path, "--device", "cpu", workspace=workspace.root).made
    summary = base.read_json(made.path / "summary.json")
    assert (summary["judge"], summary["judge_side"], summary["split"]["by"]) == ("difference", "", "votes")
    p = pd.read_parquet(made.path / "pairs.parquet")["p_clean"]
    assert p.between(0, 1).all() and p.nunique() > 10
    again = workspace.ccr("diagnose", trained.path, "--judge-side", "both", "--device", "cpu")
    assert again.code == 2 and "difference" in again.err
