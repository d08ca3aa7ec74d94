"""The truth about synthetic noise: an upper bound, never a result."""

import numpy as np
import numpy.typing as npt

from ccr_cli.judges.base import Belief, FloatArray, Judge, Opinion, Readings


def clean_probability(wrong_N: npt.NDArray[np.bool_]) -> FloatArray:
    """0 where the pair was mismatched on purpose, 1 elsewhere, shape (N,)."""
    wrong_N = np.asarray(wrong_N)
    if wrong_N.ndim != 1 or wrong_N.dtype != np.bool_:
        raise ValueError(f"expected booleans of shape (N,), not {wrong_N.dtype} of shape {wrong_N.shape}")
    return 1.0 - wrong_N.astype(np.float64)


class Oracle(Judge):
    """Reads which pairs synthetic noise mismatched."""

    speaks = "start"
    knows_truth = True

    def judge(self, readings: Readings, side: str) -> Opinion:
        """1 for intact pairs, 0 for mismatched ones; all 1 without synthetic noise."""
        wrong = readings.wrong()
        if wrong is None:
            return Opinion(Belief(*[np.ones(len(readings))] * 3))
        return Opinion(Belief(*(clean_probability(wrong[name]) for name in ("VS", "VT", "ST"))))


JUDGE = Oracle()
