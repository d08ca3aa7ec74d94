"""A data set as a folder of the library `datasets`: what is in it, that it comes back, and how it goes to a hub."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hub_server
import huggingface_hub.constants
import pandas as pd
import pyarrow.parquet as pq
import pytest
import toy
from huggingface_hub import DatasetCard
from PIL import Image
from toy import Chain

from ccr_cli.artifacts import dataset, diagnosis, translation
from ccr_cli.artifacts.base import Artifact

FILES = {"train": "train", "val": "validation", "test": "test"}


def rows(made: Artifact) -> pd.DataFrame:
    """All rows of an export, with their split."""
    parts = []
    for split, name in FILES.items():
        (path,) = (made.path / "data").glob(f"{name}-*-of-*.parquet")
        parts.append(pq.read_table(path).to_pandas().assign(split=split))
    frame: pd.DataFrame = pd.concat(parts, ignore_index=True)
    return frame


def pictures(data: Artifact) -> dict[str, bytes]:
    root, items = dataset.media_root(data), dataset.read(data).items
    assert root is not None
    return {item: (root / media).read_bytes() for item, media in zip(items["item_id"], items["media"], strict=True)}


@pytest.fixture(scope="module")
def exported(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> tuple[Chain, Artifact]:
    """A workspace with the export of a diagnosis of a run without noise."""
    import shutil

    root = tmp_path_factory.mktemp("exported") / "workspace"
    shutil.copytree(chain.root, root)
    mine = Chain(chain.folder, root)
    made = toy.ok("export", mine.find("diagnosis", "infonce").path, workspace=root).made
    return mine, made


def test_each_caption_has_its_picture_translation_and_verdict(exported: tuple[Chain, Artifact]) -> None:
    chain, made = exported
    data, frame = chain.find("dataset"), rows(made)
    content, translated = dataset.read(data), translation.read(chain.find("translation"))
    assert {parent.kind for parent in made.parents} == {"dataset", "translation", "diagnosis"}
    assert list(frame["caption_id"].sort_values()) == sorted(content.captions["caption_id"])
    wanted = content.captions.set_index("caption_id").loc[list(frame["caption_id"])]
    assert list(frame["caption"]) == list(wanted["text"]) and list(frame["lang"]) == list(wanted["lang"])
    assert list(frame["split"]) == list(content.items.set_index("item_id").loc[list(frame["item_id"]), "split"])
    whole = pictures(data)
    assert all(image["bytes"] == whole[item] for image, item in zip(frame["image"], frame["item_id"], strict=True))
    forward = translation.translated(translated).set_index("source_caption_id")["text"]
    assert list(frame["mt_es"].dropna()) == [forward[c] for c in frame["caption_id"] if c in forward.index]
    judged = diagnosis.read_pairs(chain.find("diagnosis", "infonce")).set_index("slot_id")
    has = frame[frame["verdict_es"].notna()].set_index("caption_id")
    assert set(has.index) == set(judged.index) and set(has["split"]) == {"train"}
    for name in ("verdict", "p_clean", "place"):
        assert list(has[f"{name}_es"]) == list(judged.loc[has.index, name])


def test_the_files_say_what_the_columns_are(exported: tuple[Chain, Artifact]) -> None:
    """The keys of https://huggingface.co/docs/datasets (Features in the schema) and https://huggingface.co/docs/hub."""
    _, made = exported
    (path,) = (made.path / "data").glob("train-*.parquet")
    features = json.loads(pq.read_schema(path).metadata[b"huggingface"])["info"]["features"]
    assert features["image"] == {"_type": "Image"} and features["p_clean_es"] == {"dtype": "float32", "_type": "Value"}
    assert list(features) and set(features) == set(pq.read_schema(path).names)
    data: Any = DatasetCard((made.path / "README.md").read_text(encoding="utf-8")).data
    front = data.to_dict()
    assert front["language"] == ["en", "es"] and "license" not in front
    assert {each["split"]: each["path"] for each in front["configs"][0]["data_files"]} == {
        name: f"data/{name}-*" for name in FILES.values()
    }
    image = Image.open(io.BytesIO(rows(made)["image"][0]["bytes"]))
    assert image.size == (32, 32) or image.size[0] > 0


def test_the_library_loads_it(exported: tuple[Chain, Artifact], tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the library datasets is not installed")
    loaded = datasets.load_dataset(str(exported[1].path), cache_dir=str(tmp_path))
    assert {name: len(loaded[name]) for name in FILES.values()} == dict(
        rows(exported[1])["split"].map(FILES).value_counts()
    )
    assert loaded["train"][0]["image"].size == toy.draw("red-circle").size


def test_it_is_imported_as_it_was(exported: tuple[Chain, Artifact], tmp_path: Path) -> None:
    chain, made = exported
    files = sorted((made.path / "data").glob("*.parquet"))
    again = toy.ok("data", "import", *files, "--name", "again", workspace=tmp_path / "ws").made
    old, new = dataset.read(chain.find("dataset")), dataset.read(again)
    key = ["item_id", "split", "kind", "label"]
    assert new.items[key].sort_values("item_id").to_dict("list") == old.items[key].sort_values("item_id").to_dict(
        "list"
    )
    texts = [
        sorted(zip(d.captions["item_id"], d.captions["lang"], d.captions["text"], strict=True)) for d in (new, old)
    ]
    assert texts[0] == texts[1] and pictures(again) == pictures(chain.find("dataset"))
    back = toy.ok("translate", "--lang", "es", workspace=tmp_path / "ws").made
    both = [translation.translated(translation.read(a)) for a in (back, chain.find("translation"))]
    assert sorted(both[0]["text"]) == sorted(both[1]["text"])


def test_a_picture_is_stored_once_however_many_captions_it_has(tmp_path: Path) -> None:
    data = toy.toy()
    noise = Image.effect_noise((256, 256), 90)
    data.captions += [
        [f"{c[0]}-{k}", c[1], "en", str(k), f"{c[4]} {k}", "main"] for c in data.captions for k in (5, 6, 7)
    ]
    folder = data.write(tmp_path / "toy")
    for item in data.items:
        noise.save(folder / "media" / item[3])
    toy.ok("data", "import", folder, workspace=tmp_path / "ws")
    made = toy.ok("export", "datasets/toy", workspace=tmp_path / "ws").made
    one = (folder / "media" / data.items[0][3]).stat().st_size
    groups = sum(pq.ParquetFile(path).num_row_groups for path in (made.path / "data").iterdir())
    assert sum(file.bytes for file in made.files) < 1.2 * one * groups < one * len(data.captions) / 20
    assert made.counts["pictures"] == len(data.items)


def test_pairs_of_synthetic_noise_have_no_verdict(finished: Chain) -> None:
    made = toy.ok("export", finished.find("diagnosis", "uml").path, workspace=finished.root).made
    judged = diagnosis.read_pairs(finished.find("diagnosis", "uml"))
    forward = translation.translated(translation.read(finished.find("translation")))
    right = dict(zip(forward["source_caption_id"], forward["text"], strict=True))
    kept = judged[judged["slot_id"].map(right) == judged["translation"]]
    frame = rows(made)
    assert 0 < len(kept) < len(judged)
    assert set(frame.loc[frame["verdict_es"].notna(), "caption_id"]) == set(kept["slot_id"])


def test_what_cannot_be_exported(finished: Chain) -> None:
    data, run = finished.find("dataset"), finished.find("run", "uml")
    one, other = (finished.find("diagnosis", name).path for name in ("uml", "infonce"))
    toy.ok("translate", "--lang", "es", "--name", "es-2", "--set", "engine=hand", "--force", workspace=finished.root)
    for words, code, word in (
        ((data.path,), 4, "es-2"),
        ((one, other), 2, "es"),
        ((data.path, "--onnx"), 2, "--onnx"),
        ((run.path, "--to", "owner/name"), 2, "owner/name"),
    ):
        done = finished.ccr("export", *words)
        assert (done.code, done.out) == (code, "") and word in done.err, done.err
    assert not list((finished.root / "exports").glob("*"))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hub_server.Hub]:
    """A hub without the repository, to which one token may write."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_owner")
    with hub_server.serve("owner/shapes") as served:
        hub_server.point_to(served.url, monkeypatch)
        served.token, served.place = "hf_of_the_owner", tmp_path / "hub"
        yield served


def test_to_the_hub_and_back(hub: hub_server.Hub, finished: Chain, tmp_path: Path) -> None:
    words = ("export", finished.find("dataset").path, "--to", "hf:owner/shapes")
    toy.ok(*words, "--dry-run", workspace=finished.root)
    assert not hub.asked
    done = toy.ok(*words, workspace=finished.root)
    assert hub.created["type"] == "dataset" and "owner/shapes" in done.err
    assert hub.created.get("visibility") == "private" or hub.created.get("private") is True
    assert (hub.place / "README.md").read_bytes() == (done.made.path / "README.md").read_bytes()
    assert "hf_of_the_owner" not in done.err and "--to" not in done.made.about["command"]
    back = toy.ok("data", "import", "hf:owner/shapes", "--name", "shapes", workspace=tmp_path / "ws").made
    assert pictures(back) == pictures(finished.find("dataset"))


def test_a_model_to_the_hub(hub: hub_server.Hub, finished: Chain) -> None:
    made = toy.ok("export", finished.find("run", "uml").path, "--to", "hf:owner/shapes", workspace=finished.root).made
    assert hub.created["name"] == "shapes" and hub.created.get("type", "model") == "model"
    assert {file.path for file in made.files} <= {p.relative_to(hub.place).as_posix() for p in hub.place.rglob("*")}


def test_a_hub_that_refuses(hub: hub_server.Hub, finished: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    words: tuple[Any, ...] = ("export", finished.find("dataset").path, "--to", "hf:owner/shapes")
    monkeypatch.setenv("HF_TOKEN", "hf_of_another_person")
    refused = finished.ccr(*words)
    assert (refused.code, refused.out) == (5, "") and "404" in refused.err and "HF_TOKEN" in refused.err
    assert "hf_of_another_person" not in refused.err and not hub.created
    hub_server.point_to("http://127.0.0.1:9", monkeypatch)
    assert finished.ccr(*words).code == 5
    assert (finished.root / "exports" / "toy" / "README.md").is_file(), "the folder itself is complete"
