"""Reading a MATLAB file: one matrix with a column or a row per item, and a list of their ids.

The number of ids shows which of the two it is (Karpathy's `vgg_feats.mat` has columns), so a square matrix is refused.
scipy reads the file; nothing is unpickled or run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ccr_cli.data.features.base import FeatureTable, by_number
from ccr_cli.data.formats.text_files import read_ids
from ccr_cli.errors import ArtifactError

_NUMBERS = {"double", "single", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"}


def read_matlab(path: Path, reader: Callable[[Path], Any]) -> Any:
    """Reads a file with a function of scipy.

    Raises:
        ArtifactError: If it cannot be read.
    """
    try:
        return reader(path)
    except NotImplementedError:
        raise ArtifactError(f"{path} has MATLAB's format 7.3 (HDF5)", hint="save it with -v7") from None
    except MemoryError:
        raise
    except Exception as error:  # a damaged file can make the reader raise anything
        raise ArtifactError(f"{path} is not a readable MATLAB file: {error}") from None


@contextmanager
def opened(path: Path, ids: Path) -> Iterator[FeatureTable]:
    """Reads the whole matrix into memory.

    Args:
        path: The file.
        ids: The list of ids, one per line, in the order of the columns or rows.

    Raises:
        ArtifactError: If it is not a MATLAB file, or does not have exactly one matrix that fits the ids.
    """
    from scipy.io import loadmat, whosmat  # takes half a second, only for this format

    names = read_ids(ids, latin1=True)
    matrices = {
        name: shape
        for name, shape, kind in read_matlab(path, whosmat)
        if kind in _NUMBERS and len(shape) == 2 and min(shape) > 1 and len(names) in shape
    }
    if len(matrices) != 1:
        candidates = f"several: {', '.join(matrices)}" if matrices else "none"
        raise ArtifactError(
            f"{path}: expected one matrix with a column or a row for each of {len(names)} ids, found {candidates}"
        )
    (name, shape), *_ = matrices.items()
    if shape[0] == shape[1]:
        raise ArtifactError(
            f"{path}: {name} is square, so items may be columns or rows", hint="save it as .npy with one row per item"
        )
    matrix = read_matlab(path, lambda file: loadmat(file, variable_names=[name]))[name]
    yield by_number(names, matrix.T if shape[1] == len(names) else matrix, path)
