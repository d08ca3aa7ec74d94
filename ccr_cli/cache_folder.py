"""The cache folder: what can be made again (converted models, translations of sentences); safe to delete."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Returns `$CCR_CACHE`, else the user's cache directory; not necessarily there yet."""
    if named := os.environ.get("CCR_CACHE"):
        return Path(named).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("ccr")
