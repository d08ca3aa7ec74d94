"""Lists of texts with their pictures: suspicious training pairs, and captions of translations."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from ccr_cli.artifacts import diagnosis
from ccr_cli.artifacts.diagnosis import RARE
from ccr_cli.metrics.mtquality import FLAGS, LENGTH_Z, left_in
from ccr_cli.report.content import ReportData, ReportTranslation, RunDiagnosis
from ccr_cli.report.page.rendering import marked, render, static
from ccr_cli.report.tables.diagnoses import label_with_judge
from ccr_cli.report.tables.translations import TranslatedCaptions
from ccr_cli.report.thumbnails import Embedded
from ccr_cli.report.words.findings import Findings
from ccr_cli.report.words.numbers import decimal, percent

THUMB, LARGE = 88, 240
"""Longest side of a picture in a report and on a sheet, in pixels."""
MISTAKES = 12
"""How many false alarms and misses are shown."""
WORST, EXAMPLES, WORDS = 12, 4, 24
"""How many captions, flagged captions of one kind, and untranslated words are listed."""
RANKED = {
    "round_trip_chrf": "whose round trip is worst",
    "score": "with the lowest engine score",
    "reference_chrf": "least like their human translation",
    "length_z": "of the most unusual length",
}
"""Which captions are listed first: by the first of these that is known. Human captions that do not translate the
source are no reference: they may rightly say something else."""
_PAIR = [
    *("item_id", "lang", "source_text", "translation", "back"),
    *("uncertainty", "p_clean", "support", "verdict", "truth"),
]
Image = Callable[[str], Path | None]
"""Where the picture of an item lies."""


@dataclass(frozen=True)
class TextList:
    """Texts as a page shows them."""

    title: str
    heads: Sequence[str]
    """Of the columns behind the picture."""
    rows: Sequence[Mapping[str, Any]]
    """The `address` of the picture, `texts` with their heads and languages, and what else is known."""
    open: bool = False
    boundary: str = ""
    """What separates the first rows from the others."""
    above: int = 0
    """How many rows come before the boundary; none is shown before the first row."""

    @property
    def with_pictures(self) -> bool:
        """Whether any text has a picture, or a number, which stands under it."""
        return any(row["address"] or row.get("place") for row in self.rows)


def pair_list(
    pairs: Sequence[Mapping[Any, Any]],
    image: Image,
    lang: str | Sequence[str],
    source_lang: str,
    title: str,
    side: int = THUMB,
    open: bool = False,
) -> TextList:
    """Reads rows of a diagnosis and their pictures.

    The translations are in one language or several; the language that they were made from may be unknown (empty).
    """
    images, langs = Embedded(side), [lang] if isinstance(lang, str) else lang
    heads = {"source_text": f"source ({source_lang})" if source_lang else "source"}
    if list(langs) != [source_lang]:
        heads["translation"] = f"translation ({' or '.join(langs)})"
    if any(isinstance(pair.get("back"), str) and pair["back"] for pair in pairs):
        heads["back"] = "back-translation"
    if any(isinstance(pair.get("witness"), str) and pair["witness"] for pair in pairs):
        heads["witness"] = "witness"
    of_run = not any("split" in pair for pair in pairs)
    rows = []
    for pair in pairs:
        own = str(pair.get("lang") or langs[0])
        spans = {"source_text": pair.get("spans_source", ()), "translation": pair.get("spans_translation", ())}
        texts = {
            head: marked(pair[key], spans.get(key, ())) if isinstance(pair.get(key), str) else ""
            for key, head in heads.items()
        }
        rows.append(
            {
                "address": images.address(image(str(pair["item_id"]))),
                "texts": [
                    (k, text, own if k in (heads.get("translation"), "witness") else source_lang)
                    for k, text in texts.items()
                ],
                "p_clean": float(pair["p_clean"]) if of_run else None,
                "uncertainty": pair.get("uncertainty"),
                "rare": pair.get("support", RARE) < RARE,
                "flags": pair.get("flags") or "",
                "truth": pair.get("truth"),
                **{name: pair[name] for name in ("place", "slot_id") if side == LARGE and name in pair},
                # that a translation without a run is clean means only that it is of its caption
                **({"verdict": v} if side == LARGE and (v := pair.get("verdict")) and (of_run or v != "clean") else {}),
            }
        )
    known = [name for name in ("uncertainty", "truth") if any(row[name] is not None for row in rows)]
    return TextList(title, [*heads.values(), "P(clean)" if of_run else "flags", *known], rows, open)


def wrong_translations(data: ReportData) -> Iterator[TextList]:
    """The captions that are most likely translated wrongly, of each translation that was diagnosed without a run.

    Those of its newest diagnosis; the title names the others.
    """
    newest: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for summary in data.judged_translations:
        newest.setdefault((summary["data"], summary["translation"]), []).insert(0, summary)
    for number, (summary, *others) in enumerate(newest.values()):
        of, lang, called = data.dataset(summary["data"]), summary["lang"], f"{summary['called_noisy']:,}"
        title = f"{of.name}, {summary['translation']}: {diagnosis.judge(summary)} calls {called} of "
        title += f"{summary['pairs']:,} translations wrong; the most suspicious"
        title += f" (also diagnosed by: {'; '.join(map(diagnosis.judge, others))})" if others else ""
        worst = summary["most_suspicious"]
        yield pair_list(worst, of.image, lang, of.source_lang, title, open=not number)


def suspicious_pairs(data: ReportData, diagnosis: RunDiagnosis, findings: Findings) -> Iterator[TextList]:
    """The most suspicious pairs of a diagnosis; at the headline noise also its errors."""
    summary, noise = diagnosis.summary, diagnosis.noise
    label = label_with_judge(data.label(diagnosis.run_id, str(summary.get("label"))), diagnosis)
    dataset = data.dataset_of_run(diagnosis.run_id)

    def build(title: str, pairs: Sequence[Mapping[Any, Any]], open: bool = False) -> TextList:
        lang = summary.get("lang") or ""
        return pair_list(pairs, dataset.image, lang, dataset.source_lang, title, open=open)

    suspicious = summary.get("most_suspicious") or []
    if not noise:
        title = f"Most suspicious pairs of {label} without synthetic noise: translation errors or rare words"
        yield build(title, suspicious, open=True)
        return
    yield build(f"Most suspicious pairs of {label}, {percent(noise)} noise", suspicious)
    if noise == findings.noise and summary.get("detection"):
        pairs = diagnosis.load_pairs(_PAIR).sort_values("p_clean", kind="stable")
        wrong, called = pairs["truth"] != "clean", pairs["verdict"] == "noisy"
        false_alarms, misses = pairs[~wrong & called], pairs[wrong & ~called].iloc[::-1]
        mistakes = {"intact pairs called noisy (bad translations or false alarms)": false_alarms}
        for what, rows in (mistakes | {"mismatched pairs called clean": misses}).items():
            title = f"{len(rows):,} {what}, {label}, {percent(noise)} noise"
            yield build(title, rows.head(MISTAKES).to_dict("records"))


def sheet(
    pairs: Sequence[Mapping[Any, Any]],
    image: Image,
    lang: str | Sequence[str],
    source_lang: str,
    title: str,
    rule: str = "",
) -> str:
    """A contact sheet of pairs as one HTML file: numbered; a run's with a line where `noisy` ends, by a `rule`.

    Further arguments as for `pair_list`.
    """
    listed = pair_list(pairs, image, lang, source_lang, title, LARGE)
    above = next((n for n, pair in enumerate(pairs) if pair.get("verdict") != "noisy"), 0)
    below = "clean below" if "P(clean)" in listed.heads else "not called noisy below"
    listed = replace(listed, boundary=f"noisy above ({rule}), {below}", above=above)
    return render("suspects.html.j2", title=title, style=static("page.css", "suspects.css"), pairs=listed)


def translations(data: ReportData, loaded: Sequence[TranslatedCaptions]) -> Iterator[dict[str, Any]]:
    """What a page lists of translations; the worst captions of the first are unfolded.

    `left_in` are words of the source in translations with how often, the most frequent first.
    """
    for number, captions in enumerate(loaded):
        tables = []
        if ranked := worst(captions):
            why, rows = ranked
            tables.append(_captions(data, captions.of, f"The {len(rows)} captions {why}", rows, open=not number))
        flagged = captions.frame[list(FLAGS)].any(axis=1)
        if flagged.any():
            rows = pd.concat([captions.frame[captions.frame[flag]].head(EXAMPLES) for flag in FLAGS])
            name = f"{int(flagged.sum()):,} flagged captions, some of each kind"
            tables.append(_captions(data, captions.of, name, rows[~rows.index.duplicated()]))
        left = left_in(list(captions.frame["source"]), list(captions.frame["text"]))
        counts = Counter(chain.from_iterable(left))
        yield {
            "title": captions.of.full_name,
            "failed": captions.failed,
            "left_in": counts.most_common(WORDS),
            "left_in_more": max(0, len(counts) - WORDS),
            "tables": tables,
        }


def worst(captions: TranslatedCaptions) -> tuple[str, pd.DataFrame] | None:
    """The captions that a reader should see first, and why these."""
    splits = captions.of.splits.values()
    translated = any(reference["kind"] == "translation" for split in splits for reference in split["references"])
    good = ~captions.frame["empty"]
    for key, why in RANKED.items():
        values = captions.frame.loc[good, key].dropna()
        if len(values) and (translated or key != "reference_chrf"):
            order = -values.abs() if key == "length_z" else values
            return why, captions.frame.loc[order.sort_values(kind="stable").index[:WORST]]
    return None


def _captions(data: ReportData, of: ReportTranslation, title: str, frame: pd.DataFrame, open: bool = False) -> TextList:
    dataset, images, source_lang = data.dataset(of.data), Embedded(THUMB), str(of.quality["forward"]["source_lang"])
    kinds = {reference["kind"] for split in of.splits.values() for reference in split["references"]}
    columns = {
        "source": (source_lang, source_lang),
        "text": (of.lang, of.lang),
        "back": ("back-translation", source_lang),
        "human": ("human translation" if kinds == {"translation"} else "human caption of the item", of.lang),
    }
    shown = {key: head for key, head in columns.items() if key in ("source", "text") or frame[key].notna().any()}
    rows = [
        {
            "address": images.address(dataset.image(str(row["item_id"]))),
            "texts": [(head, row[key] if pd.notna(row[key]) else "", lang) for key, (head, lang) in shown.items()],
            "figures": _figures(row),
            "flags": [flag for flag in FLAGS if row[flag]],
        }
        for row in frame.to_dict("records")
    ]
    return TextList(title, [*(head for head, _ in shown.values()), "chrF2, flags"], rows, open)


def _figures(row: Mapping[Any, Any]) -> list[str]:
    known = {"round trip": row["round_trip_chrf"], "human": row["reference_chrf"]}
    figures = [f"{name} {decimal(value, 0)}" for name, value in known.items() if pd.notna(value)]
    if pd.notna(row["score"]):
        figures.append(f"score {decimal(row['score'], 2)}")
    if abs(row["length_z"]) > LENGTH_Z / 2:
        figures.append(f"length z {decimal(row['length_z'], sign=True)}")
    return figures
