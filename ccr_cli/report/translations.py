"""What a report says of translations: tables of flags and scores, lists of the worst captions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ccr_cli.metrics.mtquality import FLAGS, LENGTH_Z, left_in
from ccr_cli.report import markup
from ccr_cli.report.findings import Findings, Tile
from ccr_cli.report.material import Material, Translation
from ccr_cli.report.tables import MINUS, MISSING, Cell, Column, Row, Table
from ccr_cli.report.thumbnails import Embedded

SHOWN = 8
"""So many translations are drawn and listed; the tables have all."""
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
METRICS = ("BLEU", "chrF2", "chrF2++")


@dataclass(frozen=True)
class Captions:
    """The captions of a translation."""

    of: Translation
    frame: pd.DataFrame


def title(translation: Translation) -> str:
    """What a translation is called where several data sets and languages meet."""
    return f"{translation.data}, {translation.lang}: {translation.label}"


def load(translations: Sequence[Translation]) -> list[Captions]:
    """Reads the captions of those that are drawn and listed."""
    return [Captions(each, each.load()) for each in translations[:SHOWN]]


def flags(translations: Sequence[Translation]) -> Table | None:
    """How many captions are flagged, and for what: a row a translation and split. Flags that none has are left out."""
    if not translations:
        return None
    there = [flag for flag in FLAGS if any(found["flags"][flag] for _, _, found in _splits(translations))]
    columns = [
        Column("translation", "translation", text=True),
        Column("split", "split", text=True),
        Column("captions", "captions", format=",.0f"),
        Column("flagged", "flagged, %", scale=100),
        *(Column(flag, flag, format=",.0f", group="captions flagged for") for flag in there),
        Column("round_trip", "round trip, chrF2"),
    ]
    rows = []
    for each, split, found in _splits(translations):
        counts = [Cell(found["flags"][flag]) for flag in there]
        trip = found["round_trip"]["chrF2"]["score"] if found["round_trip"] else None
        cells = [Cell(title(each)), Cell(split), Cell(found["captions"]), Cell(found["flagged"] / found["captions"])]
        rows.append(Row([*cells, *counts, Cell(trip)], block=title(each)))
    notes = [f"{flag.capitalize()}: {FLAGS[flag]}." for flag in there]
    absent = [flag for flag in FLAGS if flag not in there]
    notes += [f"No caption is flagged for {', '.join(absent)}."] if absent else []
    return Table("translations", "What is wrong with the translations", columns, rows, notes)


def scores(translations: Sequence[Translation]) -> Table | None:
    """Scores against human references, those with the same references side by side; None where there are none."""
    compared = _compared(translations)
    if not compared:
        return None
    columns = [
        Column("references", "captions and references", text=True),
        Column("translation", "translation", text=True),
        Column("captions", "captions", format=",.0f"),
        *(Column(name, name, "high") for name in METRICS),
    ]
    rows = []
    for (where, captions), rivals in compared.items():
        for each, human in rivals:
            cells = [_score(human["scores"].get(name)) for name in METRICS]
            rows.append(Row([Cell(where), Cell(each.label), Cell(captions), *cells], block=f"{where} {captions}"))
    told = [human["note"] for rivals in compared.values() for _, human in rivals if human["note"]]
    notes = [
        "± is half the 95 % bootstrap interval over sentences. References that are captions of the item were written "
        "without the caption that was translated: they compare engines, and are no measure of adequacy.",
        *dict.fromkeys(told),
        *signatures(translations),
    ]
    return Table("translation-scores", "Translations against what people wrote", columns, rows, notes)


def signatures(translations: Sequence[Translation]) -> list[str]:
    """Metrics with sacrebleu's signatures, each once."""
    found = [human["scores"] for _, _, split in _splits(translations) for human in split["references"]]
    return list(dict.fromkeys(f"{name} {figures['signature']}" for scores in found for name, figures in scores.items()))


def _compared(
    translations: Sequence[Translation],
) -> dict[tuple[str, int], list[tuple[Translation, Mapping[str, Any]]]]:
    """Scores by what they are against and of how many captions: only such may be compared."""
    found: dict[tuple[str, int], list[tuple[Translation, Mapping[str, Any]]]] = {}
    for each, split, told in _splits(translations):
        for human in told["references"]:
            many = human["references"] / human["captions"]
            kind = f"human {'translation' if human['kind'] == 'translation' else 'caption'}{'s' * (many > 1)}"
            sets = " for ".join(dict.fromkeys([human["caption_set"], human["source_set"]]))
            where = f"{each.data} {split}, {each.lang}: {many:.3g} {kind} each, set {sets}"
            found.setdefault((where, human["captions"]), []).append((each, human))
    return dict(sorted(found.items()))


def _half(figures: Mapping[str, Any]) -> str:
    interval = figures["interval"]
    return f" ± {(interval[1] - interval[0]) / 2:.1f}" if interval else ""


def _score(figures: Mapping[str, Any] | None) -> Cell:
    if figures is None:
        return Cell()
    interval = figures["interval"]
    return Cell(figures["score"], (interval[1] - interval[0]) / 2 if interval else None)


def _splits(translations: Sequence[Translation]) -> Iterator[tuple[Translation, str, Mapping[str, Any]]]:
    """The forward direction of each, split by split."""
    for each in translations:
        for split, found in each.quality["forward"]["splits"].items():
            yield each, split, found


def findings(translations: Sequence[Translation]) -> Findings:
    """What there is to say where there is nothing but translations."""
    splits = [found for _, _, found in _splits(translations)]
    captions, flagged = (sum(found[key] for found in splits) for key in ("captions", "flagged"))
    counts = {flag: sum(found["flags"][flag] or 0 for found in splits) for flag in FLAGS}
    most = max(counts, key=lambda flag: counts[flag])
    share = f"{100 * flagged / captions:.1f} %"
    one = len(translations) == 1
    what = f"{captions:,} captions in {translations[0].lang} by {translations[0].label}"
    headline = (
        f"Of {what if one else f'{captions:,} captions of {len(translations)} translations'} {flagged:,} ({share}) "
    )
    headline += f"are flagged, most often as {most} ({counts[most]:,})." if flagged else "are flagged."
    tiles = [Tile(share, "of captions flagged", f"{flagged:,} of {captions:,}")]
    if one:
        trips = {split: found["round_trip"] for _, split, found in _splits(translations) if found["round_trip"]}
        tiles += [Tile(f"{t['chrF2']['score']:.1f}", "chrF2 of the round trip", s) for s, t in list(trips.items())[-1:]]
    more = []
    name = METRICS[0]
    for (where, _), rivals in _compared(translations).items():
        order = sorted(rivals, key=lambda rival: -rival[1]["scores"][name]["score"])
        told = [f"{each.label} {h['scores'][name]['score']:.1f}{_half(h['scores'][name])}" for each, h in order[:2]]
        if len(order) > 1:
            more.append(f"Nearest to what people wrote in {name}: {told[0]}, then {told[1]} ({where}).")
        best, human = order[0]
        tiles.append(Tile(f"{human['scores'][name]['score']:.1f}", f"{name} of {best.label}", where))
    return Findings(headline, tuple(more), tuple(tiles[:4]), method="", noise=0.0)


def lists(material: Material, loaded: Sequence[Captions]) -> list[str]:
    """For each translation its worst captions, examples of what is flagged, and the words left as they were."""
    parts = []
    for number, each in enumerate(loaded):
        parts.append(f"<h3>{markup.text(title(each.of))}</h3>")
        parts.append(_left_in(each))
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


def _list(material: Material, of: Translation, name: str, rows: pd.DataFrame, *, open_: bool = False) -> str:
    collection, images = material.collection(of.data), Embedded(THUMB)
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
