"""Terms of basic, infonce, uml and trine against their equations in numpy, where no pair is wholly believed.

Shape suffixes: B triplets in a batch, Q queries.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.special import polygamma
from smallbatch import SIZE, batch, make

from ccr_cli.errors import UsageError
from ccr_cli.methods import base

Array = npt.NDArray[np.float64]
ITEM = [0, 1, 2, 3, 4, 5, 6, 0]
"""Items of the batch: two captions of one, which are no rivals."""
P = dict(zip(("VS", "VT", "ST"), np.random.default_rng(7).uniform(0.1, 0.9, (3, SIZE)), strict=True))


def given() -> base.Batch:
    """A judged batch, each side believed for itself."""
    whole = batch()
    item_B = torch.tensor(ITEM)
    belief = base.Belief(*(torch.from_numpy(P[side]).float() for side in ("VS", "VT", "ST")))
    return dataclasses.replace(whole, visual=whole.visual.select(item_B), item_B=item_B, p=belief)


def cosines(model: Any) -> dict[str, Array]:
    """The three similarity matrices of the batch."""
    whole = given()
    with torch.no_grad():
        sides = (model.embed_visual(whole.visual), model.embed_text(whole.source), model.embed_text(whole.target))
    v, s, t = (x.double().numpy() for x in sides)
    return {"VS": v @ s.T, "VT": v @ t.T, "ST": s @ t.T}


def kept(i: int) -> list[int]:
    """Candidates of row i, itself the first."""
    return [i, *(j for j in range(SIZE) if ITEM[j] != ITEM[i])]


def log_softmax(sim: Array, i: int, tau: float) -> Array:
    """Of the candidates of row i."""
    logits = sim[i, kept(i)] / tau
    return np.asarray(logits - np.log(np.exp(logits).sum()))


def nce(sim: Array, tau: float, p: Array) -> float:
    """InfoNCE of both directions, weighted."""
    rows = [-(log_softmax(sim, i, tau)[0] + log_softmax(sim.T, i, tau)[0]) / 2 for i in range(SIZE)]
    return float(p @ rows / p.sum())


def hinge(sim: Array, margin: float, p: Array, reduction: str) -> float:
    """Both directions' hardest negatives, weighted."""
    cost = [
        sum(max(0.0, margin + max(x[i, j] for j in kept(i)[1:]) - x[i, i]) for x in (sim, sim.T)) for i in range(SIZE)
    ]
    return float(p @ cost / (p.sum() if reduction == "mean" else 1))


def fisher(sim: Array, i: int) -> float:
    """UML eq. (6), (7) of row i, phi = 0."""
    alpha = np.exp(np.tanh(sim[i, kept(i)]) / 0.1) + 1
    total, y = alpha.sum(), np.eye(len(alpha))[0]
    variance = alpha * (total - alpha) / (total**2 * (total + 1))
    return float((((y - alpha / total) ** 2 + variance) * polygamma(1, alpha)).sum())


def kl(log_p: Array, log_q: Array) -> float:
    return float((np.exp(log_p) * (log_p - log_q)).sum())


def js(log_p: Array, log_q: Array) -> float:
    log_m = np.log((np.exp(log_p) + np.exp(log_q)) / 2)
    return (kl(log_p, log_m) + kl(log_q, log_m)) / 2


def check(terms: dict[str, torch.Tensor], expected: dict[str, float]) -> None:
    assert terms.keys() == expected.keys()
    for name, value in expected.items():
        assert value != 0
        assert terms[name].item() == pytest.approx(value, rel=2e-5), name


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_terms_of_basic(reduction: str) -> None:
    method = make("basic", alpha=0.3, margin=0.4, reduction=reduction)
    sim = cosines(method)
    expected = {
        "triplet_vs": hinge(sim["VS"], 0.4, P["VS"], reduction),
        "triplet_vt": 0.3 * hinge(sim["VT"], 0.4, P["VT"], reduction),
    }
    check(method.losses(given()), expected)


@pytest.mark.parametrize("learned", [False, True])
def test_terms_of_infonce(learned: bool) -> None:
    method = make("infonce", temperature=0.2, learn_temperature=learned, cross_lingual_weight=0.3)
    weights = {"VS": 1.0, "VT": 1.0, "ST": 0.3}
    sim = cosines(method)
    check(method.losses(given()), {f"infonce_{s.lower()}": w * nce(sim[s], 0.2, P[s]) for s, w in weights.items()})


def test_terms_of_uml_in_the_third_epoch() -> None:
    """Eq. (20), and the anchor; sigma = 1 - 2 * 3 / 10."""
    weights = {"evidential_weight": 0.7, "consistency_weight": 2.0, "disentangle_weight": 3.0, "anchor_weight": 0.9}
    method = make("uml", **weights, beta=0.5, schedule=2.0, gamma=0.1, epochs=10, cross_lingual_weight=0.6)
    method.start_epoch(3)
    sim, rows = cosines(method), range(SIZE)
    views = {s: np.array([fisher(sim[s], i) + fisher(sim[s].T, i) for i in rows]) for s in ("VS", "VT")}
    q = {s: [[log_softmax(x, i, 0.1) for i in rows] for x in (sim[s], sim[s].T)] for s in sim}
    both = range(2)  # rows, columns
    l_c = np.array([sum(js(q["VT"][d][i], q["VS"][d][i]) for d in both) / 2 for i in rows])
    l_n = np.array([sum(kl(q["VS"][d][i], q["ST"][d][i]) for d in both) / 2 for i in rows])
    expected = {
        "evidential_vs": 0.7 * 0.4 * (P["VS"] * views["VS"]).mean(),
        "evidential_vt": 0.7 * 0.6 * (P["VT"] * views["VT"]).mean(),
        "consistency": 0.5 * 2 * (P["VT"] * l_c).mean(),
        "disentangle": -0.5 * 3 * ((1 - P["VT"]) * l_n).mean(),
        "anchor": 0.9 * (nce(sim["VS"], 0.07, P["VS"]) + nce(sim["VT"], 0.07, P["VT"])),
        "cross_lingual": 0.6 * nce(sim["ST"], 0.07, P["ST"]),
    }
    check(method.losses(given()), expected)
    quiet = method.losses(dataclasses.replace(given(), judged=False))
    del expected["disentangle"]  # not before the judge may speak
    check(quiet, expected)


def test_uml_needs_something_that_pulls() -> None:
    off = {"evidential_weight": 0.0, "anchor_weight": 0.0, "cross_lingual_weight": 0.0}
    for more in ({"beta": 0.0}, {"consistency_weight": 0.0}):
        with pytest.raises(UsageError, match="nothing to train"):
            make("uml", **off, **more)
    assert set(make("uml", **off).losses(given())) == {"consistency", "disentangle"}


@pytest.mark.parametrize("models", [1, 2, 3])
def test_terms_of_trine(models: int) -> None:
    method = make("trine", models=models, visual_weight=0.7, cross_lingual_weight=0.3)
    weights = {"VS": 1.0, "VT": 0.7, "ST": 0.3}
    sims = [cosines(tower) for tower in method.towers()]
    assert len(sims) == models
    expected = {f"infonce_{s.lower()}": w * sum(nce(sim[s], 0.1, P[s]) for sim in sims) for s, w in weights.items()}
    check(method.losses(given()), expected)


def test_one_model_of_trine_is_infonce_with_three_sides() -> None:
    one, other = make("trine", models=1), make("infonce", cross_lingual_weight=0.5, temperature=0.1, judge="triangle")
    assert one.config.judge == other.config.judge
    mine, theirs = (sorted(term.item() for term in method.losses(given()).values()) for method in (one, other))
    assert mine == theirs and len(mine) == 3


def test_uncertainty_of_trine_is_one_minus_what_was_fitted() -> None:
    method, rng = make("trine"), np.random.default_rng(0)
    assert method.uncertainty(torch.rand(3, 5)).tolist() == [0.5] * 3
    top, lead = rng.uniform(0.1, 0.9, 20_000), rng.uniform(0.0, 0.1, 20_000)
    right = rng.random(20_000) < 1 / (1 + np.exp(-(4 * top + 30 * lead - 3.5)))
    method.calibrate(torch.from_numpy(np.stack([top, top - lead], axis=1)), torch.from_numpy(right))
    unc_Q = method.uncertainty(torch.tensor([[0.1, 0.8, 0.7], [0.3, 0.2, 0.29]]))
    np.testing.assert_allclose(unc_Q, [1 / (1 + np.exp(3.2 + 3 - 3.5)), 1 / (1 + np.exp(1.2 + 0.3 - 3.5))], atol=0.03)


def test_similarity_of_trine_is_the_mean_of_its_models() -> None:
    method, whole = make("trine", models=3).eval(), given()
    sim, _ = method.score(method.embed_visual(whole.visual), method.embed_text(whole.target))
    each = np.stack([cosines(tower)["VT"] for tower in method.towers()])
    assert not np.allclose(each[0], each[1])
    np.testing.assert_allclose(sim.detach(), each.mean(0), atol=1e-6)
