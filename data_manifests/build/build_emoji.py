r"""Rebuild the bundled emoji data sets, byte for byte, from four npm packages.

    npm pack emoji-datasource-google@16.0.0 emoji-datasource-twitter@16.0.0 \
             cldr-annotations-full@48.2.0 cldr-annotations-derived-full@48.2.0
    python data_manifests/build/build_emoji.py --packages . --out data_manifests

writes ``noto-emoji/`` and ``twemoji/``. Recorded translations that lie in a folder stay and are listed in its
new manifest; ``record_translations.py`` makes them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

from captions import Annotation, captions_of
from emoji_about import ABOUT, GROUPS, LISTS, PACKAGES, Package
from emoji_groups import group_of, item_id, split_of
from folder_format import (
    CAPTION_COLUMNS,
    ITEM_COLUMNS,
    recorded_translations,
    sha256,
    write_manifest,
    write_table,
)

SOURCE_LANG = "en"
QUERY_LANGS = ("de", "fr", "es", "cs", "zh", "ja")
#: Flags and skin tones on their own; skin-tone variants are not items of emoji.json in the first place.
LEFT_OUT_CATEGORIES = frozenset({"Flags", "Component"})
LEFT_OUT_SUBCATEGORIES = frozenset({"keycap"})
IMAGES = {"noto-emoji": "google", "twemoji": "twitter"}


def read_members(packages: Path, package: Package, wanted: frozenset[str] | None = None) -> dict[str, bytes]:
    """Read files of an npm package straight from its archive, after checking the archive's digest.

    Args:
        packages: The folder of the archives.
        package: Which one.
        wanted: The paths inside the package to read; all regular files if None.

    Raises:
        SystemExit: The archive is missing or not the one that this script was written for.
    """
    path = packages / package.archive
    if not path.exists():
        sys.exit(f"{path} is missing; fetch it with: npm pack {package.name}@{package.version}")
    if sha256(path.read_bytes()) != package.sha256:
        sys.exit(f"{path} is not the archive with sha256 {package.sha256}")
    contents = {}
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            name = member.name.removeprefix("package/")
            if member.isfile() and (wanted is None or name in wanted):
                stream = archive.extractfile(member)
                assert stream is not None, "a regular file has content"
                contents[name] = stream.read()
    return contents


def text_key(identifier: str) -> str:
    """Return the emoji itself without presentation selectors, the key under which CLDR is looked up."""
    return "".join(chr(int(code, 16)) for code in identifier.split("-") if code != "fe0f")


def read_annotations(packages: Path) -> dict[str, dict[str, Annotation]]:
    """Return CLDR's names and keywords by language, then by emoji."""
    langs = (SOURCE_LANG, *QUERY_LANGS)
    found: dict[str, dict[str, Annotation]] = {lang: {} for lang in langs}
    for package, folder in (("cldr-derived", "annotationsDerived"), ("cldr", "annotations")):
        paths = {f"{folder}/{lang}/annotations.json": lang for lang in langs}
        for path, data in read_members(packages, PACKAGES[package], frozenset(paths)).items():
            for emoji, entry in json.loads(data)[folder]["annotations"].items():
                if "tts" in entry:
                    annotation = Annotation(entry["tts"][0], entry.get("default", []))
                    found[paths[path]][emoji.replace("\ufe0f", "")] = annotation
    return found


def chosen(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the emoji that become items, in the order of Unicode's own list."""
    kept = [
        entry
        for entry in entries
        if entry["category"] not in LEFT_OUT_CATEGORIES and entry["subcategory"] not in LEFT_OUT_SUBCATEGORIES
    ]
    return sorted(kept, key=lambda entry: (entry["sort_order"], entry["unified"]))


def splits(identifiers: list[str]) -> dict[str, tuple[str, str]]:
    """Return (group, split) by item."""
    groups = {identifier: group_of(identifier) for identifier in identifiers}
    sizes: dict[str, int] = {}
    for group in groups.values():
        sizes[group] = sizes.get(group, 0) + 1
    return {identifier: (group, split_of(group, sizes[group])) for identifier, group in groups.items()}


def write_media(folder: Path, pictures: dict[str, bytes]) -> None:
    """Make ``media/`` hold exactly these pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in {path.name for path in folder.iterdir()} - set(pictures):
        (folder / stale).unlink()
    for name, data in pictures.items():
        (folder / name).write_bytes(data)


def build(packages: Path, out: Path) -> None:
    """Build both folders under ``out``."""
    annotations = read_annotations(packages)
    split_by_item: dict[str, tuple[str, str]] = {}
    for name, vendor in IMAGES.items():
        members = read_members(packages, PACKAGES[vendor])
        entries = chosen(json.loads(members["emoji.json"]))
        sources = {item_id(entry["unified"]): f"img/{vendor}/64/{entry['image']}" for entry in entries}
        if not split_by_item:
            split_by_item = splits(list(sources))
        label = {item_id(entry["unified"]): str(GROUPS.index(entry["category"])) for entry in entries}
        drawn = [item for item, source in sources.items() if source in members]
        items = [item for item in drawn if name != "twemoji" or split_by_item[item][1] == "test"]
        rows = []
        for item in items:
            group, split = split_by_item[item]
            rows.append((item, split, "image", f"{item}.png", label[item], group))
        captions = {
            lang: captions_of({item: by_emoji[text_key(item)] for item in sources}, lang)
            for lang, by_emoji in annotations.items()
        }
        caption_rows = [
            (f"{item}#{lang}#{k}", item, lang, str(k), text, caption_set)
            for item in items
            for lang, by_item in captions.items()
            if lang == SOURCE_LANG or split_by_item[item][1] != "train"
            for k, (text, caption_set) in enumerate(by_item[item])
        ]
        folder = out / name
        write_media(folder / "media", {f"{item}.png": members[sources[item]] for item in items})
        write_table(folder / "items.tsv", ITEM_COLUMNS, rows)
        write_table(folder / "captions.tsv", CAPTION_COLUMNS, caption_rows)
        write_manifest(folder, ABOUT[name], LISTS[name], recorded_translations(folder))
        print(f"{folder}: {len(rows)} items, {len(caption_rows)} captions", file=sys.stderr)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--packages", type=Path, required=True, help="folder with the four .tgz files")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent, help="where to write")
    arguments = parser.parse_args()
    build(arguments.packages, arguments.out)


if __name__ == "__main__":
    main()
