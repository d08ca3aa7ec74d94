"""`ccr evaluate --zero-shot --model`: a pretrained dual encoder on every data set, with no run of the user's own.

Features are extracted and the run `pretrained` is made where they are not there; then it is evaluated as any run.
"""

from collections.abc import Sequence
from dataclasses import replace

from ccr_cli import hub
from ccr_cli.artifacts import base
from ccr_cli.artifacts import dataset as datasets
from ccr_cli.artifacts.build import Planned
from ccr_cli.artifacts.signature import FULL
from ccr_cli.console import warn
from ccr_cli.encoders.base import sha256_of
from ccr_cli.errors import ArtifactError, CcrError, UsageError
from ccr_cli.stages.evaluate.options import EvaluationOptions
from ccr_cli.stages.evaluate.queries import captions_of
from ccr_cli.stages.evaluate.stage import evaluate
from ccr_cli.stages.evaluate.targets import protocol_of, with_hint
from ccr_cli.stages.extract.options import ExtractOptions
from ccr_cli.stages.extract.stage import extract
from ccr_cli.stages.shared.inputs import Inputs, made_from
from ccr_cli.stages.shared.splits import Split
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.stage import train

METHOD = "pretrained"


def evaluate_model(
    inputs: Inputs, model: str, options: EvaluationOptions, *, device: str = "auto", force: bool = False
) -> list[base.Artifact]:
    """Evaluates a dual encoder on the named data sets, or on all of the workspace, in every language they have.

    A data set that does not fit is an error if it was named or no other is left; otherwise it is left out with a
    warning. In a dry run it plans what the first missing step would make for each.

    Raises:
        ArtifactError: If there is nothing to evaluate on, or the model is damaged.
        UnavailableError: If the model is neither on this machine nor on the hub.
        UsageError: If it is no dual encoder.
    """
    options.check()
    named = [a for a in inputs.named if a.kind == "dataset"]
    evaluated: list[base.Artifact] = []
    refused: list[CcrError] = []
    for artifact in named or inputs.workspace.artifacts("dataset"):
        try:
            evaluated.append(_evaluate(inputs, artifact, model, options, device, force))
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
    inputs: Inputs, artifact: base.Artifact, model: str, options: EvaluationOptions, device: str, force: bool
) -> base.Artifact:
    data = datasets.read(artifact)
    langs = options.langs or _langs(data, options)
    inputs.note(artifact)
    feats = _features(inputs, artifact, model, device)
    inputs.note(feats)
    of_data = Inputs(inputs.workspace, [artifact, feats])
    run = train(of_data, TrainingOptions(method=METHOD, lang=data.source_lang, device=device))
    inputs.note(run)
    own = replace(options, zero_shot=False, langs=tuple(langs))
    return evaluate(Inputs(inputs.workspace, [run]), run, own, device=device, force=force)


def _langs(data: datasets.Dataset, options: EvaluationOptions) -> Sequence[str]:
    """The languages that people wrote captions in for the split."""
    protocol = protocol_of(data, replace(options, protocol=options.protocol or FULL))
    split = Split.of(data, protocol.split)
    langs = [lang for lang in protocol.langs or data.languages() if not captions_of(split, lang, protocol).empty]
    if not langs:
        raise ArtifactError(f"{data.name} has no captions for its {protocol.split} items")
    return langs


def _features(inputs: Inputs, data: base.Artifact, model: str, device: str) -> base.Artifact:
    """The features of a data set by a model, of the named ones or the workspace's; made where there are none."""
    located = hub.locate(model, "main")
    weights = sha256_of(located.weights)

    def fits(artifact: base.Artifact) -> bool:
        about = artifact.json("encoder.json")
        return made_from(data)(artifact) and (about.get("weights_sha256"), about.get("pooling")) == (weights, "pooler")

    candidates = [a for a in inputs.named if a.kind == "features"] + inputs.workspace.artifacts("features")
    found = next(filter(fits, candidates), None)
    if found is None:
        settings = {"model": model}
        found = extract(
            Inputs(inputs.workspace, [data]), ExtractOptions(encoder="clip", settings=settings, device=device)
        )
        assert found is not None, "one process makes it"
    return found
