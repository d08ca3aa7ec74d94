"""MSR-VTT's JSON of videos and sentences (`train_val_videodatainfo.json`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ccr_cli.data.formats.base import Record, once, read_json

_YOUTUBE = re.compile(r"(?:[?&]v=|youtu\.be/)([\w-]{11})(?![\w-])", re.ASCII)


def read(path: Path) -> Iterator[Record]:
    """Reads captions in the order of the file; the group is the YouTube video that the clip was cut from.

    Args:
        path: The file: `videos` with `video_id`, `split`, `url`, and `sentences` with `sen_id`, `video_id`, `caption`.

    Raises:
        ArtifactError: If the file has another layout, an id occurs twice, or a sentence belongs to no video.
    """
    content = read_json(path)
    videos: dict[str, tuple[str, str]] = {}
    names: set[str] = set()
    for video in content["videos"].each():
        split, url = video.get("split"), video.get("url")
        match = _YOUTUBE.search(url.text()) if url else None
        name = once(names, video["video_id"].name(), video)
        videos[name] = split.text() if split else "", f"youtube:{match[1]}" if match else ""
    sentences: set[str] = set()
    for sentence in content["sentences"].each():
        item = sentence["video_id"].name()
        if item not in videos:
            raise sentence["video_id"].wrong(f"there is no video {item!r}")
        split_of, group = videos[item]
        number = sentence.get("sen_id")
        caption_id = once(sentences, number.name(), number) if number else ""
        text = sentence["caption"].text()
        yield Record(item, text, sentence.where, split=split_of, caption_id=caption_id, group=group)
