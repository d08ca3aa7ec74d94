"""Training that is stopped and goes on: the files are those of a run that nobody stopped."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import base, build
from ccr_cli.stages.train import loop, step

SAVES_EVERY_STEP = """
import time
from ccr_cli.stages.train import loop as trainer, state as train_state
trainer.SAVE_SECONDS = 0.0
save = train_state.save_state
def save_and_wait(*given):
    save(*given)
    if given[1].endswith("-0000000"):
        time.sleep(0.05)  # who watches on a busy machine gets the time to see it
train_state.save_state = save_and_wait
from ccr_cli.cli import main
main()
"""
COMMAND = ("train", "--method", "uml", "--noise", "0.4", "--set", "warmup_epochs=4", *toy.SMALL, "--name", "mine")
EPOCHS = ("--epochs", "40")


def start(workspace: Chain, *options: str) -> subprocess.Popen[str]:
    """Starts training in a process of its own."""
    return toy.python(SAVES_EVERY_STEP, *COMMAND, *(options or EPOCHS), workspace=workspace.root)


WAITS_IN_THE_SECOND_EPOCH = """
import time
from ccr_cli.stages.train import step as engine
step, done = engine.Engine.step, 0
def slow(self, *given, **named):
    global done
    done += 1
    if done == self.steps + 2:
        print("second step of the second epoch", flush=True)
        time.sleep(WAIT)
    return step(self, *given, **named)
engine.Engine.step = slow
from ccr_cli.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_within_an_epoch_saves_that_step(
    number: int, code: int, workspace: Chain, whole: base.Artifact
) -> None:
    code_ = WAITS_IN_THE_SECOND_EPOCH.replace("WAIT", "1.0")
    process = toy.python(code_, *COMMAND, *EPOCHS, workspace=workspace.root)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    said = process.communicate(timeout=300)[1]
    assert process.returncode == code and "stopping after this step" in said and "same command" in said
    state = base.read_json(partial(workspace) / "last" / "state.json")
    assert state["tensors"] == "epoch-0001-0000002.safetensors"
    done = toy.ok(*COMMAND, *EPOCHS, workspace=workspace.root)
    assert re.search(r"going on after step 2 of \d+ of epoch 2 of 40", done.err)
    assert (done.made.files, done.made.id) == (whole.files, whole.id)


@pytest.mark.slow
def test_a_second_signal_stops_at_once(workspace: Chain) -> None:
    code = WAITS_IN_THE_SECOND_EPOCH.replace("WAIT", "100")
    process = toy.python(code, *COMMAND, *EPOCHS, workspace=workspace.root)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    while "stopping after this step" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)  # the step takes longer than the test may
    assert "interrupted" in process.communicate(timeout=30)[1] and process.returncode == 130


SIGNALLED_WHILE_THEY_AGREE = """
import os, signal
from ccr_cli.stages.train.processes import ProcessRank
agree, calls = ProcessRank.agree, 0
def slow(self, *given):
    global calls
    said, calls = agree(self, *given), calls + 1
    if calls == 2:
        os.kill(os.getpid(), signal.SIGTERM)
    return said
ProcessRank.agree = slow
from ccr_cli.cli import main
main()
"""


@pytest.mark.slow
def test_a_signal_that_comes_while_the_processes_agree_counts_at_the_next_step(workspace: Chain) -> None:
    process = toy.python(SIGNALLED_WHILE_THEY_AGREE, *COMMAND, *EPOCHS, workspace=workspace.root)
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 143 and "stopping after this step" in said
    state = base.read_json(partial(workspace) / "last" / "state.json")
    assert state["tensors"] == "epoch-0000-0000003.safetensors"


def went_on(epoch: int) -> str:
    """What is said where the state was saved after an epoch, or after a step of the next."""
    return rf"going on after (epoch {epoch}|step \d+ of \d+ of epoch {epoch + 1}) of 40"


def partial(workspace: Chain) -> Path:
    return workspace.root / "runs" / "mine.partial"


def saved(workspace: Chain) -> int:
    """The epoch that the state for resuming is of; 0 where there is none."""
    record = partial(workspace) / "last" / "state.json"
    return int(base.read_json(record)["tensors"][6:10]) if record.is_file() else 0


def wait_for(workspace: Chain, process: subprocess.Popen[str], epoch: int) -> int:
    """Waits until an epoch has been saved."""
    while (reached := saved(workspace)) < epoch:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    return reached


def stop(workspace: Chain, process: subprocess.Popen[str], epoch: int, number: int) -> str:
    """Sends a signal once an epoch has been saved, and returns what the process said."""
    reached = wait_for(workspace, process, epoch)
    process.send_signal(number)
    said = process.communicate(timeout=300)[1]
    assert reached <= saved(workspace) < 40
    assert not (workspace.root / "runs" / "mine").exists()
    return said


@pytest.fixture(scope="module")
def whole(sources: Chain, tmp_path_factory: pytest.TempPathFactory) -> base.Artifact:
    """The same run without a stop, with state saved at other times."""
    root = tmp_path_factory.mktemp("whole")
    toy.shell(f"cp -r {sources.root}/. .", root)
    return toy.ok(*COMMAND, *EPOCHS, workspace=root).made


@pytest.mark.slow
def test_interrupted_terminated_killed_and_finished(workspace: Chain, whole: base.Artifact) -> None:
    process = start(workspace)
    said = stop(workspace, process, 2, signal.SIGINT)
    assert process.returncode == 130 and "same command" in said
    assert {p.suffix for p in (partial(workspace) / "last").iterdir()} == {".safetensors", ".json"}

    first = saved(workspace)
    process = start(workspace)
    said = stop(workspace, process, first + 2, signal.SIGTERM)
    assert process.returncode == 143 and re.search(went_on(first), said)

    second = saved(workspace)
    process = start(workspace)
    stop(workspace, process, second + 2, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert (workspace.root / "runs" / "mine.lock").exists()

    third = saved(workspace)
    done = toy.ok(*COMMAND, *EPOCHS, workspace=workspace.root)
    assert re.search(went_on(third), done.err)
    assert (done.made.files, done.made.id, done.made.counts) == (whole.files, whole.id, whole.counts)
    assert os.listdir(workspace.root / "runs") == ["mine"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "seconds", [0.1, *(pytest.param(s, marks=pytest.mark.soak) for s in (0.0, 0.02, 0.05, 0.2, 0.3, 0.4, 0.5))]
)
def test_killed_at_any_moment(seconds: float, workspace: Chain, whole: base.Artifact) -> None:
    """Some time after the building folder is there, which may be before the first state is."""
    process = start(workspace)
    while not partial(workspace).exists():
        assert process.poll() is None
    time.sleep(seconds)
    process.kill()
    process.communicate()
    made = toy.ok(*COMMAND, *EPOCHS, workspace=workspace.root).made
    assert made.files == whole.files


@pytest.mark.parametrize(
    ("kills", "epochs"),
    [pytest.param(3, 60, marks=pytest.mark.slow), pytest.param(20, 400, marks=pytest.mark.soak)],
)
@pytest.mark.soak
def test_killed_again_and_again(kills: int, epochs: int, workspace: Chain) -> None:
    """Each time a random while after training went on; other moments in every test run."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # pytest shows it where this fails
    moment = random.Random(seed)
    length = ("--epochs", str(epochs))
    wanted = toy.ok(*COMMAND[:-1], "wanted", *length, workspace=workspace.root).made
    before = -1
    for _ in range(kills):
        process = start(workspace, *length)
        while (now := stamp(workspace)) == before:
            assert process.poll() is None, process.communicate()
            time.sleep(0.002)
        time.sleep(moment.uniform(0.0, 1.0))
        process.kill()
        process.communicate()
        before = max(now, stamp(workspace))
    assert not (workspace.root / "runs" / "mine").exists(), "every kill came before the end"
    made = toy.ok(*COMMAND, *length, workspace=workspace.root).made
    assert made.files == wanted.files


def stamp(workspace: Chain) -> int:
    """When the state for resuming was written; -1 where there is none."""
    record = partial(workspace) / "last" / "state.json"
    return record.stat().st_mtime_ns if record.is_file() else -1


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype",
    ["float32", pytest.param("bfloat16", marks=pytest.mark.slow), pytest.param("float16", marks=pytest.mark.slow)],
)
def test_stopped_at_every_write(dtype: str, workspace: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file comes into being by a rename; each attempt is stopped one rename later than the one before."""
    options = ("--epochs", "3", "--dtype", dtype)
    wanted = toy.ok(*COMMAND[:-1], "whole", *options, workspace=workspace.root).made
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    rename = os.replace
    written: list[str] = []
    stopped_at: list[str] = []

    def stops(source: Path, target: Path) -> None:
        written.append(Path(target).name)
        if len(written) > len(stopped_at):
            stopped_at.append(Path(target).name)
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "replace", stops)
    while (code := workspace.ccr(*COMMAND, *options).code) != 0:
        assert code == 130
        written.clear()
    assert {"config.json", "state.json", "history.jsonl"} <= set(stopped_at)
    made = base.load(workspace.root / "runs" / "mine")
    assert (made.files, made.counts) == (wanted.files, wanted.counts) and base.verify(made) == []


def test_stopped_while_its_files_are_hashed_it_is_not_trained_again(
    workspace: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = base.sha256_file

    def stops(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    def stops_here(path: Path) -> str:
        if partial(workspace) in path.parents:
            raise KeyboardInterrupt
        return digest(path)

    with monkeypatch.context() as patch:
        patch.setattr(base, "sha256_file", stops_here)
        assert workspace.ccr(*COMMAND, "--epochs", "2").code == 130
    monkeypatch.setattr(step.Engine, "step", stops)
    made = toy.ok(*COMMAND, "--epochs", "2", workspace=workspace.root).made
    assert made.counts["epochs"] == 2 and not (made.path / "last").exists() and base.verify(made) == []


def test_stopped_before_the_state_is_removed(workspace: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is written, then the state goes."""

    def stops(final: Path) -> None:
        if final.name == "mine":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(build, "_tidy", stops)
        assert workspace.ccr(*COMMAND, "--epochs", "2").code == 130
    assert (workspace.root / "runs" / "mine" / "last").is_dir()
    made = toy.ok(*COMMAND, "--epochs", "2", workspace=workspace.root).made
    assert not any(entry.path.startswith("last/") for entry in made.files)
    assert sorted(p.name for p in made.path.iterdir() if p.name.startswith((".", "last"))) == []


@pytest.mark.slow
def test_a_second_writer_is_kept_out(workspace: Chain) -> None:
    process = start(workspace, "--epochs", "100000")
    try:
        wait_for(workspace, process, 1)
        done = workspace.ccr(*COMMAND, "--epochs", "100000")
        assert (done.code, done.out) == (7, "")
        assert "another process is writing" in done.err
        assert str(process.pid) in done.err and socket.gethostname() in done.err
        assert workspace.ccr(*COMMAND, "--epochs", "1", "--force").code == 7
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
    made = toy.ok(*COMMAND, "--epochs", "1", "--force", workspace=workspace.root).made
    assert made.counts["epochs"] == 1 and os.listdir(workspace.root / "runs") == ["mine"]
