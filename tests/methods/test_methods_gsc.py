"""gsc: its terms against InfoNCE and an independent float64 computation; the judge's memory across an interruption."""

import numpy as np
import pytest
import smallbatch
import stopped
import torch
import toy
from toy import Chain

from ccr_cli.methods.gsc import Method


def cosines(x: np.ndarray) -> np.ndarray:
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x @ x.T)


def test_terms_are_infonce_and_the_agreement_of_structures() -> None:
    p = torch.linspace(0.3, 1.0, smallbatch.SIZE)
    batch = smallbatch.batch(p=p)
    method, plain = smallbatch.make("gsc", structure_weight=0.05), smallbatch.make("infonce")
    plain.load_state_dict(method.state_dict())
    terms, expected = method.losses(batch), plain.losses(batch)
    for name in ("infonce_vs", "infonce_vt"):
        assert torch.equal(terms[name], expected[name])
    with torch.no_grad():
        v, s, t = (
            x.double().numpy()
            for x in (method.embed_visual(batch.visual), *map(method.embed_text, (batch.source, batch.target)))
        )
    y = p.double().numpy()
    for name, text in (("structure_vs", s), ("structure_vt", t)):
        one, two = (y / (1 + np.exp(-cosines(x) / 0.07)) for x in (v, text))
        r = one @ two.T
        loss = np.log(np.exp(r).sum(axis=1)) - r.diagonal()
        assert terms[name].item() == pytest.approx(0.05 * (y * loss).sum() / y.sum(), rel=1e-5)


def test_the_presets_are_the_code_s_settings() -> None:
    small = {"dim": smallbatch.DIM}
    paper, coco = (smallbatch.make("gsc", **Method.PRESETS[name] | small).config for name in ("paper", "paper-coco"))
    assert (paper.structure_weight, coco.structure_weight) == (0.01, 0.05)
    assert paper.temperature == 0.07 and paper.lr == paper.table_lr == 2e-4 and paper.epochs == 60


TRAIN = ("train", "--method", "gsc", "--noise", "0.4", "--epochs", "4", *toy.SMALL)


@pytest.mark.slow
def test_the_judge_remembers_across_an_interruption(workspace: Chain) -> None:
    """Stopped at the state of each epoch, and once more in a step: the same bytes as undisturbed."""
    _, states = stopped.train(*TRAIN, workspace=workspace.root)
    assert {state["epoch"] for state in states} == set(range(5))
    known = [(state["epoch"] > 0, set(state.get("memory", {}))) for state in states]
    read = {"VS", "VT", "ST"}
    assert all(names == (read if judged else set()) for judged, names in known), "the sides that it reads"
