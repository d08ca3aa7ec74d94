"""Writes TOML for manifests; the standard library only reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dumps(content: Mapping[str, Any]) -> str:
    """Writes a manifest: values first, then each list of tables as `[[key]]`.

    Args:
        content: Strings, numbers, booleans, and lists and tables of these.
    """
    plain = {key: value for key, value in content.items() if not _is_tables(value)}
    text = "".join(f"{_key(key)} = {_value(value)}\n" for key, value in plain.items())
    for key, value in content.items():
        if key not in plain:
            for table in value:
                text += f"\n[[{_key(key)}]]\n" + "".join(f"{_key(k)} = {_value(v)}\n" for k, v in table.items())
    return text


def _is_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(table, Mapping) for table in value)


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
