"""How numbers are written."""

from __future__ import annotations

import doctest
import math

from ccr_cli.report.words import numbers


def test_the_examples_hold() -> None:
    assert doctest.testmod(numbers).failed == 0 and doctest.testmod(numbers).attempted > 7


def test_kinds_of_figures_have_their_decimals() -> None:
    assert (numbers.metric(187.06), numbers.probability(0.9312), numbers.similarity(0.317)) == (
        "187.1",
        "0.931",
        "0.32",
    )
    assert numbers.probability(-0.01, sign=True) == "\u22120.010"


def test_zero_has_no_minus() -> None:
    assert numbers.metric(-0.04) == "0.0" and numbers.ends(-0.01, 0.0, sign=True) == "+0.0 to +0.0"


def test_what_is_unknown_is_a_dash() -> None:
    for value in (None, math.nan):
        assert numbers.metric(value) == numbers.percent(value) == numbers.MISSING
    assert numbers.with_interval(None, (1.0, 2.0)) == numbers.MISSING
    assert numbers.mean_sd(1.0, math.nan) == "1.0"
