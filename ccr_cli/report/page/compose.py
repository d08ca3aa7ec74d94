"""From material to files: the page, the tables and the figures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from ccr_cli.artifacts.base import atomic_open
from ccr_cli.console import progress
from ccr_cli.report.content import ReportData, RunDiagnosis
from ccr_cli.report.figures import canvas, catalogue, corruption
from ccr_cli.report.figures.figure_kinds import Drawing, Kind, Seen
from ccr_cli.report.figures.translation_measures import distributions
from ccr_cli.report.page import report_page
from ccr_cli.report.tables import diagnoses as diagnosed
from ccr_cli.report.tables import (
    flagged_translations,
    judge_choice,
    language_grid,
    published,
    results,
    summaries,
    translation_scores,
)
from ccr_cli.report.tables.paired_interval import Answers
from ccr_cli.report.tables.table import FORMATS, Table
from ccr_cli.report.words.findings import Findings, findings

PAGE = "report.html"


@dataclass(frozen=True)
class Overview:
    """What the numbers say: sentences and tables, nothing written."""

    views: list[results.View]
    """Settings in which results may be compared, the main one first; none where there are translations alone."""
    diagnoses: pd.DataFrame
    findings: Findings
    tables: dict[str, Table]
    """By name: sumr or map, retrieval, and where there is something to say languages, recovery, detection,
    corruption, settings
    (and settings-map or settings-sumr where the main table is of the other figure), searches, translations,
    translation-scores, and those whose names begin with published."""


def overview(material: ReportData) -> Overview:
    """Computes the sentences and tables of a report; `material` has at least one result or translation."""
    frame = results.results_frame(material.results, material.facts)
    views = results.views(frame)
    diagnoses = diagnosed.diagnoses_frame(
        [(d.run_id, d.summary) for d in judge_choice.by_choice(material.diagnoses)], material.facts
    )
    tables = make_tables(views, diagnoses) if views else {}
    worse = corruption.table(material, views[0]) if views else None
    if worse:
        tables["corruption"] = worse
    if material.searches:
        tables["searches"] = summaries.searches(material.searches)
    for table in (flagged_translations.flags(material.translations), translation_scores.scores(material.translations)):
        if table:
            tables[table.name] = table
    if material.published:
        manifests = {collection.name: collection.manifest for collection in material.datasets}
        tables |= published.beside(frame, material.published, manifests)
    if views:
        said = findings(views[0], diagnoses, Answers(material.rankings))
        said = replace(said, more=(*said.more, *flagged_translations.failures(material.translations)))
    else:
        said = flagged_translations.findings(material.translations)
    return Overview(views, diagnoses, said, tables)


def write(material: ReportData, folder: Path) -> dict[str, int]:
    """Writes `report.html`, `tables/` and `figures/`.

    Args:
        material: What to show; at least one result or translation.
        folder: Where to; must exist.

    Returns:
        How many results, methods, tables and figures there are.
    """
    seen = overview(material)
    for name in ("tables", "figures"):
        (folder / name).mkdir(exist_ok=True)
    for name, table in seen.tables.items():
        for end, form in FORMATS.items():
            with atomic_open(folder / "tables" / f"{name}.{end}", "w") as handle:
                handle.write(form(table))
    suspects = _suspects(material, seen.views[0], seen.findings) if seen.views else []
    loaded = flagged_translations.load(material.translations)
    plots: dict[str, report_page.Plot] = {}
    absent: list[Kind] = []
    with canvas.drawing():
        drawn: dict[str, Drawing] = {}
        if seen.views:
            sight = Seen(material, seen.views, seen.findings, suspects)
            drawn = catalogue.drawn(sight)
            absent = catalogue.absent(sight, drawn)
        drawn |= _distributions(loaded)
        with progress(len(drawn), "report", "figures") as advance:
            for name, each in drawn.items():
                assert each.figure is not None
                plots[name] = report_page.Plot(
                    _save(each.figure, folder / "figures", name), each.alternative, each.caption
                )
                advance()
    content = report_page.Content(material, seen.views, seen.findings, seen.tables, plots, suspects, loaded, absent)
    with atomic_open(folder / PAGE, "w") as handle:
        handle.write(report_page.render(content))
    methods = len({label for view in seen.views for label in view.frame["label"]})
    return {"results": len(material.results), "methods": methods, "tables": len(seen.tables), "figures": len(plots)}


def _save(figure: Figure, folder: Path, name: str) -> str:
    """Writes a figure in all formats, and returns its SVG."""
    canvas.settle(figure)
    svg = canvas.to_svg(figure)
    with atomic_open(folder / f"{name}.svg", "w") as handle:
        handle.write(svg)
    for end, drawn_as in (("pdf", canvas.to_pdf), ("png", canvas.to_png)):
        with atomic_open(folder / f"{name}.{end}") as handle:
            handle.write(drawn_as(figure))
    return svg


def make_tables(views: list[results.View], diagnoses: pd.DataFrame) -> dict[str, Table]:
    """The tables of a report by name, as in `Overview.tables`."""
    main = views[0].figure
    tables = {main.lower(): summaries.ladder(views[0]), "retrieval": summaries.retrieval(views[0])}
    each = language_grid.table(language_grid.alike(views))
    if each:
        tables["languages"] = each
    won = summaries.recoveries(views[0])
    if won:
        tables["recovery"] = won
    if len(diagnoses):
        tables["detection"] = summaries.detection(diagnoses)
    if len(views) > 1:
        for figure in dict.fromkeys(view.figure for view in views):
            name = "settings" if figure == main else f"settings-{figure.lower()}"
            tables[name] = summaries.overview([view for view in views if view.figure == figure])
    return tables


def _suspects(material: ReportData, main: results.View, found: Findings) -> list[RunDiagnosis]:
    """The headline method's diagnoses, one a noise ratio; without any, another method's."""
    runs = set(main.frame["run_id"])
    mine = [d for d in material.diagnoses if d.run_id in runs and d.summary.get("judge") != "oracle"]
    own = [d for d in mine if material.label(d.run_id, str(d.summary["label"])) == found.method]
    first: dict[float, RunDiagnosis] = {}
    for each in judge_choice.by_choice(own or mine):
        first.setdefault(round(float(each.summary.get("noise") or 0.0), 6), each)
    return [first[noise] for noise in sorted(first)]


def _distributions(loaded: list[flagged_translations.Captions]) -> dict[str, Drawing]:
    figure = distributions(loaded)
    what = "Histograms of length, round-trip chrF2, chrF2 against human references and the engine's score"
    caption = (
        "Captions that were translated, of all splits. Length: how unusual it is for the source's; beyond the dotted "
        "lines captions are flagged, each with a mark. Length ratio: median of translation to source, in characters. "
        "Lines elsewhere: medians."
    )
    return {"translations": Drawing(figure, what, caption)} if figure is not None else {}
