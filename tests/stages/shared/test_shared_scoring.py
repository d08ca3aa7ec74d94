"""Folds and single positives against figures counted in float64 from the whole matrix, ties included.

Shape suffixes: V visual items, T texts, Q queries, G gallery.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from ccr_cli.data.frames import Frames
from ccr_cli.errors import ArtifactError
from ccr_cli.metrics.ranks import TIES, Positives, dot_sim, rank_both
from ccr_cli.metrics.uncertainty_comparison import gaps
from ccr_cli.stages.evaluate.uncertainty import trivial_uncertainties, uncertainty_figures
from ccr_cli.stages.shared.scoring import (
    EmbeddedGallery,
    Figures,
    Scores,
    intervals,
    over_folds,
    rank_table,
    score_gallery,
)
from ccr_cli.stages.shared.triplets import Gallery

Array = npt.NDArray[np.float64]
WEIGHT = {"mid": 0.5, "optimistic": 0.0, "pessimistic": 1.0}


def problem(seed: int, n_items: int, *, first: bool) -> tuple[Array, Gallery]:
    """Similarities of few values, so that many tie; items have none to four captions, in no order of items."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 5, n_items)
    counts[:: max(n_items // 4, 1)] = np.maximum(counts[:: max(n_items // 4, 1)], 1)
    item_T = rng.permutation(np.repeat(np.arange(n_items), counts))
    sim_VT = np.round(rng.normal(size=(n_items, len(item_T))) + 1.2 * (item_T == np.arange(n_items)[:, None]), 0)
    found = Gallery(
        item_ids=[f"v{v}" for v in range(n_items)],
        visual=Frames.single(torch.zeros(n_items, 1)),
        caption_ids=[f"t{t}" for t in range(len(item_T))],
        texts=["x"] * len(item_T),
        item_T=item_T,
        label_V=None,
        missing=0,
        first_T=np.sort(np.unique(item_T, return_index=True)[1]) if first else None,
    )
    return sim_VT, found


def vectors(sim_VT: Array) -> tuple[torch.Tensor, torch.Tensor]:
    """Items and texts whose products are these similarities."""
    return torch.eye(len(sim_VT), dtype=torch.float64), torch.from_numpy(sim_VT.T.copy())


def figures(sim_QG: Array, right_QG: npt.NDArray[np.bool_], tie: str) -> dict[str, float]:
    """One direction, by the definitions; queries without an answer in the gallery are left out."""
    rank, precision = [], []
    for sim_G, right_G in zip(sim_QG, right_QG, strict=True):
        if not right_G.any():
            continue
        wrong = sim_G[~right_G]
        before = sorted(float((wrong > s).sum() + WEIGHT[tie] * (wrong == s).sum()) for s in sim_G[right_G])
        rank.append(1 + before[0])
        precision.append(np.mean([n / (n + b) for n, b in enumerate(before, 1)]))
    out = {f"R@{k}": 100 * np.mean([r <= k for r in rank]) for k in (1, 5, 10)}
    out |= {"MedR": np.median(rank), "MeanR": np.mean(rank), "mAP": 100 * np.mean(precision)}
    out["MRR"] = 100 * np.mean([1 / r for r in rank])
    return {key: float(value) for key, value in out.items()} | {"queries": len(rank)}


def oracle(sim_VT: Array, found: Gallery, fold_V: npt.NDArray[np.int64], tie: str) -> dict[str, dict[str, float]]:
    """The mean over folds of each figure, from the whole matrix."""
    sides: dict[str, list[dict[str, float]]] = {"t2v": [], "v2t": []}
    right_VT = found.item_T == np.arange(len(sim_VT))[:, None]
    for fold in range(int(fold_V.max()) + 1):
        items = [v for v in range(len(fold_V)) if fold_V[v] == fold]
        texts = [t for t, item in enumerate(found.item_T) if item in items]
        answers = texts if found.first_T is None else [t for t in texts if t in found.first_T]
        asked, answered = np.ix_(items, texts), np.ix_(items, answers)
        sides["t2v"].append(figures(sim_VT[asked].T, right_VT[asked].T, tie))
        sides["v2t"].append(figures(sim_VT[answered], right_VT[answered], tie))
    return {
        side: {
            key: float(sum(fold[key] for fold in folds) if key == "queries" else np.mean([f[key] for f in folds]))
            for key in folds[0]
        }
        for side, folds in sides.items()
    }


def scored(
    sides: EmbeddedGallery, fold_V: npt.NDArray[np.int64], **options: Any
) -> list[tuple[EmbeddedGallery, Scores]]:
    folds = sides.folds(fold_V, int(fold_V.max()) + 1)
    return [(fold, score_gallery(fold, **options)) for fold in folds]


class Stating:
    """States an uncertainty of every query that depends on nothing but its vector; or none."""

    calibrated = False

    def __init__(self, silent: bool = False) -> None:
        self.silent = silent

    def score(self, query_QD: torch.Tensor, gallery_GD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        weight_D = torch.from_numpy(np.random.default_rng(1).normal(size=query_QD.shape[1]))
        return query_QD @ gallery_GD.T, None if self.silent else (query_QD @ weight_D).sigmoid()

    def entropy(self, query_QD: torch.Tensor) -> None:
        return

    def uncertainty_scope(self) -> str:
        return "pair"


def told_by(scorer: Any, parts: list[tuple[EmbeddedGallery, Scores]]) -> tuple[dict[str, Any], dict[str, Array]]:
    queries = rank_table([(fold.gallery, scores) for fold, scores in parts], "mid")
    return uncertainty_figures(scorer, [fold for fold, _ in parts], queries, None, False)


@pytest.mark.parametrize("tie", TIES)
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(("n_items", "folds"), [(20, 1), (20, 5), (24, 3), (23, 4), (40, 2)])
def test_figures_are_means_over_folds(n_items: int, folds: int, first: bool, tie: str) -> None:
    """Folds of unequal size too: features may be missing."""
    sim_VT, found = problem(n_items + folds, n_items, first=first)
    fold_V = np.sort(np.arange(n_items) % folds)
    parts = scored(EmbeddedGallery(found, *vectors(sim_VT)), fold_V, tie=tie)
    wanted = oracle(sim_VT, found, fold_V, tie)
    means = over_folds([each for _, each in parts])
    for side, expected in wanted.items():
        mine = getattr(means, side)
        assert {key: mine[key] for key in expected} == pytest.approx(expected, rel=1e-12)
        assert mine["dropped"] == (0 if side == "t2v" else n_items - expected["queries"])
    assert means.sum_r == pytest.approx(sum(s[f"R@{k}"] for s in wanted.values() for k in (1, 5, 10)))
    assert [i for part, _ in parts for i in part.gallery.item_ids] == found.item_ids
    assert sorted(c for part, _ in parts for c in part.gallery.caption_ids) == sorted(found.caption_ids)


def test_folds_are_not_the_whole_gallery() -> None:
    """What the oracle would not tell apart if folds were ignored."""
    sim_VT, found = problem(3, 20, first=False)
    whole, folds = (oracle(sim_VT, found, np.arange(20) // size, "mid") for size in (20, 4))
    assert folds["t2v"]["R@1"] > whole["t2v"]["R@1"] and folds["v2t"]["R@1"] > whole["v2t"]["R@1"]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("fusion", ["raw", "minmax"])
def test_every_fold_is_fused_by_itself(fusion: str, first: bool) -> None:
    sim_VT, found = problem(5, 20, first=first)
    other_VT = np.round(np.random.default_rng(6).normal(size=sim_VT.shape), 0)
    fold_V, both_VT = np.arange(20) // 5, np.zeros_like(sim_VT)
    for fold in range(4):
        block = np.ix_(fold_V == fold, fold_V[found.item_T] == fold)
        a, b = sim_VT[block], other_VT[block]
        if fusion == "minmax":
            a, b = ((x - x.min()) * (1 / (x.max() - x.min())) for x in (a, b))
        both_VT[block] = 0.75 * a + 0.25 * b
    eye_VD, text_TD = vectors(sim_VT)
    parts = scored(EmbeddedGallery(found, eye_VD, text_TD, vectors(other_VT)[1]), fold_V, beta=0.75, fusion=fusion)
    means = over_folds([each for _, each in parts])
    for side, expected in oracle(both_VT, found, fold_V, "mid").items():
        assert {key: getattr(means, side)[key] for key in expected} == pytest.approx(expected)


@pytest.mark.parametrize("first", [False, True])
def test_the_interval_draws_items_inside_their_fold(first: bool) -> None:
    sim_VT, found = problem(7, 24, first=first)
    fold_V = np.arange(24) // 8
    parts = scored(EmbeddedGallery(found, *vectors(sim_VT)), fold_V)
    mine = intervals(rank_table([(part.gallery, each) for part, each in parts], "mid"))
    rng, drawn = np.random.default_rng(0), []
    for part, each in parts:
        sides = ((each.ranks["t2v"].rank(), part.gallery.item_T), (each.ranks["v2t"].rank(), np.arange(8)))
        asked = np.unique(part.gallery.item_T)
        values = []
        for _ in range(1000):
            times = np.bincount(asked[rng.integers(0, len(asked), len(asked))], minlength=8)
            known = [(rank[~np.isnan(rank)], times[item[~np.isnan(rank)]]) for rank, item in sides]
            values.append(sum(100 * np.average(r <= k, weights=w) for r, w in known for k in (1, 5, 10)))
        drawn.append(values)
    assert mine["SumR"] == pytest.approx(list(np.percentile(np.mean(drawn, axis=0), [2.5, 97.5])))
    means = over_folds([each for _, each in parts])
    assert mine["SumR"][0] < means.sum_r < mine["SumR"][1]
    for side, figures_of in (("t2v", means.t2v), ("v2t", means.v2t)):
        assert set(mine[side]) == {"R@1", "R@5", "R@10", "MeanR", "mAP", "MRR", "MedR"}
        for name, (low, high) in mine[side].items():
            assert low <= figures_of[name] <= high


def test_calibration_takes_the_queries_of_all_folds_together() -> None:
    sim_VT, found = problem(9, 20, first=False)
    parts = scored(EmbeddedGallery(found, *vectors(sim_VT)), np.arange(20) // 5)
    told, unc = told_by(Stating(), parts)
    for side in ("t2v", "v2t"):
        middle_Q = np.concatenate([each.ranks[side].rank() for _, each in parts])
        pairs = [(u, rank > 1) for u, rank in zip(unc[side], middle_Q, strict=True) if not np.isnan(rank)]
        bad, good = ([u for u, failed in pairs if failed is np.bool_(wrong)] for wrong in (True, False))
        higher = np.mean([(b > g) + 0.5 * (b == g) for b, g in itertools.product(bad, good)])
        assert told[side]["auroc"] == pytest.approx(higher)
        assert told[side]["queries"] == len(pairs) and told[side]["aurc_random"] == pytest.approx(len(bad) / len(pairs))


@pytest.mark.parametrize("first", [False, True])
def test_trivial_uncertainties_are_read_off_the_similarities(first: bool) -> None:
    sim_VT, found = problem(13, 20, first=first)
    sim_VT += 0.1 * np.random.default_rng(2).normal(size=sim_VT.shape).round(1)
    fold_V = np.arange(20) // 5
    parts = scored(EmbeddedGallery(found, *vectors(sim_VT)), fold_V)
    (told, _), (alone, _) = told_by(Stating(), parts), told_by(Stating(silent=True), parts)
    for side in ("t2v", "v2t"):
        rows: dict[str, list[tuple[float, bool]]] = {"top similarity": [], "margin": []}
        for fold, (_, result) in enumerate(parts):
            at_V, at_T = np.flatnonzero(fold_V == fold), np.flatnonzero(fold_V[found.item_T] == fold)
            if side == "v2t" and found.first_T is not None:
                at_T = at_T[np.isin(at_T, found.first_T)]
            block = sim_VT[np.ix_(at_V, at_T)]
            ranks = result.ranks[side].rank()
            for sims, rank in zip(block.T if side == "t2v" else block, ranks, strict=True):
                if not np.isnan(rank):
                    second, top = sorted(sims)[-2:] if len(sims) > 1 else (sims[0], sims[0])
                    rows["top similarity"].append((-top, bool(rank > 1)))
                    rows["margin"].append((second - top, bool(rank > 1)))
        assert list(told[side]["trivial"]) == list(rows)
        for name, pairs in rows.items():
            mine = told[side]["trivial"][name]
            bad, good = ([u for u, failed in pairs if failed is wrong] for wrong in (True, False))
            higher = np.mean([(b > g) + 0.5 * (b == g) for b, g in itertools.product(bad, good)])
            assert mine["auroc"] == pytest.approx(higher)
            assert mine["curve"]["coverage"][-1] == 1.0
            assert mine["curve"]["risk"][-1] == pytest.approx(len(bad) / len(pairs))
            for figure, (low, high) in mine["gaps"].items():
                assert low < told[side][figure] - mine[figure] < high
            assert alone[side]["trivial"][name] == {key: mine[key] for key in ("auroc", "aurc", "curve")}
        assert set(alone[side]) == {"aurc_random", "aurc_best", "queries", "trivial"}
        assert all(alone[side][key] == told[side][key] for key in ("aurc_random", "aurc_best", "queries"))


def test_items_of_different_folds_are_different_items() -> None:
    sim_VT, found = problem(17, 16, first=False)
    parts = scored(EmbeddedGallery(found, *vectors(sim_VT)), np.arange(16) // 8)
    told, unc = told_by(Stating(), parts)
    for side in ("t2v", "v2t"):
        rank = np.concatenate([result.ranks[side].rank() for _, result in parts])
        known, rivals = ~np.isnan(rank), []
        items: list[int] = []
        for fold, _ in parts:
            ids = [int(name[1:]) for name in fold.gallery.item_ids]  # of the whole gallery: no two folds share one
            items += [ids[v] for v in fold.gallery.item_T] if side == "t2v" else ids
            asked = (fold.text_TD, fold.visual_VD)
            rivals.append(trivial_uncertainties(*(asked if side == "t2v" else asked[::-1])))
        others = {name: np.concatenate([fold[name] for fold in rivals])[known] for name in rivals[0]}
        expected = gaps(unc[side][known], others, rank[known], np.array(items)[known])
        assert {name: trivial["gaps"] for name, trivial in told[side]["trivial"].items()} == expected


def test_an_empty_fold_has_no_mean() -> None:
    sim_VT, found = problem(11, 8, first=False)
    sides = EmbeddedGallery(found, *vectors(sim_VT))
    with pytest.raises(ArtifactError, match="fold 3 "):
        sides.folds(np.array([0, 0, 0, 0, 1, 1, 1, 1]), 3)
    silent = next(v for v in range(8) if v not in found.item_T) if len(set(found.item_T)) < 8 else None
    assert silent is not None
    with pytest.raises(ArtifactError, match="fold 2 "):
        sides.folds((np.arange(8) == silent).astype(int), 2)


def test_sum_r_is_the_sum_of_mean_recalls() -> None:
    recalls = [dict.fromkeys(("R@1", "R@5", "R@10", "queries", "dropped"), float(n)) for n in (10, 20, 60)]
    means = over_folds([Figures(recall, recall) for recall in recalls])
    assert means.sum_r == pytest.approx(6 * 30.0) and means.t2v["queries"] == 90


def test_sum_recall_of_perfect_retrieval_is_600() -> None:
    unit = torch.eye(20)
    visual_of_text = Positives.from_ids([i // 5 for i in range(100)], range(20))
    t2v, v2t = rank_both(dot_sim(unit, unit.repeat_interleave(5, 0)), 20, 100, visual_of_text)
    assert Scores.of(t2v, v2t, "mid").sum_r == 600.0
