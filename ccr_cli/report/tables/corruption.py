"""The table of intact and corrupted queries, and which results belong together (TCL Figure 5)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ccr_cli.artifacts.evaluation import Corruption
from ccr_cli.artifacts.signature import signature_of
from ccr_cli.report.content import ReportData
from ccr_cli.report.tables import comparable, retrieval
from ccr_cli.report.tables.table import Column, Table
from ccr_cli.report.words.numbers import percent


@dataclass(frozen=True, order=True)
class CorruptionLevel:
    """The kind and share of a corruption; without a kind, intact."""

    kind: str = ""
    share: float = 0.0

    @property
    def name(self) -> str:
        """Its name in tables and figures."""
        return f"{self.kind} {percent(self.share)}" if self.kind else "intact"

    @property
    def key(self) -> str:
        """Its name in the keys of columns."""
        return f"{self.kind}{self.share:g}" if self.kind else "intact"

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> "CorruptionLevel":
        """The level of an entry of `metrics.json`."""
        corruption = Corruption.parse(str(result.get("corrupt") or ""))
        return cls(corruption.kind, corruption.share) if corruption else cls()


def intact(result: Mapping[str, Any]) -> str:
    """The signature of the intact result that a corrupted one is compared with; empty where it cannot be read."""
    signature = signature_of(result)
    return str(replace(signature, protocol=str(replace(signature.rules, change="")))) if signature else ""


def corrupted_results(data: ReportData, run_id: str, signature: str) -> Iterator[tuple[CorruptionLevel, str]]:
    """Level and signature of the corrupted results of an intact one."""
    for other, result in data.corrupted:
        if other == run_id and intact(result) == signature:
            yield CorruptionLevel.of(result), str(result["signature"])


def table(data: ReportData, view: comparable.View) -> Table | None:
    """The headline figure and the mean uncertainty of both directions at every level; None without corrupted results.

    About the runs of a view.
    """
    frame = _frame(data, view)
    if frame.empty:
        return None
    levels = sorted(set(frame["level"]))
    groups = {view.figure: view.named} | {
        f"{direction}.uncertainty": f"uncertainty, {title}"
        for direction, title in retrieval.DIRECTION_TITLES.items()
        if frame[f"{direction}.uncertainty"].notna().any()
    }
    columns = [
        Column(key, level.name, "high", group=group)
        if figure == view.figure
        else Column(key, level.name, None, 3, group)
        for figure, group in groups.items()
        for level in levels
        for key in [f"{figure.lower().replace('.', '_')}_{level.key}"]
    ]
    means = retrieval.means(frame, ["noise", "label"], list(groups), "level", levels)
    rows = [retrieval.noise_row(*key, n, *cells) for key, cells, n in means]
    notes = [
        "The given share of the words of every caption is corrupted (of the characters, in languages without spaces), "
        "or of the features. A corrupted side is the query in one direction and the gallery in the other. "
        "Uncertainties of different methods have different scales.",
        retrieval.SPREAD_NOTE,
        retrieval.BEST_NOTE,
    ]
    title = f"Intact and corrupted queries: {view.title}"
    return Table("corruption", title, [retrieval.NOISE, retrieval.METHOD, retrieval.NUMBER, *columns], rows, notes)


def _frame(data: ReportData, view: comparable.View) -> pd.DataFrame:
    """The corrupted results that belong to a view, and their intact ones, with their levels."""
    known = set(zip(view.frame["run_id"], view.frame["signature"], strict=True))
    corrupted = [(run_id, r) for run_id, r in data.corrupted if (run_id, intact(r)) in known]
    keys = {(run_id, intact(r)) for run_id, r in corrupted}
    chosen = [*((run_id, r) for run_id, r in data.results if (run_id, str(r["signature"])) in keys), *corrupted]
    frame = comparable.results_frame(chosen, data.facts)
    by_key = {(run_id, str(r["signature"])): r for run_id, r in chosen}
    rows = [by_key[key] for key in zip(frame["run_id"], frame["signature"], strict=True)]
    uncertainty = {
        f"{d}.uncertainty": pd.to_numeric(pd.Series([(r.get("uncertainty") or {}).get(d) for r in rows], dtype=object))
        for d in retrieval.DIRECTION_TITLES
    }
    return frame.assign(level=pd.Series([CorruptionLevel.of(r) for r in rows], dtype=object), **uncertainty)
