"""Ranks against a full-matrix oracle, hand-computed cases, and what must not change them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from ccr_cli.metrics import ranks as counting
from ccr_cli.metrics.ranks import Positives, Ranks, matrix_sim, precision_recall, rank_both, rank_queries, summarise

TIES_AND_WEIGHTS = {"mid": 0.5, "optimistic": 0.0, "pessimistic": 1.0}


def oracle(sim_QG: NDArray[np.float64], lists: list[list[int]]) -> dict[str, list[float]]:
    """The definitions, query by query on the full matrix in float64, sharing no code with the package."""
    out: dict[str, list[float]] = {name: [] for name in (*TIES_AND_WEIGHTS, "ties")}
    out |= {f"AP {name}": [] for name in TIES_AND_WEIGHTS}
    for sim_G, right in zip(sim_QG.astype(np.float64), lists, strict=True):
        if not right:
            for values in out.values():
                values.append(float("nan"))
            continue
        wrong = [s for g, s in enumerate(sim_G) if g not in right]
        best = max(sim_G[right])
        above, level = sum(s > best for s in wrong), sum(s == best for s in wrong)
        ap = []
        for weight in (0.5, 0.0, 1.0):
            positions = sorted(sum(s > p for s in wrong) + weight * sum(s == p for s in wrong) for p in sim_G[right])
            ap.append(np.mean([k / (k + n) for k, n in enumerate(positions, start=1)]))
        row = (1 + above + level / 2, 1 + above, 1 + above + level, level, *ap)
        for name, value in zip(out, row, strict=True):
            out[name].append(float(value))
    return out


def found(ranks: Ranks) -> dict[str, NDArray[np.float64]]:
    by_rule = {name: ranks.rank(name) for name in TIES_AND_WEIGHTS} | {"ties": ranks.ties}
    return by_rule | {f"AP {name}": ranks.ap(name) for name in TIES_AND_WEIGHTS}


def check(ranks: Ranks, sim_QG: NDArray[np.float64], lists: list[list[int]]) -> None:
    for name, expected in oracle(sim_QG, lists).items():
        np.testing.assert_allclose(found(ranks)[name], expected, rtol=1e-12, err_msg=name)


def rank(sim_QG: NDArray[np.float64] | torch.Tensor, lists: list[list[int]], **options: Any) -> Ranks:
    sim = torch.as_tensor(sim_QG)
    return rank_queries(matrix_sim(sim), sim.shape[0], sim.shape[1], Positives.from_lists(lists), **options)


def problem(seed: int, n_items: int, captions: int, levels: int) -> tuple[NDArray[np.float64], list[int]]:
    """Similarities with visual rows and text columns, quantised so that many tie; the item of each text."""
    rng = np.random.default_rng(seed)
    item_of_text = rng.permutation(np.repeat(np.arange(n_items), captions)).tolist()
    signal = np.arange(n_items)[:, None] == np.array(item_of_text)[None, :]
    sim_VT = np.round((rng.normal(size=signal.shape) + 1.5 * signal) * levels) / levels
    return sim_VT, item_of_text


@pytest.mark.parametrize("block", [1, 7, 64, 1024])
@pytest.mark.parametrize("keep", [2**26, 0])
@pytest.mark.parametrize("levels", [1, 4, 10**9])
def test_both_directions_agree_with_the_oracle(block: int, keep: int, levels: int) -> None:
    sim_VT, item_of_text = problem(seed=levels % 97, n_items=13, captions=5, levels=levels)
    texts = Positives.from_ids(item_of_text, range(13))
    t2v, v2t = rank_both(matrix_sim(torch.from_numpy(sim_VT)), 13, len(item_of_text), texts, block=block, keep=keep)
    check(t2v, sim_VT.T, [[item] for item in item_of_text])
    check(v2t, sim_VT, [[t for t, i in enumerate(item_of_text) if i == v] for v in range(13)])


def test_ragged_positives_and_queries_without_any() -> None:
    rng = np.random.default_rng(3)
    sim = np.round(rng.normal(size=(40, 31)), 1)
    lists = [rng.choice(31, size=rng.integers(0, 7), replace=False).tolist() for _ in range(40)]
    lists[0], lists[39] = [], list(range(31))
    ranks = rank(sim, lists, block=9)
    check(ranks, sim, lists)
    assert (~ranks.valid).sum() == sum(not one for one in lists) > 0
    assert np.isnan(ranks.rank()[0])
    assert ranks.ap()[39] == 1.0  # nothing but right answers


@pytest.mark.parametrize("keep", [2**26, 0])
def test_many_positives_take_the_binned_count_and_agree(keep: int) -> None:
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 3, size=120)
    sim = np.round(rng.normal(size=(50, 120)) * 3) / 3
    positives = Positives.from_ids(labels[:50].tolist(), labels.tolist())
    assert positives.counts.max() > counting.COUNT_EACH
    ranks = rank_queries(matrix_sim(torch.from_numpy(sim)), 50, 120, positives, block=17, keep=keep)
    check(ranks, sim, [np.flatnonzero(labels == label).tolist() for label in labels[:50]])


def precision_at(sim_QG: NDArray[np.float64], lists: list[list[int]], weight: float) -> NDArray[np.float64]:
    """Interpolated precision at recalls 0, 0.1, ... 1, by its definition, entry by entry of the full matrix."""
    rows = []
    for sim_G, right in zip(sim_QG, lists, strict=True):
        wrong = np.delete(sim_G, right)
        points = []
        for s in sim_G[right]:
            found = int((sim_G[right] >= s).sum())
            points.append((found, found / (found + (wrong > s).sum() + weight * (wrong == s).sum())))
        row = [max((p for k, p in points if 10 * k >= tenth * len(right)), default=np.nan) for tenth in range(11)]
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize(("block", "keep"), [(1024, 2**26), (7, 0), (13, 500)])
@pytest.mark.parametrize(("tie", "weight"), [("mid", 0.5), ("optimistic", 0.0), ("pessimistic", 1.0)])
def test_precision_at_eleven_recalls(block: int, keep: int, tie: str, weight: float) -> None:
    rng = np.random.default_rng(6)
    labels, asked = rng.integers(0, 4, size=61), rng.integers(0, 5, size=40)  # the last category is not there
    sim = np.round(rng.normal(size=(40, 61)) + (asked[:, None] == labels), 1)
    positives = Positives.from_ids(asked.tolist(), labels.tolist())
    lists = [np.flatnonzero(labels == label).tolist() for label in asked]
    each, (rows, columns) = (
        rank_queries(matrix_sim(torch.from_numpy(sim)), 40, 61, positives, block=block, keep=keep, curve=tie),
        rank_both(matrix_sim(torch.from_numpy(sim.T)), 61, 40, positives, block=block, keep=keep, curve=tie),
    )
    expected = precision_at(sim, lists, weight)
    assert np.isnan(expected).any() and (np.diff(expected[each.valid]) <= 0).all()
    np.testing.assert_allclose(each.precision, expected, rtol=1e-12)
    np.testing.assert_allclose(rows.precision, expected, rtol=1e-12)
    back = [np.flatnonzero(asked == label).tolist() for label in labels]
    np.testing.assert_allclose(columns.precision, precision_at(sim.T, back, weight), rtol=1e-12)
    assert precision_recall([each]) == pytest.approx(100 * np.nanmean(expected, axis=0))
    plain = rank_queries(matrix_sim(torch.from_numpy(sim)), 40, 61, positives)
    assert plain.precision.shape == (40, 0), "not asked for"
    nothing = rank(np.zeros((2, 3)), [[], []], curve=tie)
    assert precision_recall([each, nothing]) == [], "a fold without an answer has no mean"


def test_the_two_ways_of_counting_agree_with_infinities(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    sim = np.round(rng.normal(size=(30, 25)))
    sim[rng.random(sim.shape) < 0.2] = -np.inf
    sim[rng.random(sim.shape) < 0.2] = np.inf
    lists = [rng.choice(25, size=rng.integers(1, 6), replace=False).tolist() for _ in range(30)]
    check(rank(sim, lists, block=8), sim, lists)
    monkeypatch.setattr(counting, "COUNT_EACH", 0)
    check(rank(sim, lists, block=8), sim, lists)


def test_two_by_two_by_hand() -> None:
    # query 0: its answer 0.9 beats 0.1: rank 1. query 1: its answer 0.2 loses to 0.8: rank 2, AP 1/2.
    ranks = rank(np.array([[0.9, 0.1], [0.8, 0.2]]), [[0], [1]])
    assert ranks.rank().tolist() == [1.0, 2.0]
    assert ranks.ap().tolist() == [1.0, 0.5]
    assert ranks.ties.tolist() == [0.0, 0.0]


def test_three_by_three_with_ties_by_hand() -> None:
    sim = np.array([[0.5, 0.5, 0.5], [0.7, 0.2, 0.2], [0.1, 0.9, 0.9]])
    ranks = rank(sim, [[0], [1, 2], [1, 2]])
    # row 0: ties with two wrong ones: 1..3, middle 2.
    # row 1: the two right ones tie with each other only, one wrong above: rank 2, AP (1/2 + 2/3) / 2 = 7/12.
    # row 2: the two right ones tie with each other and nothing is above: rank 1, AP 1.
    assert ranks.rank().tolist() == [2.0, 2.0, 1.0]
    assert ranks.rank("optimistic").tolist() == [1.0, 2.0, 1.0]
    assert ranks.rank("pessimistic").tolist() == [3.0, 2.0, 1.0]
    assert ranks.ties.tolist() == [2.0, 0.0, 0.0]
    np.testing.assert_allclose(ranks.ap(), [1 / 2, 7 / 12, 1.0])
    np.testing.assert_allclose(ranks.ap("optimistic"), [1.0, 7 / 12, 1.0])
    np.testing.assert_allclose(ranks.ap("pessimistic"), [1 / 3, 7 / 12, 1.0])


def test_right_and_wrong_answers_tied_by_hand() -> None:
    # two right and two wrong answers tie at the top, one wrong below. Half of the two wrong ones stand above:
    # best rank 1 + 2/2 = 2 (between 1 and 3), AP = (1/(1+1) + 2/(2+1)) / 2 = 7/12.
    ranks = rank(np.array([[0.5, 0.5, 0.5, 0.5, 0.1]]), [[1, 3]])
    assert (ranks.rank()[0], ranks.rank("optimistic")[0], ranks.rank("pessimistic")[0]) == (2.0, 1.0, 3.0)
    np.testing.assert_allclose(ranks.ap(), [7 / 12])


@pytest.mark.parametrize("n", [2, 11, 100])
def test_a_collapsed_model_is_at_chance(n: int) -> None:
    ranks = rank(torch.zeros(n, n), [[i] for i in range(n)], block=16)
    assert (ranks.rank() == (n + 1) / 2).all()
    middle, optimistic, pessimistic = (summarise(ranks, tie=t) for t in ("mid", "optimistic", "pessimistic"))
    assert middle["MedR"] == middle["MeanR"] == (n + 1) / 2
    assert abs(middle["R@1"] - 100 / n) <= 100 / n  # near 1/N, here 0; never 100
    assert optimistic["R@1"] == optimistic["mAP"] == 100.0
    assert pessimistic["R@1"] == 0.0 and pessimistic["MedR"] == n
    np.testing.assert_allclose(middle["mAP"], 100 * 2 / (n + 1))


def test_average_precision_is_scikit_learns_without_ties() -> None:
    rng = np.random.default_rng(6)
    sim = rng.normal(size=(20, 50))
    lists = [rng.choice(50, size=rng.integers(1, 20), replace=False).tolist() for _ in range(20)]
    truth = np.zeros(sim.shape, dtype=bool)
    for row, right in zip(truth, lists, strict=True):
        row[right] = True
    expected = [average_precision_score(t, s) for t, s in zip(truth, sim, strict=True)]
    np.testing.assert_allclose(rank(sim, lists, block=13).ap(), expected, rtol=1e-12)


def test_permuting_the_gallery_changes_nothing() -> None:
    sim, item_of_text = problem(seed=8, n_items=12, captions=3, levels=2)
    lists = [[t for t, i in enumerate(item_of_text) if i == v] for v in range(12)]
    place = np.random.default_rng(0).permutation(36)
    where = np.argsort(place)
    moved = rank(sim[:, place], [[int(where[t]) for t in right] for right in lists], block=5)
    for name, expected in found(rank(sim, lists)).items():
        np.testing.assert_allclose(found(moved)[name], expected, rtol=1e-15)


def test_permuting_queries_permutes_ranks_and_positives_may_come_in_any_order() -> None:
    sim, item_of_text = problem(seed=9, n_items=12, captions=3, levels=2)
    lists = [[t for t, i in enumerate(item_of_text) if i == v] for v in range(12)]
    place = np.random.default_rng(1).permutation(12)
    moved = rank(sim[place], [lists[int(v)][::-1] for v in place], block=5)
    np.testing.assert_array_equal(moved.rank(), rank(sim, lists).rank()[place])


def test_float32_and_float64_give_the_same_ranks_of_the_same_numbers() -> None:
    sim, item_of_text = problem(seed=10, n_items=12, captions=3, levels=8)
    single = rank(torch.from_numpy(sim).float().T, [[item] for item in item_of_text])
    double = rank(torch.from_numpy(sim).T, [[item] for item in item_of_text])
    np.testing.assert_array_equal(single.rank(), double.rank())


def test_a_similarity_that_rounds_anew_each_time_never_competes_with_itself() -> None:
    rng = np.random.default_rng(11)
    sim = torch.from_numpy(np.arange(10.0)[None, ::-1].copy())

    def shaky(queries: slice, gallery: slice) -> torch.Tensor:
        block = sim[queries, gallery]
        return block + 1e-9 * torch.from_numpy(rng.normal(size=tuple(block.shape)))

    for _ in range(20):
        ranks = rank_queries(shaky, 1, 10, Positives.from_lists([[0, 4]]), block=3, keep=0)
        assert ranks.rank().tolist() == [1.0]
        np.testing.assert_allclose(ranks.ap(), (1 + 2 / 5) / 2)


def test_the_callers_matrix_is_left_alone_and_gradients_do_not_matter() -> None:
    sim = torch.randn(6, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    before = sim.detach().clone()
    rank(sim, [[i] for i in range(6)], block=4)
    assert torch.equal(sim.detach(), before)


@pytest.mark.parametrize("keep", [2**26, 0])
def test_nan_is_refused_and_infinity_is_not(keep: int) -> None:
    sim = torch.zeros(5, 5)
    sim[3, 2] = float("nan")
    with pytest.raises(ValueError, match="row 3"):
        rank(sim, [[i] for i in range(5)], block=2, keep=keep)
    sim[3] = torch.tensor([float("inf"), 0.0, -float("inf"), 1.0, -float("inf")])
    assert rank(sim, [[i] for i in range(5)], block=2, keep=keep).rank()[3] == 2.0


def test_similarities_that_do_not_fit_are_refused() -> None:
    one = Positives.from_lists([[0], [1]])
    with pytest.raises(ValueError, match="float16"):
        rank_queries(matrix_sim(torch.zeros(2, 2, dtype=torch.float16)), 2, 2, one)
    with pytest.raises(ValueError, match=r"\(1, 1\).*\(2, 2\)"):
        rank_queries(lambda q, g: torch.zeros(1, 1), 2, 2, one)
    with pytest.raises(ValueError, match="gallery of 1 "):
        rank_queries(matrix_sim(torch.zeros(2, 1)), 2, 1, one)
    with pytest.raises(ValueError, match=r"\b2\b.*\b3\b"):
        rank_queries(matrix_sim(torch.zeros(3, 2)), 3, 2, one)
    with pytest.raises(ValueError, match=r"block .*\b0\b"):
        rank_queries(matrix_sim(torch.zeros(2, 2)), 2, 2, one, block=0)
    with pytest.raises(ValueError, match="'best'"):
        rank(torch.zeros(2, 2), [[0], [1]]).rank("best")


def test_no_queries_and_an_empty_gallery() -> None:
    none = rank_queries(matrix_sim(torch.zeros(0, 4)), 0, 4, Positives.from_lists([]))
    assert len(none.rank()) == 0
    nothing = rank_queries(matrix_sim(torch.zeros(3, 0)), 3, 0, Positives.from_lists([[], [], []]))
    assert not nothing.valid.any() and np.isnan(nothing.rank()).all()


def test_blocks_asked_for_stay_small() -> None:
    sim = torch.randn(300, 500, generator=torch.Generator().manual_seed(1))
    largest = 0

    def watched(queries: slice, gallery: slice) -> torch.Tensor:
        nonlocal largest
        block = sim[queries, gallery]
        largest = max(largest, block.numel())
        return block

    positives = Positives.from_lists([[i] for i in range(300)])
    streamed = rank_queries(watched, 300, 500, positives, block=64, keep=1000)
    assert largest <= 64 * 64
    np.testing.assert_array_equal(streamed.rank(), rank_queries(matrix_sim(sim), 300, 500, positives).rank())


# blocks of 400 and 200, both with positives: kept as far as they fit, the others are asked for again
@pytest.mark.parametrize(("keep", "wanted"), [(600, 600), (599, 800), (399, 1000), (0, 1200)])
def test_both_directions_share_every_block(keep: int, wanted: int) -> None:
    sim = torch.randn(20, 30, generator=torch.Generator().manual_seed(2))
    asked = 0

    def watched(queries: slice, gallery: slice) -> torch.Tensor:
        nonlocal asked
        block = sim[queries, gallery]
        asked += block.numel()
        return block

    rank_both(watched, 20, 30, Positives.from_lists([[t % 20] for t in range(30)]), block=20, keep=keep)
    assert asked == wanted


def test_blocks_without_a_right_answer_are_asked_for_once() -> None:
    """Texts in the order of their items: the answers lie on the diagonal, in 10 of 100 blocks."""
    sim = torch.randn(100, 200, generator=torch.Generator().manual_seed(3))
    asked: list[tuple[int, int]] = []

    def watched(queries: slice, gallery: slice) -> torch.Tensor:
        asked.append((queries.start, gallery.start))
        return sim[queries, gallery]

    positives = Positives.from_lists([[t // 2] for t in range(200)])
    streamed = rank_both(watched, 100, 200, positives, block=20, keep=0)
    assert len(asked) == 50 + 10 and len(set(asked)) == 50
    for mine, other in zip(streamed, rank_both(matrix_sim(sim), 100, 200, positives), strict=True):
        np.testing.assert_array_equal(mine.rank(), other.rank())
        np.testing.assert_array_equal(mine.ap(), other.ap())


def test_positives_say_what_is_wrong_with_them() -> None:
    with pytest.raises(ValueError, match="query 1 "):
        Positives.from_lists([[0], [1, 1]])
    with pytest.raises(ValueError, match=r"from 0 .* 2$"):
        Positives(np.array([0, 1]), np.array([0, 1]))
    with pytest.raises(ValueError, match="gallery of 3 "):
        Positives.from_lists([[-1]]).check(3)
    back = Positives.from_lists([[2], [0, 2], []]).reversed(3)
    assert back.index.tolist() == [1, 0, 1] and back.offsets.tolist() == [0, 1, 1, 3]
