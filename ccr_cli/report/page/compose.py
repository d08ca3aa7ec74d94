"""From a report's data to its files: tables, figures, and the page, one HTML file that needs no network."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup, escape
from matplotlib.figure import Figure

import ccr_cli
from ccr_cli.artifacts.base import atomic_open
from ccr_cli.artifacts.label import ORACLE, Label
from ccr_cli.console import counted, plain, progress
from ccr_cli.errors import ArtifactError
from ccr_cli.report.content import ReportData, RunDiagnosis
from ccr_cli.report.figures import canvas, curves, examples, judges, lengths, uncertainty
from ccr_cli.report.figures.figure import Drawing, FigureData, FigureKind
from ccr_cli.report.figures.translation_measures import quality_measures
from ccr_cli.report.page import lists, pairs_browser
from ccr_cli.report.page.rendering import POLICY, environment, script_json, source_hash, static
from ccr_cli.report.tables import chance, comparable, corruption, published, retrieval, systems, translations
from ccr_cli.report.tables.diagnoses import by_choice, detection, diagnoses_frame
from ccr_cli.report.tables.differences import QueryRanks
from ccr_cli.report.tables.table import FORMATS, Table
from ccr_cli.report.tables.translations import TranslatedCaptions
from ccr_cli.report.thumbnails import Embedded
from ccr_cli.report.words.findings import Findings, findings
from ccr_cli.report.words.numbers import MISSING, ends, metric, percent

PAGE = "report.html"
FIGURES = [
    kind
    for module in (curves, judges, uncertainty, lengths, examples)
    for kind in vars(module).values()
    if isinstance(kind, FigureKind)
]
"""The figures of a report in the order of the page; a new one is a function with the decorator `figure`."""
HIT = 176
"""Longest side of the picture of a search result, in pixels."""
MEANINGS = {
    "SumR": "SumR is the sum of R@1, R@5 and R@10 of both directions, in percent.",
    "mAP": "mAP@all is the mean average precision over the whole gallery, averaged over both directions, in percent; "
    "every item of the query's category counts as correct.",
}


@dataclass(frozen=True)
class Overview:
    """The findings and tables of a report, before anything is written."""

    views: list[comparable.View]
    """Comparable settings, the main one first; none where there are only translations."""
    findings: Findings
    tables: dict[str, Table]
    """By name: sumr or map, retrieval, and where there are data: systems, languages, recovery, detection, settings
    (also settings-map or settings-sumr of the figure that the main table lacks, and settings-mt, -file or -human of
    other queries), corruption, searches, translations, translation-scores, those whose names begin with published."""


def overview(data: ReportData) -> Overview:
    """Computes the findings and tables of a report, which has at least one result or translation."""
    frame = comparable.results_frame(data.results, data.facts)
    views = [replace(view, chance=_chance(data, view)) for view in comparable.views(frame)]
    diagnoses = diagnoses_frame([(d.run_id, d.summary) for d in by_choice(data.diagnoses)], data.facts)
    ranks = QueryRanks(data.rankings)
    tables: list[Table | None] = []
    if views:
        main = views[0]
        common = [f"All runs have {' and '.join(options)}."] if (options := _common_options(data, main)) else []
        tables += [
            *(replace(t, notes=[*t.notes, *common]) for t in (retrieval.by_noise(main), retrieval.retrieval(main))),
            systems.systems(frame, main, data.costs, ranks),
            retrieval.languages(comparable.same_but_language(views)),
            retrieval.recoveries(main),
            detection(diagnoses) if len(diagnoses) else None,
        ]
        for figure, kind in dict.fromkeys((view.figure, view.queries) for view in views if len(views) > 1):
            table = retrieval.settings([view for view in views if (view.figure, view.queries) == (figure, kind)])
            names = [table.name] + [figure.lower()] * (figure != main.figure) + [kind] * (kind != main.queries)
            tables.append(replace(table, name="-".join(names)))
        tables.append(corruption.table(data, main))
    tables.append(retrieval.searches(data.searches) if data.searches else None)
    tables += [translations.flags(data.translations), translations.scores(data.translations)]
    by_name = {table.name: table for table in tables if table}
    if data.published:
        by_name |= published.compare(frame, data.published, {d.name: d.manifest for d in data.datasets})
    if not views:
        return Overview(views, translations.findings(data.translations), by_name)
    sentences, chosen = findings(views[0], diagnoses, ranks), systems.choice(frame, views[0], data.costs, ranks)
    more = (*sentences.more, *filter(None, [chosen]), *translations.failures(data.translations))
    sentences = replace(sentences, more=more)
    return Overview(views, sentences, by_name)


def _chance(data: ReportData, view: comparable.View) -> float | None:
    """The chance level of a view, whose results have the same queries; None where their ranks are not known."""
    key = tuple(view.frame[["run_id", "signature"]].iloc[0])
    load = data.rankings.get(key)
    entry = next((result for run_id, result in data.results if (run_id, str(result.get("signature"))) == key), None)
    if load is None or entry is None:
        return None
    with suppress(ArtifactError):  # written by an older ccr
        return chance.level(entry, load())
    return None


def write(data: ReportData, folder: Path) -> dict[str, int]:
    """Writes `report.html`, `tables/` and `figures/` of at least one result or translation into an existing folder.

    Returns the number of results, methods, tables and figures.
    """
    summary = overview(data)
    for name in ("tables", "figures"):
        (folder / name).mkdir(exist_ok=True)
    report = re.sub(r"(-[0-9a-f]{6})?(\.partial)?$", "", folder.name)  # without the digits of its content
    for name, table in summary.tables.items():
        for suffix, rendering in FORMATS.items():
            with atomic_open(folder / "tables" / f"{name}.{suffix}", "w") as handle:
                handle.write(rendering(replace(table, report=report)))
    suspects = suspicious(data, summary.views[0], summary.findings) if summary.views else []
    plots: dict[str, tuple[str, Drawing]] = {}
    absent: list[FigureKind] = []
    with canvas.drawing():
        drawings: dict[str, Drawing] = {}
        if summary.views:
            drawings, absent = figures(FigureData(data, summary.views, summary.findings, suspects))
        loaded = translations.load(data.translations)
        drawings["translations"] = quality_measures(loaded)
        with progress(len(drawings), "report", "figures") as advance:
            for name, drawing in drawings.items():
                if drawing.figure is not None:
                    plots[name] = _save(drawing.figure, folder / "figures", name), drawing
                advance()
    with atomic_open(folder / PAGE, "w") as handle:
        handle.write(render(data, summary, plots, suspects, loaded, absent))
    methods = len({label for view in summary.views for label in view.frame["label"]})
    return {"results": len(data.results), "methods": methods, "tables": len(summary.tables), "figures": len(plots)}


def figures(data: FigureData) -> tuple[dict[str, Drawing], list[FigureKind]]:
    """The figures whose data are there, by name, and those whose data are missing. Only inside `canvas.drawing`."""
    drawings: dict[str, Drawing] = {}
    absent = []
    for kind in FIGURES:
        drawing = kind.draw(data)
        if drawing and drawing.figure:
            canvas.heading(drawing.figure, drawing.title)
            drawings[kind.name.format(data.main.figure.lower())] = drawing
        else:
            absent.append(kind)
    return drawings, absent


def _save(figure: Figure, folder: Path, name: str) -> str:
    canvas.settle(figure)
    svg = canvas.to_svg(figure)
    for suffix, content in (("svg", svg.encode()), ("pdf", canvas.to_pdf(figure)), ("png", canvas.to_png(figure))):
        with atomic_open(folder / f"{name}.{suffix}") as handle:
            handle.write(content)
    return svg


def suspicious(data: ReportData, main: comparable.View, sentences: Findings) -> list[RunDiagnosis]:
    """The headline method's diagnoses, one per noise ratio; without any, another method's."""
    runs = set(main.frame["run_id"])
    competing = [d for d in data.diagnoses if d.run_id in runs and d.summary.get("judge") != ORACLE]
    of_method = [d for d in competing if data.label(d.run_id, str(d.summary["label"])) == sentences.method]
    first: dict[float, RunDiagnosis] = {}
    for diagnosis in by_choice(of_method or competing):
        first.setdefault(diagnosis.noise, diagnosis)
    return [first[noise] for noise in sorted(first)]


def render(
    data: ReportData,
    summary: Overview,
    plots: Mapping[str, tuple[str, Drawing]],
    suspects: Sequence[RunDiagnosis],
    loaded: Sequence[TranslatedCaptions],
    absent: Sequence[FigureKind],
) -> str:
    """Writes the page, which lists the pairs of `suspects` and the captions of `loaded`; plots come with their SVG."""
    views, tables = summary.views, dict(summary.tables)
    pairs = pairs_browser.content(data, views[0], summary.findings) if views else None
    script = static("pairs_browser.js")
    signatures = translations.all_signatures(data.translations)
    if scores := tables.get("translation-scores"):  # their signatures end its notes and stand below, breakable
        tables["translation-scores"] = replace(scores, notes=scores.notes[: len(scores.notes) - len(signatures)])
    quoted = [table for name, table in tables.items() if name.startswith("published")]
    svgs = {k: canvas.inline_svg(svg, k, escape(plain(shown.alternative))) for k, (svg, shown) in plots.items()}
    return environment.get_template("report.html.j2").render(
        policy=Markup(f"{POLICY}; script-src {source_hash(script)}") if pairs else POLICY,
        style=static("page.css", "pairs_browser.css"),
        script=script,
        **_titles(data, views),
        findings=summary.findings,
        main=views[0] if views else None,
        tables=tables,
        figures={k: {"svg": Markup(svgs[k]), "caption": shown.caption} for k, (_, shown) in plots.items()},
        suspects=[pair_list for d in suspects for pair_list in lists.suspicious_pairs(data, d, summary.findings)],
        pairs_json=script_json(pairs) if pairs else "",
        wrong_translations=list(lists.wrong_translations(data)),
        translations=list(lists.translations(data, loaded)),
        translation_signatures=signatures,
        translation_count=len(data.translations),
        repeated_translations=len(data.translations) > len(translations.distinct(data.translations)),
        searches=data.searches,
        search_runs=sorted({search.run for search in data.searches if search.run}),
        images=Embedded(HIT),
        settings=[name for name in tables if name.startswith("settings")],
        # the note that all tables of published figures share stands above them once
        published_notes=[note for note in quoted[0].notes if note == published.QUOTED] if quoted else [],
        published_tables=[replace(t, notes=[note for note in t.notes if note != published.QUOTED]) for t in quoted],
        citations=published.cited(quoted, data.published) if data.published else [],
        **_results(views),
        origins=data.artifacts,
        collections=data.datasets,
        absent=[(kind.what, _with_runs(kind.command, views[0], summary.findings)) for kind in absent],
        version=ccr_cli.__version__,
    )


def _with_runs(command: str, main: comparable.View, sentences: Findings) -> str:
    """A command with runs of the headline noise for each `RUN`, one per method, that of the headline first.

    Where it would train a method with defaults and the report has a run of it, that run takes the place of another one.
    """
    rows = main.frame[main.frame["noise"] == sentences.noise].sort_values("seed").drop_duplicates("label")
    names = dict(zip(map(str, rows["label"]), map(str, rows["run"]), strict=True))
    runs = {label: name for label, name in names.items() if not Label.parse(label).is_ensemble}
    for label, run in runs.items():
        usual = f"ccr train --method {Label.parse(label).method} | "
        if command.startswith(usual):
            command = command.removeprefix(usual).replace(" -", f" runs/{run}", 1)
    for label in sorted(runs, key=lambda label: (label != sentences.method, comparable.method_order(label))):
        command = command.replace("RUN", f"runs/{runs[label]}", 1)
    return command


def _common_options(data: ReportData, main: comparable.View) -> list[str]:
    """The options in which all runs of the main view differ from the defaults, and that no label names."""
    facts = [data.facts.get(run_id) for run_id in main.frame["run_id"].unique()]
    named = {option for label in main.frame["label"] for run in Label.parse(label).runs for option in run.options}
    first = facts[0].changed if facts[0] else ()
    return [option for option in first if option not in named and all(f and option in f.changed for f in facts)]


def _titles(data: ReportData, views: Sequence[comparable.View]) -> dict[str, str]:
    if not views:
        title = " and ".join(dict.fromkeys(f"{t.data} in {t.lang}" for t in data.translations))
        return {"title": data.title or title, "byline": " · ".join(dict.fromkeys(t.label for t in data.translations))}
    main = views[0]
    queries = main.frame["queries"].max()
    parts = [
        main.title + (f" ({int(queries):,} queries)" if pd.notna(queries) else ""),
        counted(main.frame["run_id"].nunique(), "run"),
        counted(main.frame["seed"].nunique(), "seed"),
        *_common_options(data, main),
        f"noise {', '.join(percent(noise) for noise in sorted(set(main.frame['noise'])))}",
    ]
    title = f"{main.data}: cross-lingual retrieval in {main.lang} under noisy translation"
    return {"title": data.title or title, "byline": " · ".join(parts)}


def _results(views: Sequence[comparable.View]) -> dict[str, Any]:
    """Every result once, with its interval and signature in full."""
    if not views:
        return {}
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for view in views:
        for row in view.frame.to_dict("records"):
            entry = {
                **{key: row[key] for key in ("label", "seed", "signature")},
                "noise": percent(row["noise"]),
                "figure": metric(row[view.figure]),
                "interval": MISSING if pd.isna([row["low"], row["high"]]).any() else ends(row["low"], row["high"]),
            }
            rows.setdefault((row["run_id"], row["signature"]), entry)
    return {
        "results": list(rows.values()),
        "result_names": list(dict.fromkeys(view.named for view in views)),
        "main_signature": views[0].frame["signature"].iloc[0],
        "repeated_runs": comparable.repeated(pd.concat([view.frame for view in views])),
        "meanings": [MEANINGS[figure] for figure in dict.fromkeys(view.figure for view in views)],
    }
