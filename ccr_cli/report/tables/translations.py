"""Tables and findings about translations: what failed, what is flagged, and scores against human references.

Scores are compared only if they are of the same captions against the same references; scores whose intervals overlap
are not ranked. Translations with the same texts count once.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ccr_cli.metrics.mtquality import FLAGS
from ccr_cli.report.content import ReportTranslation
from ccr_cli.report.tables.table import Cell, Column, Row, Table, overlap
from ccr_cli.report.words.findings import Findings, Tile
from ccr_cli.report.words.numbers import MISSING, count_range, half_width, listed, mean_sd, metric, percent

SHOWN = 8
"""Number of translations that are drawn and listed; the tables have all."""
METRICS = ("BLEU", "chrF2", "chrF2++")
SENTENCES = 2
"""Number of comparisons in the findings, those of the most captions."""
NAMED = 3
"""Number of indistinguishable translations that a sentence names."""

SplitQuality = Mapping[str, Any]
"""The entry of a split in `quality.json`."""
HumanReferences = Mapping[str, Any]
"""Scores against one set of human references, in `quality.json`."""


@dataclass(frozen=True)
class TranslatedCaptions:
    """The captions of a translation."""

    of: ReportTranslation
    frame: pd.DataFrame
    """Captions that were translated."""
    failed: Sequence[str] = ()
    """Sources of captions whose translation failed."""


def load(translations: Sequence[ReportTranslation]) -> list[TranslatedCaptions]:
    """Reads the captions of the translations that are drawn and listed."""
    loaded = []
    for translation in distinct(translations)[:SHOWN]:
        frame = translation.load()
        good = frame["text"].notna()
        failed = list(frame.loc[~good, "source"])
        loaded.append(TranslatedCaptions(translation, frame[good] if failed else frame, failed))
    return loaded


def distinct(translations: Sequence[ReportTranslation]) -> list[ReportTranslation]:
    """Translations without those that have the texts of another in every split."""
    by_texts: dict[Hashable, ReportTranslation] = {}
    for translation in translations:
        texts = ((translation.key(split), bool(quality["round_trip"])) for split, quality in translation.splits.items())
        by_texts.setdefault(tuple(texts), translation)
    return list(by_texts.values())


def _same_texts(translations: Sequence[ReportTranslation]) -> list[tuple[list[ReportTranslation], str, SplitQuality]]:
    """The quality of each split; that of the same texts once, with all translations that have them."""
    groups: dict[Hashable, tuple[list[ReportTranslation], str, SplitQuality]] = {}
    for translation in translations:
        for split, quality in translation.splits.items():
            groups.setdefault(translation.key(split), ([], split, quality))[0].append(translation)
    return list(groups.values())


def _row_name(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{listed(labels)} (the same texts)"


def flags(translations: Sequence[ReportTranslation]) -> Table | None:
    """How many captions are flagged, and why: a row for each translation and split. Unused flags have no column."""
    if not translations:
        return None
    splits = [(translation, *split) for translation in translations for split in translation.splits.items()]
    used = [flag for flag in FLAGS if any(quality["flags"][flag] for _, _, quality in splits)]
    any_failed = any(quality["failed"] for _, _, quality in splits)
    columns = [
        Column("translation", "translation", text=True),
        Column("split", "split", text=True),
        *(Column(key, key, digits=0) for key in ("captions", "failed")[: 1 + any_failed]),
        Column("flagged", "flagged, %", scale=100),
        *(Column(flag, flag, digits=0, group="captions flagged for") for flag in used),
        Column("round_trip", "round trip, chrF2"),
    ]
    groups: dict[tuple[Hashable, str, tuple[float | None, ...]], list[ReportTranslation]] = {}
    for translation, split, quality in splits:
        translated = quality["captions"] - quality["failed"]
        cells = (
            *(quality[key] for key in ("captions", "failed")[: 1 + any_failed]),
            quality["flagged"] / translated if translated else None,
            *(quality["flags"][flag] for flag in used),
            quality["round_trip"]["chrF2"]["score"] if quality["round_trip"] else None,
        )
        groups.setdefault((translation.key(split), split, cells), []).append(translation)
    rows = []
    for (_, split, cells), same in groups.items():
        name = replace(same[0], label=_row_name([translation.label for translation in same])).full_name
        rows.append(Row([Cell(name), Cell(split), *map(Cell, cells)], block=name))
    notes = ["Failed captions have no translation; flagged is a share of the others."] if any_failed else []
    notes += [f"{flag.capitalize()}: {FLAGS[flag]}." for flag in used]
    unused = [flag for flag in FLAGS if flag not in used]
    notes += [f"No caption is flagged for {', '.join(unused)}."] if unused else []
    return Table("translations", "Failed and flagged translations", columns, rows, notes)


def failures(translations: Sequence[ReportTranslation]) -> list[str]:
    """A sentence on captions that failed, if there are any."""
    splits = [quality for _, _, quality in _same_texts(translations)]
    captions, failed = (sum(quality[key] for quality in splits) for key in ("captions", "failed"))
    return [f"Translation failed for {failed:,} of {captions:,} captions."] if failed else []


def findings(translations: Sequence[ReportTranslation]) -> Findings:
    """The findings of a report on translations alone."""
    splits = [quality for _, _, quality in _same_texts(translations)]
    captions, failed, flagged = (sum(quality[key] for quality in splits) for key in ("captions", "failed", "flagged"))
    counts = {flag: sum(quality["flags"][flag] or 0 for quality in splits) for flag in FLAGS}
    most = max(counts, key=lambda flag: counts[flag])
    translated = captions - failed
    share = percent(flagged / translated, 1) if translated else MISSING
    if len(translations) == 1:
        subject = f"{captions:,} captions translated into {translations[0].lang} by {translations[0].label}"
        round_trips = {split: q["round_trip"] for split, q in translations[0].splits.items() if q["round_trip"]}
    else:
        subject, round_trips = f"{captions:,} captions of {len(translations)} translations", {}
    headline = f"Of {subject}, "
    headline += f"{failed:,} failed; of the other {translated:,}, " if failed else ""
    headline += f"{flagged:,} ({share}) are flagged"
    headline += f", most often as {most} ({counts[most]:,})." if flagged else "."
    tiles = [Tile(f"{failed:,}", "captions failed", f"of {captions:,}")] if failed else []
    tiles.append(Tile(share, "of captions flagged", f"{flagged:,} of {translated:,}{' translated' if failed else ''}"))
    for split, scores in list(round_trips.items())[-1:]:
        tiles.append(Tile(metric(scores["chrF2"]["score"]), "chrF2 of the round trip", split))
    sentences, more_tiles = nearest(translations)
    more = (*_repetitions(translations), *sentences)
    return Findings(headline, more, tuple([*tiles, *more_tiles][:4]), method="", noise=0.0)


def _repetitions(translations: Sequence[ReportTranslation]) -> list[str]:
    splits: dict[tuple[str, ...], list[str]] = {}
    for same, split, _ in _same_texts(translations):
        if len(same) > 1:
            names = same[0].full_name, *(translation.label for translation in same[1:])
            splits.setdefault(names, []).append(split)
    if len(splits) > 1:
        return ["Translations with the same texts count once and share a row."]
    return [f"{listed(names)} have the same texts in {listed(of)} and count once." for names, of in splits.items()]


def reference_words(human: HumanReferences) -> str:
    """What a score is against: `1 human translation per caption`, `1 to 5 human captions of the same item`."""
    number = count_range(human["each"])
    plural = "" if number == "1" else "s"
    if human["kind"] == "translation":
        return f"{number} human translation{plural} per caption"
    return f"{number} human caption{plural} of the same item"


def score_signatures(humans: Iterable[HumanReferences]) -> list[str]:
    """A line for each metric: sacrebleu's signature, and the fields in which further signatures differ from it."""
    by_metric: dict[str, dict[str, list[HumanReferences]]] = {}
    for human in humans:
        for name, score in human["scores"].items():
            by_metric.setdefault(name, {}).setdefault(score["signature"], []).append(human)
    lines = []
    for name, known in by_metric.items():
        first, *others = known
        fields = first.split("|")
        shown = [first, *("|".join(field for field in other.split("|") if field not in fields) for other in others)]
        parts = (text + _reference_range(line, known[line]) for text, line in zip(shown, known, strict=True))
        lines.append(f"{name} {'; also '.join(parts)}")
    return lines


def _reference_range(signature: str, humans: Sequence[HumanReferences]) -> str:
    """The meaning of `nrefs:var`."""
    if "nrefs:var" not in signature.split("|"):
        return ""
    numbers = [number for human in humans for number in human.get("each") or []]
    return f" (var: {count_range(numbers)} references)" if numbers else " (var: the number of references varies)"


def all_signatures(translations: Iterable[ReportTranslation]) -> list[str]:
    """The signatures of all scores of translations."""
    splits = [quality for translation in translations for quality in translation.splits.values()]
    return score_signatures(human for quality in splits for human in quality["references"])


@dataclass(frozen=True)
class ScoredTranslation:
    """Scores of a translation, or of several with the same texts."""

    labels: list[str]
    human: HumanReferences
    failed: int

    def cell(self, name: str) -> Cell:
        """A score with half the width of its interval; a single sentence has no interval."""
        score = self.human["scores"].get(name)
        if score is None:
            return Cell()
        interval = score["interval"]
        if not interval:
            return Cell(score["score"], interval=(-math.inf, math.inf))
        return Cell(score["score"], half_width(interval), interval=tuple(interval))

    def words(self, name: str) -> str:
        """A score in a sentence."""
        cell = self.cell(name)
        assert isinstance(cell.value, float | int)
        return mean_sd(cell.value, cell.sd)


@dataclass(frozen=True)
class TranslationComparison:
    """Scores of the same captions against the same references."""

    where: str
    captions: int
    rivals: dict[Hashable, ScoredTranslation]
    """By their texts."""


def _comparisons(translations: Sequence[ReportTranslation]) -> list[TranslationComparison]:
    groups: dict[Hashable, TranslationComparison] = {}
    splits = [(translation, *split) for translation in translations for split in translation.splits.items()]
    for translation, split, quality in splits:
        for human in quality["references"]:
            captions, sets = human["captions"], dict.fromkeys([human["caption_set"], human["source_set"]])
            data, lang = translation.data, translation.lang
            where = f"{data} {split}, {lang}: {reference_words(human)}, set {' for '.join(sets)}"
            key = (data, split, lang, human["kind"], *sets, captions, human["references"])
            rivals = groups.setdefault(key, TranslationComparison(where, captions, {})).rivals
            scored = rivals.setdefault(translation.key(split), ScoredTranslation([], human, quality["failed"]))
            scored.labels.append(translation.label)
    return sorted(groups.values(), key=lambda comparison: (comparison.where, comparison.captions))


def scores(translations: Sequence[ReportTranslation]) -> Table | None:
    """Scores against human references, those with the same references in one block; None without any."""
    comparisons = _comparisons(translations)
    if not comparisons:
        return None
    columns = [
        Column("references", "captions and references", text=True),
        Column("translation", "translation", text=True),
        Column("captions", "captions", digits=0),
        *(Column(name, name, "high") for name in METRICS),
    ]
    rows = []
    for one in comparisons:
        for rival in one.rivals.values():
            head = (Cell(one.where), Cell(_row_name(rival.labels)), Cell(one.captions))
            rows.append(Row([*head, *map(rival.cell, METRICS)], block=f"{one.where} {one.captions}"))
    shown = [rival for one in comparisons for rival in one.rivals.values()]
    notes = ["± is half the 95% bootstrap interval over sentences."]
    if any(len(one.rivals) > 1 for one in comparisons):
        notes.append("The best score is bold if its interval overlaps no other.")
    if any(rival.human["kind"] == "caption" for rival in shown):
        notes.append(
            "References that are captions of the same item were written without seeing the translated caption: they "
            "compare engines, but do not measure adequacy."
        )
    if any(rival.failed for rival in shown):
        notes.append("A failed caption counts as an empty translation.")
    notes += dict.fromkeys(rival.human["note"] for rival in shown if rival.human["note"])
    notes += all_signatures(translations)
    return Table("translation-scores", "Translations against human references", columns, rows, notes)


def nearest(translations: Sequence[ReportTranslation]) -> tuple[list[str], list[Tile]]:
    """Sentences and tiles on which translation is closest to the human references."""
    sentences, tiles, name = [], [], METRICS[0]
    for one in sorted(_comparisons(translations), key=lambda one: -one.captions):
        best, *others = sorted(one.rivals.values(), key=lambda rival: -rival.human["scores"][name]["score"])
        level = [rival for rival in others if overlap(best.cell(name), rival.cell(name))]
        score = f"{best.labels[0]} {best.words(name)}"
        if level:
            names = [f"{rival.labels[0]} {rival.words(name)}" for rival in level[:NAMED]]
            names += [f"{len(level) - NAMED} more"] if len(level) > NAMED else []
            others_words = f"{listed(names)}: their intervals overlap ({one.where})"
            sentences.append(f"In {name}, {score} cannot be distinguished from {others_words}.")
            continue
        if others:
            second = f"{others[0].labels[0]} {others[0].words(name)}"
            rest = f"then {second}" if len(others) == 1 else f"the others {others[0].words(name)} or less"
            sentences.append(f"Closest to the human references in {name}: {score}, {rest} ({one.where}).")
        tiles.append(Tile(metric(best.human["scores"][name]["score"]), f"{name} of {best.labels[0]}", one.where))
    return sentences[:SENTENCES], tiles
