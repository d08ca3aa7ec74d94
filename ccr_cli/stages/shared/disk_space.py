"""Checking the free disk space before writing."""

from __future__ import annotations

import shutil
from pathlib import Path

from ccr_cli.errors import ResourceError


def require_space(folder: Path, need: float, advice: str = "") -> None:
    """Checks that the disk of a folder has room for so many bytes, else ResourceError; `advice`: how to need less."""
    free = shutil.disk_usage(folder).free
    if need > free:
        needed, left = (f"{n / 2**30:.1f} GiB" if n >= 2**30 else f"{n / 2**20:.1f} MiB" for n in (need, free))
        raise ResourceError(
            f"the disk is full, or would be: about {needed} more are needed in {folder}, {left} are free",
            hint=f"free some space; the same command resumes{advice}",
        )
