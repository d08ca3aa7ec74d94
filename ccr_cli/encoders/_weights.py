"""Reading a file of weights that the user names: tensors by name, and nothing is run that lies in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from ccr_cli.errors import ArtifactError, UnavailableError

_INNER = ("state_dict", "model_state_dict", "model")


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Reads a state dict, `.safetensors` or what `torch.save` wrote.

    Args:
        path: The file; of a checkpoint, what lies under `state_dict`, `model_state_dict` or `model`.

    Raises:
        UnavailableError: If the file is not there.
        ArtifactError: If it cannot be read without running what lies in it, or holds something else.
    """
    if not path.is_file():
        raise UnavailableError(f"there is no file of weights {path}", hint="--set weights=FILE")
    content: Any
    try:
        if path.suffix == ".safetensors":
            content = load_file(path)
        else:
            content = torch.load(path, weights_only=True, map_location="cpu")
    except MemoryError:
        raise
    except Exception as error:  # a damaged file, or one of another kind, can make the readers raise anything
        first = str(error).strip().split("\n", 1)[0]
        raise ArtifactError(
            f"{path} is no readable file of weights ({type(error).__name__}: {first})",
            hint="expected: .safetensors, or a state dict written by torch.save",
        ) from None
    for name in _INNER:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    if not isinstance(content, Mapping) or not all(isinstance(tensor, torch.Tensor) for tensor in content.values()):
        raise ArtifactError(f"{path} holds something else than tensors by name")
    return {str(name): tensor for name, tensor in content.items()}
