"""How numbers are written."""

from __future__ import annotations

import doctest
import math

from ccr_cli.report.words import numbers


def test_the_examples_hold() -> None:
    assert doctest.testmod(numbers).failed == 0 and doctest.testmod(numbers).attempted > 10


def test_what_is_unknown_is_a_dash() -> None:
    for value in (None, math.nan):
        assert numbers.metric(value) == numbers.percent(value) == numbers.MISSING
    assert numbers.with_interval(None, (1.0, 2.0)) == numbers.MISSING
    assert numbers.mean_sd(1.0, math.nan) == "1.0"
