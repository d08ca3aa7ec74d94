"""Tiny text encoders of several families, with a tokenizer that knows the words of the toy data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import toy
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    CLIPConfig,
    CLIPModel,
    PreTrainedTokenizerFast,
    SiglipConfig,
    SiglipModel,
    T5Config,
    T5Model,
    XLMRobertaConfig,
    XLMRobertaModel,
)

WORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "picture", "of", "one", "that", "is", "una", "imagen", "de", "un"),
    *toy.COLOURS,
    *toy.SHAPES,
    *toy.COLOURS.values(),
    *toy.SHAPES.values(),
]
LONGEST = 40
_SMALL: dict[str, Any] = {
    "vocab_size": len(WORDS),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
_PLACES = {"max_position_embeddings": LONGEST}
_IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
_PICTURE = {
    **{key: value for key, value in _SMALL.items() if key != "vocab_size"},
    "image_size": 8,
    "patch_size": 4,
}


def _t5() -> Any:
    size = {"vocab_size": len(WORDS), "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    return T5Model(T5Config(**size, pad_token_id=0, eos_token_id=3, decoder_start_token_id=0))


FAMILIES: dict[str, Any] = {
    "bert": lambda: BertModel(BertConfig(**_SMALL, **_PLACES)),
    "xlm-roberta": lambda: XLMRobertaModel(XLMRobertaConfig(**_SMALL, **_PLACES, pad_token_id=0)),
    "t5": _t5,
    "clip": lambda: CLIPModel(CLIPConfig(text_config={**_SMALL, **_PLACES, **_IDS}, vision_config=_PICTURE)),
    "siglip": lambda: SiglipModel(SiglipConfig(text_config={**_SMALL, **_PLACES, **_IDS}, vision_config=_PICTURE)),
}


def save(family: str, folder: Path, special: bool = True) -> Path:
    """Saves a model of a family with random weights, and its tokenizer; `special` puts [CLS] and [SEP] around texts."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    if special:
        ends = [("[CLS]", 2), ("[SEP]", 3)]
        tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    torch.manual_seed(0)
    FAMILIES[family]().save_pretrained(folder)
    return folder
