"""One optimiser step: what is accumulated, clipped and scheduled, and training that comes to nothing."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import tinytext
import torch
import toy
from safetensors.torch import load_file
from toy import Chain

from ccr_cli.artifacts import run
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.errors import UsageError
from ccr_cli.methods import infonce
from ccr_cli.methods.base import Batch, Belief, Method
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.train.loop import Collapsed, refuse_collapse
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.sources import find_sources
from ccr_cli.stages.train.step import Engine
from ccr_cli.stages.train.training_data import TrainingData

PLAIN = infonce.Config(batch_size=16, buckets=512, dim=32, dropout=0.0, text_dropout=0.0, lr=0.01)
OPTIONS = TrainingOptions(method="infonce")


def engine(chain: Chain, **options: object) -> Engine:
    """An engine on the toy data set; its model starts from the same weights each time."""
    config = dataclasses.replace(PLAIN, **options)  # type: ignore[arg-type]
    material = TrainingData(find_sources(Inputs(Workspace(chain.root), [], []), None, "infonce"), config, OPTIONS)
    torch.manual_seed(0)
    method = infonce.Method(config, material.triplets.visual.dim, material.text_encoder)
    return Engine(method, material, torch.device("cpu"), OPTIONS)


def belief(made: Engine) -> Belief[torch.Tensor]:
    p = made.data.first_belief
    return Belief(*(torch.from_numpy(side).float() for side in (p.VS, p.VT, p.ST)))


def gradient(method: Method) -> np.ndarray:
    """All gradients, dense and float64, one after the other."""
    grads = [w.grad.to_dense() if w.grad is not None else torch.zeros_like(w) for w in method.parameters()]
    return np.concatenate([g.double().flatten().numpy() for g in grads])


def step(made: Engine, parts: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The terms of one step."""
    return made.step(parts, belief(made), judged=False)


def test_a_batch_has_the_numbers_of_its_triplets(sources: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    made, seen = engine(sources), []
    losses = made.method.losses

    def noted(batch: Batch) -> dict[str, torch.Tensor]:
        seen.append(batch)
        return losses(batch)

    monkeypatch.setattr(made.method, "losses", noted)
    parts = [torch.tensor([5, 0, 11]), torch.tensor([3, 7])]
    step(made, parts)
    for batch, rows in zip(seen, parts, strict=True):
        assert batch.row_B is not None and torch.equal(batch.row_B, rows)
        assert torch.equal(batch.item_B, made.data.triplets.item_N[rows])


def test_accumulated_gradients_are_the_mean_of_those_of_the_batches(sources: Chain) -> None:
    rows = torch.split(torch.arange(32), 16)
    alone = []
    for part in rows:
        made = engine(sources)
        step(made, [part])
        alone.append(gradient(made.method))
    made = engine(sources, accumulate=2)
    terms = step(made, list(rows))
    wanted = (alone[0] + alone[1]) / 2
    np.testing.assert_allclose(gradient(made.method), wanted, rtol=1e-4, atol=1e-7)
    assert float(terms["grad_norm"]) == pytest.approx(np.linalg.norm(wanted), rel=1e-5)


def test_the_gradient_s_norm_is_known_and_shortened(sources: Chain) -> None:
    made = engine(sources)
    norm = float(step(made, [torch.arange(16)])["grad_norm"])
    whole = gradient(made.method)
    assert norm == pytest.approx(np.linalg.norm(whole), rel=1e-5)
    clipped = engine(sources, clip_norm=norm / 4)
    assert float(step(clipped, [torch.arange(16)])["grad_norm"]) == pytest.approx(norm, rel=1e-6)
    np.testing.assert_allclose(gradient(clipped.method), whole / 4, rtol=1e-4, atol=1e-8)
    free = engine(sources, clip_norm=norm * 4)
    step(free, [torch.arange(16)])
    np.testing.assert_array_equal(gradient(free.method), whole)


@pytest.mark.parametrize(("size", "accumulate"), [(16, 1), (16, 3), (7, 2), (5, 4)])
def test_an_epoch_s_steps_have_every_triplet_once(size: int, accumulate: int, sources: Chain) -> None:
    made = engine(sources, batch_size=size, accumulate=accumulate)
    order = torch.randperm(made.triplets)
    steps = [made.rows_of(order, step) for step in range(made.steps)]
    assert made.rows_of(order, made.steps) == [] and all(steps)
    assert all(len(parts) == accumulate for parts in steps[:-1])
    seen = torch.cat([rows for parts in steps for rows in parts])
    left = made.triplets % size == 1  # a last batch of one has no negative
    assert torch.equal(seen, order[: made.triplets - int(left)])


def test_the_learning_rate_rises_and_falls(sources: Chain) -> None:
    made = engine(sources, epochs=3, lr_warmup=4)
    total = made.steps * 3
    rates = [made.set_lr(done) for done in range(total)]
    cosine = [0.01 * 0.5 * (1 + math.cos(math.pi * done / total)) for done in range(total)]
    np.testing.assert_allclose(rates[:4], np.array(cosine[:4]) * [0.2, 0.4, 0.6, 0.8])
    np.testing.assert_allclose(rates[4:], cosine[4:])
    dense, table = (group["lr"] for optimizer in made.optimizers for group in optimizer.param_groups)
    assert table / dense == pytest.approx(PLAIN.table_lr / 0.01)


def test_a_step_reads_nothing_back(sources: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would wait for a device is refused here; batches are put together on the host."""
    made = engine(sources)
    for name in ("item", "tolist", "numpy", "__bool__", "__float__"):

        def refuses(self: torch.Tensor, *given: object, name: str = name) -> None:
            raise AssertionError(f"{name} of {tuple(self.shape)}")

        monkeypatch.setattr(torch.Tensor, name, refuses)
    terms = made.step(list(torch.split(torch.arange(32), 16)), belief_of_all(made), judged=True)
    monkeypatch.undo()
    assert torch.isfinite(torch.stack(list(terms.values()))).all()


def belief_of_all(made: Engine) -> Belief[torch.Tensor]:
    return Belief(*[torch.ones(made.triplets)] * 3)


@pytest.mark.parametrize("clip_norm", [0.0, 1.0])
def test_where_float16_overflows_nothing_moves(clip_norm: float, sources: Chain) -> None:
    made = engine(sources, clip_norm=clip_norm)
    made.dtype, made.scaler = torch.float16, torch.amp.GradScaler("cpu", enabled=True)
    weight = next(made.method.encoder.visual_head.parameters())
    weight.register_hook(lambda grad: grad * math.inf)  # type: ignore[no-untyped-call]
    before = {name: value.clone() for name, value in made.method.state_dict().items()}
    scale = made.scaler.get_scale()
    terms = step(made, [torch.arange(16)])
    assert (float(terms["skipped"]), float(terms["grad_norm"])) == (1.0, 0.0)
    for name, value in made.method.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert made.scaler.get_scale() == scale / 2


@pytest.mark.parametrize("method", ["infonce", "uml", "trine"])
def test_float16_with_a_longest_gradient(method: str, workspace: Chain) -> None:
    options = ("--dtype", "float16", "--set", "clip_norm=2", "--epochs", "3")
    made = toy.ok("train", "--method", method, *toy.SMALL, *options, workspace=workspace.root).made
    history = run.history(made)
    assert history["skipped_steps"].iloc[0] > 0 and history["skipped_steps"].iloc[-1] == 0
    assert np.isfinite(history[["grad_norm", "loss.total"]].to_numpy()).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is deprecated.*:DeprecationWarning")  # torch's compiler about torch
@pytest.mark.soak
def test_a_compiled_encoder_trains_the_same_model(workspace: Chain, tmp_path: Path) -> None:
    folder = tinytext.save("bert", tmp_path / "bert")
    config = folder / "config.json"
    sure = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config.write_text(json.dumps(json.loads(config.read_text()) | sure))
    options = ("--set", f"text_encoder={folder}", "--set", "text_dropout=0", "--epochs", "2", *toy.SMALL)
    command = ("train", "--method", "infonce", *options, "--set", "max_tokens=20", "--dtype", "float32")
    plain = toy.ok(*command, "--name", "plain", workspace=workspace.root).made
    made = toy.ok(*command, "--name", "compiled", "--compile", workspace=workspace.root).made
    assert made.request == plain.request
    one, two = (load_file(a.file("model.safetensors")) for a in (plain, made))
    assert one.keys() == two.keys()
    assert run.history(made)["loss.total"].to_numpy() == pytest.approx(run.history(plain)["loss.total"], rel=1e-4)
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-3, atol=1e-4)


def test_what_does_nothing_is_said_or_refused(workspace: Chain, tmp_path: Path) -> None:
    command = ("train", "--method", "infonce", "--epochs", "1", *toy.SMALL)
    done = toy.ok(*command, "--set", "lr_warmup=500", workspace=workspace.root)
    assert "lr_warmup=500, and training has 3 steps" in done.err
    again = toy.ok(*command, "--set", "lr_warmup=500", workspace=workspace.root)
    assert "is trained already; --force trains it again" in again.err
    for setting, needed in [
        ("lora_alpha=3", "lora_rank=8"),
        ("lora_rank=8", "text_encoder=ngram"),
        ("visual_frozen_layers=1", "finetune=true"),
    ]:
        assert needed in workspace.ccr(*command, "--set", setting).err
    alone = ("train", "--method", "source-only", "--set", "judge=mutual", *toy.SMALL)
    assert "judge_side=cross_modal" in workspace.ccr(*alone).err
    folder = tinytext.save("bert", tmp_path / "bert")
    vocabulary = folder / "tokenizer.json"
    content = json.loads(vocabulary.read_text())
    words = content["model"]["vocab"].items()
    content["model"]["vocab"] = {word if word.startswith("[") else f"never {word}": place for word, place in words}
    vocabulary.write_text(json.dumps(content))
    options = ("--set", f"text_encoder={folder}", "--set", "max_tokens=20")
    done = toy.ok(*command, *options, workspace=workspace.root)
    assert "of the captions' tokens are unknown to the tokenizer of" in done.err
    absent = workspace.ccr(*command, "--set", "text_encoder=/nowhere")
    assert absent.code == 5 and "there is no such folder" in absent.err and "hf download" not in absent.err


def test_without_a_transformers_encoder_nothing_is_compiled(workspace: Chain) -> None:
    done = workspace.ccr("train", "--method", "infonce", *toy.SMALL, "--compile")
    assert done.code == 2 and "leave --compile out" in done.err


def test_history_says_the_norm_and_the_environment_the_machine(workspace: Chain) -> None:
    made = toy.ok("train", "--method", "infonce", "--epochs", "2", *toy.SMALL, workspace=workspace.root).made
    assert (run.history(made)["grad_norm"] > 0).all()
    epochs = made.about["environment"]["epochs"]
    assert [set(e) for e in epochs] == [{"seconds", "triplets_per_second", "memory_mb"}] * 2
    assert min(e["memory_mb"] for e in epochs) > 50


def test_a_model_that_tells_nothing_apart_is_refused(sources: Chain) -> None:
    made = engine(sources)
    apart = torch.nn.functional.normalize(torch.randn(40, 32, generator=torch.Generator().manual_seed(0)), dim=1)
    refuse_collapse(made.method, apart[:20], apart[20:])
    same = apart[:1].expand(20, -1)
    with pytest.raises(Collapsed, match=r"\b\d\.\d{4}\b"):
        refuse_collapse(made.method, same, same)
    with pytest.raises(Collapsed, match=r"\b400 of 400\b"):
        refuse_collapse(made.method, apart[:20], apart[20:] * math.nan)


@pytest.mark.parametrize(
    ("terms", "said"),
    [(None, "NoneType"), ({}, "empty dict"), ({"a": 1.0}, "float as 'a'"), (torch.zeros(2), "Tensor")],
)
def test_losses_that_are_no_dict_of_scalars_are_refused(
    terms: object, said: str, sources: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = engine(sources)
    monkeypatch.setattr(type(made.method), "losses", lambda self, batch: terms)
    with pytest.raises(UsageError, match=rf"\.py: losses\(\) of Method returns .*{said}"):
        made.losses(None)


@pytest.mark.parametrize("certain", [0.0, 1.0])
def test_saturated_evidence_is_refused(certain: float, sources: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine(sources)
    apart = torch.nn.functional.normalize(torch.randn(40, 32, generator=torch.Generator().manual_seed(0)), dim=1)
    monkeypatch.setattr(type(made.method), "uncertainty", lambda self, sim: torch.full((len(sim),), certain))
    with pytest.raises(Collapsed, match=re.escape(f"{certain:.4f}")):
        refuse_collapse(made.method, apart[:20], apart[20:])


def test_training_that_breaks_ends_with_the_last_good_epoch(workspace: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("train", "--method", "infonce", *toy.SMALL)
    good = toy.ok(*command, "--epochs", "4", "--name", "good", workspace=workspace.root).made
    whole = Engine.step

    def breaks(self: Engine, *given: object, **named: object) -> dict[str, torch.Tensor]:
        terms = whole(self, *given, **named)  # type: ignore[arg-type]
        lr = self.optimizers[0].param_groups[0]["lr"]
        return {k: v * math.nan if lr < 0.5 * 1e-3 else v for k, v in terms.items()}

    monkeypatch.setattr(Engine, "step", breaks)
    done = workspace.ccr(*command, "--epochs", "4", "--name", "bad")
    assert done.code == 3 and "stopped in epoch 3: the loss is not finite" in done.err
    made = done.made
    assert (made.counts["epochs"], made.counts["stopped"]) == (2, 1)
    assert "not finite" in run.stopped(made) and run.stopped(good) == ""
    best = run.history(good)["val.SumR"][:2].to_numpy().argmax()
    assert made.counts["best_epoch"] == best + 1
    assert workspace.ccr("evaluate", made.path, "--split", "val").code == 0
    assert workspace.ccr(*command, "--epochs", "4", "--name", "bad").code == 3  # what is there is said again
    assert not (made.path / "last").exists() and Path(made.path / "stopped.json").is_file()
