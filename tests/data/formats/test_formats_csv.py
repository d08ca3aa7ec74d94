"""Tables of captions: with a header, with another's header, with none; quotes, and what breaks a row."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import pytest

from ccr_cli.data.formats.base import Record
from ccr_cli.data.formats.captions_csv import COLUMNS, captions_csv
from ccr_cli.errors import ArtifactError

OFFICIAL = Path(__file__).parents[2] / "fixtures" / "formats"
JSFUSION = {"item_id": "video_id", "text": "sentence", "caption_id": "key"}


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_table_of_ones_own() -> None:
    first, second, third = captions_csv(OFFICIAL / "own_captions.csv")
    assert first == Record("-a.jpg", "A cat, asleep", "own_captions.csv, line 2", "en", 0, "train", "pets/-a.jpg")
    assert second.text == 'It says "hush"\nand sleeps' and second.k == 1
    assert third == Record("b.jpg", "Ein Hund", "own_captions.csv, line 5", "de", None, "test")


def test_every_column_there_is(tmp_path: Path) -> None:
    header = ",".join(reversed(COLUMNS))
    path = write(tmp_path / "a.csv", f"\ufeff{header}\r\n77,3,video,m/a.png,web,2,pt-BR,val,texto,a\r\n")
    assert list(captions_csv(path)) == [
        Record("a", "texto", "a.csv, line 2", "pt-BR", 2, "val", "m/a.png", "77", "web", 3, kind="video")
    ]


def test_jsfusion_has_a_header_of_its_own() -> None:
    first, second = captions_csv(OFFICIAL / "MSRVTT_JSFUSION_test.csv", header=JSFUSION)
    assert first == Record("video990001", "a cook stirs a pot", "MSRVTT_JSFUSION_test.csv, line 2", caption_id="ret0")
    assert (second.item, second.text) == ("video990002", "a man talks, then sings")


def test_cc152k_has_no_header_and_no_quotes() -> None:
    path = OFFICIAL / "cc152k_test_caps_img_urls.csv"
    columns = ["item_id", "text", "media"]
    for named in ("tab", "\t"):
        first, second = captions_csv(path, delimiter=named, quoted=False, columns=columns)
        assert first.item == "9901_1111111111" and first.text == 'a sign that says "open, come in" on a door'
        assert second == Record(
            item="9902_2222222222",
            text="little boat",
            where="cc152k_test_caps_img_urls.csv, line 2",
            media="https://example.org/b.jpg?x=1,2",
        )
    assert [r.media for r in captions_csv(path, delimiter="tab", quoted=False, columns=["item_id", "text", ""])] == [
        "",
        "",
    ]


def test_tabs_are_known_by_the_name(tmp_path: Path) -> None:
    text = "item_id\ttext\na\tx, y\n"
    for name in ("a.tsv", "a.TSV"):
        assert [r.text for r in captions_csv(write(tmp_path / name, text))] == ["x, y"]
    assert [r.text for r in captions_csv(write(tmp_path / "a.tsv.gz", gzip.compress(text.encode(), mtime=0)))] == [
        "x, y"
    ]


def test_a_named_header_says_how_many_fields_a_row_has(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "video_id,sentence,url\na,one, two,x\n")
    with pytest.raises(ArtifactError, match=r"line 2: .*\b4\b.*\b3\b") as caught:
        list(captions_csv(path, header={"item_id": "video_id", "text": "sentence"}))
    assert caught.value.hint == "put a text that contains the delimiter in quotes"


def test_a_named_header_leaves_the_other_columns_as_they_are(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "image,split,text,caption,url\na,val,old,new,x\n")
    named = {"item_id": "image", "text": "caption"}
    assert list(captions_csv(path, header=named)) == [Record("a", "new", "a.csv, line 2", split="val")]


def test_only_a_line_feed_ends_a_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'item_id,text\n-a,"x\u2028y\x85z"\n\nb,\u00a0w\u2028\r\nc,"1\r\n2"')
    read = list(captions_csv(path))
    assert [(r.item, r.text, r.where[-1]) for r in read] == [
        ("-a", "x\u2028y\x85z", "2"),
        ("b", "\u00a0w\u2028", "4"),
        ("c", "1\n2", "5"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: .*''.*item_id and text"),
        ("item_id,caption\n", "line 1: .*'item_id, caption'.* 'caption'"),
        ("text,lang\n", "line 1: .*'text, lang'; item_id"),
        ("item_id,text,text\n", "line 1: .* 'text'"),
        ("1,a cat\n", "line 1: .* '1'"),
        ("item_id,text\na,b\nc\n", r"line 3: .*\b1\b.*\b2\b"),
        ("item_id,text\na,b\nc,d,e\n", r"line 3: .*\b3\b.*\b2\b"),
        ("item_id,split,text\na,train,A dog, that runs\n", r"line 2: .*\b4\b.*\b3\b"),
        ("item_id,split,lang,text\na,train,A dog\n", r"line 2: .*\b3\b.*\b4\b"),
        ("item_id,text\na,b\n,d\n", "line 3: item_id"),
        ('item_id,text\na,"b\nc,d\ne,f\n', "line 2: "),
        ('item_id,text\na,"b"c\n', "line 2: "),
        ('item_id,text\na,b\rc\n', "line 2: "),
        ('item_id,text\na,b\n\nc,"d\n\0"\n', r"line 5\b.*NUL"),
        ("item_id,text,k\na,b,1\nc,d,-1\n", "line 3: k .*'-1'"),
        ("item_id,text,k\na,b,1234567890\n", "line 2: k .*'1234567890'"),
        (f"item_id,text,k\na,b,{'9' * 5000}\n", "line 2: k .*'9{40}'"),
        ("item_id,text,k\na,b,٣\n", "line 2: k .*'٣'"),
        ("item_id,text,label\na,b,cat\n", "line 2: label .*'cat'"),
        ("item_id,text,label\na,b,nan\n", "line 2: label .*'nan'"),
        (b"item_id,text\na,z\xfcrich\n", r"line 2: .*\b4\b"),
        (gzip.compress(b"item_id,text\na,b\n" * 99, mtime=0)[:-9], ""),
    ],
    ids=range(22),
)  # fmt: skip
def test_what_breaks_a_table_is_said_with_its_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = write(tmp_path / "a.csv", content)
    with pytest.raises(ArtifactError, match=rf"a\.csv.*{message}"):
        list(captions_csv(path))


def test_a_quote_that_is_never_closed_is_said_where_it_opens(tmp_path: Path) -> None:
    rows = "".join(f"item {n},text {n}\n" for n in range(20_000))
    path = write(tmp_path / "a.csv", f'item_id,text\nfirst,row\nopen,"and not closed\n{rows}')
    with pytest.raises(ArtifactError, match=r"a\.csv, line 3: ") as caught:
        list(captions_csv(path))
    assert "quoted=false" in (caught.value.hint or "")
    assert len(list(captions_csv(path, quoted=False))) == 20_002


def test_a_field_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    path = write(tmp_path / "a.csv", f"item_id,text\na,{'x' * limit}\n")
    assert len(next(captions_csv(path)).text) == limit
    path = write(tmp_path / "a.csv", f"item_id,text\na,b\nc,{'x' * (limit + 1)}\n")
    with pytest.raises(ArtifactError, match=rf"a\.csv, line 3: .*\({limit}\)"):
        list(captions_csv(path))
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ";;"}, "';;'"),
        ({"delimiter": "\n"}, r"\'\\n\'"),
        ({"delimiter": '"'}, "'\"'"),
        ({"delimiter": ";"}, "'item_id,text'.* 'item_id,text'"),
        ({"columns": ["item_id", "caption"]}, "'caption'"),
        ({"columns": ["item_id", ""]}, "; text "),
        ({"columns": ["item_id", "text", "text"]}, "'text'"),
        ({"columns": ["item_id", "text", "k"]}, r"line 1: .*\b2\b.*\b3\b"),
        ({"columns": ["item_id", "text"], "header": JSFUSION}, "`columns` .* `header`"),
        ({"header": {"item_id": "video", "text": "text"}}, "'video'"),
        ({"header": {"item_id": "item_id"}}, "; text "),
        ({"header": {"item_id": "item_id", "text": "text", "word": "text"}}, "'word'"),
    ],
)
def test_options_that_do_not_fit_are_said(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "a.csv", "item_id,text\na,b\n")
    with pytest.raises(ArtifactError, match=message):
        list(captions_csv(path, **options))
