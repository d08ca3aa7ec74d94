"""Messages and progress, always on standard error."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Progress

_LINE_SECONDS = 30.0

verbosity = 0
"""-2: nothing, -1: errors only, 0: normal, 1 and above: verbose. Set by the command line and by `ccr_cli.api`."""

warnings: list[str] | None = None
"""Where warnings are collected, whatever the verbosity; set by `ccr_cli.api`."""

brief = False
"""Show each result in one line; set by `ccr demo`, which runs many commands."""


_CLASS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
HIDDEN, _BREAKS = re.compile(f"[{_CLASS}]"), re.compile("[\t\n\r\v\f\u2028\u2029]")
"""Control characters except tab and line breaks, bidirectional overrides, and surrogates."""
_ESCAPED = re.compile(f"[{_CLASS}\u2028\u2029]")


class _Messages(Console):
    """A console that keeps working when the reader of standard error has gone away."""

    def on_broken_pipe(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


def stderr() -> Console:
    """Returns the console for messages, created anew so that it follows a redirected standard error."""
    return _Messages(stderr=True, highlight=False, soft_wrap=True)


def plain(text: str) -> str:
    """Replaces control characters, so that data cannot control the terminal.

    Tabs and line breaks become a space; other controls, surrogates and bidirectional overrides become U+FFFD.
    """
    return HIDDEN.sub("\ufffd", _BREAKS.sub(" ", text))


def escaped(json: str) -> str:
    """Replaces hidden characters and line separators in JSON by JSON escapes."""
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", json)


def counted(n: int, one: str, many: str = "") -> str:
    """Formats a number with its noun: `1 run`, `2 runs`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def tally(counts: Mapping[str, int]) -> str:
    """Formats an artifact's counts, whose keys are plurals: `1 model`, or `12 test items` for `items.test`."""
    names = {what: " ".join(reversed(what.split("."))) for what in counts}
    return ", ".join(f"{n:,} {names[what].removesuffix('s') if n == 1 else names[what]}" for what, n in counts.items())


def speed(rate: float) -> str:
    """Formats a rate: `53,070`, `6.11`."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def say(message: str, *, level: int = 0, style: str | None = None) -> None:
    """Prints plain text (never markup) on standard error if `verbosity` is at least `level`.

    Line breaks are kept, other control characters are replaced.
    """
    if verbosity >= level:
        lines = "\n".join(plain(line) for line in message.split("\n"))
        stderr().print(Text(lines, style=style or ""))


def warn(message: str) -> None:
    """Prints a warning on standard error, and adds it to `warnings` if they are collected."""
    if warnings is not None:
        warnings.append(message)
    say(f"warning: {message}", style="yellow")


@contextmanager
def progress(total: int, what: str, unit: str) -> Iterator[Callable[..., None]]:
    """Shows progress with rate and remaining time: a bar on a terminal, otherwise a line every half minute.

    Yields a function `advance(n=1, note="")`; `unit` is a plural such as `images`.
    """
    shown = verbosity >= 0 and total > 0
    start = last = time.monotonic()
    done = 0
    with _bar() if shown and sys.stderr.isatty() else nullcontext() as bar:
        task = None if bar is None else bar.add_task(what, total=total, rate="", note="")

        def advance(n: int = 1, note: str = "") -> None:
            nonlocal done, last
            done += n
            now = time.monotonic()
            rate = done / max(now - start, 1e-6)
            if bar is not None and task is not None:
                bar.update(task, advance=n, rate=f"{speed(rate)} {unit}/s", note=plain(note))
            elif shown and now - last >= _LINE_SECONDS:
                last, left = now, f"{(total - done) / rate:.0f} s left"
                say(f"{what}: {done}/{total} {unit}, {speed(rate)} {unit}/s, {left}{'; ' + note if note else ''}")

        yield advance


def _bar() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    name, rate, note = (
        TextColumn(f"{{task.{key}}}", markup=False) for key in ("description", "fields[rate]", "fields[note]")
    )
    return Progress(name, BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn(), note, console=stderr())
