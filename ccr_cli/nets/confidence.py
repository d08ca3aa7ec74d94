"""Confidence in a query's first hit, calibrated on queries whose answer is known.

Shape suffixes: Q queries, K most similar items.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


class Confidence(nn.Module):
    """Probability that the first hit is right, from its similarity and its lead over the second (Platt scaling).

    Platt, "Probabilistic outputs for support vector machines", 1999. Until it is fitted, it knows nothing and says
    one half.
    """

    def __init__(self) -> None:
        super().__init__()
        self.coefficients = nn.Buffer(torch.zeros(3, dtype=torch.float64))  # of similarity, lead, and the constant

    def forward(self, top_QK: Tensor) -> Tensor:
        """Returns the probability (Q,), from similarities in descending order; a lone item leads over -1."""
        return torch.sigmoid(self._inputs(top_QK) @ self.coefficients).to(top_QK.dtype)

    def fit(self, top_QK: Tensor, right_Q: Tensor) -> None:
        """Fits the coefficients by logistic regression; where all queries agree they stay unchanged.

        `top_QK` are similarities of the most similar items, descending, K >= 1; `right_Q` whether the first is right.
        """
        y_Q = right_Q.cpu().numpy()
        if len(np.unique(y_Q)) < 2:
            return
        x_Q2 = self._inputs(top_QK)[:, :2].cpu().numpy()
        # a greater similarity or lead never makes a hit less sure: an input that says so is left out. Where both
        # together say so, the best fit has one of them, or none; its constant is then the hit rate's
        fits = [_fitted(x_Q2, y_Q, inputs) for inputs in ([0, 1], [0], [1], [])]
        if (fits[0][:2] < 0).any():
            fits = [fit for fit in fits[1:] if (fit[:2] >= 0).all()]
            fits.sort(key=lambda fit: float(np.logaddexp(0, (0.5 - y_Q) * 2 * (x_Q2 @ fit[:2] + fit[2])).sum()))
        self.coefficients.copy_(torch.from_numpy(fits[0]))

    @staticmethod
    def _inputs(top_QK: Tensor) -> Tensor:
        top_QK = top_QK.double()
        second_Q = top_QK[:, 1] if top_QK.shape[1] > 1 else torch.full_like(top_QK[:, 0], -1.0)
        return torch.stack([top_QK[:, 0], top_QK[:, 0] - second_Q, torch.ones_like(second_Q)], dim=1)


def _fitted(x_Q2: FloatArray, y_Q: BoolArray, inputs: list[int]) -> FloatArray:
    """Slopes (0 for omitted inputs) and constant of a logistic regression on some of the inputs."""
    out = np.array([0.0, 0.0, np.log(y_Q.mean() / (1 - y_Q.mean()))])
    if inputs:
        middle, scale = x_Q2[:, inputs].mean(axis=0), x_Q2[:, inputs].std(axis=0) + 1e-12
        regression = LogisticRegression(C=1e3, max_iter=1000).fit((x_Q2[:, inputs] - middle) / scale, y_Q)
        out[inputs] = regression.coef_[0] / scale
        out[2] = regression.intercept_[0] - out[inputs] @ middle
    return out
