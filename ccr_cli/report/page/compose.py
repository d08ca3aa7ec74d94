"""From a report's data to its files: tables, figures and the page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from ccr_cli.artifacts.base import atomic_open
from ccr_cli.artifacts.label import ORACLE
from ccr_cli.console import progress
from ccr_cli.report.content import ReportData, RunDiagnosis
from ccr_cli.report.figures import canvas, catalogue
from ccr_cli.report.figures.figure import Drawing, FigureData, FigureKind
from ccr_cli.report.figures.translation_measures import quality_measures
from ccr_cli.report.page import report_page
from ccr_cli.report.tables import corruption, published, results, retrieval, translations
from ccr_cli.report.tables.diagnoses import by_choice, detection, diagnoses_frame
from ccr_cli.report.tables.differences import QueryRanks
from ccr_cli.report.tables.table import FORMATS, Table
from ccr_cli.report.words.findings import Findings, findings

PAGE = "report.html"


@dataclass(frozen=True)
class Overview:
    """The findings and tables of a report, before anything is written."""

    views: list[results.View]
    """Comparable settings, the main one first; none where there are only translations."""
    diagnoses: pd.DataFrame
    findings: Findings
    tables: dict[str, Table]
    """By name: sumr or map, retrieval, and where there are data: languages, recovery, detection, settings (and
    settings-map or settings-sumr where the main table is of the other figure), corruption, searches, translations,
    translation-scores, and those whose names begin with published."""


def overview(data: ReportData) -> Overview:
    """Computes the findings and tables of a report, which has at least one result or translation."""
    frame = results.results_frame(data.results, data.facts)
    views = results.views(frame)
    diagnoses = diagnoses_frame([(d.run_id, d.summary) for d in by_choice(data.diagnoses)], data.facts)
    tables: list[Table | None] = []
    if views:
        main = views[0]
        tables += [
            retrieval.by_noise(main),
            retrieval.retrieval(main),
            retrieval.languages(results.same_but_language(views)),
            retrieval.recoveries(main),
            detection(diagnoses) if len(diagnoses) else None,
            *_settings(views),
            corruption.table(data, main),
        ]
    tables.append(retrieval.searches(data.searches) if data.searches else None)
    tables += [translations.flags(data.translations), translations.scores(data.translations)]
    by_name = {table.name: table for table in tables if table}
    if data.published:
        by_name |= published.compare(frame, data.published, {d.name: d.manifest for d in data.datasets})
    if not views:
        return Overview(views, diagnoses, translations.findings(data.translations), by_name)
    sentences = findings(views[0], diagnoses, QueryRanks(data.rankings))
    sentences = replace(sentences, more=(*sentences.more, *translations.failures(data.translations)))
    return Overview(views, diagnoses, sentences, by_name)


def _settings(views: list[results.View]) -> list[Table]:
    """A table of all settings for each headline figure."""
    tables = []
    for figure in dict.fromkeys(view.figure for view in views if len(views) > 1):
        table = retrieval.settings([view for view in views if view.figure == figure])
        tables.append(table if figure == views[0].figure else replace(table, name=f"settings-{figure.lower()}"))
    return tables


def write(data: ReportData, folder: Path) -> dict[str, int]:
    """Writes `report.html`, `tables/` and `figures/`.

    Args:
        data: At least one result or translation.
        folder: Where to write; must exist.

    Returns:
        The number of results, methods, tables and figures.
    """
    summary = overview(data)
    for name in ("tables", "figures"):
        (folder / name).mkdir(exist_ok=True)
    for name, table in summary.tables.items():
        for suffix, rendering in FORMATS.items():
            with atomic_open(folder / "tables" / f"{name}.{suffix}", "w") as handle:
                handle.write(rendering(table))
    suspects = _suspects(data, summary.views[0], summary.findings) if summary.views else []
    loaded = translations.load(data.translations)
    plots: dict[str, report_page.Plot] = {}
    absent: list[FigureKind] = []
    with canvas.drawing():
        drawings: dict[str, Drawing] = {}
        if summary.views:
            figure_data = FigureData(data, summary.views, summary.findings, suspects)
            drawings = catalogue.drawn(figure_data)
            absent = catalogue.absent(figure_data, drawings)
        drawings["translations"] = quality_measures(loaded)
        with progress(len(drawings), "report", "figures") as advance:
            for name, drawing in drawings.items():
                if drawing.figure is not None:
                    svg = _save(drawing.figure, folder / "figures", name)
                    plots[name] = report_page.Plot(svg, drawing.alternative, drawing.caption)
                advance()
    content = report_page.Content(
        data, summary.views, summary.findings, summary.tables, plots, suspects, loaded, absent
    )
    with atomic_open(folder / PAGE, "w") as handle:
        handle.write(report_page.render(content))
    methods = len({label for view in summary.views for label in view.frame["label"]})
    return {"results": len(data.results), "methods": methods, "tables": len(summary.tables), "figures": len(plots)}


def _save(figure: Figure, folder: Path, name: str) -> str:
    """Writes a figure in all formats, and returns its SVG."""
    canvas.settle(figure)
    svg = canvas.to_svg(figure)
    with atomic_open(folder / f"{name}.svg", "w") as handle:
        handle.write(svg)
    for suffix, rendering in (("pdf", canvas.to_pdf), ("png", canvas.to_png)):
        with atomic_open(folder / f"{name}.{suffix}") as handle:
            handle.write(rendering(figure))
    return svg


def _suspects(data: ReportData, main: results.View, sentences: Findings) -> list[RunDiagnosis]:
    """The headline method's diagnoses, one per noise ratio; without any, another method's."""
    runs = set(main.frame["run_id"])
    competing = [d for d in data.diagnoses if d.run_id in runs and d.summary.get("judge") != ORACLE]
    of_method = [d for d in competing if data.label(d.run_id, str(d.summary["label"])) == sentences.method]
    first: dict[float, RunDiagnosis] = {}
    for diagnosis in by_choice(of_method or competing):
        first.setdefault(diagnosis.noise, diagnosis)
    return [first[noise] for noise in sorted(first)]
