"""Finds the translation that a list of pairs is about: the one with most of the judged texts."""

from collections.abc import Iterable

import pandas as pd

from ccr_cli.artifacts import base, translation
from ccr_cli.data.pairs_file import comparable


def texts_of(frame: pd.DataFrame, column: str = "text") -> list[tuple[str, str]]:
    """Ids of source captions with the texts of a column, written as in lists of pairs."""
    return list(zip(frame["source_caption_id"], map(comparable, frame[column]), strict=True))


def forward_texts(frame: pd.DataFrame) -> set[tuple[str, str]]:
    """The source captions of a translation's table, with their translations."""
    return set(texts_of(translation.translated(frame)))


def judged(translations: Iterable[base.Artifact], rows: pd.DataFrame) -> set[str]:
    """The ids of the translations with most of the texts in a list; if equal, originals instead of repaired ones.

    So new corrections are added to those that the list's translation already has.
    """
    texts = set(texts_of(rows, "translation")) if {"source_caption_id", "translation"} <= {*rows} else set()
    order = {
        a.id: (len(forward_texts(translation.read(a)) & texts) if texts else 0, "only" not in a.request)
        for a in translations
    }
    return {id_ for id_, place in order.items() if place == max(order.values())}
