"""Lists of training pairs that a judge does not believe, with their pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ccr_cli.artifacts.diagnosis import RARE
from ccr_cli.report import markup
from ccr_cli.report.findings import Findings
from ccr_cli.report.material import Diagnosis, Material
from ccr_cli.report.summaries import percent
from ccr_cli.report.tables import MISSING
from ccr_cli.report.thumbnails import Embedded

THUMB = 88
MISTAKES = 12
"""How many false alarms and misses are shown."""
TRUTH = {"noisy": "mismatched", "clean": "intact"}


def lists(material: Material, diagnosis: Diagnosis, found: Findings) -> list[str]:
    """What a diagnosis doubts most; at the headline noise also where it errs.

    Args:
        material: Where labels and pictures come from.
        diagnosis: Whose pairs.
        found: Which noise ratio is the headline's.
    """
    summary = diagnosis.summary
    noise = round(float(summary.get("noise") or 0.0), 6)
    label = material.label(diagnosis.run_id, str(summary.get("label")))
    worst = summary.get("most_suspicious") or []
    if not noise:
        title = f"Least believed pairs of {label} without synthetic noise: errors of the translation, or rare words"
        return [_list(material, diagnosis, title, worst, open_=True)]
    parts = [_list(material, diagnosis, f"Least believed pairs of {label}, {percent(noise)} noise", worst)]
    if noise == found.noise and summary.get("detection"):
        pairs = diagnosis.load_pairs().sort_values("p_clean", kind="stable")
        wrong = pairs[pairs["truth"] != pairs["verdict"]]
        alarms = wrong[wrong["truth"] == "clean"]
        missed = wrong[wrong["truth"] == "noisy"].iloc[::-1]
        for rows, what in (
            (alarms, "intact pairs called noisy (bad translations, or false alarms)"),
            (missed, "mismatched pairs that are believed"),
        ):
            title = f"{len(rows):,} {what}, {label}, {percent(noise)} noise"
            parts.append(_list(material, diagnosis, title, rows.head(MISTAKES).to_dict("records")))
    return parts


def _list(
    material: Material,
    diagnosis: Diagnosis,
    title: str,
    pairs: Iterable[Mapping[Any, Any]],
    *,
    open_: bool = False,
) -> str:
    fact = material.facts.get(diagnosis.run_id)
    collection = material.collection(fact.data) if fact else None
    images, told = Embedded(THUMB), diagnosis.summary.get("lang") or ""
    langs = [told] if isinstance(told, str) else list(told)
    pairs = list(pairs)
    known = any(pair.get("truth") for pair in pairs)
    lines = []
    for pair in pairs:
        address = images.address(collection.image(str(pair["item_id"]))) if collection else None
        p, truth, uncertainty = float(pair["p_clean"]), pair.get("truth"), pair.get("uncertainty")
        doubt = 100 * max(0.0, min(1.0, 1 - p))
        cells = [
            f'<img src="{address}" alt="">' if address else '<div class="thumb none">no image</div>',
            markup.foreign(pair["source_text"], "en"),
            markup.foreign(pair["translation"], str(pair.get("lang") or langs[0])),
            f'<span class="one"><span class="bar"><i style="width:{doubt:.0f}%"></i></span>{p:.3f}</span>',
            MISSING if uncertainty is None else f"{float(uncertainty):.3f}",
        ]
        if pair.get("support", RARE) < RARE:
            cells[-2] += " <small>rare words</small>"
        if known:
            kind = str(truth) if truth in TRUTH else "unknown"
            cells.append(f'<span class="tag {kind}">{TRUTH.get(kind, "not known")}</span>')
        lines.append(cells)
    if not lines:
        return ""
    heads = [
        "picture",
        "English",
        f"translation ({' or '.join(langs)})",
        "P(clean)",
        "uncertainty",
        *(["in truth"] if known else []),
    ]
    return markup.details(title, markup.rows(heads, lines, "suspects"), open_=open_)
