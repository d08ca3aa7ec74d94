"""`ccr export`: one artifact a run, made once, never half; what it refuses, and what comes through a pipe."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import base
from ccr_cli.artifacts.workspace import Workspace


def test_the_same_request_twice_does_no_work_twice(finished: Chain) -> None:
    run = finished.find("run", "uml")
    first = toy.ok("export", run.path, workspace=finished.root)
    made = first.made
    assert made.path == finished.root / "exports" / run.name and made.kind == "export"
    assert "use it with encode.py" in first.err and str(made.path / "README.md") in first.err
    times = {path: path.stat().st_mtime_ns for path in made.path.rglob("*")}
    again = toy.ok("export", run.path, workspace=finished.root)
    assert again.out == first.out and {path: path.stat().st_mtime_ns for path in made.path.rglob("*")} == times
    kinds = [base.load(path).kind for path in first.paths]
    assert set(kinds) == {"run", "evaluation", "dataset", "translation", "noise", "features", "export"}
    assert toy.ok("verify", workspace=finished.root).out.count("\tok") == len(Workspace(finished.root).artifacts())


@pytest.mark.slow
def test_another_evaluation_makes_another_card(finished: Chain) -> None:
    run = finished.find("run", "infonce")
    old = toy.ok("export", run.path, workspace=finished.root).made
    more = toy.ok("evaluate", run.path, "--split", "val", "--device", "cpu", workspace=finished.root).made
    refused = finished.ccr("export", run.path)
    assert (refused.code, refused.out) == (4, "")
    assert more.id[:12] in refused.err and "--force" in refused.err
    assert base.load(old.path).id == old.id
    new = toy.ok("export", run.path, "--force", workspace=finished.root).made
    assert new.path == old.path and new.counts["results"] > old.counts["results"] > 0
    only = toy.ok("export", run.path, more.path, "--name", "val-only", workspace=finished.root).made
    assert {p.id for p in only.parents} == {run.id, more.id}
    assert 0 < only.counts["results"] == new.counts["results"] - old.counts["results"]


def test_through_a_pipe(finished: Chain) -> None:
    run = finished.find("run", "uml")
    measured = toy.ok("evaluate", run.path, "--device", "cpu", workspace=finished.root)
    done = toy.ok("export", "-", "--json", workspace=finished.root, stdin=measured.out)
    (made,) = json.loads(done.out)["made"]
    assert made["kind"] == "export" and made["name"] == run.name and made["counts"]["models"] == 1


def test_an_evaluation_of_another_run(chain: Chain) -> None:
    run, other = chain.find("run", "uml"), chain.find("evaluation", "infonce")
    done = chain.ccr("export", run.path, other.path)
    assert (done.code, done.out) == (4, "") and other.name in done.err
    assert not (chain.root / "exports").exists()


def test_what_the_run_does_not_come_from_is_refused(finished: Chain, tmp_path: Path) -> None:
    root, run = finished.root, finished.find("run", "uml")
    own = [finished.find(kind).path for kind in ("dataset", "features", "translation")]
    own.append(finished.find("diagnosis", "uml").path)
    other = toy.ok("data", "import", toy.toy("other").write(tmp_path / "other"), workspace=root).made
    words = toy.ok("translate", other.path, "--lang", "es", workspace=root).made
    assert toy.ccr("export", run.path, *own, "--dry-run", workspace=root).code == 0
    for made, code in ((other, 2), (words, 2), (finished.find("noise"), 0), (finished.find("diagnosis", "infonce"), 4)):
        done = toy.ccr("export", run.path, *own, made.path, "--dry-run", workspace=root)
        assert done.code == code and (code == 0 or made.name in done.err), done.err


def test_a_dry_run(chain: Chain) -> None:
    run = chain.find("run", "uml")
    rows = dict(
        line.split("\t", 1) for line in toy.ok("export", run.path, "--dry-run", workspace=chain.root).out.splitlines()
    )
    assert rows["artifact"] == str(chain.root / "exports" / run.name) and rows["state"] == "to do"
    assert not (chain.root / "exports").exists()


def test_onnx_is_of_transformers_alone(chain: Chain) -> None:
    done = chain.ccr("export", chain.find("run", "uml").path, "--onnx")
    assert (done.code, done.out) == (2, "") and "ngram" in done.err and "--onnx" in done.err
    assert not (chain.root / "exports").exists()


def test_what_a_stopped_attempt_left_is_no_part(finished: Chain) -> None:
    run = finished.find("run", "uml")
    made = toy.ok("export", run.path, workspace=finished.root).made
    wanted = toy.digests(made.path)
    partial = made.path.with_name(f"{made.name}.partial")
    made.path.rename(partial)
    (partial / base.RECORD).unlink()
    (partial / "visual.safetensors").write_bytes(b"half")
    (partial / "tower").mkdir()
    (partial / "tower" / "model.safetensors").write_bytes(b"of another time")
    again = toy.ok("export", run.path, workspace=finished.root).made
    assert toy.digests(again.path) == wanted and not partial.exists()


@pytest.mark.parametrize("kind", ["dataset", "features", "translation"])
def test_a_parent_that_is_gone(kind: str, finished: Chain) -> None:
    run = finished.find("run", "infonce")
    shutil.rmtree(finished.root / run.parent(kind).path)
    done = finished.ccr("export", run.path)
    assert (done.code, done.out) == (4, "") and f" {kind}" in done.err
    assert list((finished.root / "exports").iterdir()) == []


def test_weights_that_were_changed(finished: Chain) -> None:
    run = finished.find("run", "uml")
    weights = run.path / "model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-1] ^= 1
    weights.write_bytes(raw)
    done = finished.ccr("export", run.path)
    assert (done.code, done.out) == (4, "") and "model.safetensors" in done.err
    assert list((finished.root / "exports").iterdir()) == []


def test_without_the_packages_of_onnx(monkeypatch: pytest.MonkeyPatch, workspace: Chain, tmp_path: Path) -> None:
    import tinytext

    folder = tinytext.save("bert", tmp_path / "bert")
    call = ("train", "--method", "infonce", "--epochs", "1", "--device", "cpu", "--set", f"text_encoder={folder}")
    run = toy.ok(*call, "--set", "max_tokens=20", workspace=workspace.root).made
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if "onnx" in name else there(name, *rest))
    done = workspace.ccr("export", run.path, "--onnx")
    assert (done.code, done.out) == (5, "")
    assert "onnx, onnxscript, onnxruntime" in done.err and "pip install 'ccr-cli[onnx]'" in done.err
