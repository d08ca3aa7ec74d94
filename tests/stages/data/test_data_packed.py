"""Pictures packed with their captions: Parquet, tar files of webdataset, data sets of a hub on this machine."""

from __future__ import annotations

import io
import itertools
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hub_server
import huggingface_hub.constants
import pandas as pd
import pytest
import toy

from ccr_cli.artifacts import dataset
from ccr_cli.artifacts.base import Artifact
from ccr_cli.stages.data import packed

ITEMS = [f"{colour}-{shape}" for colour in ("red", "green", "blue", "black") for shape in ("circle", "square", "bar")]


def picture(item: str, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    toy.draw(item).save(buffer, form)
    return buffer.getvalue()


def parquet(path: Path, items: list[str] = ITEMS, **columns: list[Any]) -> Path:
    """As the library `datasets` writes pictures."""
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [{"bytes": picture(item), "path": f"{item}.png"} for item in items]
    captions = [[f"one {item.replace('-', ' ')}", f"it is {item.partition('-')[0]}, number {item}"] for item in items]
    pd.DataFrame({"image": images, "caption": captions} | columns).to_parquet(path)
    return path


def tar(path: Path, files: Mapping[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def samples(items: list[str]) -> dict[str, bytes]:
    """A picture and a text of each item; of every third an object with the text in place of the text."""
    files = {}
    for number, item in enumerate(items):
        files[f"some/{item}.jpg"] = picture(item, "JPEG")
        if number % 3:
            files[f"some/{item}.txt"] = f"one {item}\n".encode()
        else:
            files[f"some/{item}.json"] = json.dumps({"text": f"one {item}", "width": 32}).encode()
        files[f"some/{item}.seg.npy"] = b"not read"
    return files


def media(made: Artifact) -> dict[str, bytes]:
    """The bytes of each item's picture."""
    data = dataset.read(made)
    root = dataset.media_root(made)
    assert root is not None
    return {str(row.item_id): (root / str(row.media)).read_bytes() for row in data.items.itertuples()}


def test_parquet_with_pictures(tmp_path: Path) -> None:
    splits = ["train"] * 8 + ["validation"] * 2 + ["test"] * 2
    path = parquet(tmp_path / "shapes.parquet", split=splits)
    done = toy.ok("data", "import", path, workspace=tmp_path / "ws")
    data = dataset.read(done.made)
    assert data.name == "shapes" and media(done.made) == {item: picture(item) for item in ITEMS}
    assert list(data.items["split"]) == ["train"] * 8 + ["val"] * 2 + ["test"] * 2
    assert list(data.captions["text"])[:2] == ["one red circle", "it is red, number red-circle"]
    extracted = toy.ok("extract", *toy.ENCODER, workspace=tmp_path / "ws").made
    assert extracted.counts["items"] == len(ITEMS)


def test_a_split_and_a_language_before_a_file(tmp_path: Path) -> None:
    for name, items in (("train-00000-of-00001", ITEMS[:8]), ("b", ITEMS[8:])):
        parquet(tmp_path / "shapes" / "data" / f"{name}.parquet", items)
    place = tmp_path / "shapes" / "data"
    sources = (f"train={place}/train-00000-of-00001.parquet", f"test.de={place}/b.parquet")
    data = dataset.read(toy.ok("data", "import", *sources, workspace=tmp_path / "ws").made)
    assert data.name == "shapes" and dict(data.items["split"].value_counts())["test"] == 4
    langs = data.captions.merge(data.items[["item_id", "split"]]).groupby("split")["lang"].unique()
    assert list(langs["test"]) == ["de"] and list(langs["train"]) == ["en"]
    (tmp_path / "c.csv").write_text("image,caption\nx.png,one\n")
    mixed = toy.ccr("data", "import", sources[0], f"test={tmp_path}/c.csv", workspace=tmp_path / "ws")
    assert (mixed.code, mixed.out) == (2, "") and "train-00000-of-00001.parquet" in mixed.err


def test_bytes_without_names_and_names_that_repeat(tmp_path: Path) -> None:
    forms = ["PNG", "JPEG", "WEBP"] * 4
    nameless = [picture(item, form) for item, form in zip(ITEMS, forms, strict=True)]
    made = toy.ok("data", "import", parquet(tmp_path / "a.parquet", image=nameless), workspace=tmp_path / "ws").made
    names = list(dataset.read(made).items["media"])
    assert names[:3] == ["a-1.png", "a-2.jpg", "a-3.webp"] and list(media(made).values()) == nameless
    images = [{"bytes": picture(item), "path": f"x/../{item[:3]}.png"} for item in ITEMS]
    texts = [f"one {item}" for item in ITEMS]  # a row for each caption, as some data sets are
    path = parquet(tmp_path / "b.parquet", ITEMS * 2, image=images * 2, caption=[*texts, *(["again"] * 12)])
    made = toy.ok("data", "import", path, workspace=tmp_path / "ws").made
    pictures = media(made)
    assert sorted(pictures) == sorted(
        f"{name}{end}" for name in ("red", "gre", "blu", "bla") for end in ("", "-2", "-3")
    )
    assert pictures["red-2"] == picture("red-square"), "another picture of that name"
    assert set(dataset.read(made).captions.groupby("item_id").size()) == {2}, "the same picture is one item"


def test_the_next_free_name_is_not_searched_from_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def count(start: int) -> Iterator[int]:
        for number in itertools.count(start):
            tried.append(number)
            yield number

    monkeypatch.setattr(packed, "itertools", SimpleNamespace(count=count))
    items = [*ITEMS, ITEMS[1], ITEMS[5]]
    images = [{"bytes": picture(item), "path": "image.png"} for item in items]
    images[2]["path"] = "image-2.png"  # is taken
    path = parquet(tmp_path / "a.parquet", items, image=images)
    names = list(dataset.read(toy.ok("data", "import", path, workspace=tmp_path / "ws").made).items["media"])
    others = [f"image-{number}.png" for number in range(3, 12)]
    assert names == ["image.png", "image-2.png", "image-2-2.png", *others] and len(tried) == len(ITEMS) + 1
    path = parquet(tmp_path / "photos.v2.parquet", image=[picture(item) for item in ITEMS])
    names = list(dataset.read(toy.ok("data", "import", path, workspace=tmp_path / "ws").made).items["media"])
    assert names == [f"photos.v2-{number}.png" for number in range(1, 13)]


def test_tar_files_of_webdataset(tmp_path: Path) -> None:
    for number, part in enumerate((ITEMS[:5], ITEMS[5:10])):
        tar(tmp_path / "data" / f"train-{number:03}.tar", samples(part))
    tar(tmp_path / "data" / "test-000.tar", samples(ITEMS[10:]))
    both: dict[str, dataset.Dataset] = {}
    for pattern, splits in (("train-{000..001}.tar", "train"), ("train-*.tar", "train"), ("*.tar", "test, train")):
        source = f"wds:{tmp_path / 'data' / pattern}"
        done = toy.ok("data", "import", source, workspace=tmp_path / f"ws{len(both)}")
        assert f"splits: {splits};" in done.err and "--split auto" in done.err
        made, both[pattern] = done.made, dataset.read(done.made)
        items = ITEMS if pattern == "*.tar" else ITEMS[:10]
        assert media(made) == {f"some/{item}": picture(item, "JPEG") for item in items}
    assert dict(both["*.tar"].items["split"].value_counts())["test"] == 2
    (one,) = (tmp_path / "data").glob("test-*.tar")
    assert set(media(toy.ok("data", "import", one, workspace=tmp_path / "one").made)) == {
        f"some/{i}" for i in ITEMS[10:]
    }
    for pattern in ("train-{000..001}.tar", "train-*.tar"):
        assert set(both[pattern].items["split"]) == {"train", "val"}
    auto = toy.ok("data", "import", source, "--split", "auto", workspace=tmp_path / "auto").made
    assert set(dataset.read(auto).items["split"]) == {"train", "val", "test"}
    assert sorted(both["*.tar"].captions["text"]) == sorted(f"one {item}" for item in ITEMS)


def test_it_is_unpacked_once_and_after_an_interruption_again(tmp_path: Path) -> None:
    path, root = parquet(tmp_path / "shapes.parquet"), tmp_path / "ws"
    dry = toy.ccr("data", "import", path, "--dry-run", workspace=root)
    assert dry.code == 2 and not (root / "unpacked").exists()
    first = toy.ok("data", "import", path, workspace=root)
    (place,) = (root / "unpacked").iterdir()
    assert "12 pictures" in first.err
    again = toy.ok("data", "import", path, workspace=root)
    assert again.made.id == first.made.id and "unpacked into" not in again.err
    (place / "captions.jsonl").unlink()
    (place / "red-circle.png").write_bytes(b"cut")
    third = toy.ok("data", "import", path, workspace=root)
    assert third.made.id == first.made.id and (place / "red-circle.png").read_bytes() == picture("red-circle")
    parquet(path, ITEMS[:-1])
    changed = toy.ccr("data", "import", path, workspace=root)
    assert changed.code == 4 and len(list((root / "unpacked").iterdir())) == 2


def test_nothing_is_written_outside(tmp_path: Path) -> None:
    files: dict[str, bytes] = {}
    for number, item in enumerate(ITEMS):
        key = f"{'../../../' if number % 2 else '/tmp/'}{item}"
        files |= {f"{key}.jpg": picture(item), f"{key}.txt": f"one {item}".encode()}
    made = toy.ok("data", "import", f"wds:{tar(tmp_path / 'a' / 'b' / 'x.tar', files)}", workspace=tmp_path / "ws").made
    root = dataset.media_root(made)
    assert root is not None and len(list(root.glob("*.jpg"))) == len(ITEMS)
    assert not list(tmp_path.glob("*.jpg")) and all(path.is_relative_to(tmp_path / "ws") for path in root.glob("*"))


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    whole = tar(tmp_path / "whole.tar", samples(ITEMS)).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2 + 100])
    tar(tmp_path / "list.tar", {"a.jpg": picture("red-bar"), "a.json": b"[1]"})
    tar(tmp_path / "fake.tar", {"a.jpg": b"no picture", "a.txt": b"one"})
    tar(tmp_path / "noimage.tar", {"a.img": b"no picture", "a.txt": b"one"})
    parquet(tmp_path / "fake.parquet", image=[b"no picture"] * 12)
    for source, code, word in (
        (f"wds:{tmp_path}/cut.tar", 4, "cut.tar is cut off"),
        (f"wds:{tmp_path}/list.tar", 4, "a.json"),
        (f"wds:{tmp_path}/none*.tar", 2, "there is no"),
        ("wds:https://example.org/a.tar", 2, "download"),
        (f"wds:{tmp_path}/fake.txt", 2, "there is no"),
        (tmp_path / "fake.parquet", 4, "row 1: image is no picture"),
    ):
        done = toy.ccr("data", "import", source, workspace=tmp_path / "ws")
        assert (done.code, done.out) == (code, "") and word in done.err, done.err
        assert "Traceback" not in done.err and not (tmp_path / "ws" / "datasets").exists()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hub_server.Hub]:
    """A hub with an empty data set."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with hub_server.serve("owner/shapes") as served:
        hub_server.point_to(served.url, monkeypatch)
        yield served


def test_a_data_set_of_the_hub(hub: hub_server.Hub, tmp_path: Path) -> None:
    for place, items in (("data/train-00000-of-00002", ITEMS[:5]), ("data/train-00001-of-00002", ITEMS[5:9])):
        parquet(tmp_path / "main" / f"{place}.parquet", items)
    parquet(tmp_path / "main" / "data" / "test-00000-of-00001.parquet", ITEMS[9:])
    (tmp_path / "main" / "README.md").write_text("Shapes.")
    hub.revisions["main"] = tmp_path / "main"
    made = toy.ok("data", "import", "hf:owner/shapes", "--name", "shapes", workspace=tmp_path / "ws").made
    assert media(made) == {item: picture(item) for item in ITEMS}
    assert dict(dataset.read(made).items["split"].value_counts())["test"] == 3
    assert not any("README.md" in request for request in hub.asked if "/resolve/" in request)


def test_the_hub_s_own_conversion_and_its_parts(hub: hub_server.Hub, tmp_path: Path) -> None:
    (tmp_path / "main").mkdir()
    (tmp_path / "main" / "script.py").write_text("raise SystemExit")
    for part in ("small", "large"):
        parquet(tmp_path / "converted" / part / "train" / "0000.parquet", ITEMS[: 6 if part == "small" else 12])
    hub.revisions |= {"main": tmp_path / "main", "refs/convert/parquet": tmp_path / "converted"}
    several = toy.ccr("data", "import", "hf:owner/shapes", workspace=tmp_path / "ws")
    assert several.code == 2 and "large, small" in several.err and "hf:owner/shapes/large" in several.err
    made = toy.ok("data", "import", "hf:owner/shapes/small", workspace=tmp_path / "ws").made
    assert set(media(made)) == set(ITEMS[:6])


def test_a_hub_without_it(hub: hub_server.Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("owner/shapes", "owner/others", "shapes"):
        done = toy.ccr("data", "import", f"hf:{name}", workspace=tmp_path / "ws")
        assert (done.code, done.out) == (5, "") and name in done.err and "Traceback" not in done.err
    hub_server.point_to("http://127.0.0.1:9", monkeypatch)
    done = toy.ccr("data", "import", "hf:owner/shapes", workspace=tmp_path / "ws")
    assert (done.code, done.out) == (5, "")
