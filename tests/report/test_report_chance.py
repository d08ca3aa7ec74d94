"""A difference that the results do not tell from chance is never said, or shown, as a win."""

from __future__ import annotations

import fakes as fake
import pytest

from ccr_cli.report import compare, diagnosed
from ccr_cli.report.findings import Findings, findings

OVERLAP = "may be chance: 95 % intervals overlap"


def found(totals: dict[str, list[float]], half: float | None = None, without: str = "") -> Findings:
    """Findings of runs at 40 % noise: by label a SumR for each seed, with an interval of `half` to both sides.

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
    return findings(compare.views(compare.results_frame(rows))[0], diagnosed.diagnoses_frame([]))


@pytest.mark.parametrize(("half", "chance"), [(3.0, True), (1.9, False), (None, False)])
def test_of_one_seed_intervals_that_overlap_are_said(half: float | None, chance: bool) -> None:
    said = found({"infonce": [40.0], "uml": [44.0], "infonce (oracle)": [60.0]}, half)
    plain = "reaches SumR 44.0 (one seed), 4.0 above infonce, which knows nothing of noise"
    assert plain in said.headline
    assert said.headline.endswith(f"{plain}; that may be chance: their 95 % intervals overlap.") == chance
    assert [tile.value for tile in said.tiles] == ["44.0", "+4.0", "20 %"]
    assert [tile.open for tile in said.tiles] == [False, chance, chance]
    assert (OVERLAP in said.tiles[1].detail) == chance
    assert any("wins 20 %" in each and ("which may be chance too" in each) == chance for each in said.more)


def test_over_seeds_their_spread_decides() -> None:
    sure = found({"infonce": [40.0, 50.0], "uml": [44.0, 55.0]}, half=20.0)
    assert "4.5 ± 0.7 above infonce" in sure.headline and "chance" not in sure.headline
    assert not sure.tiles[1].open
    level = found({"infonce": [10.0, 20.0], "uml": [12.0, 19.0]})
    assert "level with infonce (+0.5 ± 2.1)" in level.headline
    assert level.tiles[1].open and level.tiles[1].detail.endswith("within 1 sd: may be chance")


@pytest.mark.parametrize(("half", "chance"), [(3.0, True), (1.9, False), (None, False)])
def test_an_ensemble_whose_interval_overlaps_is_not_praised(half: float | None, chance: bool) -> None:
    said = found({"infonce": [40.0], "uml": [44.0], "uml x3": [48.0], "infonce + uml": [46.0]}, half)
    more = "; that may be chance: their 95 % intervals overlap" * chance
    assert f"As an ensemble, uml x3 reaches 48.0, 4.0 above the mean of single runs{more}." in said.more
    assert f"As an ensemble, infonce + uml reaches 46.0, 4.0 above the mean of single runs{more}." in said.more


def test_an_ensemble_beside_runs_without_intervals_is_not_said_to_overlap() -> None:
    said = found({"uml": [44.0], "uml x3": [48.0]}, half=3.0, without="uml")
    assert "As an ensemble, uml x3 reaches 48.0, 4.0 above the mean of single runs." in said.more


def test_equal_results_are_level_however_wide_their_intervals() -> None:
    said = found({"infonce": [40.0], "uml": [40.0]}, half=3.0)
    assert "level with infonce (+0.0), which knows nothing of noise." in said.headline and said.tiles[1].open
