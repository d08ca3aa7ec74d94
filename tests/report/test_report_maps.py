"""Maps of items with their captions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ccr_cli.report.content import EmbeddingMap
from ccr_cli.report.figures import canvas, examples


def sample(items: int = 6, each: int = 5) -> EmbeddingMap:
    rng = np.random.default_rng(0)
    item = rng.normal(size=(items, 16))
    text = np.repeat(item, each, axis=0) + 0.1 * rng.normal(size=(items * each, 16))
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (item, text)]
    rows = np.repeat(np.arange(items), each)
    return EmbeddingMap("toy-uml-seed0", "es", [f"i{n}" for n in range(items)], unit[0], unit[1], rows)


def test_captions_lie_by_their_item_and_the_same_each_time() -> None:
    drawn = sample()
    points = examples.place_points(drawn)
    assert np.array_equal(points, examples.place_points(drawn)) and drawn.nearest == 1.0
    items, texts = points[:6], points[6:]
    near = np.linalg.norm(texts[:, None] - items[None], axis=2).argmin(axis=1)
    assert (near == drawn.item_T).mean() > 0.9


def test_the_share_that_is_nearest_is_counted() -> None:
    drawn = sample(2, 2)
    wrong = EmbeddingMap(**{**vars(drawn), "item_T": np.array([0, 0, 0, 1])})
    assert drawn.nearest == 1.0 and wrong.nearest == 0.75


def test_pictures_stand_for_items_where_there_are_some(tmp_path: Path) -> None:
    Image.new("RGB", (20, 40), "red").save(tmp_path / "a.png")
    options: dict[str, Any] = vars(sample()) | {"image": lambda item: tmp_path / "a.png" if item == "i2" else None}
    with canvas.drawing():
        figure = examples.draw_maps([EmbeddingMap(**options), sample()])
        assert figure is not None
        canvas.settle(figure)
        svg = canvas.to_svg(figure)
    assert svg.count("<image ") == 1
    assert [ax.get_xlabel() for ax in figure.axes] == ["100% of 30 captions are nearest to their own item"] * 2
    assert examples.draw_maps([]) is None and examples.draw_maps([sample(1, 1)]) is None
