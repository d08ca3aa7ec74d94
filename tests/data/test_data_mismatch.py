"""Synthetic mismatch: exact counts, a derangement over items, what the flags say, and its statistics."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccr_cli.artifacts import noise as artifact
from ccr_cli.data.mismatch import (
    NEAREST,
    REUSE,
    STYLES,
    TARGETS,
    TARGETS_OF,
    Captions,
    Rows,
    mismatch,
    noise_style,
)
from ccr_cli.errors import UsageError

DERANGED = ("caption", "image")
"""Styles that derange what they move."""
OTHERS = [(style, target) for style in STYLES if style not in DERANGED for target in TARGETS_OF[style]]


def captions(items: int, each: int = 5) -> pd.DataFrame:
    """`items` items with `each` captions, no two of a text."""
    rows = [(f"i{i}#{k}", f"i{i}", k, f"text {i} {k}") for i in range(items) for k in range(each)]
    return pd.DataFrame(rows, columns=["caption_id", "item_id", "k", "text"])


def owner(caption: pd.Series) -> pd.Series:
    """The item of a caption id."""
    return caption.str.split("#").str[0]


@pytest.mark.parametrize("style", DERANGED)
@pytest.mark.parametrize("target", TARGETS[:2])
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


@pytest.mark.parametrize("style", DERANGED)
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
    first = mismatch(table, 0.5, style, None, 0)
    pd.testing.assert_frame_equal(first, mismatch(table, 0.5, style, None, 0))
    np.random.seed(1)
    pd.testing.assert_frame_equal(first, mismatch(table, 0.5, style, None, 0))
    second = mismatch(table, 0.5, style, None, 1)
    first_wrong, second_wrong = ((drawn["vs_wrong"] | drawn["vt_wrong"]) for drawn in (first, second))
    assert float((first_wrong & second_wrong).mean()) == pytest.approx(0.25, abs=0.1)
    assert (first_wrong & ~second_wrong).any()


@pytest.mark.parametrize("style", DERANGED)
@pytest.mark.parametrize("target", TARGETS[:2])
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


RATIOS = (0.05, 0.1, 0.2, 0.25, 0.4, 0.6, 0.75, 1.0)


def collection(items: int, captions_each: int, texts: int, seed: int) -> pd.DataFrame:
    """Items with one to so many captions, which say so many different texts."""
    dice = random.Random(seed)
    sizes = [dice.randint(1, captions_each) for _ in range(items)]
    rows = [(f"i{i}#{k}", f"i{i}", k, str(dice.randrange(texts))) for i, size in enumerate(sizes) for k in range(size)]
    return pd.DataFrame(rows, columns=["caption_id", "item_id", "k", "text"])


def roomy(table: pd.DataFrame, style: str, wanted: int) -> bool:
    """Whether so many can surely move: no place may take fewer than half of what so many places give, nor the reverse.

    (Then each set of places has as many givers as it has members.) Up to eight that all go with each other are chosen
    first, where no place clashes with more than an eighth of all.
    """
    rows = list(zip(table["item_id"], table["text"], strict=True))
    said: dict[str, set[str]] = {}
    for item, text in rows:
        said.setdefault(item, set()).add(text)
    if style == "image":
        worst = max(sum(not one.isdisjoint(other) for other in said.values()) for one in said.values())
        places = len(said)
    else:
        times, size, places_of = Counter(table["text"]), Counter(table["item_id"]), Counter[str]()
        for item, text in set(rows):
            places_of[text] += size[item]
        worst = max(*(sum(times[text] for text in texts) for texts in said.values()), *places_of.values())
        places = len(rows)
    return 2 * worst <= wanted or (wanted <= 8 and 16 * worst < places)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    table=st.builds(
        collection,
        st.sampled_from([1, 2, 3, 8, 25, 60]),
        st.sampled_from([1, 2, 5, 40]),
        st.sampled_from([1, 2, 10, 150, 10**6]),
        st.integers(0, 10**6),
    ),
    style=st.sampled_from(DERANGED),
    target=st.sampled_from(TARGETS[:2]),
    ratios=st.tuples(st.sampled_from(RATIOS), st.sampled_from(RATIOS)).map(sorted),
    seed=st.integers(0, 9),
)
def test_of_any_collection(table: pd.DataFrame, style: str, target: str, ratios: list[float], seed: int) -> None:
    said = table.groupby("item_id")["text"].agg(set)
    text_of = table.set_index("caption_id")["text"]
    slots, sure = [], []
    for ratio in ratios:
        drawn = mismatch(table, ratio, style, target, seed)
        wrong = drawn[drawn["vt_wrong"]]
        assert list(drawn["slot_id"]) == list(table["caption_id"])
        assert (owner(wrong["given_translation_of"]) != wrong["given_item_id"]).all()
        for item, given_text in zip(wrong["given_item_id"], text_of[wrong["given_translation_of"]], strict=True):
            assert given_text not in said[item], "a text that is said of the item is no mismatch"
        right = drawn[~drawn["vt_wrong"]]
        assert (right["given_translation_of"] == right["slot_id"]).all()
        assert (right["given_source_id"] == right["slot_id"]).all()
        moved, places = (
            (len(wrong), len(table)) if style == "caption" else (wrong["given_item_id"].nunique(), len(said))
        )
        wanted = int(ratio * places + 1e-9)
        assert moved <= wanted
        if wanted > 1 and roomy(table, style, wanted):
            assert moved == wanted
            sure.append(ratio)
        if style == "caption":
            assert sorted(drawn["given_translation_of"]) == sorted(table["caption_id"])
        else:
            assert set(wrong.groupby("given_item_id").size()) <= set(table.groupby("item_id").size())
            givers = owner(wrong["given_translation_of"]).groupby(wrong["given_item_id"]).nunique()
            assert (givers == 1).all()
        slots.append(set(wrong["slot_id"]))
    if sure == ratios:
        assert slots[0] <= slots[1], "what is wrong in the smaller share is wrong in the larger"


@pytest.mark.parametrize("style", DERANGED)
@pytest.mark.parametrize("each", [1, 5])
def test_shares_are_nested(style: str, each: int) -> None:
    """Down to two captions (or items), the fewest that can change places."""
    table = captions(60, each)
    places = len(table) if style == "caption" else 60
    draws = [mismatch(table, wanted / places, style, "translation", 5) for wanted in range(places + 1)]
    wrong = [set(drawn.loc[drawn["vt_wrong"], "slot_id"]) for drawn in draws]
    assert all(smaller <= larger for smaller, larger in itertools.pairwise(wrong))
    per_place = 1 if style == "caption" else each
    assert [len(each) for each in wrong] == [0, 0, *(per_place * n for n in range(2, places + 1))]


@pytest.mark.parametrize("style", DERANGED)
@pytest.mark.parametrize("target", TARGETS[:2])
def test_texts_that_many_items_share(style: str, target: str) -> None:
    """Two texts in equal halves: everything can move, but only to the other half."""
    table = captions(40, 1)
    table["text"] = ["dog", " cat "] * 20
    drawn = mismatch(table, 1.0, style, target, 0)
    assert drawn["vt_wrong"].all()
    given_text = drawn["given_translation_of"].map(table.set_index("caption_id")["text"])
    assert (given_text.to_numpy() == np.array([" cat ", "dog"] * 20)).all()
    table["text"] = "dog"
    drawn = mismatch(table, 1.0, style, target, 0)
    assert not drawn["vt_wrong"].any() and (drawn["given_translation_of"] == drawn["slot_id"]).all()
    table["text"] = ["dog"] * 30 + ["cat"] * 10
    drawn = mismatch(table, 1.0, style, target, 0)
    assert drawn["vt_wrong"].sum() == 20, "ten cats change places with ten dogs"


@pytest.mark.parametrize("style", DERANGED)
@pytest.mark.slow
def test_a_large_collection_in_which_not_all_can_move(style: str) -> None:
    """Beyond the size for which the best is computed: still never wrong about what is wrong."""
    table = captions(2000, 1)
    table["text"] = ["dog"] * 1500 + [f"text {i}" for i in range(500)]
    drawn = mismatch(table, 1.0, style, "pair", 0)
    dogs = (table["text"] == "dog").to_numpy()
    given_dog = drawn["given_translation_of"].isin(set(table.loc[dogs, "caption_id"])).to_numpy()
    wrong = drawn["vt_wrong"].to_numpy()
    assert not (dogs & given_dog & wrong).any() and 500 < wrong.sum() <= 1000
    assert sorted(drawn["given_translation_of"]) == sorted(drawn["slot_id"])


def test_an_unknown_style_names_the_known_ones() -> None:
    for style, target, value in (("word", "pair", "word"), ("image", "picture", "picture")):
        with pytest.raises(UsageError) as caught:
            mismatch(captions(8), 0.4, style, target, 0)
        assert repr(value) in caught.value.message
        assert caught.value.hint and all(name in caught.value.hint for name in (STYLES if value == "word" else TARGETS))


@pytest.mark.parametrize(
    ("style", "target"), [("mixed", "translation"), ("words", "pair"), ("caption", "any"), ("instance", "any")]
)
def test_a_style_moves_only_what_it_can(style: str, target: str) -> None:
    with pytest.raises(UsageError) as caught:
        mismatch(captions(8), 0.4, style, target, 0)
    assert style in caught.value.message and target in caught.value.message
    assert caught.value.hint and all(known in caught.value.hint for known in TARGETS_OF[style])
    pd.testing.assert_frame_equal(
        mismatch(captions(8), 0.4, style, None, 0), mismatch(captions(8), 0.4, style, TARGETS_OF[style][0], 0)
    )


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    table=st.builds(
        collection,
        st.sampled_from([1, 2, 3, 8, 25]),
        st.sampled_from([1, 2, 5, 40]),
        st.sampled_from([1, 2, 10, 150, 10**6]),
        st.integers(0, 10**6),
    ),
    kind=st.sampled_from(OTHERS),
    ratios=st.tuples(st.sampled_from(RATIOS), st.sampled_from(RATIOS)).map(sorted),
    seed=st.integers(0, 9),
)
def test_the_other_styles_of_any_collection(
    table: pd.DataFrame, kind: tuple[str, str], ratios: list[float], seed: int
) -> None:
    """The flags are those of the owners of V, S and T; what is wrong is of another item that does not say it too."""
    said = table.groupby("item_id")["text"].agg(set)
    text_of = table.set_index("caption_id")["text"]
    slots = []
    for ratio in ratios:
        drawn = mismatch(table, ratio, *kind, seed)
        assert list(drawn["slot_id"]) == list(table["caption_id"])
        translated = drawn["given_translation_of"]
        if kind[0] == "words":
            assert (translated == drawn["slot_id"]).all()
            translated = drawn["words_of"].fillna(drawn["slot_id"])
            assert (drawn["words_of"].notna() == drawn["vt_wrong"]).all()
        v, s, t = drawn["given_item_id"], owner(drawn["given_source_id"]), owner(translated)
        assert (drawn["vs_wrong"] == (v != s)).all()
        assert (drawn["vt_wrong"] == (v != t)).all()
        assert (drawn["st_wrong"] == (s != t)).all()
        for flag, captions_N in (("vs_wrong", drawn["given_source_id"]), ("vt_wrong", translated)):
            for item, caption in zip(v[drawn[flag]], captions_N[drawn[flag]], strict=True):
                assert text_of[caption] not in said[item], "a text that is said of the item is no mismatch"
        assert (text_of[drawn["given_source_id"]].to_numpy() != text_of[translated].to_numpy())[drawn["st_wrong"]].all()
        wrong = drawn["vs_wrong"] | drawn["vt_wrong"] | drawn["st_wrong"]
        assert wrong.sum() <= int(ratio * len(table) + 1e-9)
        if kind[0] in ("mixed", "near"):
            for column in ("given_source_id", "given_translation_of"):
                assert sorted(drawn[column]) == sorted(table["caption_id"])
            assert Counter(v) == Counter(table["item_id"]), "every picture as often as before"
        slots.append(set(drawn.loc[wrong, "slot_id"]))
    if kind[0] in ("mixed", "near") or len(slots[1]) == int(
        ratios[1] * len(table) + 1e-9
    ):  # all that were chosen moved
        assert slots[0] <= slots[1], "what is wrong in the smaller share is wrong in the larger"


@pytest.mark.parametrize(("style", "target"), OTHERS)
@pytest.mark.parametrize("ratio", [0.1, 0.2, 0.4, 0.6])
def test_the_other_styles_reach_their_ratio(style: str, target: str, ratio: float) -> None:
    drawn = mismatch(captions(200), ratio, style, target, 3)
    assert (drawn["vs_wrong"] | drawn["vt_wrong"]).sum() == int(1000 * ratio)


@pytest.mark.parametrize("style", ["mixed", "near"])
def test_any_moves_a_third_each_of_translations_pictures_and_captions(style: str) -> None:
    drawn = mismatch(captions(300), 0.4, style, "any", 0)
    moved = Counter(zip(drawn["vs_wrong"], drawn["vt_wrong"], drawn["st_wrong"], strict=True))
    kinds = {(False, True, True), (True, True, False), (True, False, True)}
    assert moved.keys() == kinds | {(False, False, False)}
    assert all(moved[kind] == 200 for kind in kinds)


def test_instance_puts_few_captions_in_many_places() -> None:
    drawn = mismatch(captions(1000), 0.4, "instance", "translation", 0)
    times = drawn.loc[drawn["vt_wrong"], "given_translation_of"].value_counts()
    assert len(times) <= 2000 / REUSE + 2 and times.iloc[: 2000 // REUSE].min() > REUSE / 2
    assert drawn["st_wrong"].sum() == 2000


def nearest(table: pd.DataFrame) -> list[list[str]]:
    """For every caption the captions of other items by cosine of TF-IDF (smoothed, as scikit-learn's), in float64."""
    texts = [text.split() for text in table["text"]]
    words = sorted({word for text in texts for word in text})
    count_NW = np.array([[text.count(word) for word in words] for text in texts], dtype=np.float64)
    tfidf_NW = count_NW * (1 + np.log((1 + len(texts)) / (1 + (count_NW > 0).sum(axis=0))))
    tfidf_NW /= np.linalg.norm(tfidf_NW, axis=1, keepdims=True)
    sim_NN, items = tfidf_NW @ tfidf_NW.T, table["item_id"].to_numpy()
    sim_NN[items[:, None] == items[None, :]] = -1
    order_NN = np.argsort(-sim_NN, axis=1)
    least_N = np.take_along_axis(sim_NN, order_NN[:, NEAREST - 1 : NEAREST], axis=1) - 1e-6
    return [table["caption_id"][sim_N >= least].tolist() for sim_N, least in zip(sim_NN, least_N, strict=True)]


def test_near_exchanges_with_one_of_the_ten_nearest_captions() -> None:
    dice = random.Random(0)
    table = captions(80, 2)
    vocabulary = [f"word{i}" for i in range(40)]
    table["text"] = [" ".join([f"own{i}", *dice.choices(vocabulary, k=8)]) for i in range(len(table))]
    drawn, near = mismatch(table, 0.5, "near", "translation", 0), nearest(table)
    row = {caption: number for number, caption in enumerate(table["caption_id"])}
    wrong = drawn[drawn["vt_wrong"]]
    assert len(wrong) == 80
    ranks = []
    for slot, given_caption in zip(wrong["slot_id"], wrong["given_translation_of"], strict=True):
        assert given_caption in near[row[slot]] or slot in near[row[given_caption]]
        ranks.append(given_caption in near[row[slot]])
    assert 0.5 <= np.mean(ranks) < 1, "one of the two chose the other"


def test_a_new_style_is_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccr_cli.data.mismatch.STYLES", dict(STYLES))

    @noise_style("shift")
    def shift(captions: Captions, ratio: float, rng: np.random.Generator) -> Rows:
        return np.roll(np.arange(len(captions.items)), 5)

    drawn = mismatch(captions(8), 0.4, "shift", "translation", 0)
    assert drawn["vt_wrong"].all() and list(drawn["given_translation_of"][5:7]) == ["i0#0", "i0#1"]


@pytest.mark.parametrize("name", ["half-words", "-", ""])
def test_a_style_with_a_name_that_signatures_cannot_hold_is_refused(name: str) -> None:
    before = dict(STYLES)
    with pytest.raises(ValueError, match=f"^{name!r} "):
        noise_style(name)
    assert before == STYLES
