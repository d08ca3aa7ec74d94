"""Every method as plain layers, read by numpy alone, finds what the method finds.

Shape suffixes: V visual items, T texts, D embedding, N rows, E text feature.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn

from ccr_cli import registry
from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import NgramTokenizer, Tokens
from ccr_cli.methods import base
from ccr_cli.nets.heads import Residual
from ccr_cli.nets.text import GivenTextEncoder, NgramTextEncoder
from ccr_cli.stages.export.encode import Encoder
from ccr_cli.stages.export.text_side import write_layers, write_text
from ccr_cli.stages.shared.options import configure

DIM, VISUAL_DIM, BUCKETS = 16, 12, 512
TEXTS = [
    "red circle",
    "un círculo rojo",
    "红色的圆 二つ",
    "",
    "?!",
    "NAÏVE  ﬁancée ☂ \U0001f415\u200d\U0001f9ba x²",
    "가나다 라",
    "\ud800 lone",
]
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in registry.names("methods")),
    ("infonce", {"hidden": 8}),
    ("infonce", {"head": "residual"}),
    ("trine", {"models": 3}),
    ("disncl", {"part_layers": 3, "part_hidden": 8}),
    ("fume", {"layers": 1}),
    ("fume", {"layers": 3, "hidden": 8}),
    ("fume", {"credibility": "evidential"}),
    ("nrccr", {"frame_block": False}),
    ("nrccr", {"heads": 1}),
    ("infonce", {"visual": "transformer"}),
    ("tcl", {"visual": "gpo"}),
    ("nrccr", {"frame_block": False, "visual": "gpo"}),
    ("fume", {"visual": "transformer", "visual_layers": 1, "visual_heads": 2}),
]


def make(name: str, text: base.TextEncoder | None = None, **options: Any) -> base.Method:
    """A small model in evaluation mode, with statistics and weights that are not those of the start.

    Its text encoder is one of n-grams, unless another one is given.
    """
    module = registry.load("methods", name)
    torch.manual_seed(0)
    text = text or NgramTextEncoder(BUCKETS, DIM)
    config: Any = configure(module.Config, {"dim": DIM, **options}, name)
    method: base.Method = module.Method(config, DIM if config.aligned else VISUAL_DIM, text)
    for part in method.modules():
        if isinstance(part, Residual):
            nn.init.normal_(part.weight)
        if isinstance(part, nn.BatchNorm1d | nn.LayerNorm) and part.weight is not None:
            nn.init.uniform_(part.weight, 0.5, 2)
            nn.init.uniform_(part.bias, -1, 1)
        if isinstance(part, nn.BatchNorm1d):
            assert part.running_mean is not None and part.running_var is not None
            nn.init.uniform_(part.running_mean, -1, 1)
            nn.init.uniform_(part.running_var, 0.5, 2)
    return method.eval()


def tokens(tokenizer: NgramTokenizer) -> Tokens:
    return tokenizer.encode(TEXTS).select(torch.arange(len(TEXTS)))


def written(method: base.Method, folder: Path) -> list[Encoder]:
    """Each of the model's dual encoders, read from a folder."""
    found = []
    for number, plain in enumerate(method.plain()):
        place = folder / str(number)
        place.mkdir()
        assert not write_text(plain, NgramTokenizer(buckets=BUCKETS), place)
        write_layers(place, "visual", plain, {}, {})
        found.append(Encoder(place))
    return found


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{'-'.join(map(str, o))}" for n, o in CASES])
def test_similarities_are_those_of_the_method(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    method = make(name, **options)
    dim = DIM if method.config.aligned else VISUAL_DIM
    rows_ND = torch.randn(9, dim, generator=torch.Generator().manual_seed(5))
    ends = [0, 1, 3, 6, 7, 9]
    with torch.no_grad():
        visual_VD = method.embed_visual(Frames(rows_ND, torch.tensor(ends)))
        wanted_VT = (visual_VD @ method.embed_text(tokens(NgramTokenizer(buckets=BUCKETS))).T).numpy()
    models = written(method, tmp_path)
    items = [rows_ND[first:last].numpy() for first, last in pairwise(ends)]
    sims = [model.encode_visual(items) @ model.encode(TEXTS).T for model in models]
    assert_allclose(np.mean(sims, axis=0), wanted_VT, atol=2e-6)
    for model in models:
        assert model.encode(TEXTS).dtype == np.float32
        assert_allclose(np.linalg.norm(model.encode(TEXTS), axis=1), np.ones(len(TEXTS)), atol=1e-6)


@pytest.mark.parametrize("name", ["infonce", "fume", "disncl"])
def test_texts_that_are_features(name: str, tmp_path: Path) -> None:
    features_TE = torch.randn(5, 7, generator=torch.Generator().manual_seed(2))
    method = make(name, GivenTextEncoder(features_TE), text_encoder="given")
    (plain,) = method.plain()
    assert not write_text(plain, NgramTokenizer(), tmp_path)
    with torch.no_grad():
        wanted_TD = method.embed_text(
            Tokens(torch.arange(5), torch.arange(6), torch.ones(5, dtype=torch.bool), torch.ones(5).long())
        )
    assert_allclose(Encoder(tmp_path).encode(features_TE.numpy()), wanted_TD.numpy(), atol=2e-6)
    assert features_TE.numpy().tobytes() not in (tmp_path / "text.safetensors").read_bytes()


def test_an_ngram_model_of_other_settings(tmp_path: Path) -> None:
    tokenizer = NgramTokenizer(buckets=64, ngram_min=2, ngram_max=4, cjk_max=3)
    method = make("infonce", NgramTextEncoder(64, DIM))
    write_text(method.plain()[0], tokenizer, tmp_path)
    with torch.no_grad():
        wanted_TD = method.embed_text(tokens(tokenizer))
    assert_allclose(Encoder(tmp_path).encode(TEXTS), wanted_TD.numpy(), atol=2e-6)


def test_every_layer_is_said_in_words(tmp_path: Path) -> None:
    written(make("nrccr"), tmp_path)
    for side in ("text", "visual"):
        about = json.loads((tmp_path / "0" / f"{side}.json").read_text(encoding="utf-8"))
        assert about["dim"] == DIM and all(step["does"] for step in about["layers"])
    layers = json.loads((tmp_path / "0" / "visual.json").read_text(encoding="utf-8"))["layers"]
    assert [step["layer"] for step in layers] == ["layer_norm", "linear", "block", "unit"]
    assert (layers[1]["in"], layers[1]["out"]) == (VISUAL_DIM, DIM)


class _Other(nn.Module):
    def forward(self, x_BD: Tensor) -> Tensor:
        return x_BD


def test_a_layer_without_words_is_refused(tmp_path: Path) -> None:
    method = make("infonce")
    method.encoder.visual_head.layers.append(_Other())
    with pytest.raises(KeyError, match="_Other"):
        write_layers(tmp_path, "visual", method.plain()[0], {}, {})


def test_a_text_is_no_list_of_texts(tmp_path: Path) -> None:
    (model,) = written(make("infonce"), tmp_path)
    with pytest.raises(TypeError, match=r"\blist\b"):
        model.encode("red circle")
