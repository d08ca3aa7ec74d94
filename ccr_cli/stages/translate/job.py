"""What a translation is to be, understood: data set, engine, request, and the steps that lead there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, translation
from ccr_cli.artifacts.build import Build, OtherRequestError, build_artifact, build_state
from ccr_cli.artifacts.parquet import read_table
from ccr_cli.artifacts.workspace import Workspace, stem
from ccr_cli.cache_folder import cache_folder
from ccr_cli.console import say
from ccr_cli.data.manifests import LANG
from ccr_cli.data.splits import SPLITS, items_of
from ccr_cli.errors import ArtifactError, CcrError, UnavailableError, UsageError
from ccr_cli.stages.shared.failures import refuse_too_many
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.options import identified
from ccr_cli.stages.shared.sharding import Part
from ccr_cli.stages.translate import retranslate
from ccr_cli.stages.translate.coverage import Coverage, coverage
from ccr_cli.stages.translate.engine_choice import (
    options_in_request,
    plug_in,
    training_data,
    usual_engine,
    usual_request,
)
from ccr_cli.stages.translate.sentence_cache import normal
from ccr_cli.stages.translate.steps import Engines, Results, Step, begin, follow, known, run
from ccr_cli.translators._languages import usual
from ccr_cli.translators.base import Translation

NO_WORK = "recorded looks its answers up: there is no work to share; leave --shard out"
OTHER_ENGINE = "another engine, such as --engine apertium; or complete the table and import the data set again"
CHANGED_TABLE = "--force makes it again from the table as it is now (what did not change comes out the same)"
JOURNAL = "journal"
"""Folder of results in the building folder, for a translation without a cache."""


@dataclass(frozen=True)
class Wanted:
    """What is asked for."""

    lang: str
    """Target language, BCP 47."""
    engine: str = "auto"
    """A translator, or `auto`: recorded translations where the data set's tables answer what is wanted, else `hf`."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The engine's own options, as text."""
    back: bool = False
    """Translate the result back into the source language too."""
    queries: bool = False
    """Translate the human captions in `lang` of val and test into the source language too."""
    rounds: int = 1
    """How often to go into `lang`; between two times back into the source language."""
    split: str | None = None
    """Only this split; by default all of them."""
    only: Path | None = None
    """A list of the captions to translate again; the others are taken over from the translation that is there."""
    name: str | None = None
    """Name of the artifact."""
    device: str = "auto"
    """`auto`, `cpu` or `cuda`."""
    max_failed: float = 0.2
    """Share of captions that may fail."""
    force: bool = False
    """Make the artifact again."""
    retry_failed: bool = False
    """Try again what failed before, keep the rest."""
    cache: bool = True
    """Take sentences from the cache of translations and keep new ones there."""
    part: Part = field(default_factory=Part)
    """Which of the groups a dry run counts."""


class Job:
    """What is wanted, understood: data set, engine, request, steps."""

    def __init__(self, inputs: Inputs, wanted: Wanted) -> None:
        self.wanted = wanted = replace(wanted, lang=usual(wanted.lang))
        self._workspace = inputs.workspace
        self._data = training_data(inputs)
        self.source = source = dataset.read(self._data)
        lang, split = wanted.lang, wanted.split
        if not LANG.fullmatch(lang):
            raise UsageError(f"{lang!r} is no language tag (BCP 47)", hint="a tag such as --lang es, zh or pt-BR")
        if lang == source.source_lang:
            raise UsageError(
                f"{self._data.name} is written in {lang!r}: that is what is translated",
                hint="another --lang; what people wrote in that one is translated into "
                f"{lang!r} with --lang LANG --queries",
            )
        if split is not None and split not in SPLITS:
            raise UsageError(f"there is no split {split!r}", hint=f"splits: {', '.join(SPLITS)}")
        if source.source_lang not in source.languages()[:1]:
            raise ArtifactError(
                f"there is nothing to translate: {self._data.name} has no captions in its source language "
                f"{source.source_lang!r}"
            )
        self.mending = retranslate.find(inputs, source, lang, wanted.only) if wanted.only else None
        if self.mending and (wanted.back or wanted.queries or wanted.rounds > 1 or split):
            raise UsageError(
                "--only makes what the translation has that it mends: no --back, --queries, --rounds or --split",
                hint="leave them out",
            )
        engine = self._usual_engine() if wanted.engine == "auto" else wanted.engine
        self._module, self._config = plug_in(engine, wanted.options)
        request: dict[str, Any] = {"lang": lang, "engine": engine, "split": split or "all"}
        request |= {"back": wanted.back, "queries": wanted.queries}
        request |= self.mending.asked if self.mending else {}
        self.request = request | options_in_request(identified(self._module, self._config))
        if self.mending:
            self.mending.refuse_same(self.request)
            say(f"{len(self.mending.captions)} captions of {self.mending.first.name} are translated again")
        rounds = "-only" if self.mending else f"-rounds{wanted.rounds}" if wanted.rounds > 1 else ""
        self.name = wanted.name or stem(f"{lang}-{engine}{rounds}", self.request, usual_request(lang, engine))
        if wanted.rounds > 1:
            self.request["rounds"] = wanted.rounds

    def build(self, write: Callable[[Build], dict[str, int]], workspace: Workspace | None = None) -> base.Artifact:
        """Makes the artifact; arguments and errors as for `build_artifact`."""
        try:
            return build_artifact(
                workspace or self._workspace,
                "translation",
                self.name,
                self.request,
                [self._data, *([self.mending.first] if self.mending else [])],
                write=write,
                force=self.wanted.force,
                redo_failed=self.wanted.retry_failed,
            )
        except OtherRequestError as error:
            if str(error.differences.get("set.table", ("",))[0]).startswith("sha256:"):
                error.hint = CHANGED_TABLE
            raise

    def state(self) -> str:
        """How far the artifact is: done, unfinished or to do."""
        return build_state(lambda workspace: self.build(lambda site: {}, workspace), self._workspace)

    @property
    def has_device(self) -> bool:
        """Whether the engine is a model, which computes on a device, and no program or provider."""
        return hasattr(self._config, "dtype")

    def engines(self, folder: Path) -> Engines:
        """The engines, whose results are kept in the cache, or in a building folder."""
        return self._engines(self._module, self._config, folder)

    def _engines(self, module: Any, config: Any, folder: Path) -> Engines:
        place = cache_folder() / "translations" if self.wanted.cache else folder / JOURNAL
        return Engines(module, config, self.source.source_lang, self.source.artifact.path, self.wanted.device, place)

    def _usual_engine(self) -> str:
        """The engine that `auto` takes: `recorded` where the data set's tables answer all that is wanted, else `hf`."""
        engine = usual_engine(self.source, self.wanted.lang)
        if engine != "recorded" or self.wanted.options:
            return engine
        engines = replace(self._engines(*plug_in(engine, {}), Path()), silent=True)
        try:
            self.refuse_too_many(self.frame(engines, {}, {}), engines)
        except CcrError as error:
            if error.exit_code not in (1, UnavailableError.exit_code):
                raise
            say(f"the recorded translations do not answer what is asked for ({error.message}): hf is taken instead")
            return "hf"
        return engine

    def _pairs(self) -> set[tuple[str, str]]:
        return {(step.source, step.target) for steps, _ in self.chains for step in steps}

    def alternative(self, error: UnavailableError) -> UnavailableError:
        """The error with a further way out: what `auto` chose is not to be had, and Apertium is there."""
        if self.wanted.engine != "auto":
            return error
        if not self._pairs() <= set(registry.load("translators", "apertium").pairs(self.source.artifact.path) or []):
            return error
        return UnavailableError(error.message, hint="; or ".join(filter(None, ["--engine apertium", error.hint])))

    @cached_property
    def chains(self) -> list[tuple[list[Step], pd.DataFrame]]:
        """Steps that follow on one another, each chain with the captions that it begins with."""
        here, there = self.source.source_lang, self.wanted.lang
        steps = []
        for number in range(1, self.wanted.rounds):
            steps += [Step(f"round{number}", here, there), Step(f"round{number}-back", there, here)]
        steps.append(Step("forward", here, there))
        if self.mending.asked["back"] if self.mending else self.wanted.back:
            steps.append(Step("back", there, here))
        rows = self._captions(here)
        if self.mending:
            rows = rows[rows["caption_id"].isin(self.mending.captions)].reset_index(drop=True)
        chains = [(steps, rows)]
        if self.wanted.queries:
            rows = self._captions(there)
            rows = rows[rows["split"] != "train"].reset_index(drop=True)
            if rows.empty:
                say(f"no human {there} captions outside training: no queries to translate")
            else:
                chains.append(([Step("query", there, here)], rows))
        self._refuse_taken_ids(chains)
        return chains

    def _refuse_taken_ids(self, chains: list[tuple[list[Step], pd.DataFrame]]) -> None:
        """A translation is called `CAPTION@LANG`: no caption of the data set may have that name already."""
        taken = set(self.source.captions["caption_id"])
        for steps, rows in chains:
            suffix = ""
            for step in steps:
                suffix += f"@{step.target}"
                clash = next((each for each in rows["caption_id"] if each + suffix in taken), None)
                if clash is not None:
                    raise ArtifactError(
                        f"{self._data.file('captions.parquet')}: the caption id {clash + suffix!r} is the one that the "
                        f"translation of {clash!r} gets",
                        hint="rename it in captions.tsv, so that no caption_id is another one and @LANGUAGE; then "
                        "ccr data import FOLDER --force",
                    )

    def frame(self, engines: Engines, earlier: Mapping[str, Results], environment: dict[str, Any]) -> pd.DataFrame:
        """Translates everything, and lays it out as a translation artifact has it.

        Args:
            engines: Who translates.
            earlier: Results of each step that are known.
            environment: Takes up who translated each step.
        """
        frames: list[pd.DataFrame] = []
        between: list[pd.DataFrame] = []
        for steps, captions in self.chains:
            rows = captions.assign(origin=captions["caption_id"], status="ok")
            for step, results in walk(engines, steps, captions, Part(), earlier):
                facts = engines.of(step).describe()
                environment[f"engine.{step.direction}"] = facts
                rows = _frame(rows, step, results, facts)
                good = rows[rows["status"] == "ok"]
                if step.direction.startswith("round"):
                    between.append(good)
                else:
                    frames.append(rows)
                    rows = good
        return pd.concat([*frames, *between], ignore_index=True)

    def whole(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The translation as it is kept: with what is taken over, where only some captions were translated."""
        return self.mending.merge(frame, self.wanted.lang, self.source.source_lang) if self.mending else frame

    def prospect(self) -> dict[str, Any]:
        """What a dry run says: who would translate, and how many sentences of each step, how many of them cached."""
        engines = self.engines(Path())
        part = self.wanted.part
        facts: dict[str, Any] = {"shard": f"{part.number + 1}/{part.of}"} if part.of > 1 else {}
        sentences: dict[str, int] = {}
        cached: dict[str, int | None] = {}
        for steps, rows in self.chains:
            groups, unknown = part.take(begin(rows["text"])), 0
            for step in steps:
                said, here = _who(engines, step)
                facts |= {
                    f"{step.direction} {key}": said[key] for key in ("model", "licence", "warning") if said.get(key)
                }
                results = known(groups, engines.kept(step) if here else None, {})
                sentences[step.direction] = unknown + len({text for group in groups for text in group})
                cached[step.direction] = len(results) if here else None
                unknown = sentences[step.direction] - len(results)
                groups = follow(groups, results)
        if self.request["engine"] == "recorded":
            if part.of > 1:
                say(NO_WORK)
            frame = self.frame(replace(engines, silent=True), {}, {})
            self.refuse_too_many(frame, engines)
            missed = frame.loc[frame["status"] != "ok", "direction"].value_counts(sort=False)
            facts |= {f"{direction} not recorded": int(count) for direction, count in missed.items()}
        return {**facts, "sentences": sentences, "cached": cached}

    def refuse_too_many(self, frame: pd.DataFrame, engines: Engines) -> None:
        """Stops where too many captions of the frame failed.

        Raises:
            CcrError: If more than `max_failed` did.
        """
        failed = frame[frame["status"] != "ok"]
        first = "".join(
            f"{caption} ({direction}): {why.removeprefix('failed: ')}"
            for caption, direction, why in failed[["caption_id", "direction", "status"]].head(1).itertuples(index=False)
        )
        limit = self.wanted.max_failed
        try:
            refuse_too_many(len(failed), len(frame), limit, "captions", first)
        except CcrError as error:
            if told := self.coverage(engines):
                raise CcrError(f"{error.message}; {told}", hint=told.hint(self.wanted.split, limit)) from None
            if engines.module.__name__.endswith(".recorded"):
                raise CcrError(error.message, hint=OTHER_ENGINE) from None
            raise

    def coverage(self, engines: Engines) -> Coverage | None:
        """What a table of the user's own answers of the data set; None without one."""
        table = getattr(engines.config, "table", "")
        if not table:
            return None
        step = self.chains[0][0][0]
        return coverage(engines.of(step), Path(table).expanduser(), self._captions(step.source, every=True))

    def recordings(self) -> str:
        """Whose recorded translations are taken, and whose could be; empty where there is no such choice."""
        if self.request["engine"] != "recorded" or self._config.table:
            return ""
        known = self._module.engines(self.source.artifact.path, self.source.source_lang, self.wanted.lang)
        taken = self._config.engine or next(iter(known), "nobody")
        others = [name for name in known if name != taken]
        also = f"there are also {', '.join(others)}: --set engine={others[0]}" if others else ""
        return f"  recorded translations by {taken}; {also}" if also else ""

    def _captions(self, lang: str, *, every: bool = False) -> pd.DataFrame:
        split = None if every else self.wanted.split
        items = self.source.items if split is None else items_of(self.source.items, split)
        captions = self.source.captions[self.source.captions["lang"] == lang]
        rows = captions.merge(items[["item_id", "split"]], on="item_id")
        return rows.assign(text=rows["text"].map(normal))

    def earlier(self, folder: Path) -> dict[str, Results]:
        """Results of each step in a building folder that was made of a complete artifact, to try again what failed."""
        path = folder / "captions.parquet"
        if not path.is_file():
            return {}
        frame = read_table(path, translation.CAPTIONS)
        if self.mending:
            frame = frame[frame["caption_id"].isin(self.mending.ids(self.wanted.lang, self.source.source_lang))]
        good = frame[frame["status"] == "ok"]
        text_of = dict(zip(self.source.captions["caption_id"], self.source.captions["text"], strict=True))
        text_of |= dict(zip(good["caption_id"], good["text"], strict=True))
        earlier: dict[str, Results] = {}
        for direction, caption_id, text, score in zip(
            good["direction"], good["caption_id"], good["text"], good["score"], strict=True
        ):
            begun_with = normal(text_of[caption_id.rpartition("@")[0]])
            known_score = None if pd.isna(score) else float(score)
            earlier.setdefault(direction, {})[begun_with] = Translation(text, known_score)
        return earlier


def walk(
    engines: Engines, steps: list[Step], captions: pd.DataFrame, part: Part, earlier: Mapping[str, Results]
) -> Iterator[tuple[Step, Results]]:
    """Takes one step after the other, each with what came of the one before."""
    groups = part.take(begin(captions["text"]))
    for step in steps:
        results = run(engines, step, groups, earlier.get(step.direction, {}))
        yield step, results
        groups = follow(groups, results)


def _who(engines: Engines, step: Step) -> tuple[dict[str, str], bool]:
    """Who would translate, and whether its cache can be looked into: not without the model, as that decides the key."""
    if planned := getattr(engines.module, "planned", None):
        said: dict[str, str] = planned(step.source, step.target, engines.config_of(step))
        if said.get("here") != "yes":
            return said, False
    return engines.of(step).describe(), True


def _frame(rows: pd.DataFrame, step: Step, results: Results, facts: Mapping[str, str]) -> pd.DataFrame:
    """Lays out what came of a step; what failed before it has failed for it too."""
    found = [results[text] if ok else None for text, ok in zip(rows["text"], rows["status"] == "ok", strict=True)]
    where = f"{step.direction}: " if step.direction.startswith("round") else ""
    status = [
        before if result is None else "ok" if result.text else f"failed: {where}{result.error}"
        for before, result in zip(rows["status"], found, strict=True)
    ]
    frame: pd.DataFrame = rows[["item_id", "split", "k", "origin"]].assign(
        caption_id=rows["caption_id"] + f"@{step.target}",
        lang=step.target,
        direction=step.direction,
        text=pd.Series([result.text if result else None for result in found], index=rows.index, dtype=object),
        source_caption_id=rows["origin" if step.direction == "forward" else "caption_id"],
        engine=facts["engine"],
        model=facts["model"],
        score=pd.Series([result.score if result else None for result in found], index=rows.index, dtype=float),
        status=status,
    )
    return frame
