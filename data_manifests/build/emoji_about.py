"""What the manifests of the two emoji data sets say, and where their content comes from."""

from __future__ import annotations

from typing import Any, NamedTuple


class Package(NamedTuple):
    """An npm package, pinned."""

    name: str
    version: str
    sha256: str

    @property
    def archive(self) -> str:
        """The file name that ``npm pack`` gives it."""
        return f"{self.name}-{self.version}.tgz"


PACKAGES = {
    "google": Package(
        "emoji-datasource-google",
        "16.0.0",
        "fb5fd131b362aab7a55542d2a147a79708cce0a8b1c1bbacd470172708b5c438",
    ),
    "twitter": Package(
        "emoji-datasource-twitter",
        "16.0.0",
        "f64a530c63bca463bd8317fdc4615ce63a53a0c65018e4ce2d848aaba7a28877",
    ),
    "cldr": Package(
        "cldr-annotations-full", "48.2.0", "28576e51225deb51e3ddd734b0f824a0079682cb5d8c27faa9f68149317a14d1"
    ),
    "cldr-derived": Package(
        "cldr-annotations-derived-full",
        "48.2.0",
        "4be946ff5815f806ec78b50363d577a769f2fbfb90c6380a44e161a92436996e",
    ),
}

#: Unicode's groups of emoji in the order of its list; an item's label is the place of its group here.
GROUPS = (
    "Smileys & Emotion",
    "People & Body",
    "Animals & Nature",
    "Food & Drink",
    "Travel & Places",
    "Activities",
    "Objects",
    "Symbols",
    "Flags",
)

_CAPTIONS = (
    "Captions: short names and keywords of Unicode CLDR 48.2, labels: groups of Unicode Emoji 16.0, "
    "(c) Unicode, Inc., under the Unicode License v3; keywords joined to lists, white space normalised."
)
_NOTO = "Images: Noto Emoji, (c) Google LLC, under the Apache License 2.0."
_TWEMOJI = (
    "Images: Twemoji, (c) Twitter, Inc and other contributors (https://github.com/jdecked/twemoji), "
    "under CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/); 64-pixel PNG renderings as packaged "
    "by emoji-data (https://github.com/iamcal/emoji-data), file names changed."
)
_TEXT_QUIRKS = [
    "English is the only source of training captions; de, fr, es, cs, zh (simplified) and ja are human "
    "text, for validation and test items only, and not translations of the English captions.",
    "Caption 0 of an item is its CLDR short name (caption_set short-name); the others are its keywords, "
    "without the short name, as one list or as two of every other keyword (caption_set keywords). A list "
    "of one keyword, one that repeats the short name's words, and one that another item has too are left "
    "out.",
    "Short names are unique in every language.",
    "Keywords stand in the order of CLDR, which sorts them; lists are joined by ', ', in zh and ja by U+3001.",
    "Recorded translations are what Apertium printed, mistakes, untranslated words and capital letters "
    "included: the noise of machine translation is genuine. Sentences of a table went in together, with a "
    "blank line between them; French goes through Catalan.",
]
_IMAGE_QUIRKS = [
    "PNG files are copied byte for byte; modes are mixed (RGBA, LA, palette) and backgrounds "
    "transparent: composite on white.",
    "Flags, key-caps and skin-tone variants are left out.",
    "The label of an item is its group in Unicode's list of emoji, by its place in 'labels'; nothing is a flag.",
    "Groups join the variants of one concept (gender, skin, hair, direction, colour of an animal or a "
    "plant) and pictures that are drawn alike; groups of more than 8 items (families, adults' hair, "
    "clock faces) are training data.",
]

ABOUT: dict[str, dict[str, Any]] = {
    "noto-emoji": {
        "name": "noto-emoji",
        "title": "Noto Emoji with Unicode CLDR names and keywords",
        "kind": "image",
        "source_lang": "en",
        "query_langs": ["de", "fr", "es", "cs", "zh", "ja"],
        "labels": list(GROUPS),
        "default_encoder": "efficientnet-lite0",
        "id_space": "unicode-emoji",
        "licence": "Apache-2.0 AND Unicode-3.0",
        "attribution": f"{_NOTO} {_CAPTIONS}",
        "citation": "Google LLC, Noto Emoji; The Unicode Consortium, Unicode CLDR 48.2, character annotations.",
        "source_url": "https://github.com/googlefonts/noto-emoji",
        "description": "Pictures of 64 pixels, each with a short name and keyword lists that people "
        "wrote in seven languages, and with Apertium's translations of the English ones into Spanish "
        "and French.",
        "quirks": [*_IMAGE_QUIRKS, *_TEXT_QUIRKS],
    },
    "twemoji": {
        "name": "twemoji",
        "title": "Twemoji: the test concepts of noto-emoji, drawn by others",
        "kind": "image",
        "source_lang": "en",
        "query_langs": ["de", "fr", "es", "cs", "zh", "ja"],
        "labels": list(GROUPS),
        "default_encoder": "efficientnet-lite0",
        "id_space": "unicode-emoji",
        "licence": "CC-BY-4.0 AND Unicode-3.0",
        "attribution": f"{_TWEMOJI} {_CAPTIONS}",
        "citation": "Twitter, Inc and other contributors, Twemoji; The Unicode Consortium, Unicode CLDR "
        "48.2, character annotations.",
        "source_url": "https://github.com/jdecked/twemoji",
        "description": "The target of zero-shot evaluation: the concepts of noto-emoji's test split, all "
        "of them test items here, in another style of drawing.",
        "quirks": [
            "The captions are those of noto-emoji's test split, word for word: what changes is the drawing.",
            *_IMAGE_QUIRKS,
            *_TEXT_QUIRKS,
        ],
    },
}

_UNICODE = {
    "what": "captions and groups; captions.tsv, the labels of items.tsv and the sources of translations/",
    "licence": "Unicode-3.0",
    "file": "LICENSES/Unicode-3.0.txt",
}
_LICENCES = {
    "noto-emoji": {"what": "images; media/", "licence": "Apache-2.0", "file": "LICENSES/Apache-2.0.txt"},
    "twemoji": {"what": "images; media/", "licence": "CC-BY-4.0", "file": "LICENSES/CC-BY-4.0.txt"},
}


def _sources(*keys: str) -> list[dict[str, Any]]:
    return [
        {
            "package": f"npm:{PACKAGES[key].name}",
            "version": PACKAGES[key].version,
            "sha256": PACKAGES[key].sha256,
        }
        for key in keys
    ]


#: The arrays of tables of each manifest besides files and translations.
LISTS: dict[str, dict[str, list[dict[str, Any]]]] = {
    "noto-emoji": {
        "licences": [_LICENCES["noto-emoji"], _UNICODE],
        "sources": _sources("google", "cldr", "cldr-derived"),
    },
    "twemoji": {
        "licences": [_LICENCES["twemoji"], _UNICODE],
        "sources": _sources("twitter", "cldr", "cldr-derived"),
    },
}
