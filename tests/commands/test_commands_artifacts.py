"""Artifacts on the command line: missing, ambiguous, tampered, mismatched, from the future, done already."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toy
from served import Server
from toy import Chain
from typer.testing import CliRunner

from ccr_cli.artifacts import base, run
from ccr_cli.artifacts.base import FOLDERS
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.cli import app, complete_in_bash
from ccr_cli.stages.shared.references import find

TRAIN = ("train", "--method", "infonce", "--epochs", "1", *toy.SMALL)
CPU = ("--device", "cpu")


def everything(root: Path) -> dict[str, tuple[int, str]]:
    """Time and digest of every file of a workspace."""
    return {name: ((root / name).stat().st_mtime_ns, digest) for name, digest in toy.digests(root).items()}


def edit_record(artifact: base.Artifact, **changes: Any) -> None:
    """Changes a record and makes its id fit again."""
    record = json.loads((artifact.path / base.RECORD).read_text()) | changes
    parents = [base.Parent(**p) for p in record["parents"]]
    files = [base.FileEntry(**f) for f in record["files"]]
    record["id"] = base.identity(record["kind"], record["schema"], record["request"], parents, files)
    base.write_json(artifact.path / base.RECORD, record)


@pytest.mark.parametrize(
    ("command", "kind", "hint"),
    [
        (("translate", "--lang", "es"), "dataset", "ccr data import"),
        (("extract",), "dataset", "ccr data import"),
        (("train",), "translation", "ccr translate --lang"),
        (("train", "--lang", "fr"), "translation", "ccr translate --lang fr"),
        (("evaluate",), "run", "ccr train"),
        (("diagnose",), "translation", "ccr translate --lang"),
        (("search", "rojo"), "run", "ccr train"),
        (("report",), "evaluation", "ccr evaluate"),
        (("export",), "run", "ccr train"),
    ],
)
def test_nothing_there(command: tuple[str, ...], kind: str, hint: str, tmp_path: Path) -> None:
    done = toy.ccr(*command, workspace=tmp_path)
    assert (done.code, done.out) == (4, "")
    assert kind in done.err and hint in done.err
    assert list(tmp_path.iterdir()) == []


def test_features_are_missing(workspace: Chain) -> None:
    shutil.rmtree(workspace.root / "features")
    done = workspace.ccr(*TRAIN)
    assert done.code == 4 and f"ccr extract {workspace.find('dataset').path}" in done.err


@pytest.mark.parametrize("command", [("evaluate",), ("diagnose",), ("search", "rojo")])
def test_several_fit(command: tuple[str, ...], chain: Chain) -> None:
    done = chain.ccr(*command)
    assert (done.code, done.out) == (4, "")
    lines = {line.split()[0]: line for line in done.err.splitlines() if line.strip()}
    for method, noise in (("uml", "0.4"), ("infonce", "none")):
        line = lines[f"runs/{chain.find('run', method).name}"]
        assert line.split(maxsplit=1)[1] == f"method {method}, noise {noise}", "what differs, and nothing else"
    assert "runs/" in done.err.split("try: ")[1]


@pytest.mark.parametrize(
    ("options", "said", "hint"),
    [
        (("--method", "ulm"), "'ulm'", "'uml'"),
        (("--noise", "40"), "--noise 40", "--noise 0.4 is 40 %"),
        (("--noise", "-1"), "--noise -1", "--noise 0.4 is 40 %"),
        (("--sweep", "noise=0,40"), "40: ", "0.4 is 40 %"),
    ],
)
def test_what_was_meant_is_said(options: tuple[str, ...], said: str, hint: str, chain: Chain) -> None:
    done = chain.ccr("train", *options)
    assert (
        (done.code, done.out) == (2, "")
        and done.err.startswith("error: ")
        and said in done.err
        and hint in done.err.split("try: ")[1]
    )


def test_a_word_means_an_artifact(chain: Chain) -> None:
    trained, plain, made = chain.find("run", "uml"), chain.find("run", "infonce"), chain.find("translation")
    words = {
        str(trained.path): trained,
        f"runs/{trained.name}": trained,
        trained.name: trained,
        f"runs/{trained.name[:-4]}": trained,
        made.path.relative_to(chain.root / "translations").as_posix(): made,
        "toy": chain.find("dataset"),
    }
    for word, artifact in words.items():
        assert chain.ccr("show", word).paths == [artifact.path], word
    assert find(Workspace(chain.root), trained.name[:-4], ("run", "evaluation")) == trained.path
    newest = max(trained, plain, key=lambda a: (a.about["created"], (a.path / base.RECORD).stat().st_mtime_ns))
    done = chain.ccr("evaluate", "latest", "--dry-run", *CPU)
    assert done.code == 0 and f"runs/{newest.name}" in done.err and newest.id[:12] in done.out


@pytest.mark.parametrize(
    ("word", "meant"),
    [("latset", "latest"), ("best", "best:SumR"), ("best:R@1", "best:t2v.R@1"), ("0.4", "noise=0.2,0.4")],
)
def test_a_word_that_is_nearly_right(word: str, meant: str, chain: Chain) -> None:
    done = chain.ccr("show", word)
    assert done.code in (2, 4) and meant in done.err.partition("try: ")[2].partition("?")[0]


def test_the_best_run_is_that_on_validation(chain: Chain) -> None:
    def reached(trained: base.Artifact) -> float:
        history = run.history(trained)
        return float(history.loc[history["epoch"] == trained.counts["best_epoch"], "val.SumR"].iloc[0])

    best = max(Workspace(chain.root).artifacts("run"), key=reached)
    done = chain.ccr("show", "best:sumr")
    assert done.paths == [best.path] and f"SumR {reached(best):.1f}" in done.err and "validation" in done.err
    unknown = chain.ccr("show", "best:nothing")
    assert unknown.code == 4 and "'nothing'" in unknown.err and "SumR" in unknown.err


def test_runs_on_other_validation_queries_are_not_ranked(chain: Chain, tmp_path: Path) -> None:
    root = Path(shutil.copytree(chain.root, tmp_path / "workspace"))
    first, trained = (Workspace(root).artifacts(kind)[0] for kind in ("translation", "run"))
    copied = {a.kind: Path(shutil.copytree(a.path, a.path.with_name("other"))) for a in (first, trained)}
    made = base.load(copied["translation"])
    edit_record(made, request={**made.request, "engine": "elsewhere"})
    made = base.load(copied["translation"])
    parents = json.loads((copied["run"] / base.RECORD).read_text())["parents"]
    link = {"kind": "translation", "id": made.id, "path": made.path.relative_to(root).as_posix()}
    edit_record(base.load(copied["run"]), parents=[link if p["kind"] == "translation" else p for p in parents])
    done = toy.ccr("show", "best:SumR", workspace=root)
    assert (done.code, done.out) == (4, "") and "runs/other" in done.err and "elsewhere" in done.err


def test_a_word_that_means_nothing_or_too_much(chain: Chain) -> None:
    trained = chain.find("run", "uml")
    wrong = f"{trained.name[:3]}{trained.name[4:]}"
    done = chain.ccr("evaluate", wrong)
    assert (done.code, done.out) == (4, "") and wrong in done.err and f"runs/{trained.name}" in done.err
    names = [f"runs/{a.name}" for a in Workspace(chain.root).artifacts("run")]
    several = chain.ccr("search", "rojo", "runs/toy")
    assert several.code == 4 and all(name in several.err for name in names)
    assert chain.ccr("show", "runs/toy").paths == [chain.root / name for name in names], "where many are taken: all"
    method = chain.ccr("compare", "infonce")
    assert method.code == 4 and f"runs/{chain.find('run', 'infonce').name}" in method.err and "uml" not in method.err


def test_the_workspace_is_found_from_a_path(chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trained = chain.find("run", "uml")
    found = toy.ccr("evaluate", trained.path, "--dry-run", *CPU)
    assert found.code == 0 and str(chain.root / "evaluations") in found.out
    elsewhere = toy.ok("evaluate", trained.path, *CPU, workspace=tmp_path / "new").made
    assert elsewhere.path.is_relative_to(tmp_path / "new") and elsewhere.parent("run").path == str(trained.path)
    missing = toy.ccr("show", workspace=tmp_path / "nwe")
    assert (missing.code, missing.out) == (4, "") and f"--workspace {tmp_path / 'new'}" in missing.err
    assert not (tmp_path / "nwe").exists()


@pytest.mark.parametrize(
    ("command", "incomplete", "some"),
    [
        ("evaluate", "", {"latest", "best:SumR"}),
        ("evaluate", "toy-es-u", {"toy-es-uml"}),
        ("translate", "t", {"toy"}),
        ("train", "features/", {"features/toy"}),
        ("train --method ", "u", {"uml"}),
        ("diagnose --judge ", "g", {"gmm"}),
        ("translate --engine ", "a", {"apertium", "auto"}),
        ("extract --encoder ", "cl", {"clip"}),
    ],
)
def test_words_are_completed(command: str, incomplete: str, some: set[str], chain: Chain) -> None:
    environment = {"_CCR_COMPLETE": "complete_bash", "COMP_WORDS": f"ccr {command} {incomplete}"}
    environment |= {"COMP_CWORD": str(len(f"{command} .".split())), "CCR_WORKSPACE": str(chain.root)}
    done = CliRunner().invoke(app, env=environment, prog_name="ccr")
    words = done.stdout.split()
    assert all(any(word.startswith(start) for word in words) for start in some), done.output
    assert all(word.startswith(incomplete) for word in words)


@pytest.mark.parametrize(
    ("words", "place", "expected"),
    [
        (("ccr", "evaluate", "best", ":", "Su"), 4, {"SumR"}),
        (("ccr", "evaluate", "best", ":"), 3, {"SumR"}),
        (("ccr", "evaluate", "be"), 2, {"best:SumR"}),
        (("ccr", "train", "--set", "judge", "=", "gm"), 5, {"gmm"}),
        (("ccr", "train", "--method", "=", "um"), 4, {"uml"}),
        (("ccr", "train", "--set", "judge", "=", "gmm", "--method", "um"), 7, {"uml"}),
    ],
)
def test_words_that_bash_splits_are_completed(
    words: tuple[str, ...],
    place: int,
    expected: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("_CCR_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(words))
    monkeypatch.setenv("COMP_CWORD", str(place))
    monkeypatch.setenv("CCR_WORKSPACE", str(tmp_path))
    with pytest.raises(SystemExit):
        complete_in_bash()
    assert {*capsys.readouterr().out.split()} == expected


def test_several_are_given(chain: Chain) -> None:
    given = Workspace(chain.root).artifacts("run")
    done = chain.ccr("search", "red", *(run.path for run in given))
    assert done.code == 4 and all(f"runs/{run.name}" in done.err for run in given)


def test_a_file_is_tampered_with(finished: Chain) -> None:
    run = finished.find("run", "uml")
    weights = run.path / "model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-1] ^= 1
    weights.write_bytes(raw)
    done = finished.ccr("verify")
    states = {line.split("\t")[1]: line.split("\t")[3] for line in done.out.splitlines()[1:]}
    assert done.code == 4
    assert states.pop(f"runs/{run.name}") == "changed: model.safetensors"
    assert set(states.values()) == {"ok"}
    for command in ("diagnose", "evaluate"):
        done = finished.ccr(command, run.path, *CPU, "--force")
        assert (done.code, done.out) == (4, "")
        assert str(weights) in done.err


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "missing: config.json"),
        (lambda folder: (folder / "history.jsonl").write_text("{}"), "size: history.jsonl"),
        (lambda folder: (folder / "more.txt").write_text("x"), "unexpected: more.txt"),
    ],
)
def test_verify_says_what_is_wrong(damage: Callable[[Path], None], message: str, finished: Chain) -> None:
    run = finished.find("run", "uml")
    damage(run.path)
    done = finished.ccr("verify", run.path)
    assert done.code == 4 and message in done.out


def test_a_record_is_tampered_with(finished: Chain) -> None:
    record = finished.find("run", "uml").path / base.RECORD
    record.write_text(record.read_text().replace('"seed": 0', '"seed": 1'))
    for command in (("verify",), ("evaluate", record.parent)):
        done = finished.ccr(*command)
        assert done.code == 4 and str(record) in done.err


@pytest.mark.slow
def test_verify_looks_at_every_parent(finished: Chain) -> None:
    """Of a report, which has several parents of one kind."""
    report = toy.ok("report", workspace=finished.root).made
    last = [p for p in report.parents if p.kind == "diagnosis"][-1]
    shutil.rmtree(finished.root / last.path)
    done = finished.ccr("verify", report.path)
    assert done.code == 4 and last.path in done.out


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(FOLDERS))
def test_a_newer_schema_is_refused(kind: str, finished: Chain) -> None:
    run = finished.find("run", "uml").path
    made = {"report": ("report",), "export": ("export", run), "index": ("index", run)}
    if kind in made:
        toy.ok(*made[kind], workspace=finished.root)
    artifact = Workspace(finished.root).artifacts(kind)[0]
    edit_record(artifact, schema=base.SCHEMAS[kind] + 1)
    done = finished.ccr("verify", artifact.path)
    assert done.code == 4 and f" {base.SCHEMAS[kind] + 1}" in done.err and "upgrade ccr" in done.err


def test_artifacts_of_two_data_sets(workspace: Chain, tmp_path: Path) -> None:
    other = toy.toy("other")
    other.captions[0][4] += " indeed"
    other.tables["en-es"][other.captions[0][4]] = "sí"
    toy.ok("data", "import", other.write(tmp_path / "other"), workspace=workspace.root)
    data = Workspace(workspace.root).place("dataset", "other")
    features = toy.ok("extract", data, *toy.ENCODER, workspace=workspace.root).made
    ours, theirs = workspace.find("translation").path, workspace.root / "noise" / "other"
    toy.ok("translate", data, "--noise", "0.5", workspace=workspace.root)
    for given in (features.path, data, next(theirs.iterdir())):
        done = workspace.ccr(*TRAIN, ours, given)
        assert (done.code, done.out) == (4, ""), given
        assert str(given) in done.err


def test_a_parent_was_replaced(finished: Chain) -> None:
    run = finished.find("run", "uml")
    edit_record(finished.find("features"), request={"encoder": "another"})
    for command in (("evaluate", "--force"), ("diagnose", "--force"), ("verify",)):
        more = () if command == ("verify",) else CPU
        done = finished.ccr(*command, *more, run.path)
        assert done.code == 4 and "features/toy/" in done.out + done.err


def test_what_was_made_from_another_state_of_a_run_is_left_out(finished: Chain) -> None:
    run, stale = finished.find("run", "uml"), finished.find("evaluation", "uml")
    edit_record(run, request={**run.request, "x": 1})
    for path, said in ((run.path, f"ccr evaluate runs/{run.name}"), (stale.path, "another state")):
        done = finished.ccr("compare", finished.find("run", "infonce").path, path)
        assert (done.code, done.out) == (4, "") and said in done.err
    for command in ("ccr evaluate --force", f"ccr evaluate /w/runs/{run.name}", "ccr evaluate latest"):
        hint = replace(stale, about={"command": command}).rebuild_hint()
        assert hint.count(f"runs/{run.name}") == 1 and hint.count("--force") == 1 and "latest" not in hint
    done = finished.ccr("compare")
    assert done.code == 2 and f"{stale.name} is left out" in done.err
    assert "stale; SumR" in finished.ccr("show").out


def test_same_request_twice_does_no_work_twice(chain: Chain) -> None:
    before = everything(chain.root)
    run = chain.find("run", "uml")
    calls = (
        ("data", "import", chain.folder),
        ("translate", "--lang", "es", "--back", "--with-queries", "--noise", "0.4"),
        ("extract", *toy.ENCODER),
        ("train", "--method", "uml", "--noise", "0.4", "--epochs", "6", "--set", "lr=0.02", *toy.SMALL),
        ("evaluate", run.path, *CPU),
        ("diagnose", run.path, *CPU),
    )
    for call in calls:
        artifact = toy.ok(*call, workspace=chain.root).made
        assert artifact.id in {a.id for a in Workspace(chain.root).artifacts(artifact.kind)}
    assert everything(chain.root) == before


def test_one_name_for_two_requests(workspace: Chain) -> None:
    first = toy.ok(*TRAIN, "--name", "mine", workspace=workspace.root).made
    before = everything(first.path)
    done = workspace.ccr(*TRAIN, "--name", "mine", "--seed", "7", "--noise", "0.4")
    assert (done.code, done.out) == (4, "")
    assert re.search(r"\bseed: 0\b.*\b7\b", done.err) and "parent noise: none" in done.err
    assert "--name" in done.err and "--force" in done.err
    assert everything(first.path) == before
    broken = workspace.ccr(*TRAIN, "--name", "mine", "--set", "lr=1e38", "--force")
    assert broken.code == 1 and "infonce_vs nan" in broken.err
    assert everything(first.path) == before, "the old run stays until the new one is complete"
    second = toy.ok(*TRAIN, "--name", "mine", "--seed", "7", "--force", workspace=workspace.root).made
    assert second.path == first.path and second.request["seed"] == 7
    assert sorted(os.listdir(workspace.root / "runs")) == ["mine"]


@pytest.mark.parametrize(("name", "code"), [("../../evil", 0), ("a/b c", 0), ("...", 0), ("x.partial", 2)])
def test_a_name_never_leads_elsewhere(name: str, code: int, workspace: Chain) -> None:
    done = workspace.ccr(*TRAIN, "--name", name)
    assert done.code == code, done.err
    made = sorted(os.listdir(workspace.root / "runs")) if (workspace.root / "runs").exists() else []
    assert made == ({"../../evil": ["evil"], "a/b c": ["a--b-c"], "...": ["%2E%2E%2E"]}.get(name, []))
    assert not list(workspace.root.parent.glob("**/evil.partial"))


def test_a_moved_workspace(chain: Chain, tmp_path: Path) -> None:
    root = tmp_path / "moved"
    shutil.copytree(chain.root, tmp_path / "first")
    (tmp_path / "first").rename(root)
    run = next(a for a in Workspace(root).artifacts("run") if "uml" in a.name)
    assert toy.ok("verify", workspace=root).out.count("\tok") == len(Workspace(root).artifacts())
    for call in (("evaluate", run.path, "--force"), ("diagnose", run.path, "--force"), ("search", "rojo", run.path)):
        done = toy.ok(*call, *CPU, workspace=root)
        assert str(chain.root) not in done.out
    old = chain.find("evaluation", "uml")
    assert base.load(root / "evaluations" / old.name).files == old.files


def test_a_dry_run_builds_nothing(chain: Chain, tmp_path: Path) -> None:
    before = everything(chain.root)
    run = chain.find("run", "uml").path
    calls: list[tuple[tuple[str | Path, ...], str, str]] = [
        (("data", "import", chain.folder, "--name", "again"), "datasets/again", "to do"),
        (("data", "import", chain.folder), "datasets/toy", "done"),
        (("translate", "--lang", "es"), "translations/toy/es-recorded", "to do"),
        (("extract", *toy.ENCODER, "--set", "image_size=64"), "features/toy/efficientnet-lite0-", "to do"),
        (("train", "--noise", "0.4"), "runs/toy-es-uml-noise0.4-seed0", "to do"),
        (("train", "--noise", "0.3"), "runs/toy-es-uml-noise0.3-seed0", "to do"),
        (
            ("train", "--noise", "0.3", "--noise-style", "near"),
            "runs/toy-es-uml-noise0.3-near-translation-seed0",
            "to do",
        ),
        (("evaluate", run), "evaluations/", "done"),
        (("evaluate", run, "--split", "val"), "evaluations/", "to do"),
        (("diagnose", run, "--judge", "gmm"), "diagnoses/", "to do"),
        (("report", "--title", "A"), "reports/", "to do"),
    ]
    for call, place, state in calls:
        done = toy.ok(*call, "--dry-run", workspace=chain.root)
        rows = dict(line.split("\t", 1) for line in done.out.splitlines())
        assert rows["artifact"].startswith(str(chain.root / place)), call
        assert rows["state"] == state, call
    assert everything(chain.root) == before


@contextmanager
def unwritable(root: Path) -> Iterator[None]:
    """Takes the right to write away, from the superuser too."""
    if os.geteuid() != 0:
        for folder in [root, *(p for p in root.rglob("*") if p.is_dir())]:
            folder.chmod(0o500)
        yield
        for folder in [root, *(p for p in root.rglob("*") if p.is_dir())]:
            folder.chmod(0o700)
        return
    bound = subprocess.run(["mount", "--bind", root, root], capture_output=True)
    if bound.returncode:
        pytest.skip("the superuser can write anywhere and may not mount here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", root], check=True, capture_output=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", root], check=True)


def test_a_workspace_that_cannot_be_written(finished: Chain) -> None:
    run = finished.find("run", "uml").path
    with unwritable(finished.root):
        writing = (("translate", "--lang", "es"), ("evaluate", run, "--split", "val", *CPU), TRAIN)
        for call in (*writing, ("index", run, "--split", "all", *CPU), ("export", run), ("report", "--title", "A")):
            done = finished.ccr(*call)
            read_only = os.geteuid() == 0  # else its permissions are missing
            assert (done.code, done.out) == (6 if read_only else 4, ""), call
            assert str(finished.root) in done.err and "--workspace" in done.err
        assert toy.ok("search", "rojo", run, *CPU, workspace=finished.root).out
        assert toy.ok("evaluate", run, *CPU, workspace=finished.root).made.kind == "evaluation"


@pytest.mark.slow
def test_a_workspace_that_cannot_be_written_is_served(finished: Chain) -> None:
    run = finished.find("run", "uml").path
    with unwritable(finished.root), Server(finished.root, run, "--split", "all") as up:
        reply = up.ask("/search?q=rojo")
        assert reply.status == 200 and reply.json["hits"]


def test_a_file_where_the_workspace_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    done = toy.ccr("data", "import", "twemoji", workspace=tmp_path / "file")
    assert done.code == 4 and str(tmp_path / "file") in done.err and "--workspace" in done.err
    assert (tmp_path / "file").read_text() == "mine"


def test_a_run_of_a_wrong_name_is_answered_with_runs(finished: Chain) -> None:
    runs = {path.name for path in (finished.root / "runs").iterdir() if not path.name.startswith(".")}
    for word in ("runs/toys", "toys"):
        done = finished.ccr("evaluate", word)
        named = set(re.findall(r"(\w+)/[\w./-]+", done.err.partition("there are:")[2]))
        assert done.code == 4 and named == {"runs"} and any(name in done.err for name in runs)
