"""Artifacts, exports, reports and sheets hold no path of the machine, no name of a user or host, and no secret."""

from __future__ import annotations

import gzip
import platform
import shutil
import socket
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import toy
from rows import item_ids
from toy import Chain, holders

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.errors import ArtifactError

SECRETS = {name: "hf_s3cretvalue" for name in ("HF_TOKEN", "DEEPL_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY")}
USER, HOST = "alicesuser", "aliceshost"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A user, a host and secrets that can be found again; what no file may hold."""
    for name, value in {**SECRETS, "HOME": str(tmp_path / "home"), "USER": USER, "LOGNAME": USER}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(platform, "node", lambda: HOST)
    monkeypatch.setattr(socket, "gethostname", lambda: HOST)
    return [str(tmp_path), str(Path(sys.executable).parent.parent), "s3cretvalue", USER, HOST]


def run(monkeypatch: pytest.MonkeyPatch, root: Path, *words: str | Path) -> base.Artifact:
    """Runs a command as from a shell, with the workspace in its words; what it made."""
    call = [*map(str, words), "--workspace", str(root)]
    monkeypatch.setattr(sys, "argv", ["/usr/bin/ccr", *call])
    done = toy.ccr(*call)
    assert done.code in (0, 3), done.err
    return done.made


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_no_file_of_a_chain_names_the_machine(
    tmp_path: Path, machine: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, place = tmp_path / "workspace", tmp_path / "given"
    folder = toy.toy().write(place / "toy")
    (folder / "media" / "red-circle.png").write_bytes(b"no picture")
    words = {**toy.COLOURS, **toy.SHAPES}.items()
    (place / "words.tsv").write_text("\n".join(f"{a}\t{b}" for a, b in words))

    def made(*call: str | Path) -> base.Artifact:
        return run(monkeypatch, root, *call)

    data = made("data", "import", folder)
    np.save(place / "rows.npy", np.ones((48, 8), "f4"))
    (place / "ids.txt").write_text("\n".join(item_ids(Chain(folder, root))))
    translated = made("translate", data.path, "--lang", "es", "--back", "--with-queries", "--noise", "0.4")
    assert made("extract", data.path, *toy.ENCODER).counts["failed"] == 1
    made("extract", "toy", "--from", place / "rows.npy", "--ids", place / "ids.txt", "--name", "rows")
    few = ("--epochs", "1", *toy.SMALL)
    judge = ("--set", "judge=lexical", "--set", f"dictionary={place / 'words.tsv'}")
    trained = made("train", translated.path, "features/toy/rows", "--method", "infonce", *few, *judge, "--name", "mine")
    evaluated = made("evaluate", trained.path, "--device", "cpu")
    made("diagnose", "mine", "--device", "cpu", "--export", place / "pairs.csv", "--sheet", place / "sheet.html")
    for command in (("export", "mine"), ("index", "mine"), ("report",)):
        made(*command)
    assert holders(root, machine) == [] and holders(place, machine[2:]) == []
    assert not any(
        word.encode() in (place / name).read_bytes() for name in ("pairs.csv", "sheet.html") for word in machine
    )

    record = base.read_json(data.path / base.RECORD)
    assert record["command"] == "ccr data import PATH/toy --workspace ."
    assert record["environment"]["media_root"] == "PATH/media"
    assert base.read_json(evaluated.path / base.RECORD)["command"].startswith("ccr evaluate runs/mine --device cpu")
    # where it was made, everything is known still; elsewhere the record alone is
    assert dataset.media_root(data) == folder / "media" and f"import {folder}" in data.rebuild_hint()
    shutil.move(root / base.LOCAL, tmp_path / "kept")
    assert "import PATH/toy" in base.load(data.path).rebuild_hint()
    assert dataset.media_root(base.load(data.path)) is None
    assert toy.ok("verify", "--deep", workspace=root)


def test_words_are_found_in_what_is_packed(tmp_path: Path) -> None:
    """The search of the other tests."""
    pd.DataFrame({"text": [f"by {USER}"] * 9}).to_parquet(tmp_path / "a.parquet", compression="zstd")
    (tmp_path / "a.gz").write_bytes(gzip.compress(f"by {USER} {USER} {USER}".encode()))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", f"by {USER} {USER} {USER}")
    stream = zlib.compress(f"{USER} {USER} {USER}".encode())
    (tmp_path / "a.pdf").write_bytes(b"/Filter /FlateDecode >>\nstream\n" + stream + b"\nendstream")
    (tmp_path / f"{USER}.txt").write_text("")
    assert len(holders(tmp_path, [USER])) == 5
    assert holders(tmp_path, [HOST]) == []


def test_a_parent_in_another_workspace(sources: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = sources.find("dataset")
    made = run(monkeypatch, tmp_path, "extract", there.path, *toy.ENCODER)
    assert Workspace(tmp_path).parent(made, "dataset").id == there.id
    assert str(sources.root) not in (made.path / base.RECORD).read_text()
    assert made.origin()[1][0].path == "PATH/toy"


def test_records_of_earlier_versions_are_read_as_they_are(sources: Chain, tmp_path: Path) -> None:
    """They hold the paths themselves; what is published of them does not."""
    path = tmp_path / "workspace" / "datasets" / "toy"
    shutil.copytree(sources.find("dataset").path, path)
    record = base.read_json(path / base.RECORD)
    record |= {"environment": {"media_root": "/home/a b/media"}, "command": "ccr data import '/home/a b/c' -q"}
    base.write_json(path / base.RECORD, record)
    old = base.load(path)
    assert dataset.media_root(old) == Path("/home/a b/media") and "import '/home/a b/c'" in old.rebuild_hint()
    assert old.origin()[0] == "ccr data import PATH/c -q"


def test_media_inside_the_workspace_move_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "workspace"
    folder = toy.toy().write(root / "own" / "toy")
    run(monkeypatch, root, "data", "import", folder)
    root.rename(tmp_path / "moved")
    data = base.load(tmp_path / "moved" / "datasets" / "toy")
    assert dataset.media_root(data) == tmp_path / "moved" / "own" / "toy" / "media"
    assert str(tmp_path) not in (data.path / base.RECORD).read_text()


def test_media_beside_a_file_in_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "".join(f"{n},cat {n},gato {n}\n" for n in range(20))
    (tmp_path / "captions.csv").write_text(f"id,en,mt_es\n{rows}")
    data = run(monkeypatch, tmp_path, "data", "import", tmp_path / "captions.csv")
    assert base.load(data.path).about["environment"]["media_root"] == "."
    assert dataset.media_root(data) == tmp_path


@pytest.mark.parametrize(
    "content", ['{"command": 7}', "[1]", "{", '{"command": "x", "environment": [], "parents": {}}']
)
def test_a_malformed_file_of_this_machine(content: str, workspace: Chain) -> None:
    made = workspace.find("dataset")
    (workspace.root / base.LOCAL).mkdir(exist_ok=True)
    (workspace.root / base.LOCAL / f"{made.id}.json").write_text(content)
    with pytest.raises(ArtifactError, match=made.id):
        base.load(made.path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/w/runs/mine", "runs/mine"),
        ("/w", "."),
        ("/home/me/a b.csv", "PATH/a b.csv"),
        ("/", "PATH"),
        ("-x /usr/share/a.bin '/b/c' (/d/e)", "-x PATH/a.bin 'PATH/c' (PATH/e)"),
        ("openai/clip https://a.b/c 3/4", "openai/clip https://a.b/c 3/4"),
    ],
)
def test_paths_in_texts(text: str, expected: str) -> None:
    assert base.portable(text, Path("/w")) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ccr train --set model=/m/x --workspace=/w", "ccr train --set model=PATH/x --workspace=."),
        ("ccr data import train.en='/a b/c.txt' ../d", "ccr data import train.en=PATH/c.txt ../d"),
        ("ccr report --title 'a /x'", "ccr report --title 'a PATH/x'"),
        ("ccr 'x /home/me", "ccr ''\"'\"'x' PATH/me"),
    ],
)
def test_paths_in_commands(command: str, expected: str) -> None:
    assert base.portable_command(command, Path("/w")) == expected
