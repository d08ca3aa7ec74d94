"""What the functions of `ccr_cli.api` return: small objects with paths, ids and tables, which a notebook shows."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ccr_cli.artifacts import base, dataset, diagnosis, evaluation, run, translation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.errors import UsageError

if TYPE_CHECKING:
    from ccr_cli.report.content import ExampleSearch
    from ccr_cli.report.tables.table import Table
    from ccr_cli.report.words.artifact_summaries import Line
    from ccr_cli.stages.evaluate.compare import Comparison
    from ccr_cli.stages.search.stage import Answer


def _framed(page: str) -> str:
    """A whole page inside a notebook: its styles do not reach the notebook, and nothing in it runs."""
    return f'<iframe srcdoc="{html.escape(page)}" sandbox style="width:100%;height:480px;border:0"></iframe>'


@dataclass(frozen=True, eq=False)
class Result:
    """An artifact; it can be given to any function in place of its path."""

    artifact: base.Artifact = field(repr=False)
    """Its record: `request`, `parents`, `files`, ..."""
    _said: Sequence[str] = field(default=(), repr=False)
    """The warnings of the call that made it."""

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.path}>"

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.artifact.path

    @property
    def kind(self) -> str:
        """`dataset`, `translation`, `features`, `run`, `evaluation`, ..."""
        return self.artifact.kind

    @property
    def name(self) -> str:
        """Its name."""
        return self.artifact.name

    @property
    def id(self) -> str:
        """Checksum of its content and request."""
        return self.artifact.id

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of items, captions, epochs, ...; `failed`: items that failed."""
        return self.artifact.counts

    @property
    def workspace(self) -> Path:
        """The folder of artifacts in which it lies."""
        return base.home(self.path) or self.path.parent

    @cached_property
    def warnings(self) -> list[str]:
        """What its summary warns of, and the warnings of the call that made it."""
        from ccr_cli.report.words.artifact_summaries import Line

        return [*(each.text for each in self._summary if isinstance(each, Line) and each.warning), *self._said]

    @cached_property
    def _summary(self) -> list[Line | Table]:
        from ccr_cli.report.words.artifact_summaries import summary

        return [*summary(self.artifact, as_table=True)]

    @cached_property
    def failures(self) -> pd.DataFrame:
        """The items that failed, with their errors."""
        name = base.FAILURES
        return pd.DataFrame(self.artifact.jsonl(name) if self.artifact.has(name) else [])

    def _repr_html_(self) -> str:
        from ccr_cli.report.page.rendering import render
        from ccr_cli.report.words.artifact_summaries import Line

        lines = [each for each in self._summary if not isinstance(each, Line) or (each.level <= 0 and not each.warning)]
        texts = [each.text if isinstance(each, Line) else each for each in lines]
        return render("result.html.j2", title=f"{self.kind} {self.path}", lines=texts, warnings=self.warnings)


@dataclass(frozen=True, eq=False, repr=False)
class DatasetResult(Result):
    """A data set."""

    features: Result | None = None
    """Its features, if the source consists of them."""

    @cached_property
    def items(self) -> pd.DataFrame:
        """A table of the items."""
        return dataset.read(self.artifact).items

    @cached_property
    def captions(self) -> pd.DataFrame:
        """A table of the captions."""
        return dataset.read(self.artifact).captions


class TranslationResult(Result):
    """A translation of the captions."""

    @cached_property
    def captions(self) -> pd.DataFrame:
        """A table of the translated captions."""
        return translation.read(self.artifact)

    @cached_property
    def quality(self) -> dict[str, Any]:
        """Its quality, by direction and split."""
        return translation.quality(self.artifact)


class TrainingResult(Result):
    """A run: a trained model."""

    @cached_property
    def history(self) -> pd.DataFrame:
        """A table of the epochs: losses, validation, throughput."""
        return run.history(self.artifact)

    @cached_property
    def config(self) -> dict[str, Any]:
        """Its options and sources."""
        return run.config(self.artifact)


class EvaluationResult(Result):
    """An evaluation."""

    @cached_property
    def scores(self) -> pd.DataFrame:
        """A table of figures (SumR, mAP, t2v.R@1, ...) by language and fusion, with signatures."""
        rows, results = [], evaluation.results(self.artifact)
        nested = {key for result in results for key, value in result.items() if isinstance(value, dict | list)}
        for result in results:
            flat = {key: value for key, value in result.items() if key not in nested}
            each = {d: result.get(d) or {} for d in ("t2v", "v2t")}
            flat |= {f"{d}.{name}": value for d, figures in each.items() for name, value in figures.items()}
            rows.append(flat | {"mAP": evaluation.mean_ap(result), "signature": str(result["signature"])})
        return pd.DataFrame(rows)

    @cached_property
    def table(self) -> pd.DataFrame:
        """The table that the command prints, as texts, with intervals."""
        from ccr_cli.report.tables.table import Table
        from ccr_cli.report.words.artifact_summaries import summary

        table = next(each for each in summary(self.artifact, as_table=True) if isinstance(each, Table))
        return pd.DataFrame(table.cells(lambda text, _: text), columns=table.headings())

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """A table of the queries: rank, ties, average precision, uncertainty."""
        return evaluation.read_ranks(self.artifact)


class DiagnosisResult(Result):
    """A diagnosis of the training pairs of a run, or of the captions of a translation."""

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """A table of all pairs: texts, `p_clean`, verdict, place (1: the most suspicious)."""
        return diagnosis.read_pairs(self.artifact)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Numbers of noisy pairs; precision and recall where the truth is known."""
        return diagnosis.summary(self.artifact)

    def worst(self, count: int = 20) -> WorstPairs:
        """The most suspicious pairs as `WorstPairs`; UsageError if the count is no whole number above 0."""
        if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
            raise UsageError(f"worst({count!r}): expected a whole number, at least 1")
        from ccr_cli.stages.diagnose.suspects import judged_pairs, most_suspicious

        pairs, data = judged_pairs(Workspace(self.workspace), self.artifact, count)
        return WorstPairs(most_suspicious(pairs, data, count), self.artifact, data)

    def export(self, path: str | Path) -> Path:
        """Writes all pairs to a .csv, .xlsx or .parquet file, for `verdicts=` and `only=`, or for other tools."""
        from ccr_cli.data import pairs_file
        from ccr_cli.stages.diagnose.suspects import judged_pairs

        pairs_file.check(path := Path(path))
        pairs, data = judged_pairs(Workspace(self.workspace), self.artifact)
        pairs_file.write(path, pairs, dataset.image_finder(data), dataset.media_root(data))
        return path


@dataclass(frozen=True, eq=False, repr=False)
class WorstPairs:
    """Pairs of a diagnosis, which a notebook shows with their pictures."""

    _rows: list[dict[str, Any]]
    _made: base.Artifact
    _data: base.Artifact

    @cached_property
    def table(self) -> pd.DataFrame:
        """The pairs with the words that look wrong."""
        from ccr_cli.stages.diagnose.suspects import SHOWN

        frame = pd.DataFrame(self._rows)
        return frame[[name for name in SHOWN if name in frame]]

    def save(self, path: str | Path) -> Path:
        """Writes a .html file with pictures."""
        from ccr_cli.stages.diagnose.suspects import check_sheet, write_sheet

        write_sheet(check_sheet(path := Path(path)), self._rows, self._made, self._data)
        return path

    def __repr__(self) -> str:
        return str(self.table)

    def _repr_html_(self) -> str:
        from ccr_cli.stages.diagnose.suspects import sheet

        return _framed(sheet(self._rows, self._made, self._data))


class ReportResult(Result):
    """A report."""

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.path / "report.html"

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Tables by name."""
        return {path.stem: pd.read_csv(path) for path in sorted((self.path / "tables").glob("*.csv"))}

    @property
    def figures(self) -> dict[str, Path]:
        """PNG files by name; beside them are PDF and SVG."""
        return {path.stem: path for path in sorted((self.path / "figures").glob("*.png"))}


@dataclass(frozen=True, eq=False, repr=False)
class SearchResult:
    """Results of queries, which a notebook shows with their pictures."""

    answers: list[Answer]
    """Hits and uncertainty of each query, and whether the run knows its words."""
    _sheet: tuple[list[ExampleSearch], str]
    warnings: Sequence[str] = ()

    @cached_property
    def table(self) -> pd.DataFrame:
        """A table of the hits: similarity, caption, image, probability, ..."""
        return pd.DataFrame([{"query": a.query, **vars(hit)} for a in self.answers for hit in a.hits])

    def save(self, path: str | Path) -> Path:
        """Writes a .html or .png file with pictures."""
        from ccr_cli.report.page import contact_sheet

        return contact_sheet.write(Path(path), *self._sheet)

    def __repr__(self) -> str:
        return str(self.table)

    def _repr_html_(self) -> str:
        from ccr_cli.report.page import contact_sheet

        return _framed(contact_sheet.page(*self._sheet))


@dataclass(frozen=True, eq=False, repr=False)
class ComparisonResult:
    """Differences between systems."""

    comparisons: list[Comparison]
    """Each system against the first."""
    warnings: Sequence[str] = ()

    @cached_property
    def table(self) -> pd.DataFrame:
        """A table of means, differences, 95 % intervals, p values and verdicts."""
        return pd.DataFrame([each.cells(line) for each in self.comparisons for line in each.lines])

    @property
    def words(self) -> list[str]:
        """The verdicts in sentences."""
        return [f"{each.what}: {each.words()}" for each in self.comparisons]

    def latex(self) -> str:
        """LaTeX tables (booktabs)."""
        from ccr_cli.stages.evaluate.compare import latex

        return latex(self.comparisons)

    def __repr__(self) -> str:
        return "\n".join(self.words)

    def _repr_html_(self) -> str:
        from ccr_cli.report.page.rendering import render
        from ccr_cli.stages.evaluate.compare import tables

        lines = [*tables(self.comparisons), *self.words]
        return render("result.html.j2", title="comparison", lines=lines, warnings=self.warnings)


KINDS: dict[str, type[Result]] = {
    "dataset": DatasetResult,
    "translation": TranslationResult,
    "run": TrainingResult,
    "evaluation": EvaluationResult,
    "diagnosis": DiagnosisResult,
    "report": ReportResult,
}
"""The class of each kind that has more than `Result`."""
