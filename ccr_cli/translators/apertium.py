r"""Apertium, the rule-based engine of Debian and Ubuntu; needs no model.

Forcada et al., "Apertium: a free/open-source platform for rule-based machine translation", Machine
Translation 25, 2011. A pair that is not installed is translated through one pivot language (en -> ca -> fr).

Each hop is one process for a block of texts. Apertium reads lines as one running text: words and their disambiguation
cross line ends, so that some lines come out wrong. Here every text ends in its own full stop and a NUL byte, on which
all parts of the pipe flush; and the tagger, the only part with state, runs through `_tagger.py`, which resets it. So
each text is translated independently, at nearly the speed of one file.

Texts are written in Apertium's stream format: a backslash before `\ [ ] { } ^ $ / < > @`, and brackets around `~`.
White space becomes single spaces.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ccr_cli.data.languages import bcp47, iso3, primary
from ccr_cli.errors import UnavailableError
from ccr_cli.translators.base import Translation

_PROGRAM = "apertium"
_BLOCK = 1024
"""Texts per process, which takes up to a second to start; their number is checked at its end."""
_TAGGER = "apertium-tagger"
_MODE = re.compile(r"[a-z]{2,3}-[a-z]{2,3}")
_SPECIAL = re.compile(r"[\\\[\]{}^$/<>@]")
_ESCAPED = re.compile(r"\\(.)|[\[\]]", re.DOTALL)
# Debian's packages: pairs with English, pairs that continue these through a pivot, and a few others.
_PACKAGES = {
    ("ca", "en"): "apertium-eng-cat", ("en", "es"): "apertium-eng-spa", ("ca", "fr"): "apertium-fra-cat",
    ("es", "fr"): "apertium-fr-es", ("ca", "es"): "apertium-spa-cat", ("ca", "it"): "apertium-cat-ita",
    ("ca", "pt"): "apertium-por-cat", ("es", "pt"): "apertium-es-pt", ("es", "ro"): "apertium-es-ro",
    ("en", "gl"): "apertium-en-gl", ("en", "eo"): "apertium-eo-en", ("en", "eu"): "apertium-eu-en",
    ("en", "sh"): "apertium-hbs-eng", ("en", "is"): "apertium-isl-eng", ("en", "mk"): "apertium-mkd-eng",
    ("is", "sv"): "apertium-isl-swe", ("ca", "oc"): "apertium-oc-ca", ("be", "ru"): "apertium-bel-rus",
    ("ru", "uk"): "apertium-rus-ukr", ("hi", "ur"): "apertium-urd-hin", ("nb", "nn"): "apertium-nno-nob",
}  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Options of the engine."""

    modes: str = ""
    """Modes to chain, e.g. eng-cat_valencia or eng-cat,cat-fra; by default chosen for the language pair."""

    timeout: float = 600.0
    """Timeout of a hop in seconds."""

    def __post_init__(self) -> None:
        if self.timeout <= 0:
            raise ValueError(f"timeout must be greater than 0, not {self.timeout:g}")


class Translator:
    """Translates through the modes that lead from one language to another; regions and scripts are ignored.

    Raises:
        UnavailableError: If Apertium is not installed, or its modes do not lead to the target within two hops; the
            hint names the packages.
    """

    def __init__(self, source: str, target: str, config: Config, *, dataset_dir: Path | None, device: str) -> None:
        self.config = config
        if shutil.which(_PROGRAM) is None:
            raise UnavailableError("Apertium is not installed", hint=_install(source, target))
        installed = _modes()
        listed = f"installed modes: {', '.join(installed) or 'none'}"
        if config.modes:
            self.modes = [mode.strip() for mode in config.modes.split(",")]
            if unknown := [mode for mode in self.modes if mode not in installed]:
                raise UnavailableError(f"Apertium has no mode {', '.join(unknown)}", hint=listed)
        else:
            self.modes = _path(primary(source), primary(target), installed)
            if not self.modes:
                message = f"the installed Apertium modes do not lead from {source} to {target} within two hops"
                raise UnavailableError(message, hint=f"{_install(source, target)}; {listed}")

    def translate(self, texts: list[str], known: Collection[int] = ()) -> Iterator[tuple[int, Translation]]:
        """Yields translations block by block; a text on which Apertium fails does not stop the others."""
        unknown = [i for i in range(len(texts)) if i not in known]
        yield from ((i, Translation("")) for i in unknown if not texts[i].strip())
        todo = [i for i in unknown if texts[i].strip()]
        for block in (todo[first : first + _BLOCK] for first in range(0, len(todo), _BLOCK)):
            yield from zip(block, self._chain([texts[i] for i in block]), strict=True)

    def describe(self) -> dict[str, str]:
        """Names the modes, and the versions of the program and of each package of language data."""
        packages = dict.fromkeys(package for mode in self.modes for package in _packages_of(mode))
        versions = [f"{package} {_package_version(package)}" for package in packages]
        return {
            "engine": "apertium",
            "model": "+".join(self.modes),
            "version": "; ".join([_output(_PROGRAM, "-V").strip(), *versions]),
            "command": " | ".join(shlex.join(_command(mode)) for mode in self.modes),
            "licence": "GPL-2.0-or-later (the engine and its data; not what it translates)",
        }

    def identity(self) -> dict[str, Any]:
        """The modes, and the versions of the program and of the language data."""
        facts = self.describe()
        return {key: facts[key] for key in ("engine", "model", "version", "command")}

    def _chain(self, texts: list[str]) -> list[Translation]:
        """Translates texts through all modes; if a hop fails, halves the texts until the one at fault is alone."""
        try:
            hop = texts
            for mode in self.modes:
                hop = _run(mode, hop, self.config.timeout)
        except _HopError as error:
            if len(texts) == 1:
                return [Translation(None, error=str(error))]
            half = len(texts) // 2
            return self._chain(texts[:half]) + self._chain(texts[half:])
        return [Translation(text) if text.strip() else Translation(None, error="Apertium gave nothing") for text in hop]


def identity(config: Config) -> dict[str, float]:
    """What a request records: the default timeout, since the timeout changes no translation."""
    return {"timeout": Config().timeout}


def reaches(source: str, target: str) -> bool:
    """Whether the installed modes lead from one language to another within two hops."""
    return bool(_path(primary(source), primary(target), _modes()))


def missing() -> tuple[str, str] | None:
    """Tells `ccr doctor` what is missing and how to get it; None if nothing is."""
    if shutil.which(_PROGRAM) is None:
        return "not installed", _install("en", "es")
    return None if _modes() else ("no language pair is installed", _install("en", "es"))


class _HopError(Exception):
    """One hop failed on these texts."""


def _command(mode: str) -> list[str]:
    """The command: no marks on unknown words, flushing on NUL, input in the stream format."""
    return [_PROGRAM, "-u", "-z", "-f", "none", mode]


def _environment() -> dict[str, str]:
    """The environment without variables that turn UTF-8 off or insert commands."""
    return {k: v for k, v in os.environ.items() if k not in ("LC_ALL", "LC_CTYPE", "AP_SETVAR")}


@contextmanager
def _forgetful_tagger() -> Iterator[dict[str, str]]:
    """Provides an environment in which Apertium runs `_tagger.py` as its tagger."""
    environment = _environment()
    search_path = environment.get("APERTIUM_PATH", "")
    real = shutil.which(_TAGGER, path=search_path or None)
    if real is None:
        yield environment
        return
    with tempfile.TemporaryDirectory(prefix="ccr-") as folder:
        program = Path(folder, _TAGGER)
        command = (sys.executable, "-IS", str(Path(__file__).with_name("_tagger.py")), real)
        program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        program.chmod(0o700)
        if not os.access(program, os.X_OK):  # Apertium would silently use its own tagger
            message = f"{tempfile.gettempdir()} allows no programs, and Apertium needs one there"
            raise UnavailableError(message, hint="TMPDIR=FOLDER for a folder that is not mounted noexec")
        yield {**environment, "APERTIUM_PATH": os.pathsep.join([folder, search_path or str(Path(real).parent)])}


def _run(mode: str, texts: list[str], timeout: float) -> list[str]:
    """Sends texts through one mode; _HopError if Apertium fails on them."""
    data = "".join(_to_stream(text) + "\0" for text in texts).encode("utf-8", "replace")
    pipe = subprocess.PIPE
    with _forgetful_tagger() as environment:
        process = subprocess.Popen(
            _command(mode), stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True
        )
        try:
            out, err = process.communicate(data, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise _HopError(f"{mode} took more than {timeout:g} s") from None
        finally:
            if process.poll() is None:  # timeout, Ctrl-C: kill the whole pipe, not only its shell
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    words = " ".join(err.decode("utf-8", "replace").split())[:200]
    reason = f": {words}" if words else ""
    if process.returncode != 0:
        raise _HopError(f"{mode} ended with {process.returncode}{reason}")
    parts = out.decode("utf-8", "replace").split("\0")
    translations = [_from_stream(part) for part in parts[: len(texts)]]
    if reason and not any(translations):
        raise _HopError(f"{mode} gave nothing{reason}")
    if len(parts) <= len(texts) or any(part.strip() for part in parts[len(texts) :]):
        raise _HopError(f"{mode} gave another number of texts than it got{reason}")
    return translations


def _to_stream(text: str) -> str:
    """Escapes a text and ends it with a full stop, which `_from_stream` removes."""
    text = "".join(" " if unicodedata.category(char) in ("Cc", "Cs") else char for char in text)
    text = _SPECIAL.sub(lambda match: "\\" + match.group(), " ".join(text.split()))
    return re.sub(r"~+", lambda match: f"[{match.group()}]", text) + ".[]"


def _from_stream(text: str) -> str:
    text = re.sub(r"\.?\[\]\s*\Z", "", text)
    return " ".join(_ESCAPED.sub(lambda match: match.group(1) or "", text).split())


def _modes() -> tuple[str, ...]:
    """The modes of the program in PATH, if there is one."""
    program = shutil.which(_PROGRAM)
    return _modes_of(program) if program else ()


@cache
def _modes_of(program: str) -> tuple[str, ...]:
    return tuple(_output(program, "-l").split())


def _path(source: str, target: str, modes: tuple[str, ...]) -> list[str]:
    """The direct mode, else two through the alphabetically first pivot, else none; no variants (`eng-cat_valencia`)."""
    edges: dict[tuple[str, str], str] = {}
    for mode in filter(_MODE.fullmatch, modes):
        one, other = map(bcp47, mode.split("-"))
        edges.setdefault((one, other), mode)
    if (source, target) in edges:
        return [edges[source, target]]
    if source == target:
        return []
    for pivot in sorted({b for a, b in edges if a == source}):
        if (pivot, target) in edges:
            return [edges[source, pivot], edges[pivot, target]]
    return []


def _install(source: str, target: str) -> str:
    """The command that installs a pair; a guess if its packages are unknown."""
    a, b = primary(source), primary(target)
    known = {**_PACKAGES, **{(two, one): package for (one, two), package in _PACKAGES.items()}}
    pivots = sorted({language for pair in _PACKAGES for language in pair})
    for route in ([(a, b)], *([(a, pivot), (pivot, b)] for pivot in pivots)):
        if known.keys() >= {*route}:
            return f"sudo apt install apertium {' '.join(known[hop] for hop in route)}"
    return f"sudo apt install apertium apertium-{iso3(source)}-{iso3(target)} (if there is such a pair)"


def _packages_of(mode: str) -> list[str]:
    folder = Path(os.environ.get("APERTIUM_DATADIR", "/usr/share/apertium")) / "modes"
    try:
        text = (folder / f"{mode}.mode").read_text("utf-8")
    except OSError:
        return []
    return list(dict.fromkeys(re.findall(r"/(apertium-[a-z]{2,3}-[a-z]{2,3})/", text)))


@cache
def _package_version(package: str) -> str:
    return _output("dpkg-query", "-W", "-f", "${Version}", package).strip() or "of unknown version"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, env=_environment(), timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
