"""Figures of a review against their definitions in double precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

from ccr_cli.metrics import review


@pytest.mark.parametrize(("wrong", "judged"), [(0, 1), (1, 1), (0, 20), (7, 20), (499, 500)])
def test_wilsons_interval_solves_its_equation(wrong: int, judged: int) -> None:
    """Its ends are the shares p from which the observed one is 1.96 standard errors of p away."""
    found = review.share(wrong, judged)
    assert found is not None and found[0] == wrong / judged
    for end, sign in zip(found[1:], (1, -1), strict=True):
        if 1e-12 < end < 1 - 1e-12:
            away = (wrong / judged - end) / math.sqrt(end * (1 - end) / judged)
            assert away == pytest.approx(sign * 1.959963984540054, abs=1e-9)
        else:
            assert wrong in (0, judged)
    assert review.share(0, 0) is None


@pytest.mark.parametrize("wrong", [0, 3, 50])
def test_what_the_next_pairs_bring(wrong: int) -> None:
    """The integral over the share p of 20 p, weighted by likelihood and Jeffreys' prior; p = sin²(t)."""

    def weight(t: float) -> float:
        return math.sin(t) ** (2 * wrong) * math.cos(t) ** (2 * (50 - wrong))

    mean = quad(lambda t: 20 * math.sin(t) ** 2 * weight(t), 0, math.pi / 2)[0] / quad(weight, 0, math.pi / 2)[0]
    last = [True] * wrong + [False] * (50 - wrong)
    assert review.expected([True] * 30 + last) == pytest.approx(mean, rel=1e-6)
    assert review.expected(last[1:]) is None


def test_agreement_is_cohens() -> None:
    rng = np.random.default_rng(0)
    one, other = (rng.choice(["clean", "noisy"], 40, p=p) for p in ([0.7, 0.3], [0.4, 0.6]))
    equal, kappa = review.agreement(list(one), list(other))
    by_chance = sum((one == v).mean() * (other == v).mean() for v in ("clean", "noisy"))
    assert equal == (one == other).mean() and kappa == pytest.approx((equal - by_chance) / (1 - by_chance))
    assert review.agreement(["clean"] * 3, ["clean"] * 3) == (1.0, None)
