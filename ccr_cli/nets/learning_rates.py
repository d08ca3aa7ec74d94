"""Which weight learns how fast: groups for the optimisers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from torch import nn

from ccr_cli.nets.lora import layers_of
from ccr_cli.nets.text_transformer import TransformerTextEncoder
from ccr_cli.nets.tower import VisualTower

Group = dict[str, Any]


class Rates(Protocol):
    """The options that are read."""

    @property
    def lr(self) -> float:
        """Peak learning rate of weights trained from scratch."""

    @property
    def encoder_lr(self) -> float:
        """Of a pretrained encoder's weights, in its highest layer."""

    @property
    def layer_decay(self) -> float:
        """Factor from a layer to the one below."""

    @property
    def table_lr(self) -> float:
        """Of weights with sparse gradients."""

    @property
    def weight_decay(self) -> float:
        """Of matrices."""


def parameter_groups(module: nn.Module, config: Rates) -> tuple[list[Group], list[Group]]:
    """Split trainable parameters by the kind of gradient they get, by learning rate and by weight decay.

    Weights decay that are matrices: no bias, no norm, no table of embeddings.

    Args:
        module: What is trained.
        config: The rates.

    Returns:
        Groups of those with dense gradients, for AdamW, and of those with sparse ones, for RowAdam; either may be
        empty.
    """
    tables = {id(w) for part in module.modules() if _is_table(part) for w in part.parameters(recurse=False)}
    sparse = {id(w) for part in module.modules() if _is_table(part) and part.sparse for w in part.parameters(False)}
    rate = dict(_pretrained(module, config))
    dense: dict[tuple[float, float], list[nn.Parameter]] = {}
    moved = []
    for weight in module.parameters():
        if not weight.requires_grad:
            continue
        if id(weight) in sparse:
            moved.append(weight)
            continue
        decay = config.weight_decay if weight.ndim > 1 and id(weight) not in tables else 0.0
        dense.setdefault((rate.get(id(weight), config.lr), decay), []).append(weight)
    groups: list[Group] = [
        {"params": weights, "lr": lr, "weight_decay": decay} for (lr, decay), weights in dense.items()
    ]
    return groups, [{"params": moved, "lr": config.table_lr}] if moved else []


def _is_table(part: nn.Module) -> bool:
    return isinstance(part, nn.EmbeddingBag | nn.Embedding)


def _pretrained(module: nn.Module, config: Rates) -> Iterator[tuple[int, float]]:
    """The rate of each weight of pretrained encoders; adapters are trained from scratch."""
    for encoder in (part for part in module.modules() if isinstance(part, TransformerTextEncoder | VisualTower)):
        layers = layers_of(encoder.model)
        below = {id(w): len(layers) for w in encoder.before_layers()}
        for depth, layer in enumerate(reversed(layers)):
            below |= {id(w): depth for w in layer.parameters()}
        for name, weight in encoder.named_parameters():
            if "lora_" not in name:
                yield id(weight), config.encoder_lr * config.layer_decay ** below.get(id(weight), 0)
