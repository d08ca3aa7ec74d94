"""JSON lines or a list of objects, one per item or caption; options name keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ccr_cli.data.formats.base import Json, Record, kind_of, lines, parse, read_json


def read(
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
    """Reads captions; in a list of texts, k is the position.

    Args:
        path: The file: one object per line (empty lines are skipped), or one list of objects.
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

    Raises:
        ArtifactError: If a line is not an object, or lacks a key.
    """
    for row in _rows(path):
        values = {key: row.get(key) for key in (split, lang, caption_set, media, caption_id, k, label, kind)}
        split_of, lang_of, set_of, media_of, kind_name = (
            value.text() if (value := values[key]) else "" for key in (split, lang, caption_set, media, kind)
        )
        id_of = value.name() if (value := values[caption_id]) else ""
        k_of, label_of = (value.number() if (value := values[key]) else None for key in (k, label))
        name = row[item].name()
        places = [(lang_of, row)]
        if by_lang:
            places = [(key, at) for key, at in row.entries() if isinstance(at.value, dict) and text in at.value]
            if not places:
                raise row.wrong(f"there is no language with {text!r}")
        for language, at in places:
            for number, caption in _texts(at[text]):
                yield Record(
                    item=name,
                    text=caption.text(),
                    where=caption.where,
                    lang=language,
                    k=k_of if number is None else number,
                    split=split_of,
                    media=media_of,
                    caption_id=id_of,
                    caption_set=set_of,
                    label=label_of,
                    kind=kind_of(kind_name, row.where),
                )


def _rows(path: Path) -> Iterator[Json]:
    for number, line in lines(path):
        if line.lstrip().startswith("["):
            yield from read_json(path).each()
            return
        if line.strip():
            yield parse(line, path, f"line {number}")


def _texts(value: Json) -> Iterator[tuple[int | None, Json]]:
    if isinstance(value.value, list):
        yield from enumerate(value.each())
    else:
        yield None, value
