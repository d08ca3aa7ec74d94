"""in2r: its queues, its terms against an independent float64 computation, and what training remembers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import smallbatch
import stopped
import torch
import toy
from torch.nn.functional import normalize
from toy import Chain

from ccr_cli.errors import UsageError
from ccr_cli.methods.in2r import Method, Queue, sure

Array = npt.NDArray[np.float64]
P = torch.tensor([[0.9, 0.2, 0.7, 0.95, 0.4, 1.0, 0.6, 0.1], [0.3, 0.8, 0.6, 0.2, 0.95, 0.7, 0.51, 0.5]]).T


def unit(*rows: list[float]) -> torch.Tensor:
    return normalize(torch.tensor(rows), dim=1)


def test_prototypes_are_means_of_the_nearest() -> None:
    queue = Queue(8, 2)
    v, t = unit([1.0, 0.1], [1.0, -0.1], [-1.0, 0.0]), unit([1.0, 0.0], [0.0, 1.0], [-1.0, -1.0])
    query, elsewhere = unit([1.0, 0.0]), unit([-1.0, -1.0])
    queue.add(v[:1], t[:1])
    assert queue.prototypes(query, query, 2) is None, "fewer than K"
    queue.add(v[1:], t[1:])
    found = queue.prototypes(query, elsewhere, 2)
    assert found is not None
    assert found[0].tolist() == [pytest.approx([0.707107, 0.707107], abs=1e-6)]
    alone = queue.prototypes(query, elsewhere, 1)
    assert alone is not None and alone[1].tolist() == [pytest.approx([-1.0, 0.0])]


def test_neighbours_that_half_precision_cannot_tell_apart() -> None:
    queue, query = Queue(3, 2), unit([1.0, 0.0])
    queue.add(unit([1.0, 0.02], [1.0, 0.01], [1.0, 0.03]), unit([0.0, -1.0], [1.0, 0.0], [0.0, 1.0]))
    with torch.autocast("cpu", torch.bfloat16):
        found = queue.prototypes(query, query, 1)
    assert found is not None and found[0].tolist() == [[1.0, 0.0]]


def test_a_full_queue_forgets_the_oldest() -> None:
    queue, rows = Queue(3, 2), unit([1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0], [0.6, 0.8])
    queue.add(rows[:2], rows[:2])
    queue.add(rows[2:4], rows[2:4])
    assert {tuple(x) for x in queue.v_QD.tolist()} == {tuple(x) for x in rows[1:4].tolist()}
    queue.add(rows, rows.flip(0))  # more than it holds
    kept = zip(queue.v_QD.tolist(), queue.t_QD.tolist(), strict=True)
    assert {tuple(v): tuple(t) for v, t in kept} == {
        tuple(v): tuple(t) for v, t in zip(rows[2:].tolist(), rows.flip(0)[2:].tolist(), strict=True)
    }
    assert int(queue.seen) == 9


def test_only_pairs_as_probable_as_the_clean_ones_are_on_average_are_remembered() -> None:
    assert sure(torch.tensor([0.6, 0.9, 0.1, 0.75, 0.5]), 0.5).tolist() == [False, True, False, True, False]
    assert sure(torch.ones(3), 0.5).all() and not sure(torch.zeros(3), 0.5).any()
    for p in torch.linspace(0.51, 1, 50):  # a judge's greatest probability can be that of many pairs
        assert sure(p.repeat(100), 0.5).all()


def passes(method: Any, batch: Any) -> list[list[dict[str, Array]]]:
    """What both models see, in two passes: the order in which dropout draws is the method's."""
    out = []
    for encoder in method.encoders():
        both = []
        for _ in range(2):
            v = encoder.embed_visual(batch.visual)
            s, t = encoder.embed_text(batch.source.join(batch.target)).chunk(2)
            both.append({name: x.detach().double().numpy() for name, x in zip("VST", (v, s, t), strict=True)})
        out.append(both)
    return out


def hinge(sim: Array) -> float:
    size, cost = len(sim), 0.0
    for x in (sim, sim.T):
        for i in range(size if size > 1 else 0):
            cost += max(0.0, 0.2 + max(x[i, j] for j in range(size) if j != i) - x[i, i])
    return cost


def softmax(x: Array) -> Array:
    return np.asarray(np.exp(x) / np.exp(x).sum())


def sce(q: Array, y: Array) -> float:
    return float(-(y * np.log(q)).sum() - (q * np.log(np.maximum(y, 1e-7))).sum())


def attended(refiner: Any, x: Array) -> Array:
    """The mean of neighbours (K, D) after attention with four heads, residual and norm."""
    weight = {name: value.detach().double().numpy() for name, value in refiner.state_dict().items()}
    q, k, v = np.split(x @ weight["attention.in_proj_weight"].T + weight["attention.in_proj_bias"], 3, axis=1)
    heads = []
    for rows in np.split(np.arange(x.shape[1]), 4):
        score = q[:, rows] @ k[:, rows].T / np.sqrt(len(rows))
        heads.append(np.exp(score) / np.exp(score).sum(axis=1, keepdims=True) @ v[:, rows])
    read = np.concatenate(heads, axis=1) @ weight["attention.out_proj.weight"].T + weight["attention.out_proj.bias"]
    y = x + read
    y = (y - y.mean(axis=1, keepdims=True)) / np.sqrt(y.var(axis=1, keepdims=True) + 1e-5)
    return np.asarray((y * weight["norm.weight"] + weight["norm.bias"]).mean(axis=0))


@pytest.mark.parametrize("prototype", ["mean", "attention"])
@pytest.mark.parametrize("correction", ["target", "pair"])
def test_terms_after_the_warm_up(correction: str, prototype: str) -> None:
    options: dict[str, Any] = {"dropout": 0.3, "text_dropout": 0.3, "neighbours": 2, "views": 0.7}
    options["prototype"] = prototype
    method, batch = smallbatch.make("in2r", correction=correction, **options), smallbatch.batch(p=P)
    with torch.no_grad():  # as after some steps
        for weight in method.peer.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    torch.manual_seed(4)
    seen = passes(method, batch)
    torch.manual_seed(4)
    terms = {name: value.item() for name, value in method.losses(batch).items()}
    expected = dict.fromkeys(("clean_vs", "views_vs", "corrected_vs", "clean_vt", "views_vt", "corrected_vt"), 0.0)
    for view in ("VS", "VT"):
        for model in range(2):
            p, (one, two) = P[:, 1 - model].double().numpy(), seen[model]
            clean, noisy = p > 0.5, p <= 0.5
            v, t = one[view[0]], one[view[1]]
            expected[f"clean_{view.lower()}"] += hinge(v[clean] @ t[clean].T)
            for end in view:
                expected[f"views_{view.lower()}"] += 0.7 * hinge(one[end][clean] @ two[end][clean].T)
            peers_p = P[:, model].double().numpy()  # by which the peer learns, and remembers
            known = (peers_p > 0.5) & (peers_p >= peers_p[peers_p > 0.5].mean())
            bank_v, bank_t = (seen[1 - model][0][end][known] for end in view)
            loss = 0.0
            ends = ((v, t, bank_v, bank_t, "T"), (t, v, bank_t, bank_v, "V"))
            for query, other, keys, values, end in ends:
                rows = []
                for i in np.flatnonzero(noisy):
                    near = np.argsort(-(keys @ query[i]))[:2]
                    mean = values[near].mean(axis=0)
                    if prototype == "attention":
                        mean = attended(method.refiners[f"{end}-{model}"], values[near])
                    rows.append(mean / np.linalg.norm(mean))
                prototypes = np.array(rows)
                if correction == "target":
                    each = [
                        sce(softmax(other @ x / 0.05), softmax(other @ y / 0.05))
                        for x, y in zip(query[noisy], prototypes, strict=True)
                    ]
                    loss += float(np.mean(each)) / 2
                else:
                    sim, eye = query[noisy] @ prototypes.T / 0.05, np.eye(noisy.sum())
                    each = [sce(softmax(x[i]), eye[i]) for x in (sim, sim.T) for i in range(len(sim))]
                    loss += float(np.mean(each)) / 2
            expected[f"corrected_{view.lower()}"] += loss
    assert terms == pytest.approx(expected, rel=1e-3) and min(expected.values()) > 0


def test_the_warm_up_has_no_split_and_remembers_nothing() -> None:
    method, batch = smallbatch.make("in2r", dropout=0.3, text_dropout=0.3), smallbatch.batch(judged=False)
    torch.manual_seed(4)
    seen = passes(method, batch)
    torch.manual_seed(4)
    terms = {name: value.item() for name, value in method.losses(batch).items()}
    expected = dict.fromkeys(("warmup_vs", "warmup_views_vs", "warmup_vt", "warmup_views_vt"), 0.0)
    eye = np.eye(smallbatch.SIZE)
    for one, two in seen:
        for view in ("VS", "VT"):
            sims = [one[view[0]] @ one[view[1]].T, *(one[end] @ two[end].T for end in view)]
            parts = [
                float(np.mean([sce(softmax(x[i] / 0.05), eye[i]) for x in (sim, sim.T) for i in range(len(sim))]))
                for sim in sims
            ]
            expected[f"warmup_{view.lower()}"] += parts[0]
            expected[f"warmup_views_{view.lower()}"] += 0.1 * (parts[1] + parts[2])
    assert terms == pytest.approx(expected, rel=1e-3)
    assert all(int(queue.seen) == 0 for queue in method.queues.values())


@pytest.mark.parametrize("correction", ["target", "pair"])
def test_what_learns_from_corrections(correction: str) -> None:
    """Every weight of the refiners, but for biases of keys, which no softmax feels; a target's texts do not."""
    method = smallbatch.make("in2r", correction=correction, prototype="attention", neighbours=2)
    terms = method.losses(smallbatch.batch(p=P))
    (terms["corrected_vs"] + terms["corrected_vt"]).backward()
    assert len(method.refiners) == 4
    for name, weight in method.refiners.named_parameters():
        moved = weight.grad[2 * smallbatch.DIM :] if name.endswith("in_proj_bias") else weight.grad
        assert weight.grad.isfinite().all() and moved.abs().sum() > 0, name
    v, t, near_t, near_v, sim = (x.requires_grad_() for x in torch.randn(5, 8, 8).unbind())
    mask, noisy = torch.ones(8, 8, dtype=torch.bool), torch.arange(8) < 3
    method._corrected(sim, mask, noisy, (v, t), (near_t[:3], near_v[:3])).backward()
    assert (v.grad is None) == (t.grad is None) == (correction == "target") == (sim.grad is not None)
    assert near_t.grad is not None and near_v.grad is not None


def test_heads_divide_the_dimension() -> None:
    with pytest.raises(UsageError, match=r"prototype=attention.*\b4\b.*\b18\b"):
        smallbatch.make("in2r", prototype="attention", dim=18)
    assert not smallbatch.make("in2r", prototype="attention", neighbours=0).refiners


def test_a_model_reads_the_queue_of_the_other_one() -> None:
    """A noisy pair that its own model remembers exactly is not found there."""
    method = smallbatch.make("in2r", neighbours=1)
    for noisy, remembers, corrected in ((0, 0, False), (0, 1, True), (1, 1, False), (1, 0, True)):
        p = torch.ones(8, 2)
        p[:4, 1 - noisy] = 0
        batch, queues = smallbatch.batch(p=p), dict(method.queues.items())
        for queue in queues.values():
            queue.seen.zero_()
            queue.add = lambda *pairs: None
        queues[f"VT-{remembers}"].seen.fill_(8)
        assert ("corrected_vt" in method.losses(batch)) == corrected


def test_what_weighs_nothing_is_not_computed() -> None:
    batch = smallbatch.batch(p=P)
    assert set(smallbatch.make("in2r", views=0, neighbours=0).losses(batch)) == {"clean_vs", "clean_vt"}


def test_both_models_start_alike_and_the_queues_are_no_part_of_them() -> None:
    method = smallbatch.make("in2r")
    for one, two in zip(method.encoder.parameters(), method.peer.parameters(), strict=True):
        assert torch.equal(one, two) and one is not two
    assert not any(name.startswith("queues") for name in method.state_dict())


def test_the_presets() -> None:
    small = {"dim": smallbatch.DIM}
    paper, code = (smallbatch.make("in2r", **Method.PRESETS[name] | small).config for name in ("paper", "code"))
    assert paper.prototype == code.prototype == "attention"
    assert (paper.neighbours, paper.views, paper.warmup_epochs, paper.correction) == (5, 0.1, 5, "target")
    assert (code.neighbours, code.views, code.warmup_epochs, code.correction) == (1, 1.0, 1, "pair")
    assert paper.queue_size == code.queue_size == 65536 and code.epochs - code.warmup_epochs == 40


OPTIONS = ("--set", "queue_size=20", "--set", "prototype=attention")
TRAIN = ("train", "--method", "in2r", "--noise", "0.4", "--epochs", "3", *toy.SMALL, *OPTIONS)


@pytest.mark.slow
def test_an_interrupted_run_remembers_its_queues(workspace: Chain) -> None:
    """Stopped after each step: the same bytes as undisturbed, and no queue among them."""
    _, states = stopped.train(*TRAIN, workspace=workspace.root)
    seen = [int(state["engine"]["buffers"]["queues.VT-0.seen"]) for state in states]
    assert seen == sorted(seen) and len(seen) == 9 + 3 and seen[0] == 0 and seen[-1] > 20
