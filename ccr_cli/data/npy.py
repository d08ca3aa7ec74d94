"""Mapping an array of a `.npy` into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ccr_cli.errors import ArtifactError

PICKLED = "holds pickled Python objects; these are never loaded, as loading them can run any program"
UNPICKLE = "where you trust it, save its arrays plainly: np.savez('plain.npz', **{id: array, ...})"


def mapped(path: Path) -> npt.NDArray[Any]:
    """Maps an array into memory.

    Raises:
        ArtifactError: If it is damaged, pickled or no `.npy`.
    """
    try:
        return np.asarray(np.lib.format.open_memmap(path, mode="r"))
    except ValueError as error:
        with path.open("rb") as handle:
            start = handle.read(1)
        if start == b"\x80" or "Python objects" in str(error):
            raise ArtifactError(f"{path} {PICKLED}", hint=UNPICKLE) from None
        raise ArtifactError(f"{path} is damaged, or no .npy: {error}") from None
