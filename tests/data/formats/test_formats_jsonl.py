"""JSON lines and lists of objects: three collections' layouts, one's own, and lines that do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ccr_cli.data.formats.base import Record
from ccr_cli.data.formats.jsonl import jsonl
from ccr_cli.errors import ArtifactError

OFFICIAL = Path(__file__).parents[2] / "fixtures" / "formats"


def test_json_lines_by_language() -> None:
    """Crossmodal-3600."""
    path = OFFICIAL / "crossmodal3600_captions.jsonl"
    read = list(jsonl(path, item="image/key", text="caption", by_lang=True))
    assert [(r.item, r.lang, r.k, r.text) for r in read] == [
        ("00a1b2c3d4e5f607", "de", 0, "Ein See im Gebirge"),
        ("00a1b2c3d4e5f607", "de", 1, "Blauer Bergsee"),
        ("00a1b2c3d4e5f607", "fil", 0, "Isang lawa sa bundok"),
        ("0f0e0d0c0b0a0908", "de", 0, "Ein Markt am Abend"),
        ("0f0e0d0c0b0a0908", "fil", 0, "Palengke sa gabi"),
        ("0f0e0d0c0b0a0908", "fil", 1, "Mga tindahan"),
    ]
    assert read[5].where == "crossmodal3600_captions.jsonl, line 2, fil.caption[1]"


def test_json_lines_of_xflickrco() -> None:
    path = OFFICIAL / "xflickrco_de_test.jsonl"
    assert list(jsonl(path, item="id", text="sentences", media="img_path"))[1] == Record(
        item="COCO_val2014_000000990007",
        text="Zwei Tassen stehen im Regal.",
        where="xflickrco_de_test.jsonl, line 2, sentences[0]",
        k=0,
        media="COCO_val2014_000000990007.jpg",
    )


def test_a_list_of_objects_reads_like_lines() -> None:
    """CCLM."""
    read = list(jsonl(OFFICIAL / "cclm_ja_test.json", item="image_id", text="caption", media="image"))
    assert [(r.item, r.k, r.text, r.media[-12:]) for r in read] == [
        ("990001", 0, "赤い凧", "00990001.jpg"),
        ("990001", 1, "畑と凧", "00990001.jpg"),
        ("990007", 0, "棚のカップ", "00990007.jpg"),
    ]
    assert read[1].where == "cclm_ja_test.json, [0].caption[1]"


def test_lines_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    row = {
        "item_id": "-a",
        "text": "x\u2028y",
        "split": "val",
        "lang": "de",
        "k": 3,
        "caption_set": "web",
        "media": "m/-a.png",
        "caption_id": 77,
        "label": 0,
    }
    rest = {"item_id": "b", "text": "", "lang": None, "other": float("nan")}
    path.write_text(f"\ufeff{json.dumps(row, ensure_ascii=False)}\r\n\r\n \n{json.dumps(rest)}", "utf-8", newline="")
    first, second = jsonl(path)
    assert first == Record("-a", "x\u2028y", "own.jsonl, line 1, text", "de", 3, "val", "m/-a.png", "77", "web", 0)
    assert second == Record("b", "", "own.jsonl, line 4, text")


def test_lines_that_do_not_fit_are_said_with_their_number(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    good: dict[str, Any] = {"item_id": "a", "text": "b"}
    for change, message in (
        ({"item_id": None}, "line 2: item_id"),
        ({"text": 3}, r"line 2, text: .*\b3\b"),
        ({"text": {}}, "line 2, text: .*{}"),
        ({"text": ["b", 3]}, r"line 2, text\[1\]: .*\b3\b"),
        ({"k": 10**9}, "line 2, k: .*1000000000"),
        ({"k": -1}, "line 2, k: .*-1"),
        ({"k": "0"}, "line 2, k: .*'0'"),
        ({"k": float("nan")}, "line 2, k: .*nan"),
        ({"label": 1.0}, r"line 2, label: .*1\.0"),
        ({"lang": ["de"]}, "line 2, lang: .*'de'"),
    ):
        path.write_text(f"{json.dumps(good)}\n{json.dumps(good | change)}\n")
        with pytest.raises(ArtifactError, match=message):
            list(jsonl(path))
    for line, message in (
        ('{"item_id": "a", "text": "b"', r"line 2\b"),
        ('{"item_id": "a", "text": "b", "text": "c"}', r"line 2\b.*'text'"),
        ('"a"', "line 2: .*'a'"),
        ('{"a":' * 100_000, r"line 2\b"),
        ("item_id,text", r"line 2\b"),
    ):
        path.write_text(f"{json.dumps(good)}\n{line}\n")
        with pytest.raises(ArtifactError, match=message):
            list(jsonl(path))


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_bytes(b"")
    assert list(jsonl(path)) == []


def test_an_object_without_languages_is_said(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(
        '{"item_id": "a", "de": {"caption": ["x"]}, "meta": {"n": 1}}\n{"item_id": "b", "meta": {"n": 1}}\n'
    )
    with pytest.raises(ArtifactError, match=r"line 2: .*'caption'"):
        list(jsonl(path, text="caption", by_lang=True))
