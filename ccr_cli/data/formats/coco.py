"""COCO's JSON of annotations by image id (COCO captions, STAIR)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ccr_cli.data.formats.base import Record, once, read_json


def read(path: Path, *, text: str = "caption") -> Iterator[Record]:
    """Reads captions; the item is the number of its image.

    Args:
        path: The file: `annotations`, each with `id`, `image_id` and a caption, and `images` with `id` and `file_name`.
        text: Key of an annotation that is its text: caption, or STAIR's tokenized_caption.

    Raises:
        ArtifactError: If the file is of another layout, an id is there twice, or a caption is of no image.
    """
    content = read_json(path)
    listed = content.get("images")
    media: dict[str, str] = {}
    images: set[str] = set()
    for image in listed.each() if listed else ():
        file = image.get("file_name")
        media[once(images, image["id"].name(), image)] = file.text() if file else ""
    seen: set[str] = set()
    for each in content["annotations"].each():
        item = each["image_id"].name()
        if listed and item not in images:
            raise each["image_id"].wrong(f"there is no image {item!r}")
        caption_id = once(seen, each["id"].name(), each)
        yield Record(item, each[text].text(), each.where, media=media.get(item, ""), caption_id=caption_id)
