"""Translations made elsewhere, as people have them: TSV, JSON lines, NRCCR's caption files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import toy
from toy import translated

from ccr_cli.artifacts import translation
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.translators import recorded
from ccr_cli.translators.base import Translation


def make(table: Path, dataset_dir: Path | None = None) -> recorded.Translator:
    config = recorded.Config(table=str(table))
    return recorded.Translator("en", "de", config, dataset_dir=dataset_dir, device="cpu")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    toy.ok("data", "import", toy.toy().write(tmp_path / "toy"), workspace=tmp_path / "workspace")
    return tmp_path / "workspace"


def captions(folder: toy.Folder, ending: str = "") -> list[str]:
    """Lines of a caption file: every English caption in capitals."""
    return [
        f"{item}{ending}#enc2de#{k} {text.upper()}" for _, item, lang, k, text, _ in folder.captions if lang == "en"
    ]


def test_json_lines(tmp_path: Path) -> None:
    table = tmp_path / "mine.jsonl"
    rows = [
        {"source": "a dog", "target": "ein Hund", "score": -0.25, "model": "mine"},
        {"source": "cafe\u0301", "target": "ein\nCafe\u0301", "score": None},
        {"source": "nothing", "target": " "},
    ]
    table.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n", encoding="utf-8")
    assert translated(make(table), ["caf\u00e9", " a dog", "nothing", "x"]) == [
        Translation("ein\nCaf\u00e9"),
        Translation("ein Hund", -0.25),
        Translation(None, error="recorded as empty"),
        Translation(None, error="not recorded"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "a dog",
        "[1, 2]",
        '{"source": "a"}',
        '{"source": 1, "target": "b"}',
        '{"source": "a", "target": "b", "score": "x"}',
        f'{{"source": "a", "target": "b", "score": {10**400}}}',
    ],
)
def test_lines_that_are_none(line: str, tmp_path: Path) -> None:
    table = tmp_path / "mine.jsonl"
    table.write_text(f'{{"source": "a dog", "target": "ein Hund"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"mine\.jsonl, line 2: "):
        make(table)


def test_json_lines_that_contradict_each_other(tmp_path: Path) -> None:
    table = tmp_path / "mine.jsonl"
    table.write_text("".join(f'{{"source": "a", "target": "{target}"}}\n' for target in "bbc"), encoding="utf-8")
    with pytest.raises(ArtifactError, match="line 3: 'a'"):
        make(table)


def test_half_a_character_is_no_translation(root: Path, tmp_path: Path) -> None:
    """JSON can say it, Parquet cannot hold it."""
    table = tmp_path / "mine.jsonl"
    rows = [{"source": row[4], "target": "x \U0001f600"} for row in toy.toy().captions if row[2] == "en"]
    rows[0]["target"] = "x \ud83d"
    table.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    call = ("translate", "--lang", "de", "--engine", "recorded", "--set", f"table={table}")
    done = toy.ccr(*call, workspace=root)
    assert done.code == 3
    frame = translation.read(done.made).set_index("source_caption_id")
    assert list(frame.index[frame["status"] == "failed"]) == ["red-circle-en0"]
    assert frame.loc["red-circle-en1", "text"] == "x \U0001f600"
    assert "UTF-16" in (done.made.path / "failures.jsonl").read_text()


@pytest.mark.parametrize("more", [("--back",), ("--with-queries",), ("--rounds", "2")])
def test_a_caption_file_is_of_one_direction(more: tuple[str, ...], root: Path, tmp_path: Path) -> None:
    """Its lines name the English captions, so none is a translation of a Spanish one of the same number."""
    table = tmp_path / "x_enc2es.caption.txt"
    table.write_text("\n".join(captions(toy.toy())), encoding="utf-8")
    call = ("translate", "--lang", "es", "--engine", "recorded", "--set", f"table={table}")
    done = toy.ccr(*call, *more, workspace=root)
    assert (done.code, done.out) == (2, "") and "in en" in done.err and "in es" in done.err


@pytest.mark.parametrize("ending", ["", ".jpg"])
def test_a_caption_file(ending: str, root: Path, tmp_path: Path) -> None:
    table = tmp_path / "toytrain_google_enc2de.caption.txt"
    table.write_text("\n".join(captions(toy.toy(), ending)[::-1]) + "\nsomething-else#enc2de#0 x", encoding="utf-8")
    call = ("translate", "--lang", "de", "--engine", "recorded", "--set", f"table={table}")
    made = toy.ok(*call, workspace=root).made
    frame = translation.read(made).set_index("source_caption_id")
    assert frame.loc["red-circle-en0", "text"] == "RED CIRCLE" and len(frame) == 96
    assert made.request["set.table"].startswith("sha256:")


def test_captions_of_one_text_with_two_translations(root: Path, tmp_path: Path) -> None:
    folder = toy.toy()
    lines = captions(folder)
    folder.captions = [row for row in folder.captions if row[2] == "en"]
    folder.captions[2][4] = folder.captions[0][4]
    place = toy.ok("data", "import", folder.write(tmp_path / "same"), "--force", workspace=root).paths[-1]
    table = tmp_path / "x.caption.txt"
    table.write_text("\n".join(lines), encoding="utf-8")
    first, second = folder.captions[0], folder.captions[2]
    text, other = lines[0].split(" ", 1)[1], lines[2].split(" ", 1)[1]
    assert text != other and translated(make(table, place), [first[4]]) == [Translation(text)]
    call = ("translate", "--lang", "de", "--engine", "recorded", "--set", f"table={table}")
    made = translation.read(toy.ok(*call, place, workspace=root).made).set_index("source_caption_id")["text"]
    assert (made[first[0]], made[second[0]]) == (text, other), "each caption has its own line"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("red-circle#enc2de x", "line 1: .*'red-circle#enc2de x'"),
        ("\nother#de#0 x\n", r"x\.caption\.txt .*\ben$"),
        ("", r"x\.caption\.txt .*\ben$"),
    ],
)
def test_caption_files_that_are_none(content: str, message: str, root: Path, tmp_path: Path) -> None:
    table = tmp_path / "x.caption.txt"
    table.write_text(content, encoding="utf-8")
    with pytest.raises(ArtifactError, match=message):
        make(table, root / "datasets" / "toy")
    with pytest.raises(UsageError, match=r"x\.caption\.txt"):
        make(table)
    table.write_bytes(b"red-circle#de#0 \xff\n")
    with pytest.raises(ArtifactError, match=r"x\.caption\.txt, line 1: .*UTF-8"):
        make(table, root / "datasets" / "toy")


def test_two_captions_of_a_number(tmp_path: Path) -> None:
    folder = toy.toy()
    folder.captions[1][3], folder.captions[1][5] = "0", "another"
    one, other = folder.captions[0], folder.captions[1]
    text, other[4] = other[4], one[4]
    place = toy.ok("data", "import", folder.write(tmp_path / "same"), workspace=tmp_path / "v").paths[-1]
    table = tmp_path / "y.caption.txt"
    table.write_text(f"{one[1]}#de#0 ein Kreis\n", encoding="utf-8")
    assert translated(make(table, place), [one[4]]) == [Translation("ein Kreis")], "of the same text: a line for both"
    other[4] = text
    place = toy.ok("data", "import", folder.write(tmp_path / "two"), workspace=tmp_path / "w").paths[-1]
    table = tmp_path / "x.caption.txt"
    table.write_text("\n".join(captions(folder)), encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"\bred-circle\b.*\b0\b.*\ben$"):
        make(table, place)
