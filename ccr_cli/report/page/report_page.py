"""The page of a report: one HTML file that needs nothing else and no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

import ccr_cli
from ccr_cli.console import plain
from ccr_cli.report.content import ReportData, RunDiagnosis
from ccr_cli.report.figures.canvas import inline_svg
from ccr_cli.report.figures.figure import FigureKind
from ccr_cli.report.page import pairs_browser, suspects, translation_lists
from ccr_cli.report.page.rendering import POLICY, environment, script_json, source_hash, static
from ccr_cli.report.tables import published, results, translations
from ccr_cli.report.tables.table import Table
from ccr_cli.report.tables.translations import TranslatedCaptions
from ccr_cli.report.thumbnails import Embedded
from ccr_cli.report.words.findings import Findings
from ccr_cli.report.words.numbers import MISSING, ends, metric, percent

HIT = 176
"""Longest side of the picture of a search result, in pixels."""
MEANINGS = {
    "SumR": "SumR is the sum of R@1, R@5 and R@10 of both directions, in percent.",
    "mAP": "mAP@all is the mean average precision over the whole gallery, averaged over both directions, in percent; "
    "every item of the query's category counts as correct.",
}


@dataclass(frozen=True)
class Plot:
    """A figure for the page: the SVG, what it shows in a sentence, and its caption."""

    svg: str
    alternative: str
    caption: str = ""


@dataclass(frozen=True)
class Content:
    """What was computed from the material."""

    material: ReportData
    views: Sequence[results.View]
    findings: Findings
    tables: Mapping[str, Table]
    plots: Mapping[str, Plot]
    suspects: Sequence[RunDiagnosis]
    """Diagnoses of the method that the findings speak of, one per noise ratio."""
    translations: Sequence[TranslatedCaptions] = ()
    """The translations that are drawn and listed."""
    absent: Sequence[FigureKind] = ()
    """Figures without data."""


def render(content: Content) -> str:
    """Writes the page."""
    material, views, tables = content.material, content.views, dict(content.tables)
    pairs = pairs_browser.content(material, views[0], content.findings) if views else None
    script = static("pairs_browser.js")
    signatures = translations.all_signatures(material.translations)
    if scores := tables.get("translation-scores"):  # their signatures end its notes and stand below, breakable
        tables["translation-scores"] = replace(scores, notes=scores.notes[: len(scores.notes) - len(signatures)])
    lists = [
        pair_list
        for diagnosis in content.suspects
        for pair_list in suspects.lists(material, diagnosis, content.findings)
    ]
    return environment.get_template("report.html.j2").render(
        policy=Markup(f"{POLICY}; script-src {source_hash(script)}") if pairs else POLICY,
        style=static("page.css", "pairs_browser.css"),
        script=script,
        title=material.title or _title(content),
        byline=_byline(content),
        findings=content.findings,
        main=views[0] if views else None,
        tables=tables,
        figures={
            name: {"svg": Markup(inline_svg(plot.svg, name, escape(plain(plot.alternative)))), "caption": plot.caption}
            for name, plot in content.plots.items()
        },
        suspects=lists,
        pairs_json=script_json(pairs) if pairs else "",
        translations=translation_lists.listings(material, content.translations),
        translation_signatures=signatures,
        translation_count=len(material.translations),
        repeated_translations=len(material.translations) > len(translations.distinct(material.translations)),
        searches=material.searches,
        search_runs=sorted({search.run for search in material.searches if search.run}),
        images=Embedded(HIT),
        settings=[name for name in tables if name.startswith("settings")],
        **_published(content),
        **_results(views),
        origins=material.artifacts,
        collections=material.datasets,
        absent=content.absent,
        version=ccr_cli.__version__,
    )


def _title(content: Content) -> str:
    if not content.views:
        return " and ".join(dict.fromkeys(f"{t.data} in {t.lang}" for t in content.material.translations))
    main = content.views[0]
    return f"{main.data}: cross-lingual retrieval in {main.lang} under noisy translation"


def _byline(content: Content) -> str:
    if not content.views:
        return " · ".join(dict.fromkeys(t.label for t in content.material.translations))
    main = content.views[0]
    runs, seeds = (main.frame[column].nunique() for column in ("run_id", "seed"))
    queries = main.frame["queries"].max()
    parts = [
        main.title + (f" ({int(queries):,} queries)" if pd.notna(queries) else ""),
        f"{runs} {'run' if runs == 1 else 'runs'}",
        f"{seeds} {'seed' if seeds == 1 else 'seeds'}",
        f"noise {', '.join(percent(noise) for noise in sorted(set(main.frame['noise'])))}",
    ]
    return " · ".join(parts)


def _published(content: Content) -> dict[str, Any]:
    """The tables beside published figures; the note that all of them share stands above them once."""
    if content.material.published is None:
        return {"published_notes": [], "published_tables": [], "citations": []}
    tables = [table for name, table in content.tables.items() if name.startswith("published")]
    return {
        "published_notes": [note for note in tables[0].notes if note == published.QUOTED],
        "published_tables": [
            replace(table, notes=[note for note in table.notes if note != published.QUOTED]) for table in tables
        ],
        "citations": published.cited(tables, content.material.published),
    }


def _results(views: Sequence[results.View]) -> dict[str, Any]:
    """Every result once, with its interval and signature in full."""
    if not views:
        return {}
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for view in views:
        for _, row in view.frame.iterrows():
            low, high, figure = row["low"], row["high"], row[view.figure]
            rows.setdefault(
                (str(row["run_id"]), str(row["signature"])),
                {
                    "label": row["label"],
                    "noise": percent(row["noise"]),
                    "seed": row["seed"],
                    "figure": metric(figure),
                    "interval": ends(low, high) if pd.notna(low) and pd.notna(high) else MISSING,
                    "signature": str(row["signature"]),
                },
            )
    return {
        "results": list(rows.values()),
        "result_names": list(dict.fromkeys(view.named for view in views)),
        "main_signature": str(views[0].frame.iloc[0]["signature"]),
        "repeated_runs": results.repeated(pd.concat([view.frame for view in views])),
        "meanings": [MEANINGS[figure] for figure in dict.fromkeys(view.figure for view in views)],
    }
