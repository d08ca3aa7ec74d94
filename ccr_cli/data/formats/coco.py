"""COCO's JSON of annotations by image id (COCO captions, STAIR)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ccr_cli.data.formats.base import Record, once, read_json


def read(path: Path, *, text: str = "caption") -> Iterator[Record]:
    """Reads captions; the item is the number of its image.

    Args:
        path: The file: `annotations` with `id`, `image_id` and a caption, and `images` with `id` and `file_name`.
        text: Key of an annotation's text: caption, or STAIR's tokenized_caption.

    Raises:
        ArtifactError: If the file has another layout, an id occurs twice, or a caption belongs to no image.
    """
    content = read_json(path)
    image_list = content.get("images")
    media: dict[str, str] = {}
    images: set[str] = set()
    for image in image_list.each() if image_list else ():
        file = image.get("file_name")
        media[once(images, image["id"].name(), image)] = file.text() if file else ""
    ids: set[str] = set()
    for caption in content["annotations"].each():
        item = caption["image_id"].name()
        if image_list and item not in images:
            raise caption["image_id"].wrong(f"there is no image {item!r}")
        caption_id = once(ids, caption["id"].name(), caption)
        yield Record(item, caption[text].text(), caption.where, media=media.get(item, ""), caption_id=caption_id)
