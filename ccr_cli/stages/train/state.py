"""How far training is, and how that is kept on disk: whatever stops it, the bytes of an undisturbed run come out.

Shape suffixes: T texts, V visual items, D dimension.
"""

from __future__ import annotations

import json
import math
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ccr_cli.artifacts import base
from ccr_cli.artifacts.build import IN_HAND
from ccr_cli.methods.base import Belief
from ccr_cli.stages.train.checkpoint import load_state, save_state


@dataclass
class Progress:
    """Everything that changes while a run is trained, but for the weights and what moves them."""

    p: Belief[Tensor]
    """What the judge believes of every triplet."""
    epoch: int = 0
    """Epochs that are done."""
    step: int = 0
    """Steps of the next one that are done."""
    sums: dict[str, Tensor] = field(default_factory=dict)
    """Loss terms of these steps, added up."""
    seconds: float = 0.0
    """What these steps took."""
    best_epoch: int = 0
    best: float = -math.inf
    model: dict[str, Tensor] = field(default_factory=dict)
    """The best epoch's weights, on the CPU."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """A line an epoch; nothing in it depends on the machine's speed."""
    timing: list[dict[str, float]] = field(default_factory=list)
    """Seconds, rate and memory of each epoch."""

    def add(self, terms: Mapping[str, Tensor]) -> None:
        """Adds a step's loss terms."""
        for term, value in terms.items():
            self.sums[term] = self.sums[term] + value if term in self.sums else value
        self.step += 1

    def finite(self) -> bool:
        """Whether the loss of the steps so far is a number."""
        return not self.sums or bool(torch.stack([v.float() for v in self.sums.values()]).isfinite().all())

    def means(self) -> dict[str, float]:
        """Mean over the steps of each loss term."""
        return {term: float(value) / self.step for term, value in self.sums.items()}

    def save(self, folder: Path, engine: Mapping[str, Any]) -> None:
        """Writes `history.jsonl`, and all that going on needs; what was there before stays until this is complete.

        Args:
            folder: Of the run in the making.
            engine: State of what moves the weights.
        """
        self.write_history(folder)
        state = {
            "engine": dict(engine),
            "epoch": self.epoch,
            "step": self.step,
            "sums": self.sums,
            "seconds": self.seconds,
            "best_epoch": self.best_epoch,
            "best": self.best if math.isfinite(self.best) else None,
            "model": self.model,
            "p": [self.p.VS, self.p.VT, self.p.ST],
            "history": [json.dumps(entry) for entry in self.history],
            "timing": self.timing,
        }
        save_state(folder / IN_HAND, f"{self.epoch:04d}-{self.step:07d}", state)

    def write_history(self, folder: Path) -> None:
        """Writes a line an epoch."""
        with base.atomic_open(folder / "history.jsonl", "w") as handle:
            handle.writelines(json.dumps(entry) + "\n" for entry in self.history)

    @classmethod
    def load(cls, folder: Path, device: torch.device) -> tuple[Progress, dict[str, Any]] | None:
        """Reads what the last attempt saved, and the state of its engine; None where nothing is."""
        state = load_state(folder / IN_HAND)
        if state is None:
            return None
        progress = cls(
            p=Belief(*(side.to(device) for side in state["p"])),
            epoch=state["epoch"],
            step=state["step"],
            sums={term: value.to(device) for term, value in state["sums"].items()},
            seconds=state["seconds"],
            best_epoch=state["best_epoch"],
            best=-math.inf if state["best"] is None else state["best"],
            model=state["model"],
            history=[json.loads(entry) for entry in state["history"]],
            timing=state["timing"],
        )
        return progress, state["engine"]


def memory_mb(device: torch.device) -> float:
    """Most memory that was in use so far, in MB: the device's, or on a CPU that of the process."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1e6 if sys.platform == "darwin" else 1e3), 1)
