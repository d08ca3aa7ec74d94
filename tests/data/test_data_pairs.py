"""Lists of pairs: what is written comes back, in either form; what is no list is refused with words."""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ccr_cli.data import pairs_file
from ccr_cli.errors import UsageError
from ccr_cli.stages.shared.judged_texts import texts_of

ODD = ['=cmd()|"x"', "'tis", "'=x", "-1", "a, b\nc\r\td", "@me", "\tt", " +1", "猫", "x\ry", ""]


def table(texts: list[str]) -> pd.DataFrame:
    n = len(texts)
    p = np.random.default_rng(0).random(n).astype(np.float32)
    return pd.DataFrame(
        {
            "slot_id": [f"{text}#{i}" for i, text in enumerate(texts)],
            "source_caption_id": [f"s{i}" for i in range(n)],
            "item_id": "i",
            "lang": "zh",
            "source_text": texts,
            "translation": texts[::-1],
            "place": np.arange(1, n + 1, dtype=np.int32),
            "verdict": np.where(p < 0.5, "noisy", "clean"),
            "p_vs": np.float32(1),
            "p_clean": p,
            "p_st": p,
        }
    )


@pytest.mark.parametrize("suffix", pairs_file.SUFFIXES)
def test_what_is_written_comes_back(suffix: str, tmp_path: Path) -> None:
    frame, path = table(ODD), tmp_path / f"pairs{suffix}"
    pairs_file.write(path, frame.sample(frac=1, random_state=0))
    found = pairs_file.read(path).frame
    for name in ("slot_id", "source_caption_id", "source_text", "translation", "verdict"):
        assert list(found[name]) == list(frame[name]), name
    assert list(found["p_clean"].astype(np.float32)) == list(frame["p_clean"]), "to the last bit"


def test_texts_are_compared_however_lines_end() -> None:
    assert pairs_file.one_line("a\r\nb ") == pairs_file.one_line("a\nb") == "a b"


@pytest.mark.parametrize("suffix", pairs_file.SUFFIXES)
def test_a_written_text_with_hidden_characters_is_still_that_text(suffix: str, tmp_path: Path) -> None:
    frame, path = table(["a\x07b", "a\u202eb\r\nc", "a\x1fb", "a b"]), tmp_path / f"pairs{suffix}"
    pairs_file.write(path, frame)
    found = pairs_file.read(path).frame
    assert texts_of(found, "source_text") == texts_of(frame, "source_text")
    assert "\ufffd" in found["source_text"][0] and pairs_file.comparable("a\x1fb") != pairs_file.comparable("a b")


def test_no_cell_of_a_csv_is_a_formula(tmp_path: Path) -> None:
    pairs_file.write(tmp_path / "pairs.csv", table(ODD))
    with (tmp_path / "pairs.csv").open(encoding="utf-8", newline="") as handle:
        cells = [cell for row in csv.reader(handle) for cell in row]
    assert not [cell for cell in cells if cell.lstrip(" ")[:1] in tuple("=+-@\t\r\n")]


def test_a_list_written_by_hand(tmp_path: Path) -> None:
    """Of a spreadsheet with a byte order mark, one column and one of its own."""
    path = tmp_path / "mine.csv"
    path.write_bytes("\ufeffSlot_ID,note,Verdict\r\na,x,clean\r\nb,y,noisy\r\n".encode())
    found = pairs_file.read(path)
    assert list(found.frame["slot_id"]) == ["a", "b"] and list(found.frame.columns) == ["slot_id", "verdict"]
    assert found.unread == ("note",)
    with pytest.raises(UsageError, match="p_clean"):
        found.require("slot_id", "p_clean")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ""),
        ("slot_id,verdict\n", ""),
        ("a,b\n1,2\n", "slot_id .*source_caption_id"),
        ("verdict\nclean\n", "slot_id .*source_caption_id"),
        ("slot_id,corrección\na,x\n", "corrección"),
        ("slot_id,verdict,Verdict\na,clean,noisy\n", "verdict twice"),
        ("slot_id,verdict\na,clean\nb,perhaps\n", "line 3: verdict 'perhaps'.*clean, noisy"),
        ("slot_id,p_clean\na,1.5\n", "line 2: p_clean '1.5'"),
        ("slot_id,p_clean\na,nan\n", "line 2: p_clean 'nan'"),
        ("slot_id,p_clean\na,high\n", "line 2: p_clean 'high'"),
        ("slot_id,p_clean\na,143%\n", "line 2: p_clean '143%'"),
        ("slot_id,verdict\na,clean\na,noisy\n", "line 3: slot_id 'a'"),
        ("slot_id,verdict\na\n", "line 2: verdict ''.*clean, noisy"),
        ("slot_id,correction\na,#NAME?\n", r"line 2: correction '#NAME\?'"),
        ("slot_id,correction\na,b\nb,=c\n", "line 3: correction '=c'"),
        ("slot_id,verdict\na,clean,b\n", r"line 2\b.*\b3\b.*\b2$"),
        ('slot_id,verdict\na,"clean\n', "line 2"),
    ],
)
def test_what_is_no_list_is_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(content, encoding="utf-8", newline="")
    with pytest.raises(UsageError, match=rf"pairs\.csv.*{message}"):
        pairs_file.read(path)


def saved(path: Path, rows: list[list[str]], encoding: str, delimiter: str) -> Path:
    """Saves rows as a spreadsheet does: as a workbook, or with CRLF, and quotes where they are needed."""
    if path.suffix == ".xlsx":
        book = pytest.importorskip("openpyxl").Workbook()
        for row in rows:
            book.active.append([0.25 if cell == "0,25" else cell for cell in row])
        book.save(path)
        return path
    with path.open("w", encoding=encoding, newline="") as handle:
        handle.write(f"sep={delimiter}\r\n" if delimiter == "|" else "")
        csv.writer(handle, delimiter=delimiter).writerows(rows)
    return path


@pytest.mark.parametrize(
    ("name", "encoding", "delimiter"),
    [
        ("mine.csv", "utf-8-sig", ";"),
        ("mine.tsv", "utf-8", "\t"),
        ("mine.csv", "utf-8-sig", "|"),
        ("MINE.CSV", "cp1252", ";"),
        ("mine.txt", "utf-16", "\t"),
        ("mine.xlsx", "", ""),
    ],
)
def test_what_a_spreadsheet_makes_of_a_list(name: str, encoding: str, delimiter: str, tmp_path: Path) -> None:
    rows = [
        [" slot_id", "translation", "Correction ", "VERDICT", "p_clean", "note"],
        ["a", "café; noir, l'été", " café\r\nvert  ", "NOISY", "0,25", "x"],
        ["b", '"thé"', "'=thé", "Clean ", "100%"],
        ["", "", "", "", "", ""],
    ]
    found = pairs_file.read(saved(tmp_path / name, rows, encoding, delimiter))
    assert found.frame.to_dict("list") == {
        "slot_id": ["a", "b"],
        "translation": ["café; noir, l'été", '"thé"'],
        "correction": ["café vert", "=thé"],
        "verdict": ["noisy", "clean"],
        "p_clean": [0.25, 1.0],
    }


def test_an_export_has_a_mark_and_room_for_corrections(tmp_path: Path) -> None:
    for name in ("pairs.csv", "pairs.parquet"):
        pairs_file.write(tmp_path / name, table(["猫"]))
        assert list(pairs_file.read(tmp_path / name).correction) == [""]
    assert (tmp_path / "pairs.csv").read_bytes().startswith(b"\xef\xbb\xbfslot_id,")


def test_corrections_are_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.touch()
    pairs_file.write(path, table(["猫", "犬"]))
    pairs_file.write(path, table(["猫", "犬"]).assign(correction=["gato", ""]))
    for text in (None, "slot_id,verdict,corrección\na,clean,gato\n", "slot_id,verdict,correction\na,,gato\n"):
        path.write_bytes(text.encode() if text else path.read_bytes())
        before = path.read_bytes()
        with pytest.raises(UsageError, match=rf"{path} "):
            pairs_file.write(path, table(["猫", "犬"]))
        assert path.read_bytes() == before


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pairs.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "nul.csv").write_bytes(b"slot_id\n\0\n")
    with zipfile.ZipFile(tmp_path / "cut.xlsx", "w") as book:
        book.writestr("[Content_Types].xml", "<Types")
    for name in ("pairs.parquet", "nul.csv", "cut.xlsx"):
        with pytest.raises(UsageError, match=str(tmp_path / name)):
            pairs_file.read(tmp_path / name)
    with pytest.raises(UsageError, match=r"pairs\.ods"):
        pairs_file.read(tmp_path / "pairs.ods")
    with pytest.raises(UsageError, match=r"none\.csv") as absent:
        pairs_file.read(tmp_path / "none.csv")
    assert absent.value.hint == f"did you mean {str(tmp_path / 'nul.csv')!r}?"
    with pytest.raises(UsageError, match=str(tmp_path / "none")):
        pairs_file.write(tmp_path / "none" / "pairs.csv", table(["a"]))
