"""`ccr evaluate --zero-shot --model`: what is missing is made, and evaluated like any run."""

from pathlib import Path

import pytest
import tinydual
import toy
from toy import Chain
from transformers import AutoModel

from ccr_cli.artifacts import evaluation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.stages.report.stage import gather
from ccr_cli.stages.shared.inputs import Inputs

CPU = ("--device", "cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dual encoder that knows no Spanish word."""
    return tinydual.save("chinese-clip", tmp_path_factory.mktemp("models") / "tiny")


def test_a_model_is_evaluated_on_every_data_set_in_every_language(
    model: Path, workspace: Chain, tmp_path: Path
) -> None:
    other = toy.bilingual("other").write(tmp_path / "other")
    toy.ok("data", "import", other, workspace=workspace.root)
    call = ("evaluate", "--zero-shot", "--model", model, *CPU)
    planned = workspace.ccr(*call, "--dry-run")
    assert planned.code == 0 and not (workspace.root / "runs").exists()
    done = toy.ok(*call, workspace=workspace.root)
    made = {a.name: a for a in Workspace(workspace.root).artifacts("evaluation")}
    assert len(made) == 2 and {str(a.path) for a in made.values()} <= set(done.out.splitlines())
    results = {(r["data"], r["lang"]): r for a in made.values() for r in evaluation.results(a)}
    assert set(results) == {("toy", "en"), ("toy", "es"), ("other", "en"), ("other", "es"), ("other", "fr")}
    assert {r["method"] for r in results.values()} == {"pretrained"}
    warned = [line for line in done.err.splitlines() if "tokenizer" in line]
    assert len(warned) == 3 and not any(" en " in line for line in warned) and "chance" in done.err
    assert "--epochs" not in done.err and "--translate-test" in done.err
    assert all(float(line.split("%")[0].split()[-1]) > 33 for line in warned), warned

    costs = gather(Inputs(Workspace(workspace.root))).costs
    weights = AutoModel.from_pretrained(model)
    image_side = [w.nbytes for name, w in weights.named_parameters() if name.startswith(("vision_model", "visual_"))]
    for run in Workspace(workspace.root).artifacts("run"):
        cost = costs[run.id]
        assert (cost.seconds, cost.langs, cost.devices) == (0, (), ("cpu",))
        assert cost.texts_per_second > 0 and cost.items_per_second > 0 and cost.run_bytes > 20_000
        assert cost.encoder_bytes == pytest.approx(sum(image_side), abs=4)  # and the temperature

    runs = {a.id for a in Workspace(workspace.root).artifacts("run")}
    again = toy.ok(*call, workspace.find("dataset", "toy").path, "--lang", "en", workspace=workspace.root)
    assert {a.id for a in Workspace(workspace.root).artifacts("run")} == runs
    assert [r["lang"] for r in evaluation.results(again.made)] == ["en"]
    same = {r["lang"]: r["SumR"] for r in evaluation.results(again.made)}
    assert same["en"] == results["toy", "en"]["SumR"]


def test_what_does_not_go_with_a_model(model: Path, chain: Chain, tmp_path: Path) -> None:
    run = chain.find("run", "infonce").path
    for words, code in (
        (("--model", model), 2),
        (("--zero-shot", "--model", model, run), 2),
        (("--zero-shot", "--model", model, "--name", "x"), 2),
        (("--zero-shot", "--model", tmp_path), 4),
    ):
        done = chain.ccr("evaluate", *words, *CPU)
        assert (done.code, done.out) == (code, ""), done.err
