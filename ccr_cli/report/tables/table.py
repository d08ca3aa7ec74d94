"""One table, many formats: terminal, CSV, Markdown, LaTeX (booktabs), JSON, HTML.

The best figure of each column is marked within its block of rows, and the second of three or more; ceilings (methods
that know the truth) do not compete. Cells are escaped for the format.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich.box import HORIZONTALS
from rich.table import Table as RichTable
from rich.text import Text

from ccr_cli.console import plain
from ccr_cli.report.words.numbers import MINUS, MISSING


@dataclass(frozen=True)
class Column:
    """A column: its heading, the format of its figures, and which of them is best."""

    key: str
    """Name in CSV and JSON."""
    title: str
    better: Literal["high", "low"] | None = None
    format: str = ".1f"
    group: str = ""
    """A heading over adjacent columns of the same group."""
    scale: float = 1.0
    """Figures are multiplied by it for readers (100 for percent), not in CSV and JSON."""
    text: bool = False
    """Contains words and is aligned to the left."""


@dataclass(frozen=True)
class Cell:
    """A figure with its standard deviation, or words."""

    value: float | str | None = None
    sd: float | None = None
    shown: str | None = None
    """Text shown instead of the formatted figure."""
    interval: tuple[float, float] | None = None
    """The figure is not the best if this overlaps the interval of another."""


@dataclass(frozen=True)
class Row:
    """A row; rows of one block compete for the best figure."""

    cells: Sequence[Cell]
    block: str = ""
    ceiling: bool = False
    quoted: bool = False
    """Published figures, which do not compete either."""


@dataclass(frozen=True)
class Table:
    """A table with a caption and notes."""

    name: str
    """File name without suffix."""
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: Sequence[str] = field(default_factory=tuple)

    def best(self) -> set[tuple[int, int]]:
        """Row and column of every best figure: equal to the best as printed, among at least two competitors.

        A figure with an interval is the best only if no other interval overlaps it.
        """
        return {cell for cell, place in self.places().items() if place == 1}

    def places(self) -> dict[tuple[int, int], int]:
        """Row and column of the marked figures: 1 for the best, 2 for the second of three or more.

        If several are the best, or the best is undecided, there is no second.
        """
        marked: dict[tuple[int, int], int] = {}
        for block in dict.fromkeys(row.block for row in self.rows):
            rivals = [i for i, row in enumerate(self.rows) if row.block == block and not (row.ceiling or row.quoted)]
            for c, column in enumerate(self.columns):
                left = {i: v for i in rivals if (v := _number(self.rows[i].cells[c])) is not None}
                for place in (1, 2) if len(left) > 2 else (1,):
                    tops = self._tops(left, c) if column.better and len(left) > 1 else set()
                    marked |= {(i, c): place for i in tops}
                    left = {i: v for i, v in left.items() if i not in tops}
                    if len(tops) != 1:
                        break
        return marked

    def _tops(self, known: Mapping[int, float], c: int) -> set[int]:
        """The rows with the best of these figures, unless their interval overlaps another's."""
        column = self.columns[c]
        top = (max if column.better == "high" else min)(known.values())
        printed = format(top * column.scale, column.format)
        tops = {i for i, v in known.items() if format(v * column.scale, column.format) == printed}
        cells = {i: self.rows[i].cells[c] for i in known}
        return {i for i in tops if not any(overlap(cells[i], cells[j]) for j in known if j != i)}

    def printed(self, r: int, c: int, pm: str | None = " ± ") -> str:
        """The text of a cell; without `pm` only the mean."""
        cell, column = self.rows[r].cells[c], self.columns[c]
        if cell.shown is not None:
            return cell.shown
        if isinstance(cell.value, str):
            return cell.value
        number = _number(cell)
        if number is None:
            return MISSING
        text = format(number * column.scale, column.format).replace("-", MINUS)
        spread = self.spread(r, c)
        return text if pm is None or not spread else f"{text}{pm}{spread}"

    def spread(self, r: int, c: int) -> str:
        """The standard deviation that a cell shows; empty without one."""
        cell, column = self.rows[r].cells[c], self.columns[c]
        if cell.shown is not None or _number(cell) is None or cell.sd is None or not math.isfinite(cell.sd):
            return ""
        return format(cell.sd * column.scale, column.format.lstrip("+"))

    def starts_block(self, r: int) -> bool:
        """Whether a row starts a further block."""
        return r > 0 and self.rows[r].block != self.rows[r - 1].block

    def heading(self, c: int) -> str:
        """A column's heading with its group, for a single line."""
        column = self.columns[c]
        return f"{_SHORT.get(column.group, column.group)} {column.title}".strip()


_SHORT = {"text → image": "t→v", "image → text": "v→t", "SumR": "", "mAP@all": ""}
_SHORT |= {f"uncertainty, {long}": f"unc. {short}" for long, short in list(_SHORT.items())[:2]}


def overlap(one: Cell, other: Cell) -> bool:
    """Whether the intervals of two figures overlap; False if one has none."""
    a, b = one.interval, other.interval
    return a is not None and b is not None and max(a[0], b[0]) <= min(a[1], b[1])


def _number(cell: Cell) -> float | None:
    good = isinstance(cell.value, (int, float)) and math.isfinite(cell.value)
    return float(cell.value) if good and cell.value is not None else None


_TERMINAL = {1: "bold green", 2: "underline"}


def to_rich(table: Table) -> RichTable:
    """For a terminal; cells are plain text, never markup."""
    out = RichTable(
        title=Text(plain(table.title)), title_justify="left", header_style="bold", box=HORIZONTALS, pad_edge=False
    )
    for c, column in enumerate(table.columns):
        out.add_column(Text(plain(table.heading(c))), justify="left" if column.text else "right")
    places = table.places()
    for r, row in enumerate(table.rows):
        if table.starts_block(r):
            out.add_section()
        style = "dim italic" if row.ceiling or row.quoted else ""
        cells = [
            Text(plain(table.printed(r, c)), style=_TERMINAL.get(places.get((r, c), 0), style))
            for c in range(len(table.columns))
        ]
        out.add_row(*cells)
    if table.notes:
        out.caption = Text(plain(" ".join(table.notes)), style="dim")
        out.caption_justify = "left"
    return out


def _records(table: Table) -> Iterator[list[str]]:
    """Header and rows with full figures; a column with standard deviations is followed by theirs."""
    spread = [any(row.cells[c].sd is not None for row in table.rows) for c in range(len(table.columns))]
    header = []
    for column, wide in zip(table.columns, spread, strict=True):
        header += [column.key, f"{column.key}_sd"] if wide else [column.key]
    yield [guard(name) for name in header]
    for row in table.rows:
        fields = []
        for cell, wide in zip(row.cells, spread, strict=True):
            number = _number(cell)
            if isinstance(cell.value, str):
                fields.append(guard(cell.value))
            else:
                fields.append("" if number is None else f"{number:.10g}")
            if wide:
                fields.append(f"{cell.sd:.10g}" if cell.sd is not None and math.isfinite(cell.sd) else "")
        yield fields


def guard(text: str) -> str:
    """Prevents a spreadsheet from reading a text as a formula, and removes line breaks."""
    flat = plain(text)
    return f"'{flat}" if flat.lstrip()[:1] in ("=", "+", "-", "@") or text[:1] in ("\t", "\r", "\n") else flat


def to_csv(table: Table) -> str:
    """RFC 4180 with LF line ends; a leading apostrophe quotes texts that a spreadsheet would evaluate."""

    def quoted(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n') else text

    return "".join(",".join(map(quoted, record)) + "\n" for record in _records(table))


def markdown_text(text: str) -> str:
    """Escapes a text for a cell of a Markdown table."""
    flat = html.escape(plain(text), quote=False)
    return "".join(f"\\{c}" if c in r"\`*_[]|~$#!" else c for c in flat)


_MARKDOWN = {1: ("**", "**"), 2: ("<ins>", "</ins>")}


def to_markdown(table: Table) -> str:
    """A GitHub table with title and notes."""
    places = table.places()
    heads = [markdown_text(table.heading(c)) for c in range(len(table.columns))]
    lines = [f"**{markdown_text(table.title)}**", "", "| " + " | ".join(heads) + " |"]
    lines.append("|" + "|".join(":---" if c.text else "---:" for c in table.columns) + "|")
    for r, row in enumerate(table.rows):
        plain_mark = ("_", "_") if row.ceiling or row.quoted else ("", "")
        marks = [_MARKDOWN.get(places.get((r, c), 0), plain_mark) for c in range(len(row.cells))]
        texts = [markdown_text(table.printed(r, c)) for c in range(len(row.cells))]
        cells = [f"{start}{text}{end}" if text else "" for (start, end), text in zip(marks, texts, strict=True)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *(f"{markdown_text(note)}  " for note in table.notes)]
    return "\n".join(lines).rstrip() + "\n"


_LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "→": r"$\rightarrow$",
    "±": r"$\pm$",
    MISSING: "--",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    MINUS: "$-$",
    "\u00d7": r"$\times$",
    "∞": r"$\infty$",
    "†": r"\textdagger{}",
}


def latex_text(text: str) -> str:
    """Escapes a text for LaTeX."""
    return "".join(_LATEX.get(char, char) for char in plain(text))


_LATEX_FONTS = {1: r"\textbf", 2: r"\underline"}


def to_latex(table: Table) -> str:
    """A booktabs table; needs the packages booktabs and fontenc with T1."""
    n, places = len(table.columns), table.places()
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{latex_text(table.title)}}}"]
    lines += [rf"\begin{{tabular}}{{{''.join('l' if c.text else 'r' for c in table.columns)}}}", r"\toprule"]
    spans = column_groups(table)
    if any(title for title, _, _ in spans):
        cells = [rf"\multicolumn{{{w}}}{{c}}{{{latex_text(t)}}}" if t else "& " * (w - 1) for t, _, w in spans]
        rules = [rf"\cmidrule(lr){{{first + 1}-{first + width}}}" for t, first, width in spans if t]
        lines += [" & ".join(cells) + r" \\", " ".join(rules)]
    lines += [" & ".join(latex_text(c.title) for c in table.columns) + r" \\", r"\midrule"]
    for r, row in enumerate(table.rows):
        if table.starts_block(r):
            lines.append(r"\midrule")
        cells = []
        for c in range(n):
            font = _LATEX_FONTS.get(places.get((r, c), 0), r"\textit" if row.ceiling or row.quoted else "")
            cells.append(f"{font}{{{latex_text(table.printed(r, c))}}}" if font else latex_text(table.printed(r, c)))
        if cells[0].startswith(("[", "*")):  # else an argument of the preceding line break
            cells[0] = f"{{{cells[0]}}}"
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.notes:
        lines += ["", r"\smallskip", rf"{{\footnotesize {latex_text(' '.join(table.notes))}}}"]
    return "\n".join([*lines, r"\end{table}", ""])


def column_groups(table: Table) -> list[tuple[str, int, int]]:
    """Headings over columns: title, first column, width."""
    spans: list[tuple[str, int, int]] = []
    for c, column in enumerate(table.columns):
        if spans and spans[-1][0] == column.group:
            title, first, width = spans[-1]
            spans[-1] = (title, first, width + 1)
        else:
            spans.append((column.group, c, 1))
    return spans


def to_json(table: Table) -> str:
    """One object: title, notes, columns, and rows with every figure in full and its place.

    Texts are unescaped; a cell has `value`, and further keys only where they apply.
    """
    places = table.places()
    columns = [{"key": c.key, "title": c.title, "group": c.group, "better": c.better} for c in table.columns]
    rows = []
    for r, row in enumerate(table.rows):
        cells = {}
        for c, (column, cell) in enumerate(zip(table.columns, row.cells, strict=True)):
            known = cell.value if isinstance(cell.value, str) else _number(cell)
            entry: dict[str, object] = {"value": known, "sd": _finite(cell.sd), "place": places.get((r, c))}
            entry["shown"] = cell.shown if cell.shown != cell.value else None
            entry["interval"] = None if cell.interval is None else [_finite(end) for end in cell.interval]
            cells[column.key] = {key: value for key, value in entry.items() if key == "value" or value is not None}
        rows.append({"block": row.block, "ceiling": row.ceiling, "quoted": row.quoted, "cells": cells})
    whole = {"name": table.name, "title": table.title, "notes": list(table.notes), "columns": columns, "rows": rows}
    return json.dumps(whole, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


FORMATS: dict[str, Callable[[Table], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex, "json": to_json}
"""The formats that a report writes, by suffix."""
