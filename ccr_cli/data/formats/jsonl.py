"""JSON lines or a list of objects, one per item or caption; options name keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ccr_cli.data.formats.base import Json, Record, caption_format, kind_of, lines, parse, read_json


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
) -> Iterator[Record]:
    """Reads captions; in a list of texts, k is the position. Empty lines are skipped.

    Options:
        item: Key of the item's id.
        text: Key of the text, or of a list of texts.
        by_lang: The text is in an object for its language: `{"de": {"caption": [...]}, "fil": ...}`.
        split: Key of the split, which an object may lack; the same holds for the following keys.
        lang: Key of the language.
        k: Key of the caption's number.
        caption_set: Key of the caption set.
        media: Key of the path of the image or video.
        caption_id: Key of the caption's official id.
        label: Key of the item's category.
        kind: Key of the item's kind, image or video.
    """
    for row in _rows(path):
        facts: dict[str, Any] = {
            "split": row.text_of(split),
            "media": row.text_of(media),
            "caption_id": value.name() if (value := row.get(caption_id)) else "",
            "caption_set": row.text_of(caption_set),
            "label": value.number() if (value := row.get(label)) else None,
            "kind": kind_of(row.text_of(kind), row.where),
        }
        name, number = row[item].name(), value.number() if (value := row.get(k)) else None
        places = [(row.text_of(lang), row)]
        if by_lang:
            places = [(key, at) for key, at in row.entries() if isinstance(at.value, dict) and text in at.value]
            if not places:
                raise row.wrong(f"there is no language with {text!r}")
        for language, at in places:
            for place, caption in (
                enumerate(at[text].each()) if isinstance(at[text].value, list) else [(number, at[text])]
            ):
                yield Record(name, caption.text(), caption.where, language, place, **facts)


def _rows(path: Path) -> Iterator[Json]:
    for number, line in lines(path):
        if line.lstrip().startswith("["):
            yield from read_json(path).each()
            return
        if line.strip():
            yield parse(line, path, f"line {number}")
