"""The comparison's pure parts, on rows made by hand: cells, rows, recovery, tables, simulated features."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tinydual
import torch
import toy

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import disncl_parts
import ensembles
import french_errors
import noise_robustness
import parallel_text
import real_errors
import real_noise
import repair_loop
import scale
import search_at_size
import several_translations
from robustness import code, figure, grid, runs, tables
from robustness.collection import simulate
from robustness.grid import ORACLE, TWICE, Cell
from robustness.recovery import RESAMPLES, difference, recovery

from ccr_cli import registry
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.errors import UsageError
from ccr_cli.report.tables import differences as reported

ITEMS = 40


def row(cell: Cell, level: float, when: str = "2026-12-01", **judge: float) -> dict[str, Any]:
    """A row of a cell whose items are all found equally well: SumR is 100 * level."""
    found = {"t2v": f"{round(level / 2):x}" * ITEMS, "v2t": f"{round(level / 2):x}" * ITEMS, "queries": 1}
    return {
        "when": when,
        "method": cell.method,
        **dict(zip(grid.WHERE, cell.where, strict=True)),
        "config": cell.config,
        "SumR": runs.sum_r(found),
        "others": {"source language": 400.0},
        "uncertainty": {d: {"softmax": {"auroc": 0.6, "aurc": 0.5}} for d in runs.DIRECTIONS},
        "epochs": [100.0, 300.0, 200.0],
        "found": found,
        "judge": dict.fromkeys(runs.JUDGED) | judge,
        "steps": 2820,
        "parameters": 1000,
        "seconds": 60.0,
        "cpu_seconds": 60.0,
        "best_epoch": 3,
        "wall": 70.0,
        "code": "1+c0ffee",
        "torch": "2",
        "machine": "m",
    }


@pytest.mark.parametrize("part", grid.PARTS)
def test_every_cell_of_a_part_can_be_trained(part: str) -> None:
    cells = grid.PARTS[part](None)
    assert cells and len({(c.label, c.where) for c in cells}) == len(cells)
    for cell in cells:
        if grid.language(cell.translations) == "zh":  # there are no Chinese back-translations
            assert "back" not in grid._config(cell.method, cell.options).needs(), cell
        assert cell.config["epochs"] == 12 or part == "tuning", "the number of steps is the same for all"


def test_the_oracle_without_noise_is_the_method_itself() -> None:
    cells = {c.label: c for c in grid.main_part() if c.noise == 0}
    assert cells[ORACLE].name == cells["infonce"].name
    assert replace(cells[ORACLE], noise=0.4).name == replace(cells["infonce"], noise=0.4).name


def test_one_run_has_one_name_whatever_it_is_called() -> None:
    cell = Cell("uml", "uml", noise=0.4)
    same = Cell("uml (triangle)", "uml", (("judge", "triangle"),), noise=0.4)
    assert cell.name == same.name
    others = [replace(cell, **change) for change in ({"seed": 1}, {"noise": 0.2}, {"target": "pair"})]
    others.append(replace(cell, options=(("beta", "0"),)))
    assert len({cell.name, *(other.name for other in others)}) == 5
    clean = replace(cell, noise=0.0)
    assert clean.name == replace(clean, target="pair", style="image").name


def test_rows_belong_to_cells_whose_options_they_share() -> None:
    cell = Cell("uml", "uml", noise=0.4)
    kept = row(cell, 2)
    assert grid.fulfils(kept, cell)
    assert grid.fulfils(kept | {"config": {**kept["config"], "gone": 1}}, cell), "an option that is no more"
    fewer = {k: v for k, v in kept["config"].items() if k != "beta"}
    assert grid.fulfils(kept | {"config": fewer}, cell), "an option that is new"
    other = replace(cell, options=(*cell.options, ("drop_below", "0.5")))
    older = {k: v for k, v in kept["config"].items() if k != "drop_below"}
    assert not grid.fulfils(kept, other) and not grid.fulfils(kept | {"config": older}, other), "it had its default"
    assert not grid.fulfils(kept | {"config": {**kept["config"], "beta": 0.7}}, cell), "a default that changed"
    assert not grid.fulfils(kept, replace(cell, seed=1))
    other_side = {"config": {**kept["config"], "judge_side": "both"}}
    assert grid.fulfils(kept | other_side, cell), "triangle takes no side"
    assert not grid.fulfils(kept | other_side, replace(cell, options=(("judge", "two-group"),)))
    rows = [row(cell, 4, "2026-12-02"), row(cell, 2, "2026-12-01")]
    assert grid.find(rows, cell) is rows[0], "the latest counts"
    assert grid.find(rows, replace(cell, noise=0.2)) is None


def test_an_option_that_no_method_has_is_refused() -> None:
    with pytest.raises(UsageError, match="'nonsense'"):
        Cell("x", "infonce", (("nonsense", "1"),)).config  # noqa: B018


def test_hits_of_items_add_up_to_sum_r() -> None:
    ranks = pd.DataFrame(
        {
            "result": [0, 0, 0, 0, 0, 0, 1],
            "direction": ["t2v"] * 4 + ["v2t"] * 2 + ["t2v"],
            "query_id": ["b#zh#0", "b#zh#1", "a#zh#0", "a#zh#1", "b", "a", "a#zh#0"],
            "rank": [1.0, 1.5, 7.0, 11.0, 3.0, 20.0, 1.0],
        }
    )
    found = runs.per_item(ranks, 0)
    assert found == {"t2v": "15", "v2t": "02", "queries": 2}
    assert runs.values(found) == [50.0, 450.0]
    # R@1 1/4, R@5 2/4, R@10 3/4 of the captions; 0, 1/2, 1/2 of the pictures
    assert runs.sum_r(found) == 150.0 + 100.0


def test_recovery_is_the_ratio_of_means() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(150, 40, (3, 200))
    gap = 20 + rng.normal(0, 5, (3, 200))
    half = recovery(base + 0.5 * gap, base, base + gap)
    assert half.ratio is not None and half.ratio.value == pytest.approx(0.5)
    assert (half.ratio.low, half.ratio.high) == pytest.approx((0.5, 0.5)), "exactly half, item by item"
    assert half.gap.value == pytest.approx(gap.mean()) and half.gap.low < half.gap.value < half.gap.high
    wider = recovery(base + 0.5 * gap + rng.normal(0, 30, (3, 200)), base, base + gap).ratio
    assert wider is not None and wider.low < wider.value < wider.high
    assert recovery(base, base, base - 1).ratio is None, "an oracle that wins nothing"
    with pytest.raises(ValueError, match=r"\(2, 200\).*\(3, 200\)"):
        recovery(base[:2], base, base)


def test_a_gap_that_is_small_against_its_spread_gives_no_ratio() -> None:
    base = np.zeros((1, 2))
    found = recovery(base + 1, base, np.array([[5.0, -4.0]]))
    assert found.ratio is None and (found.gap.value, found.gap.low, found.gap.high) == (0.5, -4.0, 5.0)


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_intervals_are_over_seeds_and_items(seeds: int) -> None:
    """The variance of the bootstrap's mean, from the covariances of the numbers of draws (multinomial, n of n)."""
    rng = np.random.default_rng(1)
    values = rng.normal(0, 3, (seeds, 1)) + rng.normal(0, 30, (1, 300)) + rng.normal(0, 20, (seeds, 300))
    second = [1 / n**2 + (np.eye(n) - 1 / n) / n**2 for n in values.shape]  # E[share share^T]
    spread = np.sqrt(np.trace(second[0] @ values @ second[1] @ values.T) - values.mean() ** 2)
    found = difference(values, np.zeros_like(values))
    assert found.high - found.low == pytest.approx(2 * 1.96 * spread, rel=0.08)
    if seeds == 1:
        assert spread == pytest.approx(values.std() / np.sqrt(300)), "of items alone"


def test_recovery_over_seeds_alone_is_that_of_the_report() -> None:
    sums = {"infonce": [10, 12, 11, 9, 12], "m": [14, 19, 16, 15, 12], ORACLE: [20, 21, 23, 19, 22]}
    values = [
        {"label": k, "seed": s, "noise_seed": s, "noise": 0.4, "SumR": v} for k in sums for s, v in enumerate(sums[k])
    ]
    theirs = reported.recovery(pd.DataFrame(values), "m", 0.4)
    arrays = (np.tile(np.array(sums[k], dtype=float)[:, None], (1, 5)) for k in ("m", "infonce", ORACLE))
    ours = recovery(*arrays).ratio
    assert theirs is not None and ours is not None
    assert ours.value == pytest.approx(theirs.value)
    assert theirs.low is not None and theirs.high is not None and RESAMPLES >= 1000
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.03), "drawn against enumerated"


def test_a_difference_has_an_interval_around_it() -> None:
    estimate = difference(np.array([[3.0, 5.0]]), np.array([[1.0, 1.0]]))
    assert (estimate.value, estimate.low, estimate.high) == (3.0, 2.0, 4.0)


def _lines(block: str) -> dict[str, list[str]]:
    lines = [line.split("|")[1:-1] for line in block.splitlines() if line.startswith("|")]
    return {name.strip(): [cell.strip() for cell in cells] for name, *cells in lines}


LEVELS = {
    "infonce": 2,
    ORACLE: 4,
    "trine": 6,
    "trine, no judge": 2,
    "trine, oracle": 8,
    TWICE: 4,
    f"{TWICE}, oracle": 4,
    "gsc": 4,
    "gsc, no judge": 2,
    "gsc, oracle": 4,
}


def _measured(labels: list[str], seeds: tuple[int, ...] = grid.SEEDS) -> tables.Results:
    """Rows at 0 and 40 % switched translations: SumR as in `LEVELS`, with seed 2 higher; 600 without noise."""
    rows = []
    for cell in [*grid.main_part(labels), *grid.clean_part(labels), *grid.matched_part(labels)]:
        where = (cell.style, cell.target, cell.regime, cell.translations)
        if where == ("caption", "translation", "given", "baidu-2016") and cell.noise in (0.0, 0.4):
            level = LEVELS[cell.label] + (2 if cell.seed == 2 else 0) if cell.noise else 6
            rows += [row(cell, level, auroc=0.9)] if cell.seed in seeds else []
    return tables.Results(rows)


def test_the_main_table() -> None:
    results = _measured(["infonce", ORACLE, "trine", TWICE])
    block = tables.main_block(results).partition("**Switched pairs")[0]
    lines = _lines(block)
    assert lines["SumR"] == ["0 %", "40 %", "recovery 40 %"], "columns without a figure are left out"
    assert lines["`infonce`"] == ["600.0 ± 0.0 (3)", "266.7 ± 115.5 (3)", ""]
    assert lines["_`infonce` (oracle)_"][:1] == ["600.0 ± 0.0 (3)"] and "`basic`" not in lines
    # (6 - 2) / (8 - 2) of the same method, not (6 - 2) / (4 - 2) of infonce
    assert lines["`trine`"][1:] == ["666.7 ± 115.5 (3)", "0.67 [0.67, 0.67] (3)"]
    assert lines["_no judge_"][1] == "266.7 ± 115.5 (3)" and lines["_oracle_"][0] == ""
    names = list(lines)
    assert names.index("**one model**") < names.index("`infonce`") < names.index("**two models**")
    assert names.index("**two models**") < names.index("`trine`") < names.index("`infonce` (S-T, two models)")
    assert "0.9000 ± 0.0000" in tables.detection_block(results)
    assert "|`trine`|2|1,000|2,820|60|1.0|3, 3, 3|3, 3, 3|" in tables.cost_block(results)
    older = tables.Results([{**each, "when": "2026-01-01"} for each in results.rows])
    assert "`trine`" not in tables.cost_block(older), "of slower steps"
    whole = tables.Results([row(cell, 6) for cell in grid.main_part(["trine"])])
    assert [p[:2] for p in figure.points(whole)["pair"]["trine"]] == [(r, 600.0) for r in (0.0, 0.2, 0.4, 0.6)]
    assert not figure.points(results), "a line that is not measured to the end is left out"
    assert "|`trine`|300.0 (2)|200.0|300.0 (2)|200.0|" in tables.epochs_block(results)
    assert "|`trine`|0.600|0.600|" in tables.uncertainty_block(results)
    for drawn, rows in ((figure.draw, whole), (figure.epochs, results)):
        assert "trine (2 models)" in drawn(rows) and "<svg" in drawn(tables.Results([]))


def test_leads_are_shown_at_equal_cost_too() -> None:
    lines = _lines(tables.contrasts_block(_measured(["infonce", "trine", TWICE, "gsc"])))
    assert "`gsc` above `infonce`" in lines and "`gsc` above no judge" not in lines, "recovery says it of the others"
    assert "`trine` above `infonce` (one model)" not in lines
    assert lines["`infonce` (S-T, two models) above `infonce` (one model)"][1] == "+200.0 [+200.0, +200.0] (3)"
    assert lines["`trine` above `infonce` (S-T, two models)"][1] == "+200.0 [+200.0, +200.0] (3)"
    assert lines["`trine` above no judge"][1] == "+400.0 [+400.0, +400.0] (3)"
    without = _lines(tables.contrasts_block(_measured(["infonce", "trine"], seeds=(0,))))
    assert "`trine` above `infonce` (S-T, two models)" not in without
    assert without["`trine` above no judge"][1] == "+400.0 [+400.0, +400.0]", (
        "one seed: over items, and not called more"
    )


def test_real_translations_of_one_engine_alone_are_not_repeated() -> None:
    cells = [c for c in grid.real_part(["infonce", "gsc", "uml"]) if c.seed == 0]
    rows = [row(c, 2) for c in cells if c.method != "gsc" or c.translations == grid.CHINESE[0]]
    lines = _lines(tables.real_block(tables.Results(rows)))
    assert "`uml` above `infonce`" in lines and "`gsc` above `infonce`" not in lines


def test_the_number_of_models_is_that_of_the_method() -> None:
    cells = {cell.label: cell for cell in grid.main_part() if cell.noise == 0.4}
    two = {label for label, cell in cells.items() if cell.models == 2}
    assert {"tcl", "trine", TWICE} <= two and not two & {"infonce", ORACLE, "uml", "distil", "decl"}
    assert tables.cost(replace(cells["trine"], options=(("models", "1"),))) == "one model"
    assert tables.cost(replace(cells["trine"], options=(("models", "3"),))) == "more models"
    assert tables.cost(cells["distil"]) == "one model and its teacher"


def test_a_method_is_held_against_itself() -> None:
    cell = next(c for c in grid.main_part(["infonce (two-group, both)"]) if c.noise == 0.4)
    without, ceiling = grid.matched(cell)
    labelled = {c.label: c.name for c in grid.main_part() if c.noise == 0.4 and (c.target, c.seed) == (cell.target, 0)}
    assert (without.name, ceiling.name) == (labelled["infonce"], labelled[ORACLE])
    assert [c.config["judge"] for c in grid.matched(replace(cell, noise=0.0))] == ["none"]
    assert [c.config["judge"] for c in grid.matched(Cell("tcl", "tcl", noise=0.4))] == ["oracle"]
    known = {c.name for c in grid.main_part()}
    assert not known & {c.name for c in grid.matched_part()}, "measured once"


def test_the_factorial_has_what_was_measured_under_other_names() -> None:
    cells = {c.label: c for c in grid.factorial_part() if c.seed == 0 and c.target == "translation"}
    assert len(cells) == 16 == len({c.name for c in cells.values()})
    assert all(c.models == int(c.label[0]) for c in cells.values())
    others = {c.name for c in (*grid.main_part(), *grid.judges_part(), *grid.ablations_part())}
    assert sum(c.name in others for c in cells.values()) == 10
    rows = [row(c, 2 * c.models + 2 * (c.config["judge"] == "oracle")) for c in grid.factorial_part()]
    lines = _lines(tables.factorial_block(tables.Results(rows)))  # of equal names the last: two models, pairs
    assert lines["with S-T"] == [*["400.0 ± 0.0 (5)"] * 3, "600.0 ± 0.0 (5)"]
    assert lines["S-T"] == ["+0.0 [+0.0, +0.0] (5)"] * 2
    assert lines["the second model"] == lines["oracle instead of none"] == ["+200.0 [+200.0, +200.0] (5)"] * 2


@pytest.mark.parametrize(("oracle", "ratio"), [(6, "0.50"), (2, "")])
def test_the_table_of_judges_has_the_win_of_the_oracle_once(oracle: float, ratio: str) -> None:
    cells = [c for c in grid.judges_part(["basic"]) if c.target == "pair"]
    found = {"none": 2.0, "oracle": oracle}
    rows = [row(c, found.get(c.config["judge"], 4.0)) for c in cells]
    lines = _lines(tables.judges_block(tables.Results(rows)).split("recovery, judge")[-1])
    assert lines["oracle above none"] == [f"{100 * (oracle - 2):+.1f}"]
    assert lines.get("triangle", [""]) == [ratio], "no ratio where the oracle wins nothing"


def test_every_method_is_tuned_with_one_budget() -> None:
    cells = grid.tuning_part()
    counted = pd.Series([cell.label.rpartition(": ")[0] for cell in cells]).value_counts()
    assert set(counted) <= {14, 10}, "seven settings at 0 and 40 %, or without a softness five"
    assert (counted[["basic", "infonce", "nrccr", "tcl", "trine", "uml"]] == 14).all()
    assert {cell.noise for cell in cells} == {0.0, 0.4} and ORACLE not in counted
    mine = [cell for cell in cells if cell.label.startswith("trine: ")]
    value = {c.name: 100 * c.config["lr"] + (0.04 if c.config["temperature"] == 0.07 else 0) for c in mine}
    rows = [row(c, 2) | {"epochs": [1000 * value[c.name] + c.noise, 1.0], "SumR": 2000 * value[c.name]} for c in mine]
    lines = _lines(tables.tuning_block(tables.Results(rows)))
    softer = "temperature 0.05: 100.0/100.4; 0.07: 140.0/140.4"
    best = ["temperature 0.07", "learning rates x 2"]
    assert lines["`trine`"] == ["100.0/100.4", softer, "50.0/50.4", "200.0/200.4", *["100.0/100.4"] * 2, *best]
    assert lines["`trine`: temperature 0.07"] == ["280.0", "280.0"]
    assert lines["`trine`: learning rates x 2"] == ["400.0", "400.0"]
    for left_out, found in (("6 epochs", [best[0], None]), ("temperature 0.05", [None, None])):
        some = [r for r, c in zip(rows, mine, strict=True) if left_out not in c.label]
        header, _, *_ = text = tables.tuning_block(tables.Results(some)).splitlines()
        shown = dict(zip(header.split("|"), next(line for line in text if "trine" in line).split("|"), strict=True))
        assert [shown.get(f"best {what}") for what in ("softness", "setting")] == found, "once all are measured"
    rows = [{k: v for k, v in each.items() if k != "epochs"} for each in rows]
    assert not _lines(tables.tuning_block(tables.Results(rows))), "SumR of the reported half decides nothing"


def test_rows_of_an_unclean_tree_are_marked() -> None:
    cell = Cell("infonce", "infonce", noise=0.4)
    for version, mark in (("0.1.0+c0ffee", ""), ("0.1.0+c0ffee-dirty", "†"), ("0.1.0", "†")):
        results = tables.Results([row(cell, 2) | {"code": version}])
        assert results.sum_r(cell) == f"200.0{mark}" and f"; {bool(mark):d} (†)" in tables.about_block(results)


def test_a_row_is_made_again_when_the_code_of_its_method_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell("trine", "trine", noise=0.4)
    assert noise_robustness.state(cell, []) == "to do"
    assert noise_robustness.state(cell, [row(cell, 2)]) == "hash unknown"
    kept = row(cell, 2) | {"sources": cell.sources}
    assert noise_robustness.state(cell, [kept]) == "measured"
    assert noise_robustness.state(cell, [kept], since="2026-12-02") == "to do"
    assert noise_robustness.state(cell, [kept | {"code": "0.1.0+c0ffee-dirty"}]) == "to do"
    code.sources.cache_clear()
    monkeypatch.setattr(registry, "source_sha256", lambda files: f"{len(files)} files")
    try:
        assert noise_robustness.state(cell, [kept]) == "stale"
        names = {path.stem for path in registry.sources(("judges", "triangle"), ("methods", "trine"))}
        assert {"trine", "triangle", "two_group", "contrastive", "dual"} <= names, "and what these import"
        assert not names & {"uml", "gmm"}
        assert code.sources("none", "distil") != Cell("distil", "distil", (("judge", "none"),)).sources, "its teacher"
    finally:
        code.sources.cache_clear()


def test_nothing_is_measured_with_uncommitted_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "version", lambda: "0.1.0+c0ffee-dirty")
    options = ["noise_robustness.py", "--data", str(tmp_path), "--workspace", str(tmp_path / "w")]
    monkeypatch.setattr(sys, "argv", options)
    with pytest.raises(SystemExit, match=r"ccr_cli, benchmarks/robustness"):
        noise_robustness.main()
    assert not (tmp_path / "w").exists()


def test_the_list_says_what_is_left_and_how_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = grid.clean_part(["trine"])
    runs.append(tmp_path, row(cells[0], 2) | {"sources": cells[0].sources})
    options = ["--list", "--part", "clean", "--methods", "trine", "infonce", "--results", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["noise_robustness.py", *options])
    noise_robustness.main()
    *each, last = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in each if "trine" in line] == ["measured", "to do"]
    minutes = (70 + 2 * noise_robustness.TYPICAL) / 60
    assert last.startswith("--part clean") and f"1 measured, 3 to do; about {minutes:.0f} minutes" in last


def test_every_block_has_its_place_on_the_page_and_can_be_made_from_nothing() -> None:
    page = "".join(path.read_text("utf-8") for path in noise_robustness.PAGES)
    blocks = {name: make(tables.Results([])) for name, make in tables.BLOCKS.items()}
    assert all("Not measured yet." in block for block in blocks.values())
    filled = tables.fill(page, blocks | {"main": r"\1 | stays \g<0>"})
    assert r"\1 | stays \g<0>" in filled and tables.fill(filled, {}) == filled
    assert [line for line in filled.splitlines() if line.startswith("## ")] == [
        line for line in page.splitlines() if line.startswith("## ")
    ]
    with pytest.raises(ValueError, match=r"\bunknown$"):
        tables.fill(page, {"unknown": ""})


def test_spreads_and_intervals_as_text() -> None:
    assert tables.spread([]) == "" and tables.spread([1.25]) == "1.2" and tables.spread([1.0, 3.0]) == "2.0 ± 1.4"
    assert tables.markdown(["a", "b"], [["x", ""]]) == "Not measured yet."


def test_simulated_features_are_a_mean_and_noise_of_a_given_length() -> None:
    rng = np.random.default_rng(0)
    sentences = rng.standard_normal((600, 256)).astype(np.float32)
    sentences /= np.linalg.norm(sentences, axis=1, keepdims=True)
    items = [f"i{n // 3}" for n in range(600)]
    ids, plain = simulate(items, sentences, 0.0, 0)
    assert ids == [f"i{n}" for n in range(200)]
    mean = sentences[:3].mean(axis=0)
    np.testing.assert_allclose(plain[0], mean / np.linalg.norm(mean), rtol=1e-5, atol=1e-7)
    noisy = simulate(items, sentences, 2.0, 0)[1]
    assert np.linalg.norm(noisy - plain, axis=1).mean() == pytest.approx(2.0, rel=0.02)
    assert np.array_equal(noisy, simulate(items, sentences, 2.0, 0)[1])
    assert not np.allclose(noisy, simulate(items, sentences, 2.0, 1)[1])


def test_places_break_ties_by_the_next_key() -> None:
    first, second = np.array([0.5, 0.1, 0.5, 0.9]), np.array([2.0, 9.0, 1.0, 0.0])
    assert real_noise.places(first, second).tolist() == [3, 1, 2, 4]
    assert real_noise.places(-first).tolist() == [2, 4, 3, 1]


def test_wilson_interval() -> None:
    # Newcombe (Statistics in Medicine 17, 1998), table I, method 3: 81 of 263, and 0 of 20
    assert real_noise.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert real_noise.wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


def test_a_reading_from_export_to_precision(tmp_path: Path) -> None:
    n = 300
    text = [f'caption {i} \t with \\ and "quotes"' for i in range(n)]
    triplets: Any = SimpleNamespace(slot_ids=[f"i{i}#en#0" for i in range(n)], source=text, target=text)
    order = np.arange(1, n + 1)
    found = {"suspicion of x": order, "length": order[::-1], real_noise.RANDOM: np.roll(order, 150)}
    blind, results = tmp_path / "reading-baidu-2016.tsv", tmp_path / "results"
    assert real_noise.export(triplets, found, blind, results) == 250
    listed = real_noise._read(blind)
    assert list(listed.columns) == ["caption_id", "english", "translation", "verdict", "reason"]
    assert listed["caption_id"].tolist() != triplets.slot_ids and set(listed["english"]) == {*text[:100], *text[150:]}
    with pytest.raises(SystemExit, match=r"\b2, 3\b"):
        real_noise.take(blind, results)
    number = listed["caption_id"].str[1:].str.partition("#")[0].astype(int)
    bad = number < 50
    real_noise._write(blind, listed.assign(verdict=np.where(bad, "bad", "ok"), reason=np.where(bad, "thing", "")))
    real_noise.take(blind, results)
    reading, ranks = results / blind.name, results / "ranks-baidu-2016.tsv"
    kept = real_noise._read(reading)
    assert (
        list(kept.columns) == ["caption_id", "rank", "verdict", "reason"]
        and kept["rank"].astype(int).is_monotonic_increasing
    )
    assert not any("caption" in value for value in kept.to_numpy().ravel())
    scored = {each["ranking"]: each for each in real_noise.score(real_noise._read(ranks), kept)}
    assert [scored["suspicion of x"][f"precision@{d}"] for d in (25, 50, 100)] == [1.0, 1.0, 0.5]
    assert scored["length"]["precision@100"] == 0.0 and scored[real_noise.RANDOM]["precision@100"] == 0.0
    (results / "baidu-2016.json").write_text('{"translations": "baidu-2016", "captions": 300}')
    shown = real_noise.block(results)
    assert "|suspicion of x|1.00|1.00|0.50|0.40 to 0.60|" in shown and "Reasons: thing 50." in shown
    # a further ranking: only what nobody has read is listed, and earlier verdicts stay
    assert real_noise.export(triplets, found | {"other": np.roll(order, 125)}, blind, results) == 25
    more = real_noise._read(blind)
    assert not set(more["caption_id"]) & set(kept["caption_id"])
    real_noise._write(blind, more.assign(verdict="ok"))
    real_noise.take(blind, results)
    assert len(real_noise._read(reading)) == 275 == len(real_noise._read(ranks))
    assert sum(real_noise._read(reading)["verdict"] == "bad") == 50


def test_the_table_of_the_repair_loop_pairs_seeds_with_no_repair() -> None:
    def made(arm: str, level: int, seed: int, noise: float = 0.0, judge: str = "two-group") -> dict[str, Any]:
        found = {"t2v": f"{level:x}" * ITEMS, "v2t": "0" * ITEMS, "queries": 1}
        where = {"judge": judge, "arm": arm, "noise": noise, "seed": seed}
        return {**where, "SumR": 100.0 * level, "found": found, "triplets": 1000}

    rows = [made(repair_loop.NONE, level, seed) for seed, level in ((0, 1), (1, 2))]
    rows += [made("drop worst", 3, 0), made("drop worst", 3, 1), made("weight", 2, 0)]
    rows += [made(repair_loop.NONE, 1, 0, repair_loop.KNOWN), made("drop worst", 4, 1, judge="fusion")]
    lines = repair_loop.block({"rows": rows}).splitlines()[2:]
    assert lines == [
        "|as they are: no repair|1,000|2|150.0 ± 70.7||",
        "|`fusion`: drop worst|1,000|1|400.0|+200.0 [+200.0, +200.0]|",
        "|`two-group`: drop worst|1,000|2|300.0 ± 0.0|+150.0 [+100.0, +200.0]|",
        "|`two-group`: weight|1,000|1|200.0|+100.0 [+100.0, +100.0]|",
        "|`two-group`, 40% switched: no repair|1,000|1|100.0||",
    ]


def _results(name: str | Path) -> Any:
    return json.loads((repair_loop.RESULTS.parent / name).read_text("utf-8"))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (repair_loop, "repair"),
        (several_translations, "several"),
        (search_at_size, "size"),
        (french_errors, "french"),
        (parallel_text, "parallel"),
        pytest.param(real_errors, "readers", marks=pytest.mark.slow),  # draws many samples
    ],
)
def test_the_tables_of_the_pages_are_those_of_the_results(module: Any, name: str) -> None:
    rows = [_results(module.RESULTS)] if hasattr(module, "RESULTS") else []
    if module is several_translations:
        rows = [rows[0]["rows"]]
    assert f"<!-- begin {name} -->\n{module.block(*rows)}\n<!-- end {name} -->" in module.PAGE.read_text("utf-8")


def test_the_page_of_judges_has_the_figures_of_the_results() -> None:
    page = (repair_loop.CHECKOUT / "docs" / "judges.md").read_text("utf-8")
    found = pd.DataFrame(_results("lexical.json")["rows"]).groupby(["data", "exchanged"]).mean(numeric_only=True)
    for data in found.index.get_level_values(0).unique():
        row = found.loc[data]
        parts = [f"{r.auroc:.3f}, {r.precision:.2f}, {r.recall:.2f}" for r in row.loc[0.2:].itertuples()]
        assert f"|{100 * row.loc[0.0, 'called_noisy']:.2f} %|{'|'.join(parts)}|" in page, data
    rows = {row["data"]: row for row in _results("fusion.json")}
    columns = [rows[f"Flickr8k-CN, {engine}-2016"] for engine in ("baidu", "google")]
    columns += [rows[f"Multi30K, {lang} (human)"] for lang in ("fr", "de")]
    for witness in dict.fromkeys(name for row in columns for name, value in row.items() if isinstance(value, list)):
        cells = ["{:.2f}, {:.2f}".format(*row[witness]) if witness in row else None for row in columns]
        for some in (cells[:2], cells[2:]):  # of German and French "all" are two
            assert None in some or "|".join(map(str, some)) in page, (witness, some)


def test_the_bound_of_the_best_statistic_is_the_mutual_information() -> None:
    rho = 0.8
    draws = np.random.default_rng(0)
    x, noise, stranger = draws.normal(size=(3, 400_000))
    y = rho * x + np.sqrt(1 - rho**2) * noise

    def log_ratio(a: Any, b: Any) -> torch.Tensor:
        ratio = (rho**2 * (a**2 + b**2) - 2 * rho * a * b) / (2 * (1 - rho**2))
        return torch.from_numpy(-0.5 * np.log(1 - rho**2) - ratio)

    value = disncl_parts.donsker_varadhan(log_ratio(x, y), log_ratio(x, stranger))
    assert value.item() == pytest.approx(-0.5 * np.log(1 - rho**2), abs=0.01)


@pytest.mark.slow
@pytest.mark.soak
def test_the_zero_shot_table_is_made_with_one_command(tmp_path: Path) -> None:
    data, root = toy.toy().write(tmp_path / "toy"), tmp_path / "workspace"
    models = [tinydual.save(family, tmp_path / family) for family in ("clip", "siglip-2")]
    more = {"DATA": str(data), "MODELS": " ".join(map(str, [*models, tmp_path / "absent"])), "WORKSPACE": str(root)}
    script = Path(__file__).resolve().parents[1] / "benchmarks" / "zero_shot.sh"
    done = subprocess.run(
        ["bash", script], env=toy.environment(root, **more), capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 3 and f"left out: {tmp_path / 'absent'}" in done.stderr, done.stderr
    workspace = Workspace(root)
    assert len(workspace.artifacts("run")) == 2 and len(workspace.artifacts("evaluation")) == 6
    (report,) = workspace.artifacts("report")
    table = json.loads(report.file("tables/systems.json").read_text(encoding="utf-8"))
    assert len(table["rows"]) == 3 and table["notes"][0].startswith("By validation, use ")


def test_ensembles_are_of_one_draw_of_the_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(method: str, seed: int, draw: int, ratio: float = 0.4) -> Any:
        noise = {"style": "caption", "target": "translation", "ratio": ratio, "seed": draw} if ratio else None
        return SimpleNamespace(id=f"{method}-{seed}-{draw}-{ratio}", config={"method": method, "noise": noise})

    monkeypatch.setattr("ccr_cli.artifacts.run.config", lambda each: each.config)
    given = [
        made("infonce", 0, 0),
        made("infonce", 1, 0),
        made("uml", 0, 0),
        made("infonce", 2, 2),
        made("uml", 5, 5, 0),
    ]
    found = [[each.id for each in group] for group in ensembles.groups(given)]
    assert found[:5] == [[each.id] for each in given]
    assert found[5:] == [["infonce-0-0-0.4", "infonce-1-0-0.4"], [each.id for each in given[:3]]]


def test_the_pages_have_the_tables_of_the_rows() -> None:
    results = tables.Results(runs.read(noise_robustness.RESULTS))
    texts = [page.read_text("utf-8") for page in noise_robustness.PAGES]
    for name, make in tables.BLOCKS.items():
        text = f"<!-- begin {name} -->\n{make(results)}\n<!-- end {name} -->"
        assert sum(text in page for page in texts) == 1, f"{name}: python benchmarks/noise_robustness.py --tables"
    assert len(texts[0].splitlines()) <= 250, "what is longer belongs into the appendix"


def test_the_page_of_scale_has_the_table_of_the_rows() -> None:
    table = scale.block(scale.rows(scale.RESULTS / "stages.jsonl"))
    assert f"<!-- begin scale -->\n{table}\n<!-- end scale -->" in scale.PAGE.read_text("utf-8"), "scale.py --table"


def test_the_measurements_on_a_gpu_resume(tmp_path: Path) -> None:
    script = Path(noise_robustness.__file__).with_name("gpu.sh")
    env = {**os.environ, "DEVICE": "cpu", "RESULTS": str(tmp_path), "MINUTES": "0", "PYTHON": sys.executable}
    done = subprocess.run(["bash", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 3 and not list(tmp_path.iterdir())
    for name in done.stderr.removeprefix("left: ").partition(";")[0].split():
        (tmp_path / f"{name}.json").write_text("{}", encoding="utf-8")
    done = subprocess.run(["bash", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == f"all figures are in {tmp_path}\n"
    shared = {tmp_path / f"train-{dtype}-2-processes.json" for dtype in ("float32", "bfloat16")}
    assert shared <= set(tmp_path.iterdir())
    for file in shared:
        file.unlink()
    one_gpu = tmp_path / "python"
    one_gpu.write_text("#!/bin/sh\ncase $2 in *device_count*) exit 1 ;; esac\n", encoding="utf-8")
    one_gpu.chmod(0o755)
    env |= {"DEVICE": "cuda", "PYTHON": str(one_gpu)}
    done = subprocess.run(["bash", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "two processes: they need two GPUs" in done.stderr
    assert not shared & set(tmp_path.iterdir()), "what was not measured has no file"
