"""distil: what the student minimises, and that no translation reaches the pictures.

Shape suffixes: B triplets in a batch, V visual items, D embedding.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from smallbatch import DIM, SIZE, batch, make, trained
from torch import Tensor
from torch.nn.functional import normalize

from ccr_cli.errors import UsageError
from ccr_cli.judges.base import Belief
from ccr_cli.losses.contrastive import infonce
from ccr_cli.losses.distil import cosine, mse, relational
from ccr_cli.methods import base

DISTANCES = ("mse", "cosine", "relational", "contrast")
SURE = torch.ones(SIZE)
every_distance = pytest.mark.parametrize("distance", DISTANCES)


def g_BD() -> Tensor:
    return normalize(torch.randn(SIZE, DIM, generator=torch.Generator().manual_seed(9)), dim=1)


def given(noun: str = "círculo", p_ST: Tensor = SURE) -> base.Batch:
    p = Belief(torch.linspace(0.2, 1, SIZE), torch.linspace(1, 0.3, SIZE), p_ST)
    return replace(batch(noun=noun), teacher_BD=g_BD(), p=p)


def student(**options: Any) -> Any:
    """A student of a run."""
    method = make("distil", **options)
    teacher = make("source-only", dropout=options.get("dropout", 0.0))
    torch.nn.init.normal_(teacher.encoder.visual_head.layers[-1].weight)
    method.follow(teacher, g_BD())
    return method.train()


@every_distance
def test_the_loss_is_the_distance_of_both_languages(distance: str) -> None:
    p_ST = torch.linspace(0.1, 0.9, SIZE)
    method, batch_B = student(distance=distance, temperature=0.2), given(p_ST=p_ST)
    v_BD = method.embed_visual(batch_B.visual)
    terms = method.losses(batch_B)
    assert terms.keys() == {"distil_t", "distil_s"}
    for name, texts, p_B, visual_B in (
        ("distil_t", batch_B.target, p_ST, batch_B.p.VT),
        ("distil_s", batch_B.source, SURE, batch_B.p.VS),
    ):
        raw_BD = method.encoder.text_encoder(texts)
        unit_BD = normalize(raw_BD, dim=1)
        wanted = {
            "mse": mse(raw_BD, g_BD(), p_B),
            "cosine": cosine(raw_BD, g_BD(), p_B),
            "relational": relational(unit_BD, g_BD(), 0.2, p_B),
            "contrast": infonce(v_BD @ unit_BD.T, 0.2, None, visual_B)
            + 0.1 * infonce(g_BD() @ unit_BD.T, 0.2, None, p_B),
        }[distance]
        torch.testing.assert_close(terms[name], wanted)


@every_distance
def test_a_trained_teacher_keeps_its_visual_side(distance: str) -> None:
    """Whatever the translations, no weight of the visual side and no vector of the teacher moves."""
    vectors = []
    for noun in ("círculo", "cuadrado"):
        taught_BD = g_BD().requires_grad_()
        method, batch_B = student(distance=distance, dropout=0.4), replace(given(noun), teacher_BD=taught_BD)
        before_VD = method.embed_visual(batch_B.visual).clone()
        dense, sparse = trained(method)
        optimizer = torch.optim.SGD([*dense, *sparse], lr=1.0)
        sum(method.losses(batch_B).values()).backward()
        assert all(weight.grad is None for weight in method.encoder.visual_head.parameters())
        assert taught_BD.grad is None
        optimizer.step()
        assert torch.equal(method.embed_visual(batch_B.visual), before_VD), "without dropout, and as before"
        vectors.append(before_VD)
    assert torch.equal(*vectors)


@every_distance
def test_a_new_visual_head_learns_from_source_captions_alone(distance: str) -> None:
    grads = []
    for noun in ("círculo", "cuadrado"):
        method, batch_B = make("distil", distance=distance, temperature=0.2), given(noun)
        terms = method.losses(batch_B)
        v_BD = method.embed_visual(batch_B.visual)
        torch.testing.assert_close(terms["infonce_vs"], infonce(v_BD @ g_BD().T, 0.2, None, batch_B.p.VS))
        weights = list(method.encoder.visual_head.parameters())
        for name in ("distil_t", "distil_s"):
            reached = torch.autograd.grad(terms[name], weights, retain_graph=True, allow_unused=True)
            assert not any(map(torch.is_tensor, reached))
        grads.append(torch.autograd.grad(terms["infonce_vs"], weights))
        texts = list(method.encoder.text_encoder.parameters())
        assert not any(map(torch.is_tensor, torch.autograd.grad(terms["infonce_vs"], texts, allow_unused=True)))
    assert all(torch.equal(one, two) for one, two in zip(*grads, strict=True))


def test_a_judge_of_the_texts_weighs_the_translations_and_not_the_source() -> None:
    none, some = (student(judge="mutual", judge_side=side) for side in ("cross_modal", "cross_lingual"))
    unheard, heard = (method.losses(given()) for method in (none, some))
    assert heard["distil_s"] == unheard["distil_s"] and heard["distil_t"] != unheard["distil_t"]


def test_centred_vectors_have_the_mean_subtracted() -> None:
    vector_ND = normalize(torch.randn(7, DIM) + 1, dim=1)
    wanted_ND = vector_ND.double() - vector_ND.double().mean(0)
    found_ND = make("distil", centre=True).follow(None, vector_ND)
    torch.testing.assert_close(found_ND.double(), normalize(wanted_ND, dim=1), atol=1e-6, rtol=0)
    assert torch.equal(make("distil").follow(None, vector_ND), vector_ND)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"finetune": True}, "finetune=true"),
        ({"temperature": 0.0}, r"temperature .*\b0\.0$"),
    ],
)
def test_what_it_cannot_do_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make("distil", **options)
