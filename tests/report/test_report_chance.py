"""A difference that the results do not tell from chance is never said, or shown, as a win."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import fakes as fake
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from ccr_cli.errors import ArtifactError
from ccr_cli.report.tables import comparable, diagnoses
from ccr_cli.report.tables.differences import QueryRanks, Rankings
from ccr_cli.report.words.findings import Findings, findings

Hits = npt.NDArray[np.bool_]
OVERLAP = "may be due to chance: 95% intervals overlap"
ITEMS = 100


def found(
    totals: dict[str, list[float]], half: float | None = None, without: str = "", rankings: Rankings | None = None
) -> Findings:
    """Findings of runs at 40% noise: by label a SumR for each seed, with an interval of `half` to both sides.

    That `without` has none.
    """
    rows = []
    for label, values in totals.items():
        for seed, total in enumerate(values):
            told = {"run": f"{label} {seed}", "data": "d", "split": "test", "lang": "es", "caption_set": "c"}
            more = {"label": label, "method": "m", "noise": 0.4, "seed": seed, "role": "target", "fusion": "none"}
            ends = None if half is None or label == without else [total - half, total + half]
            figures = {"SumR": total, "SumR_interval": ends}
            signature = fake.signature("es", 0.4, seed, "none")
            rows.append((str(told["run"]), {**told, **more, **figures, "signature": signature, "zero_shot": False}))
    view = comparable.views(comparable.results_frame(rows))[0]
    return findings(view, diagnoses.diagnoses_frame([]), QueryRanks(rankings))


def hits(*parts: tuple[int, int]) -> Hits:
    """Of the items those that are found, in both directions: from each start up to each end."""
    right = np.zeros(ITEMS, dtype=bool)
    for start, end in parts:
        right[start:end] = True
    return right


def ranks(right: Hits, name: str = "i") -> pd.DataFrame:
    """The ranks of a run: 1 where an item is found, else 11."""
    place = np.where(right, 1.0, 11.0)
    names = [f"{name}{n}" for n in range(len(right))]
    told = {"query_id": names, "item_id": names, "fold": 0, "rank": place, "average_precision": 1 / place}
    return pd.concat([pd.DataFrame({"direction": side, **told}) for side in ("t2v", "v2t")])


def answered(
    runs: dict[str, list[Hits]], load: Callable[[str, Hits], pd.DataFrame] = lambda label, right: ranks(right)
) -> Findings:
    """Findings where it is known what was found; the intervals of two results overlap."""
    totals = {label: [600.0 * float(right.mean()) for right in seeds] for label, seeds in runs.items()}
    rankings = {
        (f"{label} {seed}", fake.signature("es", 0.4, seed, "none")): partial(load, label, right)
        for label, seeds in runs.items()
        for seed, right in enumerate(seeds)
    }
    return found(totals, 60.0, rankings=rankings)


def normal(gap_I: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The interval of a mean of items by its standard error, as SumR."""
    half = 1.96 * 600 * float(gap_I.std()) / len(gap_I) ** 0.5
    return 600 * float(gap_I.mean()) - half, 600 * float(gap_I.mean()) + half


def told(sentence: str) -> tuple[float, float]:
    """The interval that a sentence says."""
    low, high = re.findall(r"95% interval,? (\S+) to ([^\s,)]+)", sentence)[0]
    return float(low.replace("\u2212", "-")), float(high.replace("\u2212", "-"))


@pytest.mark.parametrize(("half", "chance"), [(3.0, True), (1.9, False), (None, False)])
def test_of_one_seed_intervals_that_overlap_are_said(half: float | None, chance: bool) -> None:
    said = found({"infonce": [40.0], "uml": [44.0], "infonce (oracle)": [60.0]}, half)
    plain = "reaches SumR 44.0 (one seed), 4.0 above infonce, which ignores noise"
    assert plain in said.headline
    assert said.headline.endswith(f"{plain}; this may be due to chance: their 95% intervals overlap.") == chance
    assert [tile.value for tile in said.tiles] == ["44.0", "+4.0", "20%"]
    assert [tile.open for tile in said.tiles] == [False, chance, chance]
    assert (OVERLAP in said.tiles[1].detail) == chance
    assert any("recovers 20%" in each and ("which may be due to chance too" in each) == chance for each in said.more)


def test_over_seeds_their_spread_decides() -> None:
    sure = found({"infonce": [40.0, 50.0], "uml": [44.0, 55.0]}, half=20.0)
    assert "4.5 ± 0.7 above infonce" in sure.headline and "chance" not in sure.headline
    assert not sure.tiles[1].open
    level = found({"infonce": [10.0, 20.0], "uml": [12.0, 19.0]})
    assert "level with infonce (+0.5 ± 2.1)" in level.headline
    assert level.tiles[1].open and level.tiles[1].detail.endswith("n = 2; may be due to chance: within 1 sd")


@pytest.mark.parametrize(("half", "chance"), [(3.0, True), (1.9, False), (None, False)])
def test_an_ensemble_whose_interval_overlaps_is_not_praised(half: float | None, chance: bool) -> None:
    said = found({"infonce": [40.0], "uml": [44.0], "uml x3": [48.0], "infonce + uml": [46.0]}, half)
    more = "; this may be due to chance: their 95% intervals overlap" * chance
    assert f"As an ensemble, uml x3 reaches 48.0, 4.0 above the mean of single runs{more}." in said.more
    assert f"As an ensemble, infonce + uml reaches 46.0, 4.0 above the mean of single runs{more}." in said.more


def test_an_ensemble_beside_runs_without_intervals_is_not_said_to_overlap() -> None:
    said = found({"uml": [44.0], "uml x3": [48.0]}, half=3.0, without="uml")
    assert "As an ensemble, uml x3 reaches 48.0, 4.0 above the mean of single runs." in said.more


def test_equal_results_are_level_however_wide_their_intervals() -> None:
    said = found({"infonce": [40.0], "uml": [40.0]}, half=3.0)
    assert "level with infonce (+0.0), which ignores noise." in said.headline and said.tiles[1].open


BASE = hits((0, 40))


@pytest.mark.parametrize(
    ("better", "words", "certain"),
    [
        (hits((0, 52)), "72.0 above", True),
        (hits((0, 28)), "72.0 below", True),
        (hits((18, 62)), "24.0 above", False),
    ],
    ids=["above", "below", "other items"],
)
def test_on_the_same_queries_the_paired_interval_decides(better: Hits, words: str, certain: bool) -> None:
    said = answered({"infonce": [BASE], "uml": [better]})
    low, high = told(said.headline)
    gap = better.astype(float) - BASE
    assert (low, high) == pytest.approx(normal(gap), abs=6.0)
    assert (low > 0 or high < 0) is certain, "by construction"
    ends = f"{low:.1f} to {high:.1f}".replace("-", "\u2212")
    if certain:
        assert f"{words} infonce (95% interval {ends}), which ignores noise." in said.headline
        assert "chance" not in said.headline + said.tiles[1].detail and not said.tiles[1].open
        assert said.tiles[1].detail.endswith(f"n = 1; 95% interval {ends}")
    else:
        more = f"; this may be due to chance: its 95% interval, {ends}, contains 0."
        assert said.headline.endswith(f"{words} infonce, which ignores noise{more}")
        assert said.tiles[1].open and said.tiles[1].detail.endswith(f"may be due to chance: 95% interval {ends}")


def test_several_seeds_are_paired_as_their_mean_and_their_spread_is_said() -> None:
    seeds = [hits((0, 60)), hits((0, 56))]
    said = answered({"infonce": [BASE, BASE], "uml": seeds})
    assert "108.0 ± 17.0 above infonce (95% interval " in said.headline and "chance" not in said.headline
    assert told(said.headline) == pytest.approx(normal(np.mean(seeds, axis=0) - BASE), abs=6.0)
    wide = answered({"infonce": [BASE, BASE], "uml": [hits((0, 70)), BASE]})
    assert "90.0 ± 127.3 above infonce (95% interval " in wide.headline and wide.tiles[1].open
    assert wide.headline.endswith("; this may be due to chance: it is within its standard deviation over seeds.")
    level = answered({"infonce": [BASE, BASE], "uml": [hits((2, 54)), hits((12, 42))]})
    assert re.search(r"level with infonce \(\+6.0 ± 93.3; 95% interval \u2212\S+ to \S+\),", level.headline)
    assert told(level.headline)[0] < 0 < told(level.headline)[1] and level.tiles[1].open


def test_an_ensemble_is_paired_with_its_runs() -> None:
    said = answered({"uml": [BASE, hits((0, 44))], "uml x2": [hits((0, 54))]}).more[-1]
    assert said.startswith("As an ensemble, uml x2 reaches 324.0, 72.0 above the mean of single runs (95% interval ")
    assert told(said) == pytest.approx(normal(hits((0, 54)) - (BASE * 0.5 + hits((0, 44)) * 0.5)), abs=6.0)
    said = answered({"uml": [BASE], "uml x2": [hits((18, 62))]}).more[-1]
    assert "24.0 above the mean of single runs; this may be due to chance: its 95% interval, " in said
    assert said.endswith(", contains 0.")


def missing(label: str, right: Hits) -> pd.DataFrame:
    raise ArtifactError("of an earlier version")


@pytest.mark.parametrize(
    "load",
    [
        missing,
        lambda label, right: ranks(right).drop(columns="item_id"),
        lambda label, right: ranks(right, label),
        lambda label, right: ranks(~right),
    ],
    ids=["unreadable", "without items", "other queries", "other figures"],
)
def test_where_queries_cannot_be_paired_the_overlap_is_said(load: Callable[[str, Hits], pd.DataFrame]) -> None:
    said = answered({"infonce": [BASE], "uml": [hits((0, 52))]}, load)
    assert said.headline.endswith("; this may be due to chance: their 95% intervals overlap.")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (("infonce", "source-only", "basic", "uml"), "uml reaches"),
        (("infonce", "source-only", "tcl", "uml"), "uml (the best of 2 noise-robust methods) reaches"),
        (("infonce", "uml (gmm)", "tcl (paper)", "tcl", "uml"), "uml (the best of 2 noise-robust methods) reaches"),
        (("infonce", "uml (pairs 1a2b3c)", "uml"), "uml reaches"),
        (("infonce", "mine", "uml"), "uml (the best of 2 methods) reaches"),
        (("infonce", "basic", "source-only"), "source-only (the best of 3 methods) reaches"),
    ],
)
def test_methods_that_know_of_noise_are_counted_once(labels: tuple[str, ...], words: str) -> None:
    said = found({label: [40.0 + n] for n, label in enumerate(labels)})
    assert f" switched translations, {words} SumR" in said.headline
