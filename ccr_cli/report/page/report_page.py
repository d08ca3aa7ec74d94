"""The page: one HTML file that needs nothing else and no network.

One script, which its policy names by hash, looks through pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

import ccr_cli
from ccr_cli.report.content import ExampleSearch, ReportData, RunDiagnosis
from ccr_cli.report.figures.canvas import inline_svg
from ccr_cli.report.figures.figure_kinds import Kind
from ccr_cli.report.page import markup, pairs_browser, provenance, suspects, translation_lists
from ccr_cli.report.page.pairs_browser_script import STYLE
from ccr_cli.report.page.style import CSS
from ccr_cli.report.tables import flagged_translations as translations
from ccr_cli.report.tables import published, results
from ccr_cli.report.tables.table import Table
from ccr_cli.report.tables.translation_scores import signed
from ccr_cli.report.thumbnails import Embedded
from ccr_cli.report.words.findings import Findings
from ccr_cli.report.words.numbers import percent

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
HIT, HITS = 176, 5


@dataclass(frozen=True)
class Plot:
    """A figure for the page: the SVG, what it shows in a sentence, and what is written under it."""

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
    """Diagnoses of the method that the findings speak of, one a noise ratio."""
    translations: Sequence[translations.Captions] = ()
    """Those that are drawn and listed."""
    absent: Sequence[Kind] = ()
    """Figures whose data are not there."""


def render(content: Content) -> str:
    """Writes the page."""
    found = content.findings
    title = content.material.title or _title(content)
    views = content.views
    pairs = pairs_browser.section(pairs_browser.content(content.material, views[0], found)) if views else ""
    policy = f"{POLICY}; {pairs_browser.POLICY}" if pairs else POLICY
    sections = [
        _result(content) if content.views else "",
        markup.section(
            "retrieval",
            "Retrieval in full",
            [_table(content, "retrieval"), _plot(content, "precision"), _table(content, "recovery")],
        ),
        _detection(content),
        pairs,
        _translations(content),
        _searches(content),
        markup.section(
            "inside", "Inside the models", [_plot(content, name) for name in ("pictures", "targets", "attention")]
        ),
        markup.section("map", "Where items and captions lie", [_plot(content, "where")]),
        markup.section("lengths", "Short and long queries", [_plot(content, "lengths")]),
        markup.section(
            "uncertainty",
            "Does the uncertainty know when retrieval fails?",
            [_plot(content, name) for name in ("risk", "calibration", "deletion", "outside", "entropy")],
        ),
        markup.section(
            "corruption", "When queries are corrupted", [_plot(content, "corruption"), _table(content, "corruption")]
        ),
        markup.section("options", "What the options do", [_plot(content, "options")]),
        markup.section("languages", "By language", [_plot(content, "languages"), _table(content, "languages")]),
        markup.section("settings", "Other languages and settings", _settings(content)),
        _published(content),
        markup.section("training", "Training", [_plot(content, name) for name in ("training", "losses")]),
        provenance.measured(content.material, content.views),
        provenance.data(content.material),
        _absent(content),
    ]
    links = "".join(f'<a href="#{anchor}">{name}</a>' for anchor, name in _contents(sections))
    tiles = "".join(
        f"<div class=tile><b{' class=open' * t.open}>{markup.prose(t.value)}</b><span>{markup.prose(t.what)}</span>"
        f"<small>{markup.prose(t.detail)}</small></div>"
        for t in found.tiles
    )
    body = "\n".join(
        [
            "<header>",
            f"<h1>{markup.text(title)}</h1>",
            f"<p class=headline>{markup.prose(found.headline)}</p>",
            *(f"<p class=more>{markup.prose(sentence)}</p>" for sentence in found.more),
            f"<p class=byline>{markup.prose(_byline(content))}</p>",
            f"<div class=tiles>{tiles}</div>",
            f"<nav>{links}</nav>",
            "</header>",
            *(s for s in sections if s),
            f"<footer>Made with ccr {markup.text(ccr_cli.__version__)}.</footer>",
        ]
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{markup.text(title)}</title>\n<style>{CSS}{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _title(content: Content) -> str:
    if not content.views:
        return " and ".join(dict.fromkeys(f"{t.data} in {t.lang}" for t in content.material.translations))
    main = content.views[0]
    return f"{main.data}: cross-lingual retrieval in {main.lang} under noisy translation"


def _contents(sections: Sequence[str]) -> Iterator[tuple[str, str]]:
    for part in sections:
        if part:
            anchor = part.partition('id="')[2].partition('"')[0]
            yield anchor, part.partition("<h2>")[2].partition("</h2>")[0]


def _byline(content: Content) -> str:
    if not content.views:
        return " · ".join(dict.fromkeys(t.label for t in content.material.translations))
    main = content.views[0]
    runs, seeds = (main.frame[column].nunique() for column in ("run_id", "seed"))
    ratios = ", ".join(percent(n) for n in sorted(set(main.frame["noise"])))
    asked = main.frame["queries"].max()
    parts = [
        f"{main.title}" + (f" ({int(asked):,} queries)" if pd.notna(asked) else ""),
        f"{runs} {'run' if runs == 1 else 'runs'}",
        f"{seeds} {'seed' if seeds == 1 else 'seeds'}",
        f"noise {ratios}",
    ]
    return " · ".join(parts)


def _table(content: Content, name: str, *, title: bool = True) -> str:
    return markup.table(content.tables[name], title=title) if name in content.tables else ""


def _plot(content: Content, name: str) -> str:
    plot = content.plots.get(name)
    if plot is None:
        return ""
    svg = inline_svg(plot.svg, name, markup.text(plot.alternative))
    caption = f"<figcaption>{markup.prose(plot.caption)}</figcaption>" if plot.caption else ""
    return f'<figure class="plot">{svg}{caption}</figure>'


def _result(content: Content) -> str:
    main = content.views[0]
    name = main.figure.lower()
    parts = [f'<div class="pair">{_plot(content, name)}{_table(content, name, title=False)}</div>']
    return markup.section("result", f"{main.named} by method and noise", parts)


def _settings(content: Content) -> list[str]:
    names = [name for name in content.tables if name.startswith("settings")]
    return [_table(content, name, title=len(names) > 1) for name in names]


def _published(content: Content) -> str:
    if content.material.published is None:
        return ""
    tables = [table for name, table in content.tables.items() if name.startswith("published")]
    said = published.QUOTED in tables[0].notes
    parts = [markup.paragraph(published.QUOTED)] if said else []
    for table in tables:
        notes = [note for note in table.notes if note != published.QUOTED]
        parts.append(markup.table(replace(table, notes=notes), kind="beside"))
    parts += [markup.paragraph(line, "note") for line in published.cited(tables, content.material.published)]
    return markup.section("published", "Beside published figures", parts)


def _detection(content: Content) -> str:
    table = _table(content, "detection", title=False)
    intro = (
        ""
        if not table
        else markup.paragraph(
            "Which training pairs (picture, translated caption) does the judge not believe? Where pairs were "
            "mismatched on purpose the truth is known, and the table counts; where none was, read the first list "
            "below. A low P(clean) means that the two do not look alike to the model: a wrong translation, or a word "
            "too rare to be learned."
        )
    )
    lists = [
        part for diagnosis in content.suspects for part in suspects.lists(content.material, diagnosis, content.findings)
    ]
    plots = [_plot(content, name) for name in ("beliefs", "judges", "epochs", "uncertainty", "scored")]
    parts = [intro, table, *plots, *lists]
    return markup.section("detection", "Training pairs that are not believed", parts)


def _absent(content: Content) -> str:
    lines = [[markup.text(kind.what), f"<code>{markup.text(kind.command)}</code>"] for kind in content.absent]
    table = markup.rows(["figure", "what makes its data"], lines) if lines else ""
    return markup.section("absent", "Figures whose data are not there", [table])


def _translations(content: Content) -> str:
    shown = content.material.translations
    signatures, scores = signed(shown), content.tables.get("translation-scores")
    tables = []
    if scores:
        tables.append(markup.table(replace(scores, notes=scores.notes[: -len(signatures)])))
        tables.append(f"<p class=sign>{'<br>'.join(map(markup.signature, signatures))}</p>")
    tables.append(_table(content, "translations"))
    lists = translation_lists.lists(content.material, content.translations)
    many, same = len(shown), len(shown) > len(translations.distinct(shown))
    note = f"Drawn and listed are {len(content.translations)} of the {many}" + (
        ", the same texts once." if same else "."
    )
    note = note if many > len(content.translations) else ""
    parts = [*tables, _plot(content, "translations"), markup.paragraph(note, "note") if note else "", *lists]
    return markup.section("translations", "The translations", parts)


def _searches(content: Content) -> str:
    images = Embedded(HIT)
    parts = [_search(search, images) for search in content.material.searches]
    runs = sorted({s.run for s in content.material.searches if s.run})
    note = f" Model: {', '.join(runs)}." if runs else ""
    if parts:
        words = (
            "The first images of each query and their similarity; a green frame marks an item that the query "
            "describes. Below a query: a caption of its item in the source language."
        )
        parts.append(markup.paragraph(words + note, "note"))
    return markup.section("searches", "Searches", parts)


def _search(search: ExampleSearch, images: Embedded) -> str:
    hits = []
    for found in search.results[:HITS]:
        address = images.address(found.image)
        shown = (
            f'<img src="{address}" alt="{markup.text(found.caption)}">'
            if address
            else "<span class=none>no image</span>"
        )
        kind = "frame right" if found.correct else "frame"
        mark = " ✓" if found.correct else ""
        hits.append(
            f'<li><div class="{kind}">{shown}</div><b>{found.similarity:.2f}{mark}</b>'
            f"<span>{markup.foreign(found.caption)}</span></li>"
        )
    told = f"{markup.text(search.gloss_lang)}: " if search.gloss_lang else ""
    gloss = f" · {told}{markup.foreign(search.gloss, search.gloss_lang)}" if search.gloss else ""
    unsure = "" if search.uncertainty is None else f"<small>uncertainty {search.uncertainty:.2f}</small>"
    return (
        f'<div class="search"><div><q>{markup.foreign(search.query, search.lang)}</q>'
        f"<small>{markup.text(search.lang)}{gloss}</small>{unsure}</div><ol class=hits>{''.join(hits)}</ol></div>"
    )
