"""Finding official files below a folder, and counting their lines."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from ccr_cli.data.collections import FileSpec
from ccr_cli.data.official import count_lines, examine, locate
from ccr_cli.errors import ArtifactError


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{name}\n", encoding="utf-8")


PATHS = ("data/a/one.txt.gz", "data/a/two.txt", "data/b/two.txt")


@pytest.mark.parametrize("outer", ["data/", ""])
def test_leading_folders_may_be_missing(outer: str, tmp_path: Path) -> None:
    put(tmp_path, f"{outer}a/one.txt.gz", f"{outer}a/two.txt", f"{outer}b/two.txt")
    found = locate(PATHS, tmp_path)
    assert found == {path: tmp_path / outer / path.removeprefix("data/") for path in PATHS}


def test_files_of_one_name_are_never_confused(tmp_path: Path) -> None:
    """Without their folders both `two.txt` would be the same file."""
    put(tmp_path, "one.txt.gz", "two.txt")
    assert set(locate(PATHS, tmp_path).values()) == {None}
    assert locate(PATHS[:2], tmp_path)[PATHS[1]] == tmp_path / "two.txt"


def test_the_level_with_most_files_counts_and_an_unpacked_one_does_as_well(tmp_path: Path) -> None:
    put(tmp_path, "data/a/two.txt", "a/two.txt", "b/two.txt", "a/one.txt")
    found = locate(PATHS, tmp_path)
    assert found[PATHS[0]] == tmp_path / "a/one.txt" and found[PATHS[1]] == tmp_path / "a/two.txt"
    assert locate((), tmp_path) == {}


@pytest.mark.parametrize(
    ("data", "number"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"a\n\n", 2), ("a\u2028b\x85c\n".encode(), 1)]
)
def test_lines_are_counted_with_or_without_a_last_line_end(data: bytes, number: int, tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_bytes(data)
    assert count_lines(path) == number
    packed = tmp_path / "some.txt.gz"
    packed.write_bytes(gzip.compress(data, mtime=0))
    assert count_lines(packed) == number


def test_a_gzip_that_is_cut_off_is_no_file_of_lines(tmp_path: Path) -> None:
    (tmp_path / "some.gz").write_bytes(gzip.compress(b"a\n" * 1000, mtime=0)[:-9])
    with pytest.raises(ArtifactError, match=r"some\.gz"):
        count_lines(tmp_path / "some.gz")


def test_what_was_compared_is_said(tmp_path: Path) -> None:
    put(tmp_path, "lines.txt", "bytes.txt", "nothing.txt", "short.txt")
    specs = [
        FileSpec("lines.txt", lines=1, evidence="documented"),
        FileSpec("bytes.txt", bytes=10, evidence="documented"),
        FileSpec("nothing.txt"),
        FileSpec("short.txt", bytes=11),
        FileSpec("lines.txt", lines=7, variants=("again",)),
    ]
    found = {each.spec.path: each for each in examine(specs, tmp_path)}
    assert {path: (each.checked, each.problem) for path, each in found.items()} == {
        "lines.txt": ("lines", ""),
        "bytes.txt": ("bytes", ""),
        "nothing.txt": ("", ""),
        "short.txt": ("", "11 bytes expected, 10 found"),
    }
    assert all(len(each.sha256) == 64 for each in found.values())


def test_what_lies_unpacked_has_a_hash_of_its_own(tmp_path: Path) -> None:
    texts = {"a.de": b"eins\n", "a.fr": b"un\n"}
    specs = []
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
        packed, plain = (hashlib.sha256(data).hexdigest() for data in (gzip.compress(text, mtime=0), text))
        specs.append(FileSpec(f"{name}.gz", lines=1, bytes=99, sha256=packed, unpacked_sha256=plain))
    assert [(each.checked, each.problem) for each in examine(specs, tmp_path)] == [("sha256", "")] * 2
    (tmp_path / "a.de").write_bytes(texts["a.fr"])
    (tmp_path / "a.fr").write_bytes(b"deux\n")
    one, other = examine(specs, tmp_path)
    assert one.problem.startswith("this is the content of a.fr.gz (sha256 ") and one.checked == ""
    assert other.problem.startswith("other content (sha256 "), "its lines are as many"
