"""Margins of sentence vectors, against loops in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ccr_cli.metrics import margin


def by_hand(a: np.ndarray, b: np.ndarray, item: np.ndarray, text: np.ndarray, k: int) -> list[float]:
    out = []
    for i, row in enumerate(a):
        near = [float(row @ b[j]) for j in range(len(b)) if j == i or (item[j] != item[i] and text[j] != text[i])]
        out.append(float(np.mean(sorted(near)[-k:])))
    return out


def test_margins_of_angles() -> None:
    s, t = (torch.tensor(np.radians(x)) for x in ([0.0, 60.0, 20.0], [10.0, 50.0, 90.0]))
    s_ND, t_ND = (torch.stack([x.cos(), x.sin()], dim=1) for x in (s, t))
    rows = torch.arange(3)
    of_s, of_t = margin.crowding(s_ND, t_ND, rows, rows, k=2), margin.crowding(t_ND, s_ND, rows, rows, k=2)
    cosine = (s_ND * t_ND).sum(dim=1).numpy()
    assert margin.margins(cosine, of_s, of_t) == pytest.approx([1.095079, 1.064178, 0.447249], abs=1e-6)
    assert margin.margins(cosine, of_s * 0, of_t * 0) == pytest.approx(cosine)


@pytest.mark.parametrize("k", [1, 3, 50])
def test_items_and_equal_texts_are_no_neighbours(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(margin, "_BLOCK", 7)
    rng = np.random.default_rng(0)
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in rng.normal(size=(2, 40, 5)))
    item, text = rng.integers(0, 12, 40), rng.integers(0, 15, 40)
    a_ND, b_ND, item_N, text_N = (torch.from_numpy(x) for x in (a, b, item, text))
    got = margin.crowding(a_ND, b_ND, item_N, text_N, k=k)
    assert got == pytest.approx(by_hand(a, b, item, text, k), rel=1e-12)
