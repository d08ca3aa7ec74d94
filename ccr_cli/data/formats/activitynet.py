"""ActivityNet Captions' JSON: the sentences of a video, joined into a paragraph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ccr_cli.data.formats.base import Record, read_json


def read(path: Path) -> Iterator[Record]:
    """Reads one caption per video: its sentences in order, joined by spaces.

    Args:
        path: The file: `{"v_ID": {"sentences": [...], ...}, ...}`.

    Raises:
        ArtifactError: If the file has another layout, or a video occurs twice.
    """
    for item, video in read_json(path).entries():
        if not item.strip():
            raise video.wrong("an empty id")
        text = " ".join(sentence.text().strip() for sentence in video["sentences"].each())
        yield Record(item, text, video.where, k=0)
