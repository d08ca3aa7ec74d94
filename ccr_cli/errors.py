"""Errors that a user can cause, each with its exit code.

Every error has a message (what is wrong, and where) and usually a hint (what to type next). Any other exception that
escapes a command is a bug in ccr and exits with 1 and a traceback.
"""

import difflib
import errno
import importlib.util
import itertools
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_LISTED = 1000
"""Largest number of names in a folder to compare with a mistyped one."""
_QUERY = re.compile(r"(\w+://[^\s?]+)\?\S+")
_USER = re.compile(r"(\w+://)[^\s/@]+@")
_TOKEN = re.compile(r"\bhf_\w{8,}|(?i:\bbearer) \S+")
_TOO_MUCH = re.compile("out ?of ?memory|can't allocate memory|size calculation overflow", re.IGNORECASE)


def redact(message: str) -> str:
    """Removes possible secrets (URL queries, user names in URLs, tokens) from a foreign message, and shortens it."""
    return _TOKEN.sub("[removed]", _USER.sub(r"\1", _QUERY.sub(r"\1", message)))[:500]


class CcrError(Exception):
    """A problem that the user can fix: what is wrong, and what to type next."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


@dataclass(eq=False)
class OptionsAsked(Exception):
    """Raised by `--set help` or `--preset help`, to print a table of options instead of running the command."""

    rows: Sequence[tuple[str, ...]]
    columns: tuple[str, ...] = ("--set", "default", "meaning")


def nearest(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known words most similar to a mistyped one, nearest first, ignoring case."""
    by_lower = {name.lower(): name for name in known}
    return [by_lower[name] for name in difflib.get_close_matches(word.lower(), by_lower, n=most, cutoff=0.6)]


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """The start of a hint: the 2 to 4 known words that begin with `word`, else the nearest; empty if none is near."""
    known = sorted(known)
    longer = [name for name in known if word and name.lower().startswith(word.lower())]
    near = longer if 1 < len(longer) <= 4 else nearest(word, known, 1)
    return f"did you mean {' or '.join(repr(prefix + name) for name in near)}? " if near else ""


class UsageError(CcrError):
    """Options that contradict each other or name something that does not exist."""

    exit_code = 2


def no_share(option: str, value: float) -> UsageError:
    """The error for a fraction outside 0 to 1, with a hint on percentages; `option` ends with its separator."""
    hint = f"{option}{value / 100:g} is {value:g} %" if 1 < value <= 100 else f"{option}0.4 is 40 %"
    return UsageError(f"{option}{value:g}: must lie between 0 and 1", hint=hint)


def no_file(path: Path, option: str = "") -> UsageError:
    """The error for what does not exist, or is a folder instead of a file; `option` named it, if any."""
    if path.is_dir():
        problem = f"{option and f'{option}: '}{path} is a folder, not a file"
        return UsageError(problem, f"name a file in it: ls {shlex.quote(str(path))}")
    folder = next((above for above in path.parents if above.is_dir()), Path())
    with os.scandir(folder) as beside:
        near = nearest(path.name, (each.name for each in itertools.islice(beside, MOST_LISTED)), 1)
    hint = f"ls {shlex.quote(str(folder))}"
    if near and folder == path.parent:
        hint = f"did you mean {str(folder / near[0])!r}?"
    return UsageError(f"{option and f'{option}: '}there is no {path}", hint)


class ArtifactError(CcrError):
    """An artifact that is missing, unsuitable, changed or refused."""

    exit_code = 4


class UnavailableError(CcrError):
    """A model, an engine or the network is needed and not available."""

    exit_code = 5


def require_packages(what: str, extra: str, *packages: str) -> None:
    """Raises UnavailableError if a package that `what` needs is not installed; ccr's `extra` installs it."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise UnavailableError(f"{what} needs {', '.join(missing)}: not installed", f"pip install 'ccr-cli[{extra}]'")


class ResourceError(CcrError):
    """Out of memory or out of disk."""

    exit_code = 6


def require_space(folder: Path, need: float, advice: str = "") -> None:
    """Raises ResourceError unless the disk of a folder has `need` free bytes; `advice` says how to need less."""
    free = shutil.disk_usage(folder).free
    if need > free:
        needed, left = (f"{n / 2**30:.1f} GiB" if n >= 2**30 else f"{n / 2**20:.1f} MiB" for n in (need, free))
        problem = f"the disk is full, or would be: about {needed} more are needed in {folder}, {left} are free"
        raise ResourceError(problem, hint=f"free some space; the same command resumes{advice}")


class LockedError(CcrError):
    """Another process is writing the same artifact."""

    exit_code = 7


class Terminated(SystemExit):
    """SIGTERM: unwinds like Ctrl-C, then exits 143."""

    def __init__(self) -> None:
        super().__init__(143)


def out_of_memory(error: Exception) -> bool:
    """Whether an error of Python, torch (on a GPU or a CPU) or CTranslate2 means that memory ran out."""
    words = f"{type(error).__name__}: {error}"
    return isinstance(error, MemoryError) or bool(_TOO_MUCH.search(words))


def as_user_error(error: Exception) -> CcrError | None:
    """Converts the error of an exhausted or unwritable resource to a CcrError; None for any other error."""
    if out_of_memory(error):
        return ResourceError("out of memory", hint="a smaller --batch-size, or --device cpu")
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return ResourceError(f"the disk is full{where}", hint="free some space; the same command continues")
        if error.errno in (errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EFBIG):
            files = error.errno in (errno.EMFILE, errno.ENFILE)
            more = "allow more: ulimit -n 1024" if files else "check the disk, or another --workspace"
            if error.errno == errno.EFBIG:
                more = "allow larger files: ulimit -f unlimited; or another --workspace"
            return ResourceError(f"{error.strerror}{where}", hint=f"{more}; the same command continues")
        if error.errno in (errno.EACCES, errno.EPERM):
            hint = "another --workspace, or change its permissions"
            return ArtifactError(f"no permission{where}: {error.strerror}", hint)
        if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP):
            return ArtifactError(f"{error.strerror}{where}", hint="another --workspace or --name")
    return None
