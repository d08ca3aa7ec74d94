"""source-only: the translations are not looked at in training, whatever they are and whoever judges."""

from __future__ import annotations

import pytest
import torch
import toy
from smallbatch import batch, make
from toy import Chain

from ccr_cli.losses.contrastive import infonce
from ccr_cli.methods import source_only


def test_loss_is_infonce_on_pictures_and_source_captions() -> None:
    method, given = make("source-only", temperature=0.1), batch()
    sim = method.embed_visual(given.visual) @ method.embed_text(given.source).T
    (value,) = method.losses(given).values()
    torch.testing.assert_close(value, infonce(sim, 0.1))


@pytest.mark.parametrize("side", ["cross_lingual", "cross_modal", "both"])
@pytest.mark.parametrize("judge", ["none", "mutual"])
def test_translations_change_neither_loss_nor_gradient(judge: str, side: str) -> None:
    found = []
    for noun in ("círculo", "cuadrado"):
        method = make("source-only", judge=judge, judge_side=side)
        (value,) = method.losses(batch(noun=noun)).values()
        value.backward()
        found.append([value.detach(), *(w.grad.to_dense() for w in method.parameters())])
    for one, two in zip(*found, strict=True):
        assert torch.equal(one, two)


def test_a_judge_of_pictures_and_source_captions_is_heard() -> None:
    quiet, heard = (
        make("source-only", judge="mutual", judge_side=side).losses(batch())["infonce_vs"]
        for side in ("cross_lingual", "cross_modal")
    )
    assert heard < quiet


def test_weights_do_not_depend_on_the_translations(workspace: Chain) -> None:
    made = [
        toy.ok(
            "train",
            *("--method", "source-only", "--epochs", "2", *noise, "--name", name, *toy.SMALL),
            workspace=workspace.root,
        ).made
        for name, noise in (("clean", ()), ("noisy", ("--noise", "0.6")))
    ]
    histories = [artifact.file("history.jsonl").read_text() for artifact in made]
    losses = [[line.partition('"loss"')[2].partition("}")[0] for line in text.splitlines()] for text in histories]
    assert losses[0] == losses[1] and all(losses[0])


def test_it_has_no_uncertainty_and_checks_its_temperature() -> None:
    assert make("source-only").uncertainty(torch.zeros(2, 3)) is None
    with pytest.raises(ValueError, match=r"temperature .*\b0\.0$"):
        source_only.Config(temperature=0.0)
