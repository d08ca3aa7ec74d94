"""Captions of one item as witnesses for its picture."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.nn.functional import normalize

from ccr_cli.artifacts import arrays
from ccr_cli.judges.base import Belief, Opinion, load_judge
from ccr_cli.nets.ragged import mean_rows
from ccr_cli.stages.shared import embedding, judging
from ccr_cli.stages.shared.judging import (
    TripletEmbeddings,
    TripletReadings,
    by_model,
    columns,
    judge_triplets,
    mean_opinion,
)

HOW: dict[str, Any] = {"seed": 0, "batch_size": 4}


def embedded() -> tuple[TripletEmbeddings, Belief[npt.NDArray[np.float64]]]:
    generator = torch.Generator().manual_seed(0)
    v_VD, s_ND, t_ND = (normalize(torch.randn(n, 5, generator=generator), dim=1) for n in (3, 6, 6))
    p = np.random.default_rng(0).random((3, 6))
    return TripletEmbeddings(v_VD, s_ND, t_ND, torch.tensor([0, 0, 0, 1, 1, 2])), Belief(*p)


@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_kin_is_the_mean_of_the_other_captions_as_far_as_they_are_believed(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "AT_ONCE", at_once)
    seen, p = embedded()
    with_kin = seen.with_kin(p)
    for i in range(6):
        total, weight = np.zeros(5), 0.0
        for j in range(6):
            if j != i and seen.item_N[i] == seen.item_N[j]:
                total += p.VS[j] * seen.s_ND[j].double().numpy() + p.VT[j] * seen.t_ND[j].double().numpy()
                weight += p.VS[j] + p.VT[j]
        sum_D = seen.v_VD[seen.item_N[i]].double().numpy() + total / max(weight, 1.0)
        np.testing.assert_allclose(with_kin[:][i], sum_D / np.linalg.norm(sum_D), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_rows_are_taken_in_the_given_order(at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "AT_ONCE", at_once)
    monkeypatch.setattr(embedding, "BATCH", 3)
    monkeypatch.setattr(arrays, "LARGE", 0)
    table_ND, rows = torch.arange(20.0).view(10, 2), torch.tensor([7, 1, 1, 9, 0, 4, 3, 7])
    assert torch.equal(embedding.taken(table_ND, rows, tmp_path), table_ND[rows])


def test_captions_come_in_any_order_and_some_items_have_none() -> None:
    seen, p = embedded()
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    moved = TripletEmbeddings(seen.v_VD[[2, 0, 1, 2]], seen.s_ND[order], seen.t_ND[order], 1 + seen.item_N[order] % 2)
    kept = TripletEmbeddings(seen.v_VD[[0, 1]], seen.s_ND[order], seen.t_ND[order], seen.item_N[order] % 2)
    assert torch.equal(moved.with_kin(p)[:], kept.with_kin(p)[:])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_sums_over_items_repeat_on_a_gpu() -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    rows_ND = torch.randn(20_000, 64, generator=generator, device="cuda")
    item_N = torch.randint(0, 40, (20_000,), generator=generator, device="cuda")
    p = Belief(*np.random.default_rng(0).random((3, 20_000)))
    seen = TripletEmbeddings(rows_ND[:40], rows_ND, rows_ND.flip(0), item_N)
    offsets_V1 = torch.arange(0, 20_001, 500, device="cuda")
    means, sides = mean_rows(rows_ND, offsets_V1), seen.with_kin(p)[:]
    assert all(torch.equal(means, mean_rows(rows_ND, offsets_V1)) for _ in range(20))
    assert all(torch.equal(sides, seen.with_kin(p)[:]) for _ in range(20))


def test_a_caption_alone_leaves_the_picture_as_it_is() -> None:
    seen, p = embedded()
    with_kin = seen.with_kin(p)
    torch.testing.assert_close(with_kin[:][5], seen.v_VD[2])
    assert not torch.equal(with_kin[:][0], seen.v_VD[0])
    torch.testing.assert_close(with_kin[:].norm(dim=1), torch.ones(6))


def test_what_nobody_believes_says_nothing() -> None:
    seen, _ = embedded()
    nobody = Belief(np.zeros(6), np.zeros(6), np.zeros(6))
    torch.testing.assert_close(seen.with_kin(nobody)[:], seen.v_VD[seen.item_N])


def test_kin_changes_the_visual_sides_alone() -> None:
    seen, p = embedded()
    before, after = seen.similarities(), seen.with_kin(p).similarities()
    np.testing.assert_array_equal(before["ST"], after["ST"])
    assert not np.allclose(before["VS"], after["VS"]) and not np.allclose(before["VT"], after["VT"])


def test_crowding_is_the_mean_of_the_nearest_strangers() -> None:
    seen, _ = embedded()
    found = seen.crowding(0)
    assert set(found) == {"VS", "VT"}
    for name, other_ND in (("VS", seen.s_ND), ("VT", seen.t_ND)):
        sim = seen.v_VD[seen.item_N].double().numpy() @ other_ND.double().numpy().T
        differ = seen.item_N.numpy()[:, None] != seen.item_N.numpy()[None, :]
        for i in range(6):
            rows, columns = (np.sort(x[differ[i]])[-2:].mean() for x in (sim[i], sim[:, i]))
            np.testing.assert_allclose([found[name][0][i], found[name][1][i]], [rows, columns], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_similarities_of_strangers(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against float64; vectors are read some rows at a time, in a circle."""
    monkeypatch.setattr(judging, "AT_ONCE", at_once)
    monkeypatch.setattr(embedding, "AT_ONCE", at_once)
    seen, p = embedded()
    for sides in (seen, seen.with_kin(p)):
        found, (left, right) = sides.null(7), sides.shuffled(7)
        v_ND, s_ND, t_ND = (x.double().numpy() for x in (sides[:], sides.s_ND, sides.t_ND))
        for name, (a_ND, b_ND) in {"VS": (v_ND, s_ND), "VT": (v_ND, t_ND), "ST": (s_ND, t_ND)}.items():
            np.testing.assert_allclose(found[name], (a_ND[left] * b_ND[right]).sum(axis=1), atol=1e-6)
    order, items = np.random.default_rng(7).permutation(6), seen.item_N.numpy()
    pairs = [(i, j) for shift in (1, 2, 3, 5) for i, j in zip(order, np.roll(order, shift), strict=True)]
    assert list(zip(left, right, strict=True)) == [(i, j) for i, j in pairs if items[i] != items[j]]


def test_the_triangle_reads_leads_over_strangers_and_the_texts_as_they_are() -> None:
    seen, _ = embedded()
    given, null = seen.leads(3)
    similar, shuffled, crowd = seen.similarities(), seen.null(3), seen.crowding(3)
    left, right = seen.shuffled(3)
    assert (seen.item_N[left] != seen.item_N[right]).all() and len(null) == len(left)
    np.testing.assert_array_equal(given[:, 2], similar["ST"])
    np.testing.assert_array_equal(null[:, 2], shuffled["ST"])
    for column, name in enumerate(("VS", "VT")):
        np.testing.assert_allclose(given[:, column], similar[name] - (crowd[name][0] + crowd[name][1]) / 2)
        a, b = crowd[name][0][left], crowd[name][1][right]
        np.testing.assert_allclose(null[:, column], shuffled[name] - (a + b) / 2)


@pytest.mark.parametrize("items", [1, 3])
def test_a_model_that_has_collapsed_doubts_nothing(items: int) -> None:
    same = normalize(torch.ones(items, 5), dim=1)
    item_N = torch.arange(items).repeat_interleave(2)
    triplets = SimpleNamespace(by_translation=lambda: [None])  # the triangle asks no texts and no truth
    embedded = TripletEmbeddings(same, same[item_N], same[item_N], item_N)
    opinion = judge_triplets(load_judge("triangle"), "", embedded, triplets, **HOW)  # type: ignore[arg-type]
    for p_N in (opinion.p.VS, opinion.p.VT, opinion.p.ST):
        np.testing.assert_array_equal(p_N, np.ones(2 * items))
    assert set(opinion.shares.values()) == {0.0}


def test_opinions_of_several_models_are_columns_of_one_belief_and_its_mean() -> None:
    rng = np.random.default_rng(2)
    by_lang = [[Opinion(Belief(*rng.random((3, 2))), {"T": share}) for _ in range(2)] for share in (0.2, 0.6)]
    opinions = [
        Opinion(Belief(*rng.random((3, 4))), {"T": s}, parts) for s, parts in zip((0.1, 0.5), by_lang, strict=True)
    ]
    p, mean = columns(opinions), mean_opinion(opinions)
    assert p.VT.shape == (4, 2) and mean.shares == {"T": pytest.approx(0.3)}
    for side in ("VS", "VT", "ST"):
        one, two = (getattr(each.p, side) for each in opinions)
        np.testing.assert_array_equal(getattr(p, side), np.stack([one, two]).T)
        np.testing.assert_allclose(getattr(mean.p, side), (one + two) / 2)
    for number, part in enumerate(mean.by_lang):
        np.testing.assert_allclose(part.p.ST, (by_lang[0][number].p.ST + by_lang[1][number].p.ST) / 2)
        assert part.shares == {"T": pytest.approx(0.4)}
    for again, each in zip(by_model(p.map(torch.from_numpy)), opinions, strict=True):
        np.testing.assert_array_equal(again.p.VS, each.p.VS)
    (alone,) = by_model(columns(opinions[:1]).map(torch.from_numpy))
    np.testing.assert_array_equal(alone.p.VT, opinions[0].p.VT)
    assert mean_opinion(opinions[:1]) is opinions[0] and columns(opinions[:1]) is opinions[0].p


@pytest.mark.parametrize(
    ("number", "size", "sizes"),
    [(9, 4, [4, 5]), (10, 4, [4, 4, 2]), (8, 4, [4, 4]), (3, 4, [3]), (5, 4, [5]), (257, 128, [128, 129]), (1, 4, [1])],
)
def test_no_pair_is_judged_without_rivals(number: int, size: int, sizes: list[int]) -> None:
    one_ND = normalize(torch.randn(number, 5, generator=torch.Generator().manual_seed(1)), dim=1)
    seen = TripletEmbeddings(one_ND, one_ND, -one_ND, torch.arange(number))
    readings = TripletReadings(SimpleNamespace(), 0, seen, size, lambda sim_BB: sim_BB)  # type: ignore[arg-type]
    rows = [rows_B for rows_B, _, _ in readings.batches("ST")]
    assert list(map(len, rows)) == sizes and sorted(np.concatenate(rows)) == list(range(number))
    opinion = load_judge("argmax").judge(readings, "cross_lingual")
    np.testing.assert_array_equal(opinion.p.ST, np.full(number, number == 1))


def test_batches_with_a_usual_rest_are_as_long_as_they_were() -> None:
    one_ND = torch.ones(300, 1)
    seen = TripletEmbeddings(one_ND, one_ND, one_ND, torch.arange(300))
    readings = TripletReadings(SimpleNamespace(), 0, seen, 128, lambda sim_BB: sim_BB)  # type: ignore[arg-type]
    assert [len(rows_B) for rows_B, *_ in readings.ends("VT")] == [128, 128, 44]


@pytest.mark.parametrize("at_once", [1, 8, 100])
def test_batches_have_the_vectors_of_their_rows(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "AT_ONCE", at_once)
    seen, _ = embedded()
    readings = TripletReadings(SimpleNamespace(), 0, seen, 2, lambda sim_BB: sim_BB)  # type: ignore[arg-type]
    for side, one_ND, two_ND in (("VT", seen.v_VD[seen.item_N], seen.t_ND), ("ST", seen.s_ND, seen.t_ND)):
        batches = list(readings.ends(side))
        assert sorted(np.concatenate([rows for rows, *_ in batches])) == list(range(6))
        for rows, one_BD, two_BD, mask_BB in batches:
            assert torch.equal(one_BD, one_ND[rows]) and torch.equal(two_BD, two_ND[rows])
            assert mask_BB.shape == (len(rows), len(rows))
