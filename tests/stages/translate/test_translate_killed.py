"""Killed at any moment, a translation goes on: the bytes of an undisturbed one, nothing lost, nothing twice."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import toy
from standin import Engine

from ccr_cli.artifacts import base, dataset, translation
from ccr_cli.stages.translate import steps

CALL = ("translate", "--lang", "es", "--engine", "apertium", "--back", "--with-queries", "--name", "mine")
BLOCK = 4
SMALL_BLOCKS = f"""
from ccr_cli.stages.translate import steps as translate_steps
from ccr_cli.translators import apertium
apertium._BLOCK = {BLOCK}
translate_steps.GROUP_SENTENCES = 30
from ccr_cli.cli import main
main()
"""


def lines(place: Path) -> int:
    """How many results are on disk."""
    return sum(path.read_bytes().count(b"\n") for path in place.rglob("*.jsonl"))


def kill_after(results: int, place: Path, code: str, *call: str, workspace: Path, sent: int) -> tuple[int, str]:
    """Starts a command, and ends it when so many more results are on disk; its exit code and what it said."""
    enough = lines(place) + results
    process = toy.python(code, *call, workspace=workspace)
    while lines(place) < enough and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(sent)
    _, err = process.communicate(timeout=120)
    return process.returncode, err


@pytest.fixture
def slow_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A stand-in for Apertium that takes its time."""
    made = Engine(tmp_path / "slow", delay=0.05)
    monkeypatch.setenv("PATH", str(tmp_path / "slow"), prepend=os.pathsep)
    table = toy.toy().tables
    made.knows(table["en-es"] | table["es-en"])
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    toy.ok("data", "import", toy.toy().write(tmp_path / "toy"), workspace=tmp_path / "workspace")
    return tmp_path / "workspace"


def settled(engine: Engine) -> int:
    """How much was asked, once the engine of a killed process has noted its last block."""
    asked = -1
    while asked < len(engine.asked()):
        asked = len(engine.asked())
        time.sleep(0.5)
    return asked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "kills"),
    [
        pytest.param((), 4, id="cache"),
        pytest.param((), 10, id="cache, ten times", marks=pytest.mark.soak),
        pytest.param(("--no-cache",), 10, id="journal", marks=pytest.mark.soak),
    ],
)
def test_killed_again_and_again(
    options: tuple[str, ...], kills: int, root: Path, tmp_path: Path, slow_engine: Engine
) -> None:
    undisturbed = tmp_path / "undisturbed"
    shutil.copytree(root, undisturbed)
    wanted = toy.ok(*CALL, "--no-cache", workspace=undisturbed).made
    slow_engine.forget()
    place = root if options else Path(os.environ["CCR_CACHE"])
    dice = random.Random(2)
    kept = 0
    for _ in range(kills):
        asked = len(slow_engine.asked())
        wait = dice.randrange(0, 30)
        code, err = kill_after(wait, place, SMALL_BLOCKS, *CALL, *options, workspace=root, sent=signal.SIGKILL)
        assert code == -signal.SIGKILL, err
        assert lines(place) >= kept, "nothing is lost"
        # the engine may note a block of the process before only now, on a busy machine
        asked_here = len(slow_engine.asked()) - asked
        assert asked_here <= lines(place) - kept + 2 * BLOCK, "nothing but what was in flight is lost"
        kept = lines(place)
    assert 50 < kept < 216
    before = settled(slow_engine)
    made = toy.ok(*CALL, *options, workspace=root).made
    assert made.files == wanted.files and made.id == wanted.id
    assert len(slow_engine.asked()) - before == 216 - kept, "nothing is done twice"
    assert sorted(p.name for p in made.path.parent.iterdir()) == ["mine"]
    assert base.verify(made) == []


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "term")])
def test_interrupted(sent: int, code: int, word: str, root: Path, slow_engine: Engine) -> None:
    place = Path(os.environ["CCR_CACHE"])
    found, err = kill_after(20, place, SMALL_BLOCKS, *CALL, workspace=root, sent=sent)
    assert found == code and word in err and "same command" in err and "Traceback" not in err
    kept = lines(place)
    assert 20 <= kept < 216
    before = len(slow_engine.asked())
    toy.ok(*CALL, workspace=root)
    assert len(slow_engine.asked()) - before == 216 - kept


@pytest.mark.slow
def test_two_commands_with_one_cache_at_once(root: Path, tmp_path: Path, slow_engine: Engine) -> None:
    other = tmp_path / "other"
    shutil.copytree(root, other)
    processes = [toy.python(SMALL_BLOCKS, *CALL, workspace=place) for place in (root, other)]
    for process in processes:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    one, two = (base.load(place / "translations" / "toy" / "mine") for place in (root, other))
    assert one.files == two.files
    asked = len(slow_engine.asked())
    assert toy.ok(*CALL, "--force", workspace=root).made.files == one.files
    assert len(slow_engine.asked()) == asked


@pytest.mark.slow
def test_a_model_that_is_killed_or_shared_gives_the_same_scores(
    root: Path, tmp_path: Path, marian: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit: batches are formed of whole groups, whatever is known of them and whoever takes them."""
    monkeypatch.setattr(steps, "GROUP_SENTENCES", 30)
    model = ("--set", f"model={marian}", "--set", "batch_tokens=60", "--set", "dtype=float32", "--device", "cpu")
    call = ("translate", "--lang", "de", "--engine", "hf", *model, "--name", "mine")
    undisturbed, shared = tmp_path / "undisturbed", tmp_path / "shared"
    for place in (undisturbed, shared):
        shutil.copytree(root, place)
    wanted = toy.ok(*call, "--no-cache", workspace=undisturbed).made
    scores = translation.read(wanted)["score"]
    assert scores.notna().all() and scores.nunique() > 10
    kept = 0
    for results in (3, 20, 11):
        ended, err = kill_after(results, root, SMALL_BLOCKS, *call, "--no-cache", workspace=root, sent=signal.SIGKILL)
        assert ended == -signal.SIGKILL, err
        assert lines(root) >= kept + results
        kept = lines(root)
    assert toy.ok(*call, "--no-cache", workspace=root).made.files == wanted.files
    for number in (3, 1, 2):
        toy.ok(*call, "--shard", f"{number}/3", workspace=shared)
    assert toy.ok(*call, workspace=shared).made.files == wanted.files


REAL_CALL = ("translate", "--lang", "fr", "--engine", "apertium", "--split", "val", "--name", "mine")


@pytest.mark.slow
@pytest.mark.needs("apertium")
@pytest.mark.soak
def test_the_real_apertium_killed_at_five_moments(tmp_path: Path) -> None:
    """Two hops; what becomes of a sentence does not depend on which others are translated with it."""
    root, undisturbed = tmp_path / "workspace", tmp_path / "undisturbed"
    toy.ok("data", "import", "noto-emoji", workspace=root)
    shutil.copytree(root, undisturbed)
    wanted = toy.ok(*REAL_CALL, "--no-cache", workspace=undisturbed).made
    place = Path(os.environ["CCR_CACHE"])
    code = SMALL_BLOCKS.replace(f"_BLOCK = {BLOCK}", "_BLOCK = 20")
    dice = random.Random(4)
    for _ in range(5):
        ended, err = kill_after(dice.randrange(1, 25), place, code, *REAL_CALL, workspace=root, sent=signal.SIGKILL)
        assert ended == -signal.SIGKILL, err
    made = toy.ok(*REAL_CALL, workspace=root).made
    assert made.files == wanted.files and made.id == wanted.id
    assert lines(place) == len(set(_sentences(made)))


def _sentences(made: base.Artifact) -> list[str]:
    """The different sentences that an artifact translates."""
    captions = dataset.read(base.load(made.path.parents[2] / "datasets" / "noto-emoji")).captions
    text_of = dict(zip(captions["caption_id"], captions["text"], strict=True))
    return [text_of[caption] for caption in translation.read(made)["source_caption_id"]]
