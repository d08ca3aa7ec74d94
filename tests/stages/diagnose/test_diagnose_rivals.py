"""Rivals among nearby entries, against all of them in float64."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from torch import Tensor
from torch.nn.functional import normalize
from toy import Chain

from ccr_cli.artifacts import arrays, diagnosis
from ccr_cli.losses.evidential import evidence
from ccr_cli.stages.diagnose import rivals, stage
from ccr_cli.stages.shared import embedding

ITEMS, CAPTIONS, TOPICS = 300, 3, 12


@pytest.fixture(scope="module")
def entries() -> tuple[Tensor, Tensor, Tensor]:
    """Items of some topics, captions about them, and the item of each caption."""
    draw = torch.Generator().manual_seed(1)
    topic_CD = 3 * torch.randn(TOPICS, 16, generator=draw)
    item_VD = topic_CD[torch.arange(ITEMS) % TOPICS] + torch.randn(ITEMS, 16, generator=draw)
    item_N = torch.arange(ITEMS).repeat_interleave(CAPTIONS)
    text_ND = item_VD[item_N] + torch.randn(len(item_N), 16, generator=draw)
    return normalize(item_VD, dim=1), normalize(text_ND, dim=1), item_N


def table(search: rivals.Search, queries: Tensor, gallery: Tensor, item_Q: Tensor, item_G: Tensor) -> Tensor:
    """Similarities (Q, K) to the rivals; every query is there once."""
    blocks = list(search(queries, gallery, item_Q, item_G, Path()))
    rows = torch.cat([rows_B for rows_B, _ in blocks])
    assert sorted(rows.tolist()) == list(range(len(queries)))
    most = max(near_BK.shape[1] for _, near_BK in blocks)
    near_QK = torch.full((len(queries), most), -torch.inf)
    for rows_B, near_BK in blocks:
        near_QK[rows_B, : near_BK.shape[1]] = near_BK
    return near_QK


def test_nearby_rivals_are_exact_if_all_are_near(
    entries: tuple[Tensor, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "AT_ONCE", 70)
    items, texts, item_N = entries
    for sides in ((texts, items, item_N, torch.arange(ITEMS)), (items, texts, torch.arange(ITEMS), item_N)):
        torch.testing.assert_close(table(rivals.nearby, *sides), table(rivals.exact, *sides), atol=1e-6, rtol=0)


def test_nearby_rivals_are_real_and_mostly_the_nearest(
    entries: tuple[Tensor, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    items, texts, item_N = entries
    compared: list[int] = []
    best = rivals._best

    def counted(query_BD: Tensor, gallery_GD: Tensor, *items: Tensor) -> Tensor:
        compared.append(len(query_BD) * len(gallery_GD))
        return best(query_BD, gallery_GD, *items)

    monkeypatch.setattr(rivals, "_best", counted)
    monkeypatch.setattr(rivals, "REACH", 200)
    monkeypatch.setattr(rivals, "RIVALS", 20)
    found = table(rivals.nearby, texts, items, item_N, torch.arange(ITEMS)).double().numpy()
    assert sum(compared) < 0.9 * len(texts) * ITEMS
    torch.manual_seed(5)
    again = table(rivals.nearby, texts, items, item_N, torch.arange(ITEMS)).double().numpy()
    assert np.array_equal(found, again), "nothing is drawn anew"
    sim_NV = texts.double().numpy() @ items.double().numpy().T
    sim_NV[np.arange(len(texts)), item_N] = -np.inf
    best_NK = -np.sort(-sim_NV, axis=1)[:, :20]
    assert (found <= best_NK + 1e-6).all()
    assert np.abs(found[:, :, None] - sim_NV[:, None, :]).min(axis=2).max() < 1e-6, "similarities of other items"
    assert (found >= best_NK[:, -1:] - 1e-6).mean() > 0.95


@pytest.mark.parametrize("name", rivals.SEARCHES)
def test_belief_and_uncertainty_in_float64(name: str, entries: tuple[Tensor, Tensor, Tensor]) -> None:
    """UML eq. (1), (2) over the pair and its 127 rivals; the pairs of an item share its query."""
    items, texts, item_N = entries
    own_N = (items[item_N] * texts).sum(dim=1).double().numpy()
    found = rivals.SEARCHES[name](items, texts, torch.arange(ITEMS), item_N, Path())
    value_N, belief_N, uncertainty_N = stage._opinions(found, item_N, own_N, evidence)
    sim_NT = (items.double().numpy() @ texts.double().numpy().T)[item_N]
    sim_NT[item_N[:, None] == item_N[None, :]] = -np.inf
    e_N, e_NK = (np.exp(np.tanh(sim) / 0.1) for sim in (own_N, -np.sort(-sim_NT, axis=1)[:, :127]))
    total_N = e_N + e_NK.sum(axis=1) + 128
    np.testing.assert_allclose(value_N, e_N, rtol=1e-5)
    np.testing.assert_allclose(belief_N, e_N / total_N, rtol=1e-4)
    np.testing.assert_allclose(uncertainty_N, 128 / total_N, rtol=1e-4)


def test_the_search_is_recorded_where_it_is_not_exact(finished: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    path = finished.find("run", "uml").path
    exact = finished.find("diagnosis", "uml")
    assert "rivals" not in exact.request
    monkeypatch.setattr(stage, "MOST_PAIRS", 10)
    ran = toy.ok("diagnose", path, "--device", "cpu", workspace=finished.root)
    made, pairs = ran.made, diagnosis.read_pairs(ran.made)
    assert made.request == exact.request | {"rivals": "nearby"} and made.id != exact.id
    assert "48" in ran.err and "--rivals exact" in ran.err
    known = diagnosis.read_pairs(exact)
    same = [column for column in pairs if column not in ("belief", "uncertainty")]
    assert pairs[same].equals(known[same])
    np.testing.assert_allclose(pairs[["belief", "uncertainty"]], known[["belief", "uncertainty"]], rtol=1e-4)
    again = toy.ok("diagnose", path, "--device", "cpu", "--rivals", "exact", workspace=finished.root).made
    assert again.id == exact.id
    assert toy.ccr("diagnose", path, "--rivals", "all", workspace=finished.root).code == 2
    translation = finished.find("translation").path
    assert toy.ccr("diagnose", translation, "--rivals", "nearby", workspace=finished.root).code == 2


@pytest.mark.parametrize(
    "command",
    [
        ("diagnose", "RUN", "--device", "cpu", "--rivals", "exact"),
        ("diagnose", "RUN", "--device", "cpu", "--rivals", "nearby"),
        ("train", "--method", "uml", "--noise", "0.4", "--epochs", "2", *toy.SMALL),
    ],
)
@pytest.mark.slow
def test_vectors_in_files_are_read_like_others(
    command: tuple[str, ...], finished: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [str(finished.find("run", "uml").path) if word == "RUN" else word for word in command]
    held = toy.ok(*own, "--name", "held", workspace=finished.root).made
    folders, opened = list[Path](), tempfile.TemporaryFile
    of = {"features": "features", "diagnoses": "diagnose", "runs": "train"}

    def spy(dir: Path) -> Any:
        folders.append(dir)
        return opened(dir=dir)

    monkeypatch.setattr(arrays, "LARGE", 0)
    monkeypatch.setattr(tempfile, "TemporaryFile", spy)
    mapped = toy.ok(*own, "--name", "mapped", workspace=finished.root).made
    assert {"features", command[0]} <= {of[part] for folder in folders for part in folder.parts if part in of}
    assert mapped.id == held.id
    assert sorted(f.name for f in mapped.path.iterdir()) == sorted(f.name for f in held.path.iterdir())
