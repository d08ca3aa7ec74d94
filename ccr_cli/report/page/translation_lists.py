"""Lists of a translation's captions: the worst, examples of what is flagged, words left in the source language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ccr_cli.metrics.mtquality import FLAGS, LENGTH_Z, left_in
from ccr_cli.report.content import ReportData, ReportTranslation
from ccr_cli.report.tables.translations import TranslatedCaptions
from ccr_cli.report.thumbnails import Embedded
from ccr_cli.report.words.numbers import decimal

WORST, EXAMPLES, WORDS = 12, 4, 24
"""How many captions, flagged captions of one kind, and untranslated words are listed."""
THUMB = 88
RANKED = {
    "round_trip_chrf": "whose round trip is worst",
    "score": "with the lowest engine score",
    "reference_chrf": "least like their human translation",
    "length_z": "of the most unusual length",
}
"""Which captions are listed first: by the first of these that is known. Human captions that do not translate the
source are no reference: they may rightly say something else."""


@dataclass(frozen=True)
class CaptionTable:
    """TranslatedCaptions as a page shows them."""

    title: str
    heads: Sequence[str]
    rows: Sequence[dict[str, Any]]
    with_pictures: bool
    open: bool


@dataclass(frozen=True)
class Listing:
    """What a page lists of a translation."""

    title: str
    failed: Sequence[str]
    """Source captions without a translation."""
    left_in: Sequence[tuple[str, int]]
    """Words of the source in translations, with how often; the most frequent first."""
    left_in_more: int
    """How many more such words there are."""
    tables: Sequence[CaptionTable]


def listings(material: ReportData, translations: Sequence[TranslatedCaptions]) -> list[Listing]:
    """Lists the captions of translations; the worst of the first are unfolded."""
    out = []
    for number, captions in enumerate(translations):
        tables = []
        if ranked := worst(captions):
            why, rows = ranked
            tables.append(_table(material, captions.of, f"The {len(rows)} captions {why}", rows, open=not number))
        flagged = captions.frame[list(FLAGS)].any(axis=1)
        if flagged.any():
            rows = pd.concat([captions.frame[captions.frame[flag]].head(EXAMPLES) for flag in FLAGS])
            rows = rows[~rows.index.duplicated()]
            name = f"{int(flagged.sum()):,} flagged captions, some of each kind"
            tables.append(_table(material, captions.of, name, rows, open=False))
        texts = list(captions.frame["source"]), list(captions.frame["text"])
        counts = Counter(word for words in left_in(*texts) for word in words)
        more = max(0, len(counts) - WORDS)
        out.append(Listing(captions.of.full_name, captions.failed, counts.most_common(WORDS), more, tables))
    return out


def worst(captions: TranslatedCaptions) -> tuple[str, pd.DataFrame] | None:
    """The captions that a reader should see first, and why these."""
    splits = captions.of.quality["forward"]["splits"].values()
    translated = any(reference["kind"] == "translation" for split in splits for reference in split["references"])
    good = captions.frame[~captions.frame["empty"]]
    for key, why in RANKED.items():
        values = good[key].dropna()
        if len(values) and (translated or key != "reference_chrf"):
            order = -values.abs() if key == "length_z" else values
            return why, good.loc[order.sort_values(kind="stable").index[:WORST]]
    return None


def _table(material: ReportData, of: ReportTranslation, name: str, frame: pd.DataFrame, *, open: bool) -> CaptionTable:
    collection, images = material.dataset(of.data), Embedded(THUMB)
    forward = of.quality["forward"]
    source_lang = str(forward["source_lang"])
    kinds = {reference["kind"] for split in forward["splits"].values() for reference in split["references"]}
    columns = {
        "source": (source_lang, source_lang),
        "text": (of.lang, of.lang),
        "back": ("back-translation", source_lang),
        "human": ("human translation" if kinds == {"translation"} else "human caption of the item", of.lang),
    }
    shown = {
        column: head for column, head in columns.items() if column in ("source", "text") or frame[column].notna().any()
    }
    rows = [
        {
            "address": images.address(collection.image(str(row["item_id"]))) if collection else None,
            "texts": [
                (head, row[column] if pd.notna(row[column]) else "", lang) for column, (head, lang) in shown.items()
            ],
            "figures": _figures(row),
            "flags": [flag for flag in FLAGS if row[flag]],
        }
        for _, row in frame.iterrows()
    ]
    with_pictures = any(row["address"] for row in rows)
    heads = [*(["picture"] if with_pictures else []), *(head for head, _ in shown.values()), "chrF2, flags"]
    return CaptionTable(name, heads, rows, with_pictures, open)


def _figures(row: Any) -> list[str]:
    """The numbers of a caption, where they are known."""
    known = {"round trip": row["round_trip_chrf"], "human": row["reference_chrf"]}
    figures = [f"{name} {decimal(value, 0)}" for name, value in known.items() if pd.notna(value)]
    if pd.notna(row["score"]):
        figures.append(f"score {decimal(row['score'], 2)}")
    if abs(row["length_z"]) > LENGTH_Z / 2:
        figures.append(f"length z {decimal(row['length_z'], sign=True)}")
    return figures
