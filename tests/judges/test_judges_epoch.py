"""Judges that look at a whole epoch, on synthetic scores whose truth is known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from ccr_cli.judges import beta, gmm, osa, two_group

Array = npt.NDArray[np.float64]
EPOCH = {"gmm": gmm, "two-group": two_group}
EVERY = {**EPOCH, "beta": beta, "osa": osa}
"""Also one that is fitted to losses, and one that is no posterior."""
RIGHT = (0.45, 0.1)  # mean and standard deviation of matching pairs; the null is N(0.05, 0.1)


def draw(
    pi0: float, count: int = 20_000, shift: float = 0.0, right: tuple[float, float] = RIGHT, seed: int = 0
) -> tuple[Array, Array, npt.NDArray[np.bool_], Array]:
    """Scores, null, truth and true posterior; mismatches lie ``shift`` standard deviations above the null."""
    rng = np.random.default_rng(seed)
    wrong = rng.random(count) < pi0
    score = np.where(wrong, rng.normal(0.05 + shift * 0.1, 0.1, count), rng.normal(*right, count))
    low = pi0 * norm.pdf(score, 0.05 + shift * 0.1, 0.1)
    high = (1 - pi0) * norm.pdf(score, *right)
    return score, rng.normal(0.05, 0.1, count), wrong, high / (low + high)


@pytest.mark.parametrize("pi0", [0.1, 0.2, 0.4, 0.6])
@pytest.mark.parametrize("name", EPOCH)
def test_finds_the_truth_where_the_model_holds(name: str, pi0: float) -> None:
    score, null, wrong, posterior = draw(pi0)
    got = EPOCH[name].clean_probability(score, null)
    assert roc_auc_score(~wrong, got) > roc_auc_score(~wrong, posterior) - 0.003
    assert np.abs(got - posterior).mean() < 0.015
    for low, high in ((0.1, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 0.9)):  # where it says 60 %, 60 % are clean
        inside = (got >= low) & (got < high)
        assert (~wrong[inside]).mean() == pytest.approx(got[inside].mean(), abs=0.15)


@pytest.mark.parametrize("pi0", [0.2, 0.4, 0.6])
@pytest.mark.parametrize("shift", [0.0, 0.45, 0.8])
def test_two_group_estimates_the_share_of_memorised_mismatches(pi0: float, shift: float) -> None:
    # Storey's estimate alone: 2 pi0 Phi(-shift), e.g. 0.26 of 0.4 at a shift of 0.45
    score, null, wrong, posterior = draw(pi0, shift=shift, right=(0.32, 0.07))
    found = two_group.fit(score, null)
    assert found.pi0 == pytest.approx(wrong.mean(), abs=0.08)
    assert found.shift == pytest.approx(shift, abs=0.2)
    got = two_group.clean_probability(score, null)
    for group in (wrong, ~wrong):  # against the best that is possible
        assert (got[group] < 0.5).mean() == pytest.approx((posterior[group] < 0.5).mean(), abs=0.1)


@pytest.mark.parametrize(
    ("right", "least"),
    [((0.45, 0.1), 0.99), ((0.32, 0.07), 0.98), ((0.29, 0.06), 0.98), ((0.25, 0.09), 0.96)],
)
def test_two_group_says_so_where_nothing_is_wrong(right: tuple[float, float], least: float) -> None:
    for seed in range(3):
        score, null, _, _ = draw(0.0, right=right, seed=seed)
        got = two_group.clean_probability(score, null)
        assert got.mean() > least
        assert (got < 0.5).mean() < 0.005


def test_two_group_with_everything_wrong() -> None:
    score, null, _, _ = draw(1.0)
    assert two_group.clean_probability(score, null).mean() < 0.1


def test_a_skewed_null_needs_no_shape() -> None:
    rng = np.random.default_rng(0)
    null, wrong = rng.gamma(3.0, 0.05, 20_000), rng.random(20_000) < 0.4
    score = np.where(wrong, rng.gamma(3.0, 0.05, 20_000), rng.normal(0.6, 0.08, 20_000))
    assert two_group.fit(score, null).pi0 == pytest.approx(0.4, abs=0.03)
    got = two_group.clean_probability(score, null)
    assert (got[wrong] < 0.5).mean() > 0.95
    assert (got[~wrong] < 0.5).mean() < 0.05


@pytest.mark.parametrize("name", EVERY)
def test_scores_without_information_are_clean(name: str) -> None:
    judge = EVERY[name].clean_probability
    assert judge(np.full(100, 0.3), np.full(100, 0.3)).tolist() == [1.0] * 100
    assert judge(np.array([]), np.array([0.1, 0.2])).tolist() == []
    assert judge(np.array([0.5]), np.array([0.1, 0.2])).tolist() == [1.0]


def test_constant_scores_above_a_null_are_clean() -> None:
    null = np.random.default_rng(0).normal(0, 0.1, 500)
    assert two_group.clean_probability(np.full(50, 0.9), null).tolist() == [1.0] * 50
    assert two_group.clean_probability(np.array([0.1, 0.9]), np.array([])).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", EVERY)
def test_rounding_of_cosines_is_no_difference(name: str) -> None:
    vector_ND = np.random.default_rng(0).normal(size=(500, 64)).astype(np.float32)
    vector_ND /= np.linalg.norm(vector_ND, axis=1, keepdims=True)
    score, null = (vector_ND * vector_ND).sum(1), (vector_ND * np.roll(vector_ND, 1, axis=0)).sum(1)
    assert 0 < np.ptp(score) < 1e-6
    assert (EVERY[name].clean_probability(score, null) == 1).all()


@pytest.mark.parametrize("place", [-0.2, 0.05, 0.1, 0.6])
@pytest.mark.parametrize("size", [1, 2, 500])
@pytest.mark.parametrize("name", EVERY)
def test_pairs_that_nothing_tells_apart_are_presumed_to_match(name: str, size: int, place: float) -> None:
    null = np.random.default_rng(0).normal(0.05, 0.1, 1000)
    assert (EVERY[name].clean_probability(np.full(size, place), null) == 1).all()


@pytest.mark.parametrize("size", [2, 3, 5, 20, 100])
@pytest.mark.parametrize("name", EVERY)
def test_few_pairs(name: str, size: int) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        score = rng.normal(0.2, 0.2, size)
        if seed % 2:
            score = np.round(score, 1)  # ties
        got = EVERY[name].clean_probability(score, rng.normal(0.0, 0.1, size))
        check_shape(score, got)


@pytest.mark.parametrize("pi0", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("name", EVERY)
def test_monotone_deterministic_and_independent_of_the_order(name: str, pi0: float) -> None:
    score, null, _, _ = draw(pi0, count=1000, right=(0.3, 0.15))
    judge = EVERY[name].clean_probability
    got = judge(score, null)
    check_shape(score, got)
    np.testing.assert_array_equal(got, judge(score.copy(), null.copy()))
    order = np.random.default_rng(1).permutation(len(score))
    np.testing.assert_array_equal(got[order], judge(score[order], null[::-1]))


@pytest.mark.parametrize("name", EPOCH)
def test_unit_and_origin_of_the_score_do_not_matter(name: str) -> None:
    score, null, _, _ = draw(0.4, count=3000)
    judge = EPOCH[name].clean_probability
    np.testing.assert_allclose(judge(5 * score - 7, 5 * null - 7), judge(score, null), atol=1e-2)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", EVERY)
def test_wrong_input_is_refused(name: str, bad: float) -> None:
    judge = EVERY[name].clean_probability
    good = np.array([0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match=r"score_N: 1 of 4\b"):
        judge(np.append(good, bad), good)
    with pytest.raises(ValueError, match=r"score_N: .* shape \(1, 3\)"):
        judge(good[None, :], good)
    with pytest.raises(ValueError, match=r"null_M: 1 of 4\b"):
        two_group.clean_probability(good, np.append(good, bad))


def test_the_upper_gaussian_keeps_the_upper_tail() -> None:
    # a broad lower component would win again far to the right
    rng = np.random.default_rng(0)
    score = np.concatenate([rng.normal(0.1, 0.2, 5000), rng.normal(0.5, 0.03, 5000), [2.0]])
    got = gmm.clean_probability(score)
    check_shape(score, got)
    assert got[-1] > 0.9


def test_osa_is_the_papers_weight_as_a_share_of_the_largest() -> None:
    rng = np.random.default_rng(0)
    null = 0.2 + (noise := rng.normal(0, 0.1, 1000)) - noise.mean()  # beta is the mean
    got = osa.clean_probability(np.array([0.15, 0.25, 0.30, 0.40, 0.90]), null)
    assert got == pytest.approx([0, 0.016031, 0.06075, 0.216, 1], abs=5e-7)
    assert got[:-1] * 4 / 27 == pytest.approx([0, 0.002375, 0.009, 0.032], abs=5e-7)
    x = np.linspace(-1, 1, 401)
    weight = [max(0.0, min(a, 2 / 3)) ** 2 * (1 - max(0.0, min(a, 2 / 3))) for a in x]
    assert osa.clean_probability(x, np.zeros(3)) == pytest.approx(np.array(weight) / max(weight), abs=1e-4)


def check_shape(score: Array, got: Array) -> None:
    """A probability each, and never a lower one for a higher score."""
    assert got.shape == score.shape
    assert np.isfinite(got).all()
    assert (got >= 0).all()
    assert (got <= 1).all()
    assert (np.diff(got[np.argsort(score, kind="stable")]) >= -1e-12).all()
