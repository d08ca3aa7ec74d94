"""The last sections of the page: how every figure was measured, and whose the data are."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ccr_cli.report.content import ReportData
from ccr_cli.report.page import markup
from ccr_cli.report.tables import results
from ccr_cli.report.words.numbers import MISSING, percent


def measured(material: ReportData, views: Sequence[results.View]) -> str:
    """Signatures in full, commands and parents."""
    return markup.section("measured", "How it was measured", [*(_results(views) if views else []), _origins(material)])


def _results(views: Sequence[results.View]) -> list[str]:
    main = views[0].frame.iloc[0]
    parts = [
        markup.paragraph(
            f"Ranks count every item of the gallery; ties take the middle rank. {_meanings(views)} Only scores whose "
            "signatures agree (but for the noise and its seed) share a table. The spread is over seeds; the interval "
            "beside each single result below is a bootstrap over items."
        ),
        f"<p class=sign>{markup.signature(main['signature'])}</p>" if main["signature"] else "",
    ]
    same = results.repeated(pd.concat([view.frame for view in views]))
    if same:
        told = "; ".join(" and ".join(names) for names in same)
        parts.append(
            markup.paragraph(f"These agree in method, options and seeds; their mean counts as one run: {told}.")
        )
    lines = []
    seen: set[tuple[str, str]] = set()
    for view in views:
        for _, row in view.frame.iterrows():
            key = (str(row["run_id"]), str(row["signature"]))
            if key in seen:
                continue
            seen.add(key)
            low, high, figure = row["low"], row["high"], row[view.figure]
            interval = f'<span class="one">{low:.1f} to {high:.1f}</span>' if low == low and high == high else MISSING
            lines.append(
                [
                    markup.text(row["label"]),
                    markup.text(percent(row["noise"])),
                    markup.text(row["seed"]),
                    f"{figure:.1f}" if figure == figure else MISSING,
                    interval,
                    markup.signature(row["signature"]),
                ]
            )
    heads = ["method", "noise", "seed", " or ".join(dict.fromkeys(v.named for v in views)), "95%", "signature"]
    return [*parts, markup.details(f"All {len(lines)} results with their signatures", markup.rows(heads, lines))]


def _origins(material: ReportData) -> str:
    origins = [
        [
            markup.text(o.kind),
            f"<code>{markup.text(o.name)}</code>",
            f"<code>{markup.text(o.id[:12])}</code>",
            f"<code>{markup.text(o.command)}</code>",
            "<br>".join(f"<code>{markup.text(parent)}</code>" for parent in o.parents),
        ]
        for o in material.artifacts
    ]
    heads = ["kind", "name", "id", "made by", "from"]
    many = f"{len(origins)} artifact{'s' * (len(origins) > 1)}"
    page = markup.details(f"The {many} behind this page", markup.rows(heads, origins))
    return page if origins else ""


MEANINGS = {
    "SumR": "SumR is the sum of R@1, R@5 and R@10 of both directions in percent.",
    "mAP": "mAP@all is the mean average precision over the whole gallery, both directions averaged, in percent; "
    "whatever has the query's category is right.",
}


def _meanings(views: Sequence[results.View]) -> str:
    return " ".join(MEANINGS[figure] for figure in dict.fromkeys(view.figure for view in views))


def data(material: ReportData) -> str:
    """Attribution and licences of the data sets."""
    parts = []
    for collection in material.datasets:
        about = collection.manifest
        parts.append(f"<h3>{markup.text(about.get('title') or collection.name)}</h3>")
        for key in ("attribution", "citation"):
            if about.get(key):
                parts.append(markup.paragraph(str(about[key])))
        lacking = [str(line) for line in about.get("partial") or []]
        if lacking:
            parts.append(markup.paragraph(f"Partial: {'; '.join(lacking)}."))
        if about.get("source_url"):
            parts.append(f"<p>{markup.web_link(about['source_url'])}</p>")
        lines = [
            [
                markup.text(entry.get("what", "")),
                markup.text(entry.get("licence", "")),
                markup.text(entry.get("file", "")),
            ]
            for entry in about.get("licences") or []
        ]
        if lines:
            parts.append(markup.rows(["what", "licence", "text in"], lines))
        elif about.get("licence"):
            parts.append(markup.paragraph(f"Licence: {about['licence']}"))
        else:
            parts.append(markup.paragraph("Its manifest names no licence."))
    return markup.section("data", "Data and licences", parts)
