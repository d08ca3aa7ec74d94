"""Translate the captions of the bundled emoji data sets with Apertium and record the results.

    apt-get install apertium apertium-eng-spa apertium-eng-cat apertium-fra-cat
    python data_manifests/build/record_translations.py

writes ``translations/apertium-<source>-<target>.tsv`` (source sentence, target sentence) into ``noto-emoji/``
and ``twemoji/`` and lists them in the manifests, with the versions of the packages and the command. Forward
tables hold the English captions of all splits; tables into English hold the back-translation of those and the
human captions, which are queries. French goes through Catalan, since there is no direct pair with English.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from apertium_pipe import command, translate
from emoji_about import ABOUT, LISTS
from folder_format import TRANSLATION_COLUMNS, read_table, write_manifest, write_table


class Pair(NamedTuple):
    """A language pair: the modes that it goes through and the packages that carry them."""

    source: str
    target: str
    modes: tuple[str, ...]
    packages: tuple[str, ...]

    @property
    def file(self) -> str:
        """The table's path inside the data set."""
        return f"translations/apertium-{self.source}-{self.target}.tsv"


_SPANISH = ("apertium", "apertium-eng-spa")
_FRENCH = ("apertium", "apertium-eng-cat", "apertium-fra-cat")
#: (from English, back into English)
ROUND_TRIPS = (
    (Pair("en", "es", ("eng-spa",), _SPANISH), Pair("es", "en", ("spa-eng",), _SPANISH)),
    (Pair("en", "fr", ("eng-cat", "cat-fra"), _FRENCH), Pair("fr", "en", ("fra-cat", "cat-eng"), _FRENCH)),
)


def package_version(package: str) -> str:
    """Return the version of an installed Debian package."""
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, encoding="utf-8", check=True
    )
    return done.stdout.strip()


def unique(texts: list[str]) -> list[str]:
    """Return the texts once each, by first appearance."""
    return list(dict.fromkeys(texts))


def captions(folder: Path, lang: str) -> list[str]:
    """Return the captions of one language, once each, in the order of the table."""
    return unique([row["text"] for row in read_table(folder / "captions.tsv") if row["lang"] == lang])


def translate_pair(sentences: list[str], pair: Pair) -> dict[str, str]:
    """Return the translation of every sentence, and say how long it took."""
    started = time.monotonic()
    found = dict(zip(sentences, translate(sentences, list(pair.modes)), strict=True))
    took = time.monotonic() - started
    print(f"{pair.source}-{pair.target}: {len(sentences)} sentences in {took:.1f} s", file=sys.stderr)
    return found


def entry(pair: Pair) -> dict[str, str]:
    """Describe a table for the manifest."""
    return {
        "source": pair.source,
        "target": pair.target,
        "engine": "apertium",
        "version": "; ".join(f"{package} {package_version(package)}" for package in pair.packages),
        "command": " | ".join(" ".join(command(mode)) for mode in pair.modes),
        "file": pair.file,
    }


def record(root: Path, names: tuple[str, ...] = ("noto-emoji", "twemoji")) -> None:
    """Record the tables of the data sets; the first one's captions contain those of the others."""
    tables: dict[str, dict[str, str]] = {}
    for there, back in ROUND_TRIPS:
        forward = tables[there.file] = translate_pair(captions(root / names[0], "en"), there)
        sources = unique([*forward.values(), *captions(root / names[0], there.target)])
        tables[back.file] = translate_pair(sources, back)
    for name in names:
        folder = root / name
        for there, back in ROUND_TRIPS:
            english = captions(folder, "en")
            forward = {text: tables[there.file][text] for text in english}
            into_english = unique([*forward.values(), *captions(folder, there.target)])
            write_table(folder / there.file, TRANSLATION_COLUMNS, forward.items())
            write_table(
                folder / back.file,
                TRANSLATION_COLUMNS,
                [(text, tables[back.file][text]) for text in into_english],
            )
        entries = [entry(pair) for trip in ROUND_TRIPS for pair in trip]
        write_manifest(folder, ABOUT[name], LISTS[name], entries)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent, help="the data sets")
    record(parser.parse_args().out)


if __name__ == "__main__":
    main()
