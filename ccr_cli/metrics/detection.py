"""How well a probability of being clean detects mismatched pairs, measured against a known truth.

The *noisy* pairs are the positive class, and a pair's score is higher the less it is believed. Different lengths and
NaN scores raise ValueError.

Shape legend: N pairs.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def auroc(score: ArrayLike, truth: ArrayLike) -> float | None:
    """Probability that a true entry (N,) scores higher than a false one, ties counting half (Mann-Whitney).

    None if one of the two classes is empty.

    >>> auroc([0.1, 0.4, 0.4, 0.8], [False, False, True, True])
    0.875
    """
    score_N, truth_N = _pair(score, truth)
    n_true = int(truth_N.sum())
    n_false = len(truth_N) - n_true
    if n_true == 0 or n_false == 0:
        return None
    _, code, count = np.unique(score_N, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - (count - 1) / 2.0
    above = float(middle[code][truth_N].sum()) - n_true * (n_true + 1) / 2.0
    return above / n_true / n_false


def average_precision(score: ArrayLike, truth: ArrayLike) -> float | None:
    """Area under the precision-recall curve as the sum of precision times the gain in recall.

    Entries of equal score pass any threshold together, so they enter the curve as one step (as scikit-learn
    does); a constant score has the share of true entries as its value. None if no entry is true.
    """
    score_N, truth_N = _pair(score, truth)
    if not truth_N.any():
        return None
    values, code = np.unique(-score_N, return_inverse=True)
    found = np.cumsum(np.bincount(code, weights=truth_N, minlength=len(values)))
    called = np.cumsum(np.bincount(code, minlength=len(values)))
    return float((np.diff(found, prepend=0.0) * found / called).sum() / truth_N.sum())


def detection(p_clean: ArrayLike, is_noisy: ArrayLike, called: float | ArrayLike) -> dict[str, Any]:
    """Quality of a judge's probabilities (N,) against the true mismatches (N,).

    Genuinely bad translations count as clean in a synthetic truth, so even a perfect judge raises false alarms there.
    `called` is a threshold below which a pair is called noisy, or (N,) booleans.

    Returns:
        `auroc`, `average_precision` (of the continuous probability); the `threshold`, if there is one; of the calls
            `precision`, `recall` (= share of mismatches found), `f1`, `false_alarms` (share of intact pairs called
            noisy), `accuracy`; and the counts `pairs`, `noisy`, `called`, `found`. What an empty class leaves undefined
            is None.
    """
    clean_N, noisy_N = _pair(p_clean, is_noisy)
    threshold = float(called) if isinstance(called, (int, float)) else None
    called_N = clean_N < threshold if threshold is not None else _pair(clean_N, called)[1]
    n, noisy, calls = len(noisy_N), int(noisy_N.sum()), int(called_N.sum())
    found = int((called_N & noisy_N).sum())
    return {
        "auroc": auroc(-clean_N, noisy_N),
        "average_precision": average_precision(-clean_N, noisy_N),
        "threshold": threshold,
        "precision": _share(found, calls),
        "recall": _share(found, noisy),
        "f1": _share(2 * found, noisy + calls) if noisy else None,
        "false_alarms": _share(calls - found, n - noisy),
        "accuracy": _share(n - noisy - calls + 2 * found, n),
        "pairs": n,
        "noisy": noisy,
        "called": calls,
        "found": found,
    }


def belief_calibration(p_clean: ArrayLike, is_noisy: ArrayLike, *, bins: int = 10) -> dict[str, Any]:
    """Measures whether pairs (N,) that are believed with probability p are intact with probability p.

    Returns:
        `brier`, the mean squared error of the probabilities; `brier_constant`, that of the true share as probability
        of every pair; `ece`, the mean gap between probability and share over bins of equal width, weighted by their
        pairs; and the `bins` that are not empty with `p_clean` (mean), `clean` (share) and `pairs`. None where there is
        no pair.
    """
    clean_N, noisy_N = _pair(p_clean, is_noisy)
    if len(clean_N) == 0:
        return {"brier": None, "brier_constant": None, "ece": None, "bins": []}
    if clean_N.min() < 0.0 or clean_N.max() > 1.0:
        raise ValueError("probabilities lie in [0, 1]")
    intact_N = ~noisy_N
    bin_N = np.minimum((clean_N * bins).astype(int), bins - 1)
    filled, code_N, pairs = np.unique(bin_N, return_inverse=True, return_counts=True)
    stated, true = (np.bincount(code_N, weights=w, minlength=len(filled)) / pairs for w in (clean_N, intact_N))
    share = float(intact_N.mean())
    return {
        "brier": float(((clean_N - intact_N) ** 2).mean()),
        "brier_constant": share * (1 - share),
        "ece": float((pairs * np.abs(stated - true)).sum() / pairs.sum()),
        "bins": [
            {"p_clean": float(p), "clean": float(t), "pairs": int(n)}
            for p, t, n in zip(stated, true, pairs, strict=True)
        ],
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _pair(score: ArrayLike, truth: ArrayLike) -> tuple[FloatArray, BoolArray]:
    score_N = np.asarray(score, dtype=np.float64)
    truth_N = np.asarray(truth).astype(bool)
    if score_N.ndim != 1 or score_N.shape != truth_N.shape:
        raise ValueError(f"scores of shape {score_N.shape} against a truth of shape {truth_N.shape}")
    if np.isnan(score_N).any():
        raise ValueError(f"{int(np.isnan(score_N).sum())} of {len(score_N)} scores are NaN")
    return score_N, truth_N
