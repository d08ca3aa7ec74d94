"""One data set full of hostile text through every command: nothing controls a terminal, a page or a sheet."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import pytest
import toy
from toy import Outcome

from ccr_cli.artifacts import base

pytestmark = pytest.mark.slow
CPU = ("--device", "cpu")
SCRIPT = "</title></script><script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">"
TEXTS = (
    "\x1b[31mred\x1b]0;owned\x07\x9b2J\b\x7f\x01",
    "\u202eevil\u2066abc\u2069\u202d",
    SCRIPT,
    "\\input{/etc/passwd}\\immediate\\write18{touch owned} %$#_&~^{}",
    '=HYPERLINK("http://127.0.0.1:9","x")',
    "+1+cmd|' /C calc'!A0",
    "@SUM(1)",
    "-2+3",
    "x" * 5000,
    "שלום مرحبا",
    "`touch owned` $(touch owned); touch owned",
    "| a | [a](javascript:document.title='hacked') ``` {{7*7}} {% raw %}",
)
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What no output may hold; tabs and line feeds end fields and lines."""
FORMULA = re.compile(r"\s*[=+@]|\s*-(?![\d.]+(e-?\d+)?$)")
"""Beginning of a cell that a spreadsheet runs, or a negative number."""


@dataclass
class Made:
    """A workspace, what was written beside it, and what each command printed."""

    root: Path
    place: Path
    run: Path
    texts: list[str]
    printed: dict[str, str] = field(default_factory=dict)

    def ok(self, *words: str | Path) -> Outcome:
        done = toy.ok(*words, workspace=self.root)
        self.printed[" ".join(map(str, words))] = done.out + done.err
        return done

    def files(self, *suffixes: str) -> list[Path]:
        """Outputs; what the user wrote is kept as it was."""
        files, kept = sorted(self.place.rglob("*")), {"source", "datasets", ".cache", base.LOCAL}
        return [p for p in files if p.suffix in suffixes and not kept & {*p.relative_to(self.place).parts}]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    place = tmp_path_factory.mktemp("hostile")
    root, folder = place / "workspace", toy.toy("hostile")
    for n, item in enumerate(folder.items):
        captions = [c for c in folder.captions if c[1] == item[0]]
        item[0] = f"={item[0]}{SCRIPT}" if n % 2 else f"{item[0]}%$&_\\input{{a}}"
        item[5] = item[0]
        for caption in captions:
            caption[0] += "=<b onclick=x>"
            caption[1] = item[0]
    changed = {}
    for n, caption in enumerate(folder.captions):
        changed[caption[4]] = caption[4] = f"{TEXTS[n % len(TEXTS)]} {caption[4]}"
    for pair, table in folder.tables.items():
        pairs = enumerate(table.items())
        folder.tables[pair] = {changed.get(a, a): f"{TEXTS[n % len(TEXTS)]} {b}" for n, (a, b) in pairs}
    folder.tables["es-en"] |= {b: f"{TEXTS[0]}{a}" for a, b in folder.tables["en-es"].items()}
    folder.extra = "".join(f"{key} = {json.dumps(TEXTS[2] + TEXTS[3])}\n" for key in ("title", "licence", "citation"))
    made = Made(root, place, root, [caption[4] for caption in folder.captions])
    data = made.ok("data", "import", folder.write(place / "source" / "hostile")).made
    made.ok("data", "describe", data.path)
    made.ok("data", "show", data.path)
    made.ok("translate", data.path, "--lang", "es", "--back", "--with-queries", "--noise", "0.4")
    made.ok("extract", data.path, *toy.ENCODER)
    few = ("--epochs", "2", *toy.SMALL)
    runs = [made.ok("train", "--method", m, "--noise", "0.4", *few).made.path for m in ("uml", "infonce")]
    for run in runs:
        made.ok("evaluate", run, *CPU)
    made.run = runs[0]
    made.ok("diagnose", made.run, *CPU, "--export", place / "pairs.csv", "--sheet", place / "pairs.html")
    made.ok("diagnose", made.run, *CPU, "--worst", "20", "--export", place / "pairs.parquet")
    made.ok("diagnose", made.run, *CPU, "--json", "--export", place / "pairs.xlsx")
    made.ok("diagnose", "translations/hostile/es", "--export", place / "translated.csv", "--worst", "20")
    made.ok("report", "--searches", "4", "--title", TEXTS[2])
    made.ok("compare", "--latex")
    made.ok("compare", "--json")
    queries = place / "source" / "queries.txt"
    queries.write_text("\n".join(TEXTS), encoding="utf-8")
    for words in (("--query-file", queries), ("--query-file", queries, "--json"), (TEXTS[0] + TEXTS[1],)):
        made.ok("search", *words, made.run, "--find", "captions", *CPU)
        made.ok("search", *words, made.run, *CPU, "--sheet", place / "found.html")
    made.ok("index", made.run, "--split", "all", "--find", "captions", *CPU)
    made.ok("export", made.run)
    made.ok("show")
    made.ok("show", "--json")
    for artifact in sorted(path.parent for path in root.rglob("artifact.json")):
        made.ok("show", artifact)
        made.ok("verify", "--deep", artifact)
    return made


def test_no_terminal_is_controlled(made: Made) -> None:
    assert {command: found for command, text in made.printed.items() if (found := HIDDEN.findall(text))} == {}


def test_no_file_hides_characters(made: Made) -> None:
    files = made.files(".html", ".tsv", ".csv", ".tex", ".md", ".svg", ".json", ".jsonl", ".txt")
    assert {path.suffix for path in files} >= {".html", ".csv", ".tex", ".md", ".svg", ".json", ".jsonl"}
    found = {str(p.relative_to(made.place)): set(HIDDEN.findall(p.read_text(encoding="utf-8"))) for p in files}
    assert {name: chars for name, chars in found.items() if chars} == {}
    book = openpyxl.load_workbook(made.place / "pairs.xlsx", read_only=True)
    sheet = "".join(str(cell) for row in book.worksheets[0].iter_rows(values_only=True) for cell in row)
    book.close()
    exported = pd.read_parquet(made.place / "pairs.parquet")
    for text in (sheet, "".join(map(str, exported.to_numpy().ravel()))):
        assert "\ufffd" in text and HIDDEN.findall(text) == []
    assert not [p for p in made.place.rglob("owned")] and not Path("owned").exists()


def test_the_import_tells_where_they_are(made: Made) -> None:
    (told,) = [text for command, text in made.printed.items() if command.startswith("data import")]
    lines = [n for n, text in enumerate(made.texts, 2) if HIDDEN.search(text)]
    assert len(lines) > 5 and f"{len(lines)} captions" in told
    assert f"captions.tsv, line {lines[0]}, line {lines[1]}, " in told


def test_the_texts_are_kept(made: Made) -> None:
    (data,) = made.root.glob("datasets/*/captions.parquet")
    assert list(pd.read_parquet(data)["text"]) == made.texts
    (translated,) = made.root.glob("translations/*/*/captions.parquet")
    assert any("\x1b" in text for text in pd.read_parquet(translated)["text"])


def test_no_sheet_runs_a_cell(made: Made) -> None:
    files = made.files(".csv", ".tsv")
    assert len(files) > 4
    for path in files:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            rows = list(csv.reader(handle, delimiter="\t" if path.suffix == ".tsv" else ","))
        assert [cell for row in rows for cell in row if FORMULA.match(cell)] == [], path


def test_no_table_of_latex_runs_a_command(made: Made) -> None:
    (latex,) = [text for command, text in made.printed.items() if command == "compare --latex"]
    tables = [latex, *(path.read_text(encoding="utf-8") for path in made.files(".tex"))]
    assert len(tables) > 1 and not any(word in table for table in tables for word in ("\\input{", "\\write18"))


class Tags(HTMLParser):
    """The tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_no_page_has_their_tags(made: Made) -> None:
    pages = made.files(".html")
    assert len(pages) == 3
    for page in pages:
        tags = Tags(page.read_text(encoding="utf-8")).found
        assert not [name for _, attributes in tags for name in attributes if name.startswith("on")], page
        assert not [a for _, a in tags if (a.get("href") or "").startswith("javascript") or a.get("src") == "x"], page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from chromium import chromium

    with chromium() as opened:
        yield opened


@pytest.mark.needs("chromium")
def test_no_browser_runs_them(browser: Any, made: Made) -> None:
    from chromium import Watched
    from served import Server

    with Server(made.root, made.run, "--split", "all", "--find", "captions") as up:
        for address in (*(page.as_uri() for page in made.files(".html")), up.address):
            seen = Watched(browser, address)
            if address == up.address:
                seen.page.fill("#q", TEXTS[2])
                seen.page.keyboard.press("Enter")
                seen.page.wait_for_selector("#hits button")
            seen.page.wait_for_timeout(500)
            shown = seen.page.evaluate("document.documentElement.textContent")
            assert "document.title='hacked'" in shown and not HIDDEN.findall(shown.replace("\r", "")), address
            assert seen.page.title() != "hacked" and seen.messages == []
            assert all(url.startswith((address, "data:", "blob:")) for url in seen.requests)
            seen.context.close()
