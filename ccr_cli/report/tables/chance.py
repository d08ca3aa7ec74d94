"""The chance level of results, and which of them are close to it."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ccr_cli.artifacts import evaluation
from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.signature import signature_of
from ccr_cli.errors import ArtifactError
from ccr_cli.metrics import chance
from ccr_cli.report.words.numbers import half_width

MARGIN = 2
"""A SumR that is above chance by at most so many times half its interval is close to it."""


def level(result: Mapping[str, Any], ranks: pd.DataFrame) -> float | None:
    """The SumR of a random ranking for an entry of `metrics.json` with its ranks; None by category."""
    signed = signature_of(result)
    return chance.sum_r(result, ranks, signed.pos) if signed else None


def levels(artifact: Artifact) -> list[float | None]:
    """The chance level of every result of an evaluation; None without ranks of today's form."""
    results = evaluation.results(artifact)
    try:
        ranks = evaluation.read_ranks(artifact)
    except ArtifactError:
        return [None] * len(results)
    return [level(result, ranks[ranks["result"] == n]) for n, result in enumerate(results)]


def is_close(value: float | None, interval: tuple[float, float] | None, expected: float | None) -> bool:
    """Whether a SumR is close to the one that is expected by chance."""
    if value is None or interval is None or expected is None:
        return False
    return value - expected <= MARGIN * half_width(interval)
