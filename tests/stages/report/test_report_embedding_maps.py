"""Maps of a report, by the runs of a workspace."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import base, dataset, evaluation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.splits import items_of
from ccr_cli.stages.report.examples import Examples
from ccr_cli.stages.report.options import ReportOptions
from ccr_cli.stages.report.stage import gather, report
from ccr_cli.stages.shared.inputs import Inputs


def test_items_and_their_captions_are_embedded(chain: Chain) -> None:
    one, *others = Examples(Inputs(Workspace(chain.root)), device="cpu").maps(4)
    assert not others and one.lang == "es" and len(one.item_ids) == 4 == len(set(one.item_ids))
    assert len(one.text_TD) == len(one.item_T) and set(one.item_T) == {0, 1, 2, 3}
    for vectors in (one.item_VD, one.text_TD):
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    images = [one.image(item) for item in one.item_ids]
    assert all(path is not None and path.is_file() for path in images)
    again = Examples(Inputs(Workspace(chain.root)), device="cpu").maps(4)[0]
    assert np.array_equal(again.text_TD, one.text_TD) and again.item_ids == one.item_ids
    assert json.dumps(gather(Inputs(Workspace(chain.root)), maps=[one]).maps[0].request())


def test_searches_and_maps_are_of_the_split_that_is_asked_for(chain: Chain) -> None:
    inputs = Inputs(Workspace(chain.root))
    data = dataset.read(chain.find("dataset"))
    half = set(items_of(data.items, "val-report")["item_id"])
    found = Examples(inputs, split="val-report", device="cpu").searches(50)
    asked = {q.query for q in found}
    source = data.captions[(data.captions["lang"] == "en") & (data.captions["k"] == 0)]
    assert {q.gloss_lang for q in found} == {"en"} and {q.gloss for q in found} <= set(source["text"])
    human = data.captions[(data.captions["lang"] == "es") & (data.captions["k"] == 0)]
    assert asked and asked == set(human[human["item_id"].isin(half)]["text"])
    (drawn,) = Examples(inputs, split="val-report", device="cpu").maps(50)
    assert set(drawn.item_ids) == half


@pytest.mark.usefixtures("unillustrated")
def test_examples_are_of_what_is_reported(finished: Chain, tmp_path: Path) -> None:
    folder = toy.toy("other")
    for item in folder.items:
        item[0], item[1] = f"{item[0]}-other", "test"
        item[3] = f"{item[0]}.png"
    for caption in folder.captions:
        caption[1] += "-other"
    other = toy.ok("data", "import", folder.write(tmp_path / "other"), workspace=finished.root).made
    toy.ok("extract", other.path, *toy.ENCODER, workspace=finished.root)
    workspace = Workspace(finished.root)
    runs = {run.id: run.name for run in workspace.artifacts("run")}
    best = Examples(Inputs(workspace), device="cpu").searches(1)[0].run

    def shown(*named: base.Artifact) -> set[str]:
        """The runs of the examples, after a look at the items that they find."""
        options = ReportOptions(searches=1, map=2, inside=1, device="cpu")
        request = report(Inputs(workspace, list(named)), options)[0].request
        searches, maps, pictures = request["searches"], request["maps"], request["inside"]["pictures"]
        found = {row[0] for search in [*searches, *pictures] for row in search["results"]}
        assert searches and maps and pictures and not any(item.endswith("-other") for item in found)
        return {example["run"] for example in [*searches, *maps, *pictures]}

    for named in (finished.find("evaluation", "uml"), finished.find("diagnosis", "infonce")):
        assert shown(named) == {runs[evaluation.run_id(named)]}
    assert shown(other, finished.find("run", "uml")) == {finished.find("run", "uml").name}
    assert shown() == shown(finished.find("translation")) == shown(finished.find("dataset", "toy"), other) == {best}


@pytest.mark.slow
def test_a_report_has_the_map_that_was_asked_for(chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ccr_cli.report.page import compose

    only = [kind for kind in compose.FIGURES if kind.name == "where"]
    monkeypatch.setattr(compose, "FIGURES", tuple(only))
    shutil.copytree(chain.root, tmp_path / "workspace")
    made = toy.ok("report", "--map", "4", "--device", "cpu", "--name", "mapped", workspace=tmp_path / "workspace").made
    assert {f"figures/where.{end}" for end in ("svg", "pdf", "png")} <= {entry.path for entry in made.files}
    assert '<section id="map">' in made.file("report.html").read_text(encoding="utf-8")
