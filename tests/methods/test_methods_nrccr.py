"""NRCCR: its terms against a composition by hand, its switches, what may reach an embedding, a whole run."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from toy import Chain
from transformers import BertConfig, BertModel

from ccr_cli.artifacts import evaluation
from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import NgramTokenizer, Tokens
from ccr_cli.errors import UsageError
from ccr_cli.losses.triplet import triplet
from ccr_cli.methods import base, nrccr
from ccr_cli.nets.text import NgramTextEncoder, TextEncoder, TransformerTextEncoder
from ccr_cli.stages.shared.options import configure

DIM, VISUAL_DIM, BUCKETS = 16, 10, 256
SOURCE = ["a red ring", "blue", "the cat on the mat looks at a green bird", "two dogs", "one cold grey morning"]
TARGET = ["anillo rojo", "azul", "el gato mira un pájaro verde", "dos perros", "猫在垫子上"]
BACK = ["red ring", "blue", "the cat looks at a green bird", "two dogs run", "cat on mat"]
ROWS = (1, 3, 2, 1, 4)
OFF: dict[str, Any] = {"similarity_weight": 0, "feature_weight": 0, "cycle_weight": 0, "adversarial_weight": 0}


def tokens(texts: list[str]) -> Tokens:
    return NgramTokenizer(buckets=BUCKETS).encode(texts).select(torch.arange(len(texts)))


def frames(counts: tuple[int, ...] = ROWS) -> Frames:
    torch.manual_seed(7)
    offsets = torch.tensor([0, *counts]).cumsum(0)
    return Frames(torch.randn(int(offsets[-1]), VISUAL_DIM), offsets)


def batch(p: list[float] | None = None, items: list[int] | None = None) -> base.Batch:
    p_B = torch.tensor(p or [1.0] * 5)
    item_B = torch.tensor(items or list(range(5)))
    belief = base.Belief(torch.ones(5), p_B, p_B.clone())
    return base.Batch(frames(), tokens(SOURCE), tokens(TARGET), item_B, belief, back=tokens(BACK))


def make(text: TextEncoder | None = None, **options: Any) -> nrccr.Method:
    """A small model without dropout, its batch normalisation no identity."""
    small = {"dim": DIM, "buckets": BUCKETS, "dropout": 0.0, "text_dropout": 0.0, "block_dropout": 0.0}
    config = configure(nrccr.Config, {**small, **options}, "nrccr")
    torch.manual_seed(1)
    method = nrccr.Method(config, VISUAL_DIM, text or NgramTextEncoder(BUCKETS, DIM))
    if text is None:
        for _ in range(30):
            method.losses(batch() if "back" in config.needs() else dataclasses.replace(batch(), back=None))
    return method


# ---- the terms


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_terms_are_those_of_eq_12(reduction: Any) -> None:
    method, given = (
        make(reduction=reduction, similarity_weight=3, feature_weight=5, adversarial_weight=0.5).eval(),
        batch(),
    )
    with torch.no_grad():
        v, s, t = method.embed_visual(given.visual), method.embed_text(given.source), method.embed_text(given.target)
        b = method.embed_text(tokens(BACK))
        (x_s, there_s), (x_t, there_t) = (method._tokens(side) for side in (given.source, given.target))
        h = torch.nn.functional.normalize(method.token_encoder.cross(x_s, there_s, x_t, there_t), dim=1)
        q, p = v @ h.T / 0.07, v @ t.T / 0.07
        kl = [
            torch.nn.functional.kl_div(y.log_softmax(1), x.softmax(1), reduction="batchmean")
            for x, y in ((q, p), (q.T, p.T))
        ]
        means = [
            torch.stack([x[m].mean(0) for x, m in zip(*side, strict=True)]) for side in ((x_s, there_s), (x_t, there_t))
        ]
        assert method.discriminator is not None
        logit = torch.cat([method.discriminator(x)[:, 0] for x in means])
        truth = torch.cat([torch.ones(5), torch.zeros(5)])
        want = {
            "triplet_vs": triplet(v @ s.T, reduction=reduction),
            "triplet_vt": 0.6 * triplet(v @ t.T, reduction=reduction),
            "similarity": 3 * (kl[0] + kl[1]) / 2,
            "feature": 5 * (h - t).abs().sum(1).mean(),
            "cycle": 0.5 * triplet(s @ b.T, reduction=reduction),
            "adversarial": 0.5 * 2 * torch.nn.functional.binary_cross_entropy_with_logits(logit, truth),
        }
        got = method.losses(given)
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert value > 0
        torch.testing.assert_close(got[name], value, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "term", "modules"),
    [
        ("similarity_weight", "similarity", ()),
        ("feature_weight", "feature", ()),
        ("cycle_weight", "cycle", ()),
        ("adversarial_weight", "adversarial", ("discriminator",)),
    ],
)
def test_each_term_can_be_switched_off(option: str, term: str, modules: tuple[str, ...]) -> None:
    whole, without = make(), make(None, **{option: 0})
    given = batch() if option != "cycle_weight" else dataclasses.replace(batch(), back=None)
    assert set(whole.losses(batch())) - set(without.losses(given)) == {term}
    gone = {n.split(".")[0] for n, _ in whole.named_parameters()} - {
        n.split(".")[0] for n, _ in without.named_parameters()
    }
    assert gone == set(modules)


def test_what_is_needed_follows_from_the_options() -> None:
    assert nrccr.Config().needs() == {"frames", "back"}
    assert nrccr.Config(cycle_weight=0).needs() == {"frames"}
    assert nrccr.Config(cycle_weight=0, frame_block=False).needs() == set()
    assert make(**{**OFF, "frame_block": "false"}).frame_encoder is None


def test_a_pair_that_the_judge_rejects_is_as_if_it_were_not_there() -> None:
    method = make(adversarial_weight=0).eval()
    given = batch([1.0, 0.6, 0.0, 1.0, 0.3])
    rest = torch.tensor([0, 1, 3, 4])

    def only(texts: list[str]) -> Tokens:
        return tokens([texts[i] for i in rest.tolist()])

    p_B = given.p.VT[rest]
    belief = base.Belief(torch.ones(4), p_B, p_B)
    less = base.Batch(given.visual.select(rest), only(SOURCE), only(TARGET), rest, belief, back=only(BACK))
    got, want = method.losses(given), method.losses(less)
    for name in ("triplet_vt", "similarity", "feature", "cycle"):
        torch.testing.assert_close(got[name], want[name], rtol=1e-4, atol=1e-6, msg=name)
    assert got["triplet_vs"] > want["triplet_vs"]


def test_captions_of_one_item_are_no_rivals() -> None:
    terms = make().losses(batch(items=[3] * 5))
    assert all(terms[name] == 0 for name in ("triplet_vs", "triplet_vt", "similarity", "cycle"))


# ---- the players


def test_the_teacher_is_neither_trained_nor_remembered() -> None:
    method = make()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    h_BD = method._teacher(*method._tokens(tokens(SOURCE).join(tokens(TARGET))))
    assert not h_BD.requires_grad and method.token_encoder.training and method.token_encoder.block.training
    for name, value in method.state_dict().items():
        assert torch.equal(value, before[name]), name
    torch.testing.assert_close(h_BD.norm(dim=1), torch.ones(5))


@pytest.mark.slow
def test_the_adversary_and_the_encoder_want_opposite_things() -> None:
    def term(method: nrccr.Method) -> torch.Tensor:
        return method.losses(batch())["adversarial"]

    def stepped(words: tuple[str, ...]) -> float:
        method = make()
        torch.autograd.backward(term(method))
        with torch.no_grad():
            for name, weight in method.named_parameters():
                if name.startswith(words) and weight.grad is not None:
                    step = weight.grad.to_dense()
                    weight.sub_(1e-2 * step / step.norm().clamp(min=1e-12))
        return float(term(method).detach())

    now = float(term(make()).detach())
    assert stepped(("discriminator",)) < now < stepped(("encoder.text_encoder",))


# ---- the embeddings


def test_a_text_is_the_same_alone_and_beside_longer_ones() -> None:
    method = make().eval()
    together = method.embed_text(tokens(SOURCE + TARGET))
    for i, text in enumerate(SOURCE + TARGET):
        torch.testing.assert_close(method.embed_text(tokens([text]))[0], together[i], rtol=1e-5, atol=1e-6)


def test_a_video_is_the_same_alone_and_beside_longer_ones() -> None:
    method, given = make().eval(), frames()
    together = method.embed_visual(given)
    for i in range(len(given)):
        alone = method.embed_visual(given.select(torch.tensor([i])))
        torch.testing.assert_close(alone[0], together[i], rtol=1e-5, atol=1e-6)


def test_the_order_of_words_and_frames_counts() -> None:
    method, given = make().eval(), frames((3,))
    turned = Frames(given.rows_ND.flip(0), given.offsets_V1)
    assert not torch.allclose(method.embed_visual(given), method.embed_visual(turned))
    assert not torch.allclose(method.embed_text(tokens(["red ring"])), method.embed_text(tokens(["ring red"])))


def test_an_image_passes_by_the_frame_block() -> None:
    method = make().eval()
    pictures = frames((1,) * 5)
    before = method.embed_visual(pictures)
    torch.testing.assert_close(before, method.encoder.embed_visual(pictures))
    assert method.frame_encoder is not None
    with torch.no_grad():
        for weight in method.frame_encoder.parameters():
            weight.normal_()
    assert torch.equal(method.embed_visual(pictures), before)


def test_without_the_block_frames_are_averaged() -> None:
    method = make(frame_block="false").eval()
    given = frames()
    means_VD = torch.stack([given.rows_ND[first:last].mean(0) for first, last in pairwise(given.offsets_V1.tolist())])
    torch.testing.assert_close(method.embed_visual(given), method.embed_visual(Frames.single(means_VD)))


def test_one_video_among_pictures_trains() -> None:
    method = make()
    given = dataclasses.replace(batch(), visual=frames((1, 1, 5, 1, 1)))
    torch.autograd.backward(torch.stack(list(method.losses(given).values())).sum())
    assert method.frame_encoder is not None
    for name, weight in method.frame_encoder.named_parameters():
        assert weight.grad is not None and weight.grad.isfinite().all(), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_of_a_transformers_encoder(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    small = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
    text = TransformerTextEncoder(BertModel(BertConfig(vocab_size=40, **small), add_pooling_layer=False))
    text.freeze(2)
    method = make(text, heads=4)
    lists = [[[i] for i in ids] for ids in ([5, 6, 7, 8], [9, 10], [11, 12, 13], [14, 15, 16, 17, 18, 19], [20])]
    sides = [Tokens.from_lists(lists).select(torch.tensor(rows)) for rows in ([0, 1, 2, 3, 4], [1, 2, 3, 4, 0])]
    given = dataclasses.replace(batch(), source=sides[0], target=sides[1], back=sides[0])
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
        terms = method.losses(given)
    assert all(term.isfinite() for term in terms.values())
    torch.autograd.backward(torch.stack(list(terms.values())).sum())
    for name, weight in method.named_parameters():
        if weight.requires_grad:
            assert weight.grad is not None and weight.grad.isfinite().all() and weight.grad.any(), name
    method.eval()
    with torch.no_grad():
        together = method.embed_text(sides[0])
        for i in range(5):
            alone = method.embed_text(Tokens.from_lists(lists).select(torch.tensor([i])))
            torch.testing.assert_close(alone[0], together[i], rtol=1e-4, atol=1e-5)


# ---- what is refused, and a whole run


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, r"heads .*\b3\b.*\b256$"),
        ({"similarity_weight": -1}, "similarity_weight .*-1"),
        ({"temperature": 0}, r"temperature .*\b0\.0$"),
        ({"teacher_residual": "query"}, "teacher_residual=query.* read, none$"),
    ],
)
def test_options_without_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        configure(nrccr.Config, {k: str(v) for k, v in options.items()}, "nrccr")


def test_a_text_encoder_that_the_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\b8 heads\b.*\b12\b.*\bngram\b"):
        make(NgramTextEncoder(BUCKETS, 12))


def test_a_run_is_evaluated_with_and_without_fusion(workspace: Chain) -> None:
    run = toy.ok("train", "--method", "nrccr", "--noise", "0.4", "--epochs", "2", *toy.SMALL, workspace=workspace.root)
    found = evaluation.results(toy.ok("evaluate", run.paths[-1], "--device", "cpu", workspace=workspace.root).made)
    assert [(r["method"], r["lang"], r["fusion"]) for r in found] == [
        ("nrccr", "es", "none"),
        ("nrccr", "es", "0.8raw"),
        ("nrccr", "en", "none"),
    ]


def test_without_back_translations_it_says_what_to_do(workspace: Chain) -> None:
    forward = toy.ok("translate", "--lang", "es", workspace=workspace.root).paths[-1]
    train = ("train", forward, "--method", "nrccr", "--epochs", "1", *toy.SMALL)
    refused = toy.ccr(*train, workspace=workspace.root)
    assert refused.code == 4 and "--back" in refused.err and "cycle_weight=0" in refused.err
    toy.ok(*train, "--set", "cycle_weight=0", workspace=workspace.root)


@pytest.mark.parametrize("options", [("--method", "nrccr"), ("--method", "infonce", "--set", "judge=translation")])
def test_of_several_translations_the_one_with_back_translations_is_read(
    options: tuple[str, ...], workspace: Chain
) -> None:
    toy.ok("translate", "--lang", "es", "--name", "aaa", workspace=workspace.root)
    plan = toy.ok("train", *options, *toy.SMALL, "--dry-run", "--json", workspace=workspace.root).out
    read = {Path(each["path"]).name for each in json.loads(plan)["read"] if each["kind"] == "translation"}
    assert len(read) == 1 and "aaa" not in read
    refused = toy.ccr("train", "--method", "infonce", *toy.SMALL, workspace=workspace.root)
    told = dict(line.split(maxsplit=1) for line in refused.err.splitlines() if line.startswith("  translations/"))
    assert refused.code == 4 and told.pop("translations/toy/aaa") == "without back-translations, queries no"
    assert list(told.values()) == ["with back-translations, queries yes"]
