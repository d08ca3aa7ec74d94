"""One batch's gradients, by one process or by several that share it: `python sharedbatch.py FOLDER` under torchrun."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import smallbatch
import torch
from safetensors.torch import save_file
from torch import Tensor

from ccr_cli import registry
from ccr_cli.data.frames import Frames
from ccr_cli.methods import base
from ccr_cli.stages.train.processes import ProcessRank, together
from ccr_cli.stages.train.step import parameter_groups

METHODS = [name for name in registry.names("methods") if registry.load("methods", name).Method.TRAINED]
SIZE = 7
OPTIONS: dict[str, dict[str, Any]] = {"fume": {"classes": 3}, "disncl": {"warmup_terms": "all"}}


def shared(name: str, ranks: ProcessRank) -> base.Batch:
    """A batch of which two triplets are of one item, as a process of several gets it."""
    whole = smallbatch.batch(p=torch.linspace(0.3, 1.0, smallbatch.SIZE))
    row_b = ranks.part_of(torch.arange(SIZE))
    texts = [f"{colour} circle" for colour in smallbatch.COLOURS], [f"círculo {c}o" for c in smallbatch.COLOURS]
    source, target = (smallbatch.tokens([text[row] for row in row_b.tolist()]) for text in texts)
    item_B = torch.tensor([0, 1, 2, 3, 4, 0, 5])
    features = Frames(whole.visual.rows_ND.double(), whole.visual.offsets_V1)
    needs = smallbatch.make(name, **OPTIONS.get(name, {})).config.needs()
    return base.Batch(
        visual=features.select(item_B[row_b]),
        source=source,
        target=target,
        item_B=item_B,
        p=base.Belief(*(side[:SIZE].double() for side in dataclasses.astuple(whole.p))),
        judged=True,
        back=smallbatch.tokens([f"a {texts[0][row]}" for row in row_b.tolist()]) if "back" in needs else None,
        label_B=item_B % 3,
        teacher_BD=torch.eye(smallbatch.DIM, dtype=torch.float64)[:SIZE],
        gather=ranks.gather if ranks.size > 1 else None,
    )


def gradients(name: str, ranks: ProcessRank) -> dict[str, Tensor]:
    """The gradient of every weight in float64, and the loss terms; in evaluation mode, for running statistics."""
    method = smallbatch.make(name, **OPTIONS.get(name, {})).double().eval()
    losses = ranks.wrap(method)
    terms = losses(shared(name, ranks))
    torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
    ranks.average_sparse([w for group in parameter_groups(method, method.config)[1] for w in group["params"]])
    grads = {n: w.grad.to_dense() for n, w in method.named_parameters() if w.grad is not None}
    return grads | {f"term {term}": value.detach() for term, value in terms.items()}


if __name__ == "__main__":
    with together() as ranks:
        for name in METHODS:
            save_file(
                {k: v.contiguous() for k, v in gradients(name, ranks).items()},
                Path(sys.argv[1]) / f"{name}-{ranks.rank}.safetensors",
            )
    threads = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    assert not any("gloo" in thread for thread in threads), f"still at work while the interpreter ends: {threads}"
