"""One table, many formats: terminal, CSV, Markdown, LaTeX (booktabs), JSON, HTML.

The best figure of each column is marked within its block of rows, and the second of three or more; ceilings (methods
that know the truth) do not compete. Cells are escaped for the format.
"""

import csv
import html
import io
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from rich.box import HORIZONTALS
from rich.table import Table as RichTable
from rich.text import Text

from ccr_cli.console import escaped, plain
from ccr_cli.report.words.numbers import MINUS, MISSING, decimal

Shown = TypeVar("Shown")


@dataclass(frozen=True)
class Column:
    """A column: its heading, how its figures are written, and which of them is best."""

    key: str
    """Name in CSV and JSON."""
    title: str
    better: Literal["high", "low"] | None = None
    digits: int = 1
    group: str = ""
    """A heading over adjacent columns of the same group."""
    scale: float = 1.0
    """Figures are multiplied by it for readers (100 for percent), not in CSV and JSON."""
    text: bool = False
    """Contains words and is aligned to the left."""
    signed: bool = False

    def write(self, value: float) -> str:
        """A figure of the column for readers."""
        return decimal(value * self.scale, self.digits, sign=self.signed)


@dataclass(frozen=True)
class Cell:
    """A figure with its standard deviation, or words."""

    value: float | str | None = None
    sd: float | None = None
    shown: str | None = None
    """Text shown instead of the formatted figure."""
    interval: tuple[float, float] | None = None
    """The figure is not the best if this overlaps the interval of another."""

    @property
    def number(self) -> float | None:
        """The figure, if there is one."""
        return None if self.value is None or isinstance(self.value, str) else finite(self.value)


def finite(value: float | None) -> float | None:
    """A number for JSON, where infinity and not-a-number become None."""
    return None if value is None or not math.isfinite(value) else float(value)


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
    notes: Sequence[str] = ()
    report: str = ""
    """Name of the report that it belongs to, which makes its label in LaTeX unique."""

    def places(self) -> dict[tuple[int, int], int]:
        """Row and column of the marked figures: 1 for the best, 2 for the second of three or more.

        The best are equal to the best as printed, among at least two competitors; one with an interval is the best only
        if no other interval overlaps it. If several are the best, or the best is undecided, there is no second.
        """
        marked: dict[tuple[int, int], int] = {}
        for block in dict.fromkeys(row.block for row in self.rows):
            rivals = [i for i, row in enumerate(self.rows) if row.block == block and not (row.ceiling or row.quoted)]
            for c, column in enumerate(self.columns):
                left = {i: v for i in rivals if (v := self.rows[i].cells[c].number) is not None}
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
        top = column.write((max if column.better == "high" else min)(known.values()))
        tops = {i for i, v in known.items() if column.write(v) == top}
        cells = {i: self.rows[i].cells[c] for i in known}
        return {i for i in tops if not any(overlap(cells[i], cells[j]) for j in known if j != i)}

    def printed(self, r: int, c: int, pm: str | None = " ± ") -> str:
        """The text of a cell; without `pm` only the mean."""
        cell = self.rows[r].cells[c]
        if cell.shown is not None:
            return cell.shown
        if isinstance(cell.value, str):
            return cell.value
        text = MISSING if cell.number is None else self.columns[c].write(cell.number)
        spread = self.spread(r, c)
        return text if pm is None or not spread else f"{text}{pm}{spread}"

    def spread(self, r: int, c: int) -> str:
        """The standard deviation that a cell shows; empty without one."""
        cell, column = self.rows[r].cells[c], self.columns[c]
        sd = finite(cell.sd)
        unknown = cell.shown is not None or cell.number is None
        return "" if unknown or sd is None else decimal(sd * column.scale, column.digits)

    def starts_block(self, r: int) -> bool:
        """Whether a row starts a further block."""
        return r > 0 and self.rows[r].block != self.rows[r - 1].block

    def headings(self) -> list[str]:
        """The headings of the columns with their groups, for a single line."""
        return [f"{_SHORT.get(column.group, column.group)} {column.title}".strip() for column in self.columns]

    def cells(self, show: Callable[[str, int], Shown]) -> list[list[Shown]]:
        """The rows as `show` renders the text of a cell: 1 for the best, 2 for the second, 3 if it does not compete."""
        places, columns = self.places(), range(len(self.columns))
        others = [3 if row.ceiling or row.quoted else 0 for row in self.rows]
        return [[show(self.printed(r, c), places.get((r, c), n)) for c in columns] for r, n in enumerate(others)]

    def groups(self) -> list[tuple[str, int, int]]:
        """Headings over columns: title, first column, width."""
        spans = itertools.groupby(range(len(self.columns)), key=lambda c: self.columns[c].group)
        columns = [(title, list(places)) for title, places in spans]
        return [(title, places[0], len(places)) for title, places in columns]


_SHORT = {"text → image": "t→v", "image → text": "v→t", "SumR": "", "mAP@all": ""}
_SHORT |= {f"uncertainty, {long}": f"unc. {short}" for long, short in list(_SHORT.items())[:2]}


def overlap(one: Cell, other: Cell) -> bool:
    """Whether the intervals of two figures overlap; False if one has none."""
    a, b = one.interval, other.interval
    return a is not None and b is not None and max(a[0], b[0]) <= min(a[1], b[1])


def to_rich(table: Table) -> RichTable:
    """For a terminal; cells are plain text, never markup."""
    title = Text(plain(table.title))
    out = RichTable(title=title, title_justify="left", header_style="bold", box=HORIZONTALS, pad_edge=False)
    for column, heading in zip(table.columns, table.headings(), strict=True):
        out.add_column(Text(plain(heading)), justify="left" if column.text else "right")
    styles = ("", "bold green", "underline", "dim italic")
    for r, cells in enumerate(table.cells(lambda text, mark: Text(plain(text), style=styles[mark]))):
        if table.starts_block(r):
            out.add_section()
        out.add_row(*cells)
    if table.notes:
        out.caption = Text(plain(" ".join(table.notes)), style="dim")
        out.caption_justify = "left"
    return out


def guard(text: str) -> str:
    """Prevents a spreadsheet from reading a text as a formula, and removes line breaks."""
    flat = plain(text)
    return f"'{flat}" if flat.lstrip()[:1] in ("=", "+", "-", "@") or text[:1] in ("\t", "\r", "\n") else flat


def to_csv(table: Table) -> str:
    """RFC 4180 with LF line ends and full figures; a column with standard deviations is followed by theirs.

    A leading apostrophe quotes texts that a spreadsheet would evaluate.
    """
    with_sd = [any(row.cells[c].sd is not None for row in table.rows) for c in range(len(table.columns))]

    def record(cells: Sequence[tuple[str | float | None, str | float | None]]) -> list[str]:
        values = [value for pair, both in zip(cells, with_sd, strict=True) for value in pair[: 1 + both]]
        return [guard(v) if isinstance(v, str) else "" if v is None else f"{v:.10g}" for v in values]

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(record([(column.key, f"{column.key}_sd") for column in table.columns]))
    for row in table.rows:
        texts = (cell.value if isinstance(cell.value, str) else cell.number for cell in row.cells)
        writer.writerow(record([(text, finite(cell.sd)) for text, cell in zip(texts, row.cells, strict=True)]))
    return out.getvalue()


def markdown_text(text: str) -> str:
    """Escapes a text for a cell of a Markdown table."""
    flat = html.escape(plain(text), quote=False)
    return "".join(f"\\{c}" if c in r"\`*_[]|~$#!" else c for c in flat)


def to_markdown(table: Table) -> str:
    """A GitHub table with title and notes."""
    marks = (("", ""), ("**", "**"), ("<ins>", "</ins>"), ("_", "_"))

    def show(text: str, mark: int) -> str:
        return markdown_text(text).join(marks[mark]) if text else ""

    lines = [list(map(markdown_text, table.headings())), [":---" if c.text else "---:" for c in table.columns]]
    bars = ["| " + " | ".join(cells) + " |" for cells in (*lines, *table.cells(show))]
    bars[1] = bars[1].replace(" ", "")
    notes = [f"{markdown_text(note)}  " for note in table.notes]
    return "\n".join([f"**{markdown_text(table.title)}**", "", *bars, "", *notes]).rstrip() + "\n"


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
    "✓": r"$\checkmark$",
}


def latex_text(text: str) -> str:
    """Escapes a text for LaTeX."""
    return "".join(_LATEX.get(char, char) for char in plain(text))


PREAMBLE = r"% needs \usepackage{booktabs,amssymb} and \usepackage[T1]{fontenc}; for other scripts, XeLaTeX or LuaLaTeX"
"""A comment on the packages that tables in LaTeX need."""


def to_latex(table: Table, *, preamble: bool = True) -> str:
    """A booktabs table with a label (`tab:`, report, table), by default under the comment on packages."""
    marks = (("", ""), (r"\textbf{", "}"), (r"\underline{", "}"), (r"\textit{", "}"))
    lines = [PREAMBLE] if preamble else []
    lines += [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_text(table.title)}}}",
        rf"\label{{{':'.join(filter(None, ('tab', table.report, table.name)))}}}",
    ]
    lines += [rf"\begin{{tabular}}{{{''.join('l' if c.text else 'r' for c in table.columns)}}}", r"\toprule"]
    spans = table.groups()
    if any(title for title, _, _ in spans):
        cells = [rf"\multicolumn{{{w}}}{{c}}{{{latex_text(t)}}}" if t else "& " * (w - 1) for t, _, w in spans]
        rules = [rf"\cmidrule(lr){{{first + 1}-{first + width}}}" for t, first, width in spans if t]
        lines += [" & ".join(cells) + r" \\", " ".join(rules)]
    lines += [" & ".join(latex_text(c.title) for c in table.columns) + r" \\", r"\midrule"]
    for r, cells in enumerate(table.cells(lambda text, mark: latex_text(text).join(marks[mark]))):
        if table.starts_block(r):
            lines.append(r"\midrule")
        if cells[0].startswith(("[", "*")):  # else an argument of the preceding line break
            cells[0] = f"{{{cells[0]}}}"
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.notes:
        lines += ["", r"\smallskip", rf"{{\footnotesize {latex_text(' '.join(table.notes))}}}"]
    return "\n".join([*lines, r"\end{table}", ""])


def to_json(table: Table) -> str:
    """One object: title, notes, columns, and rows with every figure in full and its place.

    Of texts only control characters are escaped; a cell has `value`, and further keys only where they apply.
    """
    places = table.places()
    columns = [{"key": c.key, "title": c.title, "group": c.group, "better": c.better} for c in table.columns]
    rows = []
    for r, row in enumerate(table.rows):
        cells = {}
        for c, (column, cell) in enumerate(zip(table.columns, row.cells, strict=True)):
            entry: dict[str, object] = {
                "sd": finite(cell.sd),
                "place": places.get((r, c)),
                "shown": cell.shown if cell.shown != cell.value else None,
                "interval": None if cell.interval is None else [finite(end) for end in cell.interval],
            }
            known = cell.value if isinstance(cell.value, str) else cell.number
            cells[column.key] = {"value": known} | {key: value for key, value in entry.items() if value is not None}
        rows.append({"block": row.block, "ceiling": row.ceiling, "quoted": row.quoted, "cells": cells})
    whole = {"name": table.name, "title": table.title, "notes": list(table.notes), "columns": columns, "rows": rows}
    return escaped(json.dumps(whole, ensure_ascii=False, indent=1, allow_nan=False)) + "\n"


FORMATS: dict[str, Callable[[Table], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex, "json": to_json}
"""The formats that a report writes, by suffix."""
