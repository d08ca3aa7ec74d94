"""What a report shows: plain data, gathered by `ccr_cli.stages.report`, for tables, figures and the page.

Shape suffixes: V items, T captions, D embedding, L tokens of a caption, M of its translation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ccr_cli.artifacts.base import Artifact
from ccr_cli.data.published import Published
from ccr_cli.report.tables.comparable import RunFacts
from ccr_cli.report.tables.differences import Rankings
from ccr_cli.report.tables.systems import SystemCost


@dataclass(frozen=True)
class RunDiagnosis:
    """A diagnosis: its summary, and its pairs on demand."""

    run_id: str
    summary: Mapping[str, Any]
    load_pairs: Callable[[list[str]], pd.DataFrame]
    usual: tuple[str, str] = ("", "")
    """The judge and side that the run is diagnosed with by default; empty if unknown."""

    @property
    def noise(self) -> float:
        """The noise ratio of the run."""
        return round(float(self.summary.get("noise") or 0.0), 6)


@dataclass(frozen=True)
class TrainingHistory:
    """The training history of a run, one row per epoch."""

    run_id: str
    noise: float
    seed: int
    frame: pd.DataFrame
    select: str = ""
    """The validation queries that selected the epoch: `mt` or `human`; `last` if none did and the last was kept."""
    criterion: str = "SumR"
    """The validation metric that selected the epoch: `SumR`, or `mAP` by category."""
    evidence: Callable[[str], Iterator[tuple[int, pd.DataFrame]]] = lambda lang: iter(())
    """The evidence tables of a language, epoch by epoch."""


@dataclass(frozen=True)
class ReportDataset:
    """A data set: its manifest, its captions, and the image path of each item (None if it cannot be shown)."""

    name: str
    manifest: Mapping[str, Any]
    image: Callable[[str], Path | None] = lambda item_id: None
    captions: Callable[[], pd.DataFrame] = pd.DataFrame
    """The human captions: caption_id, item_id, lang, text."""

    @property
    def source_lang(self) -> str:
        """The language that captions were translated from; empty if the data set no longer exists."""
        return str(self.manifest.get("source_lang", "en")) if self.manifest else ""


@dataclass(frozen=True)
class ReportTranslation:
    """A translation: a summary of its quality, and its captions on demand."""

    label: str
    """Engine and model, and the number of rounds if there were several."""
    data: str
    lang: str
    quality: Mapping[str, Any]
    """`quality.json`."""
    load: Callable[[], pd.DataFrame]
    """The forward captions: item_id, split, source, text (None if translation failed), back and human (None if absent),
    score, and the columns of `quality.parquet`."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Hash of the forward captions of each split: translations with equal hashes have the same texts."""

    @property
    def full_name(self) -> str:
        """The label, preceded by the data set and language."""
        return f"{self.data}, {self.lang}: {self.label}"

    @property
    def splits(self) -> Mapping[str, Mapping[str, Any]]:
        """The quality of the forward captions by split."""
        splits: Mapping[str, Mapping[str, Any]] = self.quality["forward"]["splits"]
        return splits

    def key(self, split: str) -> tuple[str, ...]:
        """A key that is equal for translations with the same texts in a split."""
        return (self.data, self.lang, split, self.texts.get(split) or self.label)


@dataclass(frozen=True)
class ExampleHit:
    """A result of an example search."""

    item_id: str
    caption: str
    """A caption of the item in the source language, or the caption that was found."""
    similarity: float
    image: Path | None = None
    correct: bool = False
    """Whether the query describes this item."""
    lang: str = ""
    """Language of the caption if captions were searched, else empty."""
    gloss: str | None = None
    """A caption of the item in the source language, for readers."""
    probability: float | None = None
    """Probability that the query describes this item; None if unknown."""


@dataclass(frozen=True)
class ExampleSearch:
    """A query and its results, best first."""

    query: str
    lang: str
    results: Sequence[ExampleHit]
    gloss: str | None = None
    """A caption of the item that the query describes, for readers."""
    run: str = ""
    uncertainty: float | None = None
    image: Path | None = None
    """The query picture, if it is one."""
    gloss_lang: str = ""
    """Language of the gloss: the source language of the data set."""

    def request(self) -> dict[str, Any]:
        """What a report's request records of the search, without the paths of images on this machine."""
        uncertainty = None if self.uncertainty is None else round(self.uncertainty, 6)
        results = [[r.item_id, r.caption, round(r.similarity, 6), r.correct] for r in self.results]
        own = {key: getattr(self, key) for key in ("query", "lang", "gloss", "run")}
        return own | {"uncertainty": uncertainty, "results": results}


@dataclass(frozen=True)
class EmbeddingMap:
    """Embeddings of items and their captions, to be drawn as a map."""

    run: str
    lang: str
    item_ids: Sequence[str]
    item_VD: np.ndarray
    """Unit vectors of the items."""
    text_TD: np.ndarray
    """Unit vectors of their captions."""
    item_T: np.ndarray
    """For each caption, the row of its item in `item_VD`."""
    image: Callable[[str], Path | None] = lambda item_id: None

    def request(self) -> dict[str, Any]:
        """What a report's request records of the map."""
        return {"run": self.run, "lang": self.lang, "items": list(self.item_ids), "captions": len(self.item_T)}

    @property
    def nearest(self) -> float:
        """Fraction of the captions whose own item is the most similar one on the map."""
        return float((np.argmax(self.text_TD @ self.item_VD.T, axis=1) == self.item_T).mean())


@dataclass(frozen=True)
class CrossAttention:
    """How much the tokens of a caption attend to those of its translation."""

    run: str
    lang: str
    source: Sequence[str]
    """Tokens of the caption."""
    target: Sequence[str]
    """Tokens of the translation."""
    share_LM: np.ndarray
    """One row per token of the caption; each row sums to 1."""

    def request(self) -> dict[str, Any]:
        """What a report's request records of the example."""
        return {"run": self.run, "lang": self.lang, "source": list(self.source), "target": list(self.target)}


@dataclass(frozen=True)
class ModelInternals:
    """Examples from inside trained models."""

    targets: Sequence[ExampleSearch] = ()
    """Captions with the soft-target weight of each picture in place of its similarity (DisNCL Figure 5)."""
    pictures: Sequence[ExampleSearch] = ()
    """Query pictures with the captions found for them (UML Figure 7, a to c)."""
    attention: Sequence[CrossAttention] = ()
    """Captions and the translations they attend to (NRCCR Figure 3)."""

    def request(self) -> dict[str, Any]:
        """What a report's request records of the examples."""
        return {kind: [example.request() for example in examples] for kind, examples in vars(self).items()}


@dataclass(frozen=True)
class ReportData:
    """Everything that a report shows."""

    results: Sequence[tuple[str, Mapping[str, Any]]]
    """Run id and `metrics.json` entry of each result on intact queries, without duplicates."""
    corrupted: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """The same for corrupted queries."""
    facts: Mapping[str, RunFacts] = field(default_factory=dict)
    diagnoses: Sequence[RunDiagnosis] = ()
    judged_translations: Sequence[Mapping[str, Any]] = ()
    """Summaries of the diagnoses of translations, oldest first."""
    histories: Sequence[TrainingHistory] = ()
    searches: Sequence[ExampleSearch] = ()
    maps: Sequence[EmbeddingMap] = ()
    inside: ModelInternals = field(default_factory=ModelInternals)
    datasets: Sequence[ReportDataset] = ()
    translations: Sequence[ReportTranslation] = ()
    artifacts: Sequence[Artifact] = ()
    """The artifacts that the report was made from."""
    title: str | None = None
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """All options in effect, by run."""
    rankings: Rankings = field(default_factory=dict)
    """The rank of every query of a result, by run and signature: the columns `NEEDED` and uncertainty."""
    outside: Mapping[tuple[str, str, str], Callable[[], pd.DataFrame]] = field(default_factory=dict)
    """Queries with and without a match in the gallery, by run, signature and kind (empty: categories left out of
    training)."""
    costs: Mapping[str, SystemCost] = field(default_factory=dict)
    """The cost of each run."""
    published: Published | None = None
    """Published results to compare with, if requested."""

    def label(self, run_id: str, known: str) -> str:
        """The label of a run's method in this report; `known` for a run without facts."""
        return self.facts[run_id].label if run_id in self.facts else known

    def ranks(self, run_id: str, signature: str, direction: str) -> pd.DataFrame | None:
        """The rank of every query of a result in one direction; None if unknown."""
        load = self.rankings.get((run_id, signature))
        frame = load() if load else None
        return None if frame is None else frame[frame["direction"] == direction].reset_index(drop=True)

    def dataset(self, name: str) -> ReportDataset:
        """The data set with this name; an empty one if it no longer exists."""
        return next((dataset for dataset in self.datasets if dataset.name == name), ReportDataset(name, {}))

    def dataset_of_run(self, run_id: str) -> ReportDataset:
        """The data set that a run was trained on."""
        return self.dataset(self.facts[run_id].data if run_id in self.facts else "")
