"""The pipeline as functions, for notebooks and programs; each does what the command of its name does.

    import ccr_cli.api as ccr

    data = ccr.import_data("noto-emoji", workspace="work")
    translated = ccr.translate(data, lang="es")
    features = ccr.extract(data)
    run = ccr.train(translated, features, method="uml", seed=1)
    ccr.evaluate(run).scores  # a pandas table
    ccr.diagnose(run).worst(50)  # with pictures, in a notebook

- **Artifacts**, in any order: results of other functions, paths, names, `latest`, `best:SumR`, or lists of these;
  without any, those of the workspace that fit.
- **Keywords** are the command's flags: `noise_seed=1` is `--noise-seed 1`, `set={"lr": 0.01}` is `--set lr=0.01`,
  `from_` is `--from`. `help(ccr.train)` explains them.
- **Workspace**: `workspace=`, else `$CCR_WORKSPACE`, else that of the artifacts, else the current folder.
- **Errors** are `CcrError`s (`ccr_cli.errors`) with a note on what to do. The same call resumes stopped work.
- **Nothing is printed** unless `verbose=True`; results have `warnings`.
- **One call makes one artifact**, the same as the command, which it records. Write a loop for several.
"""

from __future__ import annotations

import dataclasses
import inspect
import keyword
import os
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ccr_cli import console, registry
from ccr_cli.artifacts.base import FAILURES, home
from ccr_cli.artifacts.build import recorded_as
from ccr_cli.errors import CcrError, OptionsAsked, UsageError, as_user_error
from ccr_cli.results import (
    KINDS,
    ComparisonResult,
    DatasetResult,
    DiagnosisResult,
    EvaluationResult,
    ReportResult,
    Result,
    SearchResult,
    TrainingResult,
    TranslationResult,
)
from ccr_cli.stages.data.options import ImportOptions
from ccr_cli.stages.diagnose.options import DiagnoseOptions
from ccr_cli.stages.evaluate.options import ComparisonOptions, EvaluatedSystems, EvaluationOptions
from ccr_cli.stages.export.options import ExportOptions
from ccr_cli.stages.extract.options import ExtractOptions, ReadyFeatures
from ccr_cli.stages.report.options import ReportOptions
from ccr_cli.stages.search.options import QueryOptions, SearchOptions, require_picture
from ccr_cli.stages.shared.options import declared, flag, typed
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.translate.options import TranslateOptions

if TYPE_CHECKING:
    from pandas import DataFrame

    from ccr_cli.artifacts.base import Artifact
    from ccr_cli.stages.shared.inputs import Inputs

__all__ = [
    "compare",
    "diagnose",
    "evaluate",
    "export",
    "extract",
    "import_data",
    "list_plugins",
    "open_artifact",
    "report",
    "search",
    "train",
    "translate",
]

PathLike = str | os.PathLike[str]
Source = PathLike | Iterable[PathLike]
"""An artifact, or several: a result, a path, or a name."""
Texts = str | Sequence[str]
Paths = PathLike | Sequence[PathLike]
Pairs = Mapping[str, object] | str | Sequence[str]
"""`{"key": value}`, or texts `key=value`."""
Options = TypeVar("Options")
Made = TypeVar("Made", bound=Result)
Function = TypeVar("Function", bound=Callable[..., Any])
SILENT = -2
COMMANDS: dict[str, tuple[str, tuple[Any, ...]]] = {}
"""The command of each function, and the dataclasses that declare its keywords."""


def _command(name: str, *options: Any) -> Callable[[Function], Function]:
    """Registers the command of a function, and adds to its docstring what its keywords mean."""

    def documented(function: Function) -> Function:
        COMMANDS[function.__name__] = (name, options)
        helps = []
        for field in (field for group in options for field in dataclasses.fields(group)):
            if own := declared(field.name, field):
                text = re.sub(r"\{\w+\}\.?", "See `list_plugins()`.", own.metadata["shown"]["help"])
                default = own.metadata["shown"].get("show_default")
                helps.append(f"    {_keyword(field)}: {text}" + (f" Default: {default}." if default else ""))
        if "workspace" in inspect.signature(function).parameters:
            helps += ["    workspace: Folder of artifacts.", "    verbose: Print messages and progress; 2 prints more."]
            helps.insert(0, f"\nKeywords, the flags of `ccr {name}`:")
        function.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), *helps])
        return function

    return documented


def _keyword(field: dataclasses.Field[Any]) -> str:
    """The keyword of a field, named like its flag."""
    own = declared(field.name, field)
    names = own.metadata["flags"] if own else ()
    word = (names[0] if names else flag(field)).removeprefix("--").replace("-", "_")
    return f"{word}_" if keyword.iskeyword(word) else word


def _texts(value: Any) -> list[str]:
    """Converts the value of a keyword to command-line values, one for each time that its flag is given."""
    if isinstance(value, Mapping):
        return [f"{key}={text}" for key, each in value.items() for text in _texts(each)]
    if isinstance(value, str) or not isinstance(value, Iterable):
        return [str(value)]
    return [str(each) for each in value]


def _typed(value: Any, hint: Any) -> Any:
    """Converts a value to the type of a field; ValueError or TypeError if it does not fit."""
    inner = next((each for each in typing.get_args(hint) if each is not type(None)), hint)
    inner = hint if typing.get_origin(hint) is list else inner
    if typing.get_origin(inner) is list:
        (each,) = typing.get_args(inner)
        return [_typed(one, each) for one in ([value] if isinstance(value, str | os.PathLike) else value)]
    if inner is Path:
        return Path(value)
    if inner is bool and not isinstance(value, bool):
        raise TypeError("expected True or False")
    if isinstance(value, list | tuple):
        raise TypeError("expected one value")
    return typed(str(value), inner) if inner in (int, float, str) else value


def _read(name: str, own: dataclasses.Field[Any] | None, hint: Any, value: Any) -> Any:
    """Parses the value of a keyword as the command line would; UsageError if it is invalid."""
    facts: Mapping[str, Any] = own.metadata if own else {"command_line": None, "shown": {}}
    try:
        if isinstance(value, list | tuple) and not value:
            raise ValueError("no value; leave it out")
        if facts["command_line"]:
            kind, read = facts["command_line"]
            takes_list = list[str] in (kind, *typing.get_args(kind))
            several = name == "set" and isinstance(value, Mapping) and value.values()
            if any(isinstance(each, list | tuple) for each in several or ()):
                raise ValueError("one value for each option")
            words = _texts(value)
            if len(words) > 1 and not takes_list:
                raise ValueError("expected one value")
            return read(words if takes_list else words[0])
        value = _typed(value, hint)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{name}={value!r}: {error}") from None
    least, most = facts["shown"].get("min"), facts["shown"].get("max")
    if (least is not None and value < least) or (most is not None and value > most):
        allowed = f"at least {least}" if most is None else f"{least} to {most}"
        raise UsageError(f"{name}={value!r}: expected {allowed}")
    return value


class _Call:
    """One call of a function: its keywords as the options of the command, and the artifacts that it reads."""

    def __init__(self, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
        self.command, self.warnings, self._given = COMMANDS[function.__name__][0], list[str](), given
        self.artifacts = [*_words(given.get("artifacts") or given.get("sources") or ())]
        place = given["workspace"] or os.environ.get("CCR_WORKSPACE")
        self.workspace = Path(place) if place else None
        usual = {name: each.default for name, each in inspect.signature(function).parameters.items()}
        self.flags: dict[str, list[str]] = {}
        """The keywords that differ from their defaults, as words of a command line."""
        for name in usual.keys() - {"artifacts", "sources", "query", "workspace", "verbose"}:
            if (value := given[name]) is not None and value != usual[name]:
                option = f"--{name.rstrip('_').replace('_', '-')}"
                self.flags[name] = [option] if value is True else [w for text in _texts(value) for w in (option, text)]

    @property
    def words(self) -> list[str]:
        """The command, without `ccr`."""
        flags = (word for name in sorted(self.flags) for word in self.flags[name])
        return list(map(_recorded, [*self.command.split(), *self.artifacts, *flags]))

    @cached_property
    def inputs(self) -> Inputs:
        """The given artifacts, loaded."""
        from ccr_cli.stages.shared.inputs import Inputs

        makes = self.command not in ("search", "compare", "show")
        return Inputs.open(self.command, self.artifacts, self.workspace, makes=makes)

    def options(self, group: type[Options]) -> Options:
        """Builds one of the command's dataclasses of options from the keywords."""
        hints, values = typing.get_type_hints(group), {}
        for field in dataclasses.fields(group):  # type: ignore[arg-type]
            name, own = _keyword(field), declared(field.name, field)
            value = self._given.get(name)
            if own and (variable := own.metadata["shown"].get("envvar")) and value in (None, own.default):
                value = os.environ.get(variable) or value
            if value is not None:
                values[field.name] = _read(name, own, hints[field.name], value)
        return group(**values)


def _words(artifacts: Any) -> Iterator[str]:
    """Yields the paths and names of artifacts, also of those in nested lists."""
    for each in artifacts:
        if isinstance(each, str | os.PathLike):
            yield os.fspath(each)
        elif isinstance(each, Iterable):
            yield from _words(each)
        else:
            raise UsageError(f"{each!r} is no artifact", "a result, a path, or a name")


def _recorded(word: str) -> str:
    """A word of a command as one would type it: paths relative to the artifact's workspace, else the current folder."""
    if not os.path.isabs(word):
        return word
    near = home(Path(word)) or Path.cwd()
    return os.path.relpath(word, near) if Path(word).is_relative_to(near) else word


@contextmanager
def _call(function: Callable[..., Any], given: Mapping[str, Any]) -> Iterator[_Call]:
    """Runs a call: quiet unless `verbose`, recorded as its command, with errors that state what to do."""
    before = console.verbosity, console.warnings
    try:
        call, verbose = _Call(function, given), given["verbose"]
        if not isinstance(verbose, int):
            raise UsageError(f"verbose={verbose!r}: expected True, False or a number")
        console.verbosity, console.warnings = verbose - 1 if verbose else SILENT, call.warnings
        with recorded_as(call.words):
            yield call
    except OptionsAsked as asked:
        rows = [" ".join(filter(None, (key, usual and f"({usual})", text))) for key, usual, text in asked.rows]
        raise UsageError("\n  ".join(["these are the options:", *rows])) from None
    except CcrError as error:
        raise _noted(error) from None
    except Exception as error:
        known = as_user_error(error) or registry.own_failure(error)
        if known is None:
            raise
        raise _noted(known) from error
    finally:
        console.verbosity, console.warnings = before


def _noted(error: CcrError) -> CcrError:
    """Adds the hint to the error's traceback, and replaces flags by keywords if it is a UsageError."""
    if isinstance(error, UsageError):
        error.message, error.hint = _in_keywords(error.message), error.hint and _in_keywords(error.hint)
        error.args = (error.message,)
    if error.hint and not getattr(error, "__notes__", None):
        error.add_note(f"try: {error.hint}")
    return error


def _in_keywords(text: str) -> str:
    """Replaces flags by keywords in a text, unless it contains a command to type."""
    return text if "ccr " in text else re.sub(r"--([a-z][a-z-]*)", lambda flag: flag[1].replace("-", "_"), text)


def _made(kind: type[Made], artifact: Artifact | None, call: _Call) -> Made:
    """Wraps an artifact as the result of a call, which warns if items failed."""
    assert artifact is not None, "only `torchrun` makes an artifact in another process"
    if failed := artifact.counts.get("failed"):
        call.warnings.append(f"{failed} failed: see `failures`, and {artifact.path / FAILURES}")
    return kind(artifact, call.warnings)


def _only(count: int, what: str, hint: str) -> None:
    """Raises UsageError unless a call makes exactly one artifact."""
    if count != 1:
        raise UsageError(f"a call makes one {what}, not {count}", hint)


@_command("data import", ImportOptions)
def import_data(
    *sources: PathLike,
    root: PathLike | None = None,
    allow_partial: bool = False,
    media_root: PathLike | None = None,
    format: str | None = None,
    columns: Pairs | None = None,
    lang: str | None = None,
    split: Pairs | None = None,
    ids: PathLike | None = None,
    media: str | None = None,
    set: Pairs | None = None,
    name: str | None = None,
    force: bool = False,
    workspace: PathLike | None = None,
    verbose: int = 0,
) -> DatasetResult:
    """Imports a bundled data set, a collection's official files, a folder, or tables of your own.

    Takes a name, a folder or files; `train=FILE`, `de=FILE` or `train.de=FILE` names split and language.

    Raises:
        CcrError: If a source does not exist or one of its rows is wrong: file, line, expected and actual value.
    """
    with _call(import_data, locals()) as call:
        from ccr_cli.artifacts.workspace import Workspace
        from ccr_cli.stages.data.stage import import_source

        place = Workspace((call.workspace or Path(".")).absolute())
        data, *features = import_source(place, call.artifacts, call.options(ImportOptions))
        made = _made(DatasetResult, data, call)
        return dataclasses.replace(made, features=Result(features[0])) if features else made


@_command("translate", TranslateOptions)
def translate(
    *artifacts: Source,
    lang: str | None = None,
    engine: str = "auto",
    back: bool = False,
    with_queries: bool = False,
    rounds: int = 1,
    split: str | None = None,
    only: PathLike | None = None,
    set: Pairs | None = None,
    device: str = "auto",
    max_failed: float = 0.2,
    name: str | None = None,
    force: bool = False,
    retry_failed: bool = False,
    no_cache: bool = False,
    workspace: PathLike | None = None,
    verbose: int = 0,
) -> TranslationResult:
    """Machine-translates the captions of a data set into one language with one engine.

    Takes the data set; with `only`, the translation to correct.

    Raises:
        UnavailableError: If the engine, its model or the pair of languages is unavailable.
        CcrError: If more than the fraction `max_failed` of the captions failed.
    """
    with _call(translate, locals()) as call:
        from ccr_cli.stages.translate.stage import jobs_of
        from ccr_cli.stages.translate.stage import translate as stage

        options = call.options(TranslateOptions)
        options.check()
        jobs = jobs_of(call.inputs, options)
        _only(len(jobs), "translation", "one call for each language and engine")
        return _made(TranslationResult, stage(call.inputs, jobs[0]), call)


@_command("extract", ExtractOptions, ReadyFeatures)
def extract(
    *artifacts: Source,
    encoder: str | None = None,
    set: Pairs | None = None,
    media_root: PathLike | None = None,
    pool: str = "none",
    batch_size: int | str = "auto",
    workers: int | None = None,
    compile: bool = False,
    device: str = "auto",
    dtype: str = "float32",
    max_failed: float = 0.2,
    name: str | None = None,
    force: bool = False,
    retry_failed: bool = False,
    from_: Paths | None = None,
    ids: Paths | None = None,
    encoder_name: str | None = None,
    concat: bool = False,
    workspace: PathLike | None = None,
    verbose: int = 0,
) -> Result:
    """Turns pictures and videos into features with a frozen encoder, or imports features (`from_`, `concat`).

    Takes the data set; with `concat`, the features to join.

    Raises:
        CcrError: If more than the fraction `max_failed` of the items failed.
    """
    with _call(extract, locals()) as call:
        from ccr_cli.stages.extract.existing import ready_made
        from ccr_cli.stages.extract.stage import extract as stage

        options, given = call.options(ExtractOptions), {name: words[0] for name, words in call.flags.items()}
        made = ready_made(call.inputs, call.options(ReadyFeatures), options, given)
        return _made(Result, made or stage(call.inputs, options), call)


@_command("train", TrainingOptions)
def train(
    *artifacts: Source,
    method: str = "uml",
    lang: Texts | None = None,
    language_mix: str = "all",
    translation_mix: str = "draw",
    text_vectors: PathLike | None = None,
    verdicts: PathLike | None = None,
    weigh_verdicts: bool = False,
    seed: int = 0,
    noise: float | None = None,
    noise_style: str = "caption",
    noise_target: str | None = None,
    noise_seed: int | None = None,
    preset: str | None = None,
    set: Pairs | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    select_on: str = "mt",
    report_to: str | None = None,
    compile: bool = False,
    device: str = "auto",
    dtype: str = "float32",
    name: str | None = None,
    force: bool = False,
    workspace: PathLike | None = None,
    verbose: int = 0,
) -> TrainingResult:
    """Trains a method.

    Takes the data set, translations and features.

    Raises:
        ArtifactError: If one of them is missing, or several fit.
        UsageError: If the method or an option is unknown.
    """
    with _call(train, locals()) as call:
        from ccr_cli.stages.train.stage import train as stage

        return _made(TrainingResult, stage(call.inputs, call.options(TrainingOptions)), call)


@_command("evaluate", EvaluationOptions, EvaluatedSystems)
def evaluate(
    *artifacts: Source,
    split: str | None = None,
    lang: Texts | None = None,
    zero_shot: bool = False,
    drop_leaks: bool = False,
    caption_set: str | None = None,
    queries: str = "",
    fusion_weight: float = 0.8,
    fusion: str = "raw",
    translate_test: bool = False,
    ties: str = "mid",
    protocol: str = "",
    task: str = "visual",
    corrupt: float = 0.0,
    corruption: str = "",
    ood: str = "",
    model: str | None = None,
    text_vectors: PathLike | None = None,
    visual_vectors: PathLike | None = None,
    ensemble: bool = False,
    device: str = "auto",
    name: str | None = None,
    force: bool = False,
    workspace: PathLike | None = None,
    verbose: int = 0,
) -> EvaluationResult:
    """Measures retrieval in both directions.

    Takes the run, or the runs of an ensemble; with `model` or vectors, the data set.

    Raises:
        ArtifactError: If there is nothing to evaluate, or a test item was trained on.
    """
    with _call(evaluate, locals()) as call:
        from ccr_cli.stages.evaluate.systems import evaluate_systems

        options, systems = call.options(EvaluationOptions), call.options(EvaluatedSystems)
        options.check()
        kind, inputs = "dataset" if systems.flag else "run", call.inputs
        found = inputs.of_kind(kind)
        if systems.flag:
            _only(len(found or inputs.workspace.artifacts(kind)), "evaluation", "name the data set")
        elif found and not systems.ensemble:
            _only(len(found), "evaluation", "one call for each run, or ensemble=True")
        (made,) = evaluate_systems(inputs, options, systems)
        return _made(EvaluationResult, made, call)


@_command("diagnose", DiagnoseOptions)
def diagnose(
    *artifacts: Source,
    judge: str | None = None,
    judge_side: str | None = None,
    witness: Texts | None = None,
    share: float | None = None,
    rivals: str | None = None,
    set: Pairs | None = None,
    device: str = "auto",
    name: str | None = None,
    force: bool = False,
    workspace: PathLike | None = None,
    verbose: int = 0,
) -> DiagnosisResult:
    """Finds the training pairs that a run considers mismatched, or the wrong captions of a translation.

    Takes the run or the translation.

    Raises:
        UsageError: If the judge cannot judge the run or the translation.
    """
    with _call(diagnose, locals()) as call:
        from ccr_cli.stages.diagnose.stage import subjects
        from ccr_cli.stages.diagnose.translated import diagnose_subject

        judged = subjects(call.inputs)
        _only(len(judged), "diagnosis", f"one call for each {judged[0].kind}")
        made = diagnose_subject(call.inputs, judged[0], call.options(DiagnoseOptions))
        return _made(DiagnosisResult, made, call)


@_command("search", QueryOptions, SearchOptions)
def search(
    query: Source | None = None,
    *artifacts: Source,
    image: PathLike | None = None,
    top: int = 5,
    find: str | None = None,
    lang: str | None = None,
    split: str | None = None,
    index: bool = False,
    device: str = "auto",
    workspace: PathLike | None = None,
    verbose: int = 0,
) -> SearchResult:
    """Searches a run's items, or their captions, with words or a picture.

    Takes a text or a list of texts (none with `image`), then the run, an index of it, or another data set to search.

    Raises:
        UsageError: If there is neither a query nor a picture. With `image=` every argument is an artifact.
    """
    if image is not None and query is not None:
        artifacts, query = (query, *artifacts), None
    with _call(search, locals()) as call:
        texts: list[Any] = [*query] if isinstance(query, Iterable) and not isinstance(query, str) else [query]
        texts = [] if query is None else texts
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise UsageError(f"the query {wrong[0]!r} is no text", 'ccr.search("gato", run)')
        if bool(texts) == (image is not None):
            raise UsageError("search with words or with image=: exactly one of them", 'ccr.search("gato", run)')
        asked, options = call.options(QueryOptions), call.options(SearchOptions)
        if asked.image is not None:
            require_picture(asked.image)
        inputs = call.inputs
        from ccr_cli.stages.search.stage import answers, for_sheet, open_searcher, warn_of_unknown

        searcher = open_searcher(inputs, options)
        found = list(answers(searcher, asked.image or texts, asked.top))
        warn_of_unknown(found)
        return SearchResult(found, for_sheet(found, searcher), call.warnings)


@_command("report", ReportOptions)
def report(
    *artifacts: Source,
    title: str | None = None,
    searches: int = 0,
    map: int = 0,
    inside: int = 0,
    split: str = "test",
    published: bool = False,
    device: str = "auto",
    name: str | None = None,
    force: bool = False,
    workspace: PathLike | None = None,
    verbose: int = 0,
) -> ReportResult:
    """Summarises evaluations, diagnoses and translations in tables, figures and one HTML page.

    Takes what it reports on; by default the whole workspace.

    Raises:
        ArtifactError: If there is no evaluation and no translation.
    """
    with _call(report, locals()) as call:
        from ccr_cli.stages.report.stage import report as stage

        made, _ = stage(call.inputs, call.options(ReportOptions))
        return _made(ReportResult, made, call)


@_command("export", ExportOptions)
def export(
    *artifacts: Source,
    onnx: bool = False,
    to: str | None = None,
    name: str | None = None,
    force: bool = False,
    workspace: PathLike | None = None,
    verbose: int = 0,
) -> Result:
    """Writes a run or a data set as a folder that works without ccr.

    Takes the run, and the evaluations that its model card shows; or a data set, translations or diagnoses.

    Raises:
        UsageError: If it cannot be exported.
    """
    with _call(export, locals()) as call:
        from ccr_cli.stages.export.stage import export as stage

        return _made(Result, stage(call.inputs, call.options(ExportOptions)), call)


@_command("compare", ComparisonOptions)
def compare(
    *artifacts: Source,
    all: bool = False,
    by: Texts | None = None,
    workspace: PathLike | None = None,
    verbose: int = 0,
) -> ComparisonResult:
    """Tests whether one system is better than another on the same queries, and by how much.

    Takes evaluations, or runs that were evaluated; compares the others with the first.

    Raises:
        UsageError: If no two systems can be compared.
    """
    with _call(compare, locals()) as call:
        from ccr_cli.stages.evaluate.compare import compare as stage

        options = call.options(ComparisonOptions)
        comparisons = stage(call.inputs, every=options.every, by=options.by or ())
        return ComparisonResult(comparisons, call.warnings)


@_command("show")
def open_artifact(artifact: PathLike, *, workspace: PathLike | None = None, verbose: int = 0) -> Result:
    """Opens an artifact by its path, its name, `latest` or `best:SumR`: as what the function that makes it returns.

    Raises:
        ArtifactError: If there is none, or several fit.
    """
    with _call(open_artifact, {**locals(), "artifacts": [artifact]}) as call:
        from ccr_cli.stages.shared.inputs import Inputs

        if len(call.artifacts) != 1:
            raise UsageError(f"open_artifact opens one artifact, not {len(call.artifacts)}")
        opened = Inputs.open("", call.artifacts, call.workspace, makes=False).named[0]
        return KINDS.get(opened.kind, Result)(opened, call.warnings)


@_command("plugins")
def list_plugins() -> DataFrame:
    """Lists methods, judges, encoders, engines and noise styles with their origin, and which do not load."""
    with _call(list_plugins, {"workspace": None, "verbose": 0}):
        import pandas as pd

        from ccr_cli.stages.plugins import COLUMNS, listed

        return pd.DataFrame(listed(), columns=COLUMNS)
