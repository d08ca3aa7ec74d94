"""Probabilities from scores, by logistic regression.

Shape legend: N outcomes, I scores of each, K results of a query.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ccr_cli.metrics.ranks import FloatArray


def logistic(x_NI: ArrayLike, y_N: ArrayLike) -> FloatArray:
    """Slopes and constant (I + 1,) of a logistic regression of outcomes (N,) on scores (N, I).

    Platt scaling: "Probabilistic outputs for support vector machines", 1999. `y_N` must contain both outcomes.
    """
    from sklearn.linear_model import LogisticRegression  # takes a second, and only this needs it

    x_NI = np.asarray(x_NI, dtype=np.float64)
    middle, scale = x_NI.mean(axis=0), x_NI.std(axis=0) + 1e-12
    regression = LogisticRegression(C=1e3, max_iter=1000).fit((x_NI - middle) / scale, y_N)
    slopes = regression.coef_[0] / scale
    return np.append(slopes, regression.intercept_[0] - slopes @ middle)


@dataclass(frozen=True)
class HitProbability:
    """The probability that a query's result is right: a logistic regression on its similarity and its place."""

    similarity: float
    """Slope of the similarity, greater than 0."""
    log_place: float
    """Slope of the logarithm of the place, at most 0."""
    constant: float

    @classmethod
    def fitted(cls, results: Iterable[Sequence[tuple[float, bool]]], least: int) -> "HitProbability | None":
        """Fits the regression to the results of queries, best first: similarity, and whether the result is right.

        None if fewer than `least` results are right, or wrong, or if more similar ones are not right more often.
        """
        rows = [(sim, math.log(place), right) for found in results for place, (sim, right) in enumerate(found, 1)]
        x_N3 = np.array(rows, dtype=np.float64).reshape(-1, 3)
        right = int(x_N3[:, 2].sum())
        if min(right, len(rows) - right) < least:
            return None
        slopes = logistic(x_N3[:, :2], x_N3[:, 2])
        if slopes[1] > 0:  # a later place never makes a result more probable
            slopes = np.insert(logistic(x_N3[:, :1], x_N3[:, 2]), 1, 0.0)
        return cls(*slopes.tolist()) if slopes[0] > 0 else None

    def of(self, similarities: Sequence[float]) -> list[float]:
        """The probability of each result of a query, best first."""
        place_K = np.arange(1, len(similarities) + 1)
        logit_K = self.similarity * np.asarray(similarities) + self.log_place * np.log(place_K) + self.constant
        return list(((1 + np.tanh(logit_K / 2)) / 2).tolist())
