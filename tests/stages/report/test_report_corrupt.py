"""Evaluations with corrupted queries in a report: intact results once, corrupted ones by themselves."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import evaluation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.report.page import compose
from ccr_cli.stages.report.stage import gather
from ccr_cli.stages.shared.inputs import Inputs

CPU = ("--device", "cpu")


@pytest.fixture
def measured(finished: Chain) -> Chain:
    """Three evaluations of the run of `uml`: the plain one, and two at a level of corruption each."""
    for level in ("0.3", "0.6"):
        toy.ok("evaluate", finished.find("run", "uml").path, "--corrupt", level, *CPU, workspace=finished.root)
    return finished


@pytest.mark.slow
def test_the_intact_result_is_there_once_and_the_corrupted_ones_by_themselves(
    measured: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = [kind for kind in compose.FIGURES if kind.name == "corruption"]
    monkeypatch.setattr("ccr_cli.report.page.compose.FIGURES", only)
    run = measured.find("run", "uml")
    made = [a for a in Workspace(measured.root).artifacts("evaluation") if a.parent("run").id == run.id]
    assert len(made) == 3
    every = [result for artifact in made for result in evaluation.results(artifact)]
    material = gather(Inputs.from_paths(Workspace(measured.root), [str(run.path)]))
    tmp_path /= "report"
    tmp_path.mkdir()
    for lang in ("es", "en"):
        signatures = [r["signature"] for r in every if (r["lang"], r["fusion"]) == (lang, "none")]
        told = [r for _, r in material.results if (r["lang"], r["fusion"]) == (lang, "none")]
        assert len(signatures) == 5 and len(told) == 1 and told[0]["uncertainty"]["t2v"] > 0
        assert {r["corrupt"] for _, r in material.corrupted} == {"drop0.3-seed0", "drop0.6-seed0"}
    assert len(material.results) == 3 and len(material.corrupted) == 4, "es, fused es, en; both levels of es and en"
    counts = compose.write(material, tmp_path)
    assert counts["results"] == 3
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'id="corruption"' in page and "All 3 results with their signatures" in page
    with (tmp_path / "tables" / "retrieval.csv").open(encoding="utf-8") as handle:
        assert [(row["method"], row["n"]) for row in csv.DictReader(handle)] == [("uml", "1")]
    with (tmp_path / "tables" / "corruption.csv").open(encoding="utf-8") as handle:
        (row,) = csv.DictReader(handle)
    assert (tmp_path / "figures" / "corruption.png").stat().st_size > 1000
    for name, level in (("intact", None), ("drop0.3", "drop0.3-seed0"), ("drop0.6", "drop0.6-seed0")):
        for artifact in made:
            frame, results = evaluation.read_ranks(artifact), evaluation.results(artifact)
            for number, result in enumerate(results):
                if (result["lang"], result["fusion"], result.get("corrupt")) != ("es", "none", level):
                    continue
                assert float(row[f"sumr_{name}"]) == pytest.approx(result["SumR"])
                for side in ("t2v", "v2t"):
                    asked = frame[(frame["result"] == number) & (frame["direction"] == side)]["uncertainty"]
                    assert float(row[f"{side}_uncertainty_{name}"]) == pytest.approx(np.mean(asked))


def test_without_a_corrupted_result_there_is_no_table_of_them(chain: Chain) -> None:
    material = gather(Inputs(Workspace(chain.root)))
    tables = compose.overview(material).tables
    assert "retrieval" in tables and "corruption" not in tables
