"""From material to files: the page, the tables and the figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ccr_cli.artifacts.base import atomic_open
from ccr_cli.report import (
    canvas,
    compare,
    diagnosed,
    figures,
    languages,
    page,
    published,
    summaries,
    translation_scores,
    translations,
)
from ccr_cli.report.findings import Findings, findings
from ccr_cli.report.material import Diagnosis, Material
from ccr_cli.report.strip import strip
from ccr_cli.report.summaries import percent
from ccr_cli.report.tables import FORMATS, Table
from ccr_cli.report.translation_figures import distributions

PAGE = "report.html"


@dataclass(frozen=True)
class Overview:
    """What the numbers say: sentences and tables, nothing written."""

    views: list[compare.View]
    """Settings in which results may be compared, the main one first; none where there are translations alone."""
    diagnoses: pd.DataFrame
    findings: Findings
    tables: dict[str, Table]
    """By name: sumr or map, retrieval, and where there is something to say languages, recovery, detection, settings
    (and settings-map or settings-sumr where the main table is of the other figure), searches, translations,
    translation-scores, and those whose names begin with published."""


def overview(material: Material) -> Overview:
    """Computes the sentences and tables of a report; `material` has at least one result or translation."""
    frame = compare.results_frame(material.results, material.facts)
    views = compare.views(frame)
    diagnoses = diagnosed.diagnoses_frame([(d.run_id, d.summary) for d in material.diagnoses], material.facts)
    tables = make_tables(views, diagnoses) if views else {}
    if material.searches:
        tables["searches"] = summaries.searches(material.searches)
    for table in (translations.flags(material.translations), translation_scores.scores(material.translations)):
        if table:
            tables[table.name] = table
    if material.published:
        manifests = {collection.name: collection.manifest for collection in material.collections}
        tables |= published.beside(frame, material.published, manifests)
    if views:
        said = findings(views[0], diagnoses)
        said = replace(said, more=(*said.more, *translations.failures(material.translations)))
    else:
        said = translations.findings(material.translations)
    return Overview(views, diagnoses, said, tables)


def write(material: Material, folder: Path) -> dict[str, int]:
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
    loaded = translations.load(material.translations)
    plots: dict[str, page.Plot] = {}
    with canvas.drawing():
        drawn = _figures(material, seen.views[0], seen.findings, suspects) if seen.views else {}
        for name, (figure, alternative, caption) in (drawn | _distributions(loaded)).items():
            svg = canvas.to_svg(figure)
            with atomic_open(folder / "figures" / f"{name}.svg", "w") as handle:
                handle.write(svg)
            for end, drawn_as in (("pdf", canvas.to_pdf), ("png", canvas.to_png)):
                with atomic_open(folder / "figures" / f"{name}.{end}") as handle:
                    handle.write(drawn_as(figure))
            plots[name] = page.Plot(svg, alternative, caption)
    content = page.Content(material, seen.views, seen.findings, seen.tables, plots, suspects, loaded)
    with atomic_open(folder / PAGE, "w") as handle:
        handle.write(page.render(content))
    methods = len({label for view in seen.views for label in view.frame["label"]})
    return {"results": len(material.results), "methods": methods, "tables": len(seen.tables), "figures": len(plots)}


def make_tables(views: list[compare.View], diagnoses: pd.DataFrame) -> dict[str, Table]:
    """The tables of a report by name, as in `Overview.tables`."""
    main = views[0].figure
    tables = {main.lower(): summaries.ladder(views[0]), "retrieval": summaries.retrieval(views[0])}
    each = languages.table(languages.alike(views))
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


def _suspects(material: Material, main: compare.View, found: Findings) -> list[Diagnosis]:
    """The headline method's diagnoses, one a noise ratio (lowest seed); without any, another method's."""
    runs = set(main.frame["run_id"])
    mine = [d for d in material.diagnoses if d.run_id in runs and d.summary.get("judge") != "oracle"]
    own = [d for d in mine if material.label(d.run_id, str(d.summary["label"])) == found.method]
    first: dict[float, Diagnosis] = {}
    for each in sorted(own or mine, key=lambda d: (d.summary.get("seed") or 0, str(d.summary.get("judge")))):
        first.setdefault(round(float(each.summary.get("noise") or 0.0), 6), each)
    return [first[noise] for noise in sorted(first)]


def _figures(
    material: Material, main: compare.View, found: Findings, suspects: list[Diagnosis]
) -> dict[str, tuple[Figure, str, str]]:
    at = percent(found.noise)
    drawn: dict[str, tuple[Figure | None, str, str]] = {}
    what = f"{main.named} against the share of mismatched training pairs. {found.headline}"
    drawn[main.figure.lower()] = (figures.by_noise(main), what, "")
    histories = [
        {**vars(h), "label": material.label(h.run_id, "run"), "history": h.frame}
        for h in material.histories
        if h.run_id in set(main.frame["run_id"])
    ]
    others = any(history["criterion"] != main.figure for history in histories)
    drawn["training"] = (
        figures.training(histories, main.figure),
        f"Validation {main.figure} and the judge's AUROC by epoch",
        "A line a run; the dot is the epoch that was kept. AUROC: mismatched against intact training pairs."
        + (" Runs that validated by another figure are left out." if others else ""),
    )
    headline = next((d for d in suspects if round(float(d.summary.get("noise") or 0), 6) == found.noise), None)
    if headline is not None:
        label = material.label(headline.run_id, str(headline.summary["label"]))
        title = f"{label}, {at} noise, seed {headline.summary.get('seed')}"
        drawn["beliefs"] = (
            figures.beliefs(headline.load_pairs(), title),
            f"Histograms of what {label} believes of intact and of mismatched training pairs at {at} noise",
            f"Judge: {headline.summary.get('judge')}. Pairs left of the dotted line are called noisy.",
        )
    curves = _judge_curves(material, main, found.noise)
    drawn["judges"] = (
        figures.judges(curves, f"Finding the mismatched pairs, {at} noise"),
        "ROC and precision-recall curves of the judges",
        "One run a method, the lowest seed.",
    )
    drawn["risk"] = (
        figures.risk(_risk_curves(material, main, found.noise), f"Text queries in {main.lang}, {at} noise"),
        "Share of wrong first results against the share of queries answered, surest first",
        "If the uncertainty knows when retrieval fails, the surest queries fail least and the curve rises to the "
        "dotted line, the failure rate of all queries. One run a method, the lowest seed.",
    )
    drawn["searches"] = (strip(material.searches), "Searches in several languages with the first images found", "")
    return {name: (figure, alt, caption) for name, (figure, alt, caption) in drawn.items() if figure is not None}


def _distributions(loaded: list[translations.Captions]) -> dict[str, tuple[Figure, str, str]]:
    figure = distributions(loaded)
    if figure is None:
        return {}
    what = "Histograms of length, round-trip chrF2, chrF2 against human references and the engine's score"
    caption = (
        "Captions that were translated, of all splits. Length: how unusual it is for the source's; beyond the dotted "
        "lines captions are flagged, each with a mark. Length ratio: median of translation to source, in characters. "
        "Lines elsewhere: medians."
    )
    return {"translations": (figure, what, caption)}


def _judge_curves(material: Material, main: compare.View, noise: float) -> dict[str, pd.DataFrame]:
    runs = set(main.frame["run_id"])
    curves: dict[str, pd.DataFrame] = {}
    for each in sorted(material.diagnoses, key=lambda d: (d.summary.get("seed") or 0, str(d.summary.get("judge")))):
        same = round(float(each.summary.get("noise") or 0.0), 6) == noise and each.summary.get("detection")
        label = material.label(each.run_id, str(each.summary["label"]))
        if same and each.run_id in runs and each.summary.get("judge") != "oracle" and label not in curves:
            curves[label] = each.load_pairs()
    return curves


def _risk_curves(material: Material, main: compare.View, noise: float) -> dict[str, Mapping[str, Any]]:
    wanted = set(zip(main.frame["run_id"], main.frame["signature"], strict=True))
    found: dict[str, Mapping[str, Any]] = {}
    for run_id, result in sorted(material.results, key=lambda pair: pair[1].get("seed") or 0):
        known = result.get("calibration") or {}
        figures_ = known.get("t2v", known)
        same = round(float(result.get("noise") or 0.0), 6) == noise and (run_id, result.get("signature")) in wanted
        label = material.label(run_id, str(result["label"]))
        if same and figures_.get("curve") and label not in found:
            found[label] = {**figures_["curve"], "aurc_random": figures_.get("aurc_random")}
    return found
