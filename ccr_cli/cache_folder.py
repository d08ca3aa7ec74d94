"""The cache folder: converted models, translated sentences, vectors of sentences, decoded pictures. Safe to delete."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Returns `$CCR_CACHE`, else the user's cache directory; it may not exist yet."""
    if folder := os.environ.get("CCR_CACHE"):
        return Path(folder).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("ccr")
