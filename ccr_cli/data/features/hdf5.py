"""Reading HDF5: one dataset (T, D), (1, T, D) or (D,) per item, under its id (HGR's files of frames and regions)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ccr_cli.data.features.base import FeatureTable, as_rows
from ccr_cli.errors import ArtifactError, UnavailableError


@contextmanager
def opened(path: Path) -> Iterator[FeatureTable]:
    """Opens a file; datasets are read on demand. In groups, the id is the path: `group/name`.

    Raises:
        ArtifactError: If it is damaged, or a dataset refers to another file.
        UnavailableError: If h5py is not installed.
    """
    try:
        import h5py
    except ImportError as error:
        raise UnavailableError(f"reading {path.name} needs h5py: {error}", hint="pip install 'ccr-cli[hdf5]'") from None
    try:
        file = h5py.File(path, "r", locking=False)
    except OSError as error:
        raise ArtifactError(f"{path} is damaged or not HDF5: {error}") from None
    with file:
        try:
            ids = list(_datasets(file))
        except (KeyError, OSError, RuntimeError) as error:
            raise ArtifactError(f"{path} is damaged: {error}") from None

        def rows(i: int) -> npt.NDArray[Any]:
            what = f"{ids[i]!r} in {path}"
            try:
                if _leads_out(file, ids[i]):
                    raise ArtifactError(f"{what} refers to another file")
                value = file[ids[i]]
                if value.file.filename != file.filename or value.external or value.is_virtual:
                    raise ArtifactError(f"{what} refers to another file")
                return as_rows(np.asarray(value[()]), what)
            except MemoryError:
                raise ArtifactError(f"{what} claims to be larger than memory") from None
            except (KeyError, OSError, RuntimeError) as error:
                raise ArtifactError(f"{what} is damaged: {error}") from None

        yield FeatureTable(path, ids, rows)


def _datasets(group: Any, path: str = "", seen: set[int] | None = None) -> Iterator[str]:
    """The paths of all datasets, under every link to them; a group with several names is visited once.

    Links to other files are included; reading them is refused.
    """
    import h5py

    seen = seen or {h5py.h5o.get_info(group.id).addr}
    for name in group:
        if _leads_out(group, name):
            yield path + name
            continue
        hard = _link(group, name) == int(h5py.h5l.TYPE_HARD)
        try:
            node = group[name]
        except (KeyError, OSError, RuntimeError):
            if hard:
                raise
            continue  # a link to nothing
        if isinstance(node, h5py.Dataset):
            yield path + name
        elif isinstance(node, h5py.Group) and hard and (address := h5py.h5o.get_info(node.id).addr) not in seen:
            seen.add(address)
            yield from _datasets(node, f"{path}{name}/", seen)


def _link(group: Any, name: str) -> int:
    return int(group.id.links.get_info(name.encode("utf-8", "surrogateescape")).type)


def _leads_out(group: Any, name: str) -> bool:
    import h5py

    return _link(group, name) == int(h5py.h5l.TYPE_EXTERNAL)
