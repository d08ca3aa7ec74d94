"""A small collection with its own manifest and files, for tests to change."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ccr_cli.data import toml

FACTS = ("counts", "splits", "captions", "licence", "citation")


@dataclass
class Collection:
    """Facts and files; `write` puts both into a folder, with the hashes that fit."""

    about: dict[str, Any]
    variants: list[dict[str, Any]]
    files: list[dict[str, Any]]
    content: dict[str, bytes]
    """What lies at each path."""
    protocols: list[dict[str, Any]] = field(default_factory=list)
    ids: list[dict[str, str]] = field(default_factory=list)

    def write(self, folder: Path, *, hashes: bool = True) -> tuple[Path, Path]:
        """Writes manifest and files; returns the manifest's path and the folder of the files."""
        root = folder / "files"
        for name, data in self.content.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        files = [{**entry, **(known(entry, self.content) if hashes else {})} for entry in self.files]
        manifest = {**self.about, "ids": self.ids, "variants": self.variants, "files": files}
        manifest |= {"protocols": self.protocols}
        path = folder / f"{self.about['name']}.toml"
        path.write_text(toml.dumps({k: v for k, v in manifest.items() if v != []}), encoding="utf-8")
        return path, root


def known(entry: Mapping[str, Any], content: Mapping[str, bytes]) -> dict[str, Any]:
    """Bytes, lines and hash of a file that is there."""
    data = content.get(entry["path"])
    if data is None:
        return {}
    text = gzip.decompress(data) if entry["path"].endswith(".gz") else data
    count = text.count(b"\n") + (not text.endswith(b"\n"))
    digest = hashlib.sha256(data).hexdigest()
    return {"bytes": len(data), "lines": count, "sha256": digest, "evidence": "verified"}


def lines(*texts: str, end: str = "\n") -> bytes:
    """Lines of UTF-8."""
    return ("\n".join(texts) + end).encode()


def small() -> Collection:
    """Six pictures in three splits; English and German sentences (gzipped), Czech for the test, two machines.

    `task` has the German ones, `czech` test items with Czech captions by another list.
    """
    ids = {split: [f"{start + n}.jpg" for n in range(2)] for split, start in (("train", 10), ("val", 20), ("test", 30))}
    english = {split: [f"picture {i[:2]} in {split}" for i in names] for split, names in ids.items()}
    german = {split: [f"Bild {i[:2]} in {split}" for i in names] for split, names in ids.items()}
    content = {f"data/ids/{split}.txt": lines(*names) for split, names in ids.items()}
    files: list[dict[str, Any]] = [dict(path=path, role="ids") for path in content]
    for lang, texts in (("en", english), ("de", german)):
        for split in ids:
            path = f"data/raw/{split}.{lang}.gz"
            content[path] = gzip.compress(lines(*texts[split]), mtime=0)
            entry = dict(
                path=path, role="captions", format="parallel", split=split, lang=lang, caption_set="first", k=0
            )
            entry |= {"options": {"ids": f"data/ids/{split}.txt"}, "variants": ["task"]}
            files.append(entry)
    every = [(item, text) for split in ids for item, text in zip(ids[split], english[split], strict=True)]
    content["mt/one.txt"] = lines(*(f"{item}#zh1#0 {text} A" for item, text in every))
    files.append(dict(path="mt/one.txt", role="translations", format="hashtag", source="en", target="zh"))
    files[-1] |= {"engine": "one", "variants": ["task"]}
    content["czech/test.cs"] = lines("obraz 30", "obraz 31", end="")
    content["czech/test.en"] = lines("a picture 30", "a picture 31")
    for lang in ("cs", "en"):
        entry = dict(path=f"czech/test.{lang}", role="captions", format="parallel", split="test", lang=lang, k=0)
        files.append({**entry, "options": {"ids": "data/ids/test.txt"}, "variants": ["czech"]})
    items = {"train": 2, "val": 2, "test": 2}
    return Collection(
        about={
            "name": "small",
            "title": "Small",
            "kind": "image",
            "source_lang": "en",
            "query_langs": ["de"],
            "source_url": "https://example.org",
            "get": "Ask its makers.",
            "licence": "CC0-1.0",
            "citation": "Nobody. 2020.",
            "description": "Six pictures.",
            "quirks": ["They do not exist."],
            "id_space": ["flickr"],
            "media": "{id}",
            "evidence": {**dict.fromkeys(FACTS, "verified"), "licence": "documented"},
        },
        ids=[{"pattern": r"(?P<id>\d+)\.jpg", "space": "flickr"}],
        variants=[
            {
                "name": "task",
                "title": "German",
                "counts": {"items": items, "captions": {"en": 6, "de": 6}},
                "captions_per_item": {"en": 1, "de": 1},
                "parallel": {"first": "first"},
            },
            {"name": "czech", "title": "Czech", "query_langs": ["cs"], "counts": {"items": {"test": 2}}},
        ],
        files=files,
        content=content,
        protocols=[
            {
                "name": "small-test",
                "variants": ["task"],
                "split": "test",
                "captions": 1,
                "note": "Two pictures.",
                "evidence": "documented",
            }
        ],
    )
