"""JSON lines, or a list of objects, an item or a caption each; keys by option."""

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
    """Reads captions; of a list of texts, k is the place in it.

    Args:
        path: The file: an object a line (empty lines are passed over), or one list of objects.
        item: Key of the item's id.
        text: Key of the text, or of a list of texts.
        by_lang: The text's key is in an object of its language: `{"de": {"caption": [...]}, "fil": ...}`.
        split: Key of the split, where an object has it; so for the following.
        lang: Key of the language.
        k: Key of the caption's number.
        caption_set: Key of the caption set.
        media: Key of the place of the picture or video.
        caption_id: Key of the caption's official id.
        label: Key of the item's category.
        kind: Key of what the item is, image or video.

    Raises:
        ArtifactError: If a line is no object, or has not the keys.
    """
    for row in _rows(path):
        found = {key: row.get(key) for key in (split, lang, caption_set, media, caption_id, k, label, kind)}
        split_of, lang_of, set_of, media_of, kind_said = (
            value.text() if (value := found[key]) else "" for key in (split, lang, caption_set, media, kind)
        )
        id_of = value.name() if (value := found[caption_id]) else ""
        k_of, label_of = (value.number() if (value := found[key]) else None for key in (k, label))
        name = row[item].name()
        places = [(lang_of, row)]
        if by_lang:
            places = [(key, at) for key, at in row.entries() if isinstance(at.value, dict) and text in at.value]
            if not places:
                raise row.wrong(f"there is no language with {text!r}")
        for language, at in places:
            for number, each in _texts(at[text]):
                yield Record(
                    item=name,
                    text=each.text(),
                    where=each.where,
                    lang=language,
                    k=k_of if number is None else number,
                    split=split_of,
                    media=media_of,
                    caption_id=id_of,
                    caption_set=set_of,
                    label=label_of,
                    kind=kind_of(kind_said, row.where),
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
