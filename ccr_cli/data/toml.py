"""Reads and writes the TOML of manifests; the standard library only reads it."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ccr_cli.artifacts.base import read_utf8
from ccr_cli.errors import ArtifactError

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def read(path: Path) -> dict[str, Any]:
    """Reads a manifest; ArtifactError if it is not valid."""
    try:
        return tomllib.loads(read_utf8(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ArtifactError(f"{path} is not valid TOML: {error}") from None


def dumps(content: Mapping[str, Any]) -> str:
    """Returns a manifest of strings, numbers, booleans, lists and tables; lists of tables come last, as `[[key]]`."""
    plain, tables = "", ""
    for key, value in content.items():
        if isinstance(value, list | tuple) and value and all(isinstance(table, Mapping) for table in value):
            tables += "".join(f"\n[[{_key(key)}]]\n{_lines(table)}" for table in value)
        else:
            plain += _lines({key: value})
    return plain + tables


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, str | bool):  # JSON strings are TOML strings, except for one character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise TypeError(f"no TOML for {value!r}")
