"""Tiny models of every family of text encoders, with random weights."""

from __future__ import annotations

from typing import Any

import transformers as t

VOCABULARY, LONGEST = 40, 40
LAYERS: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
_TEXT: dict[str, Any] = {"vocab_size": VOCABULARY, "max_position_embeddings": LONGEST, **LAYERS}
_ENDS: dict[str, Any] = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
_PICTURE: dict[str, Any] = {**LAYERS, "image_size": 8, "patch_size": 4}
_T5: dict[str, Any] = {"vocab_size": VOCABULARY, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
_QUIET: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_DISTILLED: dict[str, Any] = {"vocab_size": VOCABULARY, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}


def _siglip2() -> Any:
    picture = {**LAYERS, "patch_size": 4, "num_patches": 4}
    return t.Siglip2Model(t.Siglip2Config(text_config={**_TEXT, **_ENDS}, vision_config=picture))


def _altclip() -> Any:
    text = {**_TEXT, **_ENDS, **_QUIET, "project_dim": 12}
    return t.AltCLIPModel(t.AltCLIPConfig(text_config=text, vision_config=_PICTURE, projection_dim=10))


def _chinese_clip() -> Any:
    config = t.ChineseCLIPConfig(text_config={**_TEXT, **_QUIET}, vision_config=_PICTURE, projection_dim=10)
    return t.ChineseCLIPModel(config)


def _clip(**more: Any) -> Any:
    return t.CLIPModel(t.CLIPConfig(text_config={**_TEXT, **_ENDS, **more}, vision_config=_PICTURE, projection_dim=10))


MODELS: dict[str, Any] = {
    "bert": lambda: t.BertModel(t.BertConfig(**_TEXT, **_QUIET)),
    "roberta": lambda: t.RobertaModel(t.RobertaConfig(**_TEXT, **_QUIET, pad_token_id=1)),
    "xlm-roberta": lambda: t.XLMRobertaModel(t.XLMRobertaConfig(**_TEXT, **_QUIET, pad_token_id=1)),
    "distilbert": lambda: t.DistilBertModel(
        t.DistilBertConfig(**_DISTILLED, max_position_embeddings=LONGEST, dropout=0.0, attention_dropout=0.0)
    ),
    "t5": lambda: t.T5Model(t.T5Config(**_T5, dropout_rate=0.0)),
    "mt5": lambda: t.MT5EncoderModel(t.MT5Config(**_T5, dropout_rate=0.0)),
    "clip": _clip,
    "clip-text": lambda: t.CLIPTextModelWithProjection(t.CLIPTextConfig(**_TEXT, **_ENDS, projection_dim=10)),
    "chinese-clip": _chinese_clip,
    "altclip": _altclip,
    "siglip": lambda: t.SiglipModel(t.SiglipConfig(text_config={**_TEXT, **_ENDS}, vision_config=_PICTURE)),
    "siglip2": _siglip2,
    "mpnet": lambda: t.MPNetModel(t.MPNetConfig(**_TEXT, **_QUIET, pad_token_id=1)),
}
PACKED = {*MODELS} - {"t5", "mt5", "mpnet"}
