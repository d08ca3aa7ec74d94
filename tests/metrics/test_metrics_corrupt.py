"""What corruption does to texts and features, by counting."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from ccr_cli.artifacts.evaluation import TEXT_CORRUPTIONS
from ccr_cli.metrics.corruption import corrupt_texts, mask_features, mix_words

ENGLISH = [" ".join(f"w{n}-{k}" for k in range(n)) for n in range(1, 40)]


def test_a_share_of_the_words_is_dropped_and_never_all() -> None:
    made = corrupt_texts(ENGLISH, 0.3, "drop", "en")
    for before, after in zip(ENGLISH, made, strict=True):
        words, left = before.split(), after.split()
        assert left and left == [word for word in words if word in left]
        assert abs(len(words) - len(left) - 0.3 * len(words)) < 1
    assert all(len(text.split()) == 1 for text in corrupt_texts(ENGLISH, 1.0, "drop", "en"))


def test_the_share_is_right_on_average_where_no_number_of_words_is() -> None:
    texts = ["one two three"] * 2000
    left = [len(text.split()) for text in corrupt_texts(texts, 0.5, "drop", "en")]
    assert set(left) == {1, 2} and abs(np.mean(left) - 1.5) < 0.05


def test_words_are_replaced_by_words_of_all_texts() -> None:
    known = {word for text in ENGLISH for word in text.split()}
    made = corrupt_texts(ENGLISH, 0.5, "replace", "en")
    changed = [
        np.mean([a != b for a, b in zip(x.split(), y.split(), strict=True)]) for x, y in zip(ENGLISH, made, strict=True)
    ]
    assert {word for text in made for word in text.split()} <= known and 0.4 < np.mean(changed[5:]) < 0.55


def test_shuffled_words_are_the_same_words() -> None:
    made = corrupt_texts(ENGLISH, 0.6, "shuffle", "en")
    assert all(Counter(a.split()) == Counter(b.split()) for a, b in zip(ENGLISH, made, strict=True))
    assert sum(a != b for a, b in zip(ENGLISH, made, strict=True)) > 30


@pytest.mark.parametrize("how", TEXT_CORRUPTIONS)
def test_characters_where_there_are_no_spaces_and_the_seed_decides(how: str) -> None:
    texts = ["一只狗在雪地里跑", "两个人 在海边走路"]
    made = corrupt_texts(texts, 0.5, how, "zh", seed=1)
    assert made == corrupt_texts(texts, 0.5, how, "zh", seed=1) != corrupt_texts(texts, 0.5, how, "zh", seed=2)
    assert [len(text) for text in made] == ([4, 4] if how == "drop" else [8, 8])
    assert corrupt_texts(texts, 0.0, how, "zh") == ["".join(text.split()) for text in texts]


def test_features_are_masked() -> None:
    rows = torch.ones(200, 50)
    made = mask_features(rows, 0.3)
    assert set(made.flatten().tolist()) == {0.0, 1.0} and abs(float((made == 0).float().mean()) - 0.3) < 0.02
    assert torch.equal(made, mask_features(rows, 0.3)) and torch.equal(mask_features(rows, 0.0), rows)


def test_half_of_the_content_words_are_replaced_preceded_or_dropped() -> None:
    own = " ".join(f"word{n}" for n in range(10)) + " in a ."
    other = " ".join(f"other{n}" for n in range(10)) + " of it"
    kinds: Counter[str] = Counter()
    for seed in range(300):
        made = mix_words(own, other, "en", seed).split()
        assert made == mix_words(own, other, "en", seed).split()
        assert made[-3:] == ["in", "a", "."], "short words stay"
        kept = [word for word in made if word in own.split()]
        assert kept == [word for word in own.split() if word in kept], "in their order"
        fresh = [word for word in made if word not in kept]
        assert fresh and set(fresh) <= set(other.split()) - {"of", "it"}
        gone = 13 - len(kept)
        kinds.update(gone=gone, fresh=len(fresh))
        assert 1 <= gone <= 5 and 1 <= len(fresh) <= 5
    # one of five is replaced, of the other four a third each is replaced, preceded and dropped
    assert kinds["gone"] / 300 == pytest.approx(1 + 4 * 2 / 3, abs=0.2)
    assert kinds["fresh"] / 300 == pytest.approx(1 + 4 * 2 / 3, abs=0.2)


@pytest.mark.parametrize("seed", range(5))
def test_mixed_words_without_spaces_and_at_the_edges(seed: int) -> None:
    made = mix_words("一只狗在雪地里跑", "两个人骑自行车", "zh", seed)
    assert made != "一只狗在雪地里跑" and " " not in made and set(made) <= set("一只狗在雪地里跑两个人骑自行车")
    assert mix_words("dog", "cat", "en", seed) == "cat", "a lone word is replaced, whatever its length"
    assert mix_words("dog", "Dog", "en", seed) == "dog", "nothing to put in, and dropping would leave nothing"
    assert mix_words("big dog", "dog", "en", seed) in ("big", "dog")
    assert mix_words("", "dog", "en", seed) == "" and mix_words("dog", "", "en", seed) == "dog"
