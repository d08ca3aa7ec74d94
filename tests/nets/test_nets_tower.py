"""The visual tower: what of a network is trained, what is frozen, and what it is rebuilt from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tinyclip
import torch
import transformers as tr

from ccr_cli.data.frames import Frames
from ccr_cli.nets.dual import DualEncoder
from ccr_cli.nets.heads import Projection
from ccr_cli.nets.text import NgramTextEncoder
from ccr_cli.nets.tower import VisualTower, tower_from_config

SCALE, SHIFT, SIZE = (0.01, 0.02, 0.03), (-1.0, -0.5, 0.0), (32, 32)
MAPS: dict[str, Any] = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}


def network(family: str) -> Any:
    torch.manual_seed(0)
    if family == "clip":
        sides = {"text_config": tinyclip.TEXT, "vision_config": tinyclip.VISION}
        return tr.CLIPModel(tr.CLIPConfig(**sides, projection_dim=24))
    if family == "siglip":
        sides = {"text_config": tinyclip.TEXT | {"projection_size": 16}, "vision_config": tinyclip.VISION}
        return tr.SiglipModel(tr.SiglipConfig(**sides))
    if family == "vit":
        return tr.ViTModel(tr.ViTConfig(**tinyclip.VISION))
    return tr.ResNetModel(tr.ResNetConfig(**MAPS))


def tower(family: str, pooling: str = "pooler", frozen: int = 0) -> VisualTower:
    return VisualTower(network(family), pooling, SCALE, SHIFT, SIZE).train_from(frozen)


def levels(count: int = 5) -> torch.Tensor:
    return torch.randint(0, 256, (count, 3, *SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


CASES = [
    ("clip", "pooler", 24),
    ("siglip", "pooler", 16),
    ("vit", "cls", 16),
    ("vit", "mean", 16),
    ("vit", "tokens", 16),
    ("resnet", "pooler", 16),
]


@pytest.mark.parametrize(("family", "pooling", "dim"), CASES)
def test_what_is_trained_gets_gradient_and_nothing_else_is(family: str, pooling: str, dim: int) -> None:
    made = tower(family, pooling).train()
    assert made.dim == dim
    out = made(levels())
    assert out.shape == ((5, 16, dim) if pooling == "tokens" else (5, dim))
    out.square().sum().backward()
    for name, weight in made.named_parameters():
        assert (weight.grad is not None) == weight.requires_grad, name
    assert not any("text" in name for name, _ in made.named_parameters())
    assert sum(weight.requires_grad for weight in made.parameters()) > 5


def test_pictures_are_scaled_as_told() -> None:
    given, made = levels(), tower("vit", "cls").eval()
    factors = (torch.tensor(values).view(3, 1, 1) for values in (SCALE, SHIFT))
    scale, shift = factors
    wanted = made.model(pixel_values=given.float() * scale + shift).last_hidden_state[:, 0]
    torch.testing.assert_close(made(given), wanted)


@pytest.mark.parametrize("frozen", [1, 2])
def test_lowest_layers_are_frozen_with_what_is_before_them(frozen: int) -> None:
    made = tower("clip", frozen=frozen)
    held = {name for name, weight in made.named_parameters() if not weight.requires_grad}
    assert any("patch_embedding" in name for name in held)
    for layer in range(2):
        assert any(f"layers.{layer}." in name for name in held) == (layer < frozen)
    assert made.model.visual_projection.weight.requires_grad


@pytest.mark.parametrize(("family", "pooling"), [(family, pooling) for family, pooling, _ in CASES])
def test_rebuilt_from_json_it_is_the_same(family: str, pooling: str) -> None:
    first = tower(family, pooling, frozen=1 if family != "resnet" else 0).eval()
    again = tower_from_config(json.loads(json.dumps(first.config())))
    again = again.train_from(1 if family != "resnet" else 0).eval()
    again.load_state_dict(first.state_dict())
    assert torch.equal(first(levels()), again(levels()))
    trained = [[n for n, w in made.named_parameters() if w.requires_grad] for made in (first, again)]
    assert trained[0] == trained[1]
    assert first.config() == again.config()


def test_its_settings_hold_no_path(tmp_path: Path) -> None:
    model = tr.CLIPModel.from_pretrained(tinyclip.save(tmp_path / "mine"))
    made = VisualTower(model, "pooler", SCALE, SHIFT, SIZE)
    assert str(tmp_path) not in json.dumps(made.config())


def test_a_dual_encoder_sees_pictures_frames_and_patches() -> None:
    offsets = torch.tensor([0, 1, 4, 5])
    for pooling in ("cls", "tokens"):
        torch.manual_seed(1)
        dual = DualEncoder(Projection(16, 8), NgramTextEncoder(32, 8)).eval()
        dual.tower = tower("vit", pooling).eval()
        found = dual.embed_visual(Frames(levels(), offsets))
        seen = dual.tower(levels())
        rows = seen if pooling == "cls" else seen.mean(1)
        means = torch.stack([rows[0], rows[1:4].mean(0), rows[4]])
        torch.testing.assert_close(found, torch.nn.functional.normalize(dual.visual_head(means), dim=1))
