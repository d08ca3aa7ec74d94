r"""Write a data set folder: tab-separated tables and the manifest that counts and hashes them.

Tables are UTF-8 with LF line ends and a header line, without quoting; a tab, a newline or a backslash inside
a field is written as ``\t``, ``\n`` or ``\\``. ``lines`` in the manifest counts the lines of a file, its
header included; for the media folder it counts the files, and its ``sha256`` is that of the text made of one
line ``<name> <sha256 of the file>`` a file, sorted by name, each ended by LF.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ITEM_COLUMNS = ("item_id", "split", "kind", "media", "label", "group")
CAPTION_COLUMNS = ("caption_id", "item_id", "lang", "k", "text", "caption_set")
TRANSLATION_COLUMNS = ("source", "target")
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n"}
_UNESCAPES = {"\\\\": "\\", "\\t": "\t", "\\n": "\n"}


def escape(field: str) -> str:
    """Escape backslash, tab and newline."""
    return "".join(_ESCAPES.get(char, char) for char in field)


def unescape(field: str) -> str:
    """Undo `escape`."""
    parts, index = [], 0
    while index < len(field):
        pair = field[index : index + 2]
        parts.append(_UNESCAPES.get(pair, field[index]))
        index += 2 if pair in _UNESCAPES else 1
    return "".join(parts)


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table; the same rows always give the same bytes."""
    lines = ["\t".join(columns), *("\t".join(escape(field) for field in row) for row in rows)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(("\n".join(lines) + "\n").encode())


def read_table(path: Path) -> list[dict[str, str]]:
    """Read what `write_table` wrote, one dictionary a row."""
    header, *lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    columns = header.split("\t")
    return [dict(zip(columns, (unescape(field) for field in line.split("\t")), strict=True)) for line in lines]


def sha256(data: bytes) -> str:
    """Return the hex digest."""
    return hashlib.sha256(data).hexdigest()


def _file_entry(folder: Path, path: Path, role: str) -> dict[str, Any]:
    data = path.read_bytes()
    name = path.relative_to(folder).as_posix()
    return {
        "path": name,
        "role": role,
        "lines": data.count(b"\n"),
        "sha256": sha256(data),
        "bytes": len(data),
        "evidence": "verified",
    }


def media_entry(folder: Path) -> dict[str, Any]:
    """Describe ``media/`` as one entry; see the top of this module for its digest."""
    pictures = sorted((folder / "media").iterdir(), key=lambda path: path.name)
    contents = [(path.name, path.read_bytes()) for path in pictures]
    listing = "".join(f"{name} {sha256(data)}\n" for name, data in contents)
    return {
        "path": "media",
        "role": "media",
        "lines": len(contents),
        "sha256": sha256(listing.encode()),
        "bytes": sum(len(data) for _, data in contents),
        "digest": "sha256 of the sorted lines 'name sha256'",
        "evidence": "verified",
    }


def recorded_translations(folder: Path) -> list[dict[str, str]]:
    """Return the ``[[translations]]`` of the manifest that is there now, none if there is no manifest."""
    manifest = folder / "manifest.toml"
    if not manifest.exists():
        return []
    entries: list[dict[str, str]] = tomllib.loads(manifest.read_text(encoding="utf-8")).get("translations", [])
    return entries


def counts(folder: Path) -> dict[str, int]:
    """Count items a split, groups, and captions a language."""
    items, captions = read_table(folder / "items.tsv"), read_table(folder / "captions.tsv")
    found = {f"items.{split}": 0 for split in ("train", "val", "test")}
    for item in items:
        found[f"items.{item['split']}"] += 1
    found["groups"] = len({item["group"] for item in items})
    for caption in captions:
        key = f"captions.{caption['lang']}"
        found[key] = found.get(key, 0) + 1
    return found


def _value(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _table(title: str, entry: dict[str, Any]) -> list[str]:
    return ["", title, *(f"{key} = {_value(value)}" for key, value in entry.items())]


def write_manifest(
    folder: Path,
    about: dict[str, Any],
    lists: dict[str, list[dict[str, Any]]],
    translations: list[dict[str, str]],
) -> None:
    """Write ``manifest.toml`` for the files that lie in the folder.

    Args:
        folder: The data set.
        about: The plain keys at the top (name, title, ...).
        lists: Arrays of tables that follow (``licences``, ``sources``).
        translations: The ``[[translations]]`` entries; each names its table as ``file``.
    """
    entries = [_file_entry(folder, folder / f"{role}.tsv", role) for role in ("items", "captions")]
    entries.append(media_entry(folder))
    entries += [_file_entry(folder, folder / entry["file"], "translation") for entry in translations]
    lines = [f"{key} = {_value(value)}" for key, value in about.items()]
    lines += _table("[counts]", counts(folder))
    for name, tables in {"files": entries, "translations": translations, **lists}.items():
        for table in tables:
            lines += _table(f"[[{name}]]", table)
    (folder / "manifest.toml").write_bytes(("\n".join(lines) + "\n").encode())
