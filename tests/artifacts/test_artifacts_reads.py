"""A process hashes a file of an artifact once, and reads a table of one once; a file that changes is noticed."""

from __future__ import annotations

import collections
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import base, dataset, parquet
from ccr_cli.errors import ArtifactError

DAY = 86_400


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> collections.Counter[str]:
    """How often each file is hashed (`hash PATH`) or read as a table (`table PATH`), as if in a new process."""
    counts: collections.Counter[str] = collections.Counter()
    digest, read = hashlib.file_digest, pq.ParquetFile

    def counted_digest(handle: Any, *arguments: Any) -> Any:
        counts[f"hash {handle.name}"] += 1
        return digest(handle, *arguments)

    def counted_read(path: Path, **options: Any) -> Any:
        counts[f"table {path}"] += 1
        return read(path, **options)

    monkeypatch.setattr(base, "_hashed", {})
    monkeypatch.setattr(parquet, "_tables", collections.OrderedDict())
    monkeypatch.setattr(base, "CLOCK_TICK_NS", 0)
    monkeypatch.setattr(hashlib, "file_digest", counted_digest)
    monkeypatch.setattr(pq, "ParquetFile", counted_read)
    return counts


def test_loading_an_artifact_again_does_not_hash_again(sources: Chain, reads: collections.Counter[str]) -> None:
    path = sources.find("dataset").path
    first, again = (dataset.read(base.load(path)) for _ in range(2))
    assert first.items.equals(again.items) and first.captions.equals(again.captions)
    assert {name.partition(" ")[0] for name in reads} == {"hash", "table"} and set(reads.values()) == {1}


def test_what_a_caller_changes_is_its_own(sources: Chain, reads: collections.Counter[str]) -> None:
    data = sources.find("dataset")
    frame = dataset.read(data).captions
    text = frame["text"].iloc[0]
    frame["text"] = "other"
    frame.loc[0, "lang"] = "xx"
    again = dataset.read(data).captions
    assert again["text"].iloc[0] == text and again["lang"].iloc[0] != "xx"


def test_a_file_that_changes_is_hashed_again(sources: Chain, reads: collections.Counter[str], tmp_path: Path) -> None:
    data = base.load(Path(shutil.copytree(sources.find("dataset").path, tmp_path / "copy")))
    table = data.file("captions.parquet")
    content = table.read_bytes()
    table.write_bytes(content[::-1])
    with pytest.raises(ArtifactError) as caught:
        data.file("captions.parquet")
    assert str(table) in caught.value.message
    table.write_bytes(content)
    os.utime(table, (table.stat().st_mtime + DAY,) * 2)
    assert data.file("captions.parquet") == table and reads[f"hash {table}"] == 3


def test_a_change_in_the_same_tick_of_the_clock_is_noticed(
    sources: Chain, reads: collections.Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "CLOCK_TICK_NS", DAY * 10**9)
    data = base.load(Path(shutil.copytree(sources.find("dataset").path, tmp_path / "copy")))
    for _ in range(2):
        data.file("captions.parquet")
    assert reads[f"hash {data.path / 'captions.parquet'}"] == 2


def test_tables_are_kept_while_there_is_room(
    sources: Chain, reads: collections.Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "KEPT_BYTES", 0)
    data = sources.find("dataset")
    for _ in range(2):
        dataset.read(data)
    assert reads[f"table {data.path / 'captions.parquet'}"] == 2


def test_every_column_of_a_table_can_be_changed(tmp_path: Path) -> None:
    schema = parquet.table_schema("item_id string, k int32, sim_vs float32")
    pq.write_table(
        pa.table({"item_id": ["a", "b"], "k": [0, 1], "sim_vs": [0.5, 0.25]}, schema), tmp_path / "a.parquet"
    )
    frame = parquet.read_table(tmp_path / "a.parquet", schema)
    for name, value in (("item_id", "c"), ("k", 7), ("sim_vs", 2.0)):
        frame.loc[frame["k"] != 0, name] = value
        assert frame[name].iloc[1] == value


def test_texts_of_a_table_in_parts(tmp_path: Path) -> None:
    schema = parquet.table_schema("item_id string, media string?")
    texts = ["a", None, "b", *["c", None, "b"] * 1000]
    rows = pa.table({"item_id": [str(number) for number in range(len(texts))], "media": texts}, schema)
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=700)
    frame = parquet.read_table(tmp_path / "a.parquet", schema)
    assert frame["media"].tolist() == texts and frame["item_id"].tolist() == rows["item_id"].to_pylist()
    assert len({id(text) for text in frame["media"]}) == 4, "equal texts are one object"
    assert parquet.read_table(tmp_path / "a.parquet", schema).dtypes.tolist() == [object, object]
    pq.write_table(rows.slice(0, 0), tmp_path / "none.parquet")
    assert parquet.read_table(tmp_path / "none.parquet", schema)["media"].tolist() == []


def test_evaluate_reads_every_file_once(finished: Chain, reads: collections.Counter[str]) -> None:
    trained = finished.find("run", "uml").path
    toy.ok("evaluate", trained, "--name", "again", "--device", "cpu", workspace=finished.root)
    vectors = {name: times for name, times in reads.items() if name.startswith("hash ") and "/features/" in name}
    assert any(name.endswith(".npy") for name in vectors)
    assert set(vectors.values()) == {1}
    assert {times for name, times in reads.items() if name.startswith("table ")} == {1}
