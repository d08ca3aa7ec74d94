"""`ccr search` as a program: many queries, lines for pipes, the contact sheet, hostile texts."""

from __future__ import annotations

import json
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import toy
from PIL import Image
from toy import Chain

from ccr_cli.report.content import ExampleHit, ExampleSearch
from ccr_cli.report.page import contact_sheet

CPU = ("--device", "cpu")
HOSTILE = '</title><script>alert(1)</script><img src=x onerror="alert(2)"> & \'"\u202e\x1b[31m'


def test_a_line_a_query(chain: Chain, tmp_path: Path) -> None:
    run, queries = chain.find("run", "uml").path, ["círculo rojo", "a blue bar", "<b>"]
    listed = tmp_path / "queries.txt"
    listed.write_text("\n\n".join(queries) + "\n \n", encoding="utf-8")
    from_file = toy.ok("search", run, "--query-file", listed, "--json", *CPU, workspace=chain.root)
    answers = [json.loads(line) for line in from_file.out.splitlines()]
    assert [answer["query"] for answer in answers] == queries
    for query, answer in zip(queries, answers, strict=True):
        single = json.loads(toy.ok("search", query, run, "--json", *CPU, workspace=chain.root).out)
        assert [h["item_id"] for h in single["hits"]] == [h["item_id"] for h in answer["hits"]]
    from_stdin = toy.ok(
        "search", run, "--query-file", "-", "--json", *CPU, workspace=chain.root, stdin=listed.read_text("utf-8")
    )
    assert from_stdin.out == from_file.out
    listed.write_text(listed.read_text("utf-8"), encoding="utf-8-sig")
    marked = ("search", run, "--json", *CPU, "--query-file")
    for out in (
        toy.ok(*marked, listed, workspace=chain.root).out,
        toy.ok(*marked, "-", workspace=chain.root, stdin=listed.read_text("utf-8")).out,
    ):
        assert out == from_file.out, "a byte order mark is no part of the first query"
    header, *rows = toy.ok(
        "search", run, "--query-file", listed, "--top", "2", *CPU, workspace=chain.root
    ).out.splitlines()
    assert header.split("\t")[:4] == ["query", "place", "similarity", "item"]
    assert [(row.split("\t")[0], row.split("\t")[3]) for row in rows] == [
        (a["query"], hit["item_id"]) for a in answers for hit in a["hits"][:2]
    ]


def test_more_queries_than_are_answered_together(chain: Chain) -> None:
    words = "".join(f"word {n}\n" for n in range(600))
    done = toy.ok(
        *("search", chain.find("run", "infonce").path, "--query-file", "-", "--top", "1", "--json", *CPU),
        workspace=chain.root,
        stdin=words,
    )
    assert [json.loads(line)["query"] for line in done.out.splitlines()] == words.splitlines()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("rojo", "--sheet", "a.pdf"), "'a.pdf'"),
        (("--image", "a.png", "--query-file", "b.txt"), "--query-file"),
        (("--query-file", "none.txt"), "none.txt"),
        (("--query-file", "/"), "/: Is a directory"),
        (("-", "--query-file", "-"), "standard input"),
        (("rojo", "--find", "nothing"), "'nothing'"),
        (("rojo", "--split", "tests"), "'tests'"),
        (("rojo", "--find", ""), "''"),
        (("rojo", "--sheet", "nowhere/a.html"), "nowhere"),
    ],
)
def test_what_does_not_go_together(options: tuple[str, ...], said: str, chain: Chain) -> None:
    words: list[str | Path] = [*options, *([] if "-" in options else [chain.find("run", "uml").path])]
    done = chain.ccr("search", *words, *CPU)
    assert done.code == 2 and said in done.err, done.err
    assert "--sheet" in options or done.out == ""


def test_a_pipe_that_brings_no_artifact(chain: Chain) -> None:
    done = chain.ccr("search", "rojo", "-", *CPU, stdin="")
    assert (done.code, done.out) == (4, "") and "standard input" in done.err
    assert "without a pipe, leave - out" in done.err and "quotes" not in done.err


def test_words_that_training_never_had_are_named(chain: Chain) -> None:
    run = chain.find("run", "uml").path
    for query in ("círculo rojo", "a RED xyzzy", "círculos"):
        done = toy.ok("search", query, run, *CPU, workspace=chain.root)
        assert "warning:" not in done.err, query
    for query in ("xyzzy", "猫", "!!!"):
        done = toy.ok("search", query, run, *CPU, workspace=chain.root)
        assert "warning:" in done.err and repr(query) in done.err
    several = ("--query-file", "-", "--json", *CPU)
    done = toy.ok("search", run, *several, workspace=chain.root, stdin="xyzzy\nrojo\nqwrtzx\n")
    assert [json.loads(line)["known"] for line in done.out.splitlines()] == [False, True, False]
    assert "2 of 3 " in done.err and "'xyzzy', 'qwrtzx'" in done.err
    done = toy.ok("search", run, *several, workspace=chain.root, stdin="xyzzy\nrojo\n")
    assert "1 of 2 " in done.err and "'xyzzy'" in done.err


def test_nobody_can_tell_when_the_translation_is_gone(finished: Chain) -> None:
    shutil.rmtree(finished.find("translation").path)
    done = toy.ok("search", "xyzzy", finished.find("run", "uml").path, *CPU, workspace=finished.root)
    assert "warning:" not in done.err and len(done.out.splitlines()) == 6


def test_nothing_to_search_with(chain: Chain) -> None:
    done = chain.ccr("search", *CPU)
    assert done.code == 2 and "--query-file" in done.err


def test_queries_that_are_no_text(chain: Chain, tmp_path: Path) -> None:
    run = chain.find("run", "uml").path
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00rojo")
    done = chain.ccr("search", run, "--query-file", tmp_path / "bytes", *CPU)
    assert (done.code, done.out) == (2, "") and f"line 1 of {tmp_path / 'bytes'} is not UTF-8" in done.err
    for options, said in (
        (f"$'caf\\xe9' {run}", "the query 'caf\\udce9' is not UTF-8"),
        (f"{run} --query-file - <<< $'rojo\\n\\ncaf\\xe9'", "line 3 of standard input is not UTF-8"),
    ):
        done = toy.shell(f"ccr search {options}", chain.root)
        assert (done.code, done.out) == (2, "") and f"error: {said}\n" in done.err


class Page(HTMLParser):
    """What a browser would see of a page: its tags with their attributes, its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


def test_a_hostile_text_is_text_on_the_sheet(finished: Chain, tmp_path: Path) -> None:
    folder = toy.toy("hostile")
    for item in folder.items:
        item[1] = "test"
    for caption in folder.captions:
        caption[4] = HOSTILE.replace("\x1b", "")
    made = toy.ok("data", "import", folder.write(tmp_path / "hostile"), workspace=finished.root).made
    toy.ok("extract", made.path, *toy.ENCODER, workspace=finished.root)
    page, picture, run = tmp_path / "a.html", tmp_path / "a.png", finished.find("run", "uml").path
    for path in (page, picture):
        done = toy.ok("search", HOSTILE, run, made.path, "--sheet", path, *CPU, workspace=finished.root)
        assert "\x1b" not in done.out and "\u202e" not in done.out
        assert all(len(row.split("\t")) == 6 for row in done.out.splitlines())
    seen = Page(page.read_text(encoding="utf-8"))
    assert {tag for tag, _ in seen.tags} & {"script", "iframe", "link", "a", "object"} == set()
    assert not [name for _, attributes in seen.tags for name in attributes if name.startswith("on")]
    pictures = [attributes["src"] or "" for tag, attributes in seen.tags if tag == "img"]
    assert len(pictures) == 5 and all(source.startswith("data:image/png;base64,") for source in pictures)
    assert "<script>alert(1)</script>" in seen.words and "\u202e" not in seen.words
    assert "hostile, test" in seen.words
    with Image.open(picture) as image:
        assert image.format == "PNG" and image.width == 1560


def test_the_sheet_of_a_picture_and_of_what_has_none(tmp_path: Path) -> None:
    toy.draw("red-ring").save(tmp_path / "asked.png")
    none = tmp_path / "none.png"
    found = [
        ExampleHit(f"i{n}", f"caption {n}", 1 - n / 9, none, lang="es", probability=n / 8 or None) for n in range(7)
    ]
    searches = [ExampleSearch("asked.png", "", found, image=tmp_path / "asked.png"), ExampleSearch("nothing", "es", [])]
    page, picture = (contact_sheet.write(tmp_path / f"sheet.{suffix}", searches, "title") for suffix in ("html", "png"))
    seen = Page(page.read_text(encoding="utf-8"))
    assert [a["class"] for tag, a in seen.tags if tag == "img"] == ["query-picture"]
    assert "no image" not in seen.words and "7 · 0.333" in seen.words
    assert seen.words.count("likely") == 6 and "25% likely" in seen.words
    assert [a["lang"] for tag, a in seen.tags if tag == "bdi" and "lang" in a] == [*["es"] * 7, "es"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_too_many_results_for_one_picture(chain: Chain, tmp_path: Path) -> None:
    words = "\n".join(["rojo"] * 20)
    done = chain.ccr(
        *(
            "search",
            chain.find("run", "uml").path,
            "--query-file",
            "-",
            "--top",
            "12",
            "--sheet",
            tmp_path / "a.png",
            *CPU,
        ),
        stdin=words,
    )
    assert done.code == 2 and "240" in done.err and "200" in done.err and not (tmp_path / "a.png").exists()


@pytest.mark.slow
def test_open_shows_the_sheet_in_the_browser(chain: Chain, tmp_path: Path) -> None:
    """The browser is a program that writes down what it was given; queries come from a pipe."""
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f"#!{sys.executable}\nimport sys\nopen({str(seen)!r}, 'w').write(sys.argv[1])\n")
    browser.chmod(0o755)
    run = chain.find("run", "uml").path
    done = toy.shell(
        f"export BROWSER={browser} TMPDIR={tmp_path}; echo 'círculo rojo' | "
        f"ccr search --query-file - {run} --json --open",
        chain.root,
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["query"] == "círculo rojo"
    shown = Path(seen.read_text().removeprefix("file://"))
    assert shown.is_relative_to(tmp_path) and "círculo rojo" in shown.read_text(encoding="utf-8")
    assert str(shown) in done.err
