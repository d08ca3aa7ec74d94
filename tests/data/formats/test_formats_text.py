"""Files of lines: sentences beside ids, lines with hashes, lists of ids; and what lines can do to a reader."""

from __future__ import annotations

import gzip
import inspect
import io
import json
import pickle
import re
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ccr_cli.data.formats import base, formats, options_of, reader
from ccr_cli.data.formats.base import Record, lines
from ccr_cli.data.formats.text_files import hashtag, parallel, read_ids
from ccr_cli.errors import ArtifactError

OFFICIAL = Path(__file__).parents[2] / "fixtures" / "formats"


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def npy(path: Path, values: object) -> Path:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(values), allow_pickle=True)
    return write(path, buffer.getvalue())


# ---- official layouts


def test_parallel_reads_multi30k() -> None:
    path = OFFICIAL / "test_2017_mscoco.de"
    first, second = parallel(path, ids=OFFICIAL / "test_2017_mscoco.txt")
    assert first == Record(
        item="COCO_train2014_000000990010.jpg#880001",
        text="Eine alte Straßenbahn steht am Gleis.",
        where="test_2017_mscoco.de, line 1",
    )
    assert second.text == "Ein Drachen\u00a0fliegt über dem Feld."


def test_parallel_reads_through_gzip_whatever_the_name(tmp_path: Path) -> None:
    plain = OFFICIAL / "test_2017_mscoco.de"
    ids = OFFICIAL / "test_2017_mscoco.txt"
    wanted = [(r.item, r.text) for r in parallel(plain, ids=ids)]
    for name, content in (
        ("packed.de.gz", gzip.compress(plain.read_bytes(), mtime=0)),
        ("unpacked.de.gz", plain.read_bytes()),
        ("packed.de", gzip.compress(plain.read_bytes(), mtime=0)),
    ):
        read = list(parallel(write(tmp_path / name, content), ids=ids))
        assert [(r.item, r.text) for r in read] == wanted
        assert read[1].where == f"{name}, line 2"


def test_parallel_needs_no_last_line_feed() -> None:
    """XTD10 has files without."""
    read = parallel(OFFICIAL / "xtd10_test_1kcaptions_jp.txt", ids=OFFICIAL / "xtd10_test_image_names.txt")
    assert [(r.item, r.text) for r in read] == [
        ("COCO_train2014_000000990010.jpg", "古い路面電車が止まっている"),
        ("COCO_val2014_000000990001.jpg", "畑の上の赤い凧"),
    ]


def test_hashtag_reads_flickr8kcn_and_cococn() -> None:
    read = list(hashtag(OFFICIAL / "flickr8kenc.caption.txt", tag="enc"))
    assert [(r.item, r.k) for r in read] == [
        ("9900000001_0a1b2c3d4e.jpg", 0),
        ("9900000001_0a1b2c3d4e.jpg", 1),
        ("9900000002_ffee00112.jpg", 0),
    ]
    assert (
        read[1] == Record(read[1].item, "Lights on dark water .", where="flickr8kenc.caption.txt, line 2", k=1)
        and base.stem(read[1].item) == "9900000001_0a1b2c3d4e"
    )
    read = list(hashtag(OFFICIAL / "imageid.human-written-caption.txt"))
    assert [(r.item, r.k, r.text) for r in read] == [
        ("COCO_val2014_000000990001", 0, "田野上空有一只红色的风筝。"),
        ("COCO_train2014_000000990010", 0, "一辆老电车"),
        ("COCO_train2014_000000990010", 1, "电车 停在路边"),
    ]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("-a_000001_000011#enc2zh#0 x", ("-a_000001_000011", 0, "x")),
        ("a.jpg#367#zh#12 x", ("a.jpg#367", 12, "x")),
        ("a##3 x", ("a", 3, "x")),
        ("a#enc#3", ("a", 3, "")),
        ("a#enc#3 ", ("a", 3, "")),
        ("a#enc#3  x #1 y ", ("a", 3, " x #1 y ")),
        ("a#007\tx\ty", ("a", 7, "x\ty")),
        ("a#enc#0 x\u2028y\x85z\u00a0", ("a", 0, "x\u2028y\x85z\u00a0")),
    ],
)
def test_hashtag_takes_a_line_apart(tmp_path: Path, line: str, wanted: tuple[str, int, str]) -> None:
    (read,) = hashtag(write(tmp_path / "a.caption.txt", f"\n{line}\r\n \n"))
    assert (read.item, read.k, read.text) == wanted
    assert read.where == "a.caption.txt, line 2"


@pytest.mark.parametrize(
    "line", ["a b", "#enc#0 x", "a#enc#x y", "a#enc#0x y", "a#enc#1234567890 y", f"a#{'9' * 5000} y", "a#enc#٣ x", "a"]
)
def test_hashtag_refuses_other_lines(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "a.caption.txt", f"a#enc#0 b\n{line}\n")
    with pytest.raises(ArtifactError, match=rf"a\.caption\.txt, line 2: .*{re.escape(line[:60])}"):
        list(hashtag(path))


def test_hashtag_refuses_the_tag_of_another_file() -> None:
    with pytest.raises(ArtifactError, match=r"line 1: .*'enc'.*'zhc'") as caught:
        list(hashtag(OFFICIAL / "flickr8kenc.caption.txt", tag="zhc"))
    assert caught.value.hint
    with pytest.raises(ArtifactError, match=r"''.*'zh'"):
        list(hashtag(OFFICIAL / "imageid.human-written-caption.txt", tag="zh"))


# ---- lists of ids


def test_ids_of_every_form_of_list(tmp_path: Path) -> None:
    assert read_ids(OFFICIAL / "flickr8ktest.txt") == ["9900000002_ffee00112", "9900000001_0a1b2c3d4e"]
    assert read_ids(write(tmp_path / "one.txt", "a b\t-c  d\n")) == ["a", "b", "-c", "d"]
    assert read_ids(OFFICIAL / "activitynet_val_ids.json") == ["v_-Qx7_abcd0A", "v_zz_Yy-12345", "v_gone-000000"]
    assert read_ids(write(tmp_path / "a.txt.gz", gzip.compress(b"\xef\xbb\xbf-a \r\nb c\r\n\xc3\xa9", mtime=0))) == [
        "-a",
        "b c",
        "é",
    ]
    names = ["-Qx7_abcd0A_000010_000020", "é"]
    assert read_ids(npy(tmp_path / "names.npy", names)) == names
    assert read_ids(npy(tmp_path / "bytes.npy", [name.encode() for name in names])) == names


def test_ids_that_are_there_twice_stay(tmp_path: Path) -> None:
    """Lists with a line a caption name an item five times; whoever wants each once looks."""
    assert read_ids(write(tmp_path / "ids.txt", "a\na\nb\n")) == ["a", "a", "b"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ""),
        (b"\n", ""),
        (b"a\n\nb\n", "line 2: "),
        (b"a\nb\n \n", "line 3: "),
        (b"a\tb\tc\nd\te\tf\n", r"line 1: .*a\\tb\\tc"),
        (b"a\nz\xfcrich\n", r"line 2: .*UTF-8.*\b2\b"),
        (b"\xff\xfea\0\n\0b\0\n\0", "line 1: .*UTF-8"),
        (b"a\0\n\0b\0\n\0", r"line 1\b.*NUL"),
    ],
)
def test_lists_that_are_none(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=rf"ids\.txt.*{message}"):
        read_ids(write(tmp_path / "ids.txt", content))


def test_lists_of_features_may_be_latin1(tmp_path: Path) -> None:
    path = write(tmp_path / "ids.txt", "zürich\nb\n".encode("latin-1"))
    assert read_ids(path, latin1=True) == ["zürich", "b"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 2], "int64"),
        ([["a"], ["b"]], r"shape \(2, 1\)"),
        (np.empty(0, dtype="U3"), r"shape \(0,\)"),
        (["a", ""], r"\b1\b"),
        ([b"a", b"\xff"], "UTF-8.*0xff"),
        (["a", "\ud800"], "UTF-8.*ud800"),
    ],
)
def test_arrays_that_are_no_list(tmp_path: Path, values: object, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        read_ids(npy(tmp_path / "names.npy", values))


def test_an_array_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"names\.npy") as caught:
        read_ids(npy(tmp_path / "names.npy", np.array(["a", None], dtype=object)))
    assert "np.savez" in (caught.value.hint or "")


def test_lists_that_are_not_there(tmp_path: Path) -> None:
    for name in ("no.txt", "no.npy", "no.json"):
        with pytest.raises(ArtifactError, match=re.escape(str(tmp_path / name))):
            read_ids(tmp_path / name)
    for value, message in (({"a": 1}, "dict"), (["a", None], r"\[1\].*null"), ([""], r"\[0\]")):
        with pytest.raises(ArtifactError, match=message):
            read_ids(write(tmp_path / "ids.json", json.dumps(value)))


# ---- lines


def test_lines_end_at_line_feeds_alone(tmp_path: Path) -> None:
    text = "\ufeffa\u2028b\x85c\vd\fe\x1cf\rg\r\n \n\n-h"
    assert list(lines(write(tmp_path / "a.txt", text))) == [
        (1, "a\u2028b\x85c\vd\fe\x1cf\rg"),
        (2, " "),
        (3, ""),
        (4, "-h"),
    ]
    assert list(lines(write(tmp_path / "empty.txt", b""))) == []
    assert list(lines(write(tmp_path / "empty.gz", gzip.compress(b"", mtime=0)))) == []


@pytest.mark.parametrize(
    ("sentences", "ids", "found"),
    [
        ("a\nb\nc\n", "1\n2\n", (3, 2)),
        ("a\n", "1\n2\n", (1, 2)),
        ("", "1\n2\n", (0, 2)),
        ("a\nb\n\n", "1\n2\n", (3, 2)),
    ],
)
def test_parallel_refuses_unequal_counts(tmp_path: Path, sentences: str, ids: str, found: tuple[int, int]) -> None:
    path = write(tmp_path / "a.de", sentences)
    with pytest.raises(ArtifactError, match=r"a\.de .*\b{}\b.*ids\.txt .*\b{}\b".format(*found)) as caught:
        list(parallel(path, ids=write(tmp_path / "ids.txt", ids)))
    assert caught.value.hint


def test_an_empty_line_is_an_empty_caption_of_its_id(tmp_path: Path) -> None:
    read = parallel(write(tmp_path / "a.de", "a\n\nc"), ids=write(tmp_path / "ids.txt", "1\n2\n3\n"))
    assert [(r.item, r.text) for r in read] == [("1", "a"), ("2", ""), ("3", "c")]


def test_gzip_that_is_cut_or_damaged_is_said(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"".join(b"%d sentence\n" % n for n in range(5000)), mtime=0))
    ids = write(tmp_path / "ids.txt", "".join(f"{n}\n" for n in range(5000)))
    cut = write(tmp_path / "cut.de.gz", bytes(packed[: len(packed) // 2]))
    packed[len(packed) // 2] ^= 0xFF
    for path in (cut, write(tmp_path / "damaged.de.gz", bytes(packed)), write(tmp_path / "head.gz", b"\x1f\x8b")):
        with pytest.raises(ArtifactError, match=re.escape(path.name)) as caught:
            list(parallel(path, ids=ids))
        assert caught.value.hint == "fetch it again"


def test_other_encodings_are_named_by_line_and_byte(tmp_path: Path) -> None:
    path = write(tmp_path / "a.de", "ok\nzwölf Zürcher\n".encode("latin-1"))
    with pytest.raises(ArtifactError, match=r"a\.de, line 2: .*UTF-8.*\b3\b") as caught:
        list(parallel(path, ids=write(tmp_path / "ids.txt", "1\n2\n")))
    assert "iconv" in (caught.value.hint or "")


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.de"
    with path.open("wb") as file:
        file.truncate(base.LONGEST_LINE + 1)
    with pytest.raises(ArtifactError, match=r"line 1\b.*\b64 MiB"):
        list(lines(path))
    packed = write(tmp_path / "a.de.gz", gzip.compress(bytes(base.SMALL_TEXT + 1), compresslevel=1, mtime=0))
    with pytest.raises(ArtifactError, match=r"a\.de\.gz.*\b16 MiB"):
        list(lines(packed))


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_are_refused_with_a_way_out(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "raw-captions.pkl"
    path.write_bytes(pickle.dumps({"-Qx7_abcd0A_1_5": [["a", "dog"]]}, protocol))
    with pytest.raises(ArtifactError, match=r"raw-captions\.pkl") as caught:
        list(lines(path))
    assert "jsonl" in (caught.value.hint or "")
    if protocol > 1:
        with pytest.raises(ArtifactError, match=r"captions\.json") as caught:
            base.read_json(path.rename(tmp_path / "captions.json"))
        assert "jsonl" in (caught.value.hint or "")


def test_archives_are_to_be_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "captions.zip", "w") as archive:
        archive.writestr("captions.txt", "a\n")
    with tarfile.open(tmp_path / "captions.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "captions.zip")
    for name, message in (("captions.zip", "zip"), ("captions.tar.gz", r"line 1\b.*NUL")):
        with pytest.raises(ArtifactError, match=rf"{re.escape(name)}\b.*{message}") as caught:
            list(lines(tmp_path / name))
        assert caught.value.hint


def test_a_format_explains_itself_and_its_options() -> None:
    docs = {name: inspect.getdoc(reader(name)) or "" for name in formats()}
    summaries = {doc.split("\n")[0] for doc in docs.values()}
    assert len(summaries) == len(docs) >= 10
    assert all(line.endswith(".") for line in summaries)
    assert all(f"\n    {option}: " in docs[name] for name in docs for option in options_of(name))


def test_folders_and_missing_files_are_said(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=re.escape(str(tmp_path))):
        list(lines(tmp_path))
    with pytest.raises(ArtifactError, match=r"no\.txt"):
        list(lines(tmp_path / "no.txt"))
