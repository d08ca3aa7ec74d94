"""Which data set is translated, by which engine, with which options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.options import configure


def training_data(inputs: Inputs) -> base.Artifact:
    """The data set given, or that from which what is given was made, or the one of the workspace with training items.

    Raises:
        ArtifactError: If there is none, or several could be meant.
    """

    def fits(artifact: base.Artifact) -> bool:
        return artifact.counts.get("items.train", 0) > 0 or artifact in inputs.given

    if not inputs.given or any(artifact.kind == "dataset" for artifact in inputs.given):
        return inputs.one("dataset", "with training items", fits, hint="ccr data import noto-emoji")
    found: dict[str, base.Artifact] = {}
    for artifact in inputs.given:
        if all(link.kind != "dataset" for link in artifact.parents):
            raise ArtifactError(f"{artifact.path} is a {artifact.kind}, made from no data set", hint="give a dataset")
        data = inputs.workspace.parent(artifact, "dataset")
        found[data.id] = data
    if len(found) > 1:
        shown = "\n  ".join(inputs.workspace.relative(data.path) for data in found.values())
        raise ArtifactError(f"what is given was made from several data sets:\n  {shown}", hint="name the one you mean")
    inputs.note(data)
    return data


def usual_engine(data: dataset.Dataset, lang: str) -> str:
    """The engine that `auto` takes for the captions of a data set alone."""
    recorded = registry.load("translators", "recorded").pairs(data.artifact.path) or []
    return "recorded" if (data.source_lang, lang) in recorded else "hf"


def usual_request(lang: str, engine: str) -> dict[str, Any]:
    """What is asked of an engine if nobody sets any option."""
    asked = {"lang": lang, "engine": engine, "split": "all", "back": False, "queries": False}
    return {**asked, **options_in_request(_options_of(engine))}


def plug_in(engine: str, options: Mapping[str, str]) -> tuple[Any, Any]:
    """An engine's module, and its options.

    Raises:
        UsageError: If there is no such engine or option.
    """
    module = registry.load("translators", engine)
    try:
        return module, configure(module.Config, options, f"engine {engine}")
    except UsageError as error:
        unknown = set(options) - _options_of(engine).keys()
        all_options = {name: asdict(each.Config()) for name, each in registry.loaded("translators")[0].items()}
        others = [name for name, known in all_options.items() if unknown and unknown <= known.keys()]
        hint = error.hint
        if others and "has no option" in error.message:
            hint = f"{' or '.join(f'--engine {name}' for name in others)}; {engine} has other {hint}"
        elif hint is None:
            usual = [f"--set {key}={value}" for key, value in _options_of(engine).items() if key in options]
            hint = f"another value; usual is {' '.join(usual)}"
        raise UsageError(error.message, hint=hint) from None


def _options_of(engine: str) -> dict[str, Any]:
    """The options of an engine with their defaults."""
    return asdict(registry.load("translators", engine).Config())


def options_in_request(options: Mapping[str, Any]) -> dict[str, Any]:
    """An engine's own options in a request, apart from the others: `recorded` has an option `engine`."""
    return {f"set.{key}": value for key, value in options.items()}
