"""The options of `ccr index`, declared once: a field is a flag."""

from __future__ import annotations

from dataclasses import dataclass

from ccr_cli.stages.shared.options import option


@dataclass(frozen=True)
class IndexOptions:
    """The options of `ccr index`, in the order of its help."""

    split: str = option("test", "Items to search: train, val, test or all.")
    find: str = option("items", "What to search: items or captions.")
    lang: str | None = option(
        None, "Use a run that knows this language; with --find captions, search its captions only."
    )
    kind: str = option("ivf", "Kind of index: ivf (cells) or hnsw (graph).", "--type")
    recall: float = option(0.99, "Fraction of the ten most similar entries that queries must find (above 0, up to 1).")
    device: str = "auto"
    name: str | None = None
    force: bool = False
