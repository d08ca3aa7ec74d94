"""Of several diagnoses of a run its own judge's is shown, and another judge is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import fakes as fake
import pandas as pd
import pytest

from ccr_cli import registry
from ccr_cli.artifacts import base, diagnosis
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.judges.base import load_judge
from ccr_cli.report.content import ReportData, RunDiagnosis
from ccr_cli.report.figures import canvas
from ccr_cli.report.figures.figure import FigureData
from ccr_cli.report.page import compose, lists, pairs_browser
from ccr_cli.report.tables import comparable
from ccr_cli.report.tables.diagnoses import by_choice
from ccr_cli.stages.report.stage import gather
from ccr_cli.stages.shared.inputs import Inputs


def material(root: Path, *more: dict[str, Any], own: bool = True) -> tuple[ReportData, base.Artifact]:
    """A run of uml at 40%, with further diagnoses."""
    workspace: Workspace = fake.make(root, ("infonce", "uml"), (0.4,), (0,), langs=("es",), diagnosed=False)
    run = base.load(workspace.place("run", "toy-emoji-es-uml-noise0.4-seed0"), "run")
    for each in [*([{}] if own else []), *more]:
        fake.make_diagnosis(workspace, run, "uml", 0.4, 0, **each)
    return gather(Inputs(workspace)), run


OTHERS = ({"judge": "none"}, {"judge": "gmm"}, {"share": 0.05}, {"judge": "gmm", "share": 0.05})


def told(found: ReportData) -> tuple[dict[str, Any], FigureData]:
    """The explorer's data, and what the figures see."""
    seen = compose.overview(found)
    pairs = pairs_browser.content(found, seen.views[0], seen.findings)
    assert pairs is not None
    suspects = compose.suspicious(found, seen.views[0], seen.findings)
    return pairs["groups"][0], FigureData(found, seen.views, seen.findings, suspects)


@pytest.mark.slow
def test_the_own_judge_stands_for_a_run_whatever_others_said(tmp_path: Path) -> None:
    found, run = material(tmp_path, *OTHERS)
    group, seen = told(found)
    assert group["runs"] == ["uml"], "nothing is said of the own judge"
    own = diagnosis.read_pairs(base.load(Workspace(tmp_path).place("diagnosis", run.name), "diagnosis"))
    called = int((own["verdict"] == "noisy").sum())
    assert called > 50 and (seen.pairs["uml"]["p_clean"] < 0.5).sum() == called
    assert sum(q["noisy"][0] for q in group["pairs"]) > 0
    assert [(d.summary["judge"], d.summary["split"]) for d in seen.suspects] == [("triangle", {"by": "mixture"})]
    assert any("judge triangle)" in said for said in seen.findings.more)
    detection = compose.overview(found).tables["detection"]
    shown = [detection.printed(row, 2) for row in range(len(detection.rows))]
    assert shown == ["gmm", "gmm, first 5%", "none", "triangle", "triangle, first 5%"], "a judge without a side is bare"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("others", "name", "said"),
    [
        (({"judge": "none"}, {"judge": "gmm"}), "uml [judge gmm]", "judge gmm)"),
        (({"judge": "gmm", "share": 0.05}, {"share": 0.05}), "uml [judge triangle, first 5%]", "triangle, first 5%)"),
    ],
)
def test_another_judge_is_named(tmp_path: Path, others: tuple[dict[str, Any], ...], name: str, said: str) -> None:
    found, _ = material(tmp_path, *others, own=False)
    group, seen = told(found)
    assert group["runs"] == [name] and any(said in words for words in seen.findings.more)
    with canvas.drawing():
        drawn, _ = compose.figures(seen)
    figure, beliefs = drawn["judges"].figure, drawn["beliefs"].caption
    assert figure is not None and figure.axes[0].get_legend_handles_labels()[1] == [name]
    assert name.partition("[judge ")[2].rstrip("]") in beliefs
    assert not comparable.is_oracle(name)


@pytest.mark.parametrize(("source", "head"), [("de", "source (de)"), ("", "source")])
def test_a_list_says_what_was_translated_from(source: str, head: str) -> None:
    pair = {"item_id": "i", "source_text": "Hund", "translation": "perro", "back": "Hündin", "p_clean": 0.1}
    shown = lists.sheet([pair], lambda item: None, "es", source, "title")
    attribute = f' lang="{source}"' if source else ""
    assert f"<th>{head}</th>" in shown and "English" not in shown
    assert all(f'<bdi dir="auto"{attribute}>{word}</bdi>' in shown for word in ("Hund", "Hündin"))


def test_the_page_takes_the_language_of_the_data_set(tmp_path: Path) -> None:
    found, _ = material(tmp_path)
    (collection,) = found.datasets
    found = replace(found, datasets=[replace(collection, manifest={**collection.manifest, "source_lang": "de"})])
    group, seen = told(found)
    assert group["source"] == "de"
    assert "source (de)" in next(lists.suspicious_pairs(found, seen.suspects[0], seen.findings)).heads


def test_a_judge_without_sides_has_none_in_an_early_diagnosis(tmp_path: Path) -> None:
    """One is written here for the oracle."""
    without = {name for name in registry.names("judges") if not load_judge(name).takes_side}
    assert set(diagnosis.WITHOUT_SIDE) <= without
    found, _ = material(tmp_path, {"judge": "gmm"}, {"judge": "oracle"})
    sides = {each.summary["judge"]: each.summary["judge_side"] for each in found.diagnoses}
    assert sides == {"triangle": "", "oracle": "", "gmm": "cross_lingual"}


def test_the_seed_comes_first() -> None:
    def of(seed: int, judge: str) -> RunDiagnosis:
        return RunDiagnosis("r", {"seed": seed, "judge": judge}, pd.DataFrame, ("gmm", "None"))

    found = by_choice([of(1, "gmm"), of(0, "two-group"), of(0, "gmm"), of(0, "argmax")])
    assert [(d.summary["seed"], d.summary["judge"]) for d in found] == [
        (0, "gmm"),
        (0, "argmax"),
        (0, "two-group"),
        (1, "gmm"),
    ]
