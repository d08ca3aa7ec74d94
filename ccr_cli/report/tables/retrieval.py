"""The results tables of a report: by noise, by language, in every setting, what is recovered, and example searches."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from ccr_cli.artifacts.label import Label
from ccr_cli.artifacts.signature import HUMAN, MT
from ccr_cli.report.content import ExampleSearch
from ccr_cli.report.tables import comparable
from ccr_cli.report.tables.differences import Recovery, recovery
from ccr_cli.report.tables.table import Cell, Column, Row, Table, finite
from ccr_cli.report.words import signature_words
from ccr_cli.report.words.numbers import MINUS, count_range, ends, listed, metric, percent, similarity

DIRECTION_TITLES = {"t2v": "text → image", "v2t": "image → text"}
SPREAD_NOTE = "Mean ± standard deviation over n runs that differ in the seed of training or of the mismatch."
BEST_NOTE = "The best mean is bold, even if the difference may be due to chance."
NOTES = (SPREAD_NOTE, BEST_NOTE, "The second of three or more is underlined; the oracle does not compete.")
"""What all tables of methods share; a page or terminal says a note once."""
METRICS = {"R@1": "r1", "R@5": "r5", "R@10": "r10", "MedR": "medr", "mAP": "map"}
"""The metrics of a direction, and their names in the keys of columns."""
NOISE, METHOD = Column("noise", "noise", text=True), Column("method", "method", text=True)
NUMBER = Column("n", "n", digits=0)
SEEDS = replace(NUMBER, key="seeds")


def spread(line: Any) -> Cell:
    """A mean, with its standard deviation over several runs; `line` has mean, sd and n."""
    mean = finite(line["mean"])
    return Cell() if mean is None else Cell(mean, finite(line["sd"]) if line["n"] > 1 else None)


def means(
    frame: pd.DataFrame,
    by: Sequence[str],
    figures: Sequence[str],
    across: str | None = None,
    values: Sequence[Any] = ("",),
    counted: str | None = None,
) -> Iterator[tuple[Any, list[Cell], Cell]]:
    """For each group (`by`) of runs its key, the figures, and the number of runs with the first one (or `counted`).

    With a further column `across`, each figure has a cell for every one of its values.
    """
    table = comparable.aggregate(frame, [*by, across] if across else by, figures)
    groups: dict[Any, dict[Any, Any]] = {}
    for index, line in table.iterrows():
        key: Any = index
        groups.setdefault(key[: len(by)], {})[key[-1] if across else ""] = line
    for key, lines in groups.items():
        cells = [spread(lines[value][figure]) if value in lines else Cell() for figure in figures for value in values]
        yield key, cells, runs([int(line[counted or figures[0], "n"]) for line in lines.values()])


def runs(counts: Sequence[int]) -> Cell:
    """The number of runs behind a row of figures."""
    if not counts:
        return Cell()
    return Cell(min(counts), shown=None if min(counts) == max(counts) else count_range(counts))


def noise_row(ratio: float, label: str, *cells: Cell) -> Row:
    """A row of a table with a block for each noise ratio."""
    head = (Cell(float(ratio), shown=percent(ratio)), Cell(label))
    return Row([*head, *cells], block=percent(ratio), ceiling=comparable.is_oracle(label))


def by_noise(view: comparable.View) -> Table:
    """The headline figure of every method at every noise ratio: a row a method, a column a ratio."""
    ratios = sorted(set(view.frame["noise"]))
    rows = [replace(row, cells=row.cells[1:], block="") for row in _setting_rows(view, ratios)]
    title = f"{view.named} ({view.scale}) by method and noise: {view.title}"
    return Table(view.figure.lower(), title, [METHOD, *_ratio_columns(view, ratios), SEEDS], rows, _notes(view))


def _notes(view: comparable.View) -> list[str]:
    """What figures are, with the level of chance, and what the queries cannot say."""
    level = [] if view.chance is None else [f"A random ranking would reach SumR {metric(view.chance)}."]
    return [*NOTES, *level, *([signature_words.ABOUT_MT] if view.queries == MT else [])]


def settings(views: Sequence[comparable.View]) -> Table:
    """The headline figure of every method in every setting: other languages, fusion, other data sets.

    All views have one headline figure.
    """
    ratios = sorted({noise for view in views for noise in view.frame["noise"]})
    setting = Column("setting", "data, split and queries", text=True)
    columns = [setting, METHOD, *_ratio_columns(views[0], ratios), SEEDS]
    rows = [row for view in views for row in _setting_rows(view, ratios)]
    if any(view.chance is not None for view in views):
        columns.append(Column("chance", "chance"))
        chances = [Cell(view.chance) for view in views for _ in range(view.frame["label"].nunique())]
        rows = [replace(row, cells=[*row.cells, level]) for row, level in zip(rows, chances, strict=True)]
    title = f"{views[0].named} ({views[0].scale}) in every language and setting"
    title += "" if views[0].queries == HUMAN else f": {signature_words.queries(views[0].queries)}"
    notes = [*NOTES, *([signature_words.ABOUT_MT] if views[0].queries == MT else [])]
    return Table("settings", title, columns, rows, notes)


def _ratio_columns(view: comparable.View, ratios: Sequence[float]) -> list[Column]:
    key = view.figure.lower()
    return [Column(f"{key}_noise_{n:g}", f"{percent(n)} noise", "high", group=view.named) for n in ratios]


def _setting_rows(view: comparable.View, ratios: Sequence[float]) -> list[Row]:
    return [
        Row([Cell(view.title), Cell(label), *cells, n], block=view.title, ceiling=comparable.is_oracle(label))
        for (label,), cells, n in means(view.frame, ["label"], [view.figure], "noise", ratios)
    ]


def retrieval(view: comparable.View) -> Table:
    """Methods by noise: the headline figure, R@1/5/10 both ways, MedR and mAP, mean and spread over seeds."""
    figures = {view.figure: Column(view.figure.lower(), view.named, "high")} | {
        f"{direction}.{name}": Column(f"{direction}_{short}", name, "low" if name == "MedR" else "high", group=group)
        for direction, group in DIRECTION_TITLES.items()
        for name, short in METRICS.items()
    }
    rows = [noise_row(*key, n, *cells) for key, cells, n in means(view.frame, ["noise", "label"], list(figures))]
    notes = [*_notes(view), "R@K and mAP in percent; MedR is a rank (lower is better)."]
    return Table("retrieval", f"Retrieval: {view.title}", [NOISE, METHOD, NUMBER, *figures.values()], rows, notes)


def languages(views: Sequence[comparable.View]) -> Table | None:
    """The headline figure by method, noise and language, with the mean: the layout of the papers' main tables.

    The mean is over runs with equal seeds in all languages; a method that lacks a language has none. The views are
    those of `comparable.same_but_language`; with fewer than two there is no table.
    """
    if len(views) < 2:
        return None
    main, langs, by = views[0], [view.lang for view in views], ["noise", "label"]
    frame = pd.concat([view.frame.assign(lang=view.lang) for view in views], ignore_index=True)
    columns = [Column(f"{main.figure.lower()}_{lang}", lang, "high", group=main.named) for lang in langs]
    columns.append(Column("mean", "mean", "high", group=main.named))
    complete = frame.pivot_table(main.figure, [*by, *comparable.REPLICATE], "lang").reset_index()
    complete["mean"] = complete.reindex(columns=langs).mean(axis=1, skipna=False)
    mean = {key: cell for key, (cell,), _ in means(complete.dropna(subset=["mean"]), by, ["mean"])}
    by_lang = means(frame, by, [main.figure], "lang", langs)
    rows = [noise_row(*key, *cells, mean.get(key, Cell()), n) for key, cells, n in by_lang]
    title = f"{main.named} ({main.scale}) by method, language and noise: {main.data} {main.split}"
    title += "" if main.queries == HUMAN else f", {signature_words.queries(main.queries)}"
    notes = [*NOTES, "The mean over languages is of runs with equal seeds in all of them."]
    return Table("languages", title, [NOISE, METHOD, *columns, NUMBER], rows, notes)


def recoveries(view: comparable.View) -> Table | None:
    """How much of what noise costs infonce each method recovers; None without a comparison."""
    frame = view.frame
    ratios = sorted(set(frame["noise"]))
    others = (label for label in comparable.methods(frame) if comparable.base_label(label) != comparable.BASELINE)
    labels = [label for label in others if not (comparable.is_oracle(label) or Label.parse(label).is_ensemble)]
    wins = {(m, n): recovery(frame, m, n, figure=view.figure) for m in labels for n in ratios}
    known = {key: win for key, win in wins.items() if win is not None}
    if not known:
        return None
    shown: dict[tuple[float, bool], Column] = {}
    for noise in ratios:
        group, title = f"{percent(noise)} noise", f"{view.named} {MINUS} infonce"
        shown[noise, False] = Column(f"gain_noise_{noise:g}", title, "high", group=group, signed=True)
        if any(win.value is not None for (_, n), win in known.items() if n == noise):
            shown[noise, True] = Column(f"recovery_noise_{noise:g}", "recovered", "high", 2, group)
    rows = []
    for label in labels:
        cells = [_recovered(known.get((label, noise)), is_share) for noise, is_share in shown]
        rows.append(Row([Cell(label), *cells, runs([win.seeds for (m, _), win in known.items() if m == label])]))
    share = (
        f"Recovered: (method {MINUS} infonce) / (oracle {MINUS} infonce), the ratio of means with its 95% bootstrap "
        "interval over seeds (for three seeds, nearly their whole range). It is undefined without noise, where only "
        "the difference is given; above 1 a method is better than infonce with the oracle."
    )
    with_share = any(is_share for _, is_share in shown)
    lacking = (
        f"With an oracle (ccr train --method {comparable.BASELINE} --set judge=oracle, same noise and seeds) this "
        "table says how much of the loss to noise is recovered."
    )
    lacking = lacking if any(ratios) else ""
    notes = ["Over n pairs with equal seeds.", *filter(None, [share if with_share else lacking]), BEST_NOTE]
    what = "How much of the loss to noise is recovered" if with_share else f"Difference from {comparable.BASELINE}"
    title = f"{what}: {view.title}"
    return Table("recovery", title, [METHOD, *shown.values(), SEEDS], rows, notes)


def _recovered(win: Recovery | None, is_share: bool) -> Cell:
    if win is None or (is_share and win.value is None):
        return Cell()
    if not is_share:
        return Cell(win.difference, win.difference_sd)
    details = [] if win.low is None or win.high is None else [ends(win.low, win.high, 2)]
    details += [f"n = {win.value_seeds}"] if win.value_seeds != win.seeds else []
    return Cell(win.value, shown=f"{similarity(win.value)} ({', '.join(details)})" if details else None)


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
