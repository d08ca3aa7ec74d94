"""Lists of a translation's captions: the worst, examples of what is flagged, words left in the source language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from ccr_cli.metrics.mtquality import FLAGS, LENGTH_Z, left_in
from ccr_cli.report.content import ReportData, ReportTranslation
from ccr_cli.report.page import markup
from ccr_cli.report.tables.flagged_translations import Captions, title
from ccr_cli.report.thumbnails import Embedded
from ccr_cli.report.words.numbers import MINUS, MISSING

WORST, EXAMPLES, WORDS = 12, 4, 24
THUMB = 88
RANKED = {
    "round_trip_chrf": "of which least comes back",
    "score": "of which the engine was least sure",
    "reference_chrf": "least like their human translation",
    "length_z": "of the most unusual length",
}
"""Which captions are listed first: by the first of these that is known. Human captions that are no translations of
them may rightly say something else."""


def lists(material: ReportData, loaded: Sequence[Captions]) -> list[str]:
    """For each translation its worst captions, examples of what is flagged, and the words left as they were."""
    parts = []
    for number, each in enumerate(loaded):
        parts.append(f"<h3>{markup.text(title(each.of))}</h3>")
        parts += [_failed(each.failed), _left_in(each)]
        worst = _worst(each)
        if worst is not None:
            parts.append(
                _list(material, each.of, f"The {len(worst[1])} captions {worst[0]}", worst[1], open_=not number)
            )
        flagged = each.frame[list(FLAGS)].any(axis=1)
        if flagged.any():
            shown = pd.concat([each.frame[each.frame[flag]].head(EXAMPLES) for flag in FLAGS])
            shown = shown[~shown.index.duplicated()]
            parts.append(_list(material, each.of, f"{int(flagged.sum()):,} flagged captions, some of each kind", shown))
    return parts


def _failed(sources: Sequence[str]) -> str:
    """Captions that were not translated, some of them."""
    if not sources:
        return ""
    some = ", ".join(f"\u201c{markup.foreign(source)}\u201d" for source in sources[:EXAMPLES])
    rest = f" and {len(sources) - EXAMPLES:,} more" if len(sources) > EXAMPLES else ""
    return (
        f"<p><b>{len(sources):,} failed: not translated</b>, as <code>failures.jsonl</code> has it: {some}{rest}.</p>"
    )


def _worst(captions: Captions) -> tuple[str, pd.DataFrame] | None:
    """The captions that a reader should see first, and why these."""
    splits = captions.of.quality["forward"]["splits"].values()
    faithful = any(human["kind"] == "translation" for found in splits for human in found["references"])
    good = captions.frame[~captions.frame["empty"]]
    for key, why in RANKED.items():
        values = good[key].dropna()
        if len(values) and (faithful or key != "reference_chrf"):
            order = -values.abs() if key == "length_z" else values
            return why, good.loc[order.sort_values(kind="stable").index[:WORST]]
    return None


def _left_in(captions: Captions) -> str:
    """The words that were left as they were most often."""
    texts = list(captions.frame["source"]), list(captions.frame["text"])
    counts = Counter(word for words in left_in(*texts) for word in words)
    if not counts:
        return ""
    often = [f"{markup.foreign(word)} {n}" for word, n in counts.most_common(WORDS) if n > 1]
    once = [markup.foreign(word) for word, n in counts.most_common(WORDS) if n == 1]
    words = "; once: ".join(", ".join(part) for part in (often, once) if part) if often else ", ".join(once)
    rest = f" and {len(counts) - WORDS:,} more" if len(counts) > WORDS else ""
    return f"<p><b>Left as they were</b> (words of both languages too): {words}{rest}.</p>"


def _list(material: ReportData, of: ReportTranslation, name: str, rows: pd.DataFrame, *, open_: bool = False) -> str:
    collection, images = material.dataset(of.data), Embedded(THUMB)
    forward = of.quality["forward"]
    kinds = {human["kind"] for found in forward["splits"].values() for human in found["references"]}
    wrote = "human translation" if kinds == {"translation"} else "what a human wrote of it"
    heads = {"source": f"{forward['source_lang']}", "text": of.lang, "back": "way back", "human": wrote}
    there = [column for column in heads if column in ("source", "text") or rows[column].notna().any()]
    lines = []
    addresses = [images.address(collection.image(str(item))) if collection else None for item in rows["item_id"]]
    for address, (_, row) in zip(addresses, rows.iterrows(), strict=True):
        cells = [f'<img src="{address}" alt="">' if address else ""] if any(addresses) else []
        for column in there:
            lang = of.lang if column in ("text", "human") else str(forward["source_lang"])
            cells.append(markup.foreign(row[column], lang) if row[column] else MISSING)
        tags = "".join(f'<span class="tag noisy">{flag}</span> ' for flag in FLAGS if row[flag])
        lines.append([*cells, _figures(row) + tags])
    named = [*(["picture"] if any(addresses) else []), *(heads[column] for column in there), "chrF2, flags"]
    return markup.details(name, markup.rows(named, lines, "suspects translations"), open_=open_)


def _figures(row: Any) -> str:
    """The numbers of a caption, a line each."""
    known = {"way back": row["round_trip_chrf"], "human": row["reference_chrf"]}
    told = [f"{what} {value:.0f}" for what, value in known.items() if value == value]
    if row["score"] == row["score"]:
        told.append(f"score {row['score']:.2f}")
    if abs(row["length_z"]) > LENGTH_Z / 2:
        told.append(f"length z {row['length_z']:+.1f}".replace("-", MINUS))
    return "".join(f'<span class="one">{each}</span><br>' for each in told)
