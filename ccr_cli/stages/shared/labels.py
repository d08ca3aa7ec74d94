"""The label of a run: its method and what distinguishes it wherever methods are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ccr_cli import registry
from ccr_cli.artifacts.label import Label
from ccr_cli.judges.base import load_judge


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
