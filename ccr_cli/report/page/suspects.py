"""Lists of training pairs that a judge does not believe, with their pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ccr_cli.artifacts.diagnosis import RARE
from ccr_cli.report.content import ReportData, RunDiagnosis
from ccr_cli.report.page import markup
from ccr_cli.report.page.contact_sheet import document
from ccr_cli.report.tables import judge_choice
from ccr_cli.report.thumbnails import Embedded
from ccr_cli.report.words.findings import Findings
from ccr_cli.report.words.numbers import MISSING, percent

THUMB = 88
LARGE = 240
_LARGE = ".scroll { --card: var(--page); } table.suspects :is(img, .thumb) { width: 120px; height: 120px; }"
MISTAKES = 12
"""How many false alarms and misses are shown."""
NO_IMAGE = '<div class="thumb none">no image</div>'
TRUTH = {"noisy": "mismatched", "clean": "intact"}


def lists(material: ReportData, diagnosis: RunDiagnosis, found: Findings) -> list[str]:
    """What a diagnosis doubts most; at the headline noise also where it errs.

    Args:
        material: Where labels and pictures come from.
        diagnosis: Whose pairs.
        found: Which noise ratio is the headline's.
    """
    summary = diagnosis.summary
    noise = round(float(summary.get("noise") or 0.0), 6)
    label = judge_choice.named(material.label(diagnosis.run_id, str(summary.get("label"))), diagnosis)
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
    material: ReportData,
    diagnosis: RunDiagnosis,
    title: str,
    pairs: Iterable[Mapping[Any, Any]],
    *,
    open_: bool = False,
) -> str:
    fact = material.facts.get(diagnosis.run_id)
    collection = material.dataset(fact.data) if fact else None
    image = collection.image if collection else lambda item_id: None
    source = collection.source_lang if collection else ""
    shown = table(list(pairs), image, diagnosis.summary.get("lang") or "", source)
    return markup.details(title, shown, open_=open_) if shown else ""


def source_head(lang: str) -> str:
    """The head of the column of source captions."""
    return f"source ({lang})" if lang else "source"


def table(
    pairs: Sequence[Mapping[Any, Any]],
    image: Callable[[str], Path | None],
    lang: str | list[str],
    source: str,
    side: int = THUMB,
) -> str:
    """Pairs with their pictures, as markup; empty where there are none, and without that column where no picture is.

    Args:
        pairs: Rows of a diagnosis.
        image: Where the picture of an item lies.
        lang: Language of the translations, or several.
        source: Language that they were made from, or empty.
        side: Of a picture, in pixels.
    """
    images, langs = Embedded(side), [lang] if isinstance(lang, str) else lang
    known = any(pair.get("truth") for pair in pairs)
    returned = any(pair.get("back") for pair in pairs)
    addresses = [images.address(image(str(pair["item_id"]))) for pair in pairs]
    pictured = any(addresses)
    lines = []
    for pair, address in zip(pairs, addresses, strict=True):
        p, truth, uncertainty = float(pair["p_clean"]), pair.get("truth"), pair.get("uncertainty")
        width = 100 * max(0.0, min(1.0, p))
        cells = [
            *([f'<img src="{address}" alt="">' if address else NO_IMAGE] if pictured else []),
            markup.foreign(pair["source_text"], source),
            markup.foreign(pair["translation"], str(pair.get("lang") or langs[0])),
            *([markup.foreign(pair.get("back") or MISSING, source)] if returned else []),
            f'<span class="one"><span class="bar"><i style="width:{width:.0f}%"></i></span>{p:.3f}</span>',
            MISSING if uncertainty is None else f"{float(uncertainty):.3f}",
        ]
        if pair.get("support", RARE) < RARE:
            cells[-2] += " <small>rare words</small>"
        if known:
            kind = str(truth) if truth in TRUTH else "unknown"
            cells.append(f'<span class="tag {kind}">{TRUTH.get(kind, "not known")}</span>')
        lines.append(cells)
    heads = [*(["picture"] if pictured else []), source_head(source), f"translation ({' or '.join(langs)})"]
    heads += ["translated back"] if returned else []
    heads += ["P(clean)", "uncertainty", *(["in truth"] if known else [])]
    return markup.rows(heads, lines, "suspects") if lines else ""


def page(
    pairs: Sequence[Mapping[Any, Any]],
    image: Callable[[str], Path | None],
    lang: str | list[str],
    source: str,
    title: str,
) -> str:
    """A contact sheet of pairs, as one HTML file; arguments as for `table`."""
    return document(title, table(pairs, image, lang, source, LARGE), _LARGE)
