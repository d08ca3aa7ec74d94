r"""Apertium, the rule-based engine of Debian and Ubuntu; needs no model.

Forcada et al., "Apertium: a free/open-source platform for rule-based machine translation", Machine
Translation 25, 2011. A pair that is not installed is chained over one pivot (en -> ca -> fr).

Each hop is one process for a block of texts. Fed line by line, Apertium reads the lines as one running
text: words and their disambiguation cross line ends (the last word of a line can come back in the next), so
that most lines are right, their number is, and some are not. Here every text ends in a full stop of its own
and a NUL byte, on which all parts of the pipe flush; and the one part that remembers what came before it, the
tagger, is run by `_tagger.py`, which has it forget. So a text comes out as it does when translated alone,
whatever the others, at nearly the speed of one file.

Texts are written in Apertium's stream format, which this module makes and reads itself: the specials
`\ [ ] { } ^ $ / < > @` with a backslash, `~` in brackets, out of its way. White space becomes single spaces.
"""

from __future__ import annotations

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

from ccr_cli.errors import UnavailableError
from ccr_cli.translators._languages import bcp47, iso3, primary
from ccr_cli.translators.base import Translation

_PROGRAM = "apertium"
_BLOCK = 1024
"""Texts of one process (starting one takes up to a second); when it has ended, their number is verified."""
_TAGGER = "apertium-tagger"
_MODE = re.compile(r"[a-z]{2,3}-[a-z]{2,3}")
_SPECIAL = re.compile(r"[\\\[\]{}^$/<>@]")
_ESCAPED = re.compile(r"\\(.)|[\[\]]", re.DOTALL)
# Debian's names of the pairs that lead out of English, and of what chains them further.
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
    """Modes to run one after the other, e.g. eng-cat_valencia or eng-cat,cat-fra; by default found."""

    timeout: float = 600.0
    """Seconds that one hop of one call may take."""

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: If one of them cannot be.
        """
        if self.timeout <= 0:
            raise ValueError("timeout is greater than 0")


class Translator:
    """Runs the modes that lead from one language to another.

    Args:
        source: Language of the texts, BCP 47; region and script are not looked at.
        target: Language of the translations, likewise.
        config: Options.
        dataset_dir: Not used.
        device: Not used.

    Raises:
        UnavailableError: If Apertium is not installed, or no installed modes lead there in two hops; the hint
            names the packages.
    """

    def __init__(self, source: str, target: str, config: Config, *, dataset_dir: Path | None, device: str) -> None:
        self.config = config
        if shutil.which(_PROGRAM) is None:
            raise UnavailableError("Apertium is not installed", hint=_install(source, target))
        installed = _modes()
        if config.modes:
            self.modes = [mode.strip() for mode in config.modes.split(",")]
            missing = [mode for mode in self.modes if mode not in installed]
            if missing:
                raise UnavailableError(
                    f"Apertium has no mode {', '.join(missing)}",
                    hint=f"installed modes: {', '.join(installed) or 'none'}",
                )
        else:
            self.modes = _path(primary(source), primary(target), installed)
            if not self.modes:
                raise UnavailableError(
                    f"the installed Apertium modes do not lead from {source} to {target} within two hops",
                    hint=f"{_install(source, target)}; installed modes: {', '.join(installed) or 'none'}",
                )

    def translate(self, texts: list[str], known: Collection[int] = ()) -> Iterator[tuple[int, Translation]]:
        """Translates texts, block by block; a text on which Apertium itself fails does not stop the others."""
        unknown = [i for i in range(len(texts)) if i not in known]
        yield from ((i, Translation("")) for i in unknown if not texts[i].strip())
        todo = [i for i in unknown if texts[i].strip()]
        for block in (todo[first : first + _BLOCK] for first in range(0, len(todo), _BLOCK)):
            yield from zip(block, self._chain([texts[i] for i in block]), strict=True)

    def describe(self) -> dict[str, str]:
        """Says what translates: the version of the program and of each package of language data."""
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
        if not texts:
            return []
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
    """What a request records: patience by its default, since it decides no translation."""
    return {"timeout": Config().timeout}


def pairs(dataset_dir: Path | None) -> list[tuple[str, str]]:
    """Lists the pairs that the installed modes reach within two hops; none where Apertium is missing."""
    if shutil.which(_PROGRAM) is None:
        return []
    installed = _modes()
    languages = sorted({language for edge in _edges(installed) for language in edge})
    return [(a, b) for a in languages for b in languages if a != b and _path(a, b, installed)]


def reaches(source: str, target: str) -> bool:
    """Whether the installed modes lead from one language to another."""
    return bool(_path(primary(source), primary(target), _modes()))


def missing() -> tuple[str, str] | None:
    """Says what is missing here and how to get it, for `ccr doctor`; None where nothing is."""
    if shutil.which(_PROGRAM) is None:
        return "not installed", _install("en", "es")
    return None if _modes() else ("no language pair is installed", _install("en", "es"))


class _HopError(Exception):
    """One hop failed on these texts."""


def _command(mode: str) -> list[str]:
    """No marks on unknown words, flush on NUL, input already in the stream format."""
    return [_PROGRAM, "-u", "-z", "-f", "none", mode]


def _environment() -> dict[str, str]:
    """Without what would turn UTF-8 off, or have the program insert its own commands."""
    return {k: v for k, v in os.environ.items() if k not in ("LC_ALL", "LC_CTYPE", "AP_SETVAR")}


@contextmanager
def _forgetful_tagger() -> Iterator[dict[str, str]]:
    """The environment in which Apertium finds `_tagger.py` where it looks for its tagger."""
    environment = _environment()
    places = environment.get("APERTIUM_PATH", "")
    real = shutil.which(_TAGGER, path=places or None)
    if real is None:
        yield environment
        return
    with tempfile.TemporaryDirectory(prefix="ccr-") as folder:
        program = Path(folder, _TAGGER)
        command = (sys.executable, "-IS", str(Path(__file__).with_name("_tagger.py")), real)
        program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        program.chmod(0o700)
        if not os.access(program, os.X_OK):  # Apertium would take its own tagger, and say nothing
            raise UnavailableError(
                f"no program can be run in {tempfile.gettempdir()}, and Apertium needs one there",
                hint="TMPDIR=FOLDER for a place that is not mounted noexec",
            )
        yield {**environment, "APERTIUM_PATH": os.pathsep.join([folder, places or str(Path(real).parent)])}


def _run(mode: str, texts: list[str], timeout: float) -> list[str]:
    with _forgetful_tagger() as environment:
        return _run_in(environment, mode, texts, timeout)


def _run_in(environment: dict[str, str], mode: str, texts: list[str], timeout: float) -> list[str]:
    data = "".join(_to_stream(text) + "\0" for text in texts).encode("utf-8", "replace")
    process = subprocess.Popen(
        _command(mode),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(data, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise _HopError(f"{mode} took more than {timeout:g} s") from None
    finally:
        if process.poll() is None:  # timeout, Ctrl-C: the whole pipe, not only the shell that leads it
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    words = " ".join(err.decode("utf-8", "replace").split())[:200]
    said = f": {words}" if words else ""
    if process.returncode != 0:
        raise _HopError(f"{mode} ended with {process.returncode}{said}")
    parts = out.decode("utf-8", "replace").split("\0")
    found = [_from_stream(part) for part in parts[: len(texts)]]
    if said and not any(found):
        raise _HopError(f"{mode} gave nothing{said}")
    if len(parts) <= len(texts) or any(part.strip() for part in parts[len(texts) :]):
        raise _HopError(f"{mode} gave another number of texts than it got{said}")
    return found


def _to_stream(text: str) -> str:
    """Escapes a text and ends the sentence with a full stop that `_from_stream` takes away again."""
    text = "".join(" " if unicodedata.category(char) in ("Cc", "Cs") else char for char in text)
    text = _SPECIAL.sub(lambda match: "\\" + match.group(), " ".join(text.split()))
    return re.sub(r"~+", lambda match: f"[{match.group()}]", text) + ".[]"


def _from_stream(text: str) -> str:
    text = re.sub(r"\.?\[\]\s*\Z", "", text)
    return " ".join(_ESCAPED.sub(lambda match: match.group(1) or "", text).split())


def _modes() -> tuple[str, ...]:
    """The modes of the program that is first in PATH now; none where there is none."""
    program = shutil.which(_PROGRAM)
    return _modes_of(program) if program else ()


@cache
def _modes_of(program: str) -> tuple[str, ...]:
    return tuple(_output(program, "-l").split())


def _edges(modes: tuple[str, ...]) -> dict[tuple[str, str], str]:
    """Modes by pair of languages; variants (`eng-cat_valencia`, `eco-es-fr`) are for `--set modes=`."""
    edges: dict[tuple[str, str], str] = {}
    for mode in modes:
        if _MODE.fullmatch(mode):
            source, target = mode.split("-")
            edges.setdefault((bcp47(source), bcp47(target)), mode)
    return edges


def _path(source: str, target: str, modes: tuple[str, ...]) -> list[str]:
    """The direct mode, else two over the alphabetically first pivot, else nothing."""
    edges = _edges(modes)
    if (source, target) in edges:
        return [edges[source, target]]
    for pivot in sorted({b for a, b in edges if a == source}):
        if (pivot, target) in edges:
            return [edges[source, pivot], edges[pivot, target]]
    return []


def _install(source: str, target: str) -> str:
    """The command that would install the pair, as far as it is known."""
    a, b = primary(source), primary(target)
    known = {frozenset(pair): package for pair, package in _PACKAGES.items()}
    pivots = sorted({language for pair in _PACKAGES for language in pair})
    routes = [[known.get(frozenset((a, b)))]]
    routes += [[known.get(frozenset((a, p))), known.get(frozenset((p, b)))] for p in pivots]
    for route in routes:
        names = [package for package in route if package]
        if len(names) == len(route):
            return f"sudo apt install apertium {' '.join(names)}"
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
    if shutil.which("dpkg-query") is None:
        return "of unknown version"
    return _output("dpkg-query", "-W", "-f", "${Version}", package).strip() or "of unknown version"


def _output(*command: str) -> str:
    """Standard output of a short command, empty if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, env=_environment(), timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
