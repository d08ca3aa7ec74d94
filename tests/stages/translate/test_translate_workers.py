"""Many workers for one translation: whatever their number and order, the artifact is the one of a single worker."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import toy
from standin import Engine

from ccr_cli.artifacts import base
from ccr_cli.stages.shared.sharding import WorkPart
from ccr_cli.stages.translate import steps
from ccr_cli.stages.translate.steps import begin, follow
from ccr_cli.translators.base import Translation

ALL = ("translate", "--lang", "es", "--engine", "apertium", "--back", "--with-queries")


@pytest.fixture
def root(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(steps, "GROUP_SENTENCES", 10)
    folder = toy.toy()
    engine.knows(folder.tables["en-es"] | folder.tables["es-en"])
    toy.ok("data", "import", folder.write(tmp_path / "toy"), workspace=tmp_path / "workspace")
    return tmp_path / "workspace"


def single(root: Path) -> base.Artifact:
    """What one worker makes, without the cache."""
    return toy.ok(*ALL, "--no-cache", "--name", "single", workspace=root).made


@pytest.mark.slow
@pytest.mark.parametrize(
    "order",
    [pytest.param((1,), marks=pytest.mark.slow), (2, 1), pytest.param((7, 2, 4, 6, 1, 3, 5), marks=pytest.mark.slow)],
)
def test_parts_in_any_order_make_one_artifact(order: tuple[int, ...], root: Path, engine: Engine) -> None:
    wanted = single(root)
    engine.forget()
    for number in order:
        done = toy.ok(*ALL, "--shard", f"{number}/{len(order)}", workspace=root)
        assert done.out == "" and f"part {number} of {len(order)}" in done.err
        assert not list((root / "translations").rglob("es-apertium*"))
    asked = engine.asked()
    assert len(asked) == len(set(asked)) == 96 + 96 + 24
    made = toy.ok(*ALL, workspace=root).made
    assert made.files == wanted.files and made.id == wanted.id and engine.asked() == asked
    assert "es-apertium-" in (err := toy.ok(*ALL, "--shard", "1/2", workspace=root).err) and "nothing is left" in err


@pytest.mark.slow
def test_a_part_that_is_missing_is_made_up_for(root: Path, engine: Engine) -> None:
    wanted = single(root)
    engine.forget()
    for number in (1, 3):
        toy.ok(*ALL, "--shard", f"{number}/3", workspace=root)
    before = len(engine.asked())
    assert 0 < before < 216
    assert toy.ok(*ALL, workspace=root).made.files == wanted.files
    assert len(engine.asked()) == len(set(engine.asked())) == 216


def test_more_parts_than_work(root: Path, engine: Engine) -> None:
    done = toy.ok(*ALL, "--shard", "64/64", workspace=root)
    assert engine.asked() == []
    assert "part 64 of 64: 0 captions" in done.err and "10 groups of up to 10" in done.err


@pytest.mark.slow
def test_what_fails_in_a_part_is_left_to_the_artifact(root: Path, engine: Engine) -> None:
    folder = toy.toy()
    table = folder.tables["en-es"] | folder.tables["es-en"]
    engine.knows({source: text for source, text in table.items() if source != "red circle"})
    done = toy.ok(*ALL, "--shard", "1/2", workspace=root)
    assert "1 caption failed, such as: Apertium gave nothing" in done.err
    engine.knows({source: text for source, text in table.items() if " " not in source})
    failed = toy.ccr(*ALL, "--shard", "2/2", workspace=root)
    assert failed.code == 1 and "more than --max-failed 0.2" in failed.err
    engine.knows(table)
    assert toy.ok(*ALL, workspace=root).made.files == single(root).files


@pytest.mark.parametrize("shard", ["0/4", "5/4", "1", "1/0", "-1/4", "a/b", "1/4/2", ""])
def test_parts_that_are_none(shard: str, root: Path) -> None:
    done = toy.ccr(*ALL, f"--shard={shard}", workspace=root)
    assert (done.code, done.out) == (2, "") and "--shard" in done.err


def test_parts_meet_in_the_cache(root: Path) -> None:
    done = toy.ccr(*ALL, "--shard", "1/2", "--no-cache", workspace=root)
    assert done.code == 2 and "meet in the cache" in done.err
    done = toy.ok("translate", "--lang", "es", "--shard", "1/2", workspace=root)
    assert "leave --shard out" in done.err
    done = toy.ccr("translate", "--noise", "0.4", "--shard", "1/2", workspace=root)
    assert done.code == 2 and "ccr translate --noise" in done.err
    done = toy.ccr(*ALL, "--noise", "0.4", "--shard", "1/2", workspace=root)
    assert done.code == 2 and "--shard" in done.err and "--noise" in done.err
    assert not (root / "noise").exists()
    done = toy.ccr(*ALL, "--shard", "1/2", "--no-cache", "--dry-run", workspace=root)
    assert done.code == 2 and "meet in the cache" in done.err


def test_a_dry_run_counts_the_part(root: Path, engine: Engine) -> None:
    parts = []
    for shard in ("1/2", "2/2"):
        (plan,) = json.loads(toy.ok(*ALL, "--shard", shard, "--dry-run", "--json", workspace=root).out)["made"]
        assert plan["shard"] == shard
        parts.append(plan["sentences"])
    assert parts == [{"forward": 50, "back": 50, "query": 14}, {"forward": 46, "back": 46, "query": 10}]
    assert engine.asked() == []
    done = toy.ok("translate", "--lang", "es", "--shard", "1/2", "--dry-run", workspace=root)
    assert "leave --shard out" in done.err


def test_a_part_says_in_json_what_it_did(root: Path, engine: Engine) -> None:
    folder = toy.toy()
    table = folder.tables["en-es"]
    engine.knows({source: text for source, text in table.items() if source != "red circle"})
    done = toy.ok("translate", "--lang", "es", "--engine", "apertium", "--shard", "1/2", "--json", workspace=root)
    told = json.loads(done.out)
    assert told["shard"] == "1/2" and told["translated"] == {"es": {"captions": 49, "failed": 1}}
    assert told["made"] == [] and [each["name"] for each in told["read"]] == ["toy"]


def test_a_language_without_an_engine_does_not_stop_the_part(root: Path, engine: Engine) -> None:
    engines = ("--engine", "apertium", "--shard", "1/1")
    done = toy.ccr("translate", "--lang", "tlh", "--lang", "es", *engines, workspace=root)
    assert (done.code, done.out) == (5, "") and len(engine.asked()) == 96
    assert "error: not made: tlh " in done.err


def test_a_name_that_is_taken_is_known_before_the_work(root: Path, engine: Engine) -> None:
    toy.ok("translate", "--lang", "es", "--name", "mine", workspace=root)
    done = toy.ccr(*ALL, "--name", "mine", "--shard", "1/2", workspace=root)
    assert done.code == 4 and "made from something else" in done.err and engine.asked() == []


def test_groups_are_those_of_the_data_sets_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "GROUP_SENTENCES", 2)
    groups = begin(["b", "a", "b", "c", "a", "d", "e"])
    assert groups == [["b", "a"], ["c", "d"], ["e"]]
    assert [WorkPart(number, 2).take(groups) for number in (0, 1)] == [[["b", "a"], ["e"]], [["c", "d"]]]
    results = {text: Translation(text.upper()) for text in "abc"} | {"d": Translation(None, error="no")}
    results["b"] = Translation("A")
    assert follow(groups, results) == [["A"], ["C"], []]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR"),
    ],
)
def test_an_environment_that_is_not_torchruns(
    found: dict[str, str], message: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    done = toy.ccr(*ALL, workspace=root)
    assert (done.code, done.out) == (2, "") and message in done.err
    if "no such" not in message:
        assert toy.ccr(*ALL, "--shard", "1/2", workspace=root).code == 2


SMALL_GROUPS = """
import sys
from ccr_cli.stages.translate import steps as translate_steps
translate_steps.GROUP_SENTENCES = 10
from ccr_cli.cli import main
main()
"""


@pytest.mark.slow
def test_ranks_of_torchrun_share_the_work(root: Path, tmp_path: Path, engine: Engine) -> None:
    wanted = single(root)
    engine.forget()
    program = tmp_path / "small_groups.py"
    program.write_text(SMALL_GROUPS)
    done = toy.torchrun(program, root, *ALL, "--noise", "0.4")
    assert done.code == 0, done.err
    assert [path.parent.parent.name for path in done.paths] == [root.name, "noise", "translations"], "once"
    assert done.made.files == wanted.files
    asked = engine.asked()
    assert sorted(asked) == sorted(set(asked)) and len(asked) == 216
    writers = {path.name for path in Path(os.environ["CCR_CACHE"]).rglob("*.jsonl")}
    assert len({name.split("-")[-2] for name in writers}) == 2, "both have done some"
    again = toy.torchrun(program, root, *ALL)
    assert again.code == 0 and again.made == done.made and engine.asked() == asked


@pytest.mark.slow
def test_a_rank_that_fails_ends_the_others_without_a_traceback(root: Path, tmp_path: Path, engine: Engine) -> None:
    english = [row[4] for row in toy.toy().captions if row[2] == "en"]
    own = WorkPart(0, 2).take(begin(english))
    engine.knows({text: f"es {text}" for group in own for text in group})
    program = tmp_path / "small_groups.py"
    program.write_text(SMALL_GROUPS)
    done = toy.torchrun(program, root, "translate", "--lang", "es", "--engine", "apertium")
    assert (done.code, done.out) == (1, "")
    assert "more than --max-failed 0.2" in done.err and "[rank0]" not in done.err
