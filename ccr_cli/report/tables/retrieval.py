"""Tables of retrieval results: by noise, by language, in every setting, what is recovered, and example searches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import pandas as pd

from ccr_cli.report.content import ExampleSearch
from ccr_cli.report.tables import results
from ccr_cli.report.tables.differences import Recovery, recovery
from ccr_cli.report.tables.table import Cell, Column, Row, Table
from ccr_cli.report.words.numbers import MINUS, count_range, ends, listed, percent, similarity

DIRECTION_TITLES = {"t2v": "text → image", "v2t": "image → text"}
SPREAD_NOTE = "Mean ± standard deviation over n runs that differ in the seed of training or of the mismatch"
BEST_NOTE = "The best mean is bold, even if the difference may be due to chance."
SD_NOTE = f"{SPREAD_NOTE}; second of three or more underlined; the oracle does not compete. {BEST_NOTE}"
METRICS = {"R@1": "r1", "R@5": "r5", "R@10": "r10", "MedR": "medr", "mAP": "map"}
"""The metrics of a direction, and their names in the keys of columns."""


def spread(line: Any) -> Cell:
    """A mean, with its standard deviation over several runs; `line` has mean, sd and n."""
    mean, sd, n = float(line["mean"]), float(line["sd"]), int(line["n"])
    if not math.isfinite(mean):
        return Cell()
    return Cell(mean, sd if n > 1 and math.isfinite(sd) else None)


def range_cell(counts: Sequence[int]) -> Cell:
    """The number of runs behind a row of figures, which may vary."""
    if not counts:
        return Cell()
    return Cell(min(counts), shown=None if min(counts) == max(counts) else count_range(counts))


def by_noise(view: results.View) -> Table:
    """The headline figure of every method at every noise ratio: a row a method, a column a ratio."""
    ratios = sorted(set(view.frame["noise"]))
    columns = [Column("method", "method", text=True), *_ratio_columns(view, ratios), Column("seeds", "n", format=".0f")]
    rows = [
        Row([Cell(label), *cells], ceiling=results.is_oracle(label)) for label, cells in _method_cells(view, ratios)
    ]
    title = f"{view.named} ({view.scale}) by method and noise: {view.title}"
    return Table(view.figure.lower(), title, columns, rows, [SD_NOTE])


def settings(views: Sequence[results.View]) -> Table:
    """The headline figure of every method in every setting: other languages, fusion, other data sets.

    Args:
        views: Settings with one headline figure.
    """
    ratios = sorted({noise for view in views for noise in view.frame["noise"]})
    columns = [Column("setting", "data, split and queries", text=True), Column("method", "method", text=True)]
    columns += [*_ratio_columns(views[0], ratios), Column("seeds", "n", format=".0f")]
    rows = [
        Row([Cell(view.title), Cell(label), *cells], block=view.title, ceiling=results.is_oracle(label))
        for view in views
        for label, cells in _method_cells(view, ratios)
    ]
    title = f"{views[0].named} ({views[0].scale}) in every language and setting"
    return Table("settings", title, columns, rows, [SD_NOTE])


def _ratio_columns(view: results.View, ratios: Sequence[float]) -> list[Column]:
    key = view.figure.lower()
    return [Column(f"{key}_noise_{n:g}", f"{percent(n)} noise", "high", group=view.named) for n in ratios]


def _method_cells(view: results.View, ratios: Sequence[float]) -> list[tuple[str, list[Cell]]]:
    """For each method the figure at every ratio, and the number of runs."""
    table: Any = results.aggregate(view.frame, ["label", "noise"], [view.figure])[view.figure]
    rows = []
    for label in results.methods(view.frame):
        cells = [spread(table.loc[(label, n)]) if (label, n) in table.index else Cell() for n in ratios]
        rows.append((label, [*cells, range_cell([int(n) for n in table.loc[label, "n"]])]))
    return rows


def retrieval(view: results.View, noise: float | None = None) -> Table:
    """Methods by noise: the headline figure, R@1/5/10 both ways, MedR and mAP, mean and spread over seeds.

    Args:
        view: Comparable results.
        noise: Only this ratio; None for all, a block each.
    """
    columns = [
        Column("noise", "noise", format=".3g", text=True),
        Column("method", "method", text=True),
        Column("n", "n", format=".0f"),
        Column(view.figure.lower(), view.named, "high"),
    ]
    for direction, group in DIRECTION_TITLES.items():
        for name, short in METRICS.items():
            columns.append(Column(f"{direction}_{short}", name, "low" if name == "MedR" else "high", group=group))
    figures = [view.figure, *(f"{direction}.{name}" for direction in DIRECTION_TITLES for name in METRICS)]
    frame = view.frame if noise is None else view.frame[view.frame["noise"] == noise]
    rows = []
    for key, line in results.aggregate(frame, ["noise", "label"], figures).iterrows():
        ratio, label = cast(tuple[float, str], key)
        cells = [Cell(float(ratio), shown=percent(ratio)), Cell(label), Cell(int(line[(view.figure, "n")]))]
        cells += [spread(line[figure]) for figure in figures]
        rows.append(Row(cells, block=percent(ratio), ceiling=results.is_oracle(str(label))))
    where = "" if noise is None else f" at {percent(noise)} noise"
    name = "retrieval" if noise is None else f"retrieval-noise{noise:g}"
    notes = [SD_NOTE, "R@K and mAP in percent; MedR is a rank (lower is better)."]
    return Table(name, f"Retrieval{where}: {view.title}", columns, rows, notes)


def languages(views: Sequence[results.View]) -> Table | None:
    """The headline figure by method, noise and language, with the mean: the layout of the papers' main tables.

    The mean is over runs with equal seeds in all languages; a method that lacks a language has none.

    Args:
        views: From `results.same_but_language`; with fewer than two there is no table.
    """
    if len(views) < 2:
        return None
    main, langs = views[0], [view.lang for view in views]
    frame = pd.concat([view.frame.assign(lang=view.lang) for view in views], ignore_index=True)
    columns = [Column("noise", "noise", format=".3g", text=True), Column("method", "method", text=True)]
    columns += [Column(f"{main.figure.lower()}_{lang}", lang, "high", group=main.named) for lang in langs]
    columns += [Column("mean", "mean", "high", group=main.named), Column("n", "n", format=".0f")]
    single = results.aggregate(frame, ["noise", "label", "lang"], [main.figure])[main.figure]
    complete = frame.pivot_table(main.figure, ["noise", "label", *results.REPLICATE], "lang").reset_index()
    complete["mean"] = complete.reindex(columns=langs).mean(axis=1, skipna=False)
    means = results.aggregate(complete.dropna(subset=["mean"]), ["noise", "label"], ["mean"])["mean"]
    rows = []
    for noise in sorted(set(frame["noise"])):
        for label in results.methods(frame[frame["noise"] == noise]):
            keys = [(noise, label, lang) for lang in langs]
            cells = [spread(single.loc[key]) if key in single.index else Cell() for key in keys]
            cells.append(spread(means.loc[(noise, label)]) if (noise, label) in means.index else Cell())
            cells.append(range_cell([int(single["n"][key]) for key in keys if key in single.index]))
            head = [Cell(float(noise), shown=percent(noise)), Cell(label)]
            rows.append(Row([*head, *cells], block=percent(noise), ceiling=results.is_oracle(label)))
    title = f"{main.named} ({main.scale}) by method, language and noise: {main.data} {main.split}"
    notes = [SD_NOTE, "The mean over languages is of runs with equal seeds in all of them."]
    return Table("languages", title, columns, rows, notes)


def recoveries(view: results.View) -> Table | None:
    """How much of what noise costs infonce each method recovers; None without a comparison."""
    frame = view.frame
    ratios = sorted(set(frame["noise"]))
    labels = [
        label
        for label in results.methods(frame)
        if results.base_label(label) != results.BASELINE
        and not (results.is_oracle(label) or results.is_ensemble(label))
    ]
    wins = {(m, n): recovery(frame, m, n, figure=view.figure) for m in labels for n in ratios}
    known = {key: win for key, win in wins.items() if win is not None}
    if not known:
        return None
    columns = [Column("method", "method", text=True)]
    shown = []
    for noise in ratios:
        group = f"{percent(noise)} noise"
        columns.append(Column(f"gain_noise_{noise:g}", f"{view.named} {MINUS} infonce", "high", "+.1f", group))
        shown.append((noise, False))
        if any(win.value is not None for (_, n), win in known.items() if n == noise):
            columns.append(Column(f"recovery_noise_{noise:g}", "recovered", "high", ".2f", group))
            shown.append((noise, True))
    columns.append(Column("seeds", "n", format=".0f"))
    rows = []
    for label in labels:
        cells = [Cell(label)]
        for noise, is_share in shown:
            win = known.get((label, noise))
            gain = Cell() if win is None else Cell(win.difference, win.difference_sd)
            cells.append(_recovered(win) if is_share and win else Cell() if is_share else gain)
        cells.append(range_cell([win.seeds for (m, _), win in known.items() if m == label]))
        rows.append(Row(cells))
    notes = [
        f"Over n pairs with equal seeds. Recovered: (method {MINUS} infonce) / (oracle {MINUS} infonce), the ratio of "
        "means with its 95% bootstrap interval over seeds (for three seeds, nearly their whole range). It is "
        "undefined without noise, where only the difference is given.",
        BEST_NOTE,
    ]
    return Table("recovery", f"How much of the loss to noise is recovered: {view.title}", columns, rows, notes)


def _recovered(win: Recovery) -> Cell:
    details = [] if win.low is None or win.high is None else [ends(win.low, win.high, 2)]
    details += [f"n = {win.value_seeds}"] if win.value_seeds != win.seeds else []
    if win.value is None or not details:
        return Cell(win.value)
    return Cell(win.value, shown=f"{similarity(win.value)} ({', '.join(details)})")


def searches(examples: Sequence[ExampleSearch], top: int = 3) -> Table:
    """Queries with the captions of the first `top` results, the right one marked, and the first result's picture."""
    langs = dict.fromkeys(search.gloss_lang for search in examples if search.gloss and search.gloss_lang)
    titles = {
        "lang": "",
        "query": "query",
        "meaning": "a caption of its item" + (f" ({listed(langs, 'or')})" if langs else ""),
        **{f"hit_{i}": f"{i}." for i in range(1, top + 1)},
        "image": "picture of 1.",
    }
    columns = [Column(key, title, text=True) for key, title in titles.items()]
    rows = []
    for search in examples:
        hits: list[str | None] = [f"{'✓ ' if hit.correct else ''}{hit.caption}" for hit in search.results[:top]]
        hits += [None] * (top - len(hits))
        image = search.results[0].image if search.results else None
        texts = [search.lang, search.query, search.gloss, *hits, image.name if image else None]
        rows.append(Row([Cell(text) for text in texts], block=search.lang))
    notes = ["Queries are drawn by a fixed seed from the human captions; ✓ marks the item that the query describes."]
    return Table("searches", "Searches", columns, rows, notes)
