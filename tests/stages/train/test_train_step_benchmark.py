"""benchmarks/train_step.py compares the same loss on the same texts, and says what it measured."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import toy

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

import train_step

from ccr_cli.nets import text_transformer


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> train_step.Job:
    """A tiny model without dropout, on bundled captions."""
    for name in ("OVERHEAD_CPU", "OVERHEAD_CUDA"):
        monkeypatch.setattr(text_transformer, name, getattr(text_transformer, name))
    size: dict[str, Any] = {"layers": 2, "hidden": 64, "vocabulary": 3000, "pieces": 900, "batch": 6}
    rest: dict[str, Any] = {"device": "cpu", "dtype": "float32", "captions": [], "max_tokens": 32, "pad_to": 0}
    made = train_step.Job(argparse.Namespace(**size, **rest), tmp_path)
    made.method.eval()
    return made


def test_both_loops_take_the_same_step(job: train_step.Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.draw()
    found: dict[str, list[torch.Tensor]] = {}
    for variant in ("ours", "plain"):
        steps = found.setdefault(variant, [])
        monkeypatch.setattr(job, "move", lambda _, visual, sides, steps=steps: steps.extend([visual, *sides]))
        getattr(job, variant)()
    assert len(found["ours"]) == 4
    for one, two in zip(found["ours"], found["plain"], strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_a_shared_step_has_the_gradient_of_ours(job: train_step.Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.draw()
    found: dict[str, list[torch.Tensor]] = {}
    weights = [weight for group in job.ours_optimizer.param_groups for weight in group["params"]]
    for variant in ("ours", "shared"):
        grads = found.setdefault(variant, [])
        monkeypatch.setattr(
            job.ours_optimizer, "step", lambda grads=grads: grads.extend(w.grad.clone() for w in weights)
        )
        getattr(job, variant)()
    assert len(found["ours"]) == len(found["shared"]) > 20
    for one, two in zip(found["ours"], found["shared"], strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_two_processes_share_a_step(tmp_path: Path) -> None:
    small = ("--layers", "1", "--hidden", "64", "--vocabulary", "3000", "--pieces", "900", "--batch", "7")
    more = ("--rounds", "2", "--variants", "ours", "shared", "--out", str(tmp_path / "found.json"))
    done = toy.torchrun(Path(train_step.__file__), tmp_path, *small, *more)
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told == json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert told["processes"] == 2 and told["found"]["times_one_process"]["min"] > 0
    assert told["found"]["ours"].keys() == told["found"]["shared"].keys() >= {"steps_a_second"}


@pytest.mark.slow
def test_every_variant_is_measured_and_the_weights_are_moved(job: train_step.Job) -> None:
    before = {name: weight.detach().clone() for name, weight in job.method.named_parameters()}
    job.draw()
    told = {variant: job.timed(variant) for variant in train_step.VARIANTS}
    assert len({each["tokens"] for each in told.values()}) == 1 and told["ours"]["tokens"] >= 3 * 6 * 3
    assert any(not torch.equal(before[name], weight) for name, weight in job.method.named_parameters())
    shares = job.padding()
    assert 0 < shares["grouped by length"] < shares["plain"] < 1 and shares["ours"] == 0


def test_ratios_are_taken_within_a_round() -> None:
    def told(**seconds: float) -> dict[str, dict[str, float]]:
        return {v: {"seconds": s, "cpu": 2 * s, "memory": 1.0, "tokens": 10.0} for v, s in seconds.items()}

    found = train_step.summarise([told(ours=1, plain=3, encoder=0.5), told(ours=10, plain=20, encoder=9)])
    assert found["times_the_plain_loop"] == {"min": 2.0, "median": 2.5, "max": 3.0}
    assert found["share_of_the_encoder_alone_by_cpu"] == {"min": 0.5, "median": 0.7, "max": 0.9}
    assert "share_of_equal_lengths" not in found and found["ours"]["tokens_a_second"]["max"] == 10.0


def test_captions_of_files(tmp_path: Path) -> None:
    one, two = tmp_path / "a.en", tmp_path / "a.de"
    one.write_text("a dog\na cat\n", encoding="utf-8")
    two.write_text("ein Hund\neine Katze\n", encoding="utf-8")
    assert train_step.read_captions([one, two]) == [["a dog", "a cat"], ["ein Hund", "eine Katze"], ["a cat", "a dog"]]
