"""VATEX's JSON: a list of videos, each with English and Chinese captions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ccr_cli.data.formats.base import Record, once, read_json

INDEPENDENT = 5
"""Number of independent captions of a language; the others are translations of each other, in this order."""
_LANGS = {"enCap": "en", "chCap": "zh"}


def read(path: Path, *, sets: bool = False) -> Iterator[Record]:
    """Reads captions; k is the position in the list of their language.

    Args:
        path: The file: rows of `videoID`, `enCap`, `chCap`; the English file lacks `chCap`.
        sets: Name the caption sets: `independent` for k below 5, `parallel` for the others.

    Raises:
        ArtifactError: If the file has another layout, a video occurs twice, or has captions in neither language.
    """
    videos: set[str] = set()
    for video in read_json(path).each():
        item = once(videos, video["videoID"].name(), video)
        lists = [(lang, captions) for key, lang in _LANGS.items() if (captions := video.get(key))]
        if not lists:
            raise video.wrong(
                f"the video {item!r} has neither enCap nor chCap; this may be the file without annotations"
            )
        for lang, captions in lists:
            for k, caption in enumerate(captions.each()):
                chosen = ("independent" if k < INDEPENDENT else "parallel") if sets else ""
                yield Record(item, caption.text(), caption.where, lang=lang, k=k, caption_set=chosen)
