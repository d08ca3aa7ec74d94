"""The judge of all three sides, on synthetic triplets whose truth is known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from ccr_cli.judges import triangle

Array = npt.NDArray[np.float64]
RIGHT = ((0.35, 0.08), (0.3, 0.08), (0.6, 0.1))
"""Mean and standard deviation of a matching V-S, V-T and S-T; where it does not match N(0.05, 0.1)."""
SIDES = ("VS", "VT", "ST")
FAILS = {"none": (), "translation": ("VT", "ST"), "visual": ("VS", "VT"), "source": ("VS", "ST"), "all": SIDES}


def draw(shares: dict[str, float], count: int = 8000, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Scores, null, which sides match, and the true posterior of that."""
    rng = np.random.default_rng(seed)
    names = list(FAILS)
    prior = np.array([shares.get(name, 0.0) for name in names])
    prior[0] = 1 - prior.sum()
    drawn = rng.choice(len(names), count, p=prior)
    fails = np.array([[side in FAILS[name] for side in SIDES] for name in names])
    place, width = np.array(RIGHT).T
    wrong = fails[drawn]
    score = np.where(wrong, rng.normal(0.05, 0.1, (count, 3)), rng.normal(place, width, (count, 3)))
    right_density, wrong_density = norm.pdf(score, place, width), norm.pdf(score, 0.05, 0.1)
    joint = np.stack([prior[h] * np.where(fails[h], wrong_density, right_density).prod(1) for h in range(5)], axis=1)
    posterior = joint / joint.sum(1, keepdims=True) @ ~fails
    return score, rng.normal(0.05, 0.1, (count, 3)), ~wrong, posterior


NOISE = [
    pytest.param({"translation": 0.4}, id="translations"),
    pytest.param({"visual": 0.4}, id="pictures"),
    pytest.param({"source": 0.2}, id="sources"),
    pytest.param({"translation": 0.2, "visual": 0.2, "source": 0.05, "all": 0.1}, id="everything"),
    pytest.param({"translation": 0.8}, id="most"),
]


@pytest.mark.parametrize("shares", NOISE)
def test_finds_what_is_wrong_without_being_told_where_to_look(shares: dict[str, float]) -> None:
    score, null, match, posterior = draw(shares)
    got = triangle.clean_probability(score, null)
    assert np.abs(got - posterior).mean() < 0.02
    for side in range(3):
        if not match[:, side].all():
            best = roc_auc_score(match[:, side], posterior[:, side])
            assert roc_auc_score(match[:, side], got[:, side]) > best - 0.005
    found = dict(zip(triangle.HYPOTHESES, triangle.fit(score, null).share_H, strict=True))
    assert {name: pytest.approx(found[name], abs=0.03) for name in shares} == shares


def test_nothing_is_wrong_and_it_says_so() -> None:
    for seed in range(3):
        score, null, _, _ = draw({}, seed=seed)
        got = triangle.clean_probability(score, null)
        assert (got < 0.5).mean() < 0.005 and got.mean() > 0.99


def test_two_sides_that_match_make_the_third_match() -> None:
    """Exactly one failing side is no hypothesis: S-T far below its place is put down to chance."""
    score, null, _, _ = draw({"translation": 0.3})
    odd = np.array([[0.35, 0.3, 0.32]])  # between right and shuffled
    together = triangle.clean_probability(np.concatenate([score, odd]), null)[-1]
    alone = triangle.clean_probability(np.concatenate([score, [[0.05, 0.05, 0.32]]]), null)[-1]
    assert (together > 0.9).all() and alone[2] < 0.2


def test_any_order_gives_the_same_answers() -> None:
    score, null, _, _ = draw({"translation": 0.3, "visual": 0.1}, count=2000)
    order = np.random.default_rng(1).permutation(len(score))
    got = triangle.clean_probability(score, null)
    np.testing.assert_allclose(triangle.clean_probability(score[order], null), got[order], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(triangle.clean_probability(score.copy(), null), got)


@pytest.mark.parametrize("size", [1, 2, 3, 20])
def test_few_triplets(size: int) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        got = triangle.clean_probability(rng.normal(0.2, 0.2, (size, 3)), rng.normal(0, 0.1, (size, 3)))
        assert got.shape == (size, 3) and np.isfinite(got).all() and (got >= 0).all() and (got <= 1).all()


def test_no_information_is_clean() -> None:
    flat = np.full((30, 3), 0.3)
    assert (triangle.clean_probability(flat, flat) == 1).all()
    assert triangle.clean_probability(np.empty((0, 3)), flat).shape == (0, 3)
    null = np.random.default_rng(0).normal(0, 0.1, (100, 3))
    null[:, 1] = 0.0  # one side says nothing: a text encoder that has collapsed
    assert (triangle.clean_probability(flat, null) == 1).all()


def test_wrong_input_is_refused() -> None:
    good = np.zeros((4, 3))
    with pytest.raises(ValueError, match=r"score_N3: .* shape \(4,\)"):
        triangle.clean_probability(np.zeros(4), good)
    with pytest.raises(ValueError, match=r"null_M3: 1 of 12\b"):
        triangle.clean_probability(good, np.where(np.arange(12).reshape(4, 3) == 5, np.nan, good))


def test_weights_are_over_the_hypotheses_and_sides_are_their_sums() -> None:
    score, null, _, _ = draw({"translation": 0.3, "source": 0.1})
    p_NH = triangle.weigh(score, null)
    np.testing.assert_allclose(p_NH.sum(1), 1)
    none, translation, visual, source, everything = range(5)
    got = triangle.clean_probability(score, null)
    for side, kept in enumerate(((none, translation), (none, source), (none, visual))):
        np.testing.assert_allclose(got[:, side], p_NH[:, kept].sum(1), atol=1e-12)
    np.testing.assert_allclose(p_NH.mean(0)[[translation, source, everything]], [0.3, 0.1, 0.0], atol=0.02)
    flat = np.full((4, 3), 0.3)
    np.testing.assert_array_equal(triangle.weigh(flat, flat), np.eye(5)[[0] * 4])


def test_right_pairs_of_one_similarity() -> None:
    score, null, match, _ = draw({"translation": 0.4}, count=50, seed=1)
    score[match[:, 2], 2] = 0.6
    got = triangle.clean_probability(score, null)
    assert np.isfinite(got).all()
    assert ((got > 0.5) == match).all()
