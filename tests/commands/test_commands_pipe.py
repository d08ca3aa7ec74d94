"""The stages as a shell pipe: what is on standard output, what is read from standard input."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import toy
from toy import Chain, Outcome

from ccr_cli.artifacts import base
from ccr_cli.artifacts.workspace import Workspace

STAGES = ("extract", "train", "evaluate", "diagnose", "report", "verify")
OPTIONS = {"extract": "--set image_size=32", "train": "--noise 0.4 --epochs 2 --set buckets=512 --set dim=32"}


def pipe(*stages: str) -> str:
    return " | ".join(f"ccr {stage} {OPTIONS.get(stage.split()[0], '')}" for stage in stages)


@pytest.fixture(scope="module")
def dataset_alone(sources: Chain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pipe") / "work space ñ"
    toy.copy_datasets(sources.root, root)
    return root


@pytest.fixture(scope="module")
def piped(dataset_alone: Path) -> Outcome:
    """The whole pipe in a shell, in a workspace that holds the data set alone."""
    whole = pipe("translate --lang es", "extract -", "train -", "evaluate -", "diagnose -")
    return toy.shell(f"{whole}; echo ${{PIPESTATUS[@]}} >&2", dataset_alone)


@pytest.mark.slow
def test_the_pipe_prints_every_path_once_and_the_diagnosis_last(piped: Outcome, dataset_alone: Path) -> None:
    assert piped.err.splitlines()[-1] == "0 0 0 0 0", piped.err
    assert all(path.is_absolute() and path.is_relative_to(dataset_alone) for path in piped.paths)
    assert len(set(piped.paths)) == len(piped.paths)
    kinds = [base.load(path).kind for path in piped.paths]
    assert sorted(kinds) == ["dataset", "diagnosis", "evaluation", "features", "noise", "run", "translation"]
    assert kinds[-1] == "diagnosis"
    assert {a.id for a in Workspace(dataset_alone).artifacts()} == {base.load(path).id for path in piped.paths}


@pytest.mark.slow
def test_summaries_are_on_standard_error(piped: Outcome) -> None:
    assert "SumR" in piped.err and "AUROC" in piped.err
    warnings = [line for line in piped.err.splitlines() if "warning" in line.lower()]
    assert "Traceback" not in piped.err and all(
        "12 queries, too few" in line or " 5 " in line for line in warnings
    )  # selected by 5 items


@pytest.mark.slow
def test_what_the_pipe_made_fits_together(piped: Outcome, dataset_alone: Path) -> None:
    done = toy.ok("verify", workspace=dataset_alone)
    rows = [line.split("\t") for line in done.out.splitlines()[1:]]
    assert len(rows) == 7 and {row[-1] for row in rows} == {"ok"}


@pytest.mark.slow
@pytest.mark.parametrize("first", ["translate --lang tlh", "data import nowhere"])
def test_a_stage_that_fails_stops_the_pipe(first: str, dataset_alone: Path) -> None:
    done = toy.shell(f"{pipe(first, 'extract -', 'train -')}; echo ${{PIPESTATUS[@]}}", dataset_alone)
    assert done.out.split() == ["5" if "translate" in first else "2", "4", "4"]
    assert done.err.count("standard input") == 2


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("stdin", ["", "\n  \n"])
def test_no_line_on_standard_input(stage: str, stdin: str, sources: Chain) -> None:
    done = sources.ccr(stage, "-", stdin=stdin)
    assert (done.code, done.out) == (4, "")
    assert "standard input" in done.err


def test_a_closed_standard_input_is_empty(sources: Chain) -> None:
    done = toy.shell("ccr extract - <&-", sources.root)
    assert (done.code, done.out) == (4, "") and "no artifact path on standard input" in done.err


@pytest.mark.parametrize("stage", STAGES)
def test_a_path_without_a_record(stage: str, workspace: Chain) -> None:
    unfinished = workspace.root / "runs" / "a.partial"
    unfinished.mkdir(parents=True)
    for path in (workspace.root / "datasets", workspace.root / "nowhere", unfinished):
        done = workspace.ccr(stage, "-", stdin=f"{workspace.find('dataset').path}\n{path}\n")
        assert (done.code, done.out) == (4, "")
        assert str(path) in done.err


def test_an_unfinished_run_beside_others_is_left_out(finished: Chain) -> None:
    (finished.root / "runs" / "a.partial").mkdir()
    done = finished.ccr("show", *sorted((finished.root / "runs").iterdir()))
    assert done.code == 0 and "runs/a.partial" in done.err and "/a.partial" not in done.out


def test_standard_input_is_read_only_where_a_dash_stands(chain: Chain) -> None:
    assert chain.ccr("verify", stdin="/nowhere\n").code == 0
    assert chain.ccr("evaluate", chain.find("run", "uml").path, "--device", "cpu", stdin="/nowhere\n").code == 0


def test_paths_in_any_order_twice_and_with_arguments(chain: Chain) -> None:
    """A path twice counts once; relative paths are those of the current folder or of the workspace."""
    run = chain.find("run", "uml")
    stdin = f"  {run.path}\n{chain.find('features').path}\n\n{run.path}\n"
    done = chain.ccr("evaluate", "runs/" + run.name, "-", "--device", "cpu", stdin=stdin)
    assert done.code == 0 and done.made.kind == "evaluation"
    assert len(set(done.paths)) == len(done.paths)


def test_json_is_one_object_with_the_same_paths(chain: Chain) -> None:
    root, run = chain.root, chain.find("run", "uml")
    extract = ("extract", *toy.ENCODER)
    calls = (extract, ("evaluate", run.path), ("diagnose", run.path), ("translate", "--lang", "es", "--back"))
    for call in calls:
        more = ("--with-queries",) if call[0] == "translate" else () if call[0] == "extract" else ("--device", "cpu")
        lines = toy.ok(*call, *more, workspace=root).out.splitlines()
        found = json.loads(toy.ok(*call, *more, "--json", workspace=root).out)
        assert set(found) == {"read", "made"} and len(found["made"]) == 1
        assert [a["path"] for a in found["read"] + found["made"]] == lines
        for fact in found["read"] + found["made"]:
            artifact = base.load(Path(fact["path"]))
            assert (artifact.kind, artifact.name, artifact.id, artifact.counts) == (
                fact["kind"],
                fact["name"],
                fact["id"],
                fact["counts"],
            )


def test_a_quiet_command_says_nothing_beside_its_paths(chain: Chain) -> None:
    done = chain.ccr("evaluate", chain.find("run", "uml").path, "--device", "cpu", "-q")
    assert done.code == 0 and done.err == "" and done.paths


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["data", "list"],
        pytest.param(["translate", "--lang", "es", "--dry-run"], marks=pytest.mark.slow),
        pytest.param(["data", "describe", "toy"], marks=pytest.mark.slow),
        pytest.param(["verify"], marks=pytest.mark.slow),
    ],
)
def test_a_closed_standard_output_is_no_error(words: list[str], sources: Chain) -> None:
    """Once as a pipe that nobody reads, once as no file at all."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "ccr_cli", *words]
    with os.fdopen(writer, "w") as out:
        done = subprocess.run(
            command, stdout=out, stderr=subprocess.PIPE, text=True, env=toy.environment(sources.root), timeout=120
        )
    assert (done.returncode, done.stderr) == (0, "")
    closed = toy.shell(f"exec {' '.join(['ccr', *words])} >&-", sources.root)
    assert (closed.code, closed.err) == (0, "")


@pytest.mark.slow
def test_two_encoders_features_are_joined_in_a_pipe(sources: Chain, tmp_path: Path) -> None:
    """Each stage passes on what it read, so the joined features meet the translation; training takes them."""
    root = tmp_path / "workspace"
    shutil.copytree(sources.root, root)
    encode = "extract - --encoder efficientnet-lite0 --set image_size"
    whole = pipe("translate --lang es --back --with-queries", f"{encode}=48", f"{encode}=40", "extract - --concat")
    done = toy.shell(whole.replace(f" {OPTIONS['extract']}", ""), root)
    assert done.code == 0, done.err
    kinds = [base.load(path).kind for path in done.paths]
    assert kinds == ["dataset", "features", "features", "translation", "features"]
    made = done.made
    assert made.name == "_".join(path.name for path in done.paths[1:3]) and made.request["encoder"].count("lite0") == 2
    done = toy.shell(f"printf '%s\\n' {shlex.join(map(str, done.paths))} | {pipe('train -', 'evaluate -')}", root)
    assert done.code == 0, done.err
    assert done.made.kind == "evaluation" and made.path in done.paths
