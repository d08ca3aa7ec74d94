"""Scores of translations against what people wrote: what may be compared, and what cannot be told apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccr_cli.report.content import ReportTranslation
from ccr_cli.report.tables.table import Cell, Column, Row, Table, meet
from ccr_cli.report.words.findings import Tile

METRICS = ("BLEU", "chrF2", "chrF2++")
_SAID = 2
"""So many comparisons stand above the tables, those of the most captions."""
_NAMED = 3
"""So many translations that cannot be told apart are named."""


@dataclass(frozen=True)
class Rival:
    """What scores stand for: translations with the same texts are one."""

    names: list[str]
    human: Mapping[str, Any]
    failed: int

    def cell(self, metric: str) -> Cell:
        """A score with half the width of its interval; of a single sentence it may lie anywhere."""
        figures = self.human["scores"].get(metric)
        if figures is None:
            return Cell()
        low, high = figures["interval"] or (-math.inf, math.inf)
        return Cell(figures["score"], (high - low) / 2 if high < math.inf else None, interval=(low, high))

    def told(self, metric: str) -> str:
        """A score in words, with the name."""
        return f"{self.names[0]} {self.score(metric)}"

    def score(self, metric: str) -> str:
        """A score in words."""
        cell = self.cell(metric)
        return f"{cell.value:.1f}" + ("" if cell.sd is None else f" ± {cell.sd:.1f}")


def every_split(
    translations: Iterable[ReportTranslation],
) -> Iterator[tuple[ReportTranslation, str, Mapping[str, Any]]]:
    """The forward direction of each, split by split."""
    for each in translations:
        for split, found in each.quality["forward"]["splits"].items():
            yield each, split, found


def listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), *names[-1:]])


def same_texts(names: Sequence[str]) -> str:
    """What translations are called that need but one row."""
    return names[0] if len(names) == 1 else f"{listed(names)} (the same texts)"


def wrote(human: Mapping[str, Any]) -> str:
    """What a score is against: `1 human translation each`, `1 to 5 human captions of the item each`."""
    what = "translation" if human["kind"] == "translation" else "caption"
    of = "" if human["kind"] == "translation" else " of the item"
    return f"{_each(human)} human {what}{'' if _each(human) == '1' else 's'}{of} each"


def _each(human: Mapping[str, Any]) -> str:
    """How many references a caption has; the mean, where a translation was made before ccr wrote down the range."""
    fewest, most = human.get("each") or [human["references"] / human["captions"]] * 2
    return f"{fewest:.3g}" if fewest == most else f"{fewest} to {most}"


def signatures(humans: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line a metric: sacrebleu's signature, and of others the fields in which they differ from it."""
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for human in humans:
        for name, figures in human["scores"].items():
            found.setdefault(name, {}).setdefault(figures["signature"], []).append(human)
    return [f"{name} {_together(known)}" for name, known in found.items()]


def signed(translations: Iterable[ReportTranslation]) -> list[str]:
    """The signatures of all scores of translations."""
    return signatures(human for _, _, told in every_split(translations) for human in told["references"])


def _together(known: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    first, *others = known
    fields = first.split("|")
    told = [first, *("|".join(f for f in other.split("|") if f not in fields) for other in others)]
    return "; also ".join(each + _varying(signed, known[signed]) for each, signed in zip(told, known, strict=True))


def _varying(signature: str, humans: Sequence[Mapping[str, Any]]) -> str:
    """What `nrefs:var` stands for."""
    ranges = [human["each"] for human in humans if human.get("each")]
    if "nrefs:var" not in signature:
        return ""
    if not ranges:
        return " (var: not of equally many references)"
    return f" (var: of {min(low for low, _ in ranges)} to {max(high for _, high in ranges)} references)"


@dataclass
class Comparison:
    """Scores against the same references of the same captions: only such may be compared."""

    where: str
    captions: int
    rivals: dict[str, Rival]
    """By their texts."""


def compared(translations: Sequence[ReportTranslation]) -> list[Comparison]:
    """Scores by what they are against."""
    found: dict[Any, Comparison] = {}
    for each, split, told in every_split(translations):
        for human in told["references"]:
            captions, sets = human["captions"], dict.fromkeys([human["caption_set"], human["source_set"]])
            where = f"{each.data} {split}, {each.lang}: {wrote(human)}, set {' for '.join(sets)}"
            same = (each.data, split, each.lang, human["kind"], *sets, captions, human["references"])
            rivals = found.setdefault(same, Comparison(where, captions, {})).rivals
            texts = each.texts.get(split) or each.label
            rivals.setdefault(texts, Rival([], human, told["failed"])).names.append(each.label)
    return sorted(found.values(), key=lambda one: (one.where, one.captions))


def scores(translations: Sequence[ReportTranslation]) -> Table | None:
    """Scores against human references, those with the same references side by side; None where there are none."""
    known = compared(translations)
    if not known:
        return None
    columns = [
        Column("references", "captions and references", text=True),
        Column("translation", "translation", text=True),
        Column("captions", "captions", format=",.0f"),
        *(Column(name, name, "high") for name in METRICS),
    ]
    rows, shown = [], []
    for one in known:
        for rival in one.rivals.values():
            shown.append(rival)
            cells = [Cell(one.where), Cell(same_texts(rival.names)), Cell(one.captions), *map(rival.cell, METRICS)]
            rows.append(Row(cells, block=f"{one.where} {one.captions}"))
    notes = ["± is half the 95% bootstrap interval over sentences."]
    if any(len(one.rivals) > 1 for one in known):
        notes.append("The best is bold only where its interval overlaps with no other; else they cannot be told apart.")
    if any(rival.human["kind"] == "caption" for rival in shown):
        notes.append(
            "References that are captions of the item were written without the caption that was translated: they "
            "compare engines, and are no measure of adequacy."
        )
    if any(rival.failed for rival in shown):
        notes.append("A caption that failed counts as an empty translation here.")
    notes += dict.fromkeys(rival.human["note"] for rival in shown if rival.human["note"])
    notes += signed(translations)
    return Table("translation-scores", "Translations against what people wrote", columns, rows, notes)


def nearest(translations: Sequence[ReportTranslation]) -> tuple[list[str], list[Tile]]:
    """Which are nearest to what people wrote, in sentences and figures; nothing is ranked that cannot be told apart."""
    said, tiles, name = [], [], METRICS[0]
    for one in sorted(compared(translations), key=lambda one: -one.captions):
        order = sorted(one.rivals.values(), key=lambda rival: -rival.human["scores"][name]["score"])
        best, *rest = order
        level = [rival for rival in rest if meet(best.cell(name), rival.cell(name))]
        if level:
            others = [rival.told(name) for rival in level[:_NAMED]]
            others += [f"{len(level) - _NAMED} more"] if len(level) > _NAMED else []
            from_ = f"cannot be told apart from {listed(others)}"
            said.append(f"In {name} {best.told(name)} {from_}: the intervals overlap ({one.where}).")
            continue
        if rest:
            other = f"then {rest[0].told(name)}" if len(rest) == 1 else f"the others {rest[0].score(name)} or less"
            said.append(f"Nearest to what people wrote in {name}: {best.told(name)}, {other} ({one.where}).")
        tiles.append(Tile(f"{best.human['scores'][name]['score']:.1f}", f"{name} of {best.names[0]}", one.where))
    return said[:_SAID], tiles
