"""TCL: two models, each trained in its direction, brought together by consistency, averaged at test."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from smallbatch import BUCKETS, DIM, SIZE, VISUAL_DIM, batch, make, tokens
from transformers import BertConfig, BertModel

from ccr_cli.errors import UsageError
from ccr_cli.losses import trust
from ccr_cli.methods import tcl
from ccr_cli.nets.text import TransformerTextEncoder


def test_the_models_share_no_weight_and_start_apart() -> None:
    method = make("tcl")
    one, two = (dict(model.named_parameters()) for model in (method.encoder, method.textual_queries))
    assert one.keys() == two.keys()
    assert not {id(w) for w in one.values()} & {id(w) for w in two.values()}
    assert not any(torch.equal(one[name], two[name]) for name in one)
    assert set(method.state_dict()) == {f"{m}.{n}" for m in ("encoder", "textual_queries") for n in one}


def test_pretrained_text_encoders_start_from_the_same_weights() -> None:
    size = {"hidden_size": DIM, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    text = TransformerTextEncoder(BertModel(BertConfig(vocab_size=BUCKETS, **size)))
    text.freeze(1)
    method = tcl.Method(tcl.Config(dim=DIM + 1), VISUAL_DIM, text)
    assert method.textual_queries.text_encoder is not text
    for one, two in zip(text.parameters(), method.textual_queries.text_encoder.parameters(), strict=True):
        assert torch.equal(one, two) and one is not two and one.requires_grad == two.requires_grad
    assert method.encoder.text_head is not None and method.textual_queries.text_head is not None
    one, two = (next(head.parameters()) for head in (method.encoder.text_head, method.textual_queries.text_head))
    assert not torch.equal(one, two)


def test_similarity_is_the_mean_of_both_models_cosines() -> None:
    method, given = make("tcl").eval(), batch()
    readings = method.readings()
    assert list(readings) == ["visual-queries", "textual-queries"]
    each = [model.embed_visual(given.visual) @ model.embed_text(given.target).T for model in readings.values()]
    sim, _ = method.score(method.embed_visual(given.visual), method.embed_text(given.target))
    assert not torch.allclose(each[0], each[1])
    torch.testing.assert_close(sim, (each[0] + each[1]) / 2)


def test_terms_are_those_of_the_equations() -> None:
    options = {"kl_rate": 0.3, "consistency_weight": 2.0, "alpha": 0.5}
    method, given = make("tcl", **options), batch()
    method.start_epoch(2)
    terms = method.losses(given)
    assert set(terms) == {"uncertainty_vs", "uncertainty_vt", "consistency_vs", "consistency_vt"}
    for view, text, weight in (("vs", given.source, 1.0), ("vt", given.target, 0.5)):
        e, f = (
            trust.evidence(model.embed_visual(given.visual) @ model.embed_text(text).T, 0.1)
            for model in method.readings().values()
        )
        rows, columns = (trust.uncertainty_aware_loss(x, kl_weight=0.6) for x in (e, f.T))
        torch.testing.assert_close(terms[f"uncertainty_{view}"], weight * (rows + columns))
        apart = trust.consistency(e, f) + trust.consistency(f.T, e.T)
        torch.testing.assert_close(terms[f"consistency_{view}"], weight * 2 * apart)


def test_in_either_direction_the_other_model_follows() -> None:
    """Algorithm 1: the model whose direction it is stands still."""
    method, given = make("tcl", consistency_weight=3.0), batch()

    def belief(evidence_BB: torch.Tensor) -> torch.Tensor:
        return evidence_BB / (evidence_BB + 1).sum(1, keepdim=True)

    e, f = (
        (model.embed_visual(given.visual) @ model.embed_text(given.source).T / 0.1).exp()
        for model in method.readings().values()
    )
    rows, columns = ((belief(x) - belief(y)).abs().mean() for x, y in ((e, f), (e.T, f.T)))
    term = method.losses(given)["consistency_vs"]
    for model, wanted in ((method.textual_queries, rows), (method.encoder, columns)):
        weights = list(model.visual_head.parameters())
        slopes, expected = (torch.autograd.grad(x, weights, retain_graph=True) for x in (term, 3 * wanted))
        for slope, value in zip(slopes, expected, strict=True):
            torch.testing.assert_close(slope, value)


def test_the_weight_of_the_kl_grows_to_one() -> None:
    method, given = make("tcl", kl_rate=0.4, consistency_weight=0.0), batch()
    bare = make("tcl", kl_rate=0.0, consistency_weight=0.0).losses(given)["uncertainty_vs"]
    kl = []
    for epoch in (1, 2, 3, 9):
        method.start_epoch(epoch)
        kl.append((method.losses(given)["uncertainty_vs"] - bare).item())
    assert kl[1] / kl[0] == pytest.approx(2, rel=1e-4)
    assert kl[2] / kl[0] == pytest.approx(2.5, rel=1e-4) and kl[3] == kl[2]


def test_terms_can_be_switched_off() -> None:
    given = batch()
    assert set(make("tcl", consistency_weight=0.0).losses(given)) == {"uncertainty_vs", "uncertainty_vt"}
    assert set(make("tcl", alpha=0.0).losses(given)) == {"uncertainty_vs", "consistency_vs"}
    late = make("tcl", consistency_from=2)
    assert "consistency_vs" not in late.losses(given)
    late.start_epoch(2)
    assert "consistency_vs" in late.losses(given)


def test_pairs_of_weight_zero_are_neither_positive_nor_negative() -> None:
    p = torch.tensor([1.0] * 5 + [0.0] * 3)
    method = make("tcl")
    with_noise, without = method.losses(batch(p=p)), method.losses(batch(5))
    for name, value in without.items():
        torch.testing.assert_close(with_noise[name], value)


def test_a_judge_of_the_batch_reads_both_models() -> None:
    method, given = make("tcl", judge="argmax", judge_side="cross_modal"), batch()
    sim = method.embed_visual(given.visual) @ method.embed_text(given.target).T
    e = trust.evidence(sim, 0.1)
    clean = (e + e.T).argmax(dim=1) == torch.arange(len(e))
    assert 0 < clean.sum() < len(clean)
    clean_only = [i for i in range(len(clean)) if clean[i]]
    first, _ = method.readings().values()
    rows = trust.evidence(first.embed_visual(given.visual) @ first.embed_text(given.target).T, 0.1)
    _, second = method.readings().values()
    columns = trust.evidence(second.embed_visual(given.visual) @ second.embed_text(given.target).T, 0.1)
    expected = sum(
        trust.uncertainty_aware_loss(x[clean_only][:, clean_only], kl_weight=0.0005) for x in (rows, columns.T)
    )
    torch.testing.assert_close(method.losses(given)["uncertainty_vt"], expected)


@pytest.mark.parametrize(
    ("form", "evidence"),
    [
        ("exp", [math.exp(3), math.exp(1), math.exp(-2)]),
        ("relu", [3, 1, 0]),
        ("softplus", [math.log(1 + math.exp(x)) for x in (3, 1, -2)]),
    ],
)
def test_uncertainty_is_that_of_the_candidates(form: str, evidence: list[float]) -> None:
    sim = torch.tensor([[0.3, -0.2, 0.1]])
    two, whole = (make("tcl", evidence=form, candidates=k).uncertainty(sim).item() for k in (2, 0))
    assert two == pytest.approx(2 / (2 + sum(evidence[:2])))
    assert whole == pytest.approx(3 / (3 + sum(evidence)))


def test_the_dead_evidence_of_a_pair_that_begins_badly_stays_dead_at_the_papers_temperature() -> None:
    # why the default's temperature is higher: the gradient is evidence over temperature, and that vanishes
    gradients = []
    for tau in (0.05, 0.1):
        sim = torch.zeros(8, 8, dtype=torch.float64)
        sim[0, 0] = -0.6
        sim.requires_grad_()
        torch.autograd.backward(trust.risk(trust.evidence(sim, tau))[0])
        assert sim.grad is not None
        gradients.append(abs(sim.grad[0, 0].item()))
    assert gradients[0] < 2e-4 < 0.02 < gradients[1]


def test_ranges_are_checked() -> None:
    for wrong in ({"tau": 0.0}, {"kl_rate": -1.0}, {"consistency_weight": -1.0}, {"candidates": -1}):
        ((option, value),) = wrong.items()
        with pytest.raises(ValueError, match=rf"^{option} .*{value}$"):
            tcl.Config(**wrong)


def test_a_text_is_one_unit_vector_of_both_models() -> None:
    out = make("tcl").eval().embed_text(tokens(["red circle"]))
    assert out.shape == (1, 2 * DIM) and out.norm().item() == pytest.approx(1)


@pytest.mark.parametrize("name", ["tcl", "decl", "uml"])
def test_the_least_tau_is_one_that_float32_bears(name: str) -> None:
    with pytest.raises(UsageError, match=r"tau .*\b0\.0125\b.*\b0\.0112$"):
        make(name, tau=0.0112)
    method = make(name, tau=0.0125)
    given = batch()
    same = dataclasses.replace(
        given,
        visual=given.visual.select(torch.zeros(SIZE, dtype=torch.int64)),
        source=tokens(["red circle"] * SIZE),
        target=tokens(["red circle"] * SIZE),
    )
    with torch.no_grad():  # a collapsed model: every similarity is 1
        for tower in (getattr(method, "textual_queries", method.encoder), method.encoder):
            head = tower.visual_head.layers[-1]
            head.weight.zero_()
            head.bias.copy_(tower.embed_text(same.source)[0])
    sim = method.embed_visual(same.visual) @ method.embed_text(same.source).T
    torch.testing.assert_close(sim, torch.ones(SIZE, SIZE))
    terms = method.losses(same)
    assert all(value.isfinite() for value in terms.values())
    torch.autograd.backward(torch.stack(list(terms.values())).sum())
    assert all(weight.grad is None or weight.grad.to_dense().isfinite().all() for weight in method.parameters())
    assert method.uncertainty(torch.ones(2, 5000)).isfinite().all()
