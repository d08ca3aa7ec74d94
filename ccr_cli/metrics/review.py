"""Figures of a review: the share of wrong pairs, how many to expect next, and the agreement of two people."""

from collections.abc import Sequence

from scipy.stats import binomtest
from sklearn.metrics import cohen_kappa_score

WINDOW, AHEAD = 50, 20
"""Number of last pairs to predict from, and of next pairs to predict."""


def share(wrong: int, judged: int) -> tuple[float, float, float] | None:
    """The share of wrong pairs with Wilson's 95 % interval (JASA 22, 1927); None without pairs.

    >>> [round(x, 3) for x in share(3, 10)]
    [0.3, 0.108, 0.603]
    """
    if not judged:
        return None
    interval = binomtest(wrong, judged).proportion_ci(0.95, method="wilson")
    return wrong / judged, float(interval.low), float(interval.high)


def expected(recent: Sequence[bool]) -> float | None:
    """Expected number of wrong pairs among the next `AHEAD`, given the last `WINDOW`; None with fewer.

    The posterior mean under Jeffreys' prior, Beta(1/2, 1/2) (Brown, Cai and DasGupta, Statistical Science 16, 2001),
    as if the next ones were like the last. In a list with the most suspicious pairs first, they tend to be better.

    >>> round(expected([False] * 50), 3), expected([True])
    (0.196, None)
    """
    if len(recent) < WINDOW:
        return None
    return AHEAD * (sum(recent[-WINDOW:]) + 0.5) / (WINDOW + 1)


def agreement(one: Sequence[str], other: Sequence[str]) -> tuple[float, float | None]:
    """The share of equal verdicts of two people, and Cohen's kappa: None if all verdicts are the same.

    >>> agreement(["clean", "noisy", "noisy", "clean"], ["clean", "noisy", "clean", "clean"])
    (0.75, 0.5)
    """
    equal = sum(a == b for a, b in zip(one, other, strict=True)) / len(one)
    return equal, float(cohen_kappa_score(one, other)) if len({*one, *other}) > 1 else None
