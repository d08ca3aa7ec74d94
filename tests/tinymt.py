"""Tiny translation models of every family, made and trained here in a second or two; nothing comes from a network.

They translate captions of a small grammar word by word. Trained on a part of it, they are sure of some captions and
unsure of others, end their sentences themselves, and look at every word of the source.
"""

from __future__ import annotations

import io
import itertools
import json
import random
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

_WORDS = {
    "a": "ein", "two": "zwei", "black": "schwarz", "white": "weiss", "dog": "hund", "cat": "katze", "child": "kind",
    "runs": "rennt", "sleeps": "ruht", "in": "im", "snow": "schnee", "grass": "gras", "near": "beim", "water": "wasser",
}  # fmt: skip
CAPTIONS = [
    " ".join(word for word in words if word) + "."
    for words in itertools.product(
        ("a", "two"), ("", "black", "white", "black white"), ("dog", "cat", "child"), ("runs", "sleeps"),
        ("", "in snow", "in grass near water"),
    )
]  # fmt: skip
"""144 captions of four to ten tokens."""
SIZE: dict[str, Any] = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "init_std": 0.1, "dropout": 0.0,
}  # fmt: skip
_STEPS = 80


def german(caption: str) -> str:
    """What the models learn."""
    return " ".join(_WORDS[word] for word in caption.rstrip(".").split()) + "."


def sentencepiece_model(symbols: Sequence[str] = ()) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*CAPTIONS, *map(german, CAPTIONS)]), model_writer=model, pad_id=3,
        vocab_size=70 + len(symbols), minloglevel=2, hard_vocab_limit=False, user_defined_symbols=list(symbols),
    )  # fmt: skip
    return model.getvalue()


def pieces(model: bytes) -> list[str]:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def _spm(folder: Path) -> tuple[str, list[str]]:
    folder.mkdir(parents=True, exist_ok=True)
    model = sentencepiece_model()
    (folder / "x.spm").write_bytes(model)
    return str(folder / "x.spm"), [p for p in pieces(model) if p not in ("<s>", "</s>", "<unk>", "<pad>")]


def marian(folder: Path, languages: Sequence[str] = (), **config: Any) -> Path:
    """As OPUS-MT: padding is the last token, begins a translation, and is never said."""
    spm, words = _spm(folder / "parts")
    vocabulary = ["</s>", "<unk>", *words, *languages, "<pad>"]
    (folder / "parts" / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(vocabulary)}))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
        tokenizer = transformers.MarianTokenizer(
            spm, spm, str(folder / "parts" / "vocab.json"), source_lang="en", target_lang="de"
        )
    last = len(vocabulary) - 1
    torch.manual_seed(0)
    architecture = transformers.MarianConfig(
        vocab_size=len(vocabulary), pad_token_id=last, eos_token_id=0, decoder_start_token_id=last,
        forced_eos_token_id=0, max_length=512, **(SIZE | config),
    )  # fmt: skip
    network = transformers.MarianMTModel(architecture)
    network.generation_config.update(bad_words_ids=[[last]], num_beams=4, renormalize_logits=True)
    return _trained(folder, network, tokenizer)


def m2m100(folder: Path) -> Path:
    """As M2M100: languages are tokens that only the tokenizer's code knows."""
    spm, words = _spm(folder / "parts")
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *words]
    (folder / "parts" / "m2m.json").write_text(json.dumps({word: i for i, word in enumerate(vocabulary)}))
    tokenizer = transformers.M2M100Tokenizer(str(folder / "parts" / "m2m.json"), spm, src_lang="en", tgt_lang="de")
    return _trained(folder, _m2m_network(len(vocabulary) + 108), tokenizer)


def nllb(folder: Path) -> Path:
    """As NLLB: language codes such as eng_Latn."""
    letters = sorted(set("".join([*CAPTIONS, *map(german, CAPTIONS)]).replace(" ", "\u2581")))
    vocabulary = {token: i for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *letters])}
    tokenizer = transformers.NllbTokenizer(vocab=vocabulary, merges=[], src_lang="eng_Latn", tgt_lang="deu_Latn")
    return _trained(folder, _m2m_network(len(tokenizer) + 2), tokenizer)


def _m2m_network(words: int) -> Any:
    torch.manual_seed(0)
    config = transformers.M2M100Config(
        vocab_size=words, pad_token_id=1, eos_token_id=2, bos_token_id=0, decoder_start_token_id=2, **SIZE
    )
    network = transformers.M2M100ForConditionalGeneration(config)
    network.generation_config.update(max_length=200, num_beams=5, early_stopping=True)
    return network


def t5(folder: Path, **config: Any) -> Path:
    """As MADLAD-400: the target language is a token before the source; the output is not scaled."""
    model = sentencepiece_model(["<2de>", "<2en>"])
    tokenizer = transformers.T5Tokenizer(vocab=[(p, -float(i)) for i, p in enumerate(pieces(model))], extra_ids=0)
    config = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False} | config
    torch.manual_seed(0)
    architecture = transformers.T5Config(
        vocab_size=len(tokenizer) + 3, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, dropout_rate=0.0,
        decoder_start_token_id=tokenizer.pad_token_id, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id, **config,
    )  # fmt: skip
    return _trained(folder, transformers.T5ForConditionalGeneration(architecture), tokenizer, "<2de> ")


def _trained(folder: Path, network: Any, tokenizer: Any, prefix: str = "") -> Path:
    """Trains a model on some of the captions, and saves it."""
    known = random.Random(0).sample(CAPTIONS, 60)
    sources, targets = [prefix + text for text in known], [german(text) for text in known]
    batch = tokenizer(sources, text_target=targets, padding=True, return_tensors="pt")
    batch["labels"] = batch["labels"].masked_fill(batch["labels"] == tokenizer.pad_token_id, -100)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        network(**batch).loss.backward()
        optimizer.step()
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
