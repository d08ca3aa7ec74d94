"""What a figure of a report is, and the data from which figures are drawn."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import pandas as pd
from matplotlib.figure import Figure

from ccr_cli.artifacts.signature import is_translate_test
from ccr_cli.report.content import ReportData, RunDiagnosis
from ccr_cli.report.tables import comparable, diagnoses
from ccr_cli.report.words.findings import Findings
from ccr_cli.report.words.numbers import percent

ONE_RUN = "One run per method, the lowest seed."
"""Added to captions of figures that show a single run of each method."""

_TEXTS = ["slot_id", "item_id", "lang", "source_text", "translation", "back", "truth"]
_PAIRS = [*_TEXTS, "sim_vt", "uncertainty", "p_clean"]

Read = TypeVar("Read")
Result = Mapping[str, Any]
"""An entry of `metrics.json`."""


@dataclass(frozen=True)
class Drawing:
    """A figure, a sentence on what it shows, its caption, and a title over it."""

    figure: Figure | None
    """None if there is nothing to draw."""
    alternative: str
    caption: str = ""
    title: str = ""


@dataclass(frozen=True)
class FigureKind:
    """A figure that a report may have."""

    name: str
    """File name without suffix; {} stands for that of the headline figure."""
    what: str
    command: str
    """The command that makes the data it needs; each `RUN` stands for a run of the report."""
    draw: "Callable[[FigureData], Drawing | None]"
    """Draws it, inside `canvas.drawing`; None if its data are missing."""


def figure(name: str, what: str, command: str) -> "Callable[[Callable[[FigureData], Drawing | None]], FigureKind]":
    """Declares a function that draws a figure of reports."""
    return partial(FigureKind, name, what, command)


@dataclass(frozen=True)
class FigureData:
    """The data from which figures are drawn."""

    data: ReportData
    views: Sequence[comparable.View]
    findings: Findings
    suspects: Sequence[RunDiagnosis]

    @property
    def main(self) -> comparable.View:
        """The main view."""
        return self.views[0]

    @property
    def noise(self) -> str:
        """The headline noise ratio in words."""
        return f"{percent(self.findings.noise)} noise"

    @property
    def queries(self) -> str:
        """The queries of figures about single queries."""
        return f"Text queries in {self.main.lang}, {self.noise}"

    def order(self, label: str) -> tuple[Any, ...]:
        """Sorts the method of the findings to the front."""
        return (label != self.findings.method, label != comparable.base_label(label), comparable.method_order(label))

    @cached_property
    def diagnoses(self) -> dict[str, RunDiagnosis]:
        """One per method at the headline noise, of the main view's runs, as `diagnoses.by_choice` has it; no oracle."""
        chosen: dict[str, RunDiagnosis] = {}
        for label, diagnosis in diagnoses.competing(self.data, self.main):
            if diagnosis.noise == self.findings.noise:
                chosen.setdefault(label, diagnosis)
        return {label: chosen[label] for label in sorted(chosen, key=comparable.method_order)}

    @cached_property
    def pairs(self) -> dict[str, pd.DataFrame]:
        """The pairs of each of `diagnoses`, in the main view's language."""
        tables = {label: diagnosis.load_pairs(_PAIRS) for label, diagnosis in self.diagnoses.items()}
        lang = self.main.lang
        return {k: p[p["lang"] == lang] if lang in set(p["lang"]) else p for k, p in tables.items()}

    def with_judges(self, tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        """Tables of `pairs` under labels that name a judge other than the run's own."""
        return {diagnoses.label_with_judge(label, self.diagnoses[label]): table for label, table in tables.items()}

    def results(self) -> Iterator[tuple[str, str, Result]]:
        """Run, label and result of the main view at the headline noise, the lowest seeds first."""
        shown = set(zip(self.main.frame["run_id"], self.main.frame["signature"], strict=True))
        for run_id, result in sorted(self.data.results, key=lambda pair: pair[1].get("seed") or 0):
            same_noise = round(float(result.get("noise") or 0.0), 6) == self.findings.noise
            if is_translate_test(str(result.get("fusion"))):
                continue
            if same_noise and (run_id, str(result.get("signature"))) in shown:
                yield run_id, self.data.label(run_id, str(result["label"])), result

    def first_by_method(self, read: Callable[[str, Result], Read | None]) -> dict[str, Read]:
        """What `read` returns for the first result of each method that has something."""
        first: dict[str, Read] = {}
        for run_id, label, result in self.results():
            if label not in first and (value := read(run_id, result)):
                first[label] = value
        return first

    @cached_property
    def outside(self) -> dict[str, dict[str, pd.DataFrame]]:
        """Queries without a match in the gallery, by kind and method: of the run with the least noise and seed."""
        main = (self.main.data, self.main.lang)
        own = [pair for pair in self.data.results if (pair[1]["data"], pair[1]["lang"]) == main]
        own.sort(key=lambda pair: (pair[1].get("noise") or 0, pair[1].get("seed") or 0))
        tables: dict[str, dict[str, pd.DataFrame]] = {}
        for kind in sorted({kind for *_, kind in self.data.outside}):
            for run_id, result in own:
                load = self.data.outside.get((run_id, str(result.get("signature")), kind))
                label = self.data.label(run_id, str(result["label"]))
                if load and label not in tables.get(kind, {}):
                    tables.setdefault(kind, {})[label] = load()
        return tables
