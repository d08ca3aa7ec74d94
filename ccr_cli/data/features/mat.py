"""Reading a MATLAB file: one matrix with a column or a row an item, beside a list of their ids.

Which of the two it is follows from the number of ids (Karpathy's `vgg_feats.mat` has columns), so a square matrix is
refused. scipy reads the file; nothing is unpickled or run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ccr_cli.data.features.base import Table, by_number
from ccr_cli.data.formats.id_list import read_ids
from ccr_cli.data.labelled_mat import read_matlab
from ccr_cli.errors import ArtifactError

_NUMBERS = {"double", "single", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"}


@contextmanager
def opened(path: Path, ids: Path) -> Iterator[Table]:
    """Reads the matrix, which is in memory as a whole.

    Args:
        path: The file.
        ids: The list of ids, one a line, in the order of the columns or rows.

    Raises:
        ArtifactError: If it is no MATLAB file, or has not exactly one matrix that fits the ids.
    """
    from scipy.io import loadmat, whosmat  # half a second, for this format alone

    names = read_ids(ids, latin1=True)
    found = {
        name: shape
        for name, shape, kind in read_matlab(path, whosmat)
        if kind in _NUMBERS and len(shape) == 2 and min(shape) > 1 and len(names) in shape
    }
    if len(found) != 1:
        which = f"several, {', '.join(found)}" if found else "none"
        raise ArtifactError(
            f"{path}: one matrix with a column or a row for each of {len(names)} ids is expected; {which}"
        )
    (name, shape), *_ = found.items()
    if shape[0] == shape[1]:
        raise ArtifactError(
            f"{path}: {name} is square, so columns or rows may be items", hint="save it as .npy, a row an item"
        )
    matrix = read_matlab(path, lambda file: loadmat(file, variable_names=[name]))[name]
    yield by_number(names, matrix.T if shape[1] == len(names) else matrix, path)
