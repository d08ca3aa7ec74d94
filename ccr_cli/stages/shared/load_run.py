"""Loading a trained run: its model, and the translations it was trained on."""

from __future__ import annotations

import torch
from safetensors.torch import load_file

from ccr_cli import registry
from ccr_cli.artifacts import base, run
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.tokens import Tokenizer, load_tokenizer
from ccr_cli.errors import ArtifactError
from ccr_cli.methods.base import Method
from ccr_cli.nets.text import text_encoder_from_config
from ccr_cli.nets.tower import tower_from_config
from ccr_cli.stages.shared.options import configure


def load_method(artifact: base.Artifact, device: torch.device) -> tuple[Method, Tokenizer]:
    """Loads the best model of a run and its tokenizer; ArtifactError if the weights do not fit."""
    settings = run.config(artifact)
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


def translations_of(
    workspace: Workspace, trained: base.Artifact
) -> tuple[dict[str, base.Artifact], base.Artifact | None]:
    """The translations that a run was trained on; ArtifactError if one is gone or has been replaced.

    Returns them by language, none where nothing was translated; and the second one that its judge compared them with,
    if any.
    """
    translations = [workspace.linked(trained, link) for link in trained.parents if link.kind == "translation"]
    langs = run.langs(trained.request)
    second = translations[-1] if len(translations) > len(langs) else None
    return dict(zip(langs, translations, strict=False)), second
