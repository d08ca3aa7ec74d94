"""Local false-discovery rate against the known null of shuffled pairs (Efron).

The scores of the training pairs are a mixture f = pi0 f_wrong + (1 - pi0) f_right. Shuffled pairs show the mean and
width of the scores of pairs that do not match. But mismatched pairs that were trained on score higher than shuffled
ones, since the model has begun to memorise them (by 1.3 standard deviations of the null for infonce on the bundled
data, 40 % noise), and Storey's estimate of pi0 from the lower half of the null then misses most of them. So f_wrong is
Efron's *empirical null* ("Large-scale simultaneous hypothesis testing", JASA 2004): a Gaussian whose mean and width are
fitted, together with pi0 and a Gaussian f_right, by expectation maximisation, and tethered to the shuffled pairs. The
free mixture of `gmm` has no tether: where nothing is wrong, `gmm` must split the clean pairs, while here pi0 goes to 0,
since no pair looks shuffled. (The shifted density of the shuffled pairs in place of the Gaussian was worse on real
data: training removes the right tail of shuffled pairs that match by accident.)

Limits: it misses mismatches that are memorised beyond the tether; and while the model cannot yet distinguish right
pairs from shuffled ones (AUROC below 0.9), it reports wrong pairs where there are none.

Shapes: N training pairs, M pairs of the null, G bins.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from ccr_cli.judges.base import EpochJudge, FloatArray, all_equal, epoch_scores, rising_interval

MAX_SHARE_OF_LEAD = 0.5  # f_wrong lies nearer to the null than to f_right
LEAST_LEAD = 1.5  # of f_right, in widths of the null: below, the two are indistinguishable
WIDTH = (0.8, 2.0)  # of f_wrong
_PRIOR = 5.0  # weight of the null in the fit of mean and width, in pairs
LEAST_WIDTH = 0.2  # of f_right
_BINS, _ROUNDS, _TOLERANCE, _TINY = 4096, 1000, 1e-6, 1e-12


class GaussianPair(NamedTuple):
    """The fitted mixture; scores are standardised by mean and standard deviation of the null."""

    pi0: float
    """Share of mismatched pairs."""
    shift: float
    """Mean of the mismatched training pairs."""
    width: float
    """Standard deviation of the mismatched pairs."""
    lead: float
    """Mean of the matching pairs."""
    right_width: float
    """Standard deviation of the matching pairs."""


def clean_probability(score_N: npt.ArrayLike, null_M: npt.ArrayLike) -> FloatArray:
    """Probability of matching, (1 - pi0) f_right / f, at every score, without a threshold.

    1 for all if the scores of the null sample, or those of the pairs, are all equal.
    """
    score_N, null_M = epoch_scores(score_N, "score_N"), np.sort(epoch_scores(null_M, "null_M"))
    if len(score_N) == 0 or len(null_M) < 2 or all_equal(null_M) or all_equal(score_N):
        return np.ones(len(score_N))
    mixture = fit(score_N, null_M)
    low, high = (mixture.shift, mixture.width), (mixture.lead, mixture.right_width)
    held_N = np.clip((score_N - null_M.mean()) / null_M.std(), *rising_interval(low, high))
    return np.asarray(expit(_log_odds(mixture, held_N)), dtype=np.float64)


def fit(score_N: npt.ArrayLike, null_M: npt.ArrayLike) -> GaussianPair:
    """Fits the mixture to N > 0 pairs and a null sample that is not all equal."""
    score_N, null_M = np.sort(epoch_scores(score_N, "score_N")), np.sort(epoch_scores(null_M, "null_M"))
    x_N = (score_N - null_M.mean()) / null_M.std()
    count_G, edges = np.histogram(x_N, _BINS)
    x_G = (edges[1:] + edges[:-1]) / 2
    now = GaussianPair(0.3, 0.0, 1.0, max(float(np.quantile(x_N, 0.75)), LEAST_LEAD), max(0.3, float(x_N.std()) / 2))
    for _ in range(_ROUNDS):
        right_G = count_G * expit(_log_odds(now, x_G))
        wrong_G = count_G - right_G
        lead, right_width = now.lead, now.right_width
        if right_G.sum() >= 1:
            lead = max(LEAST_LEAD, float((right_G * x_G).sum() / right_G.sum()))
            right_width = max(LEAST_WIDTH, float(np.sqrt((right_G * (x_G - lead) ** 2).sum() / right_G.sum())))
        weight = wrong_G.sum() + _PRIOR
        shift = float(np.clip((wrong_G * x_G).sum() / weight, 0.0, MAX_SHARE_OF_LEAD * lead))
        width = float(np.sqrt(((wrong_G * (x_G - shift) ** 2).sum() + _PRIOR) / weight))
        before = now
        now = GaussianPair(float(wrong_G.sum()) / len(x_N), shift, float(np.clip(width, *WIDTH)), lead, right_width)
        if max(abs(a - b) for a, b in zip(before, now, strict=True)) < _TOLERANCE:
            break
    return now


def _log_odds(mixture: GaussianPair, x: FloatArray) -> FloatArray:
    """Log-odds of matching against mismatched, at standardised scores."""
    right = (
        np.log(max(1 - mixture.pi0, _TINY) / mixture.right_width)
        - 0.5 * ((x - mixture.lead) / mixture.right_width) ** 2
    )
    wrong = np.log(max(mixture.pi0, _TINY) / mixture.width) - 0.5 * ((x - mixture.shift) / mixture.width) ** 2
    return np.asarray(right - wrong, dtype=np.float64)


JUDGE = EpochJudge(clean_probability)
