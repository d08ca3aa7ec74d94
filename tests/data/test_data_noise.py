"""Synthetic mismatch: exact counts, a derangement over items, what the flags say, and its statistics."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ccr_cli.artifacts import noise as artifact
from ccr_cli.data.noise import STYLES, TARGETS, mismatch
from ccr_cli.errors import UsageError


def captions(items: int, each: int = 5) -> pd.DataFrame:
    """`items` items with `each` captions."""
    rows = [(f"i{i}#{k}", f"i{i}", k) for i in range(items) for k in range(each)]
    return pd.DataFrame(rows, columns=["caption_id", "item_id", "k"])


def owner(caption: pd.Series) -> pd.Series:
    """The item of a caption id."""
    return caption.str.split("#").str[0]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.2, 0.4, 0.6, 0.99, 1.0])
def test_exactly_floor_are_wrong_and_none_keeps_its_own_item(style: str, target: str, ratio: float) -> None:
    table = captions(41)
    drawn = mismatch(table, ratio, style, target, seed=3)
    assert list(drawn.columns) == artifact.PAIRS.names
    assert list(drawn["slot_id"]) == list(table["caption_id"]), "a row a caption, in order"
    moved = owner(drawn["given_translation_of"]) != owner(drawn["slot_id"])
    expected = int(ratio * 205 + 1e-9) if style == "caption" else 5 * int(ratio * 41 + 1e-9)
    assert int(moved.sum()) == expected
    assert (drawn["vt_wrong"] == moved).all()
    stays = drawn[~moved]
    assert (stays["given_translation_of"] == stays["slot_id"]).all()
    assert (drawn["given_item_id"] == owner(drawn["slot_id"])).all()


@pytest.mark.parametrize("ratio", [0.1, 0.2, 0.3, 0.6, 0.7, 0.9])
@pytest.mark.parametrize("count", [10, 100, 1000, 30])
def test_floor_is_that_of_the_decimal_number(ratio: float, count: int) -> None:
    """0.7 * 10 is 6.999... in floating point; seven of ten are meant."""
    wrong = mismatch(captions(count, 1), ratio, "caption", "translation", 0)["vt_wrong"].sum()
    assert wrong == (round(ratio * count) if round(ratio * count) > 1 else 0), "one caption has nobody to swap with"


@pytest.mark.parametrize("seed", range(100))
def test_few_captions_are_wrong_even_if_drawn_from_one_item(seed: int) -> None:
    """Two captions of forty, five an item: a draw of two of one item is made again."""
    assert mismatch(captions(8), 0.05, "caption", "translation", seed)["vt_wrong"].sum() == 2


@pytest.mark.parametrize("style", STYLES)
def test_moved_captions_are_a_permutation(style: str) -> None:
    drawn = mismatch(captions(30), 0.5, style, "translation", 1)
    assert sorted(drawn["given_translation_of"]) == sorted(drawn["slot_id"])


def test_image_style_moves_all_captions_of_an_item_to_one_other() -> None:
    drawn = mismatch(captions(20), 0.5, "image", "translation", 0)
    by_item = drawn.groupby("given_item_id")
    assert set(by_item["vt_wrong"].sum()) == {0, 5}
    givers = drawn.assign(giver=owner(drawn["given_translation_of"])).groupby("given_item_id")["giver"].nunique()
    assert set(givers) == {1}


def test_flags_of_the_two_targets() -> None:
    alone = mismatch(captions(20), 0.4, "caption", "translation", 0)
    assert not alone["vs_wrong"].any()
    assert (alone["given_source_id"] == alone["slot_id"]).all()
    assert (alone["st_wrong"] == alone["vt_wrong"]).all()
    pair = mismatch(captions(20), 0.4, "caption", "pair", 0)
    assert (pair["vs_wrong"] == pair["vt_wrong"]).all()
    assert not pair["st_wrong"].any()
    assert (pair["given_source_id"] == pair["given_translation_of"]).all()


@pytest.mark.parametrize(("style", "power"), [("image", 1), ("caption", 5)])
@pytest.mark.parametrize("ratio", [0.2, 0.6])
def test_share_of_items_that_keep_a_correct_caption(style: str, power: int, ratio: float) -> None:
    """1 - r where captions move together, 1 - r**5 where five move singly: why the two are not comparable."""
    items = 4000
    drawn = mismatch(captions(items), ratio, style, "translation", 0)
    keeps = (~drawn["vt_wrong"]).groupby(drawn["given_item_id"]).any().mean()
    expected = 1 - ratio**power
    assert keeps == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / items) + 1e-9)


@pytest.mark.parametrize("style", STYLES)
def test_reproducible_and_seeds_are_independent(style: str) -> None:
    table = captions(200)
    first = mismatch(table, 0.5, style, "translation", 0)
    pd.testing.assert_frame_equal(first, mismatch(table, 0.5, style, "translation", 0))
    np.random.seed(1)
    pd.testing.assert_frame_equal(first, mismatch(table, 0.5, style, "translation", 0))
    second = mismatch(table, 0.5, style, "translation", 1)
    both = float((first["vt_wrong"] & second["vt_wrong"]).mean())
    assert both == pytest.approx(0.25, abs=0.1)
    assert (first["vt_wrong"] & ~second["vt_wrong"]).any()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("items", "wrong"), [(0, 0), (1, 0), (2, 10)])
def test_degenerate_inputs(style: str, target: str, items: int, wrong: int) -> None:
    drawn = mismatch(captions(items), 1.0, style, target, 0)
    assert len(drawn) == 5 * items
    assert int(drawn["vt_wrong"].sum()) == wrong
    assert (drawn["vt_wrong"] == (owner(drawn["given_translation_of"]) != owner(drawn["slot_id"]))).all()


@pytest.mark.parametrize("seed", range(10))
def test_one_item_with_most_captions(seed: int) -> None:
    """8 captions of one item beside 4 others: only 4 of the 8 can be given away, and the flags say so."""
    table = pd.concat([captions(1, 8), captions(5, 1).iloc[1:]], ignore_index=True)
    drawn = mismatch(table, 1.0, "caption", "translation", seed)
    moved = owner(drawn["given_translation_of"]) != owner(drawn["slot_id"])
    assert (drawn["vt_wrong"] == moved).all()
    assert int(moved.sum()) == 8
    assert sorted(drawn["given_translation_of"]) == sorted(drawn["slot_id"])


@pytest.mark.parametrize("seed", range(30))
def test_exactly_half_of_all_captions_are_of_one_item(seed: int) -> None:
    """The tightest case in which a derangement over items exists: it is found whatever the draw."""
    table = pd.concat([captions(1, 6), captions(4, 2).iloc[2:]], ignore_index=True)
    assert mismatch(table, 1.0, "caption", "translation", seed)["vt_wrong"].all()


def test_items_with_different_numbers_of_captions() -> None:
    table = pd.concat([captions(1, 1), captions(3, 7).iloc[7:]], ignore_index=True)
    drawn = mismatch(table, 1.0, "image", "pair", 0)
    assert drawn["vt_wrong"].all() and len(drawn) == len(table)


def test_bad_options() -> None:
    table = captions(3)
    for ratio, style, target in (
        (1.1, "caption", "pair"),
        (-0.1, "caption", "pair"),
        (0.5, "x", "pair"),
        (0.5, "image", "x"),
        (float("nan"), "image", "pair"),
    ):
        with pytest.raises(UsageError):
            mismatch(table, ratio, style, target, 0)
