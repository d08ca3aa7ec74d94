"""The contact sheet of a search, as a file."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from ccr_cli.artifacts import base
from ccr_cli.errors import UsageError
from ccr_cli.report.content import ExampleHit, ExampleSearch
from ccr_cli.report.page import contact_sheet
from ccr_cli.stages.search.stage import Answer, Searcher

MOST = 20_000
"""Pictures on one sheet; of a PNG a hundredth of that."""


def write_sheet(answers: Sequence[Answer], searcher: Searcher, path: Path | None) -> Path:
    """Writes a sheet.

    Args:
        answers: What is on it.
        searcher: What found them.
        path: `.html` or `.png`; None: a temporary `.html`.

    Returns:
        Where it lies.

    Raises:
        UsageError: If there are too many results for one sheet, or its folder does not exist.
    """
    if path is None:
        path = Path(tempfile.mkdtemp(prefix="ccr-search-")) / "sheet.html"
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}")
    total, most = sum(len(answer.hits) for answer in answers), MOST // 100 if path.suffix == ".png" else MOST
    if total > most:
        raise UsageError(f"{total:,} results are too many for one {path.suffix} sheet (at most {most:,})")
    searches = [_search(answer, searcher) for answer in answers]
    where = searcher.wanted.split or "all"
    title = f"{searcher.data.name}, {where}: {len(searcher.ids):,} {searcher.wanted.find} · {searcher.trained.name}"
    with base.atomic_open(path) as handle:
        handle.write(contact_sheet.write(path, searches, title))
    return path


def _search(answer: Answer, searcher: Searcher) -> ExampleSearch:
    return ExampleSearch(
        query=Path(answer.query).name if answer.picture else answer.query,
        lang=searcher.wanted.lang or "",
        results=[ExampleHit(h.item_id, h.caption, h.similarity, h.image, lang=h.lang or "") for h in answer.hits],
        uncertainty=answer.uncertainty,
        image=Path(answer.query) if answer.picture else None,
    )
