"""Dual encoders of every family with a few thousand random weights, each with a tokenizer and a processor of its kind.

The tokenizers know the words of the toy data set in English; Spanish ones are unknown to all but those of bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import toy
import transformers as t
from tokenizers import pre_tokenizers

LONGEST = 16
"""Positions of the text sides."""
SIDE = 32
"""Pixels of a picture."""
DIM = 16
_LAYERS: dict[str, Any] = {
    "hidden_size": DIM, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
}  # fmt: skip
_PICTURE: dict[str, Any] = {**_LAYERS, "image_size": SIDE, "patch_size": 8}
_WORDS = ["a", "picture", "of", "one", "that", "is", *toy.COLOURS, *toy.SHAPES]
_CROPPED: dict[str, Any] = {"size": {"shortest_edge": SIDE + 4}, "crop_size": {"height": SIDE, "width": SIDE}}


def _text(tokenizer: Any, **more: Any) -> dict[str, Any]:
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    known = {name: number for name, number in ids.items() if number is not None}
    return {**_LAYERS, "vocab_size": len(tokenizer), "max_position_embeddings": LONGEST, **known, **more}


def _bytes(folder: Path) -> Any:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    return t.CLIPTokenizer(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[], model_max_length=LONGEST)


def _unigram(folder: Path) -> Any:
    pieces = [(f"▁{word}", -2.0) for word in _WORDS] + [(letter, -9.0) for letter in "abcdefghijklmnopqrstuvwxyz"]
    vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *pieces, ("<mask>", 0.0)]
    return t.XLMRobertaTokenizer(vocab=vocab, model_max_length=LONGEST)


def _wordpiece(folder: Path) -> Any:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS]
    return t.BertTokenizer(vocab={piece: i for i, piece in enumerate(pieces)})


def _spm(folder: Path) -> Any:
    texts = folder / "texts"
    texts.write_text("\n".join(text for *_, text, _ in toy.toy().captions), encoding="utf-8")
    about: dict[str, Any] = {"vocab_size": 90, "hard_vocab_limit": False, "bos_id": -1, "eos_id": 1, "unk_id": 2}
    sentencepiece.SentencePieceTrainer.train(
        input=str(texts), model_prefix=str(folder / "spiece"), pad_id=0, minloglevel=2, num_threads=1, **about
    )
    return t.SiglipTokenizer(str(folder / "spiece.model"), model_max_length=LONGEST)


def _gemma(folder: Path) -> Any:
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces = [*special, "▁", *"abcdefghijklmnopqrstuvwxyz"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    return t.Siglip2Tokenizer(vocab=vocab, merges=[], model_max_length=LONGEST)  # pads on the left


def _clip_like(kind: str) -> Callable[[Any], Any]:
    def build(tokenizer: Any) -> Any:
        quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "project_dim": DIM}
        text = _text(tokenizer, **({} if kind in ("CLIP", "MetaClip2") else quiet))
        if kind == "AltCLIP":  # positions behind the number of the padding
            text["max_position_embeddings"] += tokenizer.pad_token_id + 1
        config = getattr(t, f"{kind}Config")(text_config=text, vision_config=_PICTURE, projection_dim=DIM)
        return getattr(t, f"{kind}Model")(config)

    return build


def _siglip(tokenizer: Any) -> Any:
    return t.SiglipModel(t.SiglipConfig(text_config=_text(tokenizer, projection_size=DIM), vision_config=_PICTURE))


def _cropping(kind: str) -> Callable[[], Any]:
    return lambda: getattr(t, f"{kind}ImageProcessorPil")(**_CROPPED)


def _squashing() -> Any:
    return t.SiglipImageProcessorPil(size={"height": SIDE, "width": SIDE})


FAMILIES: dict[str, tuple[Callable[[Path], Any], Callable[[Any], Any], Callable[[], Any]]] = {
    "clip": (_bytes, _clip_like("CLIP"), _cropping("CLIP")),
    "metaclip-2": (_unigram, _clip_like("MetaClip2"), _cropping("CLIP")),
    "altclip": (_unigram, _clip_like("AltCLIP"), _cropping("CLIP")),
    "chinese-clip": (_wordpiece, _clip_like("ChineseCLIP"), _cropping("ChineseCLIP")),
    "siglip": (_spm, _siglip, _squashing),
    "siglip-2": (_gemma, _siglip, _squashing),
}
"""Tokenizer, model and processor of each; a SigLIP 2 of a fixed size is a SigLIP with another tokenizer."""


def save(family: str, folder: Path, seed: int = 0) -> Path:
    """Saves a model of a family, with tokenizer and processor."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer, model, processor = FAMILIES[family]
    own = tokenizer(folder)
    torch.manual_seed(seed)
    made = model(own)
    for weight in made.parameters():  # what is 0 or 1 at the start would hide that it is left out
        torch.nn.init.normal_(weight, std=0.02 + 0.3 * (weight.ndim > 1))
    made.save_pretrained(folder)
    own.save_pretrained(folder)
    processor().save_pretrained(folder)
    return folder
