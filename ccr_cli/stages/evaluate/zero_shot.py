"""`ccr evaluate --zero-shot` with `--model` or vectors: evaluates a pretrained model without a run of the user's.

Missing features are extracted or imported, and a missing run `pretrained` is made; then it is evaluated like any run.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from ccr_cli import hub
from ccr_cli.artifacts import base
from ccr_cli.artifacts import dataset as datasets
from ccr_cli.artifacts.build import Planned
from ccr_cli.artifacts.signature import FULL
from ccr_cli.console import say, warn
from ccr_cli.data import features as formats
from ccr_cli.encoders.base import sha256_of
from ccr_cli.errors import ArtifactError, CcrError, UsageError
from ccr_cli.stages.evaluate.options import EvaluatedSystems, EvaluationOptions
from ccr_cli.stages.evaluate.queries import captions_of
from ccr_cli.stages.evaluate.stage import evaluate
from ccr_cli.stages.evaluate.targets import protocol_of, with_hint
from ccr_cli.stages.extract.existing import extract_from, fingerprint
from ccr_cli.stages.extract.options import ExtractOptions, ReadyFeatures
from ccr_cli.stages.extract.stage import extract
from ccr_cli.stages.shared.inputs import Inputs, made_from
from ccr_cli.stages.shared.splits import Split
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.stage import train

METHOD = "pretrained"


def evaluate_pretrained(inputs: Inputs, options: EvaluationOptions, systems: EvaluatedSystems) -> list[base.Artifact]:
    """Evaluates a model on the named data sets, or on all of the workspace, in every language they have.

    The model is a dual encoder, by hub name or folder, or known only by its vectors. A data set that does not fit is an
    error if it was named or no other is left; otherwise it is left out with a warning. A dry run plans what the first
    missing step would make for each data set.

    Raises:
        ArtifactError: If there is nothing to evaluate on, the model is damaged, or vectors are missing or unusable.
        UnavailableError: If the model is neither on this machine nor on the hub.
        UsageError: If the model is no dual encoder, or vectors of texts and items differ in dimension.
    """
    options.check()
    named = inputs.of_kind("dataset")
    evaluated: list[base.Artifact] = []
    refused: list[CcrError] = []
    for artifact in named or inputs.workspace.artifacts("dataset"):
        try:
            evaluated.append(_evaluate(inputs, artifact, options, systems))
        except Planned:
            continue
        except (ArtifactError, UsageError) as error:
            if named:
                raise
            refused.append(error)
    if not evaluated and not inputs.workspace.planned:
        raise (
            refused[0]
            if refused
            else ArtifactError(f"there is no data set in {inputs.workspace.root}", hint="ccr data import twemoji")
        )
    for reason in refused:
        warn(f"left out: {with_hint(reason)}")
    return evaluated


def _evaluate(
    inputs: Inputs, artifact: base.Artifact, options: EvaluationOptions, systems: EvaluatedSystems
) -> base.Artifact:
    data, device, vectors = datasets.read(artifact), systems.device, systems.visual_vectors
    langs = _langs(data, options, systems)
    inputs.note(artifact)
    feats = _imported(inputs, artifact, vectors) if vectors else _features(inputs, artifact, str(systems.model), device)
    inputs.note(feats)
    translations = list(filter(made_from(artifact), inputs.of_kind("translation")))
    training = TrainingOptions(
        method=METHOD,
        lang=None if translations else data.source_lang,
        text_vectors=systems.text_vectors,
        device=device,
    )
    run = train(Inputs(inputs.workspace, [artifact, feats, *translations]), training)
    inputs.note(run)
    own = replace(options, zero_shot=False, langs=tuple(langs))
    return evaluate(Inputs(inputs.workspace, [run]), run, own, device=device, force=systems.force)


def _langs(data: datasets.Dataset, options: EvaluationOptions, systems: EvaluatedSystems) -> Sequence[str]:
    """The languages of the options, else all in which people wrote captions for the split (and which have vectors).

    Vectors must cover all captions of a language or none, and all items of the split.
    """
    protocol = protocol_of(data, replace(options, protocol=options.protocol or FULL))
    split = Split.of(data, protocol.split)
    captions = {lang: captions_of(split, lang, protocol) for lang in protocol.langs or data.languages()}
    written = [lang for lang, rows in captions.items() if not rows.empty]
    if not written:
        raise ArtifactError(f"{data.name} has no captions for its {protocol.split} items")
    texts, visual = systems.text_vectors, systems.visual_vectors
    if not (texts and visual):
        return options.langs or written
    of_split, items = f"{protocol.split} items of {data.name}", split.items["item_id"]
    with formats.opened(*formats.with_lists([texts], [])[0]) as table:
        known = frozenset(table.ids)
    needed = {*options.langs, data.source_lang} & {*written}
    for lang in written:
        if _lacks(known, captions[lang]["caption_id"], texts, f"{lang} captions of the {of_split}"):
            if lang in needed:
                raise _none(texts, known, captions[lang]["caption_id"], f"the {lang} captions of the {of_split}")
            say(f"{lang} is not evaluated: it has no vectors", level=0)
            written = [other for other in written if other != lang]
    with formats.opened(*formats.with_lists([visual], [])[0]) as table:
        (places, _), known = formats.join(list(items), [table]), frozenset(table.ids)
    if _lacks(items[[place is not None for place in places]], items, visual, of_split):
        raise _none(visual, known, items, f"the {of_split}")
    return options.langs or written


def _none(path: Path, known: Collection[str], ids: pd.Series, what: str) -> ArtifactError:
    """The error for a file without any of the vectors that are needed."""
    held = f"it has {', '.join(map(repr, sorted(known)[:3]))}" if known else "it is empty"
    return ArtifactError(f"{path} has no vectors of {what}: {held}", hint=f"name them by ids, such as {ids.iloc[0]!r}")


def _lacks(known: Collection[str], ids: pd.Series, path: Path, what: str) -> bool:
    """Whether none of the ids is known; ArtifactError if only some are."""
    absent = ids[~ids.isin(known)]
    if 0 < len(absent) < len(ids):
        some = ", ".join(map(repr, absent[:3])) + (", ..." if len(absent) > 3 else "")
        problem = f"{path} lacks {len(absent):,} of {len(ids):,} {what}: {some}"
        raise ArtifactError(problem, hint="add their vectors; a part of the queries or items measures something else")
    return len(absent) > 0


def _imported(inputs: Inputs, data: base.Artifact, vectors: Path) -> base.Artifact:
    """Imports vectors of the items as a features artifact."""
    digest = fingerprint(formats.with_lists([vectors], []))
    options = ExtractOptions(name=f"{vectors.stem}-{digest[:6]}", max_failed=1.0)
    return extract_from(Inputs(inputs.workspace, [data]), ReadyFeatures(from_=[vectors]), options)


def _features(inputs: Inputs, data: base.Artifact, model: str, device: str) -> base.Artifact:
    """The features of a data set by a model: named ones, those in the workspace, or newly extracted ones."""
    located = hub.locate(model, "main")
    weights = sha256_of(located.weights)

    def fits(artifact: base.Artifact) -> bool:
        about = artifact.json("encoder.json")
        return made_from(data)(artifact) and (about.get("weights_sha256"), about.get("pooling")) == (weights, "pooler")

    candidates = inputs.of_kind("features") + inputs.workspace.artifacts("features")
    found = next(filter(fits, candidates), None)
    if found is None:
        settings = {"model": model}
        found = extract(
            Inputs(inputs.workspace, [data]), ExtractOptions(encoder="clip", settings=settings, device=device)
        )
        assert found is not None, "one process makes it"
    return found
