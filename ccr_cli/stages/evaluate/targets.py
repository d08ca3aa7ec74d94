"""What a run is evaluated on: its own data set, or others, each with its protocol, languages and leaks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from ccr_cli.artifacts import base, features, run, translation
from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.artifacts.dataset import read as read_dataset
from ccr_cli.artifacts.signature import COMMON_PROTOCOLS, FILE, HUMAN, LABELLED, MT, data_value
from ccr_cli.console import warn
from ccr_cli.data.protocols import Protocol, fold_of, read_protocols
from ccr_cli.data.splits import refuse_empty
from ccr_cli.errors import ArtifactError, CcrError, UsageError
from ccr_cli.stages.evaluate.options import BOTH, EvaluationOptions
from ccr_cli.stages.evaluate.queries import captions_of, machine_captions, read_queries
from ccr_cli.stages.shared.ensemble import Ensemble
from ccr_cli.stages.shared.inputs import Inputs, like, made_from, refuse_unread
from ccr_cli.stages.shared.leaks import other_leak, own_leak
from ccr_cli.stages.shared.splits import Split

CHRF, FLAGGED = "reference_chrf", "flagged"
"""Columns of `Target.translations`: chrF against human captions, and whether the translation is flagged."""


@dataclass(frozen=True)
class Target:
    """A split to evaluate on, with features and perhaps translated queries."""

    split: Split
    """The items that the protocol uses."""
    features: tuple[base.Artifact, ...]
    """The features that each of the runs reads."""
    translations: pd.DataFrame | None
    """The captions of the translations that the runs were trained on, with `CHRF` and `FLAGGED`."""
    queries: tuple[tuple[str, str], ...]
    """Language and kind (human, mt or file) of the queries of each result."""
    leak: str
    protocol: Protocol
    fold_of: dict[str, int]
    """Fold of each item of the split."""
    zero_shot: bool = False
    """Whether the run was trained on another collection."""
    trained_on: str = ""
    """The data set that the run was trained on, for the signature, if it is another one."""
    table: pd.DataFrame | None = None
    """The captions of the user's table of queries."""
    translated_by: tuple[base.Artifact, ...] = ()
    """The translations whose queries `--translate-test` searches with, except the run's own."""

    @property
    def langs(self) -> tuple[str, ...]:
        """The languages of the queries."""
        return tuple(dict.fromkeys(lang for lang, _ in self.queries))

    def captions(self, split: Split, lang: str, kind: str) -> tuple[pd.DataFrame, Protocol]:
        """The captions that search a part of the split (caption_id, item_id, text, caption_set, k), and their protocol.

        If the protocol's caption set has none in the source language, captions of all sets in that language are used,
        but only if there are other query languages.
        """
        protocol = self.protocol
        if kind == FILE and self.table is not None:
            return self.table[self.table["lang"] == lang], protocol
        captions = split.captions_in(lang)
        if kind == MT:
            captions = machine_captions(split, self.translations, lang)
        used = protocol.take(captions)
        if used.empty and lang == split.data.source_lang and len(self.langs) > 1:
            protocol = replace(protocol, caption_set=None)
            used = protocol.take(captions)
        return used, protocol

    @property
    def fused(self) -> bool:
        """Whether any query is fused with its translation."""
        ids = self.translated_queries.index[self.translated_queries["text"].fillna("") != ""]
        others = [query for query in self.queries if query[0] != self.data.source_lang]
        return any(self.captions(self.split, *query)[0]["caption_id"].isin(ids).any() for query in others)

    @property
    def data(self) -> Dataset:
        """The data set of the split."""
        return self.split.data

    @cached_property
    def translated_queries(self) -> pd.DataFrame:
        """The translations into the source language, by the id of the query."""
        frames = [self.translations] if self.translations is not None else []
        frames = [*map(_with_quality, self.translated_by), *frames]
        if not frames:
            return pd.DataFrame(columns=["text", "status", "engine", "model", CHRF, FLAGGED])
        made = translation.translated(pd.concat(frames), "query")
        return made.drop_duplicates("source_caption_id").set_index("source_caption_id")


def own_target(inputs: Inputs, ensemble: Ensemble, options: EvaluationOptions) -> Target:
    """The target on the data set that a run was trained on."""
    own, settings = ensemble.data, ensemble.settings
    translated = [first for first, *_ in ensemble.first.translated.values()]
    if not options.translate_test:
        refuse_unread(inputs, ensemble.first.artifact, hint=options.elsewhere)
    inputs.note(ensemble.first.features, *translated)
    translations = pd.concat(map(_with_quality, translated)) if translated else None
    protocol = protocol_of(own, options)
    split = _split(own, protocol)
    table, trained = None, run.langs(settings)
    if options.file:
        table = read_queries(options.file, split, options.langs, trained)
        queries = tuple((lang, FILE) for lang in dict.fromkeys(table["lang"]))
        _refuse_languages(protocol, [lang for lang, _ in queries])
    else:
        if options.translate_test and not options.langs and {*trained} == {own.source_lang}:
            options = replace(options, langs=_with_queries(inputs, own))
        queries = _own_queries(split, options, settings, protocol, translations)
    folds = fold_of(split.items, protocol, own.name)
    split = split.where(split.items["item_id"].isin(folds))
    leak = own_leak(split, settings["select"])
    _warn_partial(own)
    queries = queries if options.file else _with_source(split, queries, protocol)
    translated_by = _translated_by(inputs, own, queries, translated) if options.translate_test else ()
    if options.translate_test:
        refuse_unread(inputs, ensemble.first.artifact, *translated_by, hint=options.elsewhere)
    read = ensemble.features_of(inputs, split.data)
    return Target(split, read, translations, queries, leak, protocol, folds, table=table, translated_by=translated_by)


def other_targets(inputs: Inputs, ensemble: Ensemble, options: EvaluationOptions) -> list[Target]:
    """Targets on all other collections with the protocol, captions in the languages, and features of the run's encoder.

    A data set that does not fit, or leaks, is an error if it is on the command line or no other is left; otherwise it
    is left out with a warning. Variants of the collection that the run was trained on are evaluated only if they are on
    the command line, and are not called zero-shot.
    """
    own, trained, feats = ensemble.data, ensemble.first.artifact, ensemble.first.features
    inputs.note(feats)
    named = [a for a in inputs.of_kind("dataset") if a.id != own.artifact.id]
    others = named or [a for a in inputs.workspace.artifacts("dataset") if a.id != own.artifact.id]
    targets: list[Target] = []
    refused: list[CcrError] = []
    for artifact in others:
        data = read_dataset(artifact)
        try:
            if not named and same_collection(own, data):
                problem = f"{data.name} is of the collection that the run was trained on, {own.manifest['collection']}"
                raise ArtifactError(problem, hint="name it on the command line to evaluate on it")
            target = _other(own, data, like(inputs, feats, data), ensemble.settings, options)
            if options.translate_test:
                target = replace(target, translated_by=_translated_by(inputs, data, target.queries))
            targets.append(target)
        except (ArtifactError, UsageError) as error:
            if named:
                raise
            refused.append(error)
        else:
            inputs.note(artifact)
    if not targets:
        raise _nothing(inputs, feats, refused)
    used = [(target.data.artifact, target.features[0], *target.translated_by) for target in targets]
    refuse_unread(inputs, trained, *(artifact for each in used for artifact in each))
    for reason in refused:
        warn(f"left out: {with_hint(reason)}")
    return [replace(t, features=ensemble.features_of(inputs, t.data, t.features[0])) for t in targets]


def _with_queries(inputs: Inputs, data: Dataset) -> tuple[str, ...]:
    """The languages with translated queries, in which a run that was trained on the source language is tested.

    Raises:
        ArtifactError: If there is none.
    """
    named = inputs.of_kind("translation")
    known = [a for a in named or inputs.workspace.artifacts("translation") if made_from(data.artifact)(a)]
    langs = tuple(sorted({translation.language(a) for a in known if a.request.get("queries")}))
    if not langs:
        command = f"ccr translate {inputs.workspace.relative(data.artifact.path)} --with-queries --lang LANG"
        problem = f"no queries of {data.name} are translated into {data.source_lang}"
        raise ArtifactError(problem, hint=command)
    return langs


def _translated_by(
    inputs: Inputs, data: Dataset, queries: Sequence[tuple[str, str]], own: Sequence[base.Artifact] = ()
) -> tuple[base.Artifact, ...]:
    """The translations that hold translated human queries of a data set, except the run's `own`.

    For each language it is the named one, the run's own, or the one in the workspace. A language without any gets no
    translate-test, with a warning; ArtifactError if no language has one, or several fit.
    """
    langs = [lang for lang, kind in queries if kind == HUMAN and lang != data.source_lang]
    found, lacking = [], []
    for lang in langs:

        def fits(artifact: base.Artifact, lang: str = lang) -> bool:
            ours = translation.language(artifact) == lang and bool(artifact.request.get("queries"))
            return ours and made_from(data.artifact)(artifact)

        named = list(filter(fits, inputs.of_kind("translation")))
        if not named and any(map(fits, own)):
            continue
        described = f"of {data.name} with {lang} queries in {data.source_lang}"
        match = Inputs(inputs.workspace, named).maybe("translation", described, fits)
        if match is None:
            lacking.append(lang)
        elif all(match.id != artifact.id for artifact in own):
            found.append(match)
            inputs.note(match)
    command = f"ccr translate {inputs.workspace.relative(data.artifact.path)} --with-queries "
    command += " ".join(f"--lang {lang}" for lang in lacking)
    if len(lacking) == len(langs):
        none = f"{data.name} has no human queries in another language than {data.source_lang}"
        problem = f"the {' and '.join(lacking)} queries of {data.name} are not translated into {data.source_lang}"
        raise ArtifactError(problem if langs else none, hint=command if langs else "leave --translate-test out")
    if lacking:
        todo = f"queries are not translated\n  try: {command}"
        warn(f"no translate-test in {', '.join(lacking)} on {data.name}: {todo}")
    return tuple(found)


def _with_quality(artifact: base.Artifact) -> pd.DataFrame:
    """The captions of a translation, with `CHRF` and `FLAGGED`."""
    quality = translation.read_quality(artifact)
    quality[FLAGGED] = quality[list(translation.FLAGS)].any(axis=1)
    return translation.read(artifact).merge(quality[["caption_id", CHRF, FLAGGED]], on="caption_id", how="left")


def _own_queries(
    split: Split,
    options: EvaluationOptions,
    settings: Mapping[str, Any],
    protocol: Protocol,
    translations: pd.DataFrame | None,
) -> tuple[tuple[str, str], ...]:
    """Language and kind of the queries: in the chosen languages, else in those of the run that can be evaluated.

    If none of them has human captions in the split, the queries are machine-translated unless `--queries` says human.
    Translations that people wrote count as neither; `settings` is the run's config.json, which names their languages.
    """
    langs, source = options.langs or run.langs(settings), split.data.source_lang
    written, people = set(split.captions["lang"]), settings.get("human", [])
    every = {lang: machine_captions(split, translations, lang) for lang in langs if lang not in people}
    human = {lang: captions_of(split, lang, protocol) for lang in langs}
    made = {lang: protocol.take(captions) for lang, captions in every.items()}
    if options.queries in (MT, BOTH) and not made.keys() - {source}:
        problem = f"the run has no machine translations into {' or '.join(langs)}, so there are no such queries"
        raise ArtifactError(problem, hint="--queries human, or a table of queries")
    kinds = [HUMAN, MT] if options.queries == BOTH else [options.queries or HUMAN]
    if not options.queries and not written & {*langs} and not all(captions.empty for captions in made.values()):
        kinds = [MT]
    candidates = [(lang, kind) for lang in langs for kind in ([HUMAN] if lang == source else kinds)]
    refused: dict[tuple[str, str], CcrError] = {}
    for lang, kind in candidates:
        try:
            _refuse_languages(protocol, (lang,))
            machine = lang in made and not made[lang].empty
            if kind == MT and not machine:
                problem = f"the run's translations have no {lang} captions for the {split.name} items"
                hint = f"--lang {' or '.join(run.langs(settings))}, another --split, or a table of queries"
                raise ArtifactError(f"{split.data.name}: {problem}", hint=hint)
            if kind == HUMAN and human[lang].empty:
                raise _without_captions(split, lang, protocol, machine)
        except (ArtifactError, UsageError) as error:
            if options.langs or options.queries == BOTH or len(refused) == len(candidates) - 1:
                raise
            refused[lang, kind] = error
    for (lang, _), reason in refused.items():
        warn(f"{lang} is not evaluated: {with_hint(reason)}")
    return tuple(query for query in candidates if query not in refused)


def _without_captions(split: Split, lang: str, protocol: Protocol, machine: bool) -> ArtifactError:
    """The error for a language without human captions in a split; its hint names splits and queries that would work."""
    data, by_machine = split.data, "--queries mt measures with the machine-translated ones" if machine else None
    own = "--queries FILE with your own (columns text and item)"
    if lang not in data.languages():
        available = f"it has: {', '.join(data.languages())}"
        return ArtifactError(f"{data.name} has no human captions in {lang!r}", hint=f"{by_machine or available}; {own}")
    of = f" of the set {protocol.caption_set!r}" if protocol.caption_set else ""
    partial = f": the data set is partial, see ccr data describe {data.name}" if data.manifest.get("partial") else ""
    hint = _other_splits(data, protocol, lambda other: not captions_of(other, lang, protocol).empty)
    problem = f"{data.name} has no human {lang} captions{of} for its {protocol.split} items{partial}"
    usual = hint or _available_sets(split, [lang], protocol)
    return ArtifactError(problem, hint="; ".join(filter(None, [usual, by_machine, own])))


def _available_sets(split: Split, langs: Sequence[str], protocol: Protocol) -> str | None:
    """The hint with the caption sets that exist, if `--caption-set` names another."""
    sets = split.captions["caption_set"][split.captions["lang"].isin(langs)]
    chosen = protocol.caption_set is not None and protocol.name in COMMON_PROTOCOLS
    return f"--caption-set {' or '.join(sorted(set(sets)))}" if chosen and len(sets) else None


def _split(data: Dataset, protocol: Protocol) -> Split:
    """The split of a protocol; ArtifactError if it has no items, naming the splits that have some."""
    split = Split.of(data, protocol.split)
    if split.items.empty:
        refuse_empty(split.items, protocol.split, data.name, _other_splits(data, protocol, lambda s: len(s.items) > 0))
    return split


def _other_splits(data: Dataset, protocol: Protocol, fits: Callable[[Split], bool]) -> str | None:
    """The hint with the splits that fit; None if none does, or the protocol sets the split."""
    others = [name for name in ("test", "val-report", "val") if fits(Split.of(data, name))]
    return f"--split {' or '.join(others)}" if others and protocol.name in COMMON_PROTOCOLS else None


def _other(
    own: Dataset, data: Dataset, feats: base.Artifact, settings: Mapping[str, Any], options: EvaluationOptions
) -> Target:
    protocol = protocol_of(data, options)
    split = _split(data, protocol)
    folds = fold_of(split.items, protocol, data.name)
    _refuse_languages(protocol, options.langs)
    whole = split.where(split.items["item_id"].isin(folds))
    leak = other_leak(own, whole, settings["select"], drop=options.drop_leaks)
    split = whole.where(~whole.items["item_id"].isin(leak.dropped))
    if protocol.positives == "label" and split.items["label"].isna().any():
        raise ArtifactError(f"{data.name} has {protocol.split} items without a category (a label)")
    candidates = options.langs or protocol.langs or tuple(whole.data.languages())
    langs = tuple(lang for lang in candidates if not captions_of(split, lang, protocol).empty)
    of = f"captions of the set {protocol.caption_set!r}" if protocol.caption_set else "captions"
    if not langs:
        problem = f"{data.name} has no {of} in {', '.join(candidates)} for its {protocol.split} items"
        there = [lang for lang in whole.data.languages() if not captions_of(split, lang, protocol).empty]
        by_lang = f"--lang {' or '.join(there)}" if there else None
        raise ArtifactError(problem, hint=_available_sets(whole, candidates, protocol) or by_lang)
    for lang in options.langs or run.langs(settings):
        if lang not in langs:
            warn(f"{data.name} has no {of} in {lang} for its {protocol.split} items")
    queries = _with_source(split, [(lang, HUMAN) for lang in langs], protocol)
    _warn_partial(data)
    transfer, trained_on = not same_collection(own, data), signature_name(own)
    return Target(split, (feats,), None, queries, leak.value, protocol, folds, transfer, trained_on)


def same_collection(own: Dataset, other: Dataset) -> bool:
    """Whether both are variants of one collection, so that evaluating on the other is not zero-shot."""
    collection = own.manifest.get("collection")
    return collection is not None and collection == other.manifest.get("collection")


def protocol_of(data: Dataset, options: EvaluationOptions) -> Protocol:
    """The protocol of the options: `full`, `labelled`, or one of the data set's manifest."""
    name, split = options.protocol, options.split or Protocol.split
    if name in COMMON_PROTOCOLS:
        positives = "label" if name == LABELLED else "all"
        return Protocol(name, split=split, caption_set=options.caption_set, positives=positives)
    known = read_protocols(data.manifest, f"the manifest of {data.name}")
    if name not in known:
        more = f", or of its manifest: {', '.join(known)}" if known else ""
        raise UsageError(f"{data.name} has no protocol {name!r}", hint=f"--protocol full or labelled{more}")
    protocol = known[name]
    if options.split not in (None, protocol.split):
        raise UsageError(f"the protocol {name} uses the split {protocol.split}, not {options.split}")
    if options.caption_set not in (None, protocol.caption_set):
        sets = f"the caption set {protocol.caption_set}" if protocol.caption_set else "captions of all sets"
        raise UsageError(f"the protocol {name} uses {sets}, not --caption-set {options.caption_set}")
    return protocol


def _warn_partial(data: Dataset) -> None:
    if problems := data.manifest.get("partial", []):
        more = f" and {len(problems) - 1} more, see ccr data describe {data.name}" if len(problems) > 1 else ""
        reason = f"the data set is partial: {problems[0]}{more}"
        warn(f"results on {data.name} are not comparable with the full protocol, because {reason}")


def _refuse_languages(protocol: Protocol, langs: Sequence[str]) -> None:
    for lang in langs:
        if protocol.langs is not None and lang not in protocol.langs:
            problem = f"the protocol {protocol.name} has queries in {', '.join(protocol.langs)}, not in {lang}"
            raise UsageError(problem, hint="--lang LANG")


def _with_source(split: Split, queries: Sequence[tuple[str, str]], protocol: Protocol) -> tuple[tuple[str, str], ...]:
    """Adds the source language as last query language, if the protocol allows it and the items have captions in it."""
    source = split.data.source_lang
    if source in dict(queries) or (protocol.langs is not None and source not in protocol.langs):
        return tuple(queries)
    if captions_of(split, source, replace(protocol, caption_set=None)).empty:
        lacking = f"{split.data.name} has no captions in {source} for its {split.name} items"
        warn(f"{lacking}: no results are reported for the source language")
        return tuple(queries)
    return (*queries, (source, HUMAN))


def with_hint(error: CcrError) -> str:
    """An error's message and its hint, on one line."""
    return error.message + (f" ({error.hint})" if error.hint else "")


def _nothing(inputs: Inputs, feats: base.Artifact, refused: Sequence[CcrError]) -> CcrError:
    """The error that says why there is nothing to evaluate on."""
    if len(refused) == 1:
        return refused[0]
    if refused:
        kind = UsageError if all(isinstance(error, UsageError) for error in refused) else ArtifactError
        return kind("no data set can be evaluated on:\n  " + "\n  ".join(with_hint(error) for error in refused))
    extract = features.command(feats, inputs.workspace.place("dataset", "twemoji"), videos=False)
    problem = f"there is no other data set in {inputs.workspace.root}"
    return ArtifactError(problem, hint=f"ccr data import twemoji; {extract}")


def signature_name(data: Dataset) -> str:
    """The value of `data` in a signature."""
    return data_value(data.name, data.artifact.id, partial=bool(data.manifest.get("partial")))
