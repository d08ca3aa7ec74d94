"""Out of disk or memory: exit 6, nothing lost, and the same command goes on when there is room again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy
from standin import Engine
from toy import Chain

from ccr_cli.artifacts import base
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.translators import apertium

SIZE = 4 << 20
PAGE = 4096
CPU = ("--device", "cpu")
TRAIN = ("train", "--method", "infonce", "--noise", "0.4", "--epochs", "2", *toy.SMALL)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def leave(place: Path, room: int) -> None:
    """Fills the file system until only so many bytes are left."""
    filler = place / "filler"
    filler.unlink(missing_ok=True)
    state = os.statvfs(place)
    taken = state.f_bavail * state.f_frsize - room
    assert taken > 0
    with filler.open("wb") as handle:
        handle.write(bytes(taken))


def fill_up_and_go_on(place: Path, *command: str | Path) -> tuple[base.Artifact, int]:
    """Runs a command with more and more room until it succeeds, and says how often it did not."""
    room = failures = 0
    while True:
        before = {a.path: toy.digests(a.path) for a in Workspace(place).artifacts()}
        leave(place, room)
        done = toy.ccr(*command, workspace=place)
        (place / "filler").unlink()
        for path, files in before.items():
            same = toy.digests(path) == files
            assert same or (done.code == 0 and path == done.made.path), "an artifact that was complete has changed"
        if done.code == 0:
            assert toy.ok("verify", workspace=place)
            return done.made, failures
        assert (done.code, done.out) == (6, ""), done.err
        assert "error: " in done.err and "--batch-size" not in done.err, "of the disk, not of memory"
        failures += 1
        room = max(room + PAGE, int(room * 1.4) // PAGE * PAGE)
        assert room < SIZE


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("translate", "--lang", "es", "--split", "train"), id="translate", marks=pytest.mark.slow),
        pytest.param(("extract", *toy.ENCODER, "--set", "image_size=64"), id="extract", marks=pytest.mark.slow),
        pytest.param(TRAIN, id="train"),
        pytest.param(("evaluate", *CPU, "--split", "val"), id="evaluate", marks=pytest.mark.slow),
        pytest.param(("diagnose", *CPU, "--judge", "gmm"), id="diagnose", marks=pytest.mark.slow),
    ],
)
def test_a_full_disk(command: tuple[str, ...], disk: Path, workspace: Chain) -> None:
    if command[0] in ("evaluate", "diagnose"):
        toy.ok(*TRAIN, workspace=workspace.root)
    shutil.copytree(workspace.root, disk, dirs_exist_ok=True)
    wanted = toy.ok(*command, workspace=workspace.root).made
    made, failures = fill_up_and_go_on(disk, *command)
    assert failures > 1
    assert (made.files, made.id) == (wanted.files, wanted.id)


@pytest.mark.slow
@pytest.mark.parametrize("options", [pytest.param((), id="cache"), pytest.param(("--no-cache",), id="journal")])
def test_a_full_disk_while_results_are_kept(
    options: tuple[str, ...], disk: Path, folder: Path, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that found no room is torn; what was kept before it is not translated again."""
    forth = {text: f"{text} {'x' * 300} es" for text in toy.toy().tables["en-es"]}
    engine.knows(forth | {result: f"{text} {'x' * 300}" for text, result in forth.items()})
    monkeypatch.setattr(apertium, "_BLOCK", 5)
    call = ("translate", "--lang", "es", "--engine", "apertium", "--back")
    place = tmp_path / "room"
    toy.ok("data", "import", folder, workspace=place)
    wanted = toy.ok(*call, "--no-cache", workspace=place).made
    monkeypatch.setenv("CCR_CACHE", str(disk / "cache"))
    toy.ok("data", "import", folder, workspace=disk)
    engine.forget()
    made, failures = fill_up_and_go_on(disk, *call, *options)
    assert failures > 2 and made.files == wanted.files
    assert len(engine.asked()) <= 192 + 5 * failures, "no more than what was under way is lost"


@pytest.mark.slow
def test_a_full_disk_during_an_import_with_pictures(disk: Path, tmp_path: Path) -> None:
    room = tmp_path / "room"
    wanted = toy.ok("data", "import", "twemoji", workspace=room).made
    made, failures = fill_up_and_go_on(disk, "data", "import", "twemoji")
    assert failures > 1 and made.files == wanted.files


@pytest.mark.slow
def test_a_full_disk_while_failed_items_are_tried_again(disk: Path, folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(folder, source)
    broken = source / "media" / "red-circle.png"
    whole = broken.read_bytes()
    broken.write_bytes(b"no picture")
    toy.ok("data", "import", source, workspace=disk)
    assert toy.ccr("extract", *toy.ENCODER, workspace=disk).code == 3
    broken.write_bytes(whole)
    made, failures = fill_up_and_go_on(disk, "extract", *toy.ENCODER, "--retry-failed")
    assert failures > 1 and made.counts["failed"] == 0


@pytest.mark.parametrize("sizes", [("dim=1000000000",), ("dim=2147483647", "--set", "buckets=2147483647")])
def test_out_of_memory(sizes: tuple[str, ...], workspace: Chain) -> None:
    done = workspace.ccr(*TRAIN, "--set", *sizes)
    assert (done.code, done.out) == (6, "")
    assert "--batch-size" in done.err


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("buckets=3000000000", "--set buckets=3000000000: whole numbers go up to 2147483647"),
        (f"dim={2**63}", "whole numbers go up to 2147483647"),
        (f"max_tokens=-{10**400}", "whole numbers go up to 2147483647"),
        ("buckets=1", "buckets >= 2"),
        ("hidden=-1", "hidden >= 0"),
        ("max_tokens=-1", "max_tokens >= 0"),
    ],
)
def test_a_number_that_no_table_can_have(setting: str, message: str, workspace: Chain) -> None:
    done = workspace.ccr(*TRAIN, "--set", setting)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_too_little_address_space_is_an_error_at_once(tmp_path: Path) -> None:
    """Below what libraries need, some wait for ever and others crash."""
    done = toy.shell(f"ulimit -v {2 << 20}; {sys.executable} -m ccr_cli show", tmp_path)
    assert (done.code, done.out) == (6, "") and "2 GiB" in done.err and "ulimit -v" in done.err
