"""What a report is made from: plain data, gathered by the stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ccr_cli.data.published import Published
from ccr_cli.report.figures.embedding_maps import Map
from ccr_cli.report.figures.model_internals import Inside
from ccr_cli.report.searches import Search
from ccr_cli.report.tables import results as compare
from ccr_cli.report.tables.paired_interval import Rankings


@dataclass(frozen=True)
class Diagnosis:
    """A diagnosis: its summary, and its pairs when they are asked for."""

    run_id: str
    summary: Mapping[str, Any]
    load_pairs: Callable[[], pd.DataFrame]
    usual: tuple[str, str] = ("", "")
    """Judge and side that the run is diagnosed with where none is named; empty where that is not known."""


@dataclass(frozen=True)
class History:
    """How a run was trained, an epoch a row."""

    run_id: str
    noise: float
    seed: int
    frame: pd.DataFrame
    select: str = ""
    """Which validation queries chose the epoch: `mt`, `human`, or `last` where none did."""
    criterion: str = "SumR"
    """Which figure of theirs did: `SumR`, or `mAP` by category."""
    evidence: Callable[[str], Iterator[tuple[int, pd.DataFrame]]] = lambda lang: iter(())
    """What it wrote of the pairs of a language, epoch by epoch."""


@dataclass(frozen=True)
class Collection:
    """A data set: its manifest, and where the image of an item lies (None where it cannot be shown)."""

    name: str
    manifest: Mapping[str, Any]
    image: Callable[[str], Path | None] = lambda item_id: None
    captions: Callable[[], pd.DataFrame] = pd.DataFrame
    """The human captions: caption_id, item_id, lang, text."""

    @property
    def source_lang(self) -> str:
        """The language that was translated from."""
        return str(self.manifest.get("source_lang", "en"))


@dataclass(frozen=True)
class Translation:
    """A translation: what is known of it in sum, and its captions when they are asked for."""

    label: str
    """Engine and model, and the rounds if there were several."""
    data: str
    lang: str
    quality: Mapping[str, Any]
    """`quality.json`."""
    load: Callable[[], pd.DataFrame]
    """The forward captions: item_id, split, source, text (None where it failed), back and human (None where there is
    none), score, and the columns of `quality.parquet`."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """What the forward captions of a split hash to: two translations of equal ones have the same texts."""


@dataclass(frozen=True)
class Origin:
    """An artifact that the report rests on."""

    kind: str
    name: str
    id: str
    command: str
    parents: Sequence[str] = ()


@dataclass(frozen=True)
class Material:
    """Everything that a report shows."""

    results: Sequence[tuple[str, Mapping[str, Any]]]
    """Id of the run and an entry of `metrics.json`, each once; of intact queries."""
    corrupted: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """Likewise of corrupted queries."""
    facts: Mapping[str, compare.RunFacts] = field(default_factory=dict)
    diagnoses: Sequence[Diagnosis] = ()
    histories: Sequence[History] = ()
    searches: Sequence[Search] = ()
    maps: Sequence[Map] = ()
    inside: Inside = field(default_factory=Inside)
    """What models do within, where that is asked for."""
    collections: Sequence[Collection] = ()
    translations: Sequence[Translation] = ()
    origins: Sequence[Origin] = ()
    title: str | None = None
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By run, all options in effect."""
    rankings: Rankings = field(default_factory=dict)
    """By run and signature, the rank of every query of a result: the columns `pairing.NEEDED`, uncertainty."""
    outside: Mapping[tuple[str, str, str], Callable[[], pd.DataFrame]] = field(default_factory=dict)
    """By run, signature and what they are (empty: categories left out of training), queries that do not belong to the
    gallery beside those that do."""
    published: Published | None = None
    """What results are set beside, where that is asked for."""

    def label(self, run_id: str, known: str) -> str:
        """The name of a run's method among the others."""
        return self.facts[run_id].label if run_id in self.facts else known

    def ranks(self, run_id: str, signature: str, direction: str) -> pd.DataFrame | None:
        """The rank of every query of a result in one direction, where they are known."""
        load = self.rankings.get((run_id, signature))
        frame = load() if load else None
        return None if frame is None else frame[frame["direction"] == direction].reset_index(drop=True)

    def collection(self, name: str) -> Collection | None:
        """The data set of a name."""
        return next((c for c in self.collections if c.name == name), None)
