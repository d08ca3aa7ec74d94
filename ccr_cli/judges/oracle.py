"""The truth about synthetic noise: a ceiling, never a result."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ccr_cli.judges.base import FloatArray, Scope

SCOPE: Scope = "truth"


def clean_probability(wrong_N: npt.NDArray[np.bool_]) -> FloatArray:
    """0 where the pair was mismatched on purpose, 1 elsewhere, shape (N,).

    Raises:
        ValueError: not a one-dimensional array of booleans.
    """
    wrong_N = np.asarray(wrong_N)
    if wrong_N.ndim != 1 or wrong_N.dtype != np.bool_:
        raise ValueError(f"want booleans of shape (N,), got {wrong_N.dtype} of shape {wrong_N.shape}")
    return 1.0 - wrong_N.astype(np.float64)
