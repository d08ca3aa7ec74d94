"""An ensemble in a report: a line of its own under a label of all its runs."""

from __future__ import annotations

import shutil

import pytest
import toy
from toy import Chain

from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.report.page import compose
from ccr_cli.report.tables import comparable
from ccr_cli.stages.report.stage import gather
from ccr_cli.stages.shared.inputs import Inputs

CPU = ("--device", "cpu")
OPTIONS = "[epochs=2, temperature=0.2]"


@pytest.fixture
def ensemble(finished: Chain) -> Chain:
    """Two seeds of `infonce` with another temperature beside the run of the chain, and both as one."""
    names = []
    for seed in ("1", "2"):
        options = ("--method", "infonce", "--seed", seed, "--set", "temperature=0.2", "--epochs", "2", *toy.SMALL)
        names.append(toy.ok("train", *options, workspace=finished.root).made.path)
    toy.ok("evaluate", *names, "--ensemble", *CPU, workspace=finished.root)
    toy.ok("evaluate", names[0], *CPU, workspace=finished.root)
    return finished


def test_an_ensemble_is_not_taken_for_its_first_run(ensemble: Chain) -> None:
    workspace = Workspace(ensemble.root)
    together = next(a for a in workspace.artifacts("evaluation") if len([p for p in a.parents if p.kind == "run"]) == 2)
    material = gather(Inputs(workspace))
    runs = {p.id for p in together.parents if p.kind == "run"}
    made_from = {a.id for a in material.artifacts}
    assert runs <= made_from and runs <= set(material.facts), "the second has no evaluation of its own"
    fact = material.facts[together.id]
    assert (fact.label, fact.lang) == (f"infonce x2 {OPTIONS}", "es")
    assert fact.encoder == material.facts[min(runs)].encoder
    frame = comparable.results_frame(material.results, material.facts)
    own = frame[(frame["lang"] == "es") & (frame["fusion"] == "none")].set_index("label")["run_id"]
    assert dict(own)[f"infonce x2 {OPTIONS}"] == together.id and dict(own)[f"infonce {OPTIONS}"] in runs
    views = {view.title: set(view.frame["label"]) for view in comparable.views(frame)}
    assert {f"infonce x2 {OPTIONS}", f"infonce {OPTIONS}"} < views["toy test, queries in es"], "beside its runs"
    findings = compose.overview(gather(Inputs(workspace))).findings
    assert findings.method == "uml [epochs=6, lr=0.02]", "as infonce of these options"
    given = Inputs.from_paths(workspace, [str(together.path)])
    assert [run_id for run_id, _ in gather(given).results if run_id != together.id] == []


@pytest.mark.slow
def test_an_ensemble_of_a_run_that_is_gone_stays(ensemble: Chain, capsys: pytest.CaptureFixture[str]) -> None:
    workspace = Workspace(ensemble.root)
    gone = next(a for a in workspace.artifacts("run") if "seed2" in a.name)
    shutil.rmtree(gone.path)
    material = gather(Inputs(workspace))
    assert "is gone" in capsys.readouterr().err
    assert "infonce x2" in {fact.label.partition(" [")[0] for fact in material.facts.values()}
