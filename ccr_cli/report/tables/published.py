"""Results beside what papers print for the same data set, language and noise.

Published figures are quoted: they are nobody's of this report, so they are never ranked, averaged or bold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import pandas as pd

from ccr_cli.data.published import Published, row_name
from ccr_cli.report.tables import results, summaries
from ccr_cli.report.tables.published_match import Difference, Manifests, Match, differences, match, published_rows
from ccr_cli.report.tables.table import Cell, Column, Row, Table
from ccr_cli.report.tables.translation_scores import listed
from ccr_cli.report.words import signature_words
from ccr_cli.report.words.numbers import percent

YOURS = "yours"
QUOTED = (
    "Figures of papers are quoted as they are printed, and were measured with other code; what else is known to differ "
    "is said with each. They are for orientation: nothing is ranked or averaged with them."
)

_Differing = Mapping[tuple[str, str], Sequence[Difference]]


def beside(frame: pd.DataFrame, published: Published, manifests: Manifests) -> dict[str, Table]:
    """Makes the tables of results beside published ones.

    Args:
        frame: A results frame.
        published: What is published.
        manifests: The manifests of data sets, by the name that these have here.

    Returns:
        By name: the figures, a table for each data set and language of which there are any, and
        `published-differences`; where nothing fits, `published` says of what there are figures.
    """
    found, lonely = match(frame, published, manifests)
    if not found:
        return {"published": _available(published, lonely)}
    differing = [differences(one) for one in found]
    tables = [_figures(one, differing[i], published) for i, one in enumerate(found)]
    tables.append(_spelled_out(found, differing, published, lonely))
    return {table.name: table for table in tables}


def cited(tables: Iterable[Table], published: Published) -> list[str]:
    """The papers whose figures are in tables, each in a line."""
    texts = {str(cell.value) for table in tables for row in table.rows for cell in row.cells}
    papers = published.papers.to_dict("records")
    shown = [p for p in papers if any(text.startswith(f"{p['name']}, Table") for text in texts)]
    dois = (f" doi {p['doi']}" if p["doi"] else "" for p in shown)
    return [f"{p['name']}: {p['citation']}.{doi}" for p, doi in zip(shown, dois, strict=True)]


def _figures(found: Match, differing: _Differing, published: Published) -> Table:
    """The figures of both, a block a ratio of noise; only such as a paper prints."""
    metrics = [m for m in results.METRICS if m in found.theirs and found.theirs[m].notna().any()]
    columns = [
        Column("noise", "noise", format=".3g", text=True),
        Column("method", "method", text=True),
        Column("source", "from", text=True),
        Column("n", "n", format=".0f"),
        *map(_column, metrics),
        Column("encoders", "encoders", text=True),
        Column("differs", "differs in", text=True),
    ]
    rows: list[Row] = []
    for noise in found.shared:
        rows += [*_ours(found, noise, metrics), *_theirs(found, noise, metrics, differing, published)]
    how = [] if found.protocol == "full" else [found.protocol]
    name = "-".join(["published", found.data, found.lang, *how])
    return Table(name, f"Beside published figures: {found.title}", columns, rows, [QUOTED])


def _column(metric: str) -> Column:
    direction, _, name = metric.rpartition(".")
    key = metric.lower().replace(".", "_").replace("r@", "r")
    title = name if direction else results.HEADLINES[metric][0]
    return Column(key, title, group={"t2v": summaries.T2V, "v2t": summaries.V2T}.get(direction, ""))


def _ours(found: Match, noise: float, metrics: Sequence[str]) -> Iterator[Row]:
    mine = found.ours[found.ours["noise"] == noise]
    told = _told_apart(mine)
    table = results.aggregate(mine, ["key", "noise_kind", "label", "encoder"], metrics)
    for key, line in table.iterrows():
        own, kind, label, encoder = cast(tuple[results.Setting, str, str, str], key)
        cells = [_noise(noise), Cell(label + told[own, kind]), Cell(YOURS)]
        figures = [Cell(int(line[(metrics[0], "n")])), *(summaries.spread(line[metric]) for metric in metrics)]
        yield Row([*cells, *figures, _encoders(encoder), Cell("")], block=percent(noise))


def _noise(ratio: float) -> Cell:
    return Cell(ratio, shown=percent(ratio))


def _encoders(named: str) -> Cell:
    return Cell(named, shown=named or "not named")


def _told_apart(mine: pd.DataFrame) -> dict[tuple[results.Setting, str], str]:
    """By key and kind of noise, what tells our own settings apart."""
    pairs = dict.fromkeys(zip(mine["key"], mine["noise_kind"], strict=True))
    fields = {(key, kind): {**key.fields, "noise": kind} for key, kind in pairs}
    told = {pair: signature_words.apart(list(fields.values()), own) for pair, own in fields.items()}
    return {pair: f", {text}" if text else "" for pair, text in told.items()}


def _theirs(
    found: Match, noise: float, metrics: Sequence[str], differing: _Differing, published: Published
) -> Iterator[Row]:
    misprints = {(m["paper"], m["table"], m["row"]): m for m in published.misprints.to_dict("records")}
    above = None
    for row in found.theirs[found.theirs["noise"] == noise].to_dict("records"):
        table = (row["paper"], row["table"])
        misprint = misprints.get((*table, row_name(row["data"], noise, row["backbone"], row["method"])))
        same = ", ".join(each.what for each in differing[table]) or "nothing known"
        own = [text for text in (row["note"], _misprint(misprint)) if text]
        told = Cell("; ".join([same, *own]), shown="; ".join(["as above" if table == above else same, *own]))
        cells = [_noise(noise), Cell(row["method"]), Cell(published.source(*table)), Cell(None, shown="")]
        figures = [Cell(None if pd.isna(row[metric]) else row[metric]) for metric in metrics]
        yield Row([*cells, *figures, _encoders(row["backbone"]), told], block=percent(noise), quoted=True)
        above = table


def _misprint(misprint: Mapping[Any, Any] | None) -> str:
    if misprint is None:
        return ""
    if misprint["same_as"]:
        return f"the same figures stand in Table {misprint['same_as'].replace(' / ', ', ')}"
    return f"{misprint['printed']} is printed, its parts give {misprint['computed']}"


def _spelled_out(
    found: Sequence[Match], differing: Sequence[_Differing], published: Published, lonely: Sequence[str]
) -> Table:
    """The differences in words; what is the same in several tables or languages stands once."""
    sources: dict[tuple[str, Difference], dict[str, list[str]]] = {}
    for one, tables in zip(found, differing, strict=True):
        for table, each in tables.items():
            for difference in each:
                by_lang = sources.setdefault((one.data, difference), {})
                by_lang.setdefault(one.lang, []).append(published.source(*table))
    rows = []
    for (data, difference), by_lang in sources.items():
        for where in dict.fromkeys(map(tuple, by_lang.values())):
            of = f"{data} {listed([lang for lang, known in by_lang.items() if tuple(known) == where])}"
            texts = (of, difference.what, difference.ours, difference.theirs, "; ".join(where))
            rows.append(Row([Cell(text) for text in texts], block=of))
    blocks = list(dict.fromkeys(row.block for row in rows))
    whats = list(dict.fromkeys(row.cells[1].value for row in rows))
    rows.sort(key=lambda row: (blocks.index(row.block), whats.index(row.cells[1].value)))
    keys = ("of", "what", YOURS, "published", "in")
    columns = [Column(key, key, text=True) for key in keys]
    notes = [f"Nothing published fits {text}." for text in lonely]
    return Table("published-differences", "What differs from the published figures", columns, rows, notes)


def _available(published: Published, lonely: Sequence[str]) -> Table:
    """Of what there are published figures."""
    rows = []
    for data, part in published_rows(published).groupby("data", sort=False):
        ratios = [percent(noise) for noise in sorted(part["noise"].unique())]
        papers = dict.fromkeys(published.source(p, t) for p, t in zip(part["paper"], part["table"], strict=True))
        texts = [", ".join(dict.fromkeys(text)) for text in (part["language"], ratios, part["protocol"])]
        rows.append(Row([Cell(text) for text in (str(data), *texts, "; ".join(papers))]))
    columns = [Column(key, key, text=True) for key in ("data", "queries", "noise", "protocol", "source")]
    notes = [f"Nothing published fits {text}." for text in lonely] or ["There are no results on test items."]
    title = "Nothing published fits these results: what there is" if lonely else "What is published"
    return Table("published", title, columns, rows, notes)
