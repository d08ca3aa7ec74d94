"""A folder of pictures with their captions beside them: `a.jpg`, and `a.txt`, `a.en.txt` or `a.json`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ccr_cli.data.formats.base import NotUtf8, Record, caption_format, is_media, lines, read_json
from ccr_cli.data.formats.columns import LANG, match


@dataclass(frozen=True)
class Captioned:
    """The pictures and videos of a folder and the caption files beside them, relative to it, in order."""

    captions: dict[Path, list[tuple[Path, str]]]
    """By picture or video, the files of its captions with their languages (empty: not named)."""
    bare: list[Path]
    """Pictures and videos without captions."""
    lone: list[Path]
    """Caption files without a picture or a video."""


def captioned(folder: Path) -> Captioned:
    """Finds the pictures and videos below a folder and the captions beside them; hidden ones are left out."""
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    paths = [path for path in paths if not any(part.startswith(".") for part in path.parts)]
    media = [path for path in paths if is_media(path.name)]
    owners = {**{path.with_suffix(""): path for path in reversed(media)}, **{path: path for path in media}}
    captions: dict[Path, list[tuple[Path, str]]] = {}
    lone = []
    for path in paths:
        if path.suffix.lower() in (".txt", ".json"):
            about, lang = path.with_suffix(""), ""
            if about not in owners and LANG.fullmatch(about.suffix[1:]):
                about, lang = about.with_suffix(""), about.suffix[1:]
            if about in owners:
                captions.setdefault(owners[about], []).append((path, lang))
            else:
                lone.append(path)
    return Captioned(captions, [path for path in media if path not in captions], lone)


@caption_format
def folder(path: Path) -> Iterator[Record]:
    """Reads captions beside pictures: text, one caption per line; or JSON, a text, a list or an object with a text."""
    for medium, files in captioned(path).captions.items():
        for file, lang in files:
            for text, where in _texts(path / file, file):
                yield Record("", text, where, lang, media=medium.as_posix())


def _texts(path: Path, name: Path) -> Iterator[tuple[str, str]]:
    """Yields the captions of a file with their places; empty lines are skipped."""
    if path.suffix.lower() == ".json":
        content = read_json(path)
        if isinstance(content.value, dict):
            columns = match(list(content.value), {})
            if "text" not in columns:
                raise content.wrong(f"no key is known for the text (it has {', '.join(content.value) or 'none'})")
            content = content[columns["text"]]
        captions = content.each() if isinstance(content.value, list) else [content]
        yield from ((caption.text(), caption.where) for caption in captions)
        return
    try:
        numbered = list(lines(path))
    except NotUtf8:
        numbered = list(lines(path, "cp1252"))
    yield from ((text, f"{name.as_posix()}, line {number}") for number, text in numbered if text.strip())
