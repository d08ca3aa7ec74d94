"""Loading a trained run: its model, and the translations it was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from safetensors.torch import load_file

from ccr_cli import registry
from ccr_cli.artifacts import base, run
from ccr_cli.artifacts.label import Label
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.tokens import Tokenizer, load_tokenizer
from ccr_cli.errors import ArtifactError
from ccr_cli.judges.base import load_judge
from ccr_cli.methods.base import Method
from ccr_cli.nets.text import text_encoder_from_config
from ccr_cli.nets.tower import tower_from_config
from ccr_cli.stages.shared.options import configure


def load_method(artifact: base.Artifact, device: torch.device) -> tuple[Method, Tokenizer]:
    """Loads the best model of a run and its tokenizer; ArtifactError if the weights do not fit."""
    settings = run.config(artifact)
    require_method(artifact)
    module = registry.load("methods", settings["method"])
    config = configure(module.Config, settings["options"], settings["method"])
    text = text_encoder_from_config(settings["text_encoder"])
    method: Method = module.Method(config, settings["visual_dim"], text)
    if "visual_tower" in settings:
        method.attach(tower_from_config(settings["visual_tower"]).train_from(config.visual_frozen_layers))
    try:
        method.load_state_dict(load_file(artifact.file("model.safetensors")))
    except RuntimeError as error:
        raise ArtifactError(f"the weights of {artifact.path} do not fit its configuration: {error}") from None
    for file in artifact.files:
        if file.path.startswith("tokenizer/"):
            artifact.file(file.path)
    method.start_epoch(config.epochs)
    return method.to(device).eval(), load_tokenizer(artifact.path / "tokenizer")


def require_method(artifact: base.Artifact) -> None:
    """Raises ArtifactError if the file of a run's method, somebody's own, is gone."""
    method = run.config(artifact)["method"]
    if method not in registry.names("methods"):
        problem = (
            f"{artifact.path.name} needs the method {method!r}, and {registry.plugin_file('methods', method)} is gone"
        )
        raise ArtifactError(problem, hint="put that file back, or leave out this run")


def translations_of(
    workspace: Workspace, trained: base.Artifact
) -> tuple[dict[str, list[base.Artifact]], base.Artifact | None]:
    """The translations that a run was trained on, by language, and the second one that its judge compared, if any."""
    links, second = run.translation_links(trained)
    translated = {lang: [workspace.linked(trained, link) for link in of_lang] for lang, of_lang in links.items()}
    return translated, None if second is None else workspace.linked(trained, second)


def default_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The default options of a run's method, or of its preset; UsageError if the method is not known here."""
    module = registry.load("methods", settings["method"])
    preset = module.Method.PRESETS.get(settings.get("preset")) or {}
    return {**asdict(module.Config()), **preset}


def method_label(settings: Mapping[str, Any]) -> Label:
    """The method, with the preset, a judge other than its own, and loss terms that it lacks by default.

    A list of pairs is named by its checksum: `infonce (pairs 1a2b3c)`. A judge that knows the truth is always named:
    `uml (paper, oracle)`. A method or judge that is not known here is a UsageError.
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
