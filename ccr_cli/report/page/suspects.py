"""Lists of suspicious training pairs with their pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccr_cli.artifacts.diagnosis import RARE
from ccr_cli.report.content import ReportData, RunDiagnosis
from ccr_cli.report.page.rendering import render, static
from ccr_cli.report.tables.diagnoses import label_with_judge
from ccr_cli.report.thumbnails import Embedded
from ccr_cli.report.words.findings import Findings
from ccr_cli.report.words.numbers import percent

THUMB, LARGE = 88, 240
"""Longest side of a picture in a report and on a sheet, in pixels."""
MISTAKES = 12
"""How many false alarms and misses are shown."""
Image = Callable[[str], Path | None]
"""Where the picture of an item lies."""


@dataclass(frozen=True)
class PairList:
    """Training pairs as a page shows them."""

    rows: Sequence[Mapping[str, Any]]
    langs: Sequence[str]
    """Languages of the translations."""
    source_lang: str
    """Empty where it is not known."""
    title: str
    open: bool = False

    @property
    def with_pictures(self) -> bool:
        """Whether any pair has a picture."""
        return any(row["address"] for row in self.rows)

    @property
    def with_back(self) -> bool:
        """Whether any pair has a back-translation."""
        return any(row["back"] for row in self.rows)

    @property
    def with_truth(self) -> bool:
        """Whether synthetic noise says which pairs are mismatched."""
        return any(row["truth"] for row in self.rows)

    @property
    def source_head(self) -> str:
        """Head of the column of source captions."""
        return f"source ({self.source_lang})" if self.source_lang else "source"

    @property
    def translation_head(self) -> str:
        """Head of the column of translations."""
        return f"translation ({' or '.join(self.langs)})"

    @property
    def heads(self) -> list[str]:
        """Heads of all columns."""
        heads = [*(["picture"] if self.with_pictures else []), self.source_head, self.translation_head]
        heads += ["back-translation"] if self.with_back else []
        return [*heads, "P(clean)", "uncertainty", *(["truth"] if self.with_truth else [])]


def pair_list(
    pairs: Sequence[Mapping[Any, Any]],
    image: Image,
    lang: str | Sequence[str],
    source_lang: str,
    title: str,
    side: int = THUMB,
    open: bool = False,
) -> PairList:
    """Reads rows of a diagnosis and their pictures.

    Args:
        pairs: Rows of a diagnosis.
        image: Where the picture of an item lies.
        lang: Language of the translations, or several.
        source_lang: Language that they were made from, or empty.
        title: Heading of the list.
        side: Longest side of a picture, in pixels.
        open: Whether the list is unfolded.
    """
    images, langs = Embedded(side), [lang] if isinstance(lang, str) else lang
    rows = [
        {
            "address": images.address(image(str(pair["item_id"]))),
            "source_text": pair["source_text"],
            "translation": pair["translation"],
            "lang": str(pair.get("lang") or langs[0]),
            "back": pair.get("back") if isinstance(pair.get("back"), str) else None,
            "p_clean": float(pair["p_clean"]),
            "uncertainty": pair.get("uncertainty"),
            "rare": pair.get("support", RARE) < RARE,
            "truth": pair.get("truth"),
        }
        for pair in pairs
    ]
    return PairList(rows, langs, source_lang, title, open)


def lists(material: ReportData, diagnosis: RunDiagnosis, findings: Findings) -> list[PairList]:
    """The most suspicious pairs of a diagnosis; at the headline noise also its errors.

    Args:
        material: Where labels and pictures come from.
        diagnosis: The diagnosis.
        findings: Says which noise ratio is the headline's.
    """
    summary = diagnosis.summary
    noise = diagnosis.noise
    label = label_with_judge(material.label(diagnosis.run_id, str(summary.get("label"))), diagnosis)
    fact = material.facts.get(diagnosis.run_id)
    collection = material.dataset(fact.data) if fact else None

    def build(title: str, pairs: Sequence[Mapping[Any, Any]], open: bool = False) -> PairList:
        image = collection.image if collection else lambda item_id: None
        source_lang = collection.source_lang if collection else ""
        return pair_list(pairs, image, summary.get("lang") or "", source_lang, title, open=open)

    suspicious = summary.get("most_suspicious") or []
    if not noise:
        title = f"Most suspicious pairs of {label} without synthetic noise: translation errors or rare words"
        return [build(title, suspicious, open=True)]
    out = [build(f"Most suspicious pairs of {label}, {percent(noise)} noise", suspicious)]
    if noise == findings.noise and summary.get("detection"):
        pairs = diagnosis.load_pairs().sort_values("p_clean", kind="stable")
        errors = pairs[pairs["truth"] != pairs["verdict"]]
        false_alarms, misses = errors[errors["truth"] == "clean"], errors[errors["truth"] == "noisy"].iloc[::-1]
        for rows, what in (
            (false_alarms, "intact pairs called noisy (bad translations or false alarms)"),
            (misses, "mismatched pairs called clean"),
        ):
            title = f"{len(rows):,} {what}, {label}, {percent(noise)} noise"
            out.append(build(title, rows.head(MISTAKES).to_dict("records")))
    return out


def page(
    pairs: Sequence[Mapping[Any, Any]], image: Image, lang: str | Sequence[str], source_lang: str, title: str
) -> str:
    """A contact sheet of pairs as one HTML file; arguments as for `pair_list`."""
    sheet = pair_list(pairs, image, lang, source_lang, title, LARGE)
    return render("suspects.html.j2", title=title, style=static("page.css", "suspects.css"), pairs=sheet)
