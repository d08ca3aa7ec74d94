"""Vectors of texts and pictures from the files in this folder; needs only numpy and safetensors.

    from encode import Encoder

    encoder = Encoder()
    text_TD = encoder.encode(["a dog in the snow"])
    visual_D = encoder.encode_image("dog.jpg")
    visual_VD = encoder.encode_visual(features)  # one array per item: (D,), or one row per frame
    similarity_VT = visual_VD @ text_TD.T

`text.json` and `visual.json` describe the computation in words; the tensors that they name are in the `.safetensors`
files. Only a text side with a tower also needs torch and transformers.

Shape suffixes: T texts, V visual items, N rows of one of them, D dimension, H heads.
"""

import importlib.util
import json
import math
import sys
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

Array = npt.NDArray[np.float32]


class Encoder:
    """The text and visual sides of a model.

    Args:
        folder: Where its files are; by default the folder of this file.
        image_models: Folders of models in `image.json` that are neither included nor on the hub, by name.
    """

    def __init__(self, folder: str | Path | None = None, image_models: Mapping[str, str | Path] | None = None) -> None:
        self.folder = Path(__file__).parent if folder is None else Path(folder)
        self._sides: dict[str, tuple[dict[str, Any], dict[str, Array]]] = {}
        self._tower: Any = None
        self._images: Any = None
        self._image_models = image_models or {}

    def encode(self, texts: Iterable[Any]) -> Array:
        """Returns one unit vector per text (T, D); if the input of `text.json` is features, pass those."""
        if isinstance(texts, str):
            raise TypeError("pass a list of texts, not a text")
        about, tensors = self._side("text")
        source = about["input"]
        rows: Iterator[Array]
        if source["kind"] == "n-grams":
            rows = (_ngram_rows(text, source, tensors["table"]) for text in texts)
        elif source["kind"] == "tower":
            rows = self._tower_rows(texts, source)
        else:
            rows = (np.atleast_2d(feature) for feature in texts)
        return _vectors(rows, about["layers"], tensors)

    def encode_image(self, path: str | Path) -> Array:
        """Returns the unit vector of a picture (D,); only if the folder has `image.json`, which names what it needs."""
        if self._images is None:
            spec = importlib.util.spec_from_file_location("encode_image", self.folder / "encode_image.py")
            assert spec and spec.loader
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # else the folder gets a file
            try:
                spec.loader.exec_module(module)
            finally:
                sys.dont_write_bytecode = writes
            self._images = module.ImageEncoder(self.folder, self._image_models)
        vector_D: Array = self.encode_visual([self._images.features(path)])[0]
        return vector_D

    def encode_visual(self, features: Iterable[Any]) -> Array:
        """Returns one unit vector per item (V, D) from its features: one row, or one per frame."""
        about, tensors = self._side("visual")
        return _vectors((np.atleast_2d(rows) for rows in features), about["layers"], tensors)

    def _side(self, name: str) -> tuple[dict[str, Any], dict[str, Array]]:
        if name not in self._sides:
            about = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
            self._sides[name] = about, load_file(self.folder / f"{name}.safetensors")
        return self._sides[name]

    def _tower_rows(self, texts: Iterable[str], source: dict[str, Any]) -> Iterator[Array]:
        import torch
        from transformers import AutoTokenizer

        if self._tower is None:
            module, _, name = source["class"].rpartition(".")
            if not module.startswith("transformers."):
                raise ValueError(f"{module} is not part of transformers")
            model = getattr(importlib.import_module(module), name)
            folder = str(self.folder / source["folder"])
            self._tower = model.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
        model, tokenizer = self._tower
        for text in texts:
            ids = tokenizer([text], truncation=True, max_length=source["max_tokens"])["input_ids"][0]
            padding = [tokenizer.pad_token_id] * (source.get("padded_to", 0) - len(ids))
            ids = padding + ids if tokenizer.padding_side == "left" else ids + padding
            with torch.no_grad():  # without a mask, so padding is attended to
                yield model(torch.tensor([ids])).last_hidden_state[0].numpy()


def _vectors(items: Iterable[Any], layers: list[dict[str, Any]], tensors: dict[str, Array]) -> Array:
    out = []
    for rows in items:
        x_ND = np.asarray(rows, np.float32)
        for layer in layers:
            x_ND = _apply(layer, tensors, x_ND)
        out.append(x_ND[0])
    return np.stack(out)


def _apply(layer: dict[str, Any], tensors: dict[str, Array], x_ND: Array) -> Array:
    kind = layer["layer"]
    if kind == "mean":
        return _mean(x_ND)
    if kind == "max":
        return np.asarray(x_ND.max(0, keepdims=True))
    if kind in ("cls", "last"):
        return x_ND[:1] if kind == "cls" else x_ND[-1:]
    if kind == "layer_norm":
        return _layer_norm(x_ND, layer["eps"])
    if kind == "linear":
        return _linear(tensors, layer["weight"], layer["bias"], x_ND)
    if kind == "relu":
        return np.maximum(x_ND, 0)
    if kind == "leaky_relu":
        return np.where(x_ND > 0, x_ND, np.float32(layer["slope"]) * x_ND)
    if kind == "gelu":
        return _gelu(x_ND)
    if kind == "unit":
        length_N1 = np.sqrt(np.square(x_ND).sum(-1, keepdims=True))
        return np.asarray(x_ND / np.maximum(length_N1, 1e-12), np.float32)
    if kind in ("block", "frames", "gpo"):
        own = {n.removeprefix(layer["tensors"]): t for n, t in tensors.items() if n.startswith(layer["tensors"])}
        return {"block": _block, "frames": _frames, "gpo": _gpo}[kind](layer, own, x_ND)
    raise ValueError(f"unknown layer {kind!r}")


def _mean(x_ND: Array) -> Array:
    out_1D: Array = x_ND.mean(0, keepdims=True)
    return out_1D


def _linear(tensors: dict[str, Array], weight: str, bias: str, x_ND: Array) -> Array:
    out_ND: Array = x_ND @ tensors[weight].T
    if bias in tensors:
        out_ND += tensors[bias]
    return out_ND


def _layer_norm(x_ND: Array, eps: float = 1e-5) -> Array:
    centred_ND = x_ND - x_ND.mean(-1, keepdims=True)
    out_ND: Array = centred_ND / np.sqrt(np.square(centred_ND).mean(-1, keepdims=True) + np.float32(eps))
    return out_ND


def _gelu(x_ND: Array) -> Array:
    erf_ND = np.vectorize(math.erf)(x_ND / math.sqrt(2))
    return np.asarray(0.5 * x_ND * (1 + erf_ND), np.float32)


def _block(layer: dict[str, Any], tensors: dict[str, Array], x_ND: Array) -> Array:
    if len(x_ND) == 1 and layer["lone_row"] == "kept":
        return x_ND
    y_ND = _attended(tensors, "", layer["heads"], _placed(layer, x_ND))
    return _linear(tensors, "map.weight", "map.bias", _mean(y_ND))


def _frames(layer: dict[str, Any], tensors: dict[str, Array], x_ND: Array) -> Array:
    y_ND = _placed(layer, x_ND)
    for number in range(layer["layers"]):
        y_ND = _attended(tensors, f"blocks.{number}.", layer["heads"], y_ND)
    return _mean(x_ND + y_ND)


def _gpo(layer: dict[str, Any], tensors: dict[str, Array], x_ND: Array) -> Array:
    rank_NE = _positions(len(x_ND), tensors["gru.weight_ih_l0"].shape[1])
    state_NE = (_gru(tensors, "l0", rank_NE) + _gru(tensors, "l0_reverse", rank_NE[::-1])[::-1]) / 2
    score_N1 = state_NE @ tensors["linear.weight"].T / np.float32(layer["temperature"])
    share_N1 = np.exp(score_N1 - score_N1.max())
    out_1D: Array = (-np.sort(-x_ND, axis=0) * share_N1 / share_N1.sum()).sum(0, keepdims=True)
    return out_1D


def _gru(tensors: dict[str, Array], name: str, x_NE: Array) -> Array:
    """Returns the state after each row: Cho et al. (2014), with the gates as in torch."""
    state_E, out = np.zeros(tensors[f"gru.weight_hh_{name}"].shape[1], np.float32), []
    for x_E in x_NE:
        inputs = np.split(tensors[f"gru.weight_ih_{name}"] @ x_E + tensors[f"gru.bias_ih_{name}"], 3)
        states = np.split(tensors[f"gru.weight_hh_{name}"] @ state_E + tensors[f"gru.bias_hh_{name}"], 3)
        reset_E, update_E = (1 / (1 + np.exp(-inputs[i] - states[i])) for i in (0, 1))
        state_E = (1 - update_E) * np.tanh(inputs[2] + reset_E * states[2]) + update_E * state_E
        out.append(state_E)
    return np.stack(out)


def _placed(layer: dict[str, Any], x_ND: Array) -> Array:
    return _layer_norm(x_ND) + np.float32(layer["position_scale"]) * _positions(*x_ND.shape)


def _attended(tensors: dict[str, Array], prefix: str, heads: int, x_ND: Array) -> Array:
    n = len(x_ND)

    def linear(name: str, y_ND: Array) -> Array:
        return _linear(tensors, f"{prefix}{name}.weight", f"{prefix}{name}.bias", y_ND)

    def norm(name: str, y_ND: Array) -> Array:
        return _layer_norm(y_ND) * tensors[f"{prefix}{name}.weight"] + tensors[f"{prefix}{name}.bias"]

    q_HND, k_HND, v_HND = (linear(p, x_ND).reshape(n, heads, -1).swapaxes(0, 1) for p in ("query", "key", "value"))
    logit_HNN = q_HND @ k_HND.swapaxes(1, 2) / np.float32(math.sqrt(q_HND.shape[2]))
    share_HNN = np.exp(logit_HNN - logit_HNN.max(-1, keepdims=True))
    share_HNN /= share_HNN.sum(-1, keepdims=True)
    y_ND = norm("attention_norm", x_ND + linear("out", (share_HNN @ v_HND).swapaxes(0, 1).reshape(n, -1)))
    return norm("norm", y_ND + linear("feed_forward.2", _gelu(linear("feed_forward.0", y_ND))))


def _positions(n: int, dim: int) -> Array:
    rate_E = np.exp(np.arange(0, dim, 2, dtype=np.float32) * np.float32(-math.log(10000.0) / dim))
    angle_NE = np.arange(n, dtype=np.float32)[:, None] * rate_E
    return np.stack([np.sin(angle_NE), np.cos(angle_NE)], axis=2).reshape(n, -1)[:, :dim]


def _ngram_rows(text: str, source: dict[str, Any], table: Array) -> Array:
    """One row per n-gram; or one per word (symbol, character), the mean of its n-grams."""
    tokens = _ngrams(text, source)
    if source["row"] == "token":
        return np.concatenate([_mean(table[ids]) for ids in tokens])
    return table[[i for ids in tokens for i in ids]]


def _ngrams(text: str, source: dict[str, Any]) -> list[list[int]]:
    """The ids of every token: a word with its n-grams, a symbol, a CJK character with the n-grams that it starts."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    low, high, cjk = source["ngram_min"], source["ngram_max"], source["cjk_max"]
    tokens: list[list[str]] = []
    for kind, chars in groupby(folded, lambda char: _kind(char, source["cjk_ranges"])):
        run = "".join(chars)
        if kind == "symbol":
            tokens += [[char] for char in run]
        elif kind == "cjk":
            tokens += [[run[i:end] for end in range(i + 1, min(i + cjk, len(run)) + 1)] for i in range(len(run))]
        elif kind == "word":
            word = f"<{run}>"
            sizes = range(low, min(high, len(word) - 1) + 1)
            tokens.append([word, *(word[i : i + n] for n in sizes for i in range(len(word) - n + 1))])
    size = source["buckets"] - 1
    return [[1 + zlib.crc32(f.encode("utf-8", "surrogatepass")) % size for f in token] for token in tokens] or [[0]]


def _kind(char: str, cjk_ranges: list[list[int]]) -> str:
    category = unicodedata.category(char)[0]
    if category == "S":
        return "symbol"
    if category not in "LNM":
        return ""
    return "cjk" if any(low <= ord(char) <= high for low, high in cjk_ranges) else "word"
