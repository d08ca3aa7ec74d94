"""Searches as a report shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SearchResult:
    """One result of a search, the best first."""

    item_id: str
    caption: str
    """In the source language."""
    similarity: float
    image: Path | None = None
    correct: bool = False
    """Whether it is an item that the query describes."""
    lang: str = ""
    """Of the caption, where it was looked for."""
    gloss: str | None = None
    """A caption of the item in the source language of the data, for readers."""


@dataclass(frozen=True)
class Search:
    """A query and what was found."""

    query: str
    lang: str
    results: Sequence[SearchResult]
    gloss: str | None = None
    """A caption of the item that is asked for, for readers."""
    run: str = ""
    uncertainty: float | None = None
    image: Path | None = None
    """The picture that was searched with."""
    gloss_lang: str = ""
    """The language of that caption: the source language of the data."""

    def request(self) -> dict[str, Any]:
        """What of it can change a report, without the place of images on this machine."""
        return {
            "query": self.query,
            "lang": self.lang,
            "gloss": self.gloss,
            "run": self.run,
            "uncertainty": None if self.uncertainty is None else round(self.uncertainty, 6),
            "results": [[r.item_id, r.caption, round(r.similarity, 6), r.correct] for r in self.results],
        }
