"""Tokenizers and token tables: features, stability, gathering, saving."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path

import pytest
import torch

from ccr_cli.data.tokens import EMPTY_BUCKET, HFTokenizer, NgramTokenizer, Tokens, load_tokenizer
from ccr_cli.errors import ArtifactError, UnavailableError


def test_a_word_gives_itself_and_its_ngrams() -> None:
    assert NgramTokenizer(ngram_max=5).features("Cats") == [
        "<cats>",
        *("<ca", "cat", "ats", "ts>"),
        *("<cat", "cats", "ats>"),
        *("<cats", "cats>"),
    ]


def test_a_short_word_is_not_counted_twice() -> None:
    assert NgramTokenizer().features("a") == ["<a>"]


def test_a_cjk_run_gives_one_to_three_characters() -> None:
    assert NgramTokenizer().features("小狗\uff0c跑。") == ["小", "小狗", "狗", "跑"]
    assert NgramTokenizer(cjk_max=3).features("한국어") == ["한", "한국", "한국어", "국", "국어", "어"]
    assert NgramTokenizer().features("ラーメン")[::2] == ["ラ", "ー", "メ", "ン"]


def test_scripts_meet_in_one_text() -> None:
    features = NgramTokenizer(ngram_max=2).features("red狗 2")
    assert features == ["<red>", "狗", "<2>"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("STRASSE", "straße"),
        ("\ufb01sh", "fish"),
        ("cafe\u0301", "caf\u00e9"),
        ("\uff76\uff9e", "\u30ac"),
        ("a, b!", "a b"),
        ("a\u200bb", "a b"),
    ],
)
def test_forms_that_look_alike_are_one(one: str, other: str) -> None:
    tokenizer = NgramTokenizer()
    assert tokenizer.features(one) == tokenizer.features(other)


def test_combining_marks_do_not_split_a_word() -> None:
    assert NgramTokenizer(ngram_max=2).features("हिन्दी") == ["<हिन्दी>"]


def test_a_symbol_is_a_feature_and_punctuation_is_not() -> None:
    assert NgramTokenizer().features("☕ … !?") == ["☕"]


@pytest.mark.parametrize("text", ["", "   ", "...", "\x00\x1b\t", "\u3000、。"])
def test_a_text_with_nothing_gives_the_reserved_bucket(text: str) -> None:
    assert NgramTokenizer(64).encode([text]).ids_N.tolist() == [EMPTY_BUCKET]


def test_no_feature_falls_into_the_reserved_bucket() -> None:
    table = NgramTokenizer(3).encode([f"word{i} 狗{i}" for i in range(200)])
    assert set(table.ids_N.tolist()) == {1, 2}


def test_any_character_can_be_encoded() -> None:
    tokenizer = NgramTokenizer(256)
    texts = ["".join(chr(code) for code in range(start, start + 64)) for start in range(0, 0x11000, 64)]
    assert len(tokenizer.encode([*texts, "\ud800"])) == len(texts) + 1


def test_ids_do_not_change_between_versions() -> None:
    # the CRC-32 of "<a>" and of the three UTF-8 bytes of the character
    table = NgramTokenizer(1 << 16).encode(["a", "狗"])
    assert table.ids_N.tolist() == [1 + 0x6FB782AB % 65535, 1 + 0xE5F05850 % 65535]


def test_encode_keeps_rows_in_order_with_repeated_texts() -> None:
    tokenizer = NgramTokenizer(1 << 12)
    texts = ["a dog", "两只狗", "a dog", "", "a dog runs", "两只狗"]
    table = tokenizer.encode(texts)
    assert len(table) == len(texts)
    for i, text in enumerate(texts):
        row = table.ids_N[table.offsets_B1[i] : table.offsets_B1[i + 1]].tolist()
        assert row == NgramTokenizer(1 << 12).encode([text]).ids_N.tolist()


def test_no_texts_give_an_empty_table() -> None:
    assert len(NgramTokenizer().encode([])) == 0


def test_select_gathers_like_a_loop() -> None:
    draw = random.Random(3)
    lists = [[draw.randrange(1000) for _ in range(draw.randrange(1, 9))] for _ in range(50)]
    table = Tokens.from_lists([[i] for i in ids] for ids in lists)
    rows = [draw.randrange(50) for _ in range(30)]
    tokens = table.select(torch.tensor(rows))
    assert tokens.ids_N.dtype == torch.int64 and len(tokens) == 30
    assert tokens.ids_N.tolist() == [i for row in rows for i in lists[row]]
    assert tokens.offsets_B1.diff().tolist() == [len(lists[row]) for row in rows]
    assert len(table.select(torch.tensor([], dtype=torch.int64))) == 0


def test_tokens_are_words_symbols_and_characters_of_cjk() -> None:
    table = NgramTokenizer(1 << 12).encode(["two dogs ☕", "两只狗", "?"])
    counts = [int(table.starts_N[table.offsets_B1[i] : table.offsets_B1[i + 1]].sum()) for i in range(3)]
    assert counts == [3, 3, 1]
    first = table.select(torch.tensor([1, 0]))
    assert first.starts_N.nonzero().flatten().tolist()[:4] == [0, 2, 4, 5]  # a character and its pair, twice; the last
    joined = first.join(table.select(torch.tensor([2])))
    assert int(joined.starts_N.sum()) == 7 and joined.starts_N[-1]


def test_tokens_move_to_a_device() -> None:
    tokens = Tokens.from_lists([[[1], [2]], [[3]]]).select(torch.tensor([1, 0])).to("cpu")
    assert tokens.ids_N.tolist() == [3, 1, 2]


def test_ngram_tokenizer_survives_saving(tmp_path: Path) -> None:
    tokenizer = NgramTokenizer(512, ngram_min=2, ngram_max=4, cjk_max=2)
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert again.config() == tokenizer.config() and again.vocab_size == 512
    assert torch.equal(again.encode(["two dogs 狗狗"]).ids_N, tokenizer.encode(["two dogs 狗狗"]).ids_N)


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "[]",
        "{}",
        '{"kind": "ngram", "buckets": "x"}',
        '{"kind": "ngram", "sizes": 1}',
        '{"kind": "new"}',
    ],
)
def test_an_unreadable_tokenizer_is_an_artifact_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "ccr_tokenizer.json").write_text(content)
    with pytest.raises(ArtifactError, match=re.escape(str(tmp_path))):
        load_tokenizer(tmp_path)


def test_an_absent_model_is_refused_quickly() -> None:
    start = time.monotonic()
    with pytest.raises(UnavailableError) as caught:
        HFTokenizer("nobody/no-such-model")
    assert "nobody/no-such-model" in caught.value.message and "nobody/no-such-model" in str(caught.value.hint)
    assert time.monotonic() - start < 20  # imports of transformers included


def _tiny_bert_tokenizer(folder: Path) -> Path:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "runs", "狗", "##s"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    return folder


def test_hf_tokenizer_gives_unpadded_ids_and_survives_saving(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    tokenizer = HFTokenizer(_tiny_bert_tokenizer(source), max_length=4)
    table = tokenizer.encode(["a dog", "狗", "a dog", "a dog runs a dog", ""])
    assert table.offsets_B1.diff().tolist() == [4, 3, 4, 4, 2]
    assert table.ids_N[:7].tolist() == [2, 5, 6, 3, 2, 8, 3]
    assert tokenizer.vocab_size == 10
    assert [tokenizer.knows(text) for text in ("cats a", "狗", "cats", "!", "")] == [True, True, False, False, False]
    tokenizer.save(target)
    again = load_tokenizer(target)
    assert isinstance(again, HFTokenizer) and again.max_length == 4
    assert torch.equal(again.encode(["dogs a"]).ids_N, tokenizer.encode(["dogs a"]).ids_N)
