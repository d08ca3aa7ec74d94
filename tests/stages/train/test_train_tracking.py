"""Curves of training for TensorBoard."""

from __future__ import annotations

from pathlib import Path

import pytest
import toy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from toy import Chain

from ccr_cli.artifacts import run
from ccr_cli.stages.train import loop

TRAIN = ("train", "--method", "uml", "--noise", "0.4", *toy.SMALL, "--report-to", "tensorboard", "--name", "mine")


def curves(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def test_curves_say_what_the_history_says(workspace: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHECK_STEPS", 2)
    made = toy.ok(*TRAIN, "--epochs", "3", workspace=workspace.root).made
    found = curves(workspace.root / "tensorboard" / "mine")
    history, steps = run.history(made), made.counts["steps"] // 3
    for tag, column in (
        ("loss/total", "loss.total"),
        ("val/SumR", "val.SumR"),
        ("judge/auroc", "judge.auroc"),
        ("grad_norm", "grad_norm"),
    ):
        events = found.Scalars(tag)
        assert [e.step for e in events] == [steps, 2 * steps, 3 * steps]
        assert [e.value for e in events] == pytest.approx(history[column].tolist(), rel=1e-6)
    assert {"machine/triplets_per_second", "machine/memory_mb", "step/anchor"} <= set(found.Tags()["scalars"])
    assert [e.step for e in found.Scalars("step/lr")] == [
        epoch * steps + step for epoch in range(3) for step in range(2, steps + 1, 2)
    ]
    assert not any("tensorboard" in entry.path for entry in made.files)


def test_steps_after_the_last_state_are_withdrawn(workspace: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    validate = loop.Trainer._validate

    def stops(self: loop.Trainer, epoch: int) -> object:
        if epoch == 3:
            raise KeyboardInterrupt
        return validate(self, epoch)

    monkeypatch.setattr(loop.Trainer, "_validate", stops)
    monkeypatch.setattr(loop, "CHECK_STEPS", 1)
    assert workspace.ccr(*TRAIN, "--epochs", "4").code == 130
    monkeypatch.setattr(loop.Trainer, "_validate", validate)
    made = toy.ok(*TRAIN, "--epochs", "4", workspace=workspace.root).made
    events = curves(workspace.root / "tensorboard" / "mine").Scalars("step/lr")
    assert [e.step for e in events] == sorted({e.step for e in events}), "every step once"
    assert events[-1].step == made.counts["steps"]


def test_a_tracker_that_is_none_is_refused_before_training(workspace: Chain) -> None:
    done = workspace.ccr("train", "--report-to", "paper")
    assert done.code == 2 and "'paper'" in done.err and "tensorboard" in done.err
