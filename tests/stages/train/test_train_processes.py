"""Training by several processes: the gradients and the figures of one."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import sharedbatch
import tinydual
import torch
import toy
from safetensors.torch import load_file
from toy import Chain

from ccr_cli.artifacts import base, run
from ccr_cli.artifacts.parquet import read_table
from ccr_cli.stages.train.processes import ProcessRank

TRAIN = ("train", "--method", "uml", "--noise", "0.4", *toy.SMALL, "--set", "dropout=0", "--set", "text_dropout=0")
COMMAND = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "ccr_cli"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gradients of two processes, method by method."""
    folder = tmp_path_factory.mktemp("gradients")
    done = toy.torchrun(Path(sharedbatch.__file__), folder, str(folder))
    assert done.code == 0, done.err
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", sharedbatch.METHODS)
def test_gradients_of_two_processes_are_those_of_one_with_the_whole_batch(name: str, found: Path) -> None:
    wanted = sharedbatch.gradients(name, ProcessRank())
    assert sum(k.startswith("term ") for k in wanted) and len(wanted) > 3
    for rank in (0, 1):
        got = load_file(found / f"{name}-{rank}.safetensors")
        assert got.keys() == wanted.keys()
        for key, value in wanted.items():
            largest = max(float(value.abs().max()), 1e-12)
            assert float((got[key] - value).abs().max()) <= 1e-9 * largest, key


def test_rows_are_divided_and_come_back_in_order() -> None:
    rows = torch.arange(10, 17)
    parts = [ProcessRank(rank, 3).part_of(rows) for rank in range(3)]
    assert [part.tolist() for part in parts] == [[10, 11, 12], [13, 14, 15], [16, 10, 10]]
    assert torch.equal(torch.cat(parts)[:7], rows)
    assert [ProcessRank(rank, 4).part_of(rows[:2]).tolist() for rank in range(4)] == [[10], [11], [10], [10]]


@pytest.fixture(scope="module")
def alone(sources: Chain, tmp_path_factory: pytest.TempPathFactory) -> base.Artifact:
    """The run of one process."""
    root = tmp_path_factory.mktemp("alone")
    toy.shell(f"cp -r {sources.root}/. .", root)
    return toy.ok(*TRAIN, "--epochs", "3", "--name", "mine", workspace=root).made


def launch(workspace: Chain, *options: str, train: Sequence[str] = TRAIN) -> subprocess.Popen[str]:
    """Starts training by two processes."""
    environment = toy.environment(workspace.root)
    return subprocess.Popen(
        [*COMMAND, *train, *options, "--name", "mine"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_two_processes_train_the_run_of_one(workspace: Chain, alone: base.Artifact) -> None:
    process = launch(workspace, "--epochs", "3")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert [Path(line).name for line in out.splitlines()].count("mine") == 1, "only the first process prints"
    made = base.load(Path(out.splitlines()[-1]))
    assert made.request == alone.request and made.counts == alone.counts
    assert made.about["environment"]["processes"] == 2
    one, two = (load_file(a.file("model.safetensors")) for a in (alone, made))
    assert one.keys() == two.keys()
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-3, atol=1e-4)
    for column in ("loss.total", "val.SumR", "judge.mean_p_clean"):
        assert run.history(made)[column].to_numpy() == pytest.approx(run.history(alone)[column].to_numpy(), rel=1e-3)
    last = [read_table(a.file("evidence/epoch-003.parquet"), run.EVIDENCE) for a in (alone, made)]
    assert last[1]["p_clean"].to_numpy() == pytest.approx(last[0]["p_clean"].to_numpy(), abs=1e-2)
    again = launch(workspace, "--epochs", "3")
    assert again.communicate(timeout=300)[0].splitlines()[-1] == str(made.path) and again.returncode == 0


@pytest.mark.slow
def test_the_opinion_of_a_pretrained_model_reaches_all_processes(workspace: Chain, tmp_path: Path) -> None:
    """`osa` judges once, before the first step, and from then on every process weights its pairs."""
    model, clip = tinydual.save("clip", tmp_path / "clip"), ("--encoder", "clip", "--device", "cpu")
    feats = toy.ok("extract", *clip, "--set", f"model={model}", workspace=workspace.root).made.path
    settings = ("head=residual", "judge=osa", "judge_side=cross_modal", "lr=0.02", "temperature=0.1")
    train = ["train", "--method", "infonce", "--noise", "0.4", "--epochs", "2", "--batch-size", "16", "--device", "cpu"]
    train += [str(feats), *(word for option in settings for word in ("--set", option))]
    one = toy.ok(*train, "--name", "alone", workspace=workspace.root).made
    process = launch(workspace, train=train)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    two = base.load(Path(out.splitlines()[-1]))
    assert two.request == one.request and two.about["environment"]["processes"] == 2
    beliefs = [[frame["p_clean"].to_numpy() for _, frame in run.evidence(made)] for made in (one, two)]
    assert len(beliefs[0]) == len(beliefs[1]) == 3 and beliefs[0][0].std() > 0.05
    for alone, together in zip(*beliefs, strict=True):
        assert together == pytest.approx(alone, abs=1e-4)
    for column in ("loss.total", "val.SumR", "judge.mean_p_clean"):
        assert run.history(two)[column].to_numpy() == pytest.approx(
            run.history(one)[column].to_numpy(), rel=1e-3, nan_ok=True
        )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_stopped_and_gone_on_with(number: int, workspace: Chain) -> None:
    """With dropout, whose random state each process has for itself."""
    options = ("--epochs", "30", "--set", "dropout=0.4")
    wanted = workspace.root / "wanted"
    toy.shell("mkdir wanted && cp -r datasets translations features noise wanted 2>/dev/null; true", workspace.root)
    undisturbed = launch(Chain(workspace.folder, wanted), *options)
    out, err = undisturbed.communicate(timeout=300)
    assert undisturbed.returncode == 0, err

    process = launch(workspace, *options)
    state = workspace.root / "runs" / "mine.partial" / "last" / "state.json"
    while not (workspace.root / "runs" / "mine.partial" / "evidence").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=120)
    if number == signal.SIGTERM:
        assert state.is_file() and not (workspace.root / "runs" / "mine").exists()
    done = launch(workspace, *options)
    said = done.communicate(timeout=300)
    assert done.returncode == 0, said
    if number == signal.SIGTERM:
        assert "going on after" in said[1]
    assert base.load(Path(said[0].splitlines()[-1])).files == base.load(Path(out.splitlines()[-1])).files


@pytest.mark.slow
def test_an_error_is_said_once(workspace: Chain) -> None:
    process = launch(workspace, "--set", "temprature=3")
    out, err = process.communicate(timeout=300)
    assert process.returncode != 0 and out == ""
    assert err.count("error: method uml has no option 'temprature'") == 1 and "[rank" not in err
    assert "ccr_cli/stages" not in err, "no traceback but torchrun's own"
