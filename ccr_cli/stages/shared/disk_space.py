"""Checking the free disk space before writing."""

from __future__ import annotations

import shutil
from pathlib import Path

from ccr_cli.errors import ResourceError


def require_space(folder: Path, need: float, advice: str = "") -> None:
    """Checks that a disk has room for what is to be written.

    Args:
        folder: A folder on that disk.
        need: Bytes.
        advice: Appended to the hint: how to need less.

    Raises:
        ResourceError: If it has not.
    """
    free = shutil.disk_usage(folder).free
    if need > free:
        raise ResourceError(
            f"the disk is full, or would be: about {_size(need)} more are needed in {folder}, {_size(free)} are free",
            hint=f"free some space; the same command resumes{advice}",
        )


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
