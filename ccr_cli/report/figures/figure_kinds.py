"""What figures of a report are drawn from, and what a figure is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ccr_cli.report.content import ReportData, RunDiagnosis
from ccr_cli.report.tables import judge_choice
from ccr_cli.report.tables import results as compare
from ccr_cli.report.words.findings import Findings
from ccr_cli.report.words.numbers import percent


@dataclass(frozen=True)
class Drawing:
    """A figure, what it shows in a sentence, and what is written under it."""

    figure: Figure | None
    alternative: str
    caption: str = ""


@dataclass(frozen=True)
class Kind:
    """A figure that a report may have."""

    name: str
    what: str
    command: str
    """What to type for the data that it needs."""
    draw: Callable[[Seen], Drawing | None]


@dataclass(frozen=True)
class Seen:
    """What figures are drawn from."""

    material: ReportData
    views: Sequence[compare.View]
    found: Findings
    suspects: Sequence[RunDiagnosis]

    @property
    def main(self) -> compare.View:
        """The main view."""
        return self.views[0]

    @property
    def at(self) -> str:
        """The headline noise, as it is written."""
        return percent(self.found.noise)

    @cached_property
    def diagnoses(self) -> dict[str, RunDiagnosis]:
        """One a method at the headline noise, of the main view's runs, as `judges.by_choice` has it; no oracle."""
        runs = set(self.main.frame["run_id"])
        out: dict[str, RunDiagnosis] = {}
        for each in judge_choice.by_choice(self.material.diagnoses):
            told = each.summary
            at = round(float(told.get("noise") or 0.0), 6) == self.found.noise
            label = self.material.label(each.run_id, str(told["label"]))
            if at and each.run_id in runs and told.get("judge") != "oracle" and not compare.is_oracle(label):
                out.setdefault(label, each)
        return {label: out[label] for label in sorted(out, key=compare.method_order)}

    @cached_property
    def pairs(self) -> dict[str, pd.DataFrame]:
        """The pairs of each of `diagnoses`, in the main view's language."""
        tables = {label: each.load_pairs() for label, each in self.diagnoses.items()}
        return {k: p[p["lang"] == self.main.lang] if self.main.lang in set(p["lang"]) else p for k, p in tables.items()}

    def judged(self, tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        """Tables of `pairs` under names that say who judged, where that is not the run's own judge."""
        return {judge_choice.named(label, self.diagnoses[label]): table for label, table in tables.items()}

    @property
    def known(self) -> dict[str, pd.DataFrame]:
        """Those of which the truth is known, and that hold both kinds."""
        return {k: p for k, p in self.pairs.items() if p["truth"].notna().all() and p["truth"].nunique() == 2}

    def results(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Run, label and result of the main view at the headline noise, the lowest seeds first."""
        wanted = set(zip(self.main.frame["run_id"], self.main.frame["signature"], strict=True))
        for run_id, result in sorted(self.material.results, key=lambda pair: pair[1].get("seed") or 0):
            same = round(float(result.get("noise") or 0.0), 6) == self.found.noise
            if same and (run_id, str(result.get("signature"))) in wanted:
                yield run_id, self.material.label(run_id, str(result["label"])), result

    def first(self, read: Callable[[str, Mapping[str, Any]], Any]) -> dict[str, Any]:
        """What the first result of each method has to say, where it has something."""
        out: dict[str, Any] = {}
        for run_id, label, result in self.results():
            told = None if label in out else read(run_id, result)
            if told:
                out[label] = told
        return out

    @cached_property
    def outside(self) -> dict[str, dict[str, pd.DataFrame]]:
        """Queries that do not belong to the gallery, by what they are: those of one run of each method that has some.

        That is the run with the least noise and the lowest seed.
        """
        of_main = (self.main.data, self.main.lang)
        results = [pair for pair in self.material.results if (pair[1]["data"], pair[1]["lang"]) == of_main]
        out: dict[str, dict[str, pd.DataFrame]] = {}
        for kind in sorted({kind for *_, kind in self.material.outside}):
            for run_id, result in sorted(
                results, key=lambda pair: (pair[1].get("noise") or 0, pair[1].get("seed") or 0)
            ):
                load = self.material.outside.get((run_id, str(result.get("signature")), kind))
                label = self.material.label(run_id, str(result["label"]))
                if load and label not in out.get(kind, {}):
                    out.setdefault(kind, {})[label] = load()
        return out

    @property
    def asked(self) -> str:
        """What the curves of queries are of."""
        return f"Text queries in {self.main.lang}, {self.at} noise"
