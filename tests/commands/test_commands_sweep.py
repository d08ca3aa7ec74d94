"""ccr train --sweep: the runs of single commands, stopped, shared, in parts, in a pipe."""

from __future__ import annotations

import csv
import json
import os
import signal
import statistics
import subprocess
import time
from pathlib import Path

import pytest
import toy
from toy import Chain, Outcome

from ccr_cli.artifacts import base
from ccr_cli.artifacts.workspace import Workspace

SHORT = ("--epochs", "2", *toy.SMALL)
LONG = ("train", "--method", "uml", "--epochs", "40", *toy.SMALL, "--sweep", "seed=0,1,2")
OWN_PROCESS = """
import os, sys, time
from pathlib import Path
from ccr_cli.artifacts import build
from ccr_cli.stages.train import loop, state, sweep
loop.SAVE_SECONDS, build.LEASE_SECONDS, sweep.POLL_SECONDS = 0.0, 2.0, 0.1
root, train, save = Path(os.environ["CCR_WORKSPACE"]), loop.Trainer.train, state.save_state
def noted(self):
    with (root / "trained").open("a") as log:
        log.write(self.build.final.name + "\\n")
    others = int(os.environ.get("TOGETHER", "0"))
    while len((root / "trained").read_text().split()) < others:
        time.sleep(0.01)
    train(self)
def slow(*given):
    save(*given)
    if given[1].endswith("-0000000"):
        time.sleep(0.05)  # who watches on a busy machine gets the time to see it
loop.Trainer.train, state.save_state = noted, slow
from ccr_cli.cli import main
main()
"""
"""A process that notes which runs it trains; in the first it waits until so many have been begun by all."""


def runs(outcome: Outcome) -> list[Path]:
    """The runs among the paths that were printed."""
    return [path for path in outcome.paths if path.parent.name == "runs"]


def trained(workspace: Chain) -> list[str]:
    """The runs that processes have begun to train, in the order."""
    return (workspace.root / "trained").read_text().split()


def table(out: str) -> list[dict[str, str]]:
    """The rows of a dry run."""
    return list(csv.DictReader(out.splitlines(), delimiter="\t"))


@pytest.fixture(scope="module")
def undisturbed(sources: Chain, tmp_path_factory: pytest.TempPathFactory) -> list[base.Artifact]:
    """The runs of the long sweep, each by a command of its own."""
    root = tmp_path_factory.mktemp("undisturbed")
    toy.shell(f"cp -r {sources.root}/. .", root)
    return [toy.ok(*LONG[:-2], "--seed", str(seed), workspace=root).made for seed in range(3)]


@pytest.mark.slow
def test_each_run_is_that_of_a_single_command(workspace: Chain, tmp_path: Path) -> None:
    other = tmp_path / "other"
    toy.shell(f"cp -r . {other}", workspace.root)
    axes = ("--sweep", "method=uml,basic", "--sweep", "noise=0,0.4", "--sweep", "dropout=0,0.4")
    done = toy.ok("train", *SHORT, *axes, workspace=workspace.root)
    assert "2 method x 2 noise x 2 dropout" in done.err and "  8 to do" in done.err
    singly = [
        toy.ok("train", *SHORT, "-m", method, "--noise", noise, "--set", f"dropout={dropout}", workspace=other)
        for method in ("uml", "basic")
        for noise in ("0", "0.4")
        for dropout in ("0", "0.4")
    ]
    made = [base.load(path) for path in runs(done)]
    assert [a.name for a in made] == [each.made.name for each in singly]
    assert [(a.id, a.files) for a in made] == [(each.made.id, each.made.files) for each in singly]
    read = {path.relative_to(other) for each in singly for path in each.paths[:-1]}
    assert {path.relative_to(workspace.root) for path in done.paths[: -len(made)]} == read
    assert str(made[-1].about["command"]).endswith("--method basic --noise 0.4 --set dropout=0.4")

    stamps = [(a.path / base.RECORD).stat().st_mtime_ns for a in made]
    again = toy.ok("train", *SHORT, *axes, workspace=workspace.root)
    assert again.out == done.out and "  8 done" in again.err and "[1/8]" not in again.err
    assert [(a.path / base.RECORD).stat().st_mtime_ns for a in made] == stamps
    forced = toy.ok("train", *SHORT, "--sweep", "method=uml,basic", "--set", "dropout=0", "--force", workspace=other)
    assert [base.load(path).files for path in runs(forced)] == [made[0].files, made[4].files]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--sweep", "seed=0,1", "--seed", "0"), "--sweep seed=0,1 and --seed "),
        (("--sweep", "epochs=1,2"), "--sweep epochs=1,2 and --epochs "),
        (("--sweep", "dim=16,32"), "--sweep dim=16,32 and --set dim "),
        (("--sweep", "method=uml,basic", "-m", "uml"), "--sweep method=uml,basic and --method "),
        (("--sweep", "seed=0,1", "--name", "mine"), "--name mine names one run"),
        (("--sweep", "seed=0,1", "--shard", "3/2"), "--shard 3/2"),
        (("--shard", "1/2"), "--shard goes with --sweep"),
        (("--sweep", "seed=0,1,two"), "--sweep seed=two:"),
        (("--sweep", "seed=0", "--sweep", "lr=0.1,x"), "--set lr=x:"),
    ],
)
def test_a_clash_is_refused(words: tuple[str, ...], message: str, sources: Chain) -> None:
    for more in ((), ("--dry-run",)):
        done = sources.ccr("train", *SHORT, *words, *more)
        assert (done.code, done.out) == (2, "") and message in done.err
    assert not (sources.root / "runs").exists()


def test_a_dry_run_shows_the_grid(workspace: Chain) -> None:
    first = toy.ok("train", "--method", "decl", *SHORT, workspace=workspace.root).made
    (first.path.with_name("toy-es-decl-seed1" + first.name[len("toy-es-decl-seed0") :] + ".partial")).mkdir()
    call = ("train", "--method", "decl", *SHORT, "--sweep", "seed=0,1,2", "--dry-run")
    rows = table(toy.ok(*call, workspace=workspace.root).out)
    assert [(row["seed"], row["state"]) for row in rows] == [("0", "done"), ("1", "unfinished"), ("2", "to do")]
    assert rows[0]["run"] == str(first.path) and not Path(rows[2]["run"]).exists()
    assert [r["seed"] for r in table(toy.ok(*call, "--shard", "2/2", workspace=workspace.root).out)] == ["1"]

    weights = ("--sweep", "evidential_weight=0,1", "--sweep", "hinge_weight=0,1", "--noise", "0.3")
    grid = ("train", "--method", "decl", *SHORT, *weights, "--dry-run")
    done = workspace.ccr(*grid)
    assert done.code == 3 and [row["state"] for row in table(done.out)] == ["refused", *["to do"] * 3]
    assert "evidential_weight and hinge_weight" in table(done.out)[0]["run"]
    plans = json.loads(workspace.ccr(*grid, "--json").out)
    assert [(plan["kind"], plan["state"], plan.get("sweep")) for plan in plans["made"]] == [
        ("noise", "to do", None),
        ("run", "to do", {"evidential_weight": "0", "hinge_weight": "1"}),
        ("run", "to do", {"evidential_weight": "1", "hinge_weight": "0"}),
        ("run", "to do", {"evidential_weight": "1", "hinge_weight": "1"}),
    ]
    (refused,) = plans["failed"]
    assert refused["sweep"] == {"evidential_weight": "0", "hinge_weight": "0"} and refused["exit_code"] == 2


@pytest.mark.slow
def test_what_fails_is_in_a_table_and_the_rest_is_made(workspace: Chain) -> None:
    """Where the loss stops being finite; the paths of the others are printed."""
    axes = ("--sweep", "lr=1e36,0.01", "--sweep", "seed=0,1")
    done = workspace.ccr("train", "--method", "infonce", *SHORT, *axes)
    assert done.code == 3 and [base.load(path).request["lr"] for path in runs(done)] == [0.01, 0.01]
    rows = done.err[done.err.index("2 of 4 ") :].splitlines()[1:]
    assert [row.split()[0] for row in rows[:3]] == ["run", "lr=1e36", "lr=1e36"]
    assert "epoch 1" in rows[1] and "infonce_vs nan" in rows[1]
    again = workspace.ccr("train", "--method", "infonce", *SHORT, *axes, "--json")
    printed = json.loads(again.out)
    assert again.code == 3 and [a["path"] for a in printed["read"] + printed["made"]] == done.out.splitlines()
    assert [run["sweep"]["seed"] for run in printed["failed"]] == ["0", "1"]

    alone = workspace.ccr("train", "--method", "infonce", *SHORT, "--sweep", "lr=1e36,1e37")
    assert (alone.code, alone.out) == (1, "") and "2 of 2 " in alone.err


def stop_in_the_second(workspace: Chain, number: int) -> subprocess.Popen[str]:
    """Starts the long sweep and sends a signal when the second run has been saved a few times."""
    process = toy.python(OWN_PROCESS, *LONG, workspace=workspace.root)
    second = table(workspace.ccr(*LONG, "--dry-run").out)[1]["run"]
    state = Path(f"{second}.partial") / "last" / "state.json"
    while not state.is_file() or base.read_json(state)["tensors"] < "epoch-0003":
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(number)
    return process


@pytest.mark.slow
def test_killed_in_the_second_run(workspace: Chain, undisturbed: list[base.Artifact]) -> None:
    process = stop_in_the_second(workspace, signal.SIGKILL)
    process.communicate()
    first = workspace.root / "runs" / undisturbed[0].name
    stamp = (first / base.RECORD).stat().st_mtime_ns
    grid = table(toy.ok(*LONG, "--dry-run", workspace=workspace.root).out)
    assert [row["state"] for row in grid] == ["done", "unfinished", "to do"]

    done = toy.ok(*LONG, workspace=workspace.root)
    assert "  1 done, 1 unfinished, 1 to do" in done.err and "[1/3]" not in done.err
    assert "going on after" in done.err.split("[2/3] seed=1")[1].split("[3/3] seed=2")[0]
    assert (first / base.RECORD).stat().st_mtime_ns == stamp
    assert [base.load(path).files for path in runs(done)] == [made.files for made in undisturbed]
    assert sorted(os.listdir(workspace.root / "runs")) == [made.name for made in undisturbed]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak)]
)
def test_interrupted_in_the_second_run(number: int, code: int, workspace: Chain) -> None:
    process = stop_in_the_second(workspace, number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    assert "1 of 3 " in err
    assert len(trained(workspace)) == 2, "the third was not begun"


@pytest.mark.slow
def test_two_processes_share_a_sweep(workspace: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits in its first run for the other to have begun one; no run is trained twice, both print all."""
    call = ("train", "--method", "infonce", *SHORT, "--sweep", "noise=0.4,0.3", "--sweep", "seed=0,1,2")
    monkeypatch.setenv("TOGETHER", "2")
    processes = [toy.python(OWN_PROCESS, *call, workspace=workspace.root) for _ in range(2)]
    said = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert sorted(trained(workspace)) == sorted({a.name for a in Workspace(workspace.root).artifacts("run")})
    found = [runs(Outcome(0, out, err)) for out, err in said]
    assert len(found[0]) == 6 and found[0] == found[1]
    assert [base.load(path).request["seed"] for path in found[0]] == [0, 1, 2] * 2


@pytest.mark.slow
def test_who_waits_goes_on_with_the_run_of_a_process_that_died(
    workspace: Chain, undisturbed: list[base.Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ("train", "--method", "uml", "--epochs", "40", *toy.SMALL)
    monkeypatch.setenv("TOGETHER", "99")  # it never gets to train
    holder = toy.python(OWN_PROCESS, *one, "--seed", "1", workspace=workspace.root)
    monkeypatch.delenv("TOGETHER")
    while not (workspace.root / "trained").exists():
        assert holder.poll() is None, holder.communicate()
        time.sleep(0.01)
    helper = toy.python(OWN_PROCESS, *LONG, workspace=workspace.root)
    assert helper.stderr is not None
    lines: list[str] = []
    while not (lines and "waiting for 1 run " in lines[-1]):
        lines.append(helper.stderr.readline())
        assert lines[-1], lines
    assert f"pid={holder.pid}" in "".join(lines) and holder.poll() is None
    holder.kill()
    holder.communicate()
    out, err = helper.communicate(timeout=120)
    assert helper.returncode == 0, err
    assert [base.load(path).files for path in runs(Outcome(0, out, err))] == [made.files for made in undisturbed]
    names = [made.name for made in undisturbed]
    assert trained(workspace) == [names[1], names[0], names[2], names[1]]


@pytest.mark.slow
def test_parts_make_every_run_once_and_the_whole_prints_all(workspace: Chain) -> None:
    call = ("train", "--method", "infonce", *SHORT, "--sweep", "noise=0,0.4", "--sweep", "seed=0,1,2")
    parts = [toy.ok(*call, "--shard", f"{number}/4", workspace=workspace.root) for number in (1, 2, 3, 4)]
    assert [[base.load(path).request["seed"] for path in runs(part)] for part in parts] == [[0, 1], [1, 2], [2], [0]]
    assert "part 2 of 4: 2 " in parts[1].err
    whole = toy.ok(*call, workspace=workspace.root)
    assert "  6 done" in whole.err
    assert sorted(runs(whole)) == sorted(path for part in parts for path in runs(part))
    idle = toy.ok(*call, "--shard", "7/7", workspace=workspace.root)
    assert idle.out == "" and "part 7 of 7" in idle.err


def test_a_sweep_over_languages_and_one_draw_of_noise(workspace: Chain) -> None:
    texts = workspace.folder / "translations" / "hand-en-es.tsv"
    translate = ("translate", "--lang", "fr", "--engine", "recorded", "--set", f"table={texts}")
    fr = toy.ok(*translate, workspace=workspace.root)
    es = workspace.find("translation", "es-").path
    call = ("train", "-", *SHORT, "--noise", "0.3", "--sweep", "lang=es,fr")
    done = toy.ok(*call, workspace=workspace.root, stdin=f"{es}\n{fr.paths[-1]}\n{workspace.find('features').path}\n")
    made = [base.load(path) for path in runs(done)]
    assert [a.request["lang"] for a in made] == ["es", "fr"]
    assert made[0].parent("noise").id == made[1].parent("noise").id
    assert [path.name for path in done.paths].count("caption-translation-0.3-seed0") == 1


@pytest.mark.slow
def test_a_pipe_to_evaluate_and_a_report_over_seeds(workspace: Chain) -> None:
    train = f"ccr train --method infonce {' '.join(SHORT)} --sweep noise=0,0.4 --sweep seed=0,1"
    done = toy.shell(f"{train} | ccr evaluate - | tee paths | ccr report -", workspace.root)
    assert done.code == 0, done.err
    paths = [Path(line) for line in (workspace.root / "paths").read_text().splitlines()]
    made = [path.name for path in paths if path.parent.name == "runs"]
    assert len(made) == 4 and [path.name for path in paths[-4:]] == [f"{name}-test" for name in made]
    planned = workspace.ccr("evaluate", *(workspace.root / "runs" / name for name in made), "--dry-run", "--json")
    assert [(plan["name"], plan["state"]) for plan in json.loads(planned.out)["made"]] == [
        (f"{name}-test", "done") for name in made
    ]
    named = workspace.ccr("evaluate", *(workspace.root / "runs" / name for name in made), "--name", "x")
    assert (named.code, named.out) == (2, "") and "4 runs" in named.err

    (row,) = csv.DictReader((done.paths[-1] / "tables" / "sumr.csv").read_text().splitlines())
    assert row["method"] == "infonce" and row["seeds"] == "2"
    results = [base.read_json(path / "metrics.json")["results"] for path in paths[-4:]]
    reached = [next(r["SumR"] for r in found if r["lang"] == "es" and r["fusion"] == "none") for found in results]
    for ratio, two in (("0", reached[:2]), ("0.4", reached[2:])):
        assert float(row[f"sumr_noise_{ratio}"]) == pytest.approx(statistics.mean(two))
        assert float(row[f"sumr_noise_{ratio}_sd"]) == pytest.approx(statistics.stdev(two))
