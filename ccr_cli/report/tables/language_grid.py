"""One figure over methods x languages x noise: the layout of the papers' main tables."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ccr_cli.report.tables import results
from ccr_cli.report.tables.summaries import SD_NOTE, spread
from ccr_cli.report.tables.table import Cell, Column, Row, Table
from ccr_cli.report.words.numbers import percent


def alike(views: Sequence[results.View]) -> list[results.View]:
    """The main view, and those that differ from it in the language alone; by language, one each.

    Only queries in the target language that a run was trained for: others are another task.
    """
    if len(views) < 2 or views[0].role != "target":
        return []
    main = views[0]
    found: dict[str, results.View] = {}
    for view in views:
        same = ("data", "split", "role", "fusion", "zero_shot", "noise_kind", "figure")
        wanted = view.lang == view.trained_lang and all(getattr(view, n) == getattr(main, n) for n in same)
        if wanted and _protocol(view) == _protocol(main):
            found.setdefault(view.lang, view)
    return [found[lang] for lang in sorted(found)]


def _protocol(view: results.View) -> list[str]:
    """What of the scoring must agree, beside what depends on the language."""
    return [
        view.setting.fields.get(name, "")
        for name in ("gallery", "dir", "protocol", "pos", "ties", "sim", "select", "leak")
    ]


def table(views: Sequence[results.View]) -> Table | None:
    """The headline figure: a row a method, a block a ratio of noise, a column a language, and their mean.

    The mean is over runs of equal seeds in all languages; a method without some language has none.

    Args:
        views: As `alike` returns them; with fewer than two there is no table.
    """
    if len(views) < 2:
        return None
    main, langs = views[0], [view.lang for view in views]
    frame = pd.concat([view.frame.assign(lang=view.lang) for view in views], ignore_index=True)
    columns = [Column("noise", "noise", format=".3g", text=True), Column("method", "method", text=True)]
    columns += [Column(f"{main.figure.lower()}_{lang}", lang, "high", group=main.named) for lang in langs]
    columns += [Column("mean", "mean", "high", group=main.named), Column("n", "n", format=".0f")]
    single = results.aggregate(frame, ["noise", "label", "lang"], [main.figure])[main.figure]
    whole = frame.pivot_table(main.figure, ["noise", "label", *results.REPLICATE], "lang").reset_index()
    whole["mean"] = whole.reindex(columns=langs).mean(axis=1, skipna=False)
    together = results.aggregate(whole.dropna(subset=["mean"]), ["noise", "label"], ["mean"])["mean"]
    rows = []
    for noise in sorted(set(frame["noise"])):
        part = frame[frame["noise"] == noise]
        for label in results.methods(part):
            keys = [(noise, label, lang) for lang in langs]
            cells = [spread(single.loc[key]) if key in single.index else Cell() for key in keys]
            cells.append(spread(together.loc[(noise, label)]) if (noise, label) in together.index else Cell())
            counts = sorted({int(single["n"][key]) for key in keys if key in single.index})
            n = Cell(counts[0], shown=None if len(counts) == 1 else f"{counts[0]} to {counts[-1]}")
            head = [Cell(float(noise), shown=percent(noise)), Cell(label)]
            rows.append(Row([*head, *cells, n], block=percent(noise), ceiling=results.is_oracle(label)))
    title = f"{main.named} ({main.scale}) by method, language and noise: {main.data} {main.split}"
    notes = [SD_NOTE, "Mean over languages: of runs of equal seeds in all of them."]
    return Table("languages", title, columns, rows, notes)
