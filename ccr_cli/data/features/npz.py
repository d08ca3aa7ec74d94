"""Reading `.npz`: one array (T, D), (1, T, D) or (D,) per item, under its id."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ccr_cli.data.features.base import FeatureTable, as_rows
from ccr_cli.data.npy import PICKLED, UNPICKLE
from ccr_cli.errors import ArtifactError


@contextmanager
def opened(path: Path) -> Iterator[FeatureTable]:
    """Opens an archive; arrays are read on demand.

    Raises:
        ArtifactError: If it is damaged, or an array is pickled.
    """
    with path.open("rb") as handle:
        try:
            archive = np.lib.npyio.NpzFile(handle, allow_pickle=False)
        except (zipfile.BadZipFile, OSError) as error:
            raise ArtifactError(f"{path} is damaged or not .npz: {error}") from None
        ids = list(archive.files)

        def rows(i: int) -> npt.NDArray[Any]:
            what = f"{ids[i]!r} in {path}"
            try:
                value = archive[ids[i]]
            except ValueError as error:
                if "allow_pickle" in str(error):
                    raise ArtifactError(f"{what} {PICKLED}", hint=UNPICKLE) from None
                raise ArtifactError(f"{what} is damaged: {error}") from None
            except MemoryError:
                raise ArtifactError(f"{what} claims to be larger than memory") from None
            except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
                raise ArtifactError(f"{what} is damaged: {error}") from None
            if not isinstance(value, np.ndarray):
                raise ArtifactError(f"{what} is not an array")
            return as_rows(value, what)

        yield FeatureTable(path, ids, rows)
