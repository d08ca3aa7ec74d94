"""Write docs/datasets.md out of the manifests of collections: python data_manifests/build/datasets_page.py."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from ccr_cli.data.collections import Variant, variants

ROOT = Path(__file__).resolve().parents[2]
HEAD = """# Collections

The benchmarks that `ccr data import NAME --root DIR` reads from their official files. ccr ships these facts and none
of the data, and checks your files against them; `ccr data describe NAME` has the files, the protocols and the citation.
`data_manifests/build/datasets_page.py` makes this page from `data_manifests/*.toml`.

The table rates each fact: **verified** (the official bytes were read or a script was run on them), **documented** (by
a paper, a README or published code), or from **memory**, which only causes warnings. See [data](data.md#collections)
for checks and leaks.

"""


def page() -> str:
    """The page as a text."""
    groups = [list(group) for _, group in groupby(variants().values(), key=lambda variant: variant.collection)]
    return HEAD + "\n".join([*_overview(groups), *(line for group in groups for line in _section(group))]) + "\n"


def _overview(groups: Sequence[list[Variant]]) -> Iterator[str]:
    facts = list(groups[0][0].evidence)
    yield from _row("name", "collection", *facts)
    yield from _row(*["---"] * (2 + len(facts)))
    for group in groups:
        first = group[0]
        title = f"[{first.about['title']}](#{_anchor(str(first.about['title']))})"
        yield from _row(f"`{first.name}`", title, *(first.evidence[fact] for fact in facts))
    yield ""


def _section(group: list[Variant]) -> Iterator[str]:
    first = group[0]
    about = first.about
    yield from (f"## {about['title']}", f"{about['description']} **Get it.** {about['get']}", "")
    yield from _row("import", "variant", "languages", "items: train, val, test", "captions")
    yield from _row(*["---"] * 5)
    for variant in group:
        langs = " ".join(variant.langs) if len(variant.langs) < 12 else f"{len(variant.langs)} languages"
        counted = variant.counts.get("captions", {})
        captions = ", ".join(f"{lang} {number:,}" for lang, number in counted.items()) or "-"
        if len(set(counted.values())) == 1 and len(counted) > 2:
            captions = f"{next(iter(counted.values())):,} each"
        yield from _row(f"`{variant.name}`", variant.title, langs, _items(variant), captions)
    yield ""
    if protocols := dict.fromkeys(f"`{protocol['name']}`" for variant in group for protocol in variant.protocols):
        yield f"- Protocols: {', '.join(protocols)}"
    yield f"- Licence: {about['licence']}"
    yield f"- Source: {about['source_url']}"
    yield from (f"- {quirk}" for quirk in about.get("quirks", []))
    yield ""


def _row(*cells: str) -> Iterator[str]:
    yield f"|{'|'.join(cells)}|"


def _items(variant: Variant) -> str:
    items = variant.counts.get("items", {})
    return ", ".join(f"{items[split]:,}" if split in items else "-" for split in ("train", "val", "test"))


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
