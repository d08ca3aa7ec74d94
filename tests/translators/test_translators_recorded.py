"""Replaying recorded tables: exact lookup after NFC, the manifest's order, honest failures."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from toy import translated

from ccr_cli.errors import ArtifactError, UnavailableError, UsageError
from ccr_cli.translators import apertium, recorded
from ccr_cli.translators.base import Translation

MANIFEST = """
name = "small"
[[translations]]
source = "en"
target = "es"
engine = "apertium"
version = "3.8"
command = "apertium -u eng-spa"
file = "translations/apertium-en-es.tsv"
[[translations]]
source = "en"
target = "zh-Hans"
engine = "baidu"
file = "baidu-2016-en-zh-Hans.tsv"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tables = tmp_path / "translations"
    tables.mkdir()
    (tmp_path / "manifest.toml").write_text(MANIFEST, encoding="utf-8")
    rows = [
        "source\ttarget",
        "a dog\tun perro",
        "caf\u00e9\tun cafe",
        "a\\tb \\\\n\tx\\ny",
        "lost\t",
        "a dog\tun perro",
    ]
    (tables / "apertium-en-es.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tables / "google-en-es.tsv").write_text("source\ttarget\na dog\tun can\n", encoding="utf-8")
    (tables / "baidu-2016-en-zh-Hans.tsv").write_text("source\ttarget\na dog\t\u72d7\n", encoding="utf-8")
    (tables / "my-engine-es-en.tsv").write_text("source\ttarget\nperro\tdog\n", encoding="utf-8")
    (tables / "notes.tsv").write_text("anything", encoding="utf-8")
    return tmp_path


def make(source: str, target: str, folder: Path | None, **options: str) -> recorded.Translator:
    return recorded.Translator(source, target, recorded.Config(**options), dataset_dir=folder, device="cpu")


def test_exact_lookup(folder: Path) -> None:
    texts = ["a dog", "cafe\u0301", " a dog ", "A dog", "a\tb \\n", "", "lost", "a dog"]
    results = translated(make("en", "es", folder), texts)
    assert results == [
        Translation("un perro"),
        Translation("un cafe"),
        Translation("un perro"),
        Translation(None, error="not recorded"),
        Translation("x\ny"),
        Translation(""),
        Translation(None, error="recorded as empty"),
        Translation("un perro"),
    ]


def test_pairs_are_what_is_there(folder: Path, tmp_path: Path) -> None:
    assert recorded.pairs(folder) == [("en", "es"), ("en", "zh-Hans"), ("es", "en")]
    assert recorded.pairs(None) == []
    (folder / "translations" / "baidu-2016-en-zh-Hans.tsv").unlink()
    assert ("en", "zh-Hans") not in recorded.pairs(folder)


def test_the_manifest_says_what_made_a_table(folder: Path) -> None:
    facts = make("en", "es", folder).describe()
    assert facts["engine"] == "recorded" and facts["model"] == "apertium"
    assert (facts["version"], facts["command"]) == ("3.8", "apertium -u eng-spa")
    assert make("es", "en", folder).describe()["model"] == "my-engine"


def test_another_engine_of_the_same_pair(folder: Path) -> None:
    assert translated(make("en", "es", folder, engine="google"), ["a dog"]) == [Translation("un can")]
    with pytest.raises(UnavailableError, match=r"en->es.*deepl") as caught:
        make("en", "es", folder, engine="deepl")
    assert "en->es (google)" in (caught.value.hint or "")


def test_a_pair_that_is_not_recorded(folder: Path) -> None:
    with pytest.raises(UnavailableError, match="en->de") as caught:
        make("en", "de", folder)
    assert "recorded pairs: en->es, en->zh-Hans, es->en;" in (caught.value.hint or "")
    assert ("--engine apertium" in (caught.value.hint or "")) == apertium.reaches("en", "de")
    with pytest.raises(UnavailableError, match="en->de"):
        make("en", "de", None)


def test_a_table_of_the_users(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "mine.tsv"
    table.write_bytes("\ufeffsource\ttarget\r\na dog\tein Hund\r\n".encode())
    assert translated(make("en", "de", None, table=str(table)), ["a dog", "x"]) == [
        Translation("ein Hund"),
        Translation(None, error="not recorded"),
    ]
    with pytest.raises(UsageError, match=r"--set table: there is no .*none\.tsv"):
        make("en", "de", None, table=str(tmp_path / "none.tsv"))


@pytest.mark.parametrize(
    ("name", "encoding", "delimiter"), [("a.csv", "utf-8-sig", ","), ("a.csv", "cp1252", ";"), ("a.xlsx", "", "")]
)
def test_a_spreadsheet_of_the_users(name: str, encoding: str, delimiter: str, tmp_path: Path) -> None:
    rows = pd.DataFrame({"note": ["x", "y"], "Source": ["a dog", "a, b"], "target": ["ein Hund; groß", "a\\nb"]})
    path = tmp_path / name
    rows.to_csv(path, index=False, sep=delimiter, encoding=encoding) if encoding else rows.to_excel(path, index=False)
    found = translated(make("en", "de", None, table=str(path)), ["a dog", "a, b"])
    assert found == [Translation("ein Hund; groß"), Translation("a\\nb")]
    pd.DataFrame({"english": ["a"], "german": ["b"]}).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(ArtifactError, match="'english, german'"):
        make("en", "de", None, table=str(tmp_path / "b.csv"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"source\ttarget\na\tb\na\tc\n", "line 3: 'a'"),
        (b"source\ttarget\na\n", r"line 2: .*\b1\b.*\b2\b"),
        (b"a\tb\n", "line 1: .*'a, b'.* source, target, .caption_id.$"),
        (b"source,target\na,b\n", "line 1: .*'source,target'.* source, target, .caption_id.$"),
        (b"", "line 1: .*''.* source, target, .caption_id.$"),
        (b"source\ttarget\na\\tb\\n\\r\\\\q\tb\na\\qb\tc\n", r"line 3: .*\\q$"),
        (b"source\ttarget\na\tb\\\n", r"line 2: .*\\$"),
        (b"source\ttarget\n\xff\tb\n", "line 2: .*UTF-8"),
    ],
)
def test_damaged_tables(tmp_path: Path, content: bytes, message: str) -> None:
    table = tmp_path / "bad.tsv"
    table.write_bytes(content)
    with pytest.raises(ArtifactError, match=message):
        make("en", "de", None, table=str(table))


@pytest.mark.parametrize("name", ["table.tsv.gz", "table.txt", "table", "table.tsv"])
def test_a_table_in_a_format_that_is_not_read(name: str, tmp_path: Path) -> None:
    place = tmp_path / name
    if name == "table.tsv":
        place.mkdir()
    else:
        place.write_text("source\ttarget\na\tb\n")
    for make_it in (
        lambda: make("en", "de", None, table=str(place)),
        lambda: recorded.identity(recorded.Config(str(place))),
    ):
        with pytest.raises(UsageError, match=rf"{re.escape(str(place))} .*\*\.tsv, .*\*\.jsonl, \*\.caption\.txt"):
            make_it()


def test_a_manifest_cannot_point_out_of_the_folder(folder: Path) -> None:
    outside = folder.parent / "outside.tsv"
    outside.write_text("source\ttarget\n", encoding="utf-8")
    text = MANIFEST.replace("baidu-2016-en-zh-Hans.tsv", "../outside.tsv")
    (folder / "manifest.toml").write_text(text.replace('"zh-Hans"', '"tr"'), encoding="utf-8")
    assert ("en", "tr") not in recorded.pairs(folder)
    (folder / "manifest.toml").write_text("name = ", encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"manifest\.toml"):
        recorded.pairs(folder)
