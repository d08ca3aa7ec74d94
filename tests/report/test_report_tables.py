"""Every rendering escapes what data could do to it, and agrees with the others."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pandas as pd
import pytest
from fakes import best_cells
from rich.console import Console
from rich.text import Text

from ccr_cli.report.content import ExampleHit, ExampleSearch
from ccr_cli.report.page.rendering import environment
from ccr_cli.report.tables import comparable, retrieval
from ccr_cli.report.tables.comparable import METRICS
from ccr_cli.report.tables.table import (
    Cell,
    Column,
    Row,
    Table,
    guard,
    latex_text,
    markdown_text,
    to_csv,
    to_json,
    to_latex,
    to_markdown,
    to_rich,
)

HOSTILE = '=HYPERLINK("x")|<img src=x>\t[red]\\input{a}%\x1b[31m'

blocks: Any = environment.get_template("blocks.html.j2").module


def sample() -> Table:
    columns = [
        Column("method", "method", text=True),
        Column("r1", "R@1", "high", group="text → image"),
        Column("medr", "MedR", "low", group="text → image"),
        Column("auroc", "AUROC", "high", 3),
    ]
    rows = [
        Row([Cell(HOSTILE), Cell(10.04, 0.25), Cell(3.0, 1.0), Cell(0.98)], block="a"),
        Row([Cell("uml"), Cell(10.01, 0.5), Cell(2.0), Cell(None)], block="a"),
        Row([Cell("oracle"), Cell(50.0), Cell(1.0), Cell(0.99)], block="a", ceiling=True),
        Row([Cell("uml"), Cell(-1.0), Cell(9.0), Cell(float("nan"))], block="b"),
    ]
    return Table("t", "A <title> & 100%", columns, rows, ["A note_1."])


def test_the_best_is_best_as_printed_within_its_block_and_never_a_ceiling() -> None:
    assert best_cells(sample()) == {(0, 1), (1, 1), (1, 2)}


@pytest.mark.parametrize(
    ("intervals", "best"),
    [
        ([(8, 12), (12.1, 16), (0, 4)], {1}),
        ([(8, 12), (12.0, 16), (0, 4)], set()),
        ([(8, 12), (12.1, 16), (-math.inf, math.inf)], set()),
        ([None, None, None], {1}),
    ],
)
def test_a_figure_whose_interval_another_reaches_into_is_not_the_best(
    intervals: list[tuple[float, float] | None], best: set[int]
) -> None:
    figures = zip((10.0, 14.0, 2.0), intervals, strict=True)
    rows = [Row([Cell(value, interval=interval)]) for value, interval in figures]
    assert best_cells(Table("t", "", [Column("bleu", "BLEU", "high")], rows)) == {(row, 0) for row in best}


@pytest.mark.parametrize(
    ("figures", "places"),
    [
        ((3.0, 9.0, 5.0, 1.0), {1: 1, 2: 2}),
        ((3.0, 9.0), {1: 1}),
        ((9.0, 9.0, 5.0, 1.0), {0: 1, 1: 1}),
        ((9.0, 5.0, 5.04, 1.0), {0: 1, 1: 2, 2: 2}),
        ((9.0, None, 5.0, math.nan), {0: 1}),
    ],
)
def test_the_second_of_three_or_more_stands_out(figures: tuple[float | None, ...], places: dict[int, int]) -> None:
    table = Table("t", "", [Column("r", "r", "high")], [Row([Cell(value)]) for value in figures])
    assert table.places() == {(row, 0): place for row, place in places.items()}


def test_where_no_best_can_be_told_there_is_no_second() -> None:
    rows = [Row([Cell(v, interval=(v - w, v + w))]) for v, w in ((9.0, 2.0), (8.0, 2.0), (1.0, 0.1))]
    assert Table("t", "", [Column("r", "r", "high")], rows).places() == {}
    rows = [Row([Cell(v, interval=(v - w, v + w))]) for v, w in ((9.0, 0.1), (4.0, 2.0), (3.0, 2.0))]
    assert Table("t", "", [Column("r", "r", "high")], rows).places() == {(0, 0): 1}


def test_every_writer_marks_the_second() -> None:
    table = Table("t", "", [Column("r", "r", "high")], [Row([Cell(v, 0.5)]) for v in (9.0, 5.0, 1.0)])
    assert "<ins>5.0 ± 0.5</ins>" in to_markdown(table)
    assert r"\underline{5.0 $\pm$ 0.5}" in to_latex(table)
    assert "<u>5.0</u>" in blocks.table(table) and blocks.table(table).count("<u>") == 1
    cells = [cell for column in to_rich(table).columns for cell in column.cells]
    spans = [(str(cell.style), cell) for cell in cells if isinstance(cell, Text)]
    assert [str(cell) for style, cell in spans] == ["9.0 ± 0.5", "5.0 ± 0.5", "1.0 ± 0.5"]
    assert [style for style, cell in spans] == ["bold green", "underline", ""]
    assert [row["cells"]["r"].get("place") for row in json.loads(to_json(table))["rows"]] == [1, 2, None]


def test_json_holds_every_figure_in_full_and_every_text_as_it_is() -> None:
    told = json.loads(to_json(sample()))
    assert [column["key"] for column in told["columns"]] == ["method", "r1", "medr", "auroc"]
    first, last = told["rows"][0], told["rows"][3]
    assert first["cells"]["method"] == {"value": HOSTILE} and first["block"] == "a"
    assert first["cells"]["r1"] == {"value": 10.04, "sd": 0.25, "place": 1}
    assert told["rows"][2]["ceiling"] and last["cells"]["auroc"] == {"value": None}


def test_csv_is_read_back_with_full_figures_and_no_formula() -> None:
    rows = list(csv.reader(io.StringIO(to_csv(sample()))))
    assert rows[0] == ["method", "r1", "r1_sd", "medr", "medr_sd", "auroc"]
    assert rows[1][0].startswith("'=HYPERLINK") and "\x1b" not in rows[1][0]
    assert rows[1][1:] == ["10.04", "0.25", "3", "1", "0.98"]
    assert rows[4][1:] == ["-1", "", "9", "", ""]


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "\t=1", " =1", "\r=1"])
def test_formulas_are_guarded(text: str) -> None:
    assert guard(text).startswith("'")


def test_plain_words_are_not_guarded() -> None:
    assert guard("infonce (oracle)") == "infonce (oracle)"


def test_markdown_escapes_and_marks_the_best() -> None:
    text = to_markdown(sample())
    assert r"\|&lt;img src=x&gt;" in text and r"\[red\]" in text
    assert "**10.0 ± 0.2**" in text and "_50.0_" in text
    bars = [line.replace(r"\|", "").count("|") for line in text.splitlines() if line.startswith("|")]
    assert set(bars) == {5}
    assert markdown_text("a*b_c`") == r"a\*b\_c\`"


def test_latex_escapes_every_special_character() -> None:
    text = to_latex(sample())
    assert r"\textbackslash{}input\{a\}\%" in text and r"\textbar{}\textless{}img" in text
    assert r"\textbf{10.0 $\pm$ 0.2}" in text and r"\toprule" in text
    assert r"\multicolumn{2}{c}{text $\rightarrow$ image}" in text
    assert text.count(r"\\") == 6
    assert text.startswith("%") and "{booktabs" in text.partition("\n")[0]
    assert text.index(r"\caption") < text.index(rf"\label{{tab:{sample().name}}}") < text.index(r"\begin{tabular}")
    assert r"\label{tab:mine-1:" in to_latex(replace(sample(), report="mine-1")), "unique in a paper with two reports"
    assert latex_text("✓ a") == r"$\checkmark$ a" and "amssymb" in text.partition("\n")[0]
    assert latex_text("&%$#_{}~^") == r"\&\%\$\#\_\{\}\textasciitilde{}\textasciicircum{}"


@pytest.mark.parametrize("name", ["[mine]", "*mine"])
def test_a_first_cell_is_no_argument_of_the_line_before(name: str) -> None:
    text = to_latex(Table("t", "", [Column("a", "a", text=True)], [Row([Cell("x")]), Row([Cell(name)])]))
    assert f"\n{{{name}}} \\\\\n" in text


def test_the_terminal_gets_plain_text() -> None:
    out = io.StringIO()
    Console(file=out, width=200, force_terminal=False).print(to_rich(sample()))
    shown = out.getvalue()
    assert "[red]" in shown and "\x1b" not in shown and "10.0 ± 0.2" in shown and "t→v R@1" in shown


@pytest.mark.parametrize("width", [60, 80])
def test_figures_are_whole_on_a_narrow_terminal(width: int) -> None:
    """Words break into lines; every figure is in one piece, and no line is wider than the terminal."""
    columns = [
        Column("method", "method", text=True),
        *(Column(n, n, "high", group="text → image") for n in ("R@1", "R@5")),
    ]
    names = ("uml [cross_lingual_weight=0.5, judge two-group]", "infonce (oracle)")
    rows = [Row([Cell(name), Cell(10.04 + 90 * r, 0.25), Cell(120.5, 10.0)]) for r, name in enumerate(names)]
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(
        to_rich(Table("t", "A title", columns, rows, ["A note."]))
    )
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for row in rows:
        for cell in row.cells[1:]:
            assert isinstance(cell.value, float)
            assert f"{cell.value:.1f} ± {cell.sd:.1f}" in out.getvalue()
    assert all(word in out.getvalue() for name in names for word in re.findall(r"[a-z]{3,7}(?![a-z])", name))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in ("img", "meta", "br", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_is_balanced_and_holds_no_foreign_tag() -> None:
    tags = Tags()
    tags.feed(blocks.table(sample()))
    assert not tags.open and "img" not in tags.seen
    assert "<b>10.0</b>" in blocks.table(sample())


def test_addresses_are_links_only_if_they_are_of_the_web() -> None:
    assert "<a " not in blocks.web_link("javascript:alert(1)")
    assert blocks.web_link("https://example.org/?a=1&b=2").startswith('<a href="https://example.org/?a=1&amp;b=2"')


def test_a_text_cannot_leave_its_attribute_or_turn_its_neighbours() -> None:
    assert 'alt="&#34; onload=&#34;x"' in blocks.hit_picture("data:,", '" onload="x')
    assert "\u202e" not in blocks.foreign("\u202eabc") and "dir=" in blocks.foreign("abc", 'x"y')
    assert 'lang="x&#34;y"' in blocks.foreign("abc", 'x"y')


@pytest.mark.parametrize("lang", ["de", ""])
def test_what_was_written_of_an_item_is_in_the_language_of_the_data(lang: str) -> None:
    found = [
        ExampleSearch("perro", "es", [ExampleHit("i", "Hund", 0.5)], "Hund", gloss_lang=lang),
        ExampleSearch("gato", "es", []),
    ]
    table = retrieval.searches(found)
    assert table.columns[2].title == "a caption of its item" + " (de)" * bool(lang)
    assert "English" not in to_markdown(table)


def test_bold_is_said_to_be_no_proof() -> None:
    rows = [(m, 0.4, s, 0, 50.0 + s) for m in ("infonce", "uml") for s in (0, 1)]
    frame = pd.DataFrame(rows, columns=["label", "noise", "seed", "noise_seed", "SumR"])
    for name in METRICS:
        frame[name] = frame["SumR"]
    view = comparable.View("t", "d", "test", "es", "target", "none", False, "caption-translation", "es", frame)
    tables = [
        retrieval.by_noise(view),
        retrieval.retrieval(view),
        retrieval.settings([view]),
        retrieval.recoveries(view),
    ]
    assert all(each is not None and retrieval.BEST_NOTE in " ".join(each.notes) for each in tables)
    assert "may be due to chance" in retrieval.BEST_NOTE
