"""What a report says of translations: what failed and what is flagged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ccr_cli.metrics.mtquality import FLAGS
from ccr_cli.report.content import ReportTranslation
from ccr_cli.report.tables.table import Cell, Column, Row, Table
from ccr_cli.report.tables.translation_scores import every_split, listed, nearest, same_texts
from ccr_cli.report.words.findings import Findings, Tile
from ccr_cli.report.words.numbers import MISSING

SHOWN = 8
"""So many translations are drawn and listed; the tables have all."""


@dataclass(frozen=True)
class Captions:
    """The captions of a translation."""

    of: ReportTranslation
    frame: pd.DataFrame
    """Those that were translated."""
    failed: Sequence[str] = ()
    """Sources of the others."""


def title(translation: ReportTranslation) -> str:
    """What a translation is called where several data sets and languages meet."""
    return f"{translation.data}, {translation.lang}: {translation.label}"


def load(translations: Sequence[ReportTranslation]) -> list[Captions]:
    """Reads the captions of those that are drawn and listed, the same texts once."""
    found = []
    for each in distinct(translations)[:SHOWN]:
        frame = each.load()
        good = frame["text"].notna()
        found.append(Captions(each, frame[good], list(frame.loc[~good, "source"])))
    return found


def flags(translations: Sequence[ReportTranslation]) -> Table | None:
    """How many captions are flagged, and for what: a row a translation and split. Flags that none has are left out."""
    if not translations:
        return None
    shown = list(every_split(translations))
    there = [flag for flag in FLAGS if any(found["flags"][flag] for _, _, found in shown)]
    failed = any(found["failed"] for _, _, found in shown)
    columns = [
        Column("translation", "translation", text=True),
        Column("split", "split", text=True),
        Column("captions", "captions", format=",.0f"),
        *([Column("failed", "failed", format=",.0f")] if failed else []),
        Column("flagged", "flagged, %", scale=100),
        *(Column(flag, flag, format=",.0f", group="captions flagged for") for flag in there),
        Column("round_trip", "round trip, chrF2"),
    ]
    names: dict[Any, list[str]] = {}
    of: dict[Any, ReportTranslation] = {}
    for each, split, found in shown:
        trip = found["round_trip"]["chrF2"]["score"] if found["round_trip"] else None
        translated = found["captions"] - found["failed"]
        cells = [found["captions"], *([found["failed"]] if failed else [])]
        cells += [
            found["flagged"] / translated if translated else None,
            *(found["flags"][flag] for flag in there),
            trip,
        ]
        key = (each.data, each.lang, split, each.texts.get(split) or each.label, tuple(cells))
        names.setdefault(key, []).append(each.label)
        of.setdefault(key, each)
    rows = []
    for key, labels in names.items():
        name = title(replace(of[key], label=same_texts(labels)))
        rows.append(Row([Cell(name), Cell(key[2]), *map(Cell, key[4])], block=name))
    notes = ["Failed captions were not translated; what is flagged is a share of the others."] if failed else []
    notes += [f"{flag.capitalize()}: {FLAGS[flag]}." for flag in there]
    absent = [flag for flag in FLAGS if flag not in there]
    notes += [f"No caption is flagged for {', '.join(absent)}."] if absent else []
    return Table("translations", "What is wrong with the translations", columns, rows, notes)


def distinct(translations: Sequence[ReportTranslation]) -> list[ReportTranslation]:
    """Translations without those that have the texts of another in every split."""
    found: dict[Any, ReportTranslation] = {}
    for each in translations:
        splits = each.quality["forward"]["splits"]
        same = tuple(
            (split, each.texts.get(split) or each.label, bool(splits[split]["round_trip"])) for split in splits
        )
        found.setdefault((each.data, each.lang, same), each)
    return list(found.values())


def _once(
    translations: Sequence[ReportTranslation],
) -> dict[Any, tuple[list[ReportTranslation], str, Mapping[str, Any]]]:
    """What is known of each split, that of the same texts once."""
    found: dict[Any, tuple[list[ReportTranslation], str, Mapping[str, Any]]] = {}
    for each, split, told in every_split(translations):
        same = (each.data, each.lang, split, each.texts.get(split) or each.label)
        found.setdefault(same, ([], split, told))[0].append(each)
    return found


def _repeated(translations: Sequence[ReportTranslation]) -> list[str]:
    """Says which translations have the same texts."""
    splits: dict[tuple[str, ...], list[str]] = {}
    for of, split, _ in _once(translations).values():
        if len(of) > 1:
            names = title(of[0]), *(each.label for each in of[1:])
            splits.setdefault(names, []).append(split)
    if len(splits) > 1:
        return ["The same texts in several translations count once; the tables have them in one row."]
    return [f"{listed(names)} have the same texts in {listed(of)}: they count once." for names, of in splits.items()]


def failures(translations: Sequence[ReportTranslation]) -> list[str]:
    """Says how many captions failed, where the findings speak of something else."""
    splits = [found for _, _, found in _once(translations).values()]
    captions, failed = (sum(found[key] for found in splits) for key in ("captions", "failed"))
    return [f"Of {captions:,} captions {failed:,} failed: not translated."] if failed else []


def findings(translations: Sequence[ReportTranslation]) -> Findings:
    """What there is to say where there is nothing but translations."""
    splits = [found for _, _, found in _once(translations).values()]
    captions, failed, flagged = (sum(found[key] for found in splits) for key in ("captions", "failed", "flagged"))
    counts = {flag: sum(found["flags"][flag] or 0 for found in splits) for flag in FLAGS}
    most = max(counts, key=lambda flag: counts[flag])
    there = captions - failed
    share = f"{100 * flagged / there:.1f}%" if there else MISSING
    one = len(translations) == 1
    what = f"{captions:,} captions in {translations[0].lang} by {translations[0].label}"
    headline = f"Of {what if one else f'{captions:,} captions of {len(translations)} translations'} "
    headline += f"{failed:,} failed: not translated. Of the other {there:,}, " if failed else ""
    headline += f"{flagged:,} ({share}) are flagged"
    headline += f", most often as {most} ({counts[most]:,})." if flagged else "."
    tiles = [Tile(f"{failed:,}", "captions failed: not translated", f"of {captions:,}")] if failed else []
    tiles.append(Tile(share, "of captions flagged", f"{flagged:,} of {there:,}{' translated' if failed else ''}"))
    if one:
        trips = {split: found["round_trip"] for _, split, found in every_split(translations) if found["round_trip"]}
        tiles += [Tile(f"{t['chrF2']['score']:.1f}", "chrF2 of the round trip", s) for s, t in list(trips.items())[-1:]]
    said, more = nearest(translations)
    return Findings(headline, (*_repeated(translations), *said), tuple([*tiles, *more][:4]), method="", noise=0.0)
