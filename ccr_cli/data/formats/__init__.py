"""Readers of caption files: the functions with the decorator `caption_format` in the modules of this folder."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache

from ccr_cli.data.formats.base import FORMATS, Reader
from ccr_cli.errors import UsageError


@cache
def formats() -> tuple[str, ...]:
    """Returns the names of the caption formats."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return tuple(sorted(FORMATS))


def reader(name: str) -> Reader:
    """Returns the function that reads a format; UsageError if there is none of that name."""
    if name not in formats():
        raise UsageError(f"there is no format {name!r}", hint=f"formats: {', '.join(formats())}")
    return FORMATS[name]


def options_of(name: str) -> dict[str, str]:
    """Returns the options of a format with their types, such as `bool`; a `Path` names a further file."""
    parameters = inspect.signature(reader(name)).parameters.values()
    return {option.name: str(option.annotation) for option in parameters if option.kind is option.KEYWORD_ONLY}
