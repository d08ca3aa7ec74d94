"""What the commands share: options, reading artifact paths, printing results, exit codes."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import os
import signal
import sys
import time
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from ccr_cli import console, process_memory, registry
from ccr_cli.artifacts.base import FAILURES, Artifact, load
from ccr_cli.artifacts.build import Planned, recorded_as
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.errors import (
    ArtifactError,
    CcrError,
    OptionsAsked,
    ResourceError,
    Terminated,
    UsageError,
    as_user_error,
    did_you_mean,
    nearest,
)
from ccr_cli.stages.shared.options import KINDS, SHARED, declared, option, result, where

if TYPE_CHECKING:
    from ccr_cli.stages.shared.inputs import Inputs


def _utf8(path: Path | None) -> Path | None:
    """Refuses a workspace whose path is not UTF-8, because tables and pipes could not name it."""
    try:
        str(path and path.absolute()).encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("the path of a workspace must be UTF-8") from None
    return path


_ARTIFACTS = (
    "Artifacts to work on, in any order: paths, names or their beginnings, `latest`, `best:SumR` (the best run on "
    "validation), or `-`, which reads paths from standard input. Default: those of the workspace that fit."
)
_Misuse: Any = typer.BadParameter.__base__
"""Typer's class of mistakes on a command line."""
_EXPANDED = "ccr.expanded"
"""Key in the metadata of a context for the command line after reading a settings file."""
_SHARD = "Do only part I of N (from 1), e.g. in a job array; the command without --shard then makes the artifact."
_SHARED: dict[str, dataclasses.Field[Any]] = SHARED | {
    "workspace": where(
        None,
        "Folder of artifacts.",
        envvar="CCR_WORKSPACE",
        callback=_utf8,
        show_default="that of the named artifacts, else the current folder",
    ),
    "dry_run": result(False, "Print the plan without building anything."),
    "json": result(False, "Print one JSON object instead of text."),
    "quiet": where(False, "Print errors only.", "--quiet", "-q"),
    "verbose": where(0, "Print more messages.", "--verbose", "-v", count=True, metavar="", show_default=False),
    "open_": option(False, "Open the page in the browser.", "--open"),
}
"""Flags that several commands share, by the name of their field or parameter, which sets the default."""


def _artifacts(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes the name of an artifact of the kinds that a command works on, or of any kind after its folder."""
    root = Path(str(ctx.params.get("workspace") or os.environ.get("CCR_WORKSPACE") or "."))
    kinds = KINDS.get(str(ctx.command.name), ())
    places = [(kind, path.relative_to(root)) for kind, path in Workspace(root).places()]
    words = ["latest", *(["best:SumR"] if "run" in kinds or not kinds else [])]
    words += ["/".join(path.parts[1:]) for kind, path in places if kind in kinds or not kinds]
    words += [path.as_posix() for _, path in places if incomplete.startswith(path.parts[0])]
    return [word for word in words if word.startswith(incomplete)]


@dataclass(frozen=True)
class Call:
    """The flags of every command that reads artifacts."""

    artifacts: Annotated[
        list[str] | None, typer.Argument(help=_ARTIFACTS, show_default=False, autocompletion=_artifacts)
    ] = None
    workspace: Path | None = None
    quiet: bool = False
    verbose: int = 0
    command: str = dataclasses.field(default="", metadata={"flag": False})
    """The name of the command."""

    def inputs(self) -> Inputs:
        """Loads the artifacts named on the command line, or on standard input in place of `-`.

        Raises:
            ArtifactError: If `-` brings no path, a word means no artifact, or there is no such workspace.
        """
        from ccr_cli.stages.shared.inputs import Inputs

        paths: list[str] = []
        for text in self.artifacts or []:
            lines = [line.strip() for line in sys.stdin.read().splitlines() if line.strip()] if text == "-" else [text]
            if not lines:
                hint = "check whether the command before the pipe failed; without a pipe, leave - out"
                raise ArtifactError("no artifact path on standard input", hint)
            paths += lines
        makes, dry_run = isinstance(self, BuildCall), getattr(self, "dry_run", False)
        return Inputs.open(self.command, paths, self.workspace, makes=makes, dry_run=dry_run)


@dataclass(frozen=True)
class Division:
    """The flags of a command whose work can be divided among machines."""

    shard: str | None = option(None, _SHARD, metavar="I/N", show_default=False)
    executor: str = where("local", "Run locally (local), or divide the work across a Ray cluster (ray, $RAY_ADDRESS).")
    parts: int | None = where(
        None, "Number of parts, with --executor ray.", min=1, max=999_999, show_default="by the cluster"
    )


@dataclass(frozen=True)
class ListCall(Call):
    """The flags of a command that shows what artifacts hold."""

    json: bool = False


@dataclass(frozen=True)
class BuildCall(Call):
    """The flags of a command that makes artifacts from others."""

    dry_run: bool = False
    json: bool = False


class Commands(TyperGroup):
    """The commands of ccr, or those of one of its groups."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the words before the command; without any, Typer shows the help."""
        if not args:
            return super().parse_args(ctx, args)
        try:
            return super().parse_args(ctx, args)
        except _Misuse as error:
            _exit(UsageError(f"{ctx.command_path}: {_problem(error)}", f"{ctx.command_path} --help"))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command named by the first word; exits with a suggestion if it does not exist."""
        if args[0] not in self.commands and not ctx.resilient_parsing:
            hint = did_you_mean(args[0], self.commands) + f"{ctx.command_path} --help"
            _exit(UsageError(f"{ctx.command_path} has no command {args[0]}", hint))
        return super().resolve_command(ctx, args)


class Command(TyperCommand):
    """A command of ccr, which also accepts the names that its flags had in the last version."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Prints the help."""
        self._list_plugins()
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Completes flags, which some shells show with their help."""
        self._list_plugins()
        return super().shell_complete(ctx, incomplete)

    def _list_plugins(self) -> None:
        """Adds the plug-ins to the help of flags; they are read only when that is shown."""
        for param in self.params:
            if help := getattr(param, "help", None):
                param.help = registry.with_summaries(help)  # type: ignore[attr-defined]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the words of the command line after replacing the old names of flags."""
        renamed: dict[str, str] = getattr(self.callback, "renamed", {})
        end = args.index("--") if "--" in args else len(args)
        words = [word.partition("=") for word in args[:end]]
        current = [f"{renamed.get(flag, flag)}{equals}{value}" for flag, equals, value in words]
        if ctx.resilient_parsing:
            return super().parse_args(ctx, [*current, *args[end:]])
        current = self._with_file(ctx, current, args[end:])
        given = self._refuse_unknown(ctx, current)
        try:
            rest = super().parse_args(ctx, [*current, *args[end:]])
        except _Misuse as error:
            param, problem = getattr(error, "param", None), _problem(error) or "is missing"
            flag = f"{param.opts[0]} {given.get(param.name, '')}".rstrip() + ": " if param else ""
            _exit(UsageError(flag + problem, f"{ctx.command_path} --help"))
        for flag in {flag for flag, *_ in words} & set(renamed):
            note_renamed(flag, renamed[flag], quiet=bool(ctx.params.get("quiet")))
        return rest

    def _with_file(self, ctx: Any, words: list[str], rest: Sequence[str]) -> list[str]:
        """Puts the flags from the file of `--config` before the words; artifacts record the resulting command line."""
        place = next((n for n, word in enumerate(words) if word.partition("=")[0] == "--config"), None)
        if place is None or all(param.name != "config" or getattr(param, "is_flag", False) for param in self.params):
            return words
        from ccr_cli.commands import config_file

        _, equals, value = words[place].partition("=")
        others = words[:place] + words[place + (1 if equals else 2) :]
        file = Path(value if equals else "".join(words[place + 1 : place + 2]))
        try:
            if any(word.partition("=")[0] == "--config" for word in others):
                raise UsageError("--config is there twice: settings come from one file", "--set KEY=VALUE overrides it")
            expanded = [*config_file.words(file, others), *others]
        except CcrError as error:
            _exit(error)
        ctx.meta[_EXPANDED] = [*ctx.command_path.split()[1:], *expanded, *rest]
        return expanded

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; artifacts record the flags from a settings file instead of the file."""
        with recorded_as(ctx.meta[_EXPANDED]) if _EXPANDED in ctx.meta else nullcontext():
            return super().invoke(ctx)

    def _refuse_unknown(self, ctx: Any, words: Sequence[str]) -> dict[str, str]:
        """Returns the values of the flags; exits with a suggestion if the command lacks one of them."""
        flags = {name: param for param in self.params for name in param.opts if name.startswith("-")}
        bare = {name for name, p in flags.items() if getattr(p, "is_flag", False) or getattr(p, "count", False)}
        given: dict[str, str] = {}
        rest = iter(words)
        for word in rest:
            flag, equals, value = word.partition("=")
            if flag in flags and flag not in bare:
                given[str(flags[flag].name)] = value if equals else next(rest, "")
            elif flag.startswith("--") and flag not in (*flags, *ctx.help_option_names):
                value = value if equals else next(rest, "")
                settings = {key.replace("_", "-"): key for key in _settings(str(ctx.command.name), given)}
                hint = f"{ctx.command_path} --help"
                for near in nearest(flag[2:], [*(name[2:] for name in flags), *settings], 1):
                    setting = f"--set {settings.get(near)}={'VALUE' if value.startswith('-') or not value else value}"
                    hint = f"did you mean --{near}?" if f"--{near}" in flags else setting
                _exit(UsageError(f"{ctx.command_path} has no option {flag}", hint))
        return given


def _problem(error: Any) -> str:
    """Typer's description of a mistake on the command line, worded to end one of ccr's messages."""
    return str(error.message[:1].lower() + error.message[1:].rstrip("."))


def _settings(command: str, given: Mapping[str, str]) -> list[str]:
    """The keys of `--set` for the plug-in that the flags of a command select."""
    plugins = {
        "train": ("methods", "method", "uml"),
        "extract": ("encoders", "encoder", "clip"),
        "translate": ("translators", "engine", "hf"),
    }
    if command not in plugins:
        return []
    group, flag, usual = plugins[command]
    with suppress(CcrError):
        name = given.get(flag, "auto")
        return [f.name for f in dataclasses.fields(registry.load(group, usual if name == "auto" else name).Config)]
    return []


def note_renamed(old: str, new: str, quiet: bool = False) -> None:
    """Prints that a flag or a command has a new name."""
    console.say(f"{old} is now {new}; the old name goes with the next version", level=1 if quiet else -1)


def guarded(function: Callable[..., None]) -> Callable[..., None]:
    """Turns a function into a command: a flag for every field of its dataclasses, and exit codes for errors.

    A parameter annotated with a dataclass receives an instance with the flags' values. A field, or another parameter,
    describes its flag by `stages.shared.options.option`; one with a plain default uses the flag of its name in
    `_SHARED`. A user's mistake never shows a traceback.
    """
    signature = inspect.signature(function, eval_str=True)
    parameters = signature.parameters.values()
    groups: dict[str, Any] = {p.name: p.annotation for p in parameters if dataclasses.is_dataclass(p.annotation)}

    @functools.wraps(function)
    def wrapper(*args: Any, **flags: Any) -> None:
        as_json, place = bool(flags.get("json")), flags.get("workspace")
        console.verbosity = -1 if flags.get("quiet") else flags.get("verbose", 0)
        signal.signal(signal.SIGTERM, _terminate)
        if os.environ.get("WORLD_SIZE", "1") != "1":  # torch's warnings about DistributedDataParallel, of all processes
            os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        try:
            limit = process_memory.address_space()
            if limit is not None and limit < LEAST_ADDRESS_SPACE:
                least = f"and ccr needs {LEAST_ADDRESS_SPACE >> 30}"
                problem = f"the address space is limited to {limit / 2**30:.3g} GiB, {least}"
                raise ResourceError(problem, hint="raise the limit: ulimit -v unlimited")
            objects = {}
            for name, group in groups.items():
                fields = [field for field in dataclasses.fields(group) if field.name in flags]
                values = {field.name: _value(field, flags.pop(field.name)) for field in fields}
                if issubclass(group, Call):
                    values |= {"command": function.__name__}
                objects[name] = group(**values)
            try:
                function(*args, **flags, **objects)
            except Planned as planned:
                show_plans([*planned.earlier, planned], as_json=as_json)
            except OptionsAsked as options:
                show_table(options.columns, options.rows)
        except CcrError as error:
            _exit(error)
        except (KeyboardInterrupt, Terminated) as stop:
            word, code = ("terminated", 143) if isinstance(stop, Terminated) else ("interrupted", 130)
            if _is_first():
                console.say(f"{word}; finished work is kept, and the same command continues from it", level=-1)
            raise typer.Exit(code) from None
        except BrokenPipeError:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - keeps the interpreter's last flush quiet
            raise typer.Exit(0) from None
        except Exception as error:
            if isinstance(error, OSError) and error.errno:
                error.filename = error.filename or str((place or Path()).absolute())
            known = as_user_error(error) or (None if console.verbosity > 0 else registry.own_failure(error))
            if known is None:
                raise
            _exit(known)

    renamed: dict[str, str] = {}
    flags = [flag for parameter in parameters for flag in _flags(parameter, renamed)]
    wrapper.__dict__["renamed"] = renamed
    wrapper.__signature__ = signature.replace(parameters=flags)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {flag.name: flag.annotation for flag in flags}
    paragraphs = (function.__doc__ or "").split("\n\n")
    wrapper.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)  # the terminal breaks lines
    return wrapper


LEAST_ADDRESS_SPACE = 3 << 30
"""In bytes. Libraries take about 1.2 GiB; with less than 2 GiB left, OpenBLAS hangs and others crash."""


def _terminate(signum: int, frame: object) -> None:
    raise Terminated


def _flags(parameter: inspect.Parameter, renamed: dict[str, str]) -> Iterator[inspect.Parameter]:
    """Yields the flags of a command's parameter for Typer: one for each field of a dataclass, or its own.

    Adds the old name of each renamed flag to `renamed`, with its new name.
    """
    defaults, hints = {parameter.name: parameter.default}, {parameter.name: parameter.annotation}
    if dataclasses.is_dataclass(parameter.annotation):
        fields = dataclasses.fields(parameter.annotation)
        defaults = {field.name: field for field in fields if field.metadata.get("flag", True)}
        hints = typing.get_type_hints(parameter.annotation, include_extras=True)
    for name, default in defaults.items():
        own, annotation = declared(name, default, _SHARED), hints[name]
        if isinstance(default, dataclasses.Field):
            default = (own or default).default if default.default is dataclasses.MISSING else default.default
        if own is not None and default is not inspect.Parameter.empty:
            kind: Any = (own.metadata["command_line"] or (annotation, None))[0]
            default = [default] if kind == list[str] and isinstance(default, str) else default
            names = own.metadata["flags"] or (f"--{name.replace('_', '-')}",)
            renamed.update({was: names[0]} if (was := own.metadata["was"]) else {})
            annotation = Annotated[kind, typer.Option(*names, **own.metadata["shown"])]
        yield parameter.replace(name=name, default=default, annotation=annotation)


def _value(field: dataclasses.Field[Any], given: Any) -> Any:
    own = declared(field.name, field, _SHARED)
    read = own.metadata["command_line"] if own else None
    return read[1](given) if read and given is not None else given


def flags_given(context: typer.Context) -> dict[str, str]:
    """The flags given on the command line, not in the environment, by the name of their parameter."""
    sources = {option: context.get_parameter_source(str(option.name)) for option in context.command.params}
    return {str(o.name): o.opts[0] for o, source in sources.items() if source and source.name == "COMMANDLINE"}


def _exit(error: CcrError) -> NoReturn:
    """Prints a user's error and exits with its code."""
    console.say(f"error: {error.message}", level=-1, style="bold red")
    if error.hint:
        console.say(f"  try: {error.hint}", level=-1)
    raise typer.Exit(error.exit_code) from None


def _is_first() -> bool:
    """Whether this is the first or only process of a training run; if any process ends, torchrun ends the others."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def first_speaks() -> Iterator[None]:
    """Lets only the first of torchrun's processes report wrong options, which all of them detect.

    The others wait silently for torchrun, which ends all processes as soon as one ends.
    """
    try:
        yield
    except UsageError as error:
        if _is_first():
            raise
        with suppress(Terminated):
            time.sleep(10)
        raise typer.Exit(error.exit_code) from None


def show_plans(plans: Sequence[Planned], as_json: bool) -> None:
    """Prints the plans of a dry run."""
    if as_json:
        print(json.dumps(plan_facts(plans)))
        return
    rows = []
    for planned in plans:
        rows += [("artifact", str(planned.path)), ("state", planned.state)]
        rows += [(f"parent {kind}", id_[:12]) for kind, id_ in planned.plan["parents"]]
        rows += [(key, json.dumps(value, ensure_ascii=False)) for key, value in planned.plan["request"].items()]
        for key, value in planned.facts.items():  # one of a nested fact is named `sentences forward`
            inner = {f"{key} {k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
            rows += [(k, "unknown" if v is None else str(v)) for k, v in inner.items()]
    show_table(("what", "value"), rows)


def plan_facts(plans: Sequence[Planned]) -> dict[str, object]:
    """The plans of a dry run, as JSON values."""
    paths = {planned.path for planned in plans}
    read = {a.path: a for planned in plans for a in planned.parents if a.path.exists() and a.path not in paths}
    return {"read": [*map(artifact_facts, read.values())], "made": [*map(_plan_facts, plans)]}


def _plan_facts(planned: Planned) -> dict[str, object]:
    """The plan, with the `artifact_facts` of the artifact as far as they are known before it exists."""
    artifact = load(planned.path) if planned.state == "done" else None
    facts = {"kind": planned.plan["kind"], "name": planned.path.name, "id": None, "counts": {}}
    facts |= {"path": str(planned.path)} if artifact is None else artifact_facts(artifact)
    parents = [{"kind": kind, "id": id_} for kind, id_ in planned.plan["parents"]]
    plan = {"state": planned.state, "request": planned.plan["request"], "parents": parents}
    return {**facts, **plan, **planned.facts}


def emit(
    inputs: Inputs,
    made: Sequence[Artifact],
    as_json: bool,
    more: Callable[[Artifact], Mapping[str, object]] = lambda artifact: {},
) -> None:
    """Prints the artifacts that were read and made; exits 3 if items failed or training ended early.

    `more` returns further facts about an artifact that was made, for JSON.
    """
    new = {a.path: a for a in made}
    read = {a.path: a for a in inputs.read if a.path not in new}
    if as_json:
        made_facts = [{**artifact_facts(artifact), **more(artifact)} for artifact in new.values()]
        print(json.dumps({"read": [*map(artifact_facts, read.values())], "made": made_facts}))
    else:
        for path in (*read, *new):
            print(path)
    sys.stdout.flush()
    failed = [a for a in made if a.counts.get("failed")]
    for artifact in failed:
        from ccr_cli.artifacts.translation import BY_HAND  # with pandas, which other commands do without

        again = "fix them and import again" if artifact.kind == "dataset" else "retry them: --retry-failed"
        if {"from", "concat"} & artifact.request.keys() or artifact.request.get("engine") in ("recorded", BY_HAND):
            again = "add them where they come from (then import a data set again), and repeat the command with --force"
            if artifact.kind == "translation":
                columns = "columns source_caption_id and correction"
                name = inputs.workspace.relative(artifact.path)
                again += f"; or type them: ccr translate {name} --only FILE.csv, {columns}"
        elif all(record.get("error") == "NoMedia" for record in artifact.jsonl(FAILURES)):
            again = "name their pictures in the table, and import it again with --force"
        console.warn(f"{artifact.counts['failed']} failed (reasons: {artifact.path / FAILURES}); {again}")
    if failed or any(a.counts.get("stopped") for a in made):
        raise typer.Exit(3)


def artifact_facts(artifact: Artifact) -> dict[str, object]:
    """What commands print about an artifact as JSON."""
    facts = {key: getattr(artifact, key) for key in ("kind", "name", "id", "counts")}
    return {**facts, "path": str(artifact.path)}


def show_part(inputs: Inputs, division: Division, **done: object) -> None:
    """Prints as JSON what one part of divided work read and did; the artifact is made later."""
    show_json({"read": [*map(artifact_facts, inputs.read)], "made": [], "shard": division.shard, **done})


def show_json(value: object) -> None:
    """Prints a value as one line of JSON; control characters are escaped."""
    print(console.escaped(json.dumps(value, ensure_ascii=False)))


def show_rows(name: str, columns: Sequence[str], rows: Sequence[Sequence[object]], as_json: bool) -> None:
    """Prints rows as a table, or as one JSON object with a list of them under a name."""
    if as_json:
        show_json({name: [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        show_table(columns, rows)


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None, heading: bool = True
) -> None:
    """Prints a table on standard output, drawn on a terminal and as TSV otherwise; control characters are replaced.

    Without `heading`, TSV continues an earlier table.
    """
    plain = [[console.plain("" if cell is None else str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in [*[list(columns)] * heading, *plain]:
            print("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = Console()
    table = Table(title=None if title is None else Text(console.plain(title)))
    whole = _unbroken(columns, plain, terminal.width)
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=number in whole)  # a truncated path cannot be copied
    for row in plain:
        table.add_row(*[Text(cell) for cell in row])
    terminal.print(table)


def _unbroken(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> set[int]:
    """Chooses the columns without spaces that fit unbroken into a terminal of `width`, the narrowest first.

    Every other column keeps 10 characters; a border takes 3.
    """
    from rich.cells import cell_len

    left = width - 1 - (3 + 10) * len(columns)
    named = enumerate(zip(columns, *rows, strict=True))
    sizes = {n: max(map(cell_len, cells)) for n, cells in named if " " not in "".join(cells)}
    whole = set()
    for number, size in sorted(sizes.items(), key=lambda item: item[1]):
        left -= size - 10
        if left < 0:
            break
        whole.add(number)
    return whole


def serve_until_stopped(serve: Callable[[Callable[[str], None]], None], open_page: bool) -> int:
    """Runs a server, which calls its argument with its address, until a signal stops it; returns the exit code."""

    def ready(address: str) -> None:
        print(address, flush=True)
        console.say("  press Ctrl-C to stop")
        if open_page:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(ready)
    except (KeyboardInterrupt, Terminated) as stop:
        return 130 if isinstance(stop, KeyboardInterrupt) else 143
    return 0


def examples(*lines: str) -> str:
    """Formats the examples below a command's help."""
    return "Examples:\n\n" + "\n\n".join(lines)
