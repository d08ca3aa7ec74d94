"""A sweep's plan: which runs, what is refused before any is made; and what one failure does to the others."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import base
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.errors import CcrError, UsageError
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.sharding import WorkPart
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.sweep import FLAGS, SweepCell, failure, grid, plan, read_axes, train_cells

SMALL = {"buckets": "512", "dim": "32", "batch_size": "16", "epochs": "1"}


@pytest.mark.parametrize(
    ("texts", "axes"),
    [
        (["seed=0,1,2"], {"seed": ["0", "1", "2"]}),
        (["noise=0,0.4", "seed=0"], {"noise": ["0", "0.4"], "seed": ["0"]}),
        (["noise-target=pair,translation"], {"noise_target": ["pair", "translation"]}),
        (["batch-size= 16, 32 "], {"batch_size": ["16", "32"]}),
        (["text_encoder=a=b,c"], {"text_encoder": ["a=b", "c"]}),
    ],
)
def test_axes_are_read(texts: list[str], axes: dict[str, list[str]]) -> None:
    found = read_axes(texts)
    assert found == axes and list(found) == list(axes)


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["seed"], ["--sweep seed:"]),
        (["seed="], ["--sweep seed=:"]),
        (["seed=0,,1"], ["--sweep seed=0,,1:"]),
        (["seed=0, ,1"], ["--sweep seed=0, ,1:"]),
        (["=0,1"], ["--sweep =0,1:"]),
        (["seed=0,1,0"], ["--sweep seed=0,1,0:", " 0 "]),
        (["seed=0", "noise=0", "seed=1"], ["--sweep seed=1 ", "another --sweep"]),
        (["noise-seed=0", "noise_seed=1"], ["--sweep noise_seed=1 ", "another --sweep"]),
        (["beta=0.1,0.2"], ["--sweep beta=0.1,0.2 ", "--set beta"]),
    ],
)
def test_axes_are_refused(texts: list[str], values: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        read_axes(texts, {"beta": "--set beta"})
    assert all(value in caught.value.message for value in values)


def test_the_grid_is_the_product_in_the_order_given() -> None:
    axes = read_axes(["noise=0,0.4", "seed=0,1", "method=uml,infonce"])
    cells = grid(TrainingOptions(settings={"lr": "0.02"}, dtype="bfloat16"), axes)
    assert [str(cell) for cell in cells] == [
        f"noise={noise} seed={seed} method={method}"
        for noise in ("0", "0.4")
        for seed in (0, 1)
        for method in ("uml", "infonce")
    ]
    last = TrainingOptions(method="infonce", noise=0.4, seed=1, settings={"lr": "0.02"}, dtype="bfloat16")
    assert cells[-1].options == last
    assert cells[-1].arguments() == ["--noise", "0.4", "--seed", "1", "--method", "infonce"]


def test_values_are_typed_as_by_their_option() -> None:
    texts = ["preset=none,paper", "judge=none,gmm", "noise-seed=7", "lang=es"]
    cells = grid(TrainingOptions(noise=0.4), read_axes(texts))
    assert [cell.options.preset for cell in cells] == [None, None, "paper", "paper"]
    assert [cell.options.settings for cell in cells] == [{"judge": "none"}, {"judge": "gmm"}] * 2
    assert {(cell.options.noise_seed, cell.options.lang) for cell in cells} == {(7, "es")}
    assert cells[0].arguments() == ["--set", "judge=none", "--noise-seed", "7", "--lang", "es"]
    assert cells[3].arguments()[:4] == ["--preset", "paper", "--set", "judge=gmm"]
    assert set(FLAGS) <= {field.name for field in fields(TrainingOptions)}


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("seed=0,x", "--sweep seed=x:"),
        ("seed=0.5", "--sweep seed=0.5:"),
        ("seed=-1", "--sweep seed=-1:"),
        ("noise-seed=-1", "--sweep noise-seed=-1:"),
        ("noise=0,1.5", "--sweep noise=1.5:"),
        ("noise=nan", "--sweep noise=nan:"),
        ("method=uml,lum", "unknown method 'lum'"),
        ("nois=0", "--sweep has no key 'nois'"),
        ("device=cpu,cuda", "--sweep has no key 'device'"),
        ("name=a,b", "--sweep has no key 'name'"),
        ("hinge_weight=0,1", "--sweep has no key 'hinge_weight'"),
    ],
)
def test_a_grid_is_refused(text: str, start: str) -> None:
    with pytest.raises(UsageError) as caught:
        grid(TrainingOptions(), read_axes([text]))
    assert caught.value.message.startswith(start)


def test_a_sweep_is_not_for_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="torchrun"):
        grid(TrainingOptions(), {"seed": ["0", "1"]})


@pytest.mark.slow
def test_of_torchruns_processes_one_says_so(tmp_path: Path) -> None:
    program = tmp_path / "ccr.py"
    program.write_text("from ccr_cli.cli import main\n\nmain()\n", encoding="utf-8")
    done = toy.torchrun(program, tmp_path, "train", "--sweep", "seed=0,1")
    assert done.code != 0 and done.err.count("error: ") == 1 and "--shard 1/4" in done.err
    assert "terminated" not in done.err


@pytest.mark.parametrize("size", [1, 3, 12])
@pytest.mark.parametrize("of", [1, 2, 5, 12, 20])
def test_parts_cover_every_run_once(size: int, of: int) -> None:
    cells = grid(TrainingOptions(), {"seed": [str(seed) for seed in range(size)]})
    parts = [WorkPart(number, of).take(cells) for number in range(of)]
    assert sorted(cell.options.seed for part in parts for cell in part) == list(range(size))
    assert [cell.options.seed for cell in parts[0]] == list(range(0, size, of))


def planned(chain: Chain, *texts: str, **wanted: object) -> list[SweepCell]:
    """The cells of a sweep in a workspace, as far as is known before any is made."""
    settings = {**SMALL, **dict(wanted.pop("settings", {}))}  # type: ignore[call-overload]
    cells = grid(TrainingOptions(**wanted, settings=settings, device="cpu"), read_axes(texts))  # type: ignore[arg-type]
    plan(Inputs(Workspace(chain.root)), cells)
    return cells


@pytest.mark.parametrize(
    ("texts", "wanted", "message"),
    [
        (["lr=0.01,fast"], {}, "--set lr=fast: expected a number"),
        (["judge=none,gmn"], {}, "unknown judge 'gmn'"),
        (["lr=0.01,-1", "seed=0,1"], {}, "lr > 0"),
        (["method=uml,infonce", "beta=0.1,0.2"], {}, "method infonce has no option 'beta'"),
        (["preset=paper,papr"], {}, "uml has no preset 'papr'"),
        (["noise-style=caption,word"], {"noise": 0.4}, "word"),
        (["lang=es,fr"], {}, "there is no translation into fr"),
        (["noise=0,0.4", "noise-target=pair,translation"], {}, "noise=0 noise-target=pair and noise=0 noise-target="),
        (["noise-seed=0,1"], {"noise": 0.0}, "noise-seed=0 and noise-seed=1 would be one run"),
        (["noise-seed=0,1"], {}, "--noise-seed 0 has no effect without --noise"),
        (["lr=0.01,0.010"], {}, "lr=0.01 and lr=0.010 would be one run"),
        (["noise=0.3,0.3000001"], {}, "noise=0.3 and noise=0.3000001 would be one run"),
    ],
)
def test_what_no_run_can_be_made_of_is_refused_before_any_is(
    texts: list[str], wanted: dict[str, object], message: str, sources: Chain
) -> None:
    with pytest.raises(CcrError) as caught:
        planned(sources, *texts, **wanted)
    assert message in caught.value.message
    assert not (sources.root / "runs").exists()


def test_a_combination_that_cannot_be_leaves_the_others(sources: Chain) -> None:
    cells = planned(sources, "evidential_weight=0,1", "hinge_weight=0,1", method="decl")
    assert [cell.state for cell in cells] == ["refused", "to do", "to do", "to do"]
    assert cells[0].error and "nothing to train" in cells[0].error.message
    assert not (sources.root / "runs").exists()


def test_a_mismatch_that_several_runs_share_is_planned_once(sources: Chain) -> None:
    cells = grid(TrainingOptions(device="cpu"), read_axes(["method=uml,infonce", "noise=0.3,0.4", "seed=0,1"]))
    plans = plan(Inputs(Workspace(sources.root)), cells)
    assert [(p.path.name, p.state) for p in plans if p.plan["kind"] == "noise"] == [
        ("caption-translation-0.3-seed0", "to do"),
        ("caption-translation-0.3-seed1", "to do"),
        ("caption-translation-0.4-seed0", "done"),
        ("caption-translation-0.4-seed1", "to do"),
    ]
    assert [p for p in plans if p.plan["kind"] == "run"] == [cell.plan for cell in cells]
    assert sorted(p.name for p in (sources.root / "noise" / "toy").iterdir()) == ["caption-translation-0.4-seed0"]


class OutOfMemoryError(RuntimeError):
    """As torch calls it."""


def attempt(chain: Chain, broken: Callable[[], None], seeds: str = "0,1,2") -> tuple[list[SweepCell], list[str]]:
    """Runs a sweep over seeds that fails at seed 1; the cells, and those that were made, in the order."""
    cells = planned(chain, f"seed={seeds}")
    made = chain.find("features")

    def work(inputs: Inputs, cell: SweepCell) -> base.Artifact:
        if cell.options.seed == 1:
            broken()
        inputs.note(made)
        return made

    return cells, [str(cell) for cell in train_cells(Inputs(Workspace(chain.root)), cells, work)]


def raises(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code", "why"),
    [
        (CcrError("the loss is not finite\nin detail"), 1, "the loss is not finite"),
        (RuntimeError("can't allocate memory: you tried"), 6, "out of memory"),
        (OutOfMemoryError("CUDA"), 6, "out of memory"),
        (PermissionError(errno.EACCES, "Permission denied"), 4, "no permission"),
        (ZeroDivisionError("a defect"), 1, "ZeroDivisionError: a defect"),
    ],
)
def test_what_stops_one_does_not_stop_the_others(
    error: Exception, code: int, why: str, sources: Chain, capfd: pytest.CaptureFixture[str]
) -> None:
    cells, made = attempt(sources, raises(error))
    assert made == ["seed=0", "seed=2"]
    known = cells[1].error
    assert known and known.exit_code == code and known.message.startswith(why)
    assert known.__traceback__ is None, "the frames would keep the model"
    said = capfd.readouterr().err
    assert f"error: seed=1: {why}" in said and ("Traceback" in said) == isinstance(error, ZeroDivisionError)
    last = failure(cells)
    assert last and last.exit_code == 3
    title, heads, row = last.message.splitlines()
    assert title.startswith("1 of 3 runs ") and heads.split() == ["run", "why"]
    assert row == f"  seed=1  {known.message.splitlines()[0]}"
    alone, _ = attempt(sources, raises(error), seeds="1")
    last = failure(alone)
    assert last and last.exit_code == code, "where nothing is made, it is as if it had been asked for alone"


def test_a_full_disk_concerns_all(sources: Chain) -> None:
    with pytest.raises(OSError, match="No space"):
        attempt(sources, raises(OSError(errno.ENOSPC, "No space left")))


def test_an_interrupt_is_one_of_the_sweep(sources: Chain, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        attempt(sources, raises(KeyboardInterrupt()))
    assert "1 of 3 runs of the sweep" in capfd.readouterr().err


def test_nothing_failed(sources: Chain) -> None:
    cells, made = attempt(sources, lambda: None)
    assert len(made) == 3 and failure(cells) is None
    assert all(cell.parents == [sources.find("features")] for cell in cells)


def test_the_time_left_is_that_of_the_same_method(finished: Chain, capfd: pytest.CaptureFixture[str]) -> None:
    """Known from the runs that are there: an hour each with uml, a minute with infonce."""
    root = finished.root
    for method, seconds in (("uml", 3600), ("infonce", 60)):
        made = toy.ok("train", "--method", method, "--epochs", "1", *toy.SMALL, workspace=root).made
        record = base.read_json(made.path / base.RECORD)
        record["environment"]["seconds"] = seconds
        base.write_json(made.path / base.RECORD, record)
    cells = planned(finished, "method=uml,infonce,basic", "seed=0,1,2")
    done = [cell.state for cell in cells]
    assert done == ["done", "to do", "to do", "done", "to do", "to do", "to do", "to do", "to do"]
    for _ in train_cells(Inputs(Workspace(root)), cells, lambda inputs, cell: finished.find("features")):
        pass
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("[")]
    assert said[0] == "[2/9] method=uml seed=1; about 214 min left", "2 x 60 + 2 x 1 + 3 x 30.5"
