"""Which model translates a pair where none is named, and under which licence a model comes."""

from __future__ import annotations

import re
from pathlib import Path

from ccr_cli import hub
from ccr_cli.translators._languages import primary

FALLBACK = "facebook/m2m100_418M"
"""Where OPUS-MT has no model of the pair, or (English to Japanese) one that is measured on the Bible alone."""
_OPUS = """
en-ar en-bg en-cs en-da en-de en-es en-et en-fi en-fr en-hi en-hu en-id en-it en-nl en-ru en-sv en-uk en-vi en-zh
ar-en bg-en cs-en da-en de-en es-en et-en fi-en fr-en hi-en hu-en id-en it-en ja-en ko-en nl-en pl-en ru-en sv-en
tr-en uk-en vi-en zh-en de-es de-fr es-de es-fr fr-de fr-es
"""
OPUS_PAIRS = tuple(_OPUS.split())
"""Pairs for which `Helsinki-NLP/opus-mt-SOURCE-TARGET` is the default."""
_BY_NAME = {
    "nllb": "CC-BY-NC-4.0",
    "madlad": "Apache-2.0",
    "m2m100": "MIT",
    "opus-mt": "Apache-2.0 or CC-BY-4.0, see the model's card",
}


def default_model(source: str, target: str) -> str:
    """Returns the model for a pair: OPUS-MT where one is known to exist, else M2M100."""
    pair = f"{primary(source)}-{primary(target)}"
    return f"Helsinki-NLP/opus-mt-{pair}" if pair in OPUS_PAIRS else FALLBACK


def licence(model: str, folder: Path | None = None) -> str:
    """Returns the licence of a model: what its card says, else what is known of its name.

    Args:
        model: Its name on the hub, or its folder's.
        folder: Where it lies, with its card (README.md) if that was fetched with it.
    """
    if folder and (found := hub.licence(folder)):
        return found
    name = model.lower()
    return next((text for key, text in _BY_NAME.items() if key in name), "see the model's card")


def non_commercial(licence: str) -> bool:
    """Whether a licence forbids commercial use: CC-BY-NC and its kin."""
    return re.search(r"\bnc\b|non-?commercial", licence.lower()) is not None


def planned(model: str, revision: str, source: str, target: str) -> dict[str, str]:
    """Says which model would translate a pair; nothing is fetched or loaded.

    Returns:
        `model`, `revision`, `licence`, and `here`: yes, or no where the model would have to be fetched.
    """
    name = model or default_model(source, target)
    found = hub.find(name, revision)
    label = found.label if found else name
    return {
        "model": label,
        "revision": found.revision if found else revision,
        "licence": licence(label, found.folder if found else None),
        "here": "yes" if found else "no",
    }


def missing() -> tuple[str, str] | None:
    """Says that none of the default models is here and how to get one; None where one is."""
    usual = [FALLBACK, *(f"Helsinki-NLP/opus-mt-{pair}" for pair in OPUS_PAIRS)]
    if any(hub.missing(model) is None for model in usual):
        return None
    return "none of its default models is on this machine", f"hf download {FALLBACK}, or --set model=FOLDER"
