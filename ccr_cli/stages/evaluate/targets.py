"""What a run is evaluated on: its own data set, or others, each with its protocol, languages and leaks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from ccr_cli.artifacts import base, dataset, features, run
from ccr_cli.console import warn
from ccr_cli.data.protocols import USUAL, Protocol, fold_of, read_protocols
from ccr_cli.data.splits import items_of
from ccr_cli.errors import ArtifactError, CcrError, UsageError
from ccr_cli.stages.data.leaks import other_leak, own_leak
from ccr_cli.stages.evaluate.measure import Options, Target, asked_for, named
from ccr_cli.stages.evaluate.query_groups import with_quality
from ccr_cli.stages.shared.inputs import Inputs, like, refuse_unread
from ccr_cli.stages.shared.load_run import translations_of
from ccr_cli.stages.shared.triplets import items_alone


def own_target(inputs: Inputs, trained: base.Artifact, settings: dict[str, Any], options: Options) -> Target:
    """The data set that a run was trained on.

    Args:
        inputs: The artifacts that were named.
        trained: The run.
        settings: Its config.json.
        options: What to measure.

    Raises:
        UsageError: If other data were named, or options contradict the protocol.
        ArtifactError: If a language has no captions.
    """
    data = dataset.read(inputs.parent(trained, "dataset"))
    refuse_unread(inputs, trained, hint="add --zero-shot")
    feats = inputs.parent(trained, "features")
    translated, _ = translations_of(inputs.workspace, trained)
    for artifact in translated.values():
        inputs.note(artifact)
    translations = pd.concat(map(with_quality, translated.values())) if translated else None
    protocol = protocol_of(data, options)
    langs = _own_languages(data, settings, options, protocol)
    folds = fold_of(items_of(data.items, protocol.split), protocol, data.name)
    data = _measured(data, protocol, folds)
    leak = own_leak(data, protocol.split, settings["select"])
    _warn_partial(data)
    return Target(data, feats, translations, _with_source(data, langs, protocol), leak, protocol, folds)


def other_targets(inputs: Inputs, trained: base.Artifact, settings: dict[str, Any], options: Options) -> list[Target]:
    """Every other collection that has the protocol, a language that is asked for, and features of the run's encoder.

    What does not fit, or leaks, is refused if it was named or nothing else is there; else left out with a warning.
    Variants of the collection that the run was trained on are measured if they are named, and not called zero-shot.

    Args:
        inputs: The artifacts that were named; without a data set among them all of the workspace.
        trained: The run.
        settings: Its config.json.
        options: What to measure.

    Raises:
        CcrError: If there is nothing to evaluate on, with the reasons.
    """
    own = dataset.read(inputs.parent(trained, "dataset"))
    feats = inputs.parent(trained, "features")
    given = [a for a in inputs.given if a.kind == "dataset" and a.id != own.artifact.id]
    others = given or [a for a in inputs.workspace.artifacts("dataset") if a.id != own.artifact.id]
    targets: list[Target] = []
    refused: list[CcrError] = []
    for artifact in others:
        data = dataset.read(artifact)
        try:
            if not given and _same_collection(own, data):
                raise ArtifactError(
                    f"{artifact.name} is of the collection that the run was trained on, {own.manifest['collection']}",
                    hint="name it to have it measured",
                )
            targets.append(_other(own, data, like(inputs, feats, data), settings["select"], options))
        except (ArtifactError, UsageError) as error:
            if given:
                raise
            refused.append(error)
        else:
            inputs.note(artifact)
            inputs.note(targets[-1].features)
    if not targets:
        raise _nothing(inputs, feats, refused)
    refuse_unread(inputs, trained, *(a for target in targets for a in (target.data.artifact, target.features)))
    for each in refused:
        warn(f"left out: {_told(each)}")
    return targets


def _own_languages(
    data: dataset.Dataset, settings: dict[str, Any], options: Options, protocol: Protocol
) -> tuple[str, ...]:
    """The languages that are asked for, by default the run's; of several of these, those that can be measured."""
    langs = options.langs or run.langs(settings)
    refused: dict[str, CcrError] = {}
    for lang in langs:
        try:
            _refuse_languages(protocol, (lang,))
            if lang not in data.languages():
                shown = ", ".join(data.languages())
                raise ArtifactError(f"{data.name} has no human captions in {lang!r}", hint=f"it has: {shown}")
            if not asked_for(data, lang, protocol):
                raise _without_captions(data, lang, protocol)
        except (ArtifactError, UsageError) as error:
            if options.langs or len(refused) == len(langs) - 1:
                raise
            refused[lang] = error
    for lang, why in refused.items():
        warn(f"{lang} is not measured: {_told(why)}")
    return tuple(lang for lang in langs if lang not in refused)


def _without_captions(data: dataset.Dataset, lang: str, protocol: Protocol) -> ArtifactError:
    """Why a language cannot be measured on a split, and on which it can."""
    others = [s for s in ("test", "val-report", "val") if asked_for(data, lang, replace(protocol, split=s))]
    of = f" of the set {protocol.caption_set!r}" if protocol.caption_set else ""
    partial = f": the data set is partial, see ccr data show {data.name}" if data.manifest.get("partial") else ""
    hint = f"--split {' or '.join(others)}" if others and protocol.name in USUAL else None
    return ArtifactError(
        f"{data.name} has no human {lang} captions{of} for its {protocol.split} items{partial}",
        hint=hint or _sets_there(data, [lang], protocol),
    )


def _sets_there(data: dataset.Dataset, langs: Sequence[str], protocol: Protocol) -> str | None:
    """The option with the sets of captions that there are, where one is asked for that there is not."""
    captions = data.captions[data.captions["lang"].isin(langs)]
    sets = captions["caption_set"][captions["item_id"].isin(items_of(data.items, protocol.split)["item_id"])]
    asked = protocol.caption_set is not None and protocol.name in USUAL
    return f"--caption-set {' or '.join(sorted(set(sets)))}" if asked and len(sets) else None


def _other(own: dataset.Dataset, data: dataset.Dataset, feats: base.Artifact, select: str, options: Options) -> Target:
    protocol = protocol_of(data, options)
    items = items_of(data.items, protocol.split)
    if items.empty:
        raise ArtifactError(f"{data.name} has no {protocol.split} items")
    folds = fold_of(items, protocol, data.name)
    _refuse_languages(protocol, options.langs)
    data = _measured(data, protocol, folds)
    leak = other_leak(own, data, protocol.split, select, drop=options.drop_leaks)
    left = items_alone(data, ~data.items["item_id"].isin(leak.dropped)) if leak.dropped else data
    if protocol.positives == "label" and items_of(left.items, protocol.split)["label"].isna().any():
        raise ArtifactError(f"{data.name} has {protocol.split} items without a category (a label)")
    wanted = options.langs or protocol.langs or tuple(data.languages())
    langs = tuple(lang for lang in wanted if asked_for(left, lang, protocol))
    of = f"captions of the set {protocol.caption_set!r}" if protocol.caption_set else "captions"
    if not langs:
        raise ArtifactError(
            f"{data.name} has no {of} in {', '.join(wanted)} for its {protocol.split} items",
            hint=_sets_there(data, wanted, protocol),
        )
    for lang in options.langs:
        if lang not in langs:
            warn(f"{data.name} has no {of} in {lang} for its {protocol.split} items")
    langs = _with_source(left, langs, protocol)
    _warn_partial(data)
    transfer = not _same_collection(own, data)
    return Target(left, feats, None, langs, leak.said, protocol, folds, zero_shot=transfer, trained_on=named(own))


def _same_collection(own: dataset.Dataset, other: dataset.Dataset) -> bool:
    """Whether both are variants of one collection, so that measuring the other is no transfer."""
    collection = own.manifest.get("collection")
    return collection is not None and collection == other.manifest.get("collection")


def protocol_of(data: dataset.Dataset, options: Options) -> Protocol:
    """The protocol that is asked for: `full`, `labelled`, or one of the data set's manifest.

    Raises:
        UsageError: If the data set has none of that name, or another option contradicts it.
    """
    asked = options.protocol
    if asked in USUAL:
        positives = "label" if asked == "labelled" else "all"
        split = options.split or Protocol.split
        return Protocol(asked, split=split, caption_set=options.caption_set, positives=positives)
    known = read_protocols(data.manifest, f"the manifest of {data.name}")
    if asked not in known:
        named = f"; or of its manifest: {', '.join(known)}" if known else ""
        raise UsageError(f"{data.name} has no protocol {asked!r}", hint=f"--protocol is full or labelled{named}")
    found = known[asked]
    if options.split not in (None, found.split):
        raise UsageError(f"the protocol {asked} is of the split {found.split}, and --split says {options.split}")
    if options.caption_set not in (None, found.caption_set):
        sets = f"the caption set {found.caption_set}" if found.caption_set else "captions of all sets"
        raise UsageError(f"the protocol {asked} is of {sets}, and --caption-set says {options.caption_set}")
    return found


def _measured(data: dataset.Dataset, protocol: Protocol, items: Collection[str]) -> dataset.Dataset:
    """The data set without the items of the split that the protocol leaves out."""
    if protocol.items is None:
        return data
    beyond = set(items_of(data.items, protocol.split)["item_id"]) - {*items}
    return items_alone(data, ~data.items["item_id"].isin(beyond))


def _warn_partial(data: dataset.Dataset) -> None:
    problems = data.manifest.get("partial", [])
    if problems:
        more = f" and {len(problems) - 1} more, see ccr data show {data.name}" if len(problems) > 1 else ""
        warn(f"{data.name} is partial, so figures on it are of no protocol's whole: {problems[0]}{more}")


def _refuse_languages(protocol: Protocol, langs: Sequence[str]) -> None:
    for lang in langs:
        if protocol.langs is not None and lang not in protocol.langs:
            shown = ", ".join(protocol.langs)
            raise UsageError(
                f"the protocol {protocol.name} is of queries in {shown}, not in {lang}", hint="--lang LANG"
            )


def _with_source(data: dataset.Dataset, langs: Sequence[str], protocol: Protocol) -> tuple[str, ...]:
    """The languages, and the source beside them if the protocol has it and the items have captions in it."""
    source = data.source_lang
    if source in langs or (protocol.langs is not None and source not in protocol.langs):
        return tuple(langs)
    if not asked_for(data, source, replace(protocol, caption_set=None)):
        warn(
            f"{data.name} has no captions in {source} for its {protocol.split} items: the source language is not beside"
        )
        return tuple(langs)
    return (*langs, source)


def _told(error: CcrError) -> str:
    return error.message + (f" ({error.hint})" if error.hint else "")


def _nothing(inputs: Inputs, feats: base.Artifact, refused: Sequence[CcrError]) -> CcrError:
    """Why there is nothing to evaluate on."""
    if len(refused) == 1:
        return refused[0]
    if refused:
        kind = UsageError if all(isinstance(error, UsageError) for error in refused) else ArtifactError
        return kind("no data set can be evaluated on:\n  " + "\n  ".join(_told(error) for error in refused))
    todo = features.command(feats, inputs.workspace.place("dataset", "twemoji"), videos=False)
    return ArtifactError(
        f"there is no other data set in {inputs.workspace.root}", hint=f"ccr data import twemoji; {todo}"
    )
