"""The tables of a report, made from results and diagnoses frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import pandas as pd

from ccr_cli.report.content import ExampleSearch
from ccr_cli.report.tables import results
from ccr_cli.report.tables.recovery import Recovery, recovery
from ccr_cli.report.tables.table import Cell, Column, Row, Table
from ccr_cli.report.words import signature_words as words
from ccr_cli.report.words.numbers import MINUS, percent

T2V, V2T = "text → image", "image → text"
SPREAD_NOTE = "Mean ± standard deviation over n runs that differ in their seed, of training or of the mismatch"
BEST_NOTE = "Bold is the best mean, even where the difference may be chance."
SD_NOTE = f"{SPREAD_NOTE}; second of three or more underlined; the oracle does not compete. {BEST_NOTE}"


def ladder(view: results.View) -> Table:
    """The headline figure of every method at every noise ratio: a row a method, a column a ratio."""
    frame = view.frame
    ratios = sorted(set(frame["noise"]))
    table = results.aggregate(frame, ["label", "noise"], [view.figure])[view.figure]
    columns = [Column("method", "method", text=True), *_ratio_columns(view, ratios), Column("seeds", "n", format=".0f")]
    rows = []
    for label in results.methods(frame):
        known = [(label, noise) in table.index for noise in ratios]
        cells = [spread(table.loc[(label, n)]) if there else Cell() for n, there in zip(ratios, known, strict=True)]
        rows.append(Row([Cell(label), *cells, _seeds(table, label)], ceiling=results.is_oracle(label)))
    title = f"{view.named} ({view.scale}) by method and noise: {view.title}"
    return Table(view.figure.lower(), title, columns, rows, [SD_NOTE])


def _ratio_columns(view: results.View, ratios: Sequence[float]) -> list[Column]:
    key = view.figure.lower()
    return [Column(f"{key}_noise_{n:g}", f"{percent(n)} noise", "high", group=view.named) for n in ratios]


def _seeds(table: Any, label: str) -> Cell:
    """How many runs there are; from few to many where that depends on the noise."""
    return few_to_many([int(n) for n in table.loc[label, "n"]])


def few_to_many(counts: Sequence[int]) -> Cell:
    """How many runs are behind a row of figures."""
    if not counts:
        return Cell()
    few, many = min(counts), max(counts)
    return Cell(few, shown=None if few == many else f"{few} to {many}")


def recoveries(view: results.View) -> Table | None:
    """What each method wins back of what noise costs infonce; None where there is nothing to compare with."""
    frame = view.frame
    ratios = sorted(set(frame["noise"]))
    rivals = (m for m in results.methods(frame) if not (results.is_oracle(m) or results.is_ensemble(m)))
    labels = [m for m in rivals if results.base_label(m) != results.BASELINE]
    each = ((m, n, recovery(frame, m, n, figure=view.figure)) for m in labels for n in ratios)
    won = {(m, n): win for m, n, win in each if win is not None}
    if not won:
        return None
    columns = [Column("method", "method", text=True)]
    for noise in ratios:
        columns.append(
            Column(f"gain_noise_{noise:g}", f"{view.named} {MINUS} infonce", "high", "+.1f", f"{percent(noise)} noise")
        )
        if any(win.value is not None for (_, n), win in won.items() if n == noise):
            columns.append(Column(f"recovery_noise_{noise:g}", "recovered", "high", ".2f", f"{percent(noise)} noise"))
    columns.append(Column("seeds", "n", format=".0f"))
    rows = []
    for label in labels:
        cells = [Cell(label)]
        for column in columns[1:-1]:
            what, _, noise = column.key.split("_")
            win = won.get((label, float(noise)))
            cells.append(Cell() if win is None else _gain(win) if what == "gain" else _recovered(win))
        cells.append(few_to_many([win.seeds for (m, _), win in won.items() if m == label]))
        rows.append(Row(cells))
    notes = [
        f"Over n pairs of equal seeds. Recovered: (method {MINUS} infonce) / (oracle {MINUS} infonce), the ratio of "
        "means with its 95% bootstrap interval over seeds, which for three is little less than their whole range; "
        "undefined without noise, where the difference stands alone.",
        BEST_NOTE,
    ]
    return Table("recovery", f"What is won back from noise: {view.title}", columns, rows, notes)


def _gain(win: Recovery) -> Cell:
    return Cell(win.difference, win.difference_sd)


def _recovered(win: Recovery) -> Cell:
    if win.value is None:
        return Cell()
    told = [] if win.low is None or win.high is None else [f"{win.low:.2f} to {win.high:.2f}"]
    told += [f"n = {win.value_seeds}"] if win.value_seeds != win.seeds else []
    return Cell(win.value, shown=f"{win.value:.2f} ({', '.join(told)})".replace("-", MINUS) if told else None)


def retrieval(view: results.View, noise: float | None = None) -> Table:
    """Methods x noise: the headline figure, R@1/5/10 both ways, MedR and mAP, mean and spread over seeds.

    Args:
        view: What may be compared.
        noise: Only this ratio; None for all, a block each.
    """
    columns = [
        Column("noise", "noise", format=".3g", text=True),
        Column("method", "method", text=True),
        Column("n", "n", format=".0f"),
        Column(view.figure.lower(), view.named, "high"),
    ]
    names = {"R@1": "r1", "R@5": "r5", "R@10": "r10", "MedR": "medr", "mAP": "map"}
    for direction, group in (("t2v", T2V), ("v2t", V2T)):
        for metric, short in names.items():
            better: Any = "low" if metric == "MedR" else "high"
            columns.append(Column(f"{direction}_{short}", metric, better, group=group))
    figures = [view.figure, *(f"{d}.{m}" for d in ("t2v", "v2t") for m in names)]
    rows = []
    table = results.aggregate(view.frame, ["noise", "label"], figures)
    for key, line in table.iterrows():
        ratio, label = cast(tuple[float, str], key)
        if noise is not None and ratio != noise:
            continue
        cells = [Cell(float(ratio), shown=percent(ratio)), Cell(label), Cell(int(line[(view.figure, "n")]))]
        cells += [spread(line[figure]) for figure in figures]
        rows.append(Row(cells, block=percent(ratio), ceiling=results.is_oracle(str(label))))
    where = "" if noise is None else f" at {percent(noise)} noise"
    name = "retrieval" if noise is None else f"retrieval-noise{noise:g}"
    notes = [SD_NOTE, "R@K and mAP in percent, MedR a rank (lower is better)."]
    return Table(name, f"Retrieval{where}: {view.title}", columns, rows, notes)


def detection(frame: pd.DataFrame) -> Table:
    """How well the mismatched pairs are found: at the threshold, over all thresholds, and as probabilities."""
    by = ["data", "lang", "noise", "noise_kind", "label", "judge", "judge_side"]
    columns = [
        Column("noise", "noise", format=".3g", text=True),
        Column("method", "method", text=True),
        Column("judge", "judge", text=True),
        Column("n", "n", format=".0f"),
        Column("found", "found, %", "high", scale=100),
        Column("false_alarms", "false alarms, %", "low", scale=100),
        Column("precision", "precision, %", "high", scale=100),
        Column("f1", "F1, %", "high", scale=100),
        Column("auroc", "AUROC", "high", format=".3f"),
        Column("average_precision", "AUPRC", "high", format=".3f"),
        Column("ece", "calibration error", "low", format=".3f"),
        Column("called_noisy", "called noisy, %", scale=100),
        Column("uncertainty_clean", "uncertainty if called clean", format=".3f"),
        Column("uncertainty_noisy", "if called noisy", format=".3f"),
    ]
    figures = ["recall", "false_alarms", "precision", "f1", "auroc", "average_precision", "ece"]
    figures += ["share_noisy", "uncertainty.clean", "uncertainty.noisy"]
    several = frame[["data", "lang"]].drop_duplicates().shape[0] > 1
    if several:
        columns.insert(1, Column("lang", "language", text=True))
    rows = []
    for key, line in results.aggregate(frame, by, figures).iterrows():
        data, lang, noise, kind, label, judge, side = cast(tuple[Any, ...], key)
        shown = " ".join([percent(noise), *([data] if several else [])])
        shown += f", {words.noise(kind)}" if kind not in _USUAL else ""
        name = str(judge) if side in ("", "cross_lingual") else f"{judge}, {side}"
        cells = [
            Cell(float(noise), shown=shown),
            *([Cell(lang)] if several else []),
            Cell(label),
            Cell(name),
            Cell(int(line[("share_noisy", "n")])),
        ]
        cells += [spread(line[figure]) for figure in figures]
        rows.append(Row(cells, block=f"{shown} {lang}", ceiling=judge == "oracle"))
    notes = [
        "Found: share of the mismatched pairs that are called noisy. False alarms: share of the intact pairs that are; "
        "a translation that is genuinely bad counts as intact there. Calibration error: mean gap between P(clean) and "
        f"the share of intact pairs, over ten bins. {SPREAD_NOTE}.",
        BEST_NOTE,
    ]
    return Table("detection", "Mismatched training pairs found", columns, rows, notes)


_USUAL = ("none", "caption-translation")


def overview(views: Sequence[results.View]) -> Table:
    """The headline figure of every method in every setting: other languages, fusion, other collections.

    Args:
        views: Settings with one headline figure.
    """
    ratios = sorted({noise for view in views for noise in view.frame["noise"]})
    columns = [Column("setting", "data, split and queries", text=True), Column("method", "method", text=True)]
    columns += [*_ratio_columns(views[0], ratios), Column("seeds", "n", format=".0f")]
    rows = []
    for view in views:
        table = results.aggregate(view.frame, ["label", "noise"], [view.figure])[view.figure]
        for label in results.methods(view.frame):
            cells = [Cell(view.title), Cell(label)]
            for noise in ratios:
                known = (label, noise) in table.index
                cells.append(spread(table.loc[(label, noise)]) if known else Cell())
            cells.append(_seeds(table, label))
            rows.append(Row(cells, block=view.title, ceiling=results.is_oracle(label)))
    title = f"{views[0].named} ({views[0].scale}) in every language and setting"
    return Table("settings", title, columns, rows, [SD_NOTE])


def spread(line: Any) -> Cell:
    """A figure's mean, with its standard deviation where there are several runs."""
    mean, sd, n = float(line["mean"]), float(line["sd"]), int(line["n"])
    if not math.isfinite(mean):
        return Cell()
    return Cell(mean, sd if n > 1 and math.isfinite(sd) else None)


def searches(found: Sequence[ExampleSearch], top: int = 3) -> Table:
    """Queries with the captions of the first `top` results, the right one marked, and the first result's picture."""
    langs = list(dict.fromkeys(search.gloss_lang for search in found if search.gloss and search.gloss_lang))
    keys = [
        ("lang", ""),
        ("query", "query"),
        ("meaning", " ".join(["a caption of its item", *([f"({' or '.join(langs)})"] if langs else [])])),
        *((f"hit_{i}", f"{i}.") for i in range(1, top + 1)),
    ]
    columns = [Column(key, title, text=True) for key, title in [*keys, ("image", "picture of 1.")]]
    rows = []
    for search in found:
        hits = [f"{'✓ ' if hit.correct else ''}{hit.caption}" for hit in search.results[:top]]
        image = search.results[0].image if search.results else None
        words = [
            search.lang,
            search.query,
            search.gloss,
            *hits,
            *[None] * (top - len(hits)),
            image.name if image else None,
        ]
        rows.append(Row([Cell(word) for word in words], block=search.lang))
    notes = ["Queries drawn by a fixed seed among the human captions of the items; ✓ is the item that was meant."]
    return Table("searches", "Searches", columns, rows, notes)
