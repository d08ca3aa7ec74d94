"""Writes the TOML of manifests, which the standard library only reads."""

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


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
