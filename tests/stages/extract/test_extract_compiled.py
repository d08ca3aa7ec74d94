"""`extract --compile`: real compilers on the encoders, the same vectors; a machine that cannot compile says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import toy
import transformers

from ccr_cli.artifacts import base, features

TINY = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny vision model."""
    folder = tmp_path_factory.mktemp("vit")
    transformers.ViTModel(transformers.ViTConfig(**TINY, image_size=32, patch_size=8)).save_pretrained(folder)
    transformers.ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("compiled")
    toy.ok("data", "import", toy.toy().write(place / "toy"), workspace=place / "workspace")
    return place / "workspace"


def extract(workspace: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Extracts in a process of its own; what it compiled is not remembered for the next."""
    command = [sys.executable, "-m", "ccr_cli", "extract", "--device", "cpu", *options]
    variables = toy.environment(workspace, TORCHINDUCTOR_CACHE_DIR=str(workspace / "cache"), **more)
    return subprocess.run(command, env=variables, capture_output=True, text=True)


def rows(outcome: subprocess.CompletedProcess[str]) -> np.ndarray:
    assert outcome.returncode == 0, outcome.stderr
    made = base.load(Path(outcome.stdout.splitlines()[-1]))
    items = list(features.read_index(made)["item_id"])
    return features.read_rows(made, items, pooled=True)[0]


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["vision", pytest.param("efficientnet-lite0", marks=pytest.mark.soak)])
def test_compiled_encoders_give_the_same_vectors(encoder: str, folder: Path, workspace: Path) -> None:
    own = ("--set", f"model={folder}") if encoder == "vision" else ("--set", "image_size=64")
    plain = rows(extract(workspace, "--encoder", encoder, *own, "--name", f"{encoder}-plain"))
    name = ("--name", f"{encoder}-compiled")
    told = extract(workspace, "--encoder", encoder, *own, "--compile", *name, TORCH_LOGS="output_code")
    assert "output_code" in told.stderr, "something was compiled"
    fast = rows(told)
    assert fast.shape == plain.shape and np.ptp(plain, axis=0).max() > 0
    np.testing.assert_allclose(fast, plain, rtol=0.01, atol=0.01)
    request = [
        base.load(workspace / "features" / "toy" / f"{encoder}-{each}").request for each in ("plain", "compiled")
    ]
    assert request[0] == request[1], "it is no other request: what was made so is not made again"


@pytest.mark.slow
def test_where_nothing_compiles_it_says_so(folder: Path, workspace: Path, tmp_path: Path) -> None:
    own = ("--encoder", "vision", "--set", f"model={folder}", "--compile", "--name", "none")
    told = extract(workspace, *own, CXX=str(tmp_path / "no-compiler"))
    assert told.returncode == 5 and "Traceback" not in told.stderr, told.stderr
    assert "torch.compile does not work here" in told.stderr and "leave --compile out" in told.stderr
