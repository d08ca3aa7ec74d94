"""The log of a review: every row is kept, what is taken back does not count, and other files are refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ccr_cli.data import pairs_file, review_file
from ccr_cli.errors import LockedError, UsageError

ODD = ['=cmd()|"x"', "a, b\r\nc", "'tis  so", "猫\u202e", ""]


def table() -> pd.DataFrame:
    """Pairs of a diagnosis with the texts `ODD`."""
    frame = pd.DataFrame({"slot_id": [f"{text!r}  #{n}" for n, text in enumerate(ODD)], "lang": "ar"})
    frame = frame.assign(source_caption_id=frame["slot_id"], item_id="i", source_text=ODD, translation=ODD[::-1])
    return frame.assign(place=range(1, len(ODD) + 1))


PAIRS: list[dict[str, Any]] = [{str(k): v for k, v in row.items()} for row in table().to_dict("records")]
COLUMNS = review_file.columns_of(table())


def write(path: Path, *rows: tuple[int, str, str, str]) -> Path:
    """Adds rows: number of the pair, reviewer, verdict, correction."""
    with review_file.opened(path, COLUMNS) as log:
        for number, *rest in rows:
            log.add(PAIRS[number], *rest)
    return path


def read(path: Path) -> dict[int, tuple[str, str]]:
    """Verdict and correction of each pair of a file, as the commands read it."""
    frame = pairs_file.read(path).frame
    number = {pair["slot_id"]: n for n, pair in enumerate(PAIRS)}
    rows = zip(frame["slot_id"], frame["verdict"], frame["correction"], strict=True)
    return {number[slot]: (verdict, correction) for slot, verdict, correction in rows}


def test_what_stands(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv",
        (0, "ana", "clean", ""),
        (1, "ana", "noisy", "=una  corrección"),
        (2, "ana", "noisy", ""),
        (2, "ana", "undone", ""),
        (3, "ana", "not judged", ""),
        (3, "ana", "undone", ""),
        (3, "ana", "undone", ""),  # nothing is left to take back
    )
    assert read(path) == {0: ("clean", ""), 1: ("noisy", "=una corrección")}
    write(path, (0, "ben", "noisy", ""), (1, "ben", "noisy", ""), (3, "ben", "not judged", ""))
    assert read(path) == {0: ("noisy", ""), 1: ("noisy", "=una corrección"), 3: ("not judged", "")}
    write(path, (0, "ben", "undone", ""), (1, "ben", "clean", ""), (0, "cleo", "not judged", ""))
    assert read(path) == {0: ("clean", ""), 1: ("clean", ""), 3: ("not judged", "")}
    with review_file.opened(path, COLUMNS) as log:
        assert len(log.verdicts) == 13 and log.verdicts[1].correction == "=una corrección"
        assert [log.key(pair) for pair in PAIRS[:4]] == list(dict.fromkeys(row.pair for row in log.verdicts))
    lines = path.read_bytes().decode("utf-8-sig").split("\r\n")
    assert len(lines) == 15 and lines[-1] == "", "a row is one line, whatever its texts"
    assert [cell for line in lines for cell in line.split(",") if cell.lstrip('" ')[:1] in ("=", "+", "@")] == []


def test_a_damaged_correction_is_located(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", (0, "ana", "clean", ""), (1, "ana", "noisy", "una"), (1, "ben", "noisy", ""))
    path.write_text(path.read_text(encoding="utf-8").replace(",una,", ",#NAME?,"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"line 3: correction '#NAME\?'"):
        pairs_file.read(path)


@pytest.mark.parametrize("cut", [1, 5, 30, 80])
def test_a_torn_row_is_left_out(cut: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.csv", (0, "ana", "clean", ""), (3, "ana", "noisy", "猫が"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    kept = {0: ("clean", ""), **({3: ("noisy", "猫が")} if cut < 3 else {})}
    assert read(path) == kept
    write(path, (1, "ana", "noisy", ""))
    assert read(path) == kept | {1: ("noisy", "")}
    assert capsys.readouterr().err.count("incomplete") == (0 if cut < 3 else 2)


def test_a_header_that_was_cut_off_is_written_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv")
    path.write_bytes(path.read_bytes()[:20])
    assert read(write(path, (0, "ana", "clean", ""))) == {0: ("clean", "")}


def test_one_process_writes(tmp_path: Path) -> None:
    with (
        review_file.opened(tmp_path / "a.csv", COLUMNS),
        pytest.raises(LockedError),
        review_file.opened(tmp_path / "a.csv", COLUMNS),
    ):
        pass
    write(tmp_path / "a.csv", (0, "ana", "clean", ""))


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.csv", (0, "ana", "clean", ""))
    before, real = path.read_bytes(), os.write

    def full(handle: int, data: bytes) -> int:
        if len(data) > 4:
            return real(handle, data[:4])
        raise OSError(errno.ENOSPC, "no space")

    with review_file.opened(path, COLUMNS) as log:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(OSError, match="disk"):
                log.add(PAIRS[1], "ana", "noisy")
        assert path.read_bytes() == before and len(log.verdicts) == 1
        log.add(PAIRS[1], "ana", "noisy")
    assert read(path) == {0: ("clean", ""), 1: ("noisy", "")}


def test_a_file_that_changes_meanwhile_is_not_written_to(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", (0, "ana", "clean", ""))
    with review_file.opened(path, COLUMNS) as log:
        saved = path.with_suffix(".new")
        saved.write_bytes(path.read_bytes())
        saved.replace(path)
        with pytest.raises(review_file.ChangedError):
            log.add(PAIRS[1], "ana", "noisy")
    assert read(path) == {0: ("clean", "")}


def test_other_files_are_refused(tmp_path: Path) -> None:
    export = tmp_path / "pairs.csv"
    pairs_file.write(export, table().assign(verdict="clean", p_vs=1.0, p_clean=1.0, p_st=1.0))
    saved = tmp_path / "saved.csv"
    saved.write_bytes(write(tmp_path / "a.csv", (0, "ana", "clean", "")).read_bytes().replace(b",", b";"))
    for path in (export, saved, tmp_path / "a.xlsx", tmp_path / "none" / "a.csv"):
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(UsageError), review_file.opened(path, COLUMNS):
            pass
        assert (path.read_bytes() if path.exists() else None) == before
    with pytest.raises(UsageError, match="reviewers"):
        pairs_file.check(tmp_path / "a.csv")
    write(tmp_path / "a.csv", (0, "ana", "undone", ""))
    with pytest.raises(UsageError, match="empty"):
        pairs_file.read(tmp_path / "a.csv")
