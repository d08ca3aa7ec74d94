"""How numbers are written in sentences, messages, tables and pages.

Imports neither torch nor pandas, so commands can use it without delay.
"""

import math
from collections.abc import Collection
from functools import partial

MISSING = "\u2013"
"""Stands for a number that is undefined or unknown: an en dash."""
MINUS = "\u2212"


def decimal(value: float | None, digits: int = 1, *, sign: bool = False) -> str:
    """A number with fixed decimals and a typographic minus (none before zero); whole numbers have commas.

    >>> decimal(63.44), decimal(-0.5, 2), decimal(-0.01, sign=True), decimal(1234, 0), decimal(None)
    ('63.4', '\u22120.50', '+0.0', '1,234', '\u2013')
    """
    if value is None or math.isnan(value):
        return MISSING
    return format(value, f"{'+' if sign else ''}z{'' if digits else ','}.{digits}f").replace("-", MINUS)


metric = partial(decimal, digits=1)
"""A retrieval metric or a translation score out of 100 (SumR: out of 600): one decimal."""
probability = partial(decimal, digits=3)
"""An AUROC, a probability, a calibration error or an uncertainty: three decimals."""
similarity = partial(decimal, digits=2)
"""A similarity, or a probability where space is short: two decimals."""


def percent(share: float | None, digits: int | None = None) -> str:
    """A share in percent: with fixed decimals, or by default without needless digits.

    >>> percent(0.4), percent(0.125), percent(0.4, 1), percent(None)
    ('40%', '12.5%', '40.0%', '\u2013')
    """
    if share is None or math.isnan(share):
        return MISSING
    return f"{100 * share:.3g}%" if digits is None else f"{100 * share:.{digits}f}%"


def likely(probability: float | None) -> str:
    """The probability that a search result is right, in whole percent; empty if it is unknown.

    >>> likely(0.931), likely(0.0004), likely(None)
    ('93% likely', '<1% likely', '')
    """
    if probability is None:
        return ""
    return f"{'<1' if probability < 0.005 else round(100 * probability)}% likely"


def mean_sd(mean: float, sd: float | None) -> str:
    """A mean with its standard deviation, or any figure with its margin.

    >>> mean_sd(120.04, 3.25), mean_sd(120.04, None)
    ('120.0 ± 3.2', '120.0')
    """
    return metric(mean) if sd is None or not math.isfinite(sd) else f"{metric(mean)} ± {sd:.1f}"


def with_interval(value: float | None, interval: Collection[float] | None) -> str:
    """A figure with half the width of its interval.

    >>> with_interval(63.4, (61.0, 65.0)), with_interval(63.4, None)
    ('63.4 ± 2.0', '63.4')
    """
    if value is None or not interval:
        return metric(value)
    return mean_sd(value, half_width(interval))


def half_width(interval: Collection[float]) -> float:
    """Half the width of an interval."""
    low, high = interval
    return (high - low) / 2


def ends(low: float, high: float, digits: int = 1, *, sign: bool = False) -> str:
    """The ends of an interval.

    >>> ends(-1.5, 2.0)
    '\u22121.5 to 2.0'
    """
    return f"{decimal(low, digits, sign=sign)} to {decimal(high, digits, sign=sign)}"


def count_range(counts: Collection[int]) -> str:
    """How many, where that varies.

    >>> count_range([3, 3]), count_range([2, 5])
    ('3', '2 to 5')
    """
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def duration(seconds: float) -> str:
    """A length of time.

    >>> duration(45.3), duration(200), duration(9000)
    ('45 s', '3.3 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def listed(names: Collection[str], last: str = "and") -> str:
    """Names in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *others, final = names
    return f"{', '.join(others)} {last} {final}" if others else final
