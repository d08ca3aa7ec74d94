"""Karpathy's JSON of images with split and sentences (Flickr8K, Flickr30K, COCO)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ccr_cli.data.formats.base import Record, once, read_json


def read(path: Path, *, item: str = "filename") -> Iterator[Record]:
    """Reads the raw captions; k is the position among the image's sentences.

    Args:
        path: The file: `images` with `filename`, `split`, `sentences`, and `filepath` in COCO's.
        item: Key of an image's id: filename or cocoid.

    Raises:
        ArtifactError: If the file has another layout, or an id occurs twice.
    """
    items: set[str] = set()
    sentences: set[str] = set()
    for image in read_json(path)["images"].each():
        name = once(items, image[item].name(), image)
        folder, file = image.get("filepath"), image["filename"].text()
        media = f"{folder.text()}/{file}" if folder else file
        split = image["split"].text()
        for k, sentence in enumerate(image["sentences"].each()):
            number = sentence.get("sentid")
            caption_id = once(sentences, number.name(), number) if number else ""
            yield Record(
                name, sentence["raw"].text(), sentence.where, k=k, split=split, media=media, caption_id=caption_id
            )
