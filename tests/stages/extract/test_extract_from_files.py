"""`ccr extract --from`: what it makes of files, what it refuses, going on after a stop, and training on frames."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import scipy.io
import toy
from rows import assert_stored, frames_of, in_npz, item_ids, stored
from toy import Chain, Outcome

from ccr_cli.artifacts import base, features

D = 8


def in_folder(path: Path, rows: dict[str, npt.NDArray[np.float32]]) -> Path:
    """A file an item, (1, T, D), as official I3D features are."""
    path.mkdir(exist_ok=True)
    for name, value in rows.items():
        np.save(path / f"{name}.npy", value[None])
    return path


def in_bigfile(path: Path, rows: dict[str, npt.NDArray[np.float32]]) -> Path:
    """Frames of all items in one file."""
    path.mkdir()
    np.concatenate(list(rows.values())).astype("<f4").tofile(path / "feature.bin")
    frames = {name: [f"{name}_{i}" for i in range(len(value))] for name, value in rows.items()}
    ids = [frame for names in frames.values() for frame in names]
    (path / "shape.txt").write_text(f"{len(ids)} {next(iter(rows.values())).shape[1]}")
    (path / "id.txt").write_text(" ".join(ids))
    (path / "video2frames.txt").write_text(str(frames))
    return path


def in_hdf5(path: Path, rows: dict[str, npt.NDArray[np.float32]]) -> Path:
    """A dataset an item."""
    path = path.with_suffix(".hdf5")
    with h5py.File(path, "w") as file:
        for name, value in rows.items():
            file[name] = value
    return path


WRITERS = {"folder": in_folder, "bigfile": in_bigfile, "npz": in_npz, "hdf5": in_hdf5}


def extract(chain: Chain, *arguments: str | Path) -> Outcome:
    """Runs the command on the workspace's data set."""
    return chain.ccr("extract", chain.find("dataset", "toy").path, *arguments)


@pytest.mark.parametrize("form", sorted(WRITERS))
def test_every_format_gives_the_same_features(form: str, workspace: Chain, tmp_path: Path) -> None:
    rows = frames_of(item_ids(workspace), D)
    shuffled = dict(sorted(rows.items(), reverse=True))
    done = extract(workspace, "--from", WRITERS[form](tmp_path / "i3d", shuffled))
    assert done.code == 0, done.err
    assert_stored(done.made, rows)
    assert done.made.name == "i3d" and base.verify(done.made) == []
    assert done.made.counts == {"items": 48, "rows": sum(map(len, rows.values())), "failed": 0, "left_over": 0}
    assert list(features.read_index(done.made)["item_id"]) == list(rows)
    plain = tmp_path / "plain.npy"
    np.save(plain, np.concatenate(list(rows.values())).astype(np.float16))
    assert done.made.file("00000.npy").read_bytes() == plain.read_bytes()


def test_three_splits_of_regions_with_a_list_each(workspace: Chain, tmp_path: Path) -> None:
    """As SCAN's precomp: training images once, test images five times, ids with the ending of a file."""
    ids = item_ids(workspace)
    value = np.random.default_rng(0).standard_normal((48, 6, D), dtype=np.float32)
    given: list[str | Path] = []
    for name, part, times in (("train", slice(0, 24), 1), ("dev", slice(24, 36), 1), ("test", slice(36, 48), 5)):
        np.save(tmp_path / f"{name}_ims.npy", np.repeat(value[part], times, axis=0))
        lines = [f"{item}.jpg\n" for item in ids[part] for _ in range(times)]
        (tmp_path / f"{name}_ids.txt").write_text("".join(lines))
        given += ["--from", tmp_path / f"{name}_ims.npy", "--ids", tmp_path / f"{name}_ids.txt"]
    done = extract(workspace, *given, "--name", "regions")
    assert done.code == 0, done.err
    assert_stored(done.made, dict(zip(ids, value, strict=True)))
    turned = extract(workspace, *given[8:], *given[:8], "--name", "regions")
    assert turned.made.id == done.made.id, "the order of the sources is no matter"


def test_mat(workspace: Chain, tmp_path: Path) -> None:
    ids = item_ids(workspace)
    value = np.random.default_rng(0).standard_normal((len(ids), D))
    scipy.io.savemat(tmp_path / "vgg_feats.mat", {"feats": value.T})
    (tmp_path / "ids.txt").write_text("\n".join(ids))
    done = extract(workspace, "--from", tmp_path / "vgg_feats.mat", "--ids", tmp_path / "ids.txt")
    assert done.code == 0, done.err
    assert_stored(done.made, {name: value[i : i + 1] for i, name in enumerate(ids)})


def test_missing_items_are_recorded_and_what_is_left_over_is_said(workspace: Chain, tmp_path: Path) -> None:
    rows = frames_of(item_ids(workspace), D)
    kept = {name: value for name, value in rows.items() if name not in ("red-ring", "blue-bar")}
    more = {f"other-{i}": rows["red-bar"] for i in range(4)} | {"red-cross": rows["red-cross"][:0]}
    done = extract(workspace, "--from", in_folder(tmp_path / "i3d", kept | more))
    assert done.code == 3
    assert "2 of 48 items are not in" in done.err and "red-ring, blue-bar" in done.err
    assert "--force" in done.err and "--retry-failed" not in done.err
    assert "4 entries of" in done.err and "other-0, other-1, other-2, ..." in done.err
    made = done.made
    del kept["red-cross"]
    assert_stored(made, kept)
    assert (made.counts["failed"], made.counts["left_over"]) == (3, 4)
    failures = [json.loads(line) for line in made.file(base.FAILURES).read_text().splitlines()]
    assert {f["id"]: f["error"] for f in failures} == {
        "red-ring": "NotInFile",
        "blue-bar": "NotInFile",
        "red-cross": "Empty",
    }
    index = features.read_index(made).set_index("item_id")
    assert index.loc["red-ring", "status"] == "failed" and index.loc["red-ring", "n_rows"] == 0
    again = extract(workspace, "--from", tmp_path / "i3d")
    assert again.code == 3 and again.made.id == made.id


def test_too_many_missing_items_stop_before_anything_is_written(workspace: Chain, tmp_path: Path) -> None:
    rows = dict(list(frames_of(item_ids(workspace), D).items())[:30])
    source = in_npz(tmp_path / "half", rows)
    done = extract(workspace, "--from", source)
    assert (done.code, done.out) == (1, "")
    assert "18 of 48 items failed, more than --max-failed 0.2" in done.err
    assert [p.name for p in (workspace.root / "features/toy").iterdir() if p.name.startswith("half")] == []
    done = extract(workspace, "--from", source, "--max-failed", "0.5")
    assert done.code == 3 and done.made.counts["rows"] == sum(map(len, rows.values()))


def test_too_many_empty_entries_stop_and_a_completed_file_takes_their_place(workspace: Chain, tmp_path: Path) -> None:
    rows = frames_of(item_ids(workspace), D)
    empty = {name: value[:0] for name, value in list(rows.items())[:21]}
    source = in_npz(tmp_path / "half", rows | empty)
    done = extract(workspace, "--from", source)
    assert (done.code, done.out) == (1, "") and "21 of 48 items failed" in done.err
    assert "complete the files and run the command again" in done.err
    in_npz(tmp_path / "half", rows)
    again = extract(workspace, "--from", source)
    assert again.code == 0, again.err
    assert_stored(again.made, rows)


def test_ids_that_have_nothing_in_common(workspace: Chain, tmp_path: Path) -> None:
    source = in_npz(tmp_path / "f", {f"video{i}": np.ones((1, D), np.float32) for i in range(9)})
    done = extract(workspace, "--from", source, "--max-failed", "1")
    assert (done.code, done.out) == (4, "")
    assert "48 items (red-circle, " in done.err and "video0, video1, video2, ..." in done.err


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (np.nan, "row 2 of 'red-bar' holds NaN or infinity"),
        (-np.inf, "row 2 of 'red-bar' holds NaN or infinity"),
        (-65520.0, "'red-bar' holds 65520, "),
    ],
)
def test_rows_that_half_precision_cannot_hold(
    damage: float, message: str, workspace: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found in the last shard; the mended file then takes the place of the refused one."""
    monkeypatch.setattr(features, "SHARD_ITEMS", 4)
    rows = frames_of(item_ids(workspace), D)
    rows["red-bar"] = np.ones((3, D), np.float32)
    rows = {name: value for name, value in rows.items() if name != "red-bar"} | {"red-bar": rows["red-bar"]}
    good = in_npz(tmp_path / "good", rows)
    rows["red-bar"] = rows["red-bar"].copy()
    rows["red-bar"][1, 3] = damage
    source = in_npz(tmp_path / "f", rows)
    done = extract(workspace, "--from", source)
    assert (done.code, done.out) == (4, "") and message in done.err
    assert "one factor" in done.err or "leave the item out" in done.err
    shutil.copy(good, source)
    assert extract(workspace, "--from", source).code == 0


def test_the_largest_number_that_is_held(workspace: Chain, tmp_path: Path) -> None:
    rows = frames_of(item_ids(workspace), D)
    rows["red-bar"] = np.array([[65519.0, -65504.0, 1e-9, *[0] * (D - 3)]])
    done = extract(workspace, "--from", in_npz(tmp_path / "f", rows))
    assert done.code == 0, done.err
    assert stored(done.made)["red-bar"][0, :3].tolist() == [65504, -65504, 0]


def test_features_of_unequal_length(workspace: Chain, tmp_path: Path) -> None:
    rows = frames_of(item_ids(workspace), D)
    rows["red-bar"] = np.ones((2, 5), np.float32)
    done = extract(workspace, "--from", in_hdf5(tmp_path / "f", rows))
    assert (done.code, done.out) == (4, "") and "'red-bar' has features of 5 numbers" in done.err


def test_an_id_in_two_sources(workspace: Chain, tmp_path: Path) -> None:
    rows = frames_of(item_ids(workspace), D)
    first, second = in_npz(tmp_path / "a", rows), in_npz(tmp_path / "b", {"red-bar": rows["red-bar"]})
    done = extract(workspace, "--from", first, "--from", second)
    assert done.code == 4 and "the id 'red-bar' is both in" in done.err


def test_content_counts_and_not_the_place(workspace: Chain, tmp_path: Path) -> None:
    rows = frames_of(item_ids(workspace), D)
    (tmp_path / "here").mkdir()
    for form, write in WRITERS.items():
        source = write(tmp_path / form, rows)
        first = extract(workspace, "--from", source).made
        moved = shutil.move(source, tmp_path / "here" / source.name)
        again = extract(workspace, "--from", moved)
        assert again.code == 0 and again.made.id == first.id
        stamp = (first.path / base.RECORD).stat().st_mtime_ns
        assert (again.made.path / base.RECORD).stat().st_mtime_ns == stamp
        assert set(first.request) == {"encoder", "dtype", "from"}
    (tmp_path / "here/folder/red-bar.npy").rename(tmp_path / "here/folder/red-Bar.npy")
    done = extract(workspace, "--from", tmp_path / "here/folder")
    assert done.code == 4 and "from: " in done.err and "--force" in done.err
    assert extract(workspace, "--from", tmp_path / "here/folder", "--force").code == 3
    one = base.sha256_file(tmp_path / "here/npz.npz")
    assert base.load(workspace.root / "features/toy/npz").request["from"] == one


def test_names_of_files_that_are_no_text(workspace: Chain, tmp_path: Path) -> None:
    rows = frames_of(item_ids(workspace), D)
    folder = in_folder(tmp_path / "f", rows)
    (folder / "red-bar.npy").rename(folder / b"red-\xff.npy".decode("utf-8", "surrogateescape"))
    done = extract(workspace, "--from", folder)
    assert done.code == 3 and done.made.counts["left_over"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--from", "f.npz", "--encoder", "clip"), "--encoder has no effect with --from"),
        (("--from", "f.npz", "--dtype", "float16"), "--dtype has no effect with --from"),
        (("--from", "f.npz", "--set", "a=1"), "--set has no effect with --from"),
        (("--from", "f.npz", "--retry-failed"), "--retry-failed has no effect with --from"),
        (("--from", "f.npz", "--ids", "ids"), "--ids ids"),
        (("--from", "f.npy"), "f.npy holds no ids"),
        (("--from", "g.npy"), "there is no g.npy"),
        (("--from", "f.npz", "--encoder-name", " "), "--encoder-name is empty"),
        (("--ids", "ids"), "--ids goes with --from"),
        (("--encoder-name", "i3d"), "--encoder-name goes with --from"),
    ],
)
def test_options_that_do_not_go_together(
    options: Sequence[str], message: str, sources: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("f.npz", "f.npy", "ids"):
        (tmp_path / name).touch()
    done = extract(sources, *options)
    assert (done.code, done.out) == (2, "") and message in done.err


def test_a_dry_run_writes_nothing(workspace: Chain, tmp_path: Path) -> None:
    source = in_npz(tmp_path / "f", frames_of(item_ids(workspace), D))
    before = toy.digests(workspace.root)
    shown = json.loads(extract(workspace, "--from", source, "--dry-run", "--json").out)
    assert shown["made"][0]["request"]["from"] == base.sha256_file(source) and toy.digests(workspace.root) == before


SMALL_SHARDS = """
import time
from ccr_cli.artifacts import features
from ccr_cli.data import features as files
features.SHARD_ITEMS = 4
mapped = files.mapped
def slowly(path):
    time.sleep(0.01)
    return mapped(path)
files.mapped = slowly
from ccr_cli.cli import main
main()
"""


def test_killed_and_gone_on_with(workspace: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of four items; the process is killed once some of them are there."""
    source = in_folder(tmp_path / "i3d", frames_of(item_ids(workspace), D))
    partial = workspace.root / "features/toy/i3d.partial"
    process = toy.python(SMALL_SHARDS, "extract", "--from", source, workspace=workspace.root)
    while len(list(partial.glob("index-*.parquet"))) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    process.kill()
    process.communicate()
    shards = [p.name.removeprefix("index-").removesuffix(".parquet") for p in partial.glob("index-*.parquet")]
    reached = {f"{shard}.npy": (partial / f"{shard}.npy").stat().st_mtime_ns for shard in shards}
    assert 2 <= len(reached) < 12
    monkeypatch.setattr(features, "SHARD_ITEMS", 4)
    made = toy.ok("extract", "--from", source, workspace=workspace.root).made
    assert {name: (made.path / name).stat().st_mtime_ns for name in reached} == reached
    whole = toy.ok("extract", "--from", source, "--name", "whole", workspace=workspace.root).made
    assert made.files == whole.files and len(whole.files) == 12 + 2


def test_room_is_looked_for_before_every_shard(
    workspace: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first by a row an item, then by what is done; with room again the same command goes on."""
    monkeypatch.setattr(features, "SHARD_ITEMS", 24)
    source = in_npz(tmp_path / "f", {name: np.ones((5, 1000), np.float32) for name in item_ids(workspace)})
    usage = shutil.disk_usage(tmp_path)
    for free, message, shards in ((95_000, "about 0.1 MiB", 0), (200_000, "about 0.2 MiB", 1)):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: usage._replace(free=free))
        done = extract(workspace, "--from", source)
        assert (done.code, done.out) == (6, "")
        assert message in done.err
        assert len(list((workspace.root / "features/toy").glob("f.partial/*.npy"))) == shards
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=250_000))
    assert extract(workspace, "--from", source).code == 0


def test_frames_reach_a_method_that_reads_them(workspace: Chain, tmp_path: Path) -> None:
    """Frames in, a run with a block over frames out, which evaluates and searches; other methods take their mean."""
    rows = frames_of(item_ids(workspace), 16)
    del rows["red-ring"]
    translation = workspace.find("translation", "es").path
    done = extract(workspace, translation, "--from", in_bigfile(tmp_path / "resnet", rows), "--encoder-name", "resnext")
    assert done.code == 3
    small = ("--epochs", "2", "--set", "buckets=512", "--set", "dim=32", "--batch-size", "16", "--device", "cpu")
    trained = workspace.ccr("train", "-", "--method", "nrccr", *small, stdin=done.out)
    assert trained.code == 0, trained.err
    run = trained.made
    assert run.name.startswith("toy-resnext-es-nrccr-seed0-")
    settings = base.read_json(run.file("config.json"))
    assert settings["visual_dim"] == 16 and settings["options"]["frame_block"]
    evaluated = workspace.ccr("evaluate", run.path, "--device", "cpu")
    assert evaluated.code == 0, evaluated.err
    found = workspace.ccr("search", "círculo rojo", run.path, "--device", "cpu")
    assert found.code == 0, found.err

    pooled = workspace.ccr("train", *done.paths, "--method", "infonce", *small)
    assert pooled.code == 0, pooled.err


def test_features_of_one_encoder_can_be_compared_across_data_sets(workspace: Chain, tmp_path: Path) -> None:
    rows = frames_of(item_ids(workspace), 16)
    source = in_npz(tmp_path / "f", rows)
    other = toy.ok("data", "import", toy.toy("other").write(tmp_path / "other"), workspace=workspace.root).made
    small = ("--method", "infonce", "--epochs", "1", *toy.SMALL)
    runs, names = {}, {"named": ("--encoder-name", "i3d"), "unnamed": ()}
    for name, option in names.items():
        made = extract(workspace, "--from", source, "--name", name, *option).made
        translation = workspace.find("translation", "es").path
        runs[name] = workspace.ccr("train", made.path, translation, *small).made
    assert runs["unnamed"].name.startswith("toy-given-es-infonce-seed0-")
    assert runs["named"].name.startswith("toy-i3d-es-infonce-seed0-")

    def zero_shot(name: str) -> Outcome:
        return workspace.ccr("evaluate", runs[name].path, "--zero-shot", "--device", "cpu")

    done = zero_shot("named")
    assert done.code == 4 and f"ccr extract {other.path} --from FILE --encoder-name i3d" in done.err
    turned = {name: value[::-1] for name, value in rows.items()}
    toy.ok("extract", other.path, "--from", in_npz(tmp_path / "g", turned), *names["named"], workspace=workspace.root)
    assert zero_shot("named").code == 0
    done = zero_shot("unnamed")
    assert done.code == 4 and "--from FILE --encoder-name NAME, and these features again with the same name" in done.err
