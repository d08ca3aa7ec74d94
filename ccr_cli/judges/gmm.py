"""Two Gaussians fitted to the pairs' similarities; the upper one is clean.

The judge of NCR (Huang et al., NeurIPS 2021) on similarities instead of losses. It splits
the pairs even if all are clean; ``two-group`` does not.
"""

import warnings

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from ccr_cli.judges.base import EpochJudge, FloatArray, all_equal, epoch_scores, rising_interval


def clean_probability(score_N: npt.ArrayLike, null_M: npt.ArrayLike | None = None) -> FloatArray:
    """Posterior probability of the component with the larger mean.

    The fit starts from two quantiles of the standardised scores, without randomness, and runs until the
    likelihood converges: at scikit-learn's default tolerance 10 % of mismatches come out as 29 %.
    Gaussians of unequal width cross twice: beyond the turning point of the log-odds the posterior would fall
    again as the score rises, so it is held at its value there. 1 for all with fewer than two distinct scores.
    The null sample is not used.
    """
    score_N = epoch_scores(score_N, "score_N")
    if len(score_N) < 2 or all_equal(score_N):
        return np.ones(len(score_N))
    ordered_N = np.sort(score_N)  # sums do not depend on the order of the pairs
    mean, deviation = float(ordered_N.mean()), float(ordered_N.std())
    x_N = (ordered_N - mean) / deviation
    start = np.quantile(x_N, [0.05, 0.75])
    if start[0] == start[1]:
        start = np.array([x_N[0], x_N[-1]])
    mixture = GaussianMixture(
        2,
        means_init=start[:, None],
        weights_init=[0.5, 0.5],
        precisions_init=np.ones((2, 1, 1)),
        reg_covar=1e-4,
        tol=1e-5,
        max_iter=1000,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a split that converges slowly is still an answer
        mixture.fit(x_N[:, None])
    low, high = np.argsort(mixture.means_[:, 0], kind="stable")
    places, widths = mixture.means_[:, 0], np.sqrt(mixture.covariances_[:, 0, 0])
    bounds = rising_interval((places[low], widths[low]), (places[high], widths[high]))
    held_N = np.clip((score_N - mean) / deviation, *bounds)
    return np.asarray(mixture.predict_proba(held_N[:, None])[:, high], dtype=np.float64)


JUDGE = EpochJudge(clean_probability)
