"""The text side of an exported model, and the files of plain layers.

There are two layouts. A transformers model whose pooled tokens go through layers that sentence-transformers has is
saved in the layout of that library. All else (n-grams, given text features, a Transformer block over tokens, a model
that no `Auto` class of transformers loads) becomes `text.json` and `text.safetensors`, which `encode.py` reads.

Shape suffixes: B texts, D dimension.
"""

import inspect
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ccr_cli.artifacts import base
from ccr_cli.data.tokens import CJK_RANGES, HFTokenizer, NgramTokenizer, Tokenizer
from ccr_cli.nets.plain import Block, Plain, Pool, Unit, described
from ccr_cli.nets.text import NgramTextEncoder, TransformerTextEncoder
from ccr_cli.stages.export import encode
from ccr_cli.transformers_loading import transformers_loading

TOWER = "tower"
_ENCODERS = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
"""Encoders of encoder-decoder models that transformers and sentence-transformers load on their own."""
_ACTIVATIONS = {nn.ReLU: "torch.nn.modules.activation.ReLU", nn.GELU: "torch.nn.modules.activation.GELU"}
_IDENTITY = "torch.nn.modules.linear.Identity"
_POOLINGS = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens", "last": "lasttoken"}
"""Names of `pooling_mode_*` in sentence-transformers."""


def write_text(plain: Plain, tokenizer: Tokenizer, folder: Path) -> bool:
    """Writes the text side into a folder; returns whether the layout is that of sentence-transformers."""
    encoder = plain.text_encoder
    tensors: dict[str, Tensor] = {}
    source: dict[str, Any]
    if isinstance(encoder, TransformerTextEncoder):
        assert isinstance(tokenizer, HFTokenizer)
        loaded = _loaded(encoder.model)
        if loaded is not None and encoder.width is None and _supported(plain.text):
            _save_tower(loaded, tokenizer, encoder, folder)
            _write_modules(encoder.token_dim, plain.text, tokenizer.max_length, folder)
            return True
        tower = encoder.model if loaded is None else loaded
        _save_tower(tower, tokenizer, encoder, folder / TOWER)
        name = f"{type(tower).__module__}.{type(tower).__qualname__}"
        source = {"kind": "tower", "folder": TOWER, "class": name, "max_tokens": tokenizer.max_length}
        if encoder.width is not None:
            source["padded_to"] = encoder.width
    elif isinstance(encoder, NgramTextEncoder):
        assert isinstance(tokenizer, NgramTokenizer)
        row = "token" if isinstance(plain.text[0], Block) else "n-gram"
        source = {**tokenizer.config(), "kind": "n-grams", "row": row, "cjk_ranges": [*map(list, CJK_RANGES)]}
        tensors["table"] = encoder.bag.weight.detach()
    else:
        source = {"kind": "features", "dim": encoder.dim}
    write_layers(folder, "text", plain, {**source, "what": _WHAT[source["kind"]]}, tensors)
    return False


_WHAT = {
    "tower": "A row a token: last_hidden_state of the model in the folder, for a text as its tokenizer gives it; "
    "with padded_to, padded to that length, and read without a mask.",
    "n-grams": "A row an n-gram, of `table`; with row 'token' a row a word, symbol or CJK character, the mean of its "
    "n-grams. The text is NFKC-normalised, case-folded and NFKC-normalised again. Letters, digits and marks are words, "
    "each between < and >, and give themselves and their n-grams of ngram_min to ngram_max characters; characters of "
    "cjk_ranges give the n-grams of up to cjk_max characters that begin there; other symbols themselves; the rest "
    "nothing. The row of an n-gram is 1 + CRC-32 of its UTF-8 bytes modulo (buckets - 1); a text of none has row 0.",
    "features": "A feature that a text came with.",
}


def write_layers(
    folder: Path, side: Literal["text", "visual"], plain: Plain, source: Mapping[str, Any], more: Mapping[str, Tensor]
) -> None:
    """Writes one side as `SIDE.json` and `SIDE.safetensors`, with `encode.py`, which applies it.

    `source` describes the input, and may name tensors in `more`.
    """
    steps, tensors = described(getattr(plain, side))
    save_file({**tensors, **more}, folder / f"{side}.safetensors", metadata={"format": "pt"})
    about = {"what": "layers that make a unit vector of the rows of the input, one layer after the other"}
    base.write_json(folder / f"{side}.json", {**about, "input": source, "layers": steps, "dim": plain.dim})
    (folder / "encode.py").write_text(inspect.getsource(encode), encoding="utf-8")


def _supported(layers: Sequence[nn.Module]) -> bool:
    """Whether sentence-transformers has modules for these layers."""
    after = [(type(one), type(two)) for one, two in pairwise(_kept(layers))]
    known = (nn.LayerNorm, nn.Linear, Unit)
    return isinstance(layers[0], Pool) and all(
        two in known or (two in _ACTIVATIONS and one is nn.Linear) for one, two in after
    )


def _kept(layers: Sequence[nn.Module]) -> list[nn.Module]:
    return [layer for layer in layers if not isinstance(layer, nn.Dropout)]


def _loaded(model: Any) -> Any:
    """The model as transformers loads it from a folder (T5 within its encoder model); None if it cannot."""
    with transformers_loading():
        import transformers

        if transformers.MODEL_MAPPING.get(type(model.config), None) is type(model):
            return model
        if model.config.model_type not in _ENCODERS:
            return None
        with torch.device("meta"):  # without allocating weights
            whole = getattr(transformers, _ENCODERS[model.config.model_type])(model.config)
    whole.encoder, whole.shared = model, model.embed_tokens
    return whole


def tokenizer_of(folder: Path) -> Any:
    """Loads the exported tokenizer."""
    from transformers import AutoTokenizer

    place = folder / TOWER
    return AutoTokenizer.from_pretrained(place if place.is_dir() else folder, local_files_only=True)


def _save_tower(model: Any, tokenizer: HFTokenizer, encoder: TransformerTextEncoder, folder: Path) -> None:
    """Saves a model and its tokenizer, whose defaults become the run's length, inputs and padding."""
    with transformers_loading():
        from transformers import AutoTokenizer

        model.save_pretrained(folder)
        own = AutoTokenizer.from_pretrained(tokenizer.name, local_files_only=True)
        own.model_max_length = tokenizer.max_length
        inputs = ["input_ids", "attention_mask"]
        own.model_input_names = own.init_kwargs["model_input_names"] = inputs  # of which the second is what is saved
        own.padding_side = "left" if encoder.pad_left else "right"
        if own.pad_token is None:
            own.pad_token = own.convert_ids_to_tokens(encoder.pad_id)
        own.save_pretrained(folder)


def _write_modules(dim: int, layers: Sequence[nn.Module], max_tokens: int, folder: Path) -> None:
    """Writes the files of sentence-transformers: pooling, dense layers, normalisation."""
    modules = [("", "Transformer")]

    def add(kind: str, config: Mapping[str, Any] | None = None, tensors: Mapping[str, Tensor] | None = None) -> None:
        modules.append((f"{len(modules)}_{kind}", kind))
        place = folder / modules[-1][0]
        if config:
            place.mkdir(exist_ok=True)
            base.write_json(place / "config.json", config)
        if tensors:
            save_file({n: t.detach() for n, t in tensors.items()}, place / "model.safetensors", {"format": "pt"})

    for layer, following in pairwise([*_kept(layers), None]):
        match layer:
            case Pool():
                modes = {f"pooling_mode_{name}": how == layer.how for how, name in _POOLINGS.items()}
                add("Pooling", {"word_embedding_dimension": dim, **modes})
            case nn.LayerNorm(normalized_shape=(width,)):
                assert layer.eps == 1e-5, "sentence-transformers has no other"
                tensors = {"norm.weight": torch.ones(width), "norm.bias": torch.zeros(width)}
                add("LayerNorm", {"dimension": width}, tensors)
            case nn.Linear():
                config = {"in_features": layer.in_features, "out_features": layer.out_features, "bias": True}
                function = _ACTIVATIONS.get(type(following), _IDENTITY)
                tensors = {f"linear.{name}": tensor for name, tensor in layer.state_dict().items()}
                add("Dense", {**config, "activation_function": function}, tensors)
            case Unit():
                add("Normalize")
    types = [(path, f"sentence_transformers.models.{kind}") for path, kind in modules]
    rows = [{"idx": i, "name": str(i), "path": path, "type": type_} for i, (path, type_) in enumerate(types)]
    base.write_json(folder / "modules.json", rows)
    base.write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_tokens, "do_lower_case": False})
    about: dict[str, Any] = {"model_type": "SentenceTransformer", "prompts": {}, "default_prompt_name": None}
    base.write_json(folder / "config_sentence_transformers.json", {**about, "similarity_fn_name": "cosine"})
