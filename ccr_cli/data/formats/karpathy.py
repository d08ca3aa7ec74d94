"""Karpathy's JSON of images with split and sentences (Flickr8K, Flickr30K, COCO)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ccr_cli.data.formats.base import Record, once, read_json


def read(path: Path, *, item: str = "filename") -> Iterator[Record]:
    """Reads captions as they were typed (`raw`); k is their place among the image's sentences.

    Args:
        path: The file: `images`, each with `filename`, `split`, `sentences`, and `filepath` in COCO's.
        item: Key of an image that is its id: filename, or cocoid.

    Raises:
        ArtifactError: If the file is of another layout, or an id is there twice.
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
