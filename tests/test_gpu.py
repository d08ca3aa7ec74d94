"""Every command on a CUDA device, beside the CPU: the same artifacts, and figures that agree.

`CCR_TEST_DEVICE=cpu pytest -m gpu` tries the tests themselves where there is no such device.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tinyclip
import tinytext
import torch
import toy
from toy import Chain

from ccr_cli import registry
from ccr_cli.artifacts import base
from ccr_cli.artifacts.features import read_index, read_rows
from ccr_cli.stages.train import loop
from ccr_cli.translators import hf

DEVICE = os.environ.get("CCR_TEST_DEVICE", "cuda")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="no CUDA device"),
]
SMALL = toy.SMALL[: toy.SMALL.index("--device")]
METHODS = [name for name in registry.names("methods") if name != "pretrained"]


def train(workspace: Chain, method: str, *options: str, device: str = DEVICE, name: str = "run") -> base.Artifact:
    """A run of two epochs."""
    toy.teach(method, workspace.root)
    how = ("--noise", "0.4", "--epochs", "2", *SMALL, "--device", device, "--name", name)
    return toy.ok("train", "--method", method, *how, *options, workspace=workspace.root).made


def losses(run: base.Artifact) -> list[float]:
    """The loss of each epoch."""
    lines = run.file("history.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["loss"]["total"] for line in lines]


@pytest.mark.parametrize("method", METHODS)
def test_a_method_learns_as_on_the_cpu(method: str, workspace: Chain) -> None:
    ours = losses(train(workspace, method, name="here"))
    np.testing.assert_allclose(ours[0], losses(train(workspace, method, device="cpu", name="there"))[0], rtol=0.02)
    assert len(ours) == 2 and np.isfinite(ours).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_that_is_stopped_goes_on(dtype: str, workspace: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(workspace, "uml", "--dtype", dtype, name="whole")
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    how = ("--noise", "0.4", "--epochs", "2", *SMALL, "--device", DEVICE, "--dtype", dtype, "--name", "stopped")
    run_epoch = loop.Trainer._epoch

    def stop(self: loop.Trainer, epoch: int, *given: Any) -> None:
        if epoch == 2:
            raise KeyboardInterrupt
        run_epoch(self, epoch, *given)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "_epoch", stop)
        assert toy.ccr("train", "--method", "uml", *how, workspace=workspace.root).code == 130
    parted = toy.ok("train", "--method", "uml", *how, workspace=workspace.root).made
    np.testing.assert_allclose(losses(parted), losses(whole), rtol=1e-3 if dtype == "float32" else 0.05)


def test_evaluation_and_diagnosis_agree_with_the_cpu(finished: Chain) -> None:
    run = finished.find("run", "uml")
    sums: list[list[float]] = []
    aurocs: list[float] = []
    for device in (DEVICE, "cpu"):
        how = (run.path, "--device", device, "--force")
        evaluation = toy.ok("evaluate", *how, workspace=finished.root).made
        sums.append([row["SumR"] for row in evaluation.json("metrics.json")["results"]])
        diagnosis = toy.ok("diagnose", *how, workspace=finished.root).made
        aurocs.append(diagnosis.json("summary.json")["detection"]["auroc"])
    np.testing.assert_allclose(sums[0], sums[1], atol=20)  # of 12 queries, two may tie
    assert aurocs[0] == pytest.approx(aurocs[1], abs=0.02)


def test_features_agree_with_the_cpu(workspace: Chain, tmp_path: Path) -> None:
    model = tinyclip.save(tmp_path / "clip")
    vectors: list[npt.NDArray[np.float32]] = []
    for device in (DEVICE, "cpu"):
        how = ("--encoder", "clip", "--set", f"model={model}", "--device", device, "--name", f"by-{len(vectors)}")
        made = toy.ok("extract", *how, workspace=workspace.root).made
        vectors.append(read_rows(made, read_index(made)["item_id"].tolist(), pooled=True)[0])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=2e-3)


def test_translations_equal_those_of_the_cpu(marian: Path) -> None:
    import tinymt

    config = hf.Config(model=str(marian), dtype="float32", num_beams=4)
    engines = [hf.Translator("en", "de", config, dataset_dir=None, device=device) for device in (DEVICE, "cpu")]
    here, there = ([text.text for text in toy.translated(each, tinymt.CAPTIONS[:40])] for each in engines)
    assert here == there


@pytest.mark.filterwarnings("ignore:.*is deprecated.*:DeprecationWarning")  # torch's compiler about torch
def test_a_compiled_encoder_trains(workspace: Chain, tmp_path: Path) -> None:
    encoder = ("--set", f"text_encoder={tinytext.save('bert', tmp_path / 'bert')}", "--set", "max_tokens=20")
    assert np.isfinite(losses(train(workspace, "infonce", *encoder, "--compile"))).all()
