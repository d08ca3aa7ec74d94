"""How much a collection says of the words of a text."""

from __future__ import annotations

from ccr_cli.data.tokens import word_support


def test_counts_other_items_with_the_best_known_word() -> None:
    texts = ["red cat", "Red, dog!", "blue cat", "badger", "badger, red", "…"]
    assert word_support(texts, [0, 1, 2, 3, 3, 4]).tolist() == [2, 2, 1, 0, 2, 0]


def test_pairs_of_characters_stand_for_words_where_spaces_do_not_part_them() -> None:
    assert word_support(["一只狗", "一只猫", "马"], [0, 1, 2]).tolist() == [1, 1, 0]
