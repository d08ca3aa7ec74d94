"""Rows of values, one per item or caption: JSON lines or a list of objects, and Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ccr_cli.artifacts.parquet import parquet_batches, parquet_schema
from ccr_cli.data.formats.base import ColumnError, Json, Record, caption_format, kind_of, lines, parse, read_json
from ccr_cli.data.formats.captions_csv import COLUMNS, made_in, refuse_without_id
from ccr_cli.errors import ArtifactError


@caption_format
def jsonl(
    path: Path,
    *,
    item: str = "item_id",
    text: str = "text",
    by_lang: bool = False,
    split: str = "split",
    lang: str = "lang",
    k: str = "k",
    caption_set: str = "caption_set",
    media: str = "media",
    caption_id: str = "caption_id",
    label: str = "label",
    kind: str = "kind",
    texts: Mapping[str, str] | None = None,
) -> Iterator[Record]:
    """Reads captions; in a list of texts, k is the position. Empty lines are skipped.

    Options:
        item: Key of the item's id; empty: the item is named after its image or video.
        text: Key of the text, or of a list of texts.
        by_lang: Whether every language has its own object with the text: `{"de": {"caption": [...]}, "fil": ...}`.
        split: Key of the split, which an object may lack; the same holds for the following keys.
        lang: Key of the language.
        k: Key of the caption's number.
        caption_set: Key of the caption set.
        media: Key of the path of the image or video.
        caption_id: Key of the caption's official id.
        label: Key of the item's category.
        kind: Key of the item's kind, image or video.
        texts: Several keys of texts with their languages, as for captions-csv.
    """
    keys = {"item_id": item, "split": split, "lang": lang, "k": k, "caption_set": caption_set}
    keys |= {"media": media, "caption_id": caption_id, "label": label, "kind": kind}
    yield from _captions(json_rows(path), keys, texts or {text: ""}, by_lang=by_lang)


@caption_format
def parquet(
    path: Path, *, header: Mapping[str, str] | None = None, texts: Mapping[str, str] | None = None
) -> Iterator[Record]:
    """Reads captions from a Parquet file with the columns of captions-csv; the text may be a list of texts.

    Options:
        header: The file's own column names, as for captions-csv.
        texts: Several columns of texts with their languages, as for captions-csv.
    """
    names = parquet_schema(path).names
    keys = {name: name for name in COLUMNS if name in names} | dict(header or {})
    texts = texts or {keys.get("text", ""): ""}
    batches = parquet_batches(path, [name for name in names if name in {*keys.values(), *texts}])
    rows = enumerate((row for batch in batches for row in batch.to_pylist()), 1)
    objects = (Json(row, path, f"row {number}") for number, row in rows)
    yield from _captions(objects, {name: "" for name in COLUMNS} | keys, texts)


def _captions(
    rows: Iterable[Json], keys: Mapping[str, str], texts: Mapping[str, str], *, by_lang: bool = False
) -> Iterator[Record]:
    """Yields the captions of objects; `keys` maps each of `COLUMNS` but the text to the objects' key, empty for none.

    An object without a text has an empty caption.
    """
    lacking = []
    for row in rows:
        facts: dict[str, Any] = {
            "split": row.text_of(keys["split"]),
            "media": row.text_of(keys["media"]),
            "caption_id": value.name() if (value := row.get(keys["caption_id"])) else "",
            "caption_set": row.text_of(keys["caption_set"]),
            "label": _number(row, keys, "label"),
            "kind": kind_of(row.text_of(keys["kind"]), row.where),
        }
        name = row.get(keys["item_id"]) if keys["item_id"] else None
        if keys["item_id"] and (name is None or name.value == ""):
            lacking.append(row.where)
            continue
        item, number, places = name.name() if name else "", _number(row, keys, "k"), [(row.text_of(keys["lang"]), row)]
        if by_lang:
            (text,) = texts
            places = [(key, at) for key, at in row.entries() if isinstance(at.value, dict) and text in at.value]
            if not places:
                raise row.wrong(f"there is no language with {text!r}")
        for lang, at in places:
            values = [(tag, value) for key, tag in texts.items() if (value := at.get(key))]
            found = [(tag or lang, value) for tag, value in values if not made_in(tag)]
            facts["translations"] = tuple((made_in(tag), value.text()) for tag, value in values if made_in(tag))
            for tag, value in found:
                several = isinstance(value.value, list)
                for place, caption in enumerate(value.each()) if several else [(number, value)]:
                    k = place if len(texts) == 1 else None
                    yield Record(item, caption.text(), caption.where, tag, k, **facts)
            if not found:
                yield Record(item, "", row.where, lang, number, **facts)
    refuse_without_id(lacking)


def _number(row: Json, keys: Mapping[str, str], column: str) -> int | None:
    """Returns the whole number in a column, None without one."""
    try:
        value = row.get(keys[column])
        return value.number() if value else None
    except ArtifactError as error:
        raise ColumnError(column, error.message) from None


def json_rows(path: Path) -> Iterator[Json]:
    """Yields the objects of JSON lines, or of a list."""
    for number, line in lines(path):
        if line.lstrip().startswith("["):
            yield from read_json(path).each()
            return
        if line.strip():
            yield parse(line, path, f"line {number}")
