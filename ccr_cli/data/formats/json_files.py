"""The JSON files of collections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ccr_cli.data.formats.base import Record, caption_format, once, read_json

_YOUTUBE = re.compile(r"(?:[?&]v=|youtu\.be/)([\w-]{11})(?![\w-])", re.ASCII)
_VATEX_LANGS = {"enCap": "en", "chCap": "zh"}
INDEPENDENT = 5
"""Number of VATEX's independent captions of a language; the others are translations of each other, in this order."""


@caption_format
def karpathy(path: Path, *, item: str = "filename") -> Iterator[Record]:
    """Reads Karpathy's `images` with `filename`, `split`, `sentences`, and `filepath` in COCO's; k is the position.

    Options:
        item: Key of an image's id: filename or cocoid.
    """
    items: set[str] = set()
    sentences: set[str] = set()
    for image in read_json(path)["images"].each():
        name, split = once(items, image[item]), image["split"].text()
        media = "/".join(filter(None, (image.text_of("filepath"), image["filename"].text())))
        for k, sentence in enumerate(image["sentences"].each()):
            caption_id = once(sentences, sentence.get("sentid"))
            text, where = sentence["raw"].text(), sentence.where
            yield Record(name, text, where, k=k, split=split, media=media, caption_id=caption_id)


@caption_format
def coco(path: Path, *, text: str = "caption") -> Iterator[Record]:
    """Reads COCO's and STAIR's `annotations` with `id`, `image_id` and a caption; `images` have `id` and `file_name`.

    Options:
        text: Key of an annotation's text: caption, or STAIR's tokenized_caption.
    """
    content = read_json(path)
    image_list = content.get("images")
    names: set[str] = set()
    media = {
        once(names, image["id"]): image.text_of("file_name") for image in (image_list.each() if image_list else ())
    }
    ids: set[str] = set()
    for caption in content["annotations"].each():
        item = caption["image_id"].name()
        if image_list and item not in media:
            raise caption["image_id"].wrong(f"there is no image {item!r}")
        caption_id = once(ids, caption["id"])
        yield Record(item, caption[text].text(), caption.where, media=media.get(item, ""), caption_id=caption_id)


@caption_format
def vatex(path: Path, *, sets: bool = False) -> Iterator[Record]:
    """Reads VATEX's `videoID`, `enCap`, `chCap`; k is the position. The English file lacks `chCap`.

    Options:
        sets: Name the caption sets: `independent` for k below 5, `parallel` for the others.
    """
    videos: set[str] = set()
    for video in read_json(path).each():
        item = once(videos, video["videoID"])
        lists = [(lang, captions) for key, lang in _VATEX_LANGS.items() if (captions := video.get(key))]
        if not lists:
            raise video.wrong(f"the video {item!r} has neither enCap nor chCap: is this the file without annotations?")
        for lang, captions in lists:
            for k, caption in enumerate(captions.each()):
                chosen = ("independent" if k < INDEPENDENT else "parallel") if sets else ""
                yield Record(item, caption.text(), caption.where, lang=lang, k=k, caption_set=chosen)


@caption_format
def msrvtt(path: Path) -> Iterator[Record]:
    """Reads MSR-VTT: `videos` (`video_id`, `split`, `url`: group), `sentences` (`sen_id`, `video_id`, `caption`)."""
    content = read_json(path)
    names: set[str] = set()
    videos: dict[str, tuple[str, str]] = {}
    for video in content["videos"].each():
        match = _YOUTUBE.search(video.text_of("url"))
        videos[once(names, video["video_id"])] = video.text_of("split"), f"youtube:{match[1]}" if match else ""
    sentences: set[str] = set()
    for sentence in content["sentences"].each():
        item = sentence["video_id"].name()
        if item not in videos:
            raise sentence["video_id"].wrong(f"there is no video {item!r}")
        split, group = videos[item]
        caption_id, text = once(sentences, sentence.get("sen_id")), sentence["caption"].text()
        yield Record(item, text, sentence.where, split=split, caption_id=caption_id, group=group)


@caption_format
def activitynet(path: Path) -> Iterator[Record]:
    """Reads ActivityNet Captions, `{"v_ID": {"sentences": [...]}}`: one caption per video, its sentences joined."""
    for item, video in read_json(path).entries():
        if not item.strip():
            raise video.wrong("an empty id")
        yield Record(
            item, " ".join(sentence.text().strip() for sentence in video["sentences"].each()), video.where, k=0
        )


@caption_format
def didemo(path: Path) -> Iterator[Record]:
    """Reads DiDeMo's `annotation_id`, `video`, `description`: one caption per video, its descriptions joined."""
    annotations: set[str] = set()
    texts: dict[str, list[str]] = {}
    where: dict[str, str] = {}
    for row in read_json(path).each():
        once(annotations, row.get("annotation_id"))
        item = row["video"].name()
        texts.setdefault(item, []).append(row["description"].text().strip())
        where.setdefault(item, row.where)
    for item, parts in texts.items():
        yield Record(item, " ".join(parts), where[item], k=0, media=item)
