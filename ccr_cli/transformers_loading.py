"""Importing transformers and loading its models: no torchvision, no progress bars."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def transformers_loading() -> Iterator[None]:
    """Wraps every import of transformers and every `from_pretrained`.

    If torchvision is installed, transformers imports it, and if it does not match torch (a CUDA build beside a CPU
    build of torch), even a text model then fails to import. ccr does not need it, so it is hidden from transformers,
    unless the program itself has loaded it already.
    """
    hidden = "torchvision" not in sys.modules
    if hidden:
        sys.modules["torchvision"] = None  # type: ignore[assignment]  # find_spec then reports it as not installed
    try:
        from transformers.utils import import_utils, logging

        if hidden:
            import_utils.is_torchvision_available.cache_clear()
            import_utils.is_torchvision_v2_available.cache_clear()
            import_utils.is_torchvision_available()
        shown = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            if shown:
                logging.enable_progress_bar()
    finally:
        if hidden:
            del sys.modules["torchvision"]
