"""Arrays of `.npy` files, mapped into memory after their header was checked."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ccr_cli.artifacts.base import refuse_special
from ccr_cli.errors import ArtifactError

PICKLED = "holds pickled Python objects, which ccr never loads because loading them can run any program"
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
