"""The progress of training and its state on disk; a resumed run equals an uninterrupted one, byte for byte.

The state is safetensors and JSON: nothing is pickled, and the newest state is always complete.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from ccr_cli import process_memory
from ccr_cli.artifacts.base import atomic_open, read_json, write_json
from ccr_cli.artifacts.build import IN_HAND
from ccr_cli.methods.base import Belief

_STATE = "state.json"
PLAIN = ("epoch", "step", "sums", "seconds", "best_epoch")
"""Fields of `Progress` that are saved as they are."""


@dataclass
class Progress:
    """Everything that changes while a run is trained, except the weights and the optimisers."""

    p: Belief[Tensor]
    """Belief in every triplet."""
    epoch: int = 0
    """Completed epochs."""
    step: int = 0
    """Completed steps of the next epoch."""
    sums: dict[str, Tensor] = field(default_factory=dict)
    """Sum of each loss term over these steps."""
    seconds: float = 0.0
    """Duration of these steps."""
    best_epoch: int | None = None
    """Epoch whose weights are kept; None before any is, 0 for the model before the first step."""
    best: float = -math.inf
    model: dict[str, Tensor] = field(default_factory=dict)
    """The best epoch's weights, on the CPU."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """One entry per epoch, independent of the machine's speed."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What the judge keeps from epoch to epoch."""
    timing: list[dict[str, float]] = field(default_factory=list)
    """Seconds, rate and memory of each epoch."""

    def add(self, terms: Mapping[str, Tensor]) -> None:
        """Adds a step's loss terms."""
        for term, value in terms.items():
            self.sums[term] = self.sums[term] + value if term in self.sums else value
        self.step += 1

    def finite(self) -> bool:
        """Whether the loss of the steps so far is finite."""
        return not self.sums or bool(torch.stack([v.float() for v in self.sums.values()]).isfinite().all())

    def means(self) -> dict[str, float]:
        """Mean of each loss term over the steps."""
        return {term: float(value) / self.step for term, value in self.sums.items()}

    def save(self, folder: Path, engine: Mapping[str, Any]) -> None:
        """Writes `history.jsonl` and the state for resuming, with the engine's, into the building folder.

        The previous state stays until this one is complete.
        """
        self.write_history(folder)
        state = {
            "engine": dict(engine),
            **{name: getattr(self, name) for name in PLAIN},
            "best": self.best if math.isfinite(self.best) else None,
            "model": self.model,
            "p": [self.p.VS, self.p.VT, self.p.ST],
            "history": [json.dumps(entry) for entry in self.history],
            "timing": self.timing,
            **({"memory": self.memory} if self.memory else {}),
        }
        save_state(folder / IN_HAND, f"{self.epoch:04d}-{self.step:07d}", state)

    def write_history(self, folder: Path) -> None:
        """Writes one line per epoch."""
        with atomic_open(folder / "history.jsonl", "w") as handle:
            handle.writelines(json.dumps(entry) + "\n" for entry in self.history)

    @classmethod
    def load(cls, folder: Path, device: torch.device) -> "tuple[Progress, dict[str, Any]] | None":
        """Reads the progress and the engine's state that the last attempt saved, if any."""
        state = load_state(folder / IN_HAND)
        if state is None:
            return None
        progress = cls(
            **{name: state[name] for name in (*PLAIN, "model", "timing")},
            p=Belief(*state["p"]).map(lambda side: side.to(device)),
            best=-math.inf if state["best"] is None else state["best"],
            memory=state.get("memory", {}),
            history=[json.loads(entry) for entry in state["history"]],
        )
        progress.sums = {term: value.to(device) for term, value in progress.sums.items()}
        return progress, state["engine"]


def memory_mb(device: torch.device) -> float:
    """Peak memory in MB: the device's, or on a CPU that of the process."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
    return process_memory.peak_mb()


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Writes tensors atomically as safetensors."""
    plain = {k: v.detach().contiguous().cpu() for k, v in tensors.items()}
    with atomic_open(path) as handle:
        handle.write(save(plain))


def save_state(folder: Path, when: str, state: dict[str, Any]) -> None:
    """Saves a nested state of dicts, lists, numbers, strings and tensors, then removes the older one.

    `when` distinguishes it from other states in the folder.
    """
    folder.mkdir(exist_ok=True)
    tensors: dict[str, Tensor] = {}
    skeleton = _flatten(state, "", tensors)
    name = f"epoch-{when}.safetensors"
    save_tensors(folder / name, tensors)
    write_json(folder / _STATE, {"tensors": name, "state": skeleton})
    for old in folder.glob("epoch-*.safetensors"):
        if old.name != name:
            old.unlink()


def load_state(folder: Path) -> dict[str, Any] | None:
    """Loads the newest state, or None where there is none."""
    if not (folder / _STATE).is_file():
        return None
    record = read_json(folder / _STATE)
    if not (folder / record["tensors"]).is_file():  # stopped while removing it
        return None
    state: dict[str, Any] = _restore(record["state"], load_file(folder / record["tensors"]))
    return state


def _flatten(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors[name] = value.detach().to("cpu", copy=True)
        return {"$tensor": name}
    if isinstance(value, dict):
        return {"$dict": [[key, _flatten(item, f"{name}/{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_flatten(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]
    return value


def _restore(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict) and "$tensor" in value:
        return tensors[value["$tensor"]]
    if isinstance(value, dict):
        return {key: _restore(item, tensors) for key, item in value["$dict"]}
    if isinstance(value, list):
        return [_restore(item, tensors) for item in value]
    return value
