"""Small files that claim or unpack to far more than memory holds: refused, or one failed item."""

from __future__ import annotations

import gzip
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import toy
from rows import item_ids
from toy import Chain


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def test_a_picture_of_a_thousand_million_pixels(workspace: Chain, tmp_path: Path) -> None:
    media = tmp_path / "media"
    shutil.copytree(workspace.folder / "media", media)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 100_000, 10_000, 8, 0, 0, 0, 0))
    content = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    (media / "red-circle.png").write_bytes(content)
    done = workspace.ccr("extract", "toy", *toy.ENCODER, "--media-root", media, "--name", "large")
    assert done.code == 3 and done.made.counts["failed"] == 1
    assert "1000000000 pixels" in (done.made.path / "failures.jsonl").read_text()


def test_rows_that_are_not_in_the_file(workspace: Chain, tmp_path: Path) -> None:
    header = f"{{'descr': '<f2', 'fortran_order': False, 'shape': ({10**12}, 8), }}".ljust(117) + "\n"
    rows, ids = tmp_path / "rows.npy", tmp_path / "ids.txt"
    rows.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(100))
    ids.write_text("\n".join(item_ids(workspace)))
    done = workspace.ccr("extract", "toy", "--from", rows, "--ids", ids, "--name", "rows")
    assert (done.code, done.out) == (4, "") and str(rows) in done.err


def test_a_small_gzip_file_of_much_text(tmp_path: Path) -> None:
    path = tmp_path / "bomb.tsv.gz"
    with gzip.open(path, "wb") as file:
        file.write(b"item_id\tmedia\tsplit\tlang\ttext\n")
        for _ in range(70):
            file.write(b"a" * 1_000_000)
    done = toy.ccr("data", "import", path, workspace=tmp_path / "workspace")
    assert (done.code, done.out) == (4, "") and str(path) in done.err and "MiB" in done.err


def test_a_parquet_file_of_repeated_values(tmp_path: Path) -> None:
    path, rows = tmp_path / "repeat.parquet", 10**7
    value = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["x"])
    pq.write_table(pa.table({"item_id": value, "text": value}), path, store_schema=False, row_group_size=rows)
    assert path.stat().st_size < rows / 16
    done = toy.ccr("data", "import", path, workspace=tmp_path / "workspace")
    assert (done.code, done.out) == (4, "") and str(path) in done.err and "10,000,000" in done.err
