"""The tables of the papers: their schema, what they print twice, their sums, and the misprints that are listed."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

from ccr_cli.data import published
from ccr_cli.data.manifests import bundled_root
from ccr_cli.report.tables.comparable import METRICS

PAPERS = ("uml", "nrccr", "tcl", "disncl", "fume")
COUNTS = {
    "uml": {"1": 12 * 5 - 2, "2": 40, "3": 7 * 3, "4": 7 * 5},
    "nrccr": {"1": 104, "2": 45, "3": 30, "4": 6 * 5, "5": 2},
    "tcl": {"I": 36 * 14 - 4 + 2, "II": 28 * 7 - 2, "III": 12 * 14, "IV": 7 * 7, "V": 39 * 7},
    "disncl": {"I": 30 * 14, "II": 27 * 14 - 2, "III": 12 * 7, "IV": 10 * 7, "V": 4 * 7},
    "fume": {"1": 15 * 15, "2": 3 * 6},
}
"""Figures of each table, counted in the papers: rows by columns, without those that are not printed or not readable."""
RECALLS = [f"{direction}.R@{k}" for direction in ("t2v", "v2t") for k in (1, 5, 10)]
OWN = {"t2t.mAP", "deletion.threshold.map_kept", *(f"deletion.{d}.threshold.map_kept" for d in ("t2v", "v2t"))}
ROW = ["paper", "table", "data", "language", "noise", "backbone", "method"]
TOLERANCE = 0.11
PRINTED = 0.05
"""Half the last printed digit: figures that differ by less are printed alike."""
VALUES = {"SumR": (0, 600), "MedR": (1, 6000)}


def known() -> published.Published:
    return published.read()


def files() -> list[Path]:
    return sorted((bundled_root() / "published").glob("*.csv"))


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in line.items()} for line in frame.to_dict("records")]


def table_rows() -> dict[tuple[str, ...], dict[str, float]]:
    """The figures of every row of every table."""
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for line in records(known().figures):
        name = published.row_name(line["data"], line["noise"], line["backbone"], line["method"])
        key = (line["paper"], line["table"], line["language"], name)
        found.setdefault(key, {})[line["metric"]] = line["value"]
    return found


def parts(figures: dict[str, float]) -> tuple[float, float] | None:
    """What is printed for a sum or an average, and what its parts give."""
    if "SumR" in figures and set(RECALLS) <= set(figures):
        return figures["SumR"], sum(figures[name] for name in RECALLS)
    if "mAP" in figures:
        return figures["mAP"], (figures["t2v.mAP"] + figures["v2t.mAP"]) / 2
    return None


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_every_file_is_plain_csv(path: Path) -> None:
    raw = path.read_bytes()
    assert raw.endswith(b"\n") and b"\r" not in raw and not raw.startswith(b"\xef\xbb\xbf")
    rows = list(csv.reader(raw.decode("utf-8").splitlines()))
    assert len({len(row) for row in rows}) == 1
    assert all(cell == cell.strip() for row in rows for cell in row)


def test_there_are_the_papers_tables_and_figures_that_should_be_there() -> None:
    names = {path.stem for path in files()}
    assert names == {*PAPERS, "papers", "tables", "misprints"}
    assert tuple(known().papers["paper"]) == PAPERS
    figures = known().figures
    assert tuple(figures.columns) == published.COLUMNS
    for paper, tables in COUNTS.items():
        mine = figures[figures["paper"] == paper]
        assert mine["table"].value_counts(sort=False).to_dict() == tables
        assert list(mine["table"].unique()) == list(tables), "in the paper's order"


def test_every_figure_has_a_known_setting_and_a_possible_value() -> None:
    figures, tables = known().figures, known().tables
    keys = ["paper", "table", "data", "language"]
    assert not tables.duplicated(keys).any()
    assert set(map(tuple, figures[keys].to_numpy())) == set(map(tuple, tables[keys].to_numpy()))
    assert set(tables["protocol"]) <= set(published.PROTOCOLS)
    assert set(tables["gallery"].str.fullmatch(r"\d*")) == {True}
    assert set(figures["metric"]) <= {*METRICS, *OWN}
    assert set(figures["noise"]) == {0.0, 0.2, 0.4, 0.6}
    assert set(figures.loc[figures["data"] != "multi30k", "task"]) == {""}
    assert set(figures["task"]) == {"", "task1", "task2"}
    for metric, rows in figures.groupby("metric"):
        low, high = VALUES.get(str(metric).rpartition(".")[2], (0, 100))
        assert rows["value"].between(low, high).all(), metric
    assert not figures.duplicated([*ROW, "metric"]).any()
    assert (figures["method"] != "").all()


def test_recalls_rise_with_k() -> None:
    for key, figures in table_rows().items():
        for direction in ("t2v", "v2t"):
            values = [figures[name] for name in RECALLS if name.startswith(direction) and name in figures]
            assert values == sorted(values), key


def test_sums_and_averages_agree_but_for_the_misprints_listed() -> None:
    wrong = known().misprints
    listed = {(m["paper"], m["table"], m["row"]): m for m in records(wrong[wrong["same_as"] == ""])}
    assert len(listed) == (wrong["same_as"] == "").sum()
    for (paper, table, _, row), figures in table_rows().items():
        found = parts(figures)
        misprint = listed.pop((paper, table, row), None)
        if misprint is not None:
            assert found is not None
            assert found == pytest.approx((float(misprint["printed"]), float(misprint["computed"])), abs=1e-6)
            assert abs(found[0] - found[1]) > PRINTED, f"{misprint} is none"
        elif found is not None:
            assert abs(found[0] - found[1]) <= TOLERANCE, f"{paper} {table} {row} is not listed: {found}"
    assert not listed, "rows that are in no table"


def test_rows_printed_twice_are_listed() -> None:
    """Whole rows alike under another method or noise; parts of a method that are the method itself aside."""
    again = known().misprints[known().misprints["same_as"] != ""]
    rows = {(paper, table, row): figures for (paper, table, _, row), figures in table_rows().items()}
    listed = set()
    for line in records(again):
        other_table, _, other = line["same_as"].partition(" / ")
        key = (line["paper"], line["table"], line["row"])
        one, two = rows[key], rows[line["paper"], other_table, other]
        shared = set(one) & set(two) - {"SumR"}
        assert len(shared) >= 3 and all(one[name] == two[name] for name in shared), line
        listed.add(key)
    found = {second for first, second in repeats()}
    assert found <= listed
    assert {key for key in listed if key[:2] != ("fume", "2")} == found


def repeats() -> Iterator[tuple[tuple[str, str, str], tuple[str, str, str]]]:
    """Rows of one paper with the same recalls, though method, ratio or style of noise differ."""
    figures = known().figures
    figures = figures[~figures["note"].str.startswith(("parts", "row"))]
    style = {(t["paper"], t["table"], t["data"]): t["noise_style"] for t in records(known().tables)}
    seen: dict[tuple[object, ...], tuple[tuple[str, str, str], tuple[str, float, str]]] = {}
    for key, rows in figures.groupby(ROW, sort=False):
        values = rows[rows["metric"] != "SumR"]
        if len(values) < 3:
            continue
        paper, table, data, _, noise, backbone, method = map(str, cast(tuple[Any, ...], key))
        name = published.row_name(data, float(noise), backbone, method)
        what = (method, float(noise), style[paper, table, data])
        content = (paper, data, *zip(values["metric"], values["value"], strict=True))
        if content in seen and seen[content][1] != what:
            yield seen[content][0], (paper, table, name)
        seen.setdefault(content, ((paper, table, name), what))


SAME = [
    (("uml", "1", "CLIP ViT-B/32 + mBERT (170M)", "UML"), ("uml", "4", "CLIP ViT-B/32 + mBERT", "UML No. 6")),
    (("nrccr", "1", "I3D + mBERT", "NRCCR"), ("nrccr", "4", "I3D + mBERT", "NRCCR: L_sim, L_feat, L_cyc, L_adv")),
    (("nrccr", "1", "", "MMP*"), ("uml", "2", "", "MMP*")),
    (("tcl", "I", "BUTD + Bi-GRU", "TCL_i&t-VSE∞*"), ("tcl", "IV", "BUTD + Bi-GRU", "TCL-VSE∞ #1")),
    (("tcl", "I", "BUTD + Bi-GRU", "TCL_i-VSE∞"), ("tcl", "IV", "BUTD + Bi-GRU", "TCL-VSE∞ #3")),
    (("tcl", "I", "BUTD + Bi-GRU", "TCL_i&t-SGR*"), ("tcl", "V", "BUTD", "TCL_i&t-SGR*")),
    (("disncl", "III", "SGRAF", "Ours"), ("disncl", "V", "SGRAF", "DisNCL: L_Dis, L_soft, L_reg")),
    (("fume", "1", "VGGNet + word2vec", "FUME"), ("fume", "2", "VGGNet + word2vec", "FUME #3")),
]


@pytest.mark.parametrize(("one", "two"), SAME, ids=lambda row: "-".join(row))
def test_what_is_printed_in_two_tables_was_read_alike(one: tuple[str, ...], two: tuple[str, ...]) -> None:
    frames = [_of(*row) for row in (one, two)]
    both = frames[0].merge(frames[1], on=["data", "language", "metric"])
    assert len(both) >= 3 and (both["value_x"] == both["value_y"]).all()


def _of(paper: str, table: str, backbone: str, method: str) -> pd.DataFrame:
    f = known().figures
    mine = (f["paper"] == paper) & (f["table"] == table) & (f["backbone"] == backbone) & (f["method"] == method)
    return f.loc[mine, ["data", "language", "metric", "value"]]


def test_the_task_of_multi30k_is_where_it_is_known() -> None:
    f = known().figures
    rows = f[f["data"] == "multi30k"]
    assert set(rows.loc[(rows["paper"] == "uml") & (rows["method"] == "NRCCR"), "task"]) == {"task2"}
    clip = rows["method"].str.startswith("CLIP") & (rows["paper"] == "nrccr")
    assert set(rows.loc[clip, "task"]) == {"task1"} and clip.sum() == 9
    assert set(rows.loc[rows["method"].str.startswith(("M³P", "UC²", "ISUM")), "task"]) == {""}


def test_the_readme_describes_every_column() -> None:
    text = ((bundled_root() / "published") / "README.md").read_text(encoding="utf-8")
    described = {name for line in text.splitlines() for name in re.findall(r"`(\w+)`", line)}
    assert set(published.COLUMNS) <= described
    assert set(known().tables.columns) <= described | {"about"}
