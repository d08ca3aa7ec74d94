"""train: a data set, its translation and its features become a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import torch

from ccr_cli import hub, registry
from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.build import building
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.stages.embed import choose_device
from ccr_cli.stages.naming import run_name
from ccr_cli.stages.options import configure
from ccr_cli.stages.select import Inputs
from ccr_cli.stages.sources import Sources
from ccr_cli.stages.texts import GIVEN
from ccr_cli.stages.trainer import Trainer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def train(
    inputs: Inputs,
    sources: Sources,
    method: str,
    *,
    options: Mapping[str, Any] | None = None,
    preset: str | None = None,
    seed: int = 0,
    select_on: str = "mt",
    device: str = "auto",
    dtype: str = "float32",
    name: str | None = None,
    force: bool = False,
) -> base.Artifact:
    """Trains one method.

    Args:
        inputs: Where the run goes.
        sources: What to train from; its noise, if any, decides the mismatch.
        method: A file of methods/.
        options: What differs from the method's Config (or the preset), as text or typed.
        preset: A named setting of the method.
        seed: Of initialisation, order and dropout.
        select_on: Which validation queries choose the best epoch: machine-translated (`mt`) or `human`.
        device: `auto`, `cpu` or `cuda`.
        dtype: float32, or bfloat16/float16 autocast.
        name: Name of the run.
        force: Train again.

    Returns:
        The run.

    Raises:
        ArtifactError: If the method needs translations, and there are none.
        CcrError: If the loss stops being finite.
    """
    if dtype not in DTYPES or select_on not in ("mt", "human"):
        raise UsageError(f"--dtype is one of {', '.join(DTYPES)}; --select-on is mt or human")
    module = registry.load("methods", method)
    if preset is not None and preset not in module.Method.PRESETS:
        known = ", ".join(module.Method.PRESETS) or "none"
        raise UsageError(f"{method} has no preset {preset!r}", hint=f"presets: {known}")
    if sources.translation is None and module.Method.TRANSLATED:
        raise ArtifactError(f"{method} trains on translations, and there are none", hint="ccr translate --lang LANG")
    standard = module.Config()
    start = configure(module.Config, module.Method.PRESETS[preset], method) if preset else standard
    data = dataset.read(sources.data)
    if data.text_features() is not None:
        standard, start = (replace(each, text_encoder=GIVEN) for each in (standard, start))
    config = configure(module.Config, options or {}, f"method {method}", start)
    mismatch = sources.noise.request if sources.noise else None
    request = {
        "method": method,
        "lang": sources.lang,
        "seed": seed,
        "noise": mismatch,
        "preset": preset,
        "select_on": select_on,
        "dtype": dtype,
        **asdict(config),
    }
    if config.text_encoder not in ("ngram", GIVEN):
        request["text_encoder"] = hub.identity(config.text_encoder).get("model", config.text_encoder)
    defaults = {**request, "preset": None, "select_on": "mt", "dtype": "float32", **asdict(standard)}
    if mismatch and (mismatch["style"], mismatch["target"]) == ("caption", "translation") and mismatch["seed"] == seed:
        defaults["noise"] = mismatch
    else:
        defaults["noise"] = None
    if preset:
        defaults |= asdict(start) | {"preset": preset}
    name = name or run_name(sources, data, request, defaults)
    with building(inputs.workspace, "run", name, request, sources.parents, force=force) as build:
        if build.done is None:
            Trainer(build, sources, module, config, request, choose_device(device), DTYPES[dtype]).train()
        assert build.done is not None
        return build.done
