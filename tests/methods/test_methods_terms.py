"""Terms of methods against their equations in numpy, where no pair is wholly believed.

Shape suffixes: B triplets in a batch, Q queries.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.special import digamma, gammaln, polygamma
from smallbatch import SIZE, batch, make, tokens

from ccr_cli.errors import UsageError
from ccr_cli.methods import base

Array = npt.NDArray[np.float64]
ITEM = [0, 1, 2, 3, 4, 5, 6, 0]
"""Items of the batch: two captions of one, which are no rivals."""
EVERY = np.ones(SIZE, dtype=bool)
P = dict(zip(("VS", "VT", "ST"), np.random.default_rng(7).uniform(0.1, 0.9, (3, SIZE)), strict=True))


def given() -> base.Batch:
    """A judged batch, each side believed for itself."""
    whole = batch()
    item_B = torch.tensor(ITEM)
    belief = base.Belief(*(torch.from_numpy(P[side]).float() for side in ("VS", "VT", "ST")))
    return dataclasses.replace(whole, visual=whole.visual.select(item_B), item_B=item_B, p=belief)


@torch.no_grad()
def embedded(model: base.Embedder) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The three sides of the batch."""
    whole = given()
    return model.embed_visual(whole.visual), model.embed_text(whole.source), model.embed_text(whole.target)


def cosines(model: base.Embedder) -> dict[str, Array]:
    """The three similarity matrices of the batch."""
    v, s, t = (x.double().numpy() for x in embedded(model))
    return {"VS": v @ s.T, "VT": v @ t.T, "ST": s @ t.T}


def kept(i: int, among: npt.NDArray[np.bool_] = EVERY) -> list[int]:
    """Candidates of row i, itself the first."""
    return [i, *(j for j in range(SIZE) if ITEM[j] != ITEM[i] and among[j])]


def log_softmax(sim: Array, i: int, tau: float, among: npt.NDArray[np.bool_] = EVERY) -> Array:
    """Of the candidates of row i."""
    logits = sim[i, kept(i, among)] / tau
    return np.asarray(logits - np.log(np.exp(logits).sum()))


def nce(sim: Array, tau: float, p: Array) -> float:
    """InfoNCE of both directions, weighted."""
    rows = [-(log_softmax(sim, i, tau)[0] + log_softmax(sim.T, i, tau)[0]) / 2 for i in range(SIZE)]
    return float(p @ rows / p.sum())


def hinge(sim: Array, margin: float | Array, p: Array, reduction: str, among: npt.NDArray[np.bool_] = EVERY) -> float:
    """Both directions' hardest negatives, weighted; one margin, or one of each pair."""
    bound, rivals = np.broadcast_to(margin, SIZE), [kept(i, among)[1:] for i in range(SIZE)]
    cost = [sum(max(0.0, bound[i] + x[i, rivals[i]].max() - x[i, i]) for x in (sim, sim.T)) for i in range(SIZE)]
    return float(p @ cost / (p.sum() if reduction == "mean" else 1))


def squared_errors(alpha: Array, y: Array) -> Array:
    """Expected under the Dirichlet distribution of a row, for each candidate."""
    total = alpha.sum()
    return np.asarray((y - alpha / total) ** 2 + alpha * (total - alpha) / (total**2 * (total + 1)))


def fisher(sim: Array, i: int) -> float:
    """UML eq. (6), (7) of row i, phi = 0."""
    alpha = np.exp(np.tanh(sim[i, kept(i)]) / 0.1) + 1
    return float((squared_errors(alpha, np.eye(len(alpha))[0]) * polygamma(1, alpha)).sum())


def kl_to_uniform(alpha: Array) -> float:
    """Of Dirichlet distributions, TCL eq. (9) as printed."""
    total = alpha.sum()
    constant = gammaln(total) - gammaln(alpha).sum() - gammaln(len(alpha))
    return float(constant + ((alpha - 1) * (digamma(alpha) - digamma(total))).sum())


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
        with pytest.raises(UsageError, match=r"evidential_weight.*anchor_weight.*cross_lingual_weight.*beta"):
            make("uml", **off, **more)
    assert set(make("uml", **off).losses(given())) == {"consistency", "disentangle"}


@pytest.mark.parametrize("models", [1, 2, 3])
def test_terms_of_trine(models: int) -> None:
    method = make("trine", models=models, visual_weight=0.7, cross_lingual_weight=0.3)
    weights = {"VS": 1.0, "VT": 0.7, "ST": 0.3}
    sims = [cosines(tower) for tower in method.encoders()]
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
    assert method.uncertainty(torch.rand(3, 5)) is None
    method.calibrate(torch.rand(4, 2), torch.ones(4, dtype=torch.bool))
    assert method.uncertainty(torch.rand(3, 5)) is None, "all right: how sure to be cannot be learned"
    top, lead = rng.uniform(0.1, 0.9, 20_000), rng.uniform(0.0, 0.1, 20_000)
    right = rng.random(20_000) < 1 / (1 + np.exp(-(4 * top + 30 * lead - 3.5)))
    method.calibrate(torch.from_numpy(np.stack([top, top - lead], axis=1)), torch.from_numpy(right))
    unc_Q = method.uncertainty(torch.tensor([[0.1, 0.8, 0.7], [0.3, 0.2, 0.29]]))
    np.testing.assert_allclose(unc_Q, [1 / (1 + np.exp(3.2 + 3 - 3.5)), 1 / (1 + np.exp(1.2 + 0.3 - 3.5))], atol=0.03)


def test_similarity_of_trine_is_the_mean_of_its_models() -> None:
    method, whole = make("trine", models=3).eval(), given()
    sim, _ = method.score(method.embed_visual(whole.visual), method.embed_text(whole.target))
    each = np.stack([cosines(tower)["VT"] for tower in method.encoders()])
    assert not np.allclose(each[0], each[1])
    np.testing.assert_allclose(sim.detach(), each.mean(0), atol=1e-6)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_terms_of_nrccr(reduction: str) -> None:
    """Eq. (12)."""
    weights = {"alpha": 0.3, "similarity_weight": 3.0, "feature_weight": 5.0, "cycle_weight": 0.7}
    method = make("nrccr", **weights, adversarial_weight=0.9, margin=0.4, temperature=0.03, reduction=reduction).eval()
    back = tokens([f"the {colour} one" for colour in ("red", "blue", "tan", "grey", "pink", "dark", "pale", "lime")])
    whole, sim, rows = dataclasses.replace(given(), back=back), cosines(method), range(SIZE)
    with torch.no_grad():
        words = [method._tokens(side) for side in (whole.source, whole.target)]
        teacher = torch.nn.functional.normalize(method.token_encoder.cross(*words[0], *words[1]), dim=1)
        v, s, t, h, b = (x.double().numpy() for x in (*embedded(method), teacher, method.embed_text(back)))
        means = [torch.stack([x[m].mean(0) for x, m in zip(*side, strict=True)]) for side in words]
        source, target = (method.discriminator(mean)[:, 0].double().numpy() for mean in means)
    q, p = ([[log_softmax(x, i, 0.03) for i in rows] for x in (each, each.T)] for each in (v @ h.T, sim["VT"]))
    near = [sum(kl(q[d][i], p[d][i]) for d in range(2)) / 2 for i in rows]
    expected = {
        "triplet_vs": hinge(sim["VS"], 0.4, P["VS"], reduction),
        "triplet_vt": 0.3 * hinge(sim["VT"], 0.4, P["VT"], reduction),
        "similarity": 3 * np.average(near, weights=P["VT"]),
        "feature": 5 * np.average(np.abs(h - t).sum(1), weights=P["ST"]),
        "cycle": 0.7 * hinge(s @ b.T, 0.4, P["ST"], reduction),
        "adversarial": 0.9 * (np.logaddexp(0, -source) + np.logaddexp(0, target)).mean(),
    }
    check(method.losses(whole), expected)


def test_terms_of_tcl_in_the_second_epoch() -> None:
    """Eq. (10) and (12) of either model's direction, rows of the first and columns of the second."""
    method = make("tcl", kl_rate=0.3, consistency_weight=2.0, alpha=0.4)
    method.start_epoch(2)
    models = [cosines(model) for model in method.readings().values()]

    def evidence(sim: Array, i: int) -> Array:
        return np.asarray(np.exp(sim[i, kept(i)] / 0.1))

    def uncertainty(e: Array) -> float:
        return float(digamma((e + 1).sum()) - digamma(e[0] + 1)) + 0.3 * 2 * kl_to_uniform(np.r_[1, e[1:] + 1])

    def apart(e: Array, f: Array) -> float:
        return float(np.abs(e / (e + 1).sum() - f / (f + 1).sum()).mean())

    expected = {}
    for view, weight in (("VS", 1.0), ("VT", 0.4)):
        one, two = (sim[view] for sim in models)
        l_u = [uncertainty(evidence(one, i)) + uncertainty(evidence(two.T, i)) for i in range(SIZE)]
        l_c = [sum(apart(evidence(x, i), evidence(y, i)) for x, y in ((one, two), (one.T, two.T))) for i in range(SIZE)]
        expected[f"uncertainty_{view.lower()}"] = weight * np.average(l_u, weights=P[view])
        expected[f"consistency_{view.lower()}"] = weight * 2 * np.average(l_c, weights=P[view])
    check(method.losses(given()), expected)


@pytest.mark.parametrize("noisy_target", ["weight", "zero"])
def test_terms_of_decl(noisy_target: str) -> None:
    """In the first step, which takes int(8 - 2.5) negatives."""
    weights = {"evidential_weight": 0.5, "kl_weight": 0.1, "hinge_weight": 3.0, "alpha": 0.4}
    method = make("decl", **weights, noisy_target=noisy_target, margin=0.3, batch_size=SIZE, eta=2.5, mu=2)
    sim = cosines(method)

    def regression(x: Array, i: int, target: float) -> float:
        e = np.exp(np.tanh(x[i, kept(i)]) / 0.1)
        y = target * np.eye(len(e))[0]
        return float(squared_errors(e + 1, y).sum()) + 0.1 * kl_to_uniform(e * (1 - y) + 1)

    def hardest(x: Array, i: int) -> float:
        cost = np.maximum(0, 0.3 + np.tanh(x[i, kept(i)[1:]]) - np.tanh(x[i, i]))
        return float(np.sort(cost)[-5:].mean())

    expected = {}
    for view, weight in (("VS", 1.0), ("VT", 0.4)):
        target, share = (P[view], np.ones(SIZE)) if noisy_target == "zero" else (np.ones(SIZE), P[view])
        both, rows = (sim[view], sim[view].T), range(SIZE)
        l_e = np.array([sum(regression(x, i, target[i]) for x in both) for i in rows])
        l_h = np.array([sum(hardest(x, i) for x in both) for i in rows])
        expected[f"evidential_{view.lower()}"] = weight * 0.5 * (share * l_e).mean()
        expected[f"hinge_{view.lower()}"] = weight * 3 * (P[view] * l_h).mean()
    check(method.losses(given()), expected)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_terms_of_disncl(reduction: str) -> None:
    """Eq. (8) of the clean pairs; a discriminator is named after what it reads, of V-S and V-T as one sample."""
    weights = {"align_weight": 1.1, "soft_weight": 0.9, "dis_weight": 1.3, "reg_weight": 0.6, "source_weight": 0.7}
    shares = {"gamma": 0.4, "beta_1": 0.3, "beta_2": 0.2, "hard_share": 0.6, "tau": 0.2, "margin": 0.3}
    method = make("disncl", **weights, **shares, part_dim=8, part_hidden=12, reduction=reduction)
    sim, expected = cosines(method), {}
    clean = {view: np.where(P[view] < 0.5, 0, P[view]) for view in ("VS", "VT")}
    for view, weight in (("VS", 0.7), ("VT", 1.0)):
        x, p, among = sim[view], clean[view], clean[view] > 0
        assert 2 < among.sum() < SIZE
        margin = 0.3 * (10 ** ((1 + np.diag(x)) / 2) - 1) / 9
        log_p = [(log_softmax(x, i, 0.2, among), log_softmax(x.T, i, 0.2, among)) for i in range(SIZE)]
        soft = [-sum(0.6 * a[0] + 0.4 * np.exp(b) @ a for a, b in (pair, pair[::-1])) for pair in log_p]
        expected[f"align_{view.lower()}"] = 1.1 * weight * hinge(x, margin, p, reduction, among)
        expected[f"soft_{view.lower()}"] = 0.9 * weight * float(p @ soft / (p.sum() if reduction == "mean" else 1))
    parts: dict[str, torch.Tensor] = {}
    for part, model in (("", method.encoder), ("_S", method), ("_X", method.readings()["exclusive"])):
        v, s, t = embedded(model)
        parts |= {f"V{part}": torch.cat([v, v]), f"T{part}": torch.cat([s, t])}
    p = np.concatenate([0.7 * clean["VS"], clean["VT"]])
    item, rows = np.array(ITEM * 2), np.arange(2 * SIZE)
    stranger = np.array([next(j for j in np.roll(rows, -i) if item[j] != item[i] and p[j]) for i in rows])

    def information(one: str, two: str) -> float:
        """Eq. (9), (12)."""
        with torch.no_grad():
            scores = method.discriminators[f"{one}-{two}"](parts[one], parts[two], torch.from_numpy(stranger))
        joint, marginal = (-np.logaddexp(0, x) for x in (-scores[0].double().numpy(), scores[1].double().numpy()))
        return float(np.average(joint, weights=p) + np.average(marginal, weights=p * p[stranger]))

    bound = np.average((parts["V_S"] - parts["T_S"]).double().square().sum(1) / 2, weights=p)
    l_s = -(information("V_S", "T") + information("T_S", "V")) + 0.3 * 2 * bound
    expected |= {
        "invariant": 1.3 * 0.4 * l_s,
        "exclusive": -1.3 * 0.6 * (information("V_X", "V") + information("T_X", "T")),
        "adversary": -1.3 * 0.6 * 1.2 * (information("V_X", "T") + information("T_X", "V")),
        "reg": -0.6 * (information("V_X", "V_S") + information("T_X", "T_S")),
    }
    check(method.losses(given()), expected)
