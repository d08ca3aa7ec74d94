"""VATEX's JSON: a list of videos, each with English and Chinese captions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ccr_cli.data.formats.base import Record, once, read_json

INDEPENDENT = 5
"""So many captions of a language stand for themselves; the others are translations of each other, in this order."""
_LANGS = {"enCap": "en", "chCap": "zh"}


def read(path: Path, *, sets: bool = False) -> Iterator[Record]:
    """Reads captions; k is their place in the list of their language.

    Args:
        path: The file: rows of `videoID`, `enCap`, `chCap`; in the English one `chCap` is missing.
        sets: Name the caption sets: `independent` for k below 5, `parallel` for the others.

    Raises:
        ArtifactError: If the file is of another layout, a video is there twice, or has captions of neither language.
    """
    seen: set[str] = set()
    for video in read_json(path).each():
        item = once(seen, video["videoID"].name(), video)
        lists = [(lang, found) for key, lang in _LANGS.items() if (found := video.get(key))]
        if not lists:
            raise video.wrong(f"the video {item!r} has neither enCap nor chCap; is this the file without annotations?")
        for lang, captions in lists:
            for k, caption in enumerate(captions.each()):
                chosen = ("independent" if k < INDEPENDENT else "parallel") if sets else ""
                yield Record(item, caption.text(), caption.where, lang=lang, k=k, caption_set=chosen)
