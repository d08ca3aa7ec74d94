"""Loading a trained run: its model, and the translations it was trained on."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import chain
from typing import Any

import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from ccr_cli import registry
from ccr_cli.artifacts import run, translation
from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.label import Label
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.tokens import Tokenizer, load_tokenizer
from ccr_cli.errors import ArtifactError, CcrError, UnavailableError, out_of_memory
from ccr_cli.judges.base import load_judge
from ccr_cli.methods.base import Method
from ccr_cli.methods.config import ALIGNED, ALIGNED_TEXTS
from ccr_cli.nets.text import text_encoder_from_config
from ccr_cli.nets.tower import tower_from_config
from ccr_cli.stages.shared.options import configure
from ccr_cli.stages.shared.text_encoders import GIVEN

MALFORMED = (TypeError, ValueError, KeyError, IndexError, AttributeError, AssertionError, RuntimeError, OverflowError)
"""Exceptions that code raises on values of an unexpected type or range."""

LARGEST_WEIGHT = 1e15
"""Sums of products of larger numbers may not be finite in float32."""


def load_method(artifact: Artifact, device: torch.device) -> tuple[Method, Tokenizer]:
    """Loads the best model of a run and its tokenizer.

    Raises:
        ArtifactError: If config.json describes no model, or the weights or the tokenizer do not fit it, or the weights
            are not finite.
    """
    settings, weights = run_settings(artifact), artifact.file("model.safetensors")
    try:
        with safe_open(weights, framework="pt") as file:
            stored = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        try:
            with torch.device("meta"):  # takes no memory, whatever sizes the config has
                needed = {name: tuple(tensor.shape) for name, tensor in _build(settings).state_dict().items()}
        except RuntimeError:  # some text encoders need memory to be built
            needed = stored
        differing = next((n for n in sorted({*needed, *stored}) if needed.get(n) != stored.get(n)), None)
        if differing is not None:
            wrong = f"{differing} is {stored.get(differing)} there, expected {needed.get(differing)}"
            raise ValueError(f"{weights.name} does not fit it: {wrong}")
        method = _build(settings)
        method.load_state_dict(load_file(weights))
    except (CcrError, SafetensorError, *MALFORMED) as error:
        if isinstance(error, UnavailableError) or out_of_memory(error):
            raise
        problem = f"{artifact.path / 'config.json'} describes no model: {str(error)[:500]}"
        raise ArtifactError(problem, hint=artifact.rebuild_hint()) from error
    if bad := [name for name, tensor in method.state_dict().items() if not (tensor.abs() < LARGEST_WEIGHT).all()]:
        problem = f"{weights}: {bad[0]} has values that are not finite, or above {LARGEST_WEIGHT:g}"
        raise ArtifactError(problem, hint=artifact.rebuild_hint())
    method.start_epoch(method.config.epochs)
    for entry in artifact.files:
        if entry.path.startswith("tokenizer/"):
            artifact.file(entry.path)
    tokenizer, text = load_tokenizer(artifact.path / "tokenizer"), settings["text_encoder"]
    known = (
        text.get("buckets") or text.get("texts") or (text.get("model") or {}).get("vocab_size", tokenizer.vocab_size)
    )
    if text["kind"] != tokenizer.kind or tokenizer.vocab_size > known:
        wrong = f"{tokenizer.kind} with {tokenizer.vocab_size} ids, expected {text['kind']} with {known}"
        raise ArtifactError(f"{artifact.path / 'tokenizer'}: {wrong}", hint=artifact.rebuild_hint())
    return method.to(device).eval(), tokenizer


def _build(settings: Mapping[str, Any]) -> Method:
    """The model that a run's configuration describes, with fresh weights."""
    module = registry.load("methods", settings["method"])
    config = configure(module.Config, settings["options"], settings["method"])
    text = text_encoder_from_config(settings["text_encoder"])
    method: Method = module.Method(config, settings["visual_dim"], text)
    if "visual_tower" in settings:
        method.attach(tower_from_config(settings["visual_tower"]).train_from(config.visual_frozen_layers))
    return method


def run_settings(artifact: Artifact) -> dict[str, Any]:
    """The config.json of a run; ArtifactError if its method is a plug-in that is gone."""
    settings = run.config(artifact)
    method = settings["method"]
    if not registry.has("methods", method):
        file = registry.find("methods", method).path
        problem = f"{artifact.name} needs the method {method!r}, and {file}, or the package with it, is gone"
        raise ArtifactError(problem, hint="put it back, or leave out this run")
    return settings


def translations_of(workspace: Workspace, trained: Artifact) -> tuple[dict[str, list[Artifact]], Artifact | None]:
    """The translations that a run was trained on, by language, and the second one that its judge compared, if any."""
    links, second = run.translation_links(trained)
    translated = {lang: [workspace.linked(trained, link) for link in of_lang] for lang, of_lang in links.items()}
    return translated, None if second is None else workspace.linked(trained, second)


def translated_captions(workspace: Workspace, trained: Artifact) -> Iterator[pd.DataFrame]:
    """Yields the captions of each translation that a run was trained on, without those that failed."""
    for artifact in chain(*translations_of(workspace, trained)[0].values()):
        yield translation.translated(translation.read(artifact))


def default_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The default options of a run's method, or of its preset; UsageError if the method is not known here.

    For a run that starts from an alignment, options that follow from the features are defaults, except the text
    encoder, which names the model.
    """
    module = registry.load("methods", settings["method"])
    preset = module.Method.PRESETS.get(settings.get("preset")) or {}
    options, usual = settings.get("options") or {}, {**asdict(module.Config()), **preset}
    if options.get("head", "linear") != "linear":
        usual |= ALIGNED | {"dim": options["dim"]}
        if options["text_encoder"] != GIVEN:
            usual |= ALIGNED_TEXTS
    return usual


def method_label(settings: Mapping[str, Any]) -> Label:
    """The label of a run: its method, preset, judge if not the default one, and loss terms that are off by default.

    A list of pairs is named by its checksum: `infonce (pairs 1a2b3c)`. A judge that knows the truth is always named:
    `uml (paper, oracle)`. UsageError if the method or the judge is not known here.
    """
    usual, options = default_options(settings), settings["options"]
    judge = options["judge"]
    extra = [settings["preset"]] if settings.get("preset") else []
    if judge != usual["judge"] or knows_truth(settings):
        extra.append(judge)
    switched_on = (k for k, v in options.items() if k.endswith("_weight") and v and usual.get(k) == 0)
    extra += [f"{key}={options[key]:g}" for key in switched_on]
    if chosen := settings.get("pairs"):
        extra.append(f"{'weights' if chosen['as'] == 'weights' else 'pairs'} {chosen['sha256'][:6]}")
    return Label.of(str(settings["method"]), extra)


def knows_truth(settings: Mapping[str, Any]) -> bool:
    """Whether a run's judge knew which pairs are mismatched."""
    return load_judge(settings["options"]["judge"]).knows_truth
