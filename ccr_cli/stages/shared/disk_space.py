"""Room on the disk, looked for before there is too little."""

from __future__ import annotations

import shutil
from pathlib import Path

from ccr_cli.errors import ResourceError


def require_room(folder: Path, need: float, less: str = "") -> None:
    """Looks whether what is to be written finds room.

    Args:
        folder: On whose disk.
        need: Bytes.
        less: What would need less, as the end of the hint.

    Raises:
        ResourceError: If it does not.
    """
    free = shutil.disk_usage(folder).free
    if need > free:
        raise ResourceError(
            f"the disk is full, or will be: about {_size(need)} more are needed in {folder}, "
            f"and {_size(free)} are free",
            hint=f"free some space; the same command goes on{less}",
        )


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
