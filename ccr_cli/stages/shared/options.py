"""Options as dataclasses: of a command, where each field is a flag, and of a plug-in, `--set key=value`."""

import ast
import dataclasses
import functools
import inspect
import itertools
import math
import re
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from ccr_cli import registry
from ccr_cli.errors import OptionsAsked, UsageError, did_you_mean

C = TypeVar("C")
_SECRET = re.compile(
    r"(^|_)((api|auth|access|secret|client|app)_?)?(key|secret|password)$|^((api|auth|access)_?)?token$", re.I
)
LARGEST = 2**31 - 1
"""Largest whole number: ids and sizes are 32-bit integers."""


def option(
    default: Any,
    help: str,
    *flags: str,
    was: str | None = None,
    request: bool | Callable[[Any], bool] = False,
    sweep: bool = False,
    command_line: tuple[Any, Callable[[Any], Any]] | None = None,
    **shown: Any,
) -> Any:
    """Declares a flag: a field of a command's options, or a parameter of a command (`commands.common.guarded`).

    Options that several commands share (`device`, `seed`, `name`, ...) need no `option`: with a plain default, the
    command takes the flag of that name from `SHARED`.

    Args:
        default: Default value.
        help: Help text.
        flags: Names of the flag; by default `--` and the field's name.
        was: The flag's name in the last version, which still works and prints the new one (`commands.common.Command`).
        request: Whether it belongs to the artifact's request (`request_of`), or a function of the options that decides.
        sweep: Whether `ccr train --sweep` can vary it.
        command_line: The type that the command line reads, and a function that turns its value into the field's.
        shown: Further arguments of `typer.Option`, such as `min` or `show_default`.
    """
    metadata = {"flags": flags, "was": was, "request": request, "sweep": sweep, "command_line": command_line}
    return dataclasses.field(default=default, metadata={**metadata, "shown": {"help": help, **shown}})


def flag(field: dataclasses.Field[Any]) -> str:
    """The name of a field's flag, such as `--batch-size`."""
    return str((field.metadata.get("flags") or (f"--{field.name.replace('_', '-')}",))[0])


def request_of(options: Any, **facts: Any) -> dict[str, Any]:
    """The fields that belong to the artifact's request; `facts` replace values, such as a path by its checksum."""
    marks = {field.name: field.metadata.get("request") for field in dataclasses.fields(options)}
    names = [name for name, mark in marks.items() if (mark(options) if callable(mark) else mark)]
    return {name: facts.get(name, getattr(options, name)) for name in names}


def default_request(options_type: Any) -> dict[str, Any]:
    """The defaults of the fields that belong to the request."""
    return {field.name: field.default for field in dataclasses.fields(options_type) if field.metadata.get("request")}


def parse_set(values: Sequence[str] | None) -> dict[str, str]:
    """Splits `--set key=value` options; UsageError if one has no `=`."""
    settings = {}
    for value in values or []:
        key, equals, text = value.partition("=")
        if not equals and value != "help":
            raise UsageError(f"--set {value}: expected key=value", hint="--set help lists the keys")
        settings[key.strip().replace("-", "_")] = text
    return settings


_STYLE = "How captions are mismatched. {noise}."
_TARGET = (
    "What moves: translation (the translation alone), pair (caption and translation), any (of mixed and near: "
    "translation, picture or caption, a third each)."
)
_SET = "Set an option of the method, judge, encoder, engine or format; repeat for several. `--set help` lists them."
where = functools.partial(option, rich_help_panel="Where and how")
result = functools.partial(option, rich_help_panel="Result")
SHARED: dict[str, dataclasses.Field[Any]] = {
    "settings": option(
        (),
        _SET,
        "--set",
        metavar="KEY=VALUE",
        show_default=False,
        command_line=(list[str], parse_set),
        autocompletion=lambda incomplete: [
            word for name in registry.names("judges") if (word := f"judge={name}").startswith(incomplete)
        ],
    ),
    "seed": option(0, "Random seed.", min=0),
    "noise_style": option("caption", _STYLE),
    "noise_target": option(None, _TARGET, show_default="the style's first"),
    "noise_seed": option(None, "Random seed of the mismatch.", min=0, show_default="--seed"),
    "device": where("auto", "Device: auto, cpu or cuda.", envvar="CCR_DEVICE"),
    "dtype": where("float32", "Precision: float32, bfloat16 or float16."),
    "max_failed": result(0.2, "Fraction of items that may fail (0 to 1).", min=0.0, max=1.0),
    "name": result(None, "Name of the artifact."),
    "force": result(False, "Rebuild; keep the old artifact until the new one is complete."),
    "retry_failed": result(False, "Retry failed items and keep the others."),
    "cache": where(
        None, "Cache folder; its content can be rebuilt.", envvar="CCR_CACHE", show_default="the user's cache"
    ),
}
"""Options that several commands share, by the name of their field or parameter, whose default counts."""


def declared(
    name: str, default: Any, shared: Mapping[str, dataclasses.Field[Any]] = SHARED
) -> dataclasses.Field[Any] | None:
    """The declaration of a field's or a parameter's flag; None for an argument, or if Typer's own describes it."""
    own = isinstance(default, dataclasses.Field) and "shown" in default.metadata
    return default if own else shared.get(name)


def mismatch_flags(options: Any) -> list[str]:
    """The flags that describe a mismatch and differ from their defaults, such as `--noise-seed 1`."""
    names = [name for name in SHARED if name.startswith("noise_") and getattr(options, name) != SHARED[name].default]
    return [f"--{name.replace('_', '-')} {getattr(options, name)}" for name in names]


def refuse_without_noise(flags: Sequence[str]) -> None:
    """Refuses flags that describe a mismatch where none is drawn (UsageError)."""
    if flags:
        raise UsageError(f"{flags[0]} has no effect without --noise", hint="add --noise 0.4")


KINDS = {
    "translate": ("dataset",),
    "extract": ("dataset",),
    "train": ("translation",),
    **dict.fromkeys(("evaluate", "search", "index", "serve", "export"), ("run",)),
    "diagnose": ("run", "translation"),
    "review": ("diagnosis",),
    "report": ("evaluation", "diagnosis", "translation"),
    "compare": ("run", "evaluation"),
}
"""The kinds of artifact that each command prefers, for `latest` and completion."""
MANY = {"evaluate", "diagnose", "report", "compare", "show", "verify"}
"""Commands that take several artifacts of a kind, so that a prefix may stand for all names with it."""


def identified(module: Any, config: Any) -> dict[str, Any]:
    """A plug-in's options as a request records them: its `identity(config)` can replace a path by a checksum."""
    identity = getattr(module, "identity", None)
    return {**dataclasses.asdict(config), **(identity(config) if identity else {})}


def configure(config_type: type[C], options: Mapping[str, Any], owner: str, base: C | None = None) -> C:
    """Makes a Config (a frozen dataclass) from values by field, as text or typed, over `base` or the defaults.

    Raises:
        OptionsAsked: If `help` is among them.
        UsageError: On an unknown key (the error lists the known ones), a key that looks like a password's, or a value
            of the wrong type; it names the `owner`.
    """
    if "help" in options:
        raise OptionsAsked(described(config_type))
    hints = typing.get_type_hints(config_type)
    fields = [f.name for f in dataclasses.fields(config_type)]  # type: ignore[arg-type]
    values = dict(options)
    for key, text in options.items():
        if key not in fields and _SECRET.search(key):
            problem = f"{owner} takes no {key} from the command line, which others can see and artifacts record"
            raise UsageError(problem, hint="set an environment variable; `ccr doctor` lists them")
        if key not in fields:
            hint = f"{did_you_mean(key, fields)}options: {', '.join(sorted(fields)) or 'none'}"
            raise UsageError(f"{owner} has no option {key!r}", hint)
        try:
            values[key] = typed(text, hints[key]) if isinstance(text, str) else text
        except ValueError as error:
            raise UsageError(f"--set {key}={text}: {error}", hint="--set help lists the options") from None
    try:
        return dataclasses.replace(base if base is not None else config_type(), **values)  # type: ignore[type-var]
    except (ValueError, TypeError) as error:
        raise UsageError(f"{owner}: {error}", hint="--set help lists the options with their defaults") from None


def list_options(group: str, name: str) -> NoReturn:
    """Shows the options of a plug-in: raises OptionsAsked, which the command prints."""
    module = registry.load(group, name)
    rows = described(module.Config)
    if presets := ", ".join(module.Method.PRESETS) if group == "methods" else "":
        rows.append(("--preset", "", f"Named settings of these options: {presets}; --preset help lists what they set."))
    raise OptionsAsked(rows)


def list_presets(method: str) -> NoReturn:
    """Shows the presets of a method with their settings (OptionsAsked); UsageError if it has none."""
    module = registry.load("methods", method)
    defaults = dataclasses.asdict(module.Config())
    if not module.Method.PRESETS:
        raise UsageError(f"{method} has no presets", hint=f"ccr train --method {method} --set help")
    rows = [
        (preset, ", ".join(f"{key}={value}" for key, value in settings.items() if value != defaults[key]))
        for preset, settings in module.Method.PRESETS.items()
    ]
    raise OptionsAsked(rows, ("--preset", "settings that differ from the defaults"))


def described(config_type: type) -> list[tuple[str, str, str]]:
    """Name, default and meaning of each option: the first paragraph of the string under its field."""
    meaning: dict[str, str] = {}
    for owner in filter(dataclasses.is_dataclass, reversed(config_type.__mro__)):
        definition: Any = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        for line, below in itertools.pairwise(definition.body):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(below, ast.Expr):
                text = ast.literal_eval(below.value)
                meaning[line.target.id] = " ".join(str(text).split("\n\n")[0].split())
    start, names = config_type(), [field.name for field in dataclasses.fields(config_type)]
    return [(name, str(getattr(start, name)), meaning.get(name, "")) for name in names]


def typed(text: str, hint: Any) -> Any:
    """Parses a value from the command line as a field's type; ValueError if it is not of that type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        if text not in arguments:
            raise ValueError(f"expected one of {', '.join(map(str, arguments))}")
        return text
    if origin in (typing.Union, types.UnionType):
        if type(None) in arguments and text.lower() in ("none", ""):
            return None
        return typed(text, next(a for a in arguments if a is not type(None)))
    if hint is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("expected true or false")
        return text.lower() == "true"
    if hint in (int, float):
        try:
            number = hint(text)
        except ValueError:
            number = math.nan
        if abs(number) > LARGEST and hint is int:
            raise ValueError(f"whole numbers go up to {LARGEST}")
        if not math.isfinite(number):
            raise ValueError(f"expected {'a whole number' if hint is int else 'a number'}")
        return number
    return text
