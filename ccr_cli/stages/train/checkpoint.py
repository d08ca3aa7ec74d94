"""Training state as safetensors and JSON: nothing is pickled, and the newest state is always complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save
from torch import Tensor

from ccr_cli.artifacts.base import atomic_open, read_json, write_json

_STATE = "state.json"


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Writes tensors atomically as safetensors."""
    plain = {k: v.detach().contiguous().cpu() for k, v in tensors.items()}
    with atomic_open(path) as handle:
        handle.write(save(plain))


def save_state(folder: Path, when: str, state: dict[str, Any]) -> None:
    """Saves a nested state of dicts, lists, numbers, strings and tensors; the older state goes afterwards.

    Args:
        folder: Of states.
        when: Names the state; another one has another name.
        state: What to save.
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
    """Loads the newest state, or None where there is none (any more)."""
    if not (folder / _STATE).is_file():
        return None
    record = read_json(folder / _STATE)
    if not (folder / record["tensors"]).is_file():  # stopped while the state was removed
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
