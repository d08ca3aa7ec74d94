"""`ccr data import FILE` alone: columns, delimiter, encoding, pictures and splits are found out, and said."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
import toy
from PIL import Image

from ccr_cli.artifacts import base, dataset, translation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data import assemble

CAPTIONS = {"a.jpg": "a red shoe", "b.jpg": "a blue shoe", "c.jpg": "a hat", "d.jpg": "Café au lait"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four different pictures in the current folder."""
    monkeypatch.chdir(tmp_path)
    draw(tmp_path, *CAPTIONS)
    return tmp_path


def draw(folder: Path, *names: str) -> None:
    """Draws a picture of random cells for each name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        cells = np.random.default_rng(list(name.encode())).integers(0, 256, (9, 9, 3), dtype=np.uint8)
        Image.fromarray(cells).resize((36, 36), Image.Resampling.NEAREST).save(folder / name, quality=95)


def run(*arguments: str | Path) -> toy.Outcome:
    return toy.ccr("data", "import", *arguments, workspace=Path("space"))


def products(*arguments: str | Path) -> tuple[toy.Outcome, dataset.Dataset]:
    done = run(*arguments)
    assert done.code == 0, done.err
    return done, dataset.read(done.made)


def save(frame: pd.DataFrame, name: str) -> None:
    """Writes a table in the format of the file's name."""
    match Path(name).suffix:
        case ".csv":
            frame.to_csv(name, index=False)
        case ".parquet":
            frame.to_parquet(name)
        case ".xlsx":
            frame.to_excel(name, index=False)
        case _:
            frame.to_json(name, orient="records", lines=True)


def write(
    path: str,
    *rows: tuple[str, ...],
    delimiter: str = ",",
    encoding: str = "utf-8",
    end: str = "\n",
    above: str = "",
) -> None:
    text = above + "".join(delimiter.join(row) + end for row in rows)
    Path(path).write_bytes(text.encode(encoding))


def table(path: str, header: tuple[str, ...] = ("image", "caption"), **more: str) -> None:
    write(path, header, *CAPTIONS.items(), **more)


def content(data: dataset.Dataset) -> dict[str, str]:
    """The texts by medium."""
    both = data.items.merge(data.captions, on="item_id")
    return dict(zip(both["media"], both["text"], strict=True))


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("products.csv", {}),
        ("products.csv", {"delimiter": ";", "end": "\r\n", "encoding": "utf-8-sig"}),
        ("products.csv", {"delimiter": ";", "above": "sep=;\n"}),
        ("products.tsv", {"delimiter": "\t"}),
        ("products.txt", {"delimiter": "\t", "encoding": "utf-16"}),
        ("products.csv", {"delimiter": "|", "encoding": "cp1252"}),
    ],
)
def test_a_table_alone_is_enough(name: str, more: dict[str, str], here: Path) -> None:
    table(name, (" Image ", "CAPTION"), **more)
    done, data = products(name)
    assert content(data) == CAPTIONS and data.source_lang == "en"
    assert list(data.items["item_id"]) == ["a", "b", "c", "d"]
    assert dataset.media_root(data.artifact) == here
    assert "'Image'" in done.err and "--columns text=NAME,media=NAME" in done.err and "--lang LANG" in done.err
    assert "4 items" in done.err and "4 of 4 pictures" in done.err and "4 en" in done.err
    assert ("cp1252" in done.err) == (more.get("encoding") == "cp1252")


def write_excel(path: str, header: tuple[str, ...]) -> None:
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    for row in (header, *CAPTIONS.items()):
        sheet.append(row)
    book.save(path)


def write_lines(path: str, header: tuple[str, ...]) -> None:
    rows = [dict(zip(header, row, strict=True)) for row in CAPTIONS.items()]
    Path(path).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def write_list(path: str, header: tuple[str, ...]) -> None:
    rows = [dict(zip(header, row, strict=True)) for row in CAPTIONS.items()]
    Path(path).write_text(json.dumps(rows), encoding="utf-8")


def write_parquet(path: str, header: tuple[str, ...]) -> None:
    pd.DataFrame(list(CAPTIONS.items()), columns=list(header)).to_parquet(path)


WRITERS = {
    "own.csv": table, "own.jsonl": write_lines, "own.ndjson": write_lines, "own.json": write_list,
    "own.parquet": write_parquet, "own.xlsx": write_excel,
}  # fmt: skip


IN_EACH_FORMAT = [
    "own.csv",
    *(pytest.param(f"own.{ending}", marks=pytest.mark.slow) for ending in ("jsonl", "parquet", "xlsx")),
]
"""The fast test that follows is of every format."""


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_has_one_spelling_of_the_columns(name: str, here: Path) -> None:
    WRITERS[name](name, ("photo", "description"))
    assert content(products(name, "--name", "guessed")[1]) == CAPTIONS
    WRITERS[name](name, ("what", "words"))
    done, data = products(name, "--name", "by-content")
    assert content(data) == CAPTIONS and "--columns text=NAME,media=NAME" in done.err
    for spelling in ("text=words,media=what", "caption=words,image=what"):
        assert content(products(name, "--columns", spelling)[1]) == CAPTIONS
    twice = run(name, "--columns", "text=words,media=what,photo=more")
    assert twice.code == 2 and "'what'" in twice.err and "'more'" in twice.err
    wrong = run(name, "--columns", "text=wrds,media=what")
    assert wrong.code == 4 and "'wrds'" in wrong.err and "--columns text=words" in wrong.err


def test_coco_and_karpathy_are_told_by_their_content(here: Path) -> None:
    images = [{"id": number, "file_name": name} for number, name in enumerate(CAPTIONS)]
    texts = [{"id": n, "image_id": n, "caption": text} for n, text in enumerate(CAPTIONS.values())]
    Path("coco.json").write_text(json.dumps({"images": images, "annotations": texts}), encoding="utf-8")
    assert content(products("coco.json")[1]) == CAPTIONS
    sentences = [
        {"filename": name, "split": split, "sentences": [{"raw": text}]}
        for (name, text), split in zip(CAPTIONS.items(), ("train", "train", "val", "test"), strict=True)
    ]
    Path("karpathy.json").write_text(json.dumps({"images": sentences}), encoding="utf-8")
    data = products("karpathy.json")[1]
    assert content(data) == CAPTIONS and list(data.items["split"]) == ["train", "train", "val", "test"]
    Path("other.json").write_text('{"captions": []}', encoding="utf-8")
    assert run("other.json").code == 2


def test_a_folder_of_pictures_with_their_captions(here: Path) -> None:
    draw(here / "shop", "a.jpg", "sub.b.jpg", "lone.jpg", "c.png")
    draw(here / "shop/deep", "a.jpg")
    for name, text in {
        "a.txt": "a shoe\r\n\r\n  \r\na red shoe\r\n", "sub.b.txt": "a hat", "deep/a.en.txt": "a box",
        "deep/a.de.txt": "eine Kiste", "notes.txt": "no picture", "c.json": '{"caption": ["a cap", "a blue cap"]}',
        ".hidden.txt": "x",
    }.items():  # fmt: skip
        (here / "shop" / name).write_bytes(text.encode())
    done, data = products("shop")
    assert list(data.items["media"]) == ["a.jpg", "c.png", "deep/a.jpg", "sub.b.jpg"]
    texts = data.captions.groupby(["item_id", "lang"])["text"].apply(list).to_dict()
    assert texts == {
        ("a", "en"): ["a shoe", "a red shoe"], ("c", "en"): ["a cap", "a blue cap"], ("deep/a", "de"): ["eine Kiste"],
        ("deep/a", "en"): ["a box"], ("sub.b", "en"): ["a hat"],
    }  # fmt: skip
    assert "lone.jpg" in done.err and "notes.txt" in done.err and data.name == "shop"
    assert dataset.media_root(data.artifact) == here / "shop"
    (here / "shop").rename(here / "moved")
    (here / "moved/a.txt").write_bytes(b"a shoe\r\n\r\n  \r\na red shoe\r\n")
    (here / "shop").mkdir()
    assert run("moved", "--name", "shop", "--media-root", "shop").made.id == data.artifact.id


def test_a_folder_without_captions_says_what_is_expected(here: Path) -> None:
    draw(here / "shop", "a.jpg")
    done = run("shop")
    assert done.code == 4 and "a.txt" in done.err
    table("shop/products.csv")
    assert "shop/products.csv" in run("shop").err


@pytest.mark.parametrize("folder", [".", "images", "product shots"])
def test_pictures_are_found_near_the_file(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw(tmp_path / "data/few", "a.jpg", "b.jpg")
    draw(tmp_path / "data/.hidden", *CAPTIONS)
    draw(tmp_path / "data" / folder, *CAPTIONS)
    table("data/products.csv")
    done, data = products("data/products.csv")
    assert dataset.media_root(data.artifact) == (tmp_path / "data" / folder).resolve()
    assert "4 of 4" in done.err
    assert list(data.items["media"]) == [*CAPTIONS]


def test_missing_pictures_are_counted(here: Path) -> None:
    table("products.csv")
    Path("b.jpg").unlink()
    done, _ = products("products.csv")
    assert "3 of 4 pictures" in done.err and "b.jpg" in done.err and "--media-root" in done.err
    assert "1 pictures could not be compared" in done.err
    Path("b.JPG").touch()
    assert "there is b.JPG" in run("products.csv").err
    assert run("products.csv", "--media-root", "nowhere").code == 2


def test_paths_of_windows_are_found(here: Path) -> None:
    draw(here / "photos", *CAPTIONS)
    write("products.csv", ("image", "caption"), *((rf"photos\{name}", text) for name, text in CAPTIONS.items()))
    _, data = products("products.csv")
    assert set(data.items["media"]) == {f"photos/{name}" for name in CAPTIONS}


def test_a_large_file_in_utf_16_is_refused_whole(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table("products.csv", encoding="utf-16")
    monkeypatch.setattr("ccr_cli.data.formats.base.LARGEST_JSON", 100)
    done = run("products.csv")
    assert done.code == 4 and "products.csv" in done.err and "UTF-8" in done.err


def test_a_header_that_is_too_long_is_refused(here: Path) -> None:
    Path("products.csv").write_text("a" * 200_000 + ",caption\nx,y\n", encoding="utf-8")
    done = run("products.csv")
    assert done.code == 4 and "products.csv, line 1" in done.err


def test_absolute_paths_are_stored_below_their_folder(here: Path) -> None:
    draw(here / "deep", "e.jpg")
    rows = [(str(here / name), text) for name, text in CAPTIONS.items()]
    write("products.csv", ("image", "caption"), *rows, (str(here / "deep/e.jpg"), "a box"))
    Path("elsewhere").mkdir()
    Path("products.csv").rename("elsewhere/products.csv")
    _, data = products("elsewhere/products.csv")
    assert dataset.media_root(data.artifact) == here
    assert [*data.items["media"]] == [*CAPTIONS, "deep/e.jpg"] and [*data.items["item_id"]][-1] == "deep/e"


def test_the_same_content_is_the_same_data_set(here: Path) -> None:
    table("products.csv")
    first = run("products.csv").made
    draw(here / "other/images", *CAPTIONS)
    table("other/products.csv")
    second = toy.ccr("data", "import", "other/products.csv", workspace=Path("second")).made
    assert first.id == second.id and first.path != second.path
    assert run("products.csv", "--name", "more", "--split", "auto:7").made.id != first.id


def test_captions_are_kept_in_blocks(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table("whole.csv")
    _, whole = products("whole.csv")
    for size in (1, 3, len(CAPTIONS)):
        monkeypatch.setattr(assemble, "_BLOCK", size)
        _, blocks = products("whole.csv", "--name", f"blocks-{size}")
        pd.testing.assert_frame_equal(blocks.captions, whole.captions)


def test_an_item_may_have_many_rows_and_equal_ones_count_once(here: Path) -> None:
    rows = [*CAPTIONS.items(), ("a.jpg", "a trainer"), ("a.jpg", " a red shoe"), ("b.jpg", "a red shoe")]
    write("products.csv", ("image", "caption"), *rows)
    done, data = products("products.csv")
    assert data.captions.groupby("item_id")["text"].apply(list)["a"] == ["a red shoe", "a trainer"]
    assert "1 caption left out" in done.err and len(data.captions) == 6
    exact = run("--format", "captions-csv", "products.csv", "--name", "exact").made
    assert len(dataset.read(exact).captions) == 7, "a named format is read to the letter"


def test_ids_that_number_rows_do_not_name_items(here: Path) -> None:
    write("rows.csv", ("id", "image", "caption"), ("1", "a.jpg", "x"), ("2", "a.jpg", "y"), ("3", "b.jpg", "z"),
          ("4", "c.jpg", "q"))  # fmt: skip
    done, data = products("rows.csv")
    assert [*data.items["item_id"]] == ["a", "b", "c"] and "--columns item_id=id" in done.err
    for part in ("'a.jpg'", "'1'", "'2'", "line 2", "line 3"):
        assert part in done.err
    write("skus.csv", ("sku", "image", "caption"), ("1", "a.jpg", "x"), ("1", "a.jpg", "y"), ("2", "b.jpg", "z"),
          ("3", "c.jpg", "q"))  # fmt: skip
    assert [*products("skus.csv")[1].items["item_id"]] == ["1", "2", "3"]
    write("two.csv", ("item_id", "image", "caption"), ("1", "a.jpg", "x"), ("1", "b.jpg", "y"))
    refused = run("two.csv")
    assert refused.code == 4 and "two.csv, line 3" in refused.err and "--columns item_id=" in refused.err
    write("two.csv", ("item_id", "image", "caption"), ("1", "a.jpg", "x"), ("1", "b.jpg", "y"), ("1", "c.jpg", "z"))
    assert [*products("two.csv", "--columns", "item_id=")[1].items["item_id"]] == ["a", "b", "c"]


def test_names_that_differ_in_their_ending_are_two_items(here: Path) -> None:
    draw(here, "a.png")
    write("products.csv", ("image", "caption"), *CAPTIONS.items(), ("a.png", "another"), ("a.jpg", "again"))
    _, data = products("products.csv")
    assert dict(zip(data.items["item_id"], data.items["media"], strict=True)) == {
        "a": "a.jpg", "b": "b.jpg", "c": "c.jpg", "d": "d.jpg", "a.png": "a.png"
    }  # fmt: skip


def test_the_first_of_two_candidates_wins_and_is_named(here: Path) -> None:
    write("products.csv", ("title", "caption", "image"), *[("x", text, name) for name, text in CAPTIONS.items()])
    done, data = products("products.csv")
    assert content(data) == CAPTIONS and "title" in done.err
    _, data = products("products.csv", "--columns", "text=title", "--name", "titles")
    assert {*content(data).values()} == {"x"}


def test_columns_of_unknown_names_are_guessed_by_what_they_hold(here: Path) -> None:
    rows = [(f"A-{n}", "Ärmel & Co", k, v, f"mot à mot, {v}") for n, (k, v) in enumerate(CAPTIONS.items())]
    header = ("Artikel", "Marke", "Bild", "Beschreibung EN", "Traduction auto")
    write("preise.csv", header, *rows, delimiter=";", encoding="cp1252")
    done, data = products("preise.csv")
    assert content(data) == CAPTIONS and "--columns text=NAME,media=NAME" in done.err
    assert "not read: 'Artikel', 'Marke', 'Traduction auto'; " in done.err and "mt.LANG=NAME" in done.err
    write("preise.csv", ("Bild", "Preis"), *[(key, "12,90") for key in CAPTIONS])
    assert "known for the text" in run("preise.csv", "--name", "none").err


@pytest.mark.parametrize("name", IN_EACH_FORMAT)
@pytest.mark.parametrize(
    ("header", "columns"),
    [
        (("Nr", "image", "English", "Spanish (MT)"), ""),
        (("Nr", "image", "caption", "mt_es"), ""),
        (("Nr", "image", "caption", "Übersetzung (ES)"), ""),
        (("Nr", "image", "caption", "Traduction auto ES"), ""),
        (("Nr", "image", "a", "b"), "text=a,mt.es=b"),
    ],
)
def test_a_column_of_machine_translations_is_recorded(
    name: str, header: tuple[str, ...], columns: str, here: Path
) -> None:
    spanish = {"a red shoe": "un zapato rojo", "a blue shoe": "un zapato azul", "a hat": "un sombrero"}
    rows = [(n, key, text, spanish.get(text)) for n, (key, text) in enumerate(CAPTIONS.items())]
    later = [(9, "d.jpg", "a hat", "una gorra"), (10, "d.jpg", "a hat", "un gorro"), (11, "a.jpg", "a hat", "")]
    frame = pd.DataFrame([*rows, *later], columns=header)
    save(frame, name)
    done, data = products(name, *(["--columns", columns] if columns else []))
    assert set(data.captions["lang"]) == {"en"} and len(data.captions) == 6
    assert "6 captions in en, 5 with a translation into es" in done.err
    assert "not read: 'Nr'" in done.err
    made = toy.ccr("translate", "--lang", "es", workspace=Path("space"))
    assert made.code == 3, "one was not translated"
    sources = data.captions.set_index("caption_id")["text"]
    table = translation.read(made.made)
    made_of = set(zip(table["item_id"], table["source_caption_id"].map(sources), table["text"], strict=True))
    assert made_of == {
        ("a", "a red shoe", "un zapato rojo"), ("b", "a blue shoe", "un zapato azul"), ("c", "a hat", "un sombrero"),
        ("d", "Café au lait", None), ("d", "a hat", "una gorra"), ("a", "a hat", "un sombrero"),
    }, "each row has its own translation, or that of its text"  # fmt: skip
    again = toy.ccr("translate", "--lang", "es", "--retry-failed", workspace=Path("space"))
    assert translation.read(again.made).equals(table)


def test_an_item_without_a_picture_is_counted_and_needs_another_import(here: Path) -> None:
    write("own.csv", ("item_id", "image", "caption", "mt_es"), *[(k[0], k, t, f"{t} ES") for k, t in CAPTIONS.items()])
    Path("own.csv").write_text(Path("own.csv").read_text(encoding="utf-8").replace("b.jpg", ""), encoding="utf-8")
    assert "3 of 3 pictures or videos found in" in (done := run("own.csv")).err and "; 1 item without one" in done.err
    options = ("--encoder", "efficientnet-lite0", "--set", "image_size=32", "--max-failed", "0.5", "--device", "cpu")
    extracted = toy.ccr("extract", *options, workspace=Path("space"))
    assert extracted.code == 3 and "import it again with --force" in extracted.err
    assert "--retry-failed" not in extracted.err


def test_a_caption_without_a_translation_gets_one_from_a_list(here: Path) -> None:
    made_of = {"a red shoe": "ein roter Schuh", "a blue shoe": "ein blauer Schuh", "a hat": "ein Hut"}
    write("own.csv", ("image", "en", "mt_de"), *[(key, text, made_of.get(text, "")) for key, text in CAPTIONS.items()])
    data = products("own.csv")[1]
    done = toy.ccr("translate", "--lang", "de", "--engine", "recorded", "--max-failed", "0.5", workspace=Path("space"))
    assert done.code == 3 and "--only" in done.err and "--retry-failed" not in done.err
    ids = data.captions.set_index("text")["caption_id"]
    rows = [(ids["Café au lait"], "de", "", "Milchkaffee"), (ids["a hat"], "fr", "un chapeau", "le chapeau")]
    write("list.csv", ("source_caption_id", "lang", "translation", "correction"), *rows)
    mended = toy.ccr("translate", "--only", "list.csv", "--lang", "de", workspace=Path("space"))
    assert mended.code == 0 and "1 pair in fr" in mended.err
    texts = translation.read(mended.made).set_index("source_caption_id")["text"]
    assert dict(texts) == {ids[text]: made_of.get(text, "Milchkaffee") for text in CAPTIONS.values()}


def test_captions_with_translations_need_no_pictures(here: Path) -> None:
    write("words.csv", ("English", "German (MT)"), ("a shoe", "Schuh"), ("a hat", "Hut"), ("a cap", "Mütze"))
    _, data = products("words.csv")
    assert list(data.items["item_id"]) == ["words-csv-line-2", "words-csv-line-3", "words-csv-line-4"]
    assert data.items["media"].isna().all()
    write("numbered.csv", ("Nr", "English", "German (MT)"), *[(str(n), f"{n} hats", f"{n} Hüte") for n in range(3)])
    assert len(products("numbered.csv", "--name", "numbered")[1].items) == 3, "a column that means nothing is left out"
    several = run("words.csv", "--columns", "text=English,text=German (MT),mt.de=German (MT)")
    assert several.code == 2 and "English" in several.err
    none, data = products("words.csv", "--columns", "mt.de=,item_id=English", "--format", "captions-csv", "--name", "b")
    assert "with a translation" not in none.err


def test_languages_may_be_named(here: Path) -> None:
    write("own.csv", ("image", "caption", "language"), *[(*pair, "Spanish") for pair in CAPTIONS.items()])
    assert set(products("own.csv", "--lang", "es")[1].captions["lang"]) == {"es"}


def test_languages_are_written_as_usual(here: Path) -> None:
    rows = [(name, text, lang) for name, text in CAPTIONS.items() for lang in ("zh-cn", "zh_CN", "POR")]
    write("own.csv", ("image", "caption", "language"), *rows)
    _, data = products("own.csv", "--lang", "ZH-cn")
    assert set(data.captions["lang"]) == {"zh-CN", "pt"} and data.source_lang == "zh-CN"
    table("b.csv", ("image", "caption_pt_br"))
    table("c.csv")
    _, data = products("b.csv", "EN=c.csv", "--lang", "EN")
    assert set(data.captions["lang"]) == {"pt-BR", "en"}
    for name, header, columns in (("d", "mt_pt_br", ""), ("e", "x", "mt.pt-br=x")):
        rows = [(*pair, pair[1]) for pair in CAPTIONS.items()]
        write(f"{name}.csv", ("image", "caption", header), *rows)
        done, _ = products(f"{name}.csv", *(["--columns", columns] if columns else []))
        assert "4 with a translation into pt-BR" in done.err
    write("f.csv", ("media", "caption", "x"), *rows)
    done, _ = products("f.csv", "--set", "texts=caption:en,x:mt.pt-br")
    assert "4 with a translation into pt-BR" in done.err
    made = toy.ccr("translate", "f", "--lang", "pt-br", workspace=Path("space"))
    assert made.code == 0, made.err


def test_a_table_without_a_header_needs_the_names_in_order(here: Path) -> None:
    write("products.csv", *CAPTIONS.items())
    refused = run("products.csv")
    assert refused.code == 4 and "--columns media,text" in refused.err
    assert content(products("products.csv", "--columns", "image,caption")[1]) == CAPTIONS


@pytest.mark.parametrize(
    ("rows", "messages"),
    [
        ([("image", "caption"), ("a.jpg", "x"), ("", "y")], ["products.csv, line 3", "neither an id nor"]),
        ([("sku", "image", "caption"), ("1", "a.jpg", "x"), ("2", "", "y")], ["line 3", "'2'", "--media '{id}.jpg'"]),
        ([("sku", "caption"), ("1", "x"), ("2", "y")], ["line 2, line 3", "'1'", "2 items", "--columns media=YOURS"]),
        ([("image", "caption"), *[("", "x")] * 8], ["line 2, line 3,", "line 6 and 3 more", "8 rows"]),
        ([("image", "caption"), ("https://example.org/a.jpg", "x")], ["line 2", "example.org", "download"]),
        ([("image", "caption", "lang"), ("a.jpg", "x", "Elvish")], ["line 2", "'Elvish'", "--columns lang="]),
        ([("image", "caption", "split"), ("a.jpg", "x", "dawn")], ["line 2", "'dawn'", "--columns split="]),
        ([("image", "caption"), ("a.jpg", "x"), ("b.jpg", "y")], ["2 items", "train=FILE"]),
        ([("image", "caption")], ["no items", "products.csv"]),
        ([("image", "caption"), ("a.jpg",)], ["products.csv, line 2: 1 ", "2"]),
        ([], ["products.csv is empty"]),
    ],
)
def test_what_is_wrong_with_a_row_is_an_error_of_the_import(
    rows: list[tuple[str, ...]], messages: list[str], here: Path
) -> None:
    write("products.csv", *rows)
    done = run("products.csv")
    assert (done.code, done.out) == (4, ""), done.err
    for message in messages:
        assert message in done.err, done.err
    assert Workspace(Path("space")).artifacts() == []


@pytest.mark.parametrize("name", ["own.csv", "own.jsonl", "own.parquet"])
def test_a_guessed_column_with_other_values_is_left_out(name: str, here: Path) -> None:
    rows = [{"image": key, "caption": text, "label": "shirt", "k": 1.5} for key, text in CAPTIONS.items()]
    frame = pd.DataFrame(rows)
    match Path(name).suffix:
        case ".csv":
            frame.to_csv(name, index=False)
        case ".parquet":
            frame.to_parquet(name)
        case _:
            frame.to_json(name, orient="records", lines=True)
    done, data = products(name)
    assert content(data) == CAPTIONS and data.items["label"].isna().all()
    assert "'shirt'" in done.err and "1.5" in done.err and "--columns label=label" in done.err
    assert run(name, "--columns", "label=label").code == 4


@pytest.mark.parametrize("name", ["own.csv", "own.jsonl"])
def test_an_empty_caption_counts_as_none(name: str, here: Path) -> None:
    rows = [{"image": key, "caption": text} for key, text in CAPTIONS.items()]
    frame = pd.DataFrame([*rows, {"image": "d.jpg", "caption": None}, {"image": "a.jpg", "caption": ""}])
    frame.to_csv(name, index=False) if name.endswith("csv") else frame.to_json(name, orient="records", lines=True)
    done, data = products(name)
    first = 6 if name.endswith("csv") else 5
    assert content(data) == CAPTIONS and f"line {first}, line {first + 1}" in done.err, done.err


def test_an_id_that_some_rows_lack(here: Path) -> None:
    write("own.csv", ("sku", "image", "caption"), *[(key[0], key, text) for key, text in CAPTIONS.items()])
    text = Path("own.csv").read_text().replace("\nb,", "\n,").replace("\nd,", "\n,")
    Path("own.csv").write_text(text)
    refused = run("own.csv", "--columns", "item_id=sku")
    assert refused.code == 4 and "line 3, line 5" in refused.err and "--columns item_id=" in refused.err
    assert content(products("own.csv")[1]) == CAPTIONS


GERMAN = {name: f"Bild {name[0]}" for name in CAPTIONS}


@pytest.mark.parametrize(
    ("header", "columns", "langs"),
    [
        (("image", "caption_en", "caption_de"), "", ("en", "de")),
        (("image", "en", "de"), "", ("en", "de")),
        (("image", "caption", "title-pt_BR"), "", ("en", "pt-BR")),
        (("image", "title", "description"), "text=title,text=description", ("en", "en")),
        (("image", "x", "y"), "caption.en=x,text.de=y", ("en", "de")),
        (("image", "id", "text", "de"), "", ("en",)),
    ],
)
@pytest.mark.parametrize("name", IN_EACH_FORMAT)
def test_several_columns_of_texts(
    name: str, header: tuple[str, ...], columns: str, langs: tuple[str, ...], here: Path
) -> None:
    rows = [(key, *[key] * (len(header) == 4), text, GERMAN[key]) for key, text in CAPTIONS.items()]
    frame = pd.DataFrame(rows, columns=header)
    frame.iloc[0, -1] = None
    save(frame, name)
    _, data = products(name, *(["--columns", columns] if columns else []))
    found = {(lang, text) for lang, text in zip(data.captions["lang"], data.captions["text"], strict=True)}
    german = {(langs[-1], text) for text in list(GERMAN.values())[1:]} if len(langs) > 1 else set()
    assert found == {(langs[0], text) for text in CAPTIONS.values()} | german


@pytest.mark.parametrize(
    ("column", "ids"),
    [
        ("sentence_id", "101 102 103 104"),
        ("Text_ID", "q0 q1 q2 q3"),
        ("caption_no", "1 2 3 4"),
        ("title_nr", "img-1 img-2 2f#0 2f#1"),
        ("translation_id", "t1 t2 t3 t4"),
    ],
)
def test_a_column_of_ids_has_no_captions(column: str, ids: str, here: Path) -> None:
    rows = [(name, number, text) for (name, text), number in zip(CAPTIONS.items(), ids.split(), strict=True)]
    write("own.csv", ("image", column, "sentence"), *rows)
    done, data = products("own.csv")
    assert content(data) == CAPTIONS and set(data.captions["lang"]) == {"en"}
    assert f"not read: {column!r}" in done.err and "with a translation" not in done.err


@pytest.mark.parametrize("column", ["sentence_id", "sentence_no", "mt_id"])
def test_captions_in_a_language_whose_code_also_means_a_number(column: str, here: Path) -> None:
    own = ["sepatu merah", "2 sepatu", "topi", "kopi 3"]
    rows = [(name, text, other) for (name, text), other in zip(CAPTIONS.items(), own, strict=True)]
    write("own.csv", ("image", "sentence", column), *rows)
    done, data = products("own.csv")
    lang = column[-2:]
    if column == "mt_id":
        assert "4 captions in en, 4 with a translation into id" in done.err
    else:
        assert list(data.captions.loc[data.captions["lang"] == lang, "text"]) == own
    write("own.csv", ("image", "a", column), *[(name, "x", f"{n}") for n, name in enumerate(CAPTIONS)])
    _, data = products("own.csv", "--columns", f"text.{lang}={column}", "--lang", lang, "--name", "typed")
    assert set(data.captions["text"]) == {"0", "1", "2", "3"}, "what the user names is read"


def test_a_second_column_that_may_hold_texts_is_named(here: Path) -> None:
    write("own.csv", ("image", "title", "description"), *[(*pair, pair[1]) for pair in CAPTIONS.items()])
    assert "--columns text=description,text=title" in products("own.csv")[0].err
    assert run("own.csv", "--columns", "text=title,text=").code == 2
    assert run("own.csv", "--columns", "text.e=title").code == 2


@pytest.mark.parametrize("name", ["own.csv", "own.xlsx"])
def test_a_header_below_a_title(name: str, here: Path) -> None:
    if name.endswith(".csv"):
        write(name, ("Our shop, 2026", ""), ("image", "caption"), *CAPTIONS.items(), delimiter=";")
    else:
        book = openpyxl.Workbook()
        for row in (("Our shop",), (), ("image", "caption"), *CAPTIONS.items()):
            book.worksheets[0].append(row)
        book.save(name)
    done, data = products(name)
    assert content(data) == CAPTIONS and "--set header_line=" in done.err
    line = "2" if name.endswith(".csv") else "3"
    assert content(products(name, "--set", f"header_line={line}", "--name", "set")[1]) == CAPTIONS
    refused = run(name, "--set", "header_line=1", "--name", "other")
    assert refused.code == 4 and "--set header_line=" in refused.err
    assert run(name, "--set", "header_line=x").code == 2


def test_a_file_whose_items_have_no_split_is_not_left_out(here: Path) -> None:
    write("one.csv", ("image", "caption"), ("a.jpg", "x"), ("b.jpg", "y"))
    write("more.csv", ("image", "caption"), ("a.jpg", "z"))
    write("two.csv", ("image", "caption"), ("c.jpg", "z"))
    assert len(products("train=one.csv", "more.csv")[1].captions) == 3
    done = run("train=one.csv", "two.csv", "--name", "two")
    assert done.code == 4 and "two.csv" in done.err and "'c'" in done.err and "train=two.csv" in done.err


def test_pictures_outside_of_the_folder_of_the_captions(here: Path) -> None:
    draw(here / "photos", *CAPTIONS)
    Path("lists").mkdir()
    write("lists/up.csv", ("image", "caption"), *((f"../photos/{name}", text) for name, text in CAPTIONS.items()))
    assert dataset.media_root(products("lists/up.csv")[1].artifact) == here / "photos"
    for name in CAPTIONS:
        Path("lists", name).symlink_to(here / "photos" / name)
    table("lists/linked.csv")
    done, _ = products("lists/linked.csv")
    assert "0 of 4" in done.err and "4 pictures or videos are missing" in done.err and "lists/a.jpg" in done.err, (
        "links lead out of the folder"
    )


def test_items_without_pictures_need_a_named_format(here: Path) -> None:
    write("words.csv", ("item_id", "text"), ("1", "x"), ("2", "y"), ("3", "z"))
    assert run("--format", "captions-csv", "words.csv").code == 0
    extracted = toy.ccr("extract", "datasets/words", *toy.ENCODER, workspace=Path("space"))
    assert extracted.code == 1 and "--columns media=NAME" in extracted.err


def test_names_can_be_made_of_ids(here: Path) -> None:
    write("products.csv", ("sku", "caption"), *[(name[0], text) for name, text in CAPTIONS.items()])
    assert content(products("products.csv", "--media", "{id}.jpg")[1]) == CAPTIONS


def test_a_split_column_without_validation_gets_a_tenth_of_training(here: Path) -> None:
    names = [f"{number}.jpg" for number in range(24)]
    draw(here, *names)
    rows = [(name, f"thing {name}", "test" if number < 4 else "Train") for number, name in enumerate(names)]
    write("products.csv", ("image", "caption", "split"), *rows)
    done, data = products("products.csv")
    assert data.items["split"].value_counts().to_dict() == {"train": 18, "test": 4, "val": 2}
    assert [*data.items["media"]] == names and set(data.items["split"].head(4)) == {"test"}
    assert "10% val" in done.err and "10% val" in data.manifest["split_rule"]
    exact = run("--format", "captions-csv", "products.csv", "--columns", "media=image", "--name", "exact").made
    assert set(dataset.read(exact).items["split"]) == {"train", "test"}


def test_the_rule_of_a_split_is_stored(here: Path) -> None:
    table("products.csv")
    _, data = products("products.csv", "--split", "auto:5")
    assert data.items["split"].value_counts().to_dict() == {"train": 2, "val": 1, "test": 1}
    assert data.manifest["own_split"] and "seed 5" in data.manifest["split_rule"]
    assert data.artifact.request["split"] == "auto:5"
    assert "seed 5" in toy.ccr("data", "describe", "products", workspace=Path("space")).out


def test_near_duplicates_are_in_one_split(here: Path) -> None:
    names = [f"{number}.jpg" for number in range(60)]
    draw(here, *names)
    for number in range(0, 60, 2):  # every second picture is the one before, larger and in another format
        with Image.open(f"{number}.jpg") as picture:
            picture.resize((72, 72), Image.Resampling.NEAREST).save(f"{number + 1}.jpg", format="PNG")
    write("products.csv", ("image", "caption"), *[(name, f"thing {name}") for name in names])
    _, data = products("products.csv")
    split = dict(zip(data.items["item_id"], data.items["split"], strict=True))
    assert [split[str(n)] for n in range(0, 60, 2)] == [split[str(n + 1)] for n in range(0, 60, 2)]
    assert data.items["group"].nunique() == 30


def test_openpyxl_that_is_not_installed_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_excel("own.xlsx", ("image", "caption"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = run("own.xlsx")
    assert done.code == 5 and "openpyxl" in done.err and "ccr-cli[excel]" in done.err


def test_what_is_no_own_file_is_not_taken_for_one(here: Path) -> None:
    absent = run("none.csv")
    assert absent.code == 2 and "there is no none.csv" in absent.err and "try: ls ." in absent.err
    assert run("train=none.csv", "test=other.csv").code == 2
    Path("own.dat").write_text("x", encoding="utf-8")
    done = run("own.dat")
    assert done.code == 2 and "--format" in done.err and ".parquet" in done.err
    table("own.csv")
    mistyped = run("owm.csv")
    assert mistyped.code == 2 and "'own.csv'" in mistyped.err
    unlisted = run("own.csv", "--split", "test=ids.txt")
    assert unlisted.code == 2 and "--split: there is no ids.txt" in unlisted.err and "try: " in unlisted.err
    Path("own.parquet").write_bytes(b"junk")
    junk = run("own.parquet")
    assert junk.code == 4 and "own.parquet" in junk.err and "try: " in junk.err
    write_lines("own.jsonl", ("image", "caption"))
    assert run("own.csv", "own.jsonl").code == 2
    assert run("own.csv", "--root", ".").code == 2
    assert not Path("space").exists()


@pytest.mark.slow
def test_a_changed_file_is_named_and_what_was_made_from_it_is_listed(here: Path) -> None:
    table("products.csv")
    old = run("products.csv").made
    both = [f"{text}{end}" for text in CAPTIONS.values() for end in ("", "!")]
    write("es.tsv", ("source", "target"), *[(text, f"{text} ES") for text in both], delimiter="\t")
    write("typed.csv", ("source_caption_id", "lang", "correction"), ("a#en#0", "es", "typed"))
    recorded = ("translate", "--lang", "es", "--engine", "recorded", "--set", "table=es.tsv")
    for words in (recorded, ("translate", "--only", "typed.csv"), ("report",)):
        command = [sys.executable, "-m", "ccr_cli", *words, "--workspace", "space"]
        subprocess.run(command, check=True, capture_output=True)  # records its own command
    write("products.csv", ("image", "caption"), *[(name, f"{text}!") for name, text in CAPTIONS.items()])
    refused = run("products.csv")
    assert refused.code == 4 and "products.csv has" in refused.err and "--name" in refused.err
    assert old.id not in refused.err and "{" not in refused.err and "sha256" not in refused.err
    other = run("products.csv", "--lang", "de")
    assert other.code == 4 and "--lang" in other.err
    forced = run("products.csv", "--force")
    first, second = (forced.err.index(f"translations/products/es-{name}") for name in ("recorded", "corrected"))
    assert forced.code == 0 and first < second
    listed = toy.ok("show", workspace=Path("space")).out
    (reported,) = Path("space/reports").iterdir()
    assert listed.count("stale") == 3 and "stale" not in listed.partition("translations/")[0]
    assert "translations/products/" not in run("products.csv").err, "said once"
    Path("typed.csv").rename("away.csv")
    half = toy.ccr("rebuild", workspace=Path("space"))
    assert half.code == 4 and [path.name[:11] for path in half.paths] == ["es-recorded"], "the others are made"
    Path("away.csv").rename("typed.csv")
    rebuilt = toy.ok("rebuild", workspace=Path("space"))
    assert rebuilt.paths[1:] == [reported.resolve()] and [*reported.parent.iterdir()] == [reported]
    made = [set(translation.read(base.load(path))["text"]) for path in (*half.paths, *rebuilt.paths[:1])]
    texts = {f"{text}! ES" for text in CAPTIONS.values()}
    assert made == [texts, (texts - {"a red shoe! ES"}) | {"typed"}], "parents first"
    assert "stale" not in toy.ok("show", workspace=Path("space")).out
    assert toy.ok("rebuild", workspace=Path("space")).out == ""


def test_the_sheet_that_is_read_is_named(here: Path) -> None:
    write_excel("own.xlsx", ("photo", "description"))
    book = openpyxl.load_workbook("own.xlsx")
    book.create_sheet("My prices").append(("sku", "price"))
    book.move_sheet("My prices", -1)
    book.save("own.xlsx")
    refused = run("own.xlsx")
    assert refused.code == 4 and "'My prices'" in refused.err and "--set sheet=Sheet" in refused.err
    done, data = products("own.xlsx", "--set", "sheet=Sheet")
    assert content(data) == CAPTIONS and "My prices" not in done.err
    wrong = run("own.xlsx", "--set", "sheet=x")
    assert wrong.code == 4 and "--set sheet='My prices'" in wrong.err


def test_what_to_type_is_quoted(here: Path) -> None:
    table("my products.csv", ("image", "Product title"))
    wrong = run("my products.csv", "--columns", "text=Product titel")
    assert "--columns text='Product title'" in wrong.err
    table("b.csv", ("Image", "Title"))
    assert "--columns text=Titel,media=Image" in run("b.csv", "--columns", "Titel=text,media=Image").err
    absent = run("b.csv", "--columns", "text=Titel,media=Imag")
    assert absent.code == 4 and "--columns text=Title,media=Image" in absent.err
    assert content(products("b.csv", "--columns", "text=TITLE,media=image")[1]) == CAPTIONS
    headed = run("b.csv", "--columns", "media,text")
    assert headed.code == 2 and "--set columns=media,text" in headed.err
    missing = run("--columns", "text=Product title")
    assert missing.code == 2 and "ccr data import FILE" in missing.err


@pytest.mark.parametrize("name", ["products.csv", "products.jsonl", "products.parquet", "products.xlsx"])
def test_control_characters_are_told_of_in_texts_and_refused_in_ids(here: Path, name: str) -> None:
    texts = ["a \u202ehat", *list(CAPTIONS.values())[1:-1], "a\x7f \x9bshoe"]
    frame = pd.DataFrame({"item_id": list("abcd"), "image": list(CAPTIONS), "caption": texts})
    save(frame, name)
    done, data = products(name, "--name", "kept")
    assert set(data.captions["text"]) == set(texts)
    first, last = (2, 5) if name.endswith((".csv", ".xlsx")) else (1, 4)
    assert re.search(rf"2 captions .*: {re.escape(name)}, \w+ {first}\b.*, \w+ {last}\b", done.err), done.err
    frame.loc[1, "item_id"] = "b\u202e"
    save(frame, name)
    done = run(name, "--name", "refused")
    assert done.code == 4 and re.search(rf"\w+ {first + 1}\b.*u202e", done.err), done.err
