"""Small models and batches of made-up captions, for tests of single methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ccr_cli import registry
from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import NgramTokenizer, Tokens
from ccr_cli.methods import base
from ccr_cli.nets.text import NgramTextEncoder
from ccr_cli.stages.shared.options import configure
from ccr_cli.stages.train.step import parameter_groups

SIZE, DIM, VISUAL_DIM, BUCKETS = 8, 16, 12, 512
COLOURS = ["red", "green", "blue", "yellow", "black", "white", "orange", "grey"]


def make(name: str, **options: Any) -> Any:
    """A method with a small n-gram table and no dropout, in training mode."""
    module = registry.load("methods", name)
    small = {"dim": DIM, "buckets": BUCKETS, "dropout": 0.0, "text_dropout": 0.0}
    torch.manual_seed(0)
    method = module.Method(
        configure(module.Config, {**small, **options}, name), VISUAL_DIM, NgramTextEncoder(BUCKETS, DIM)
    )
    method.start_epoch(1)
    return method.train()


def trained(method: base.Method) -> tuple[list[Tensor], list[Tensor]]:
    """What training moves: weights with dense gradients, and those with sparse ones."""
    dense, sparse = parameter_groups(method, method.config)
    return [w for group in dense for w in group["params"]], [w for group in sparse for w in group["params"]]


def tokens(texts: Sequence[str]) -> Tokens:
    return NgramTokenizer(buckets=BUCKETS).encode(list(texts)).select(torch.arange(len(texts)))


def batch(size: int = SIZE, noun: str = "círculo", p: Tensor | None = None, judged: bool = True) -> base.Batch:
    """Triplets of different items; `p` is the probability of V-S and V-T."""
    features = torch.randn(SIZE, VISUAL_DIM, generator=torch.Generator().manual_seed(3))
    sure = torch.ones(size)
    p = sure if p is None else p
    return base.Batch(
        visual=Frames.single(features[:size]),
        source=tokens([f"{colour} circle" for colour in COLOURS[:size]]),
        target=tokens([f"{noun} {colour}o" for colour in COLOURS[:size]]),
        item_B=torch.arange(size),
        p=base.Belief(p, p, sure),
        judged=judged,
        teacher_BD=torch.eye(DIM)[:size],
    )
