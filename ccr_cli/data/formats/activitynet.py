"""ActivityNet Captions' JSON: the sentences of each video, joined to a paragraph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ccr_cli.data.formats.base import Record, read_json


def read(path: Path) -> Iterator[Record]:
    """Reads one caption a video: its sentences in their order, a space between two.

    Args:
        path: The file: `{"v_ID": {"sentences": [...], ...}, ...}`.

    Raises:
        ArtifactError: If the file is of another layout, or a video is there twice.
    """
    for item, video in read_json(path).entries():
        if not item.strip():
            raise video.wrong("an empty id")
        text = " ".join(sentence.text().strip() for sentence in video["sentences"].each())
        yield Record(item, text, video.where, k=0)
