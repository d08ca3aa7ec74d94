"""Records, identity, hash-checked reading and atomic writing."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import ccr_cli
from ccr_cli.artifacts import base
from ccr_cli.artifacts.build import building
from ccr_cli.artifacts.workspace import Workspace, slug, stem
from ccr_cli.errors import ArtifactError, UsageError

PARENT = base.Parent("dataset", "p" * 64, "datasets/x")
FILE = base.FileEntry("a.json", 3, "f" * 64)


def test_identity_changes_with_every_part() -> None:
    request = {"x": 1}
    same = base.identity("noise", 1, request, [PARENT], [FILE])
    assert same == base.identity("noise", 1, dict(request), [PARENT], [FILE])
    others = [
        base.identity("features", 1, request, [PARENT], [FILE]),
        base.identity("noise", 2, request, [PARENT], [FILE]),
        base.identity("noise", 1, {"x": 2}, [PARENT], [FILE]),
        base.identity("noise", 1, {"x": 1, "y": None}, [PARENT], [FILE]),
        base.identity("noise", 1, request, [base.Parent("dataset", "q" * 64, "datasets/x")], [FILE]),
        base.identity("noise", 1, request, [], [FILE]),
        base.identity("noise", 1, request, [PARENT], [base.FileEntry("a.json", 3, "e" * 64)]),
        base.identity("noise", 1, request, [PARENT], [base.FileEntry("b.json", 3, "f" * 64)]),
        base.identity("noise", 1, request, [PARENT], []),
    ]
    assert len({same, *others}) == len(others) + 1


def test_identity_does_not_depend_on_order_or_place() -> None:
    second, other = base.FileEntry("b", 1, "0" * 64), base.Parent("features", "r" * 64, "f")
    first = base.identity("run", 1, {"a": 1, "b": 2}, [PARENT, other], [FILE, second])
    moved = base.Parent("dataset", "p" * 64, "elsewhere/x")
    assert first == base.identity("run", 1, {"b": 2, "a": 1}, [other, moved], [second, FILE])


def test_canonical_json_keeps_unicode_and_refuses_nan() -> None:
    assert base.canonical_json({"b": "zh-中", "a": [1.0, None]}) == '{"a":[1.0,null],"b":"zh-中"}'
    with pytest.raises(ValueError):
        base.canonical_json({"x": float("nan")})


def test_atomic_open_leaves_nothing_behind_on_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    base.write_json(path, {"old": True})
    with pytest.raises(KeyboardInterrupt), base.atomic_open(path, "w") as handle:
        handle.write("half")
        raise KeyboardInterrupt
    assert base.read_json(path) == {"old": True}
    assert os.listdir(tmp_path) == ["x.json"]


def test_write_json_of_nan_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    base.write_json(path, {"old": True})
    with pytest.raises(ValueError):
        base.write_json(path, {"new": float("inf")})
    assert base.read_json(path) == {"old": True}
    assert os.listdir(tmp_path) == ["x.json"]


def make(root: Path, name: str = "a", text: str = "hello", request: dict[str, Any] | None = None) -> base.Artifact:
    """A small artifact."""
    with building(Workspace(root), "report", name, request or {"x": 1}) as build:
        (build.folder / "sub").mkdir()
        (build.folder / "sub" / "text.txt").write_text(text)
        return build.finish({"failed": 0})


def test_same_bytes_same_id(tmp_path: Path) -> None:
    first, second = make(tmp_path / "one"), make(tmp_path / "two", name="b")
    assert first.id == second.id
    assert make(tmp_path / "three", text="hullo").id != first.id


def edit(artifact: base.Artifact, **change: Any) -> None:
    """Changes a record as somebody with an editor would."""
    path = artifact.path / base.RECORD
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


@pytest.mark.parametrize(
    "change",
    [{"request": {"x": 2}}, {"kind": "diagnosis"}, {"id": "0" * 64}, {"files": []}, {"schema": 0}],
    ids=lambda change: next(iter(change)),
)
def test_tampered_record(tmp_path: Path, change: dict[str, Any]) -> None:
    artifact = make(tmp_path)
    edit(artifact, **change)
    with pytest.raises(ArtifactError, match=re.escape(str(artifact.path / base.RECORD))):
        base.load(artifact.path)


def test_facts_apart_from_identity_may_differ(tmp_path: Path) -> None:
    artifact = make(tmp_path)
    edit(artifact, created="another day", environment={"device": "cuda"})
    assert base.load(artifact.path).id == artifact.id


def test_newer_schema(tmp_path: Path) -> None:
    artifact = make(tmp_path)
    edit(artifact, schema=99)
    with pytest.raises(ArtifactError, match=r"\b99\b.*\b1\b") as caught:
        base.load(artifact.path)
    assert caught.value.hint == "upgrade ccr"
    edit(artifact, schema=1, kind="atlas")
    with pytest.raises(ArtifactError, match="'atlas'") as caught:
        base.load(artifact.path)
    assert caught.value.hint == "upgrade ccr"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '{"kind": "report"}', '{"kind": 1, "files": 7}'])
def test_record_that_is_none(tmp_path: Path, text: str) -> None:
    artifact = make(tmp_path)
    (artifact.path / base.RECORD).write_text(text)
    with pytest.raises(ArtifactError):
        base.load(artifact.path)


@pytest.mark.parametrize("field", ["kind", "schema", "name", "id", "request", "parents", "files", "counts"])
@pytest.mark.parametrize("value", [None, 7, "text", ["list"], [{"odd": 1}]], ids=repr)
def test_record_with_a_field_of_another_type(tmp_path: Path, field: str, value: object) -> None:
    artifact = make(tmp_path)
    edit(artifact, **{field: value})
    if field == "name" and value == "text":
        return
    with pytest.raises(ArtifactError):
        base.load(artifact.path)


def test_paths_that_are_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=re.escape(str(tmp_path / "none"))):
        base.load(tmp_path / "none")
    with pytest.raises(ArtifactError, match=base.RECORD):
        base.load(tmp_path)
    (tmp_path / "a.partial").mkdir()
    with pytest.raises(ArtifactError, match=r"a\.partial"):
        base.load(tmp_path / "a.partial")
    with pytest.raises(ArtifactError, match=r"\breport\b.*\brun\b"):
        base.load(make(tmp_path).path, "run")


def test_tampered_file(tmp_path: Path) -> None:
    artifact = make(tmp_path)
    assert base.verify(artifact) == []
    assert artifact.file("sub/text.txt").read_text() == "hello"
    (artifact.path / "sub" / "text.txt").write_text("jello")
    with pytest.raises(ArtifactError, match=r"sub/text\.txt"):
        base.load(artifact.path).file("sub/text.txt")
    assert base.verify(artifact) == ["changed: sub/text.txt"]
    (artifact.path / "sub" / "text.txt").write_text("longer text")
    with pytest.raises(ArtifactError, match=r"sub/text\.txt"):
        base.load(artifact.path).file("sub/text.txt")
    assert base.verify(artifact) == ["size: sub/text.txt has 11 bytes, expected 5"]
    (artifact.path / "sub" / "text.txt").unlink()
    (artifact.path / "more.txt").write_text("")
    with pytest.raises(ArtifactError, match=r"sub/text\.txt"):
        base.load(artifact.path).file("sub/text.txt")
    assert base.verify(artifact) == ["missing: sub/text.txt", "unexpected: more.txt"]
    with pytest.raises(ArtifactError, match="'none'"):
        artifact.file("none")


def test_file_that_leads_out_of_the_artifact(tmp_path: Path) -> None:
    """Whoever can write a fitting id may list any path; the reader stays inside the folder."""
    artifact = make(tmp_path)
    (artifact.path.parent / "secret").write_text("s")
    entry = base.FileEntry("../secret", 1, base.sha256_text("s"))
    new = base.identity("report", 1, artifact.request, [], [entry])
    edit(artifact, files=[vars(entry)], id=new)
    with pytest.raises(ArtifactError):
        base.load(artifact.path)


def test_slug_and_stem() -> None:
    assert slug("openai/clip-vit") == "openai--clip-vit"
    assert slug("../../etc/passwd") == "etc--passwd" or "/" not in slug("../../etc/passwd")
    assert slug("\uff21b c\x1b[31m") == "Ab-c-31m"
    assert len(slug("x" * 500)) == 120
    with pytest.raises(UsageError):
        slug("")
    for text in ("模型", "商品-2", "продукты", "café", "मॉडल"):
        assert slug(text) == slug(slug(text)) == text
    for text in ("...", "🙂", "?:*"):
        assert re.fullmatch(r"(%[0-9A-F]{2})+", slug(text)) and slug(slug(text)) == slug(text)
    runs = [stem(f"{'模' * 60}-{method}-seed0", {}, {}) for method in ("uml", "infonce")]
    assert runs[0] != runs[1] and all(len(name.encode()) <= 120 for name in runs)
    assert stem("a-b", {"x": 1}, {"x": 1}) == "a-b"
    named = stem("a-b", {"x": 2}, {"x": 1})
    assert re.fullmatch(r"a-b-[0-9a-f]{6}", named)
    assert named == stem("a-b", {"x": 2, "y": 0}, {"x": 1, "y": 0})
    assert len(stem("y" * 500, {"x": 2}, {}).encode()) <= 120


def test_nothing_is_ever_unpickled_or_executed() -> None:
    root = Path(ccr_cli.__file__).parent
    for path in root.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\bimport pickle\b|allow_pickle=True|\bshell=True\b|trust_remote_code=True", text), path
        assert not re.search(r"(?<![\w.])(eval|exec)\(", text), path
        for call in re.findall(r"\btorch\.load\([^\n]*", text):
            assert "weights_only=True" in call, path
        for call in re.findall(r"\bnp\.load\([^\n]*", text):
            assert "allow_pickle=False" in call, path


def test_arrays_of_objects_are_refused(chain_features: base.Artifact) -> None:
    import numpy as np

    from ccr_cli.artifacts import features

    shard = chain_features.path / features.shard_name(0)
    np.save(shard, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises((ArtifactError, ValueError)):
        features.read_rows(base.load(chain_features.path), ["red-circle"], pooled=True)


@pytest.fixture
def chain_features(workspace: Any) -> base.Artifact:
    """The features of a workspace that may be changed."""
    found: base.Artifact = workspace.find("features")
    return found


def test_two_machines_with_one_process_number_write_one_file(tmp_path: Path) -> None:
    """Containers number their processes alike; whoever is done last has written all of it."""
    with base.atomic_open(tmp_path / "a") as one, base.atomic_open(tmp_path / "a") as other:
        one.write(b"one" * 1000)
        other.write(b"other")
    assert (tmp_path / "a").read_bytes() == b"one" * 1000 and len(list(tmp_path.iterdir())) == 1
