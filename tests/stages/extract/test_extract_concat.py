"""`ccr extract --concat`: what is joined, what is refused, going on after a stop, and training on the result."""

from __future__ import annotations

import json
import shutil
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import toy
import typer
import videos
from rows import Rows, assert_stored, frames_of, in_npz, item_ids, stored
from toy import Chain, Outcome

from ccr_cli.artifacts import base, features
from ccr_cli.cli import app

CPU = ("--device", "cpu")


def frames(chain: Chain, dim: int, most: int = 5) -> dict[str, npt.NDArray[np.float16]]:
    """Rows in the precision in which they are stored."""
    return {name: value.astype(np.float16) for name, value in frames_of(item_ids(chain), dim, most).items()}


def given(chain: Chain, name: str, rows: Rows, *options: str, data: str = "toy") -> base.Artifact:
    """Features of these rows, by an encoder of that name."""
    source = in_npz(chain.root.parent / name, rows)
    place = chain.root / "datasets" / data
    done = chain.ccr("extract", place, "--from", source, "--encoder-name", name, "--max-failed", "1", *options)
    assert done.code in (0, 3), done.err
    return done.made


def concat(chain: Chain, *arguments: str | Path | base.Artifact, stdin: str | None = None) -> Outcome:
    words = [a.path if isinstance(a, base.Artifact) else a for a in arguments]
    return chain.ccr("extract", "--concat", *words, stdin=stdin)


def side_by_side(*parts: Rows) -> dict[str, npt.NDArray[Any]]:
    """The rows that items have in all parts."""
    return {item: np.concatenate([part[item] for part in parts], axis=1) for item in parts[0]}


def failures(made: base.Artifact) -> dict[str, tuple[str, str]]:
    lines = made.file(base.FAILURES).read_text().splitlines()
    return {found["id"]: (found["error"], found["message"]) for found in map(json.loads, lines)}


def test_rows_stand_side_by_side_as_they_are(workspace: Chain) -> None:
    """Ragged rows, of scales that are far apart; in the order in which the artifacts are given."""
    first, second = frames(workspace, 8), frames(workspace, 5)
    second = {name: rows * np.float16(1000) for name, rows in second.items()}
    a, b = given(workspace, "resnext", first), given(workspace, "resnet", second)
    done = concat(workspace, a, b)
    assert done.code == 0, done.err
    data = workspace.find("dataset", "toy")
    assert done.paths == [data.path, a.path, b.path, done.made.path]
    made = done.made
    assert_stored(made, side_by_side(first, second))
    assert made.name == "resnext_resnet" and base.verify(made) == []
    assert made.counts == {"items": 48, "rows": sum(map(len, first.values())), "failed": 0}
    assert [(p.kind, p.id) for p in made.parents] == [("dataset", data.id), ("features", a.id), ("features", b.id)]
    assert made.request["concat"] == [a.id, b.id] and made.request["parts"] == [a.request, b.request]
    about = base.read_json(made.file("encoder.json"))
    parts = [base.read_json(part.file("encoder.json")) for part in (a, b)]
    assert about == {"encoder": "resnext_resnet", "dim": 13, "parts": parts}
    assert workspace.ccr("verify").code == 0
    plain = workspace.root / "plain.npy"
    np.save(plain, np.concatenate(list(side_by_side(first, second).values())))
    assert made.file("00000.npy").read_bytes() == plain.read_bytes()

    stamp = (made.path / base.RECORD).stat().st_mtime_ns
    assert concat(workspace, a, b).made == made and (made.path / base.RECORD).stat().st_mtime_ns == stamp
    turned = concat(workspace, b, a).made
    assert turned.name == "resnet_resnext" and turned.id != made.id
    assert_stored(turned, side_by_side(second, first))
    named = concat(workspace, b, a, "--name", "mine").made
    assert (named.name, named.id) == ("mine", turned.id), "a name is no part of what it is"


def test_three_at_once_and_one_after_the_other(workspace: Chain) -> None:
    rows = [frames(workspace, dim) for dim in (3, 4, 5)]
    a, b, c = (given(workspace, name, each) for name, each in zip("abc", rows, strict=True))
    whole = concat(workspace, a, b, c).made
    assert_stored(whole, side_by_side(*rows))
    pair = concat(workspace, a, b).made
    done = concat(workspace, pair, c)
    assert done.code == 4 and "a_b_c exists and was made from something else" in done.err, "it has other parents"
    later = concat(workspace, pair, c, "--name", "later").made
    assert later.files == whole.files and later.request == whole.request


@pytest.mark.slow
def test_features_of_videos_and_what_is_damaged_in_them(tmp_path: Path) -> None:
    """Other frames and means of them are refused with the command that helps; a damaged video stays damaged."""
    folder = toy.Folder("clips")
    place, root = tmp_path / "clips", tmp_path / "workspace"
    for item in ("long", "short", "spoilt", "none"):
        folder.items.append([item, "train", "video", f"{item}.mp4", "", item])
        folder.captions.append([f"{item}-en0", item, "en", "0", f"a video of {item}", "main"])
    folder.write(place, pictures=False)
    videos.write_video(place / "media/long.mp4", 50)
    videos.write_video(place / "media/short.mp4", 25)
    videos.spoil(videos.write_video(place / "media/spoilt.mp4", 50, front=True), 20)
    (place / "media/none.mp4").write_text("no video")
    toy.ok("data", "import", place, workspace=root)

    def extract(*options: str) -> base.Artifact:
        done = toy.ccr("extract", *toy.ENCODER[:2], *CPU, "--max-failed", "0.5", *options, workspace=root)
        assert done.code == 3, done.err
        return done.made

    def join(*parts: base.Artifact) -> Outcome:
        return toy.ccr("extract", "--concat", *[p.path for p in parts], "--max-failed", "0.5", workspace=root)

    small = extract("--set", "image_size=32", "--set", "fps=5")
    large = extract("--set", "image_size=64", "--set", "fps=5")
    done = join(small, large)
    assert done.code == 3 and "videos are damaged" in done.err
    made = done.made
    rows = side_by_side(stored(small), stored(large))
    assert_stored(made, rows)
    assert {item: len(each) for item, each in rows.items()} == {"long": 10, "short": 5, "spoilt": 10}
    assert made.counts == {"items": 4, "rows": 25, "failed": 1, "damaged": 1}
    index, alone = (features.read_index(each).set_index("item_id") for each in (made, small))
    assert list(index["status"]) == list(alone["status"]) == ["ok", "ok", "damaged", "failed"]
    assert str(index.loc["spoilt", "error"]) == str(alone.loc["spoilt", "error"]), (
        "all parts say the same: it is said once"
    )
    assert failures(made) == failures(small)

    five = extract("--set", "image_size=32", "--set", "frames=5")
    done = join(large, five)
    assert (done.code, done.out) == (4, "")
    assert "2 of 4 items" in done.err
    assert "'long' 10, 5; 'spoilt' 10, 5" in done.err and "--set fps=N or --set frames=N" in done.err
    mean = extract("--set", "image_size=32", "--set", "fps=5", "--pool", "mean")
    done = join(large, mean)
    assert done.code == 4 and "'long' 10, 1; 'short' 5, 1; 'spoilt' 10, 1" in done.err
    command = features.command(large, root / "datasets/clips", pool="mean")
    assert "--pool mean" in done.err
    words = command.split()[1:]
    other = toy.ccr(*words, "--max-failed", "0.5", *CPU, workspace=root)
    assert join(other.made, mean).code == 3, "what the hint says helps"


def test_an_item_that_failed_in_one_has_failed(workspace: Chain) -> None:
    first, second = frames(workspace, 4), frames(workspace, 6)
    lacking = {name: rows for name, rows in first.items() if name not in ("red-ring", "red-bar")}
    empty = {**second, "red-ring": second["red-ring"][:0], "blue-bar": second["blue-bar"][:0]}
    a, b = given(workspace, "a", lacking), given(workspace, "b", empty)
    done = concat(workspace, a, b)
    assert done.code == 3 and "3 failed" in done.err and "repeat the command with --force" in done.err
    made = done.made
    lost = ("red-ring", "red-bar", "blue-bar")
    assert_stored(made, {n: r for n, r in side_by_side(first, second).items() if n not in lost})
    assert failures(made) == {
        "red-ring": ("NotInFile", "no source has it (part 1, a); Empty: its entry has no rows (part 2, b)"),
        "red-bar": ("NotInFile", "no source has it (part 1, a)"),
        "blue-bar": ("Empty", "its entry has no rows (part 2, b)"),
    }
    assert (made.counts["failed"], base.verify(made)) == (3, [])
    assert concat(workspace, a, b).code == 3
    assert concat(workspace, a, b, "--name", "c", "--max-failed", "0.0625").code == 3
    done = concat(workspace, a, b, "--name", "d", "--max-failed", "0.06")
    assert (done.code, done.out) == (1, "") and "3 of 48 items failed, more than --max-failed 0.06" in done.err
    assert not list((workspace.root / "features/toy").glob("d*"))


def test_nothing_is_left(workspace: Chain) -> None:
    rows = frames(workspace, 4)
    half = dict(list(rows.items())[:20])
    rest = {name: value for name, value in rows.items() if name not in half}
    done = concat(workspace, given(workspace, "a", half), given(workspace, "b", rest), "--max-failed", "1")
    assert done.code == 3 and done.made.counts == {"items": 48, "rows": 0, "failed": 48}


def test_a_row_a_picture_beside_frames(workspace: Chain) -> None:
    several = given(workspace, "resnext", frames(workspace, 4))
    pictures = workspace.find("features", "lite0")
    done = concat(workspace, several, pictures)
    assert (done.code, done.out) == (4, "")
    assert "'red-square' 2, 1; 'red-triangle' 3, 1; 'red-cross' 4, 1; ..." in done.err
    assert "one row per item" in done.err and "--pool mean" in done.err
    dry = concat(workspace, several, pictures, "--dry-run")
    assert dry.code == 4, "a dry run says it too"
    fewer = given(workspace, "resnet", frames(workspace, 4, most=3))
    done = concat(workspace, several, fewer)
    assert done.code == 4 and "--set fps=N" in done.err and "--pool mean" in done.err


@pytest.mark.slow
def test_what_cannot_be_joined(workspace: Chain, tmp_path: Path) -> None:
    root = workspace.root
    a, b = given(workspace, "a", frames(workspace, 4)), given(workspace, "b", frames(workspace, 5))
    joined = concat(workspace, a, b).made
    copy = given(workspace, "a", frames(workspace, 4), "--name", "copy")
    toy.ok("data", "import", toy.toy("other").write(tmp_path / "other"), workspace=root)
    foreign = given(workspace, "c", frames(workspace, 4), data="other")
    cases: list[tuple[tuple[str | Path | base.Artifact, ...], tuple[str, ...]]] = [
        ((), ("--concat", "features/other/c features/toy/a")),
        ((a,), (str(a.path), "features/toy/copy")),
        ((workspace.find("dataset", "toy"),), ("features/toy/b features/toy/copy",)),
        ((a, a), (f"{a.path} is named twice",)),
        ((a, b, "features/toy/a"), (f"{a.path} is named twice",)),
        ((a, copy), (f"both {a.path} and {copy.path} contain features of a",)),
        ((joined, b), (f"both {joined.path} and {b.path} contain features of b",)),
        ((a, foreign), (f"{foreign.path} was not made from {root / 'datasets/toy'}", "artifacts of one data set")),
        ((a, b, "datasets/other"), (f"{a.path} was not made from {root / 'datasets/other'}",)),
    ]
    before = toy.digests(root)
    for arguments, messages in cases:
        done = concat(workspace, *arguments)
        assert (done.code, done.out) == (4, ""), arguments
        for message in messages:
            assert message in done.err, (arguments, done.err)
    assert toy.digests(root) == before


COMMAND: Any = typer.main.get_command(app)
OWN = {"concat", "max_failed", "name", "force", "workspace", "dry_run", "json", "quiet", "verbose"}
OTHERS = [p for p in COMMAND.commands["extract"].params if p.param_type_name == "option" and p.name not in OWN]


@pytest.mark.parametrize("option", OTHERS, ids=lambda option: option.opts[0])
def test_options_that_do_not_go_together(option: Any, sources: Chain) -> None:
    """Every option that the command has or gets, but for its own."""
    name = option.opts[0]
    done = concat(sources, name, *([] if option.is_flag else ["a=1" if name == "--set" else "1"]))
    assert (done.code, done.out) == (2, "")
    assert f"{name} has no effect with --concat" in done.err


def test_the_environment_may_name_what_is_of_no_use(workspace: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCR_DEVICE", "cpu")
    monkeypatch.setenv("CCR_MEDIA_ROOT", "/nowhere")
    a, b = given(workspace, "a", frames(workspace, 4)), given(workspace, "b", frames(workspace, 5))
    assert concat(workspace, a, b, "-q").err == ""
    shown = json.loads(concat(workspace, a, b, "--json", "-v").out)
    assert [each["name"] for each in shown["read"]] == ["toy", "a", "b"]
    assert [each["name"] for each in shown["made"]] == ["a_b"]


def test_a_dry_run_writes_nothing(workspace: Chain) -> None:
    a, b = given(workspace, "a", frames(workspace, 4)), given(workspace, "b", frames(workspace, 5))
    before = toy.digests(workspace.root)
    (shown,) = json.loads(concat(workspace, a, b, "--dry-run", "--json").out)["made"]
    assert (shown["name"], shown["state"]) == ("a_b", "to do") and shown["request"]["concat"] == [a.id, b.id]
    assert toy.digests(workspace.root) == before


def test_a_part_that_was_made_anew(workspace: Chain) -> None:
    """The joined features are then of another state, and made again on demand alone."""
    rows = frames(workspace, 4)
    a, b = given(workspace, "a", rows), given(workspace, "b", frames(workspace, 5))
    made = concat(workspace, a, b).made
    rows = {name: -value for name, value in rows.items()}
    a = given(workspace, "a", rows, "--force")
    verified = workspace.ccr("verify", made.path)
    assert verified.code == 4 and "was made from another state of features/toy/a" in verified.out
    done = concat(workspace, a, b)
    assert done.code == 4 and f"{a.id[:12]}" in done.err and "--force" in done.err
    done = concat(workspace, a, b, "--force")
    assert done.code == 0 and (stored(done.made)["red-bar"][:, :4] == rows["red-bar"]).all()
    assert workspace.ccr("verify").code == 0


SMALL_SHARDS = """
import time
from ccr_cli.artifacts import features
from ccr_cli.stages.extract import existing as extract_concat
features.SHARD_ITEMS = 4
places = extract_concat._places
def slowly(*arguments):
    time.sleep(0.05)
    return places(*arguments)
extract_concat._places = slowly
from ccr_cli.cli import main
main()
"""


@pytest.mark.slow
def test_killed_and_gone_on_with(workspace: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of four items; the process is killed once some of them are there."""
    monkeypatch.setattr(features, "SHARD_ITEMS", 4)
    first, second = frames(workspace, 4), frames(workspace, 6)
    del first["red-ring"]
    a, b = given(workspace, "a", first), given(workspace, "b", second)
    assert a.has("00011.npy")
    partial = workspace.root / "features/toy/mine.partial"
    call = ("extract", "--concat", a.path, b.path, "--name")
    process = toy.python(SMALL_SHARDS, *call, "mine", workspace=workspace.root)
    while len(list(partial.glob("index-*.parquet"))) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    process.kill()
    process.communicate()
    shards = [p.name.removeprefix("index-").removesuffix(".parquet") for p in partial.glob("index-*.parquet")]
    reached = {f"{shard}.npy": (partial / f"{shard}.npy").stat().st_mtime_ns for shard in shards}
    assert 2 <= len(reached) < 12
    made = workspace.ccr(*call, "mine").made
    assert {name: (made.path / name).stat().st_mtime_ns for name in reached} == reached
    whole = workspace.ccr(*call, "whole").made
    assert made.files == whole.files and made.id == whole.id and base.verify(made) == []
    assert_stored(made, side_by_side(first, second))


def test_room_is_looked_for_first(workspace: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {name: np.ones((3, 1000), np.float16) for name in item_ids(workspace)}
    a, b = given(workspace, "a", rows), given(workspace, "b", {n: r * np.float16(2) for n, r in rows.items()})
    usage = shutil.disk_usage(workspace.root)
    need = 48 * 3 * 2000 * 2
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=need - 1))
    done = concat(workspace, a, b)
    assert (done.code, done.out) == (6, "")
    assert "0.5 MiB" in done.err
    assert not list((workspace.root / "features/toy").glob("a_b*"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=need))
    assert concat(workspace, a, b).code == 0


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(workspace: Chain) -> None:
    """Two times 36 MB are joined in less than 8."""
    rows = {name: np.full((300, 1280), number, np.float16) for number, name in enumerate(item_ids(workspace))}
    a, b = given(workspace, "a", rows), given(workspace, "b", {n: -r for n, r in rows.items()})
    tracemalloc.start()
    try:
        done = concat(workspace, a, b)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert done.code == 0 and done.made.file("00000.npy").stat().st_size > 70_000_000
    assert peak < 8_000_000
    assert_stored(done.made, {name: np.concatenate([value, -value], axis=1) for name, value in rows.items()})


@pytest.mark.slow
def test_methods_train_on_joined_rows(workspace: Chain) -> None:
    """Through the pipe: one that reads frames gets all of them, one that does not their mean."""
    first, second = frames(workspace, 16), frames(workspace, 12)
    del first["red-ring"]
    a, b = given(workspace, "resnext", first), given(workspace, "resnet", second)
    done = concat(workspace, a, b, workspace.find("translation", "es"))
    assert done.code == 3
    assert {base.load(path).kind for path in done.paths} == {"dataset", "translation", "features"}
    for method in ("infonce", "nrccr"):
        trained = workspace.ccr("train", "-", "--method", method, "--epochs", "1", *toy.SMALL, stdin=done.out)
        assert trained.code == 0, trained.err
        run = trained.made
        assert run.name.startswith(f"toy-resnext_resnet-es-{method}-seed0-")
        assert run.parent("features").id == done.made.id, "the joined features stand for their parts"
        settings = base.read_json(run.file("config.json"))
        assert settings["visual_dim"] == 28
        assert method == "infonce" or settings["options"]["frame_block"]
        evaluated = workspace.ccr("evaluate", *trained.paths, *CPU)
        assert evaluated.code == 0, evaluated.err
        assert workspace.ccr("search", "círculo rojo", run.path, *CPU).code == 0
    listed = workspace.ccr("train", "--method", "infonce", *toy.SMALL)
    assert listed.code == 4 and "features/toy/resnext_resnet" in listed.err, "nothing was named: all of them fit"


@pytest.mark.slow
def test_zero_shot_asks_for_the_same_parts_in_the_same_order(workspace: Chain, tmp_path: Path) -> None:
    root = workspace.root
    small = workspace.find("features", "lite0")
    other = toy.ok("data", "import", toy.toy("other").write(tmp_path / "other"), workspace=root).made
    single = {name: value[:1] for name, value in frames(workspace, 16).items()}
    made = concat(workspace, small, given(workspace, "i3d", single)).made
    train = ("train", made.path, workspace.find("translation", "es").path, "--method", "infonce", "--epochs", "1")
    run = toy.ok(*train, *toy.SMALL, workspace=root).made
    done = workspace.ccr("evaluate", run.path, "--zero-shot", *CPU)
    encode = f"ccr extract {other.path} --encoder efficientnet-lite0 --set image_size=32"
    assert done.code == 4
    assert f"({encode}; ccr extract {other.path} --from FILE --encoder-name i3d) | ccr extract - --concat" in done.err

    turned = given(workspace, "i3d", {name: value[::-1] for name, value in single.items()}, data="other")
    again = toy.ok(*encode.split()[1:], *CPU, workspace=root)
    wrong = concat(workspace, turned, again.made)
    assert wrong.code == 0 and workspace.ccr("evaluate", run.path, "--zero-shot", *CPU).code == 4
    piped = concat(workspace, "-", stdin=f"{again.out}{turned.path}\n")
    assert piped.code == 0 and piped.made.name == f"{again.made.name}_i3d"
    found = workspace.ccr("evaluate", run.path, "--zero-shot", *CPU)
    assert found.code == 0 and piped.made.path in found.paths and wrong.made.path not in found.paths
