"""What methods are called, and which runs example searches are made with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fakes as fake
import pytest
import toy

from ccr_cli.artifacts import evaluation
from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.label import Label
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.errors import UsageError
from ccr_cli.report.tables import comparable
from ccr_cli.report.tables.comparable import is_oracle
from ccr_cli.stages.report.examples import best_runs
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.load_run import default_options, knows_truth, method_label


def settings(method: str, preset: str | None = None, **options: Any) -> dict[str, Any]:
    usual = default_options({"method": method, "preset": preset})
    return {"method": method, "preset": preset, "options": usual | options}


@pytest.mark.parametrize(
    ("config", "label"),
    [
        (settings("uml"), "uml"),
        (settings("uml", epochs=3, anchor_weight=0.0), "uml"),
        (settings("uml", judge="gmm"), "uml (gmm)"),
        (settings("uml", "paper"), "uml (paper)"),
        (settings("uml", "paper", judge="oracle"), "uml (paper, oracle)"),
        (settings("uml", "paper", judge="two-group"), "uml (paper, two-group)"),
        (settings("infonce", judge="oracle"), "infonce (oracle)"),
        (settings("infonce", cross_lingual_weight=0.5), "infonce (cross_lingual_weight=0.5)"),
        (
            settings("infonce", judge="oracle", cross_lingual_weight=1.0),
            "infonce (oracle, cross_lingual_weight=1)",
        ),
    ],
)
def test_labels(config: dict[str, Any], label: str) -> None:
    assert str(method_label(config)) == label and Label.parse(label) == method_label(config)
    assert is_oracle(label) == knows_truth(config) == (config["options"]["judge"] == "oracle")


@pytest.mark.parametrize(
    ("labels", "label", "members"),
    [
        (["uml"], "uml", ["uml"]),
        (["uml [beta=1]"] * 3, "uml x3 [beta=1]", ["uml [beta=1]"]),
        (["uml (oracle)", "infonce", "uml (oracle)"], "uml (oracle) x2 + infonce", ["uml (oracle)", "infonce"]),
        (["infonce [lang=de+fr]"] * 2 + ["uml"], "infonce x2 [lang=de+fr] + uml", ["infonce [lang=de+fr]", "uml"]),
    ],
)
def test_labels_of_ensembles(labels: list[str], label: str, members: list[str]) -> None:
    assert str(Label.ensemble(map(Label.parse, labels))) == label and Label.parse(label).members == members
    assert Label.parse(label).is_ensemble == (len(labels) > 1)
    assert comparable.is_oracle(label) == any("oracle" in each for each in labels)
    plain = all(map(comparable.is_plain, labels))
    assert comparable.is_plain(label) == plain and comparable.base_label(label) != "infonce"


def test_a_method_that_is_not_here() -> None:
    with pytest.raises(UsageError):
        method_label({"method": "alchemy", "preset": None, "options": {"judge": "none"}})


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Workspace, Artifact]:
    workspace: Workspace = fake.make(tmp_path, (), ())
    data: Artifact = fake.make_dataset(workspace)
    return workspace, data


def chosen(workspace: Workspace) -> list[tuple[str, str]]:
    return [(lang, artifact.name) for lang, artifact in best_runs(Inputs(workspace))]


def test_example_searches_are_never_the_oracle_s(runs: tuple[Workspace, Artifact]) -> None:
    workspace, data = runs
    fake.make_run(workspace, data, "infonce (oracle)", 0.4, 0, name="oracle")
    assert chosen(workspace) == []
    fake.make_run(workspace, data, "basic", 0.4, 0, name="basic")
    assert chosen(workspace) == [("es", "basic")]
    fake.make_run(workspace, data, "uml", 0.4, 0, name="better")
    assert chosen(workspace) == [("es", "better")]


def test_runs_are_compared_within_one_kind_of_validation(runs: tuple[Workspace, Artifact]) -> None:
    workspace, data = runs
    fake.make_run(workspace, data, "uml", 0.4, 0, name="human", select="human")
    fake.make_run(workspace, data, "basic", 0.4, 0, name="human-low", select="human")
    assert chosen(workspace) == [("es", "human")]
    fake.make_run(workspace, data, "basic", 0.4, 0, name="mt")
    assert chosen(workspace) == [("es", "mt")], "the higher figure of human queries says nothing here"
    other = fake.make_dataset(workspace, name="others")
    fake.make_run(workspace, other, "uml", 0.0, 0, name="other")
    assert chosen(workspace) == [("es", "mt"), ("es", "other")], "nor does that of another data set"


def test_a_run_that_learned_categories_is_searched_with_where_there_is_no_other(
    runs: tuple[Workspace, Artifact],
) -> None:
    workspace, data = runs
    for label, name in (("uml", "categories"), ("basic", "worse")):
        fake.make_run(workspace, data, label, 0.4, 0, name=name, criterion="mAP")
    assert chosen(workspace) == [("es", "categories")]
    fake.make_run(workspace, data, "basic", 0.4, 0, name="basic")
    assert chosen(workspace) == [("es", "basic")], "its figure counted fewer answers as right"


def test_the_signature_says_that_nothing_chose_the_epoch(tmp_path: Path) -> None:
    """A data set without validation items."""
    folder = toy.toy()
    for item in folder.items:
        item[1] = "train" if item[1] == "val" else item[1]
    root = tmp_path / "ws"
    toy.ok("data", "import", folder.write(tmp_path / "toy"), workspace=root)
    toy.ok("translate", "--lang", "es", workspace=root)
    toy.ok("extract", *toy.ENCODER, workspace=root)
    trained = toy.ok("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=root).made
    made = toy.ok("evaluate", trained.path, "--device", "cpu", workspace=root).made
    for result in evaluation.results(made):
        assert result["signature"].select == "last"
