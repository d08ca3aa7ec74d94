"""Curves of training for TensorBoard, trackio and Weights & Biases."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from toy import Chain

from ccr_cli.artifacts import base, run
from ccr_cli.stages.train import loop, options

TRAIN = ("train", "--method", "uml", "--noise", "0.4", *toy.SMALL, "--name", "mine")
TENSORBOARD = (*TRAIN, "--report-to", "tensorboard")


def curves(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def test_curves_say_what_the_history_says(workspace: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHECK_STEPS", 2)
    made = toy.ok(*TENSORBOARD, "--epochs", "3", workspace=workspace.root).made
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


@pytest.mark.slow
def test_steps_after_the_last_state_are_withdrawn(workspace: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    validate = loop.Trainer._validate

    def stops(self: loop.Trainer, epoch: int) -> object:
        if epoch == 3:
            raise KeyboardInterrupt
        return validate(self, epoch)

    monkeypatch.setattr(loop.Trainer, "_validate", stops)
    monkeypatch.setattr(loop, "CHECK_STEPS", 1)
    assert workspace.ccr(*TENSORBOARD, "--epochs", "4").code == 130
    monkeypatch.setattr(loop.Trainer, "_validate", validate)
    made = toy.ok(*TENSORBOARD, "--epochs", "4", workspace=workspace.root).made
    events = curves(workspace.root / "tensorboard" / "mine").Scalars("step/lr")
    assert [e.step for e in events] == sorted({e.step for e in events}), "every step once"
    assert events[-1].step == made.counts["steps"]


def train_with(tracker: str, root: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Trains two epochs in a process of its own, whose trackers write below the workspace."""
    places = {"TRACKIO_DIR": str(root / "trackio"), "WANDB_DIR": str(root), "HOME": str(root / "home")}
    call = [sys.executable, "-m", "ccr_cli", *TRAIN, "--epochs", "2", "--report-to", tracker]
    environment = toy.environment(root, **places, **more)
    return subprocess.run(call, env=environment, cwd=root, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["trackio", "wandb"])
def test_a_tracker_on_this_machine_gets_what_the_history_says(tracker: str, workspace: Chain) -> None:
    pytest.importorskip(tracker)
    done = train_with(tracker, workspace.root)
    assert done.returncode == 0, done.stderr
    assert all(Path(line).is_dir() for line in done.stdout.splitlines()), "standard output is for paths"
    made = base.load(Path(done.stdout.splitlines()[-1]))
    steps = made.counts["steps"] // 2
    expected = dict(zip((steps, 2 * steps), run.history(made)["loss.total"], strict=True))
    assert dict(logged(tracker, workspace.root)) == pytest.approx(expected)


def logged(tracker: str, root: Path) -> list[tuple[int, float]]:
    """The steps and values of `loss/total`, as the tracker's own files hold them."""
    if tracker == "trackio":
        (path,) = (root / "trackio").glob("*.db")
        with contextlib.closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT step, metrics FROM metrics ORDER BY step").fetchall()
        numbers = [(step, json.loads(text)) for step, text in rows]
        return [(step, each["loss/total"]) for step, each in numbers if "loss/total" in each]
    from wandb.proto import wandb_internal_pb2

    (path,) = (root / "wandb").glob("offline-run-*/*.wandb")
    found = []
    for data in entries(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        values = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        if "loss/total" in values:
            found.append((int(values["_step"]), float(values["loss/total"])))
    return found


def entries(log: bytes) -> Iterator[bytes]:
    """The records of a file in LevelDB's log format: blocks of 32 KiB, pieces with checksum, length and kind."""
    place, parts = 7, b""
    while place + 7 <= len(log):
        if 2**15 - place % 2**15 < 7:
            place += 2**15 - place % 2**15
            continue
        _, length, kind = struct.unpack_from("<IHB", log, place)
        parts += log[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield parts
            parts = b""


@pytest.mark.slow
def test_a_tracker_that_does_not_start_is_one_line(workspace: Chain) -> None:
    pytest.importorskip("wandb")
    done = train_with("wandb", workspace.root, WANDB_MODE="online", WANDB_BASE_URL="nonsense")
    assert done.returncode == 5 and "wandb" in done.stderr and "Traceback" not in done.stderr


def test_a_tracker_that_is_not_installed_is_named(workspace: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "find_spec", lambda name: None)
    done = workspace.ccr("train", "--report-to", "wandb")
    assert done.code == 5 and "ccr-cli[track]" in done.err


def test_a_tracker_that_is_none_is_refused_before_training(workspace: Chain) -> None:
    done = workspace.ccr("train", "--report-to", "paper")
    assert done.code == 2 and "'paper'" in done.err and "tensorboard" in done.err
