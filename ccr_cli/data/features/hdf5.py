"""Reading HDF5: a dataset (T, D), (1, T, D) or (D,) an item, under its id (HGR's files of frames and regions)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ccr_cli.data.features.base import Table, as_rows
from ccr_cli.errors import ArtifactError, UnavailableError


@contextmanager
def opened(path: Path) -> Iterator[Table]:
    """Opens a file; a dataset is read when it is asked for. In groups, the id is the path: `group/name`.

    Raises:
        ArtifactError: If it is damaged, or a dataset's content lies in another file.
        UnavailableError: If h5py is not installed.
    """
    try:
        import h5py
    except ImportError as error:
        raise UnavailableError(f"reading {path.name} needs h5py: {error}", hint="pip install 'ccr-cli[hdf5]'") from None
    try:
        file = h5py.File(path, "r", locking=False)
    except OSError as error:
        raise ArtifactError(f"{path} is damaged, or no HDF5: {error}") from None
    with file:
        ids: list[str] = []
        file.visititems(lambda name, node: ids.append(name) if isinstance(node, h5py.Dataset) else None)

        def rows(i: int) -> npt.NDArray[Any]:
            what = f"{ids[i]!r} in {path}"
            try:
                value = file[ids[i]]
                if value.external or value.is_virtual:
                    raise ArtifactError(f"{what} refers to another file")
                return as_rows(np.asarray(value[()]), what)
            except (OSError, RuntimeError) as error:
                raise ArtifactError(f"{what} is damaged: {error}") from None

        yield Table(path, ids, rows)
