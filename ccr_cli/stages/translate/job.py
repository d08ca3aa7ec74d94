"""One translation to make: its options, data set, engine, request, and the steps that lead to it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
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
from ccr_cli.console import counted, say
from ccr_cli.data.formats.columns import LANG
from ccr_cli.data.languages import usual
from ccr_cli.data.splits import SPLITS, items_of, refuse_unknown
from ccr_cli.errors import ArtifactError, CcrError, UnavailableError, UsageError
from ccr_cli.stages.shared.failures import refuse_too_many
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.options import configure, identified
from ccr_cli.stages.shared.sharding import WorkPart
from ccr_cli.stages.translate import retranslate
from ccr_cli.stages.translate.options import TranslateOptions
from ccr_cli.stages.translate.steps import Engines, Results, Step, begin, follow, known, normal, run
from ccr_cli.translators.base import Translation

NO_WORK = "recorded only looks translations up: there is no work to share, leave --shard out"
JOURNAL = "journal"
"""Folder of results in the building folder, for a translation without a cache."""


def training_data(inputs: Inputs, only: Path | None = None) -> base.Artifact:
    """Returns the data set given, else the one that the given artifacts were made from, else the workspace's only one.

    If the workspace has several, it is the one that `only`, a list of captions, is about.
    """
    listed = retranslate.data_sets(inputs, only) if only and not inputs.named else None

    def fits(artifact: base.Artifact) -> bool:
        if listed is not None:
            return artifact.id in listed
        return dataset.has_training_items(artifact) or artifact in inputs.named

    if not inputs.named or inputs.of_kind("dataset"):
        return inputs.one("dataset", "with training items", fits, hint="ccr data import noto-emoji")
    sources: dict[str, base.Artifact] = {}
    for artifact in inputs.named:
        if all(link.kind != "dataset" for link in artifact.parents):
            raise ArtifactError(f"{artifact.path} is a {artifact.kind}, made from no data set", hint="give a dataset")
        data = inputs.workspace.parent(artifact, "dataset")
        sources[data.id] = data
    if len(sources) > 1:
        paths = "\n  ".join(inputs.workspace.relative(data.path) for data in sources.values())
        raise ArtifactError(f"the artifacts were made from several data sets:\n  {paths}", hint="name one of them")
    inputs.note(data)
    return data


def usual_engine(data: dataset.Dataset, lang: str) -> str:
    """The engine that `auto` chooses for a data set's captions."""
    recorded = registry.load("translators", "recorded").pairs(data.artifact.path)
    return "recorded" if (data.source_lang, lang) in recorded else "hf"


def usual_request(lang: str, engine: str) -> dict[str, Any]:
    """The request with all options at their defaults."""
    request = {"lang": lang, "engine": engine, "split": "all", "back": False, "queries": False}
    return {**request, **_in_request(asdict(registry.load("translators", engine).Config()))}


def _in_request(options: Mapping[str, Any]) -> dict[str, Any]:
    """Prefixes an engine's own options for a request, because `recorded` has an option `engine`."""
    return {f"set.{key}": value for key, value in options.items()}


def _configured(engine: str, options: Mapping[str, str]) -> tuple[Any, Any]:
    """An engine's module and its options; UsageError if the engine, an option or its value is unknown."""
    module = registry.load("translators", engine)
    defaults = asdict(module.Config())
    if unknown := [key for key in options if key not in defaults]:
        configs = {name: asdict(other.Config()) for name, other in registry.loaded("translators")[0].items()}
        if engines := [f"--engine {name}" for name, known in configs.items() if known.keys() >= {*unknown}]:
            hint = f"{' or '.join(engines)}; {engine} has other options: {', '.join(sorted(defaults)) or 'none'}"
            raise UsageError(f"engine {engine} has no option {unknown[0]!r}", hint=hint)
    return module, configure(module.Config, options, f"engine {engine}")


class TranslationJob:
    """A translation to make, of one data set with training captions: data set, engine, request and steps.

    Raises:
        ArtifactError: If the data set, or the translation to take captions from, is missing or ambiguous.
        UsageError: If the options contradict each other or the data set.
    """

    def __init__(self, inputs: Inputs, options: TranslateOptions) -> None:
        self.options = options = replace(options, lang=usual(options.lang))
        self._workspace = inputs.workspace
        self._data = training_data(inputs, options.only)
        self.source = source = dataset.read(self._data)
        lang, split = options.lang, options.split
        if not LANG.fullmatch(lang):
            raise UsageError(f"{lang!r} is no language tag (BCP 47)", hint="a tag such as --lang es, zh or pt-BR")
        if lang == source.source_lang:
            hint = f"another --lang; --lang LANG --with-queries translates human captions in LANG into {lang!r}"
            raise UsageError(f"{lang!r} is the source language of {self._data.name}", hint=hint)
        if split is not None:
            refuse_unknown(split)
        if source.source_lang not in source.languages()[:1]:
            raise ArtifactError(f"{self._data.name} has no captions in its source language {source.source_lang!r}")
        if split is not None and not options.queries and self._captions(source.source_lang).empty:
            others = set(self._captions(source.source_lang, all_splits=True)["split"])
            message = f"{self._data.name} has no {source.source_lang} captions in {split}"
            raise ArtifactError(message, hint=" or ".join(f"--split {name}" for name in SPLITS if name in others))
        self.again = retranslate.find(inputs, source, lang, options.only, options.engine) if options.only else None
        if self.again and (options.back or options.queries or options.rounds > 1 or split):
            message = "--only makes the same directions and splits as the translation that it starts from"
            raise UsageError(message, hint="leave out --back, --with-queries, --rounds and --split")
        self.engine = usual_engine(source, lang) if options.engine == "auto" else options.engine
        self._module: Any = None
        self._config: Any = None
        self._by_hand = self.again is not None and bool(self.again.corrections) and options.engine == "auto"
        if self._by_hand and options.settings:
            raise UsageError(
                f"--set {next(iter(options.settings))} belongs to an engine", hint="name it: --engine NAME"
            )
        if self._by_hand:
            self.engine = translation.BY_HAND
        else:
            self._module, self._config = _configured(self.engine, options.settings)
        if options.engine == "auto" and self.engine == "recorded" and not options.settings and not self._is_recorded():
            self.engine = "hf"
            self._module, self._config = _configured(self.engine, {})
        engine = self.engine
        request: dict[str, Any] = {"lang": lang, "engine": engine, "split": split or "all"}
        request |= {"back": options.back, "queries": options.queries}
        request |= self.again.request if self.again else {}
        request |= registry.installed_source("translators", engine)
        self.usage: dict[str, dict[str, Any]] = {}
        """Tokens by direction, if the engine counts them."""
        self.request = request if self._by_hand else request | _in_request(identified(self._module, self._config))
        if self.again:
            self.again.refuse_same(self.request)
            if self.again.sent:
                say(f"to translate again: {counted(len(self.again.sent), 'caption')} of {self.again.original.name}")
        rounds = (
            "" if self._by_hand else "-only" if self.again else f"-rounds{options.rounds}" if options.rounds > 1 else ""
        )
        defaults = {} if self._by_hand else usual_request(lang, engine)
        self.name = options.name or stem(f"{lang}-{engine}{rounds}", self.request, defaults)
        if options.rounds > 1:
            self.request["rounds"] = options.rounds

    def build(self, write: Callable[[Build], dict[str, int]], workspace: Workspace | None = None) -> base.Artifact:
        """Makes the artifact; arguments and errors as for `build_artifact`."""
        parents = [self._data, *([self.again.original] if self.again else [])]
        marks = {"force": self.options.force, "redo_failed": self.options.retry_failed}
        space = workspace or self._workspace
        try:
            return build_artifact(space, "translation", self.name, self.request, parents, write=write, **marks)
        except OtherRequestError as error:
            if error.differences.get("set.table", ("", ""))[0]:
                error.hint = "--force makes it again from the table as it is; unchanged lines give unchanged captions"
            raise

    def state(self) -> str:
        """Returns the state of the artifact: done, unfinished or to do."""
        return build_state(lambda rehearsal: self.build(lambda site: {}, rehearsal), self._workspace)

    @property
    def has_device(self) -> bool:
        """Whether the engine is a model on a device, not a program or a provider."""
        return hasattr(self._config, "dtype")

    def engines(self, folder: Path, *, silent: bool = False) -> Engines:
        """The engines; their results go to the cache, or to the building folder."""
        cache = folder / JOURNAL if self.options.no_cache else cache_folder() / "translations"
        data, device = self.source.artifact.path, self.options.device
        source = registry.installed_source("translators", self.engine)
        return Engines(self._module, self._config, self.source.source_lang, data, device, cache, silent, source)

    def _is_recorded(self) -> bool:
        """Whether the data set's tables hold enough captions."""
        engines = self.engines(Path(), silent=True)
        try:
            self.refuse_too_many(self.frame(engines, {}, {}), engines)
        except CcrError as error:
            if error.exit_code not in (1, UnavailableError.exit_code):
                raise
            say(f"the recorded translations are incomplete ({error.message}): hf translates instead")
            return False
        return True

    def with_apertium(self, error: UnavailableError) -> UnavailableError:
        """Adds Apertium to the hint of an error if it could replace the engine that `auto` chose."""
        if self.options.engine != "auto":
            return error
        reaches = registry.load("translators", "apertium").reaches
        if not all(reaches(step.source, step.target) for steps, _ in self.chains for step in steps):
            return error
        others = (error.hint or "").replace("or --engine apertium, ", "")
        return UnavailableError(error.message, hint="; or ".join(filter(None, ["--engine apertium", others])))

    @cached_property
    def chains(self) -> list[tuple[list[Step], pd.DataFrame]]:
        """Chains of steps, each on the results of the one before, and the captions that each chain starts with."""
        home, lang = self.source.source_lang, self.options.lang
        steps = []
        for number in range(1, self.options.rounds):
            steps += [Step(f"round{number}", home, lang), Step(f"round{number}-back", lang, home)]
        steps.append(Step("forward", home, lang))
        back = self.again.request["back"] if self.again else self.options.back
        if back:
            steps.append(Step("back", lang, home))
        rows = self._captions(home)
        if self.again:
            rows = rows[rows["caption_id"].isin(self.again.sent)].reset_index(drop=True)
        chains = [(steps, rows)] if self.again is None or self.again.sent else []
        if back and self.corrected is not None and not self._by_hand:
            chains.append((steps[-1:], self.corrected))
        if self.options.queries:
            rows = self._captions(lang)
            rows = rows[rows["split"] != "train"].reset_index(drop=True)
            if rows.empty:
                say(f"no human {lang} captions outside training: no queries to translate")
            else:
                chains.append(([Step("query", lang, home)], rows))
        self._refuse_taken_ids(chains)
        return chains

    @cached_property
    def corrected(self) -> pd.DataFrame | None:
        """The translations that a person typed; None without any."""
        if self.again is None or not self.again.corrections:
            return None
        return self.again.corrected(self._captions(self.source.source_lang), self.options.lang)

    def _refuse_taken_ids(self, chains: list[tuple[list[Step], pd.DataFrame]]) -> None:
        """Raises ArtifactError if a caption of the data set has the id of a translation, `CAPTION@LANG`."""
        taken = set(self.source.captions["caption_id"])
        for steps, rows in chains:
            suffix = ""
            for step in steps:
                suffix += f"@{step.target}"
                clash = next((caption for caption in rows["caption_id"] if caption + suffix in taken), None)
                if clash is not None:
                    message = f"the caption id {clash + suffix!r} is also the id of the translation of {clash!r}"
                    hint = "rename it in captions.tsv: no id may be another and @LANGUAGE; ccr data import --force"
                    raise ArtifactError(f"{self._data.file('captions.parquet')}: {message}", hint=hint)

    def frame(self, engines: Engines, earlier: Mapping[str, Results], environment: dict[str, Any]) -> pd.DataFrame:
        """Translates the captions, reusing each step's `earlier` results, and adds each step's engine to `environment`.

        Returns:
            A row per caption and direction; `status` is `ok` or the reason for the failure.
        """
        frames: list[pd.DataFrame] = [] if self.corrected is None else [self.corrected]
        rounds: list[pd.DataFrame] = []
        for steps, captions in self.chains:
            rows = captions.assign(origin=captions["caption_id"], status="ok")
            for step, results in walk(engines, steps, captions, WorkPart(), earlier):
                engine, own = engines.of(step), engines.by_caption(step)
                environment[f"engine.{step.direction}"] = facts = engine.describe()
                count = getattr(engine, "usage", None)
                if usage := count and count(results.values()):
                    self.usage[step.direction] = usage
                rows = _rows(rows, step, results, own, facts)
                translated = rows[rows["status"] == "ok"]
                if step.direction.startswith("round"):
                    rounds.append(translated)
                else:
                    frames.append(rows)
                    rows = translated
        return pd.concat([*frames, *rounds], ignore_index=True)

    def plan(self, part: WorkPart) -> dict[str, Any]:
        """The facts of a dry run: model and licence of each step, number of sentences, and how many are cached."""
        engines = self.engines(Path())
        facts: dict[str, Any] = {"shard": f"{part.number + 1}/{part.of}"} if part.of > 1 else {}
        sentences: dict[str, int] = {}
        cached: dict[str, int | None] = {}
        for steps, rows in self.chains:
            groups, unknown = part.take(begin(rows["text"])), 0
            for step in steps:
                planned = getattr(self._module, "planned", None)
                model = planned(step.source, step.target, engines.config_of(step)) if planned else {}
                if is_here := model.get("here", "yes") == "yes":  # else the key of its cache is unknown
                    model = engines.of(step).describe()
                shown = ("model", "licence", "warning")
                facts |= {f"{step.direction} {key}": model[key] for key in shown if model.get(key)}
                results = known(groups, engines.kept(step) if is_here else None, {})
                sentences[step.direction] = unknown + len({text for group in groups for text in group})
                cached[step.direction] = len(results) if is_here else None
                unknown = sentences[step.direction] - len(results)
                groups = follow(groups, results)
        if self.engine == "recorded":
            if part.of > 1:
                say(NO_WORK)
            frame = self.frame(self.engines(Path(), silent=True), {}, {})
            self.refuse_too_many(frame, engines)
            missing = frame.loc[frame["status"] != "ok", "direction"].value_counts(sort=False)
            facts |= {f"{direction} not recorded": int(count) for direction, count in missing.items()}
        return {**facts, "sentences": sentences, "cached": cached}

    def refuse_too_many(self, frame: pd.DataFrame, engines: Engines) -> None:
        """Raises CcrError if more than the fraction `max_failed` of the captions failed."""
        failed = frame.loc[frame["status"] != "ok", ["caption_id", "direction", "status"]]
        first = "".join(f"{row.caption_id} ({row.direction}): {row.status}" for row in failed.head(1).itertuples())
        try:
            refuse_too_many(len(failed), len(frame), self.options.max_failed, "captions", first)
        except CcrError as error:
            if coverage := self.coverage(engines):
                raise CcrError(f"{error.message}; {coverage[0]}", hint=coverage[1]) from None
            if self.engine == "recorded":
                hint = "another engine, such as --engine apertium; or complete the table and import the data set again"
                raise CcrError(error.message, hint=hint) from None
            raise

    def coverage(self, engines: Engines) -> tuple[str, str] | None:
        """How much of the data set the user's own table holds, and what to do if that is too little; None without one.

        Only one of several lines for the same text counts as used.
        """
        if not getattr(engines.config, "table", ""):
            return None
        table, step, split = Path(engines.config.table).expanduser(), self.chains[0][0][0], self.options.split
        captions = self._captions(step.source, all_splits=True)
        texts = list(dict.fromkeys(captions["text"]))
        held = {texts[position] for position, result in engines.of(step).translate(texts) if result.text}
        own = {key for key, result in engines.by_caption(step).items() if result.text}
        keys = pd.Series(list(zip(captions["caption_id"], captions["text"].str.strip(), strict=True)), captions.index)
        rows_of = dict(list((captions["text"].isin(held) | keys.isin(own)).groupby(captions["split"])))
        by_split = {name: (int(rows_of[name].sum()), len(rows_of[name])) for name in SPLITS if name in rows_of}
        lines = getattr(engines.of(step), "lines", 0)
        used = len({text.strip() for text in held}) + len(own & {*keys})
        splits = ", ".join(f"{n} of {of} captions of {name}" for name, (n, of) in by_split.items())
        enough = 1 - self.options.max_failed
        held_splits = [name for name, (n, of) in by_split.items() if n >= enough * of and name != split]
        hint = "complete the table and give the same command again, or raise --max-failed"
        if not used:
            hint = (
                "is the table for another data set? its sources must be the captions as `ccr data describe` prints them"
            )
        elif held_splits and split is None:
            hint = "; or ".join(f"--split {name}" for name in held_splits)
        elif held_splits:
            hint = f"the table is for another split: --split {held_splits[0]}"
        return f"{used} of the {lines} lines of {table.name} are used: it holds {splits}", hint

    def recordings(self) -> str:
        """Says whose recorded translations are used and which others exist; "" if there is no choice."""
        if self.engine != "recorded" or self._config.table:
            return ""
        engines = self._module.engines(self.source.artifact.path, self.source.source_lang, self.options.lang)
        used = self._config.engine or next(iter(engines), "nobody")
        others = [name for name in engines if name != used]
        hint = f"; there are also {', '.join(others)}: --set engine={others[0]}" if others else ""
        return hint and f"  recorded translations by {used}{hint}"

    def _captions(self, lang: str, *, all_splits: bool = False) -> pd.DataFrame:
        split = None if all_splits else self.options.split
        items = self.source.items if split is None else items_of(self.source.items, split)
        rows = self.source.captions_in(lang).merge(items[["item_id", "split"]], on="item_id")
        return rows.assign(text=rows["text"].map(normal))

    def earlier(self, folder: Path) -> dict[str, Results]:
        """Reads each step's results from a building folder that starts from a complete artifact (`--retry-failed`)."""
        path = folder / "captions.parquet"
        if not path.is_file() or self.engine == "recorded":
            return {}
        frame = read_table(path, translation.CAPTIONS)
        if self.again:
            frame = frame[frame["caption_id"].isin(self.again.ids(self.options.lang, self.source.source_lang))]
        good = frame[frame["status"] == "ok"]
        known_texts = pd.concat([self.source.captions, good])
        text_of = dict(zip(known_texts["caption_id"], known_texts["text"], strict=True))
        good = good[good["engine"] != translation.BY_HAND]
        earlier: dict[str, Results] = {}
        columns = [good[name] for name in ("direction", "caption_id", "text", "score")]
        for direction, caption_id, text, score in zip(*columns, strict=True):
            result = Translation(text, None if pd.isna(score) else float(score))
            earlier.setdefault(direction, {})[normal(text_of[caption_id.rpartition("@")[0]])] = result
        return earlier


def walk(
    engines: Engines, steps: list[Step], captions: pd.DataFrame, part: WorkPart, earlier: Mapping[str, Results]
) -> Iterator[tuple[Step, Results]]:
    """Runs the steps in turn, each on the results of the one before; yields each step with its results."""
    groups = part.take(begin(captions["text"]))
    for step in steps:
        results = run(engines, step, groups, earlier.get(step.direction, {}))
        yield step, results
        own = begin(made.text for made in engines.by_caption(step).values() if made.text)
        groups = follow(groups, results) + own


def _rows(
    rows: pd.DataFrame,
    step: Step,
    results: Results,
    own: Mapping[tuple[str, str], Translation],
    facts: Mapping[str, str],
) -> pd.DataFrame:
    """The artifact's rows of a step; captions that failed in an earlier step have failed in this one too.

    Args:
        rows: The captions, or the rows of the step before.
        step: The step.
        results: The result of each text.
        own: Results by caption id and text, which take precedence over `results`.
        facts: The engine's description.
    """
    outcomes = [
        own.get((caption, text.strip())) or results[text] if ok else None
        for caption, text, ok in zip(rows["caption_id"], rows["text"], rows["status"] == "ok", strict=True)
    ]
    prefix = f"{step.direction}: " if step.direction.startswith("round") else ""
    status = [
        earlier if outcome is None else "ok" if outcome.text else f"{prefix}{outcome.error}"
        for earlier, outcome in zip(rows["status"], outcomes, strict=True)
    ]
    frame: pd.DataFrame = rows[["item_id", "split", "k", "origin"]].assign(
        caption_id=rows["caption_id"] + f"@{step.target}",
        lang=step.target,
        direction=step.direction,
        text=pd.Series([outcome.text if outcome else None for outcome in outcomes], index=rows.index, dtype=object),
        source_caption_id=rows["origin" if step.direction == "forward" else "caption_id"],
        engine=facts["engine"],
        model=facts["model"],
        score=pd.Series([outcome.score if outcome else None for outcome in outcomes], index=rows.index, dtype=float),
        status=status,
    )
    return frame
