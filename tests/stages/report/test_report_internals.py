"""What a report shows of the inside of trained models is what they compute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from scipy.special import softmax
from toy import Chain

from ccr_cli.artifacts import dataset
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.splits import items_of
from ccr_cli.losses.disncl import soft_alignment
from ccr_cli.report.content import ModelInternals
from ccr_cli.report.figures import canvas, examples
from ccr_cli.stages.report.examples import Examples
from ccr_cli.stages.report.stage import gather
from ccr_cli.stages.shared.embedding import embed_visuals, encode_and_embed
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.triplets import read_visuals

NRCCR = ("--set", "cycle_weight=0", "--set", "heads=2")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def trained(sources: Chain, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """Toy data with a short run of the method; read only."""
    import shutil

    root = tmp_path_factory.mktemp("inside") / "workspace"
    shutil.copytree(sources.root, root)
    chain = Chain(sources.folder, root)
    toy.ok("train", "--method", "disncl", "--epochs", "2", *toy.SMALL, workspace=root)
    toy.ok("train", "--method", "nrccr", "--epochs", "1", *NRCCR, *toy.SMALL, workspace=root)
    return chain


def test_soft_targets_are_those_of_the_loss(trained: Chain) -> None:
    shown = Examples(Inputs(Workspace(trained.root)), device="cpu").internals(3).targets
    method: Any
    method, tokenizer = load_method(trained.find("run", "disncl"), CPU)
    data = dataset.read(trained.find("dataset"))
    text_of = data.captions[(data.captions["lang"] == "es") & (data.captions["k"] == 0)].set_index("item_id")["text"]
    visual, ids = read_visuals(trained.find("features"), list(items_of(data.items, "test")["item_id"]), frozenset())
    assert 2 < len(ids) <= method.config.batch_size, "all of the items are one batch"
    v_BD = embed_visuals(method, visual, CPU)
    t_BD = encode_and_embed(method, tokenizer, [text_of[item] for item in ids], CPU)
    sim_BB, c = v_BD.double() @ t_BD.double().T, method.config
    forth_BB = softmax(sim_BB.numpy() / c.tau, axis=1)
    want_BB = c.hard_share * np.eye(len(ids)) + (1 - c.hard_share) * forth_BB
    own = want_BB.diagonal()
    for each, place in zip(shown, (0, round((len(ids) - 1) / 2), len(ids) - 1), strict=True):
        (right,) = [found for found in each.results if found.correct]
        row = ids.index(right.item_id)
        assert own[row] == pytest.approx(np.sort(own)[::-1][place], rel=1e-4)
        assert text_of[right.item_id] == each.query and right.image is not None and right.image.is_file()
        got = {found.item_id: found.similarity for found in each.results}
        assert got == pytest.approx({item: want_BB[row, ids.index(item)] for item in got}, rel=1e-4)
        assert min(got.values()) >= np.sort(want_BB[row])[-len(got)] * (1 - 1e-4)
    back_BB = softmax(sim_BB.numpy().T / c.tau, axis=1)
    other_BB = c.hard_share * np.eye(len(ids)) + (1 - c.hard_share) * back_BB
    loss = -(want_BB * np.log(back_BB) + other_BB * np.log(forth_BB)).sum()
    assert soft_alignment(sim_BB, temperature=c.tau, hard_share=c.hard_share).item() == pytest.approx(loss)


def test_no_soft_targets_without_human_captions_of_the_language(tmp_path: Path) -> None:
    root, folder = tmp_path / "workspace", toy.toy()
    folder.captions = [row for row in folder.captions if row[2] == "en"]
    toy.ok("data", "import", folder.write(tmp_path / "toy"), workspace=root)
    toy.ok("translate", "--lang", "es", workspace=root)
    toy.ok("extract", *toy.ENCODER, workspace=root)
    toy.ok("train", "--method", "disncl", "--epochs", "1", *toy.SMALL, workspace=root)
    assert Examples(Inputs(Workspace(root)), device="cpu").internals(3).targets == []


def test_attention_is_what_the_teacher_reads_by(trained: Chain) -> None:
    shown = Examples(Inputs(Workspace(trained.root)), device="cpu").internals(2).attention
    method: Any
    method, tokenizer = load_method(trained.find("run", "nrccr"), CPU)
    assert len(shown) == 2
    block = method.token_encoder.block
    for each in shown:
        texts = [tokenizer.encode([" ".join(words)]) for words in (each.source, each.target)]
        rows = [method._tokens(text.select(torch.tensor([0]))) for text in texts]
        x, y = (method.token_encoder._placed(*row)[0].detach().double().numpy() for row in rows)
        q, k = (
            (part @ layer.weight.detach().double().numpy().T).reshape(len(part), block.heads, -1)
            for part, layer in ((x, block.query), (y, block.key))
        )
        logit = np.einsum("lhd,mhd->hlm", q, k) / np.sqrt(q.shape[2])
        assert each.share_LM == pytest.approx(softmax(logit, axis=2).mean(0), rel=1e-4)
        assert each.share_LM.shape == (len(each.source), len(each.target))
    with canvas.drawing():
        figure = examples.draw_attention(shown)
        assert figure is not None and examples.draw_attention(()) is None
        canvas.settle(figure)
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == list(shown[1].source)
    assert figure.axes[0].texts[1].get_text() == f"{shown[0].share_LM[0, 1]:.2f}"


def test_pictures_find_the_captions_that_are_most_similar(chain: Chain) -> None:
    shown = Examples(Inputs(Workspace(chain.root)), device="cpu").internals(3).pictures
    assert len({each.query for each in shown}) == 3
    method, tokenizer = load_method(chain.find("run", shown[0].run), CPU)
    data = dataset.read(chain.find("dataset"))
    texts = data.captions[(data.captions["lang"] == "es")].merge(items_of(data.items, "test")[["item_id"]])
    t_TD = encode_and_embed(method, tokenizer, list(texts["text"]), CPU).double().numpy()
    for each in shown:
        visual, _ = read_visuals(chain.find("features"), [each.query], frozenset())
        sim_T = t_TD @ embed_visuals(method, visual, CPU)[0].double().numpy()
        assert [f.similarity for f in each.results] == pytest.approx(np.sort(sim_T)[::-1][:5], rel=1e-4)
        assert [f.correct for f in each.results] == [f.item_id == each.query for f in each.results]
        assert each.image is not None and each.image.is_file() and all(f.gloss for f in each.results)
    with canvas.drawing():
        figure = examples.draw_pictures(shown)
    assert figure is not None and examples.draw_pictures(()) is None
    written = [text.get_text() for text in figure.axes[0].texts]
    assert written.count("\u2713") == sum(f.correct for each in shown for f in each.results)


def test_a_report_asks_for_what_it_shows(trained: Chain, chain: Chain) -> None:
    shown = Examples(Inputs(Workspace(trained.root)), device="cpu").internals(2)
    assert json.dumps(gather(Inputs(Workspace(chain.root)), inside=shown).inside.request())
    other = Examples(Inputs(Workspace(chain.root)), device="cpu").internals(2)
    assert other == ModelInternals(pictures=other.pictures) and other.pictures, (
        "no method with soft targets or attention"
    )


@pytest.mark.slow
def test_the_figures_are_on_the_page(finished: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ccr_cli.report.page import compose

    names = ("pictures", "targets", "attention")
    monkeypatch.setattr(compose, "FIGURES", tuple(k for k in compose.FIGURES if k.name in names))
    toy.ok("train", "--method", "disncl", "--epochs", "1", *toy.SMALL, workspace=finished.root)
    toy.ok("train", "--method", "nrccr", "--epochs", "1", *NRCCR, *toy.SMALL, workspace=finished.root)
    made = toy.ok("report", "--inside", "2", "--device", "cpu", workspace=finished.root).made
    assert {f"figures/{name}.svg" for name in names} <= {entry.path for entry in made.files}
    assert "Inside the models" in made.file("report.html").read_text(encoding="utf-8")
