"""`ccr evaluate --zero-shot --model`: what is missing is made, and evaluated like any run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tinydual
import torch
import toy
import transformers
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


@pytest.fixture(scope="module")
def dual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("dual")
    return {family: tinydual.save(family, root / family) for family in ("clip", "siglip-2")}


@pytest.mark.slow
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


def of(good: Path, folder: Path, part: Callable[[Any], Any]) -> Path:
    """Saves a part of a CLIP, or a CLIP that was changed, as a model of its own."""
    shutil.copytree(good, folder)
    part(AutoModel.from_pretrained(good)).save_pretrained(folder)
    return folder


def scaled(weight: str, factor: float) -> Callable[[Any], Any]:
    def part(model: Any) -> Any:
        with torch.no_grad():
            model.get_parameter(weight).mul_(factor)
        return model

    return part


def segmenting(model: Any) -> Any:
    sides = {f"{name}_config": getattr(model.config, f"{name}_config").to_dict() for name in ("text", "vision")}
    return transformers.CLIPSegModel(transformers.CLIPSegConfig(**sides))


def longer_texts(model: Any) -> Any:
    """A SigLIP's two sides need not have one dimension."""
    config = transformers.SiglipConfig(
        text_config={**model.config.text_config.to_dict(), "projection_size": 24},
        vision_config=model.config.vision_config.to_dict(),
    )
    return transformers.SiglipModel(config)


BROKEN: dict[str, tuple[Callable[[Any], Any], int, str]] = {
    "text side alone": (lambda model: model.text_model, 2, "no image side"),
    "image side alone": (lambda model: model.vision_model, 2, "--encoder vision"),
    "of regions": (segmenting, 2, "regions"),
    "sides of two dimensions": (longer_texts, 2, "16 dimensions and the texts 24"),
    "text vectors that are no numbers": (scaled("text_projection.weight", float("nan")), 4, "not finite"),
    "text vectors that overflow": (scaled("text_projection.weight", 1e30), 4, "cannot be used"),
    "picture vectors that are no numbers": (scaled("visual_projection.weight", float("nan")), 1, "another model"),
    "picture vectors that overflow": (scaled("visual_projection.weight", 1e8), 1, "half precision"),
}
"""What is made of a model, the exit code, and a part of the message; 1 where more than `--max-failed` items fail."""


@pytest.mark.parametrize("case", toy.some_fast(BROKEN, "text side alone", "picture vectors that overflow"))
def test_models_that_cannot_be_evaluated(case: str, dual: dict[str, Path], sources: Chain, tmp_path: Path) -> None:
    part, code, message = BROKEN[case]
    broken = of(dual["siglip-2" if part is longer_texts else "clip"], tmp_path / "broken", part)
    root = tmp_path / "workspace"
    toy.copy_datasets(sources.root, root)
    done = toy.ccr("evaluate", "--zero-shot", "--model", broken, *CPU, workspace=root)
    assert (done.code, done.out) == (code, "") and message in done.err
    assert not Workspace(root).artifacts("evaluation")
    if case == "picture vectors that are no numbers":  # the last that is looked at
        assert toy.ccr("evaluate", "--zero-shot", "--model", dual["clip"], *CPU, workspace=root).code == 0
