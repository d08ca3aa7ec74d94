"""FUME: fixed directions, uncertainty from the query alone, views without a translation, the evidential variant.

Shape suffixes: B triplets, D common space, K categories.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import smallbatch
import torch

from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import GivenTokenizer, Tokens
from ccr_cli.losses.credibility import consistency_loss, fuzzy_loss, membership
from ccr_cli.methods import base, fume
from ccr_cli.nets.text import GivenTextEncoder

SIZE, CLASSES, DIM = 9, 3, 8
TEXTS = [f"text-{number}" for number in range(2 * SIZE)]


def make(**options: Any) -> fume.Method:
    torch.manual_seed(0)
    small = {"dim": DIM, "classes": CLASSES, "hidden": 16, "dropout": 0.0, "text_dropout": 0.0}
    encoder = GivenTextEncoder(torch.randn(len(TEXTS), 5, generator=torch.Generator().manual_seed(1)))
    return fume.Method(fume.Config(**{**small, **options}), 6, encoder)


def tokens(first: int) -> Tokens:
    return GivenTokenizer(TEXTS).encode(TEXTS).select(torch.arange(first, first + SIZE))


def batch(translated: bool = True, p_vt: float = 1.0) -> base.Batch:
    visual = Frames.single(torch.randn(SIZE, 6, generator=torch.Generator().manual_seed(2)))
    sure, source = torch.ones(SIZE), tokens(0)
    return base.Batch(
        visual=visual,
        source=source,
        target=tokens(SIZE) if translated else source,
        item_B=torch.arange(SIZE),
        p=base.Belief(sure, torch.full((SIZE,), p_vt), sure),
        label_B=torch.arange(SIZE) % CLASSES,
    )


def test_directions_are_orthonormal_fixed_and_saved() -> None:
    method = make()
    torch.testing.assert_close(method.weight_KD @ method.weight_KD.T, torch.eye(CLASSES))
    assert "weight_KD" in method.state_dict()
    assert "weight_KD" not in dict(method.named_parameters())
    before = method.weight_KD.clone()
    dense, sparse = smallbatch.trained(method)
    assert dense and not sparse
    optimizer = torch.optim.Adam(dense, lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        torch.stack(list(method.losses(batch()).values())).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert torch.equal(method.weight_KD, before)


def test_uncertainty_is_that_of_the_query_alone() -> None:
    method = make().eval()
    query_QD, gallery_GD = method.embed_text(tokens(0)), method.embed_visual(batch().visual)
    sim_QG, unc_Q = method.score(query_QD, gallery_GD)
    torch.testing.assert_close(sim_QG, query_QD @ gallery_GD.T)
    assert torch.equal(unc_Q, method.score(query_QD, gallery_GD[:1])[1])
    # eq. (2), (3), (9) in numpy
    m = np.maximum(query_QD.detach().double().numpy() @ method.weight_KD.double().numpy().T, 0)
    expected = []
    for row in m:
        c = np.array([(row[k] + 1 - np.delete(row, k).max()) / 2 for k in range(CLASSES)])
        expected.append(-(c * np.log2(c) + (1 - c) * np.log2(1 - c)).mean())
    np.testing.assert_allclose(unc_Q.detach().numpy(), expected, rtol=1e-5)


def test_without_a_translation_there_are_two_views() -> None:
    method = make().eval()
    three, two = method.losses(batch())["consistency"], method.losses(batch(translated=False))["consistency"]
    v_BD, s_BD, t_BD = (
        method.embed_visual(batch().visual),
        method.embed_text(tokens(0)),
        method.embed_text(tokens(SIZE)),
    )
    torch.testing.assert_close(three, consistency_loss([v_BD, s_BD, t_BD]))
    torch.testing.assert_close(two, consistency_loss([v_BD, s_BD]))


def test_a_translation_that_is_not_believed_teaches_nothing() -> None:
    method = make().eval()
    doubted, alone = method.losses(batch(p_vt=0.0)), method.losses(batch(translated=False))
    for term in ("fuzzy", "consistency"):
        torch.testing.assert_close(doubted[term], alone[term])


def test_terms_are_those_of_eq_8_weighted_by_belief_and_alpha() -> None:
    method = make(alpha=0.3, fuzzy_weight=2.0, temperature=0.5).eval()
    p_vs, p_vt = torch.linspace(0.2, 0.9, SIZE), torch.linspace(0.8, 0.3, SIZE)
    given = dataclasses.replace(batch(), p=base.Belief(p_vs, p_vt, torch.ones(SIZE)))
    label_B = torch.arange(SIZE) % CLASSES
    z = [method.embed_visual(given.visual), method.embed_text(given.source), method.embed_text(given.target)]
    weights = [torch.ones(SIZE), p_vs, p_vt]
    terms = method.losses(given)
    each = [fuzzy_loss(membership(x, method.weight_KD), label_B, w) for x, w in zip(z, weights, strict=True)]
    torch.testing.assert_close(terms["fuzzy"], 2 * torch.stack(each).sum())
    torch.testing.assert_close(terms["consistency"], 0.3 * consistency_loss(z, 0.5, None, weights))


@pytest.mark.parametrize(("off", "left"), [("alpha", "fuzzy"), ("fuzzy_weight", "consistency")])
def test_each_term_can_be_switched_off(off: str, left: str) -> None:
    assert set(make(**{off: 0.0}).losses(batch())) == {left}


def test_number_of_layers() -> None:
    one, four = (sum("weight" in name for name, _ in make(layers=n).named_parameters()) for n in (1, 4))
    assert (one, four) == (2, 8)  # of either side


def test_evidential_learning_keeps_the_length_and_the_cosine() -> None:
    method = make(credibility="evidential").eval()
    v_BD, s_BD = method.embed_visual(batch().visual), method.embed_text(tokens(0))
    raw_v = method.encoder.pool_visual(batch().visual)
    assert method.encoder.text_head is not None
    raw_s = method.encoder.text_head(method.encoder.text_encoder.forward(tokens(0)))
    cosine = torch.nn.functional.cosine_similarity(raw_s[:, None], raw_v[None, :], dim=2)
    sim_QG, unc_Q = method.score(s_BD, v_BD)
    torch.testing.assert_close(sim_QG, cosine)
    evidence = torch.nn.functional.softplus(raw_s @ method.weight_KD.T)
    torch.testing.assert_close(unc_Q, CLASSES / (evidence + 1).sum(dim=1))
    assert set(method.losses(batch())) == {"evidential", "consistency"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 300}, r"\b300\b.*\b256$"),
        ({"layers": 0}, r"layers .*\b0$"),
        ({"temperature": 0.0}, r"temperature .*\b0\.0$"),
        ({"alpha": 0.0, "fuzzy_weight": 0.0}, "fuzzy_weight.*alpha"),
        ({"left_out": "3,"}, "left_out .*'3,'$"),
        ({"left_out": "art"}, "left_out .*'art'$"),
        ({"credibility": "evidential", "judge": "gmm"}, "judge=gmm .*credibility=evidential"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fume.Config(**options)


def test_presets_have_as_many_dimensions_as_their_data_have_categories() -> None:
    classes = {"pascal-sentence": 20, "wikipedia": 10, "nus-wide-10k": 10, "inria-websearch": 100, "xmedianet": 200}
    for name, count in classes.items():
        config = dataclasses.replace(fume.Config(), **fume.Method.PRESETS[name])  # type: ignore[arg-type]
        assert config.dim == count and (config.lr, config.epochs) == (5e-5, 200)
        assert config.lr_drop > config.epochs, "no schedule is stated"
    assert set(classes) == set(fume.Method.PRESETS)
