"""Arrays mapped from files: those of `.npy` files, whose header is checked, and large new ones."""

import math
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ccr_cli.artifacts.base import refuse_special
from ccr_cli.errors import ArtifactError

PICKLED = "holds pickled Python objects, which ccr never loads because loading them can run any program"
LARGE = 2**28
"""Size in bytes from which a new array is kept in a file."""
UNPICKLE = "if you trust it, save its arrays without pickle: np.savez('plain.npz', **{id: array, ...})"


def mapped(path: Path) -> npt.NDArray[Any]:
    """Maps the array of a `.npy` file into memory; ArtifactError if it is damaged, pickled or cut off."""
    refuse_special(path)
    try:
        return np.asarray(np.lib.format.open_memmap(path, mode="r"))
    except FileNotFoundError:
        raise ArtifactError(f"there is no {path}") from None
    except PermissionError:
        raise
    except Exception as error:  # a damaged header can make numpy's parser raise anything
        with path.open("rb") as handle:
            start = handle.read(1)
        if start == b"\x80" or "Python objects" in str(error):
            raise ArtifactError(f"{path} {PICKLED}", hint=UNPICKLE) from None
        raise ArtifactError(f"{path} is damaged or not a .npy file: {str(error)[:200]}") from None


def empty(shape: Sequence[int], folder: Path, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """Returns a new array whose values are not set.

    A large array is mapped from an unnamed file in the folder, so that the system can reclaim its memory; the file
    disappears with the process, however that ends. If the folder is full or read-only, the array is in memory.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size >= LARGE:
        with suppress(OSError, AttributeError), tempfile.TemporaryFile(dir=folder) as file:  # macOS lacks the function
            os.posix_fallocate(file.fileno(), 0, size)  # else writing on a full disk would kill the process
            return np.memmap(file, dtype, "r+", shape=tuple(shape))
    return np.empty(shape, dtype)


def moved(array: npt.NDArray[Any], folder: Path) -> npt.NDArray[Any]:
    """Returns the array itself, or a copy of a large one in an unnamed file of the folder, as `empty` makes it."""
    if array.nbytes < LARGE:
        return array
    copy = empty(array.shape, folder, array.dtype)
    copy[...] = array
    return copy
