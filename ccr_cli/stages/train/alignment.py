"""Starting from the dual encoder whose image side made the features, with its text side as text encoder."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from safetensors import safe_open

from ccr_cli import hub
from ccr_cli.artifacts import base, features
from ccr_cli.encoders.base import sha256_of
from ccr_cli.errors import ArtifactError, UnavailableError, UsageError
from ccr_cli.judges.base import load_judge
from ccr_cli.methods.config import ALIGNED, ALIGNED_TEXTS, Config
from ccr_cli.stages.shared.text_encoders import GIVEN, TextVectors
from ccr_cli.transformers_loading import transformers_loading

NGRAM = Config.text_encoder
C = TypeVar("C", bound=Config)


def aligned(start: C, configured: Callable[[C], C], feats: base.Artifact) -> tuple[C, C]:
    """The start options for the text side of the model that made the features, without and with the user's options.

    They have no dropout, no hidden units and `visual=projection`; a learned temperature starts at the model's own.
    `configured` adds the user's options, which may name the text side.

    Raises:
        ArtifactError: If the weights of the text side are not those of that model.
        UnavailableError: If the model is no longer on this machine.
        UsageError: If the features were not made by a dual encoder, or the text side is not in their space.
    """
    about, parts = feats.json("encoder.json"), features.parts(feats)
    start = _start(start, configured(start), feats, about, parts)
    config = configured(start)
    _require_aligned(config, feats, about)
    return start, config


def _start(
    start: C, config: C, feats: base.Artifact, about: Mapping[str, Any], parts: Sequence[features.EncoderPart]
) -> C:
    if dim := about.get("dim"):
        start = replace(start, dim=int(dim))
    start = replace(start, **ALIGNED)
    if config.text_encoder == GIVEN:
        return start
    start = replace(start, **ALIGNED_TEXTS)
    if config.text_encoder != NGRAM:
        return start
    (part, *more) = parts
    with transformers_loading():
        import transformers

        network = getattr(transformers, str(about.get("architecture")), None)
    if more or not hasattr(network, "get_text_features") or about.get("pooling") != "pooler":
        problem = f"head={config.head} needs features in the space of texts, and {feats.path} are not"
        raise UsageError(problem, hint="ccr extract --encoder clip, with its own pooling; or --set head=linear")
    options = {**part.request, **part.given}
    model, revision = str(options["model"]), str(options.get("revision", "main"))
    located = hub.find(model, revision)
    if located is None:
        command = f"hf download {model}" + (f" --revision {revision}" if revision != "main" else "")
        raise UnavailableError(f"the model {model} of {feats.path} is not on this machine", hint=command)
    start = replace(start, text_encoder=model if revision == "main" else str(located.folder))
    if getattr(config, "learn_temperature", False):
        start = replace(start, temperature=_temperature(located))  # type: ignore[call-arg]
    return start


def _temperature(located: hub.Located) -> float:
    """A model's own temperature: 1 / exp(logit_scale)."""
    for path in located.weights:
        with safe_open(path, framework="pt") as file:
            if "logit_scale" in file.keys():  # noqa: SIM118
                return round(math.exp(-float(file.get_tensor("logit_scale"))), 6)
    raise ArtifactError(f"{located.label} holds no temperature (logit_scale)", hint="leave learn_temperature out")


def _require_aligned(config: Config, feats: base.Artifact, about: Mapping[str, Any]) -> None:
    """Refuses options that leave the space of the features, or a text side of another model than made them."""
    if config.hidden or config.visual != "projection":
        problem = f"head={config.head} keeps the space of the features; hidden={config.hidden}, visual={config.visual}"
        raise UsageError(problem, hint="leave hidden and visual out")
    if config.text_encoder == GIVEN:
        return
    if config.text_encoder == NGRAM or config.pooling != "own":
        which = f"text_encoder={config.text_encoder}, pooling={config.pooling}"
        problem = f"head={config.head} starts from the alignment of a dual encoder, and {which} has none"
        raise UsageError(problem, hint="leave text_encoder and pooling out: they follow from the features")
    made = about.get("weights_sha256")
    located = hub.find(config.text_encoder)
    if made and located and (own := sha256_of(located.weights)) != made:
        problem = (
            f"{config.text_encoder} (sha256 {own[:12]}) is another model, or another revision, than the one that made "
            f"{feats.path} (sha256 {made[:12]})"
        )
        raise ArtifactError(problem, hint="leave text_encoder out, or extract features with that model")


def require_readable(config: Config) -> None:
    """Refuses a judge that reads the model before the first step if its head is still random (UsageError).

    With a sentence encoder, such a judge may read S-T alone.
    """
    texts_alone = config.judge_side == "cross_lingual" and config.sentence_encoder
    if load_judge(config.judge).speaks == "first" and not config.aligned and not texts_alone:
        problem = f"the judge {config.judge} reads the model before the first step, where head={config.head} is random"
        hint = "--set head=residual, or --set sentence_encoder=NAME_OR_FOLDER to compare captions alone"
        if config.judge_side != "cross_lingual":
            hint = "--set head=residual, or --set judge_side=cross_lingual --set sentence_encoder=NAME_OR_FOLDER"
        raise UsageError(problem, hint=hint)


def require_same_space(vectors: TextVectors, feats: base.Artifact) -> None:
    """Refuses text vectors and picture features that cannot be compared by cosine.

    Raises:
        ArtifactError: If a picture's features are zero.
        UsageError: If the two differ in dimension.
    """
    dim, other = int(feats.json("encoder.json").get("dim") or 0), vectors.vector_TD.shape[1]
    if dim != other:
        problem = f"{vectors.path} has vectors of {other} numbers, and those of the pictures in {feats.path} have {dim}"
        raise UsageError(problem, hint="vectors of texts and pictures by one model; or --set head=linear, and training")
    items = features.encoded_items(feats)
    for first in range(0, len(items), features.SHARD_ITEMS):
        rows_VD, _, found = features.read_rows(feats, items[first : first + features.SHARD_ITEMS], pooled=True)
        if zero := [item for item, row_D in zip(found, rows_VD, strict=True) if not row_D.any()]:
            raise ArtifactError(f"the vector of {zero[0]!r} in {feats.path} is zero, which has no direction")
