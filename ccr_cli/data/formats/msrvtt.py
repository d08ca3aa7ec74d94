"""MSR-VTT's JSON of videos and sentences (`train_val_videodatainfo.json`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ccr_cli.data.formats.base import Record, once, read_json

_YOUTUBE = re.compile(r"(?:[?&]v=|youtu\.be/)([\w-]{11})(?![\w-])", re.ASCII)


def read(path: Path) -> Iterator[Record]:
    """Reads captions, in the order of the file; the group is the video of YouTube that the clip was cut from.

    Args:
        path: The file: `videos` with `video_id`, `split`, `url`, and `sentences` with `sen_id`, `video_id`, `caption`.

    Raises:
        ArtifactError: If the file is of another layout, an id is there twice, or a sentence is of no video.
    """
    content = read_json(path)
    videos: dict[str, tuple[str, str]] = {}
    names: set[str] = set()
    for video in content["videos"].each():
        split, url = video.get("split"), video.get("url")
        found = _YOUTUBE.search(url.text()) if url else None
        name = once(names, video["video_id"].name(), video)
        videos[name] = split.text() if split else "", f"youtube:{found[1]}" if found else ""
    seen: set[str] = set()
    for each in content["sentences"].each():
        item = each["video_id"].name()
        if item not in videos:
            raise each["video_id"].wrong(f"there is no video {item!r}")
        split_of, group = videos[item]
        number = each.get("sen_id")
        caption_id = once(seen, number.name(), number) if number else ""
        yield Record(item, each["caption"].text(), each.where, split=split_of, caption_id=caption_id, group=group)
