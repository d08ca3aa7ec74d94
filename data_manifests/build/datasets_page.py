"""Write docs/datasets.md out of the manifests of collections: python data_manifests/build/datasets_page.py."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path, PurePosixPath

from ccr_cli.data.collections import FileSpec, Variant, variants

ROOT = Path(__file__).resolve().parents[2]
MOST_FILES = 9
HEAD = """# Collections

What `ccr data import NAME --root DIR` knows: the benchmarks of the field, out of their official files. ccr ships no
line of them; it ships these facts, and compares your files with them. This page is made of `data_manifests/*.toml`.

```sh
ccr data list
ccr data show multi30k
ccr data verify multi30k --root DIR
ccr data import multi30k --root DIR
```

A fact is **verified** if the official bytes were read or a script was run on them, **documented** if a paper, a README
or others' code says so, and **from memory** if neither. Numbers from memory never refuse an import; they warn. How
files are checked, what `--allow-partial` does and how leaks are found is on [the page of data](data.md#collections);
what the keys of a manifest mean, on [that of the format](dataset-format.md#manifests-of-collections).

"""


def page() -> str:
    """The page as a text."""
    found = [list(group) for _, group in groupby(variants().values(), key=lambda variant: variant.collection)]
    return HEAD + "\n".join([*_overview(found), *(line for each in found for line in _section(each))]) + "\n"


def _overview(found: Iterable[list[Variant]]) -> Iterator[str]:
    yield "| name | what | languages | items: train, val, test | numbers |"
    yield "|---|---|---|---|---|"
    for each in found:
        first = each[0]
        langs = " ".join(first.langs) if len(first.langs) < 12 else f"{len(first.langs)} languages"
        title = f"[{first.about['title']}](#{_anchor(str(first.about['title']))})"
        yield f"| `{first.name}` | {title} | {langs} | {_items(first)} | {_said(first.evidence['counts'])} |"
    yield ""


def _section(each: list[Variant]) -> Iterator[str]:
    first = each[0]
    about = first.about
    yield from (f"## {about['title']}", str(about["description"]), "")
    yield from (f"**Get it.** {about['get']}", "")
    yield "| import | which | languages | items: train, val, test | captions |"
    yield "|---|---|---|---|---|"
    for variant in each:
        langs = " ".join(variant.langs) if len(variant.langs) < 12 else f"{len(variant.langs)} languages"
        counted = variant.counts.get("captions", {})
        captions = ", ".join(f"{lang} {number:,}" for lang, number in counted.items()) or "-"
        if len(set(counted.values())) == 1 and len(counted) > 2:
            captions = f"{next(iter(counted.values())):,} each"
        yield f"| `{variant.name}` | {variant.title} | {langs} | {_items(variant)} | {captions} |"
    yield ""
    yield ", ".join(f"{fact} {_said(value)}" for fact, value in first.evidence.items()).capitalize() + "."
    yield ""
    protocols = {str(protocol["name"]): protocol for variant in each for protocol in variant.protocols}
    for name, protocol in protocols.items():
        yield f"- Protocol `{name}`: {protocol['note']} ({_said(str(protocol['evidence']))})"
    yield f"- {_files(each)}"
    yield f"- Licence: {about['licence']}"
    yield f"- Cite: {about['citation']}"
    yield f"- From: {about['source_url']}"
    yield from (f"- {quirk}" for quirk in about.get("quirks", []))
    yield ""


def _items(variant: Variant) -> str:
    items = variant.counts.get("items", {})
    return ", ".join(f"{items[split]:,}" if split in items else "-" for split in ("train", "val", "test"))


def _said(evidence: str) -> str:
    return "from memory" if evidence == "memory" else evidence


def _files(each: list[Variant]) -> str:
    specs: dict[str, FileSpec] = {spec.path: spec for variant in each for spec in variant.files}
    hashed = sum(bool(spec.sha256) for spec in specs.values())
    known = f"; {hashed} with a hash" if hashed and hashed < len(specs) else "; each with its hash" if hashed else ""
    if len(specs) <= MOST_FILES:
        shown = ", ".join(f"`{path}`" for path in specs)
    else:
        folders = dict.fromkeys(PurePosixPath(path).parent.as_posix() for path in specs)
        shown = f"{len(specs)} in {', '.join(f'`{folder}`' for folder in folders)}"
    return f"Files: {shown}{known}."


def _anchor(title: str) -> str:
    kept = "".join(char for char in title.lower() if char.isalnum() or char in "-_ ")
    return kept.strip().replace(" ", "-")


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "datasets.md")
    options = parser.parse_args()
    options.out.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
