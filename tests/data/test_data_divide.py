"""The split by chance: its shares, and which items stay together."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ccr_cli.data.divide import divided
from ccr_cli.data.near_duplicates import difference_hash, near_groups, read_hashes
from ccr_cli.errors import ArtifactError

SEPARATE = [0x0F0F << 48, 0xF0F0 << 32, 0x3C3C << 16, 0xC3C3]
"""Hashes that differ in 16 bits."""


def data(texts: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """An item for each text."""
    ids = [f"item {number}" for number in range(len(texts))]
    items = pd.DataFrame({"item_id": ids, "split": "train", "group": ids})
    return items, pd.DataFrame({"item_id": ids, "lang": "en", "text": texts})


def split(texts: Sequence[str], hashes: Sequence[int | None] | None = None, seed: int = 0) -> pd.DataFrame:
    items, captions = data(texts)
    return divided(items, captions, hashes or [None] * len(texts), seed)[0]


def test_shares_and_seed() -> None:
    texts = [f"text {number}" for number in range(1000)]
    first, again, other = split(texts), split(texts), split(texts, seed=1)
    assert first["split"].value_counts().to_dict() == {"train": 800, "val": 100, "test": 100}
    assert list(first["split"]) == list(again["split"]) != list(other["split"])
    items, captions = data(texts)
    turned, _ = divided(items[::-1], captions, [None] * 1000, 0)
    assert list(turned["split"][::-1]) == list(first["split"]), "the order of the items does not matter"


def test_the_order_of_groups_does_not_matter() -> None:
    texts = [f"text {number // 3}" for number in range(300)]
    items, captions = data(texts)
    first, _ = divided(items, captions, [None] * 300, 0)
    turned, _ = divided(items[::-1], captions[::-1], [None] * 300, 0)
    assert first["group"].nunique() == 100
    columns = ["split", "group"]
    pd.testing.assert_frame_equal(turned.sort_index()[columns], first[columns])


@pytest.mark.parametrize("number", range(3, 14))
def test_every_split_of_a_tiny_set_has_an_item(number: int) -> None:
    for texts in ([f"text {n}" for n in range(number)], ["same"] * number, ["same", *map(str, range(number - 1))]):
        found = split(texts)["split"].value_counts()
        assert len(found) == 3 and found["train"] >= found["val"] and found["train"] >= 1


def test_two_items_cannot_be_divided() -> None:
    with pytest.raises(ArtifactError, match="2 items"):
        split(["a", "b"])


def test_equal_captions_but_for_case_and_spaces_stay_together() -> None:
    texts = [text for n in range(50) for text in (f"Thing {n}", f"thing   {n} ")]
    made = split(texts)
    assert list(made["split"][::2]) == list(made["split"][1::2])
    assert list(made["group"][1::2]) == list(made["item_id"][::2])
    items, captions = data(texts)
    captions.loc[1::2, "lang"] = "de"
    apart, _ = divided(items, captions, [None] * 100, 0)
    assert apart["group"].nunique() == 100, "texts of two languages are not equal"


def test_a_frequent_caption_or_picture_does_not_hold_the_data_together() -> None:
    items, captions = data([f"text {n}" for n in range(200)])
    captions = pd.concat([captions, captions.assign(text="a product photo")])
    made, notes = divided(items, captions, [*SEPARATE * 2, *[0] * 192], 0)
    assert made["split"].value_counts().to_dict() == {"train": 160, "val": 20, "test": 20}
    assert made["group"].nunique() == 196, "the 8 pictures that are 4, and the others apart"
    assert any("200" in note and "'a product photo'" in note for note in notes)
    assert any("192" in note and "'item 10'" in note for note in notes)


def test_a_chain_of_pictures_falls_apart_into_equal_ones() -> None:
    chain = [sum(1 << bit for bit in range(n)) for n in range(40)]  # each differs from the next in one bit
    items, captions = data([f"text {n}" for n in range(80)])
    made, _ = divided(items, captions, [h for h in chain for _ in range(2)], 0)
    assert made["group"].nunique() == 40 and list(made["group"][::2]) == list(made["group"][1::2])
    texts = [f"text {n // 2}" for n in range(80)]  # captions and pictures link all in a chain
    items, captions = data(texts)
    made, notes = divided(items, captions, [None, *[n // 2 << 20 * (n // 2 % 3) for n in range(79)]], 0)
    assert made.groupby("group").size().max() <= 10 and notes


def test_near_groups_are_those_of_all_pairs() -> None:
    rng = np.random.default_rng(3)
    start = rng.integers(0, 2**64, 40, dtype=np.uint64)
    hashes = np.repeat(start, 10)
    for _ in range(4):
        hashes ^= np.where(rng.random(400) < 0.6, np.uint64(1) << rng.integers(0, 64, 400, dtype=np.uint64), 0).astype(
            np.uint64
        )
    group = np.arange(400)
    for a, b in itertools.combinations(range(400), 2):
        if int(hashes[a] ^ hashes[b]).bit_count() <= 4:
            group[group == group[b]] = group[a]
    found = near_groups(hashes)
    assert 40 < len(set(group)) < 400
    assert len(set(zip(found, group, strict=True))) == len(set(group)) == len(set(found))


def test_the_hash_compares_neighbours() -> None:
    level = np.tile(np.arange(0, 252, 28, dtype=np.uint8), (8, 1))
    assert difference_hash(Image.fromarray(level)) == 2**64 - 1
    assert difference_hash(Image.fromarray(level[:, ::-1].copy())) == 0 == difference_hash(Image.new("RGB", (50, 40)))
    level[0] = level[0, ::-1].copy()
    assert difference_hash(Image.fromarray(level)) == 2**56 - 1
    large = Image.fromarray(level).resize((90, 80), Image.Resampling.NEAREST)
    assert (difference_hash(large) ^ (2**56 - 1)).bit_count() <= 4


def test_pictures_that_cannot_be_read_have_no_hash(tmp_path: Path) -> None:
    Image.new("L", (9, 8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no picture")
    assert read_hashes(tmp_path, ["a.png", "b.png", "none.png", None, "../a.png"]) == [0, None, None, None, None]
