"""Building an artifact: once, resumable, locked, and never half-finished under its final name."""

import ctypes
import errno
import os
import re
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import filelock

import ccr_cli
from ccr_cli.artifacts import base
from ccr_cli.artifacts.workspace import Workspace, slug
from ccr_cli.console import say, warn
from ccr_cli.errors import ArtifactError, CcrError, LockedError, UsageError

PLAN = ".plan.json"
_ABOUT, _SOURCE = "about", "source"
_MOVING = re.compile("-|latest|best:.*")
"""Words of a command that may later select other artifacts."""
_RUST = re.compile(r"\(os error (\d+)\)")
"""End of the errors of libraries in Rust, such as safetensors."""
_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
_HOLDER = re.compile(r"pid=(\d+) host=(\S+)")
_FIRST_NAMESPACE = 0xEFFFFFFC
"""Linux's number of the process namespace outside of containers."""
IN_HAND = "last"
"""Folder with the state of unfinished work; it is removed when the artifact is complete."""
LEASE_SECONDS = 30.0


@dataclass(eq=False)
class Planned(Exception):
    """Raised instead of building in a dry run; `earlier` holds the artifacts that the command would build first."""

    path: Path
    plan: dict[str, Any]
    state: str
    parents: tuple[base.Artifact, ...] = ()
    earlier: "tuple[Planned, ...]" = ()
    facts: dict[str, Any] = field(default_factory=dict)
    """Further facts about the work, from the stage; JSON values."""


class OtherRequestError(ArtifactError):
    """An artifact of the same name was made from other options (`differences`: old and new by name) or parents."""

    def __init__(self, message: str, differences: Mapping[str, tuple[Any, Any]]) -> None:
        super().__init__(message, hint="choose another --name, or rebuild it with --force")
        self.differences = differences


@dataclass
class Build:
    """An artifact in the making. `done` is the artifact once it is complete, perhaps from an earlier run."""

    final: Path
    kind: str
    request: dict[str, Any]
    parents: tuple[base.Parent, ...]
    done: base.Artifact | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    """Facts in `artifact.json` that are not part of the identity: device, media root, source."""

    @property
    def folder(self) -> Path:
        """Where to write: `<name>.partial/`. Files of a stopped attempt at the same request are still there."""
        return self.final.with_name(f"{self.final.name}.partial")

    @property
    def schema(self) -> int:
        """The layout version of the artifact."""
        return base.SCHEMAS[self.kind]

    @property
    def artifact(self) -> base.Artifact:
        """The complete artifact."""
        assert self.done is not None, "the artifact is complete"
        return self.done

    def look(self, force: bool, redo_failed: bool) -> None:
        """Sets `done` if the artifact is complete; failures count as work left only if they are to be retried."""
        done = None if force else self._complete(self.final)
        self.done = None if done and redo_failed and done.counts.get("failed") else done
        if self.done:
            self._compare_source(self.done.about)

    def _compare_source(self, about: Mapping[str, Any]) -> None:
        """Warns if the code that makes this artifact was edited since, unless the version of ccr changed as well."""
        before, now = (about.get("environment") or {}).get(_SOURCE), self.environment.get(_SOURCE)
        version = (about.get("versions") or {}).get("ccr", ccr_cli.__version__)
        if before and now and before != now and version == ccr_cli.__version__:
            edited = "the source of its method, or of what that imports, was edited since"
            warn(f"{self.final.name}: {edited}; --force makes it again, --name makes another")

    def prepare(self, force: bool, redo_failed: bool) -> None:
        """Prepares the folder, empty or with a stopped attempt at the same plan; sets `done` if that was complete."""
        plan, begun = _plan(self), self.folder / PLAN
        marked = {**plan, "forced": True} if force else plan
        if redo_failed and not force and (self.final / base.RECORD).is_file() and not self.folder.exists():
            copy = self.final.with_name(f".{self.final.name}.copy")
            shutil.rmtree(copy, ignore_errors=True)
            base.copy_files(self.final, copy)
            (copy / base.RECORD).unlink()
            os.rename(copy, self.folder)
        if (self.folder / base.RECORD).is_file() and not begun.is_file():  # the old one, just exchanged with the new
            shutil.rmtree(self.folder)
        if force and self.folder.exists() and _begun(self.folder)[0] != marked:
            shutil.rmtree(self.folder)  # unless it was begun with --force too, something in it may be old
        if self._complete(self.folder):  # stopped just before the rename
            self._move()
            return
        if begun.is_file():
            self._compare_source(_begun(self.folder)[1])
            _refuse_other(self.folder, {**_begun(self.folder)[0], "forced": force}, {**plan, "forced": force})
        self.folder.mkdir(exist_ok=True)
        for stale in self.folder.rglob("*.tmp"):
            stale.unlink()
        paths = [parent.path for parent in self.parents]
        words = [word for given in recorded_words() for word in (paths if _MOVING.fullmatch(given) else [given])]
        about = {"command": shlex.join(["ccr", *words]), "versions": {"ccr": ccr_cli.__version__}}
        base.write_json(begun, {**marked, _ABOUT: {**about, "environment": self.environment}})

    def clear(self) -> None:
        """Removes the files of a stopped attempt, for artifacts that are written in one go."""
        for path in (p for p in self.folder.iterdir() if not p.name.startswith(".")):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def finish(self, counts: Mapping[str, int]) -> base.Artifact:
        """Hashes the files, writes `artifact.json` last, and moves the folder to its final name."""
        names = sorted(
            path.relative_to(self.folder).as_posix()
            for path in self.folder.rglob("*")
            if path.is_file() and not path.name.startswith(".") and path.name != base.RECORD
            if path.relative_to(self.folder).parts[0] != IN_HAND
        )
        files = [base.FileEntry(n, (self.folder / n).stat().st_size, base.sha256_file(self.folder / n)) for n in names]
        record = {
            "kind": self.kind,
            "schema": self.schema,
            "name": self.final.name,
            "id": base.identity(self.kind, self.schema, self.request, self.parents, files),
            "request": self.request,
            "parents": [vars(p) for p in self.parents],
            "files": [vars(f) for f in files],
            "counts": dict(counts),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": shlex.join(["ccr", *recorded_words()]),
            "versions": {"ccr": ccr_cli.__version__, "python": sys.version.split()[0]},
            "environment": self.environment,
        }
        base.write_record(self.folder, base.home(self.final) or self.final.parent, record)
        self._move()
        for file in files:
            base.known_sha256(self.final / file.path, file.sha256)
        return self.artifact

    def _complete(self, folder: Path) -> base.Artifact | None:
        """Returns the artifact in a folder, or None; raises OtherRequestError if its request or parents are others."""
        if not (folder / base.RECORD).is_file():
            return None
        artifact = base.load(folder)
        _refuse_other(folder, _plan(artifact), _plan(self))
        return artifact

    def _move(self) -> None:
        _swap_in(self.folder, self.final)
        self.done = base.load(self.final, self.kind)


_instead: list[Sequence[str]] = []


def recorded_words() -> list[str]:
    """Returns the words of the command that artifacts record: the program's own, or those of `recorded_as`."""
    return list(_instead[-1] if _instead else sys.argv[1:])


def without_option(words: Sequence[str], option: str) -> list[str]:
    """Removes an option and its value from a command."""
    words = list(words)
    while option in words:
        place = words.index(option)
        words = words[:place] + words[place + 2 :]
    return [word for word in words if not word.startswith(f"{option}=")]


@contextmanager
def recorded_as(words: Sequence[str]) -> Iterator[None]:
    """Makes artifacts record these words, without `ccr`, as the command that would make each of them."""
    _instead.append(words)
    try:
        yield
    finally:
        _instead.pop()


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Adds the folder to errors of the disk that name no file, such as those of writes."""
    try:
        yield
    except Exception as error:
        rust, known = _RUST.search(str(error)), error
        if rust and not isinstance(error, OSError):
            known = OSError(int(rust[1]), os.strerror(int(rust[1])))
        if isinstance(known, OSError) and known.errno in _DISK:
            known.filename = known.filename or str(folder)
        if known is error:
            raise
        raise known from error


@contextmanager
def building(
    workspace: Workspace,
    kind: str,
    name: str,
    request: Mapping[str, Any],
    parents: Sequence[base.Artifact] = (),
    *,
    force: bool = False,
    redo_failed: bool = False,
    source: str = "",
) -> Iterator[Build]:
    """Locks and opens an artifact's folder for writing; `done` is set if nothing is left to write.

    `source` is the sha256 of the code that makes the artifact; it is not part of the identity, but a warning tells if
    the code was edited since. Other arguments and errors are those of `build_artifact`. Training and extraction, which
    several processes share, use this function directly: only the first process holds the lock.
    """
    name = slug(name)
    if name.endswith((".partial", ".parts", ".old", ".lock")):
        raise UsageError(f"an artifact's name cannot end like {name!r}", hint="choose another --name")
    data = next((parent.name for parent in parents if parent.kind == "dataset"), None)
    final = workspace.place(kind, name, data)
    links = tuple(base.Parent(p.kind, p.id, workspace.relative(p.path)) for p in parents)
    build = Build(final, kind, dict(request), links, environment={_SOURCE: source} if source else {})
    build.look(force, redo_failed)
    if final.exists() and not (final / base.RECORD).is_file():
        raise ArtifactError(f"{final} exists and is not an artifact", hint="choose another --name, or move it away")
    if workspace.dry_run:
        state = "done" if build.done else "unfinished" if build.folder.exists() else "to do"
        planned = Planned(final, _plan(build), state, tuple(parents), tuple(workspace.planned))
        workspace.planned.append(planned)
        raise planned
    if build.done:
        _tidy(final)
        yield build
        return
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:  # /proc and the like: the parent exists and accepts no folder
        raise ArtifactError(f"cannot create {final.parent}: {error.strerror}", hint="another --workspace") from None
    with locked(final), _naming(build.folder):
        base.put_back(final)
        build.look(force, redo_failed)
        if build.done is None:
            build.prepare(force, redo_failed)
        try:
            yield build
        except CcrError:
            if not any(path.is_file() and path.name != PLAN for path in build.folder.rglob("*")):
                shutil.rmtree(build.folder, ignore_errors=True)
            raise


def build_artifact(
    workspace: Workspace,
    kind: str,
    name: str,
    request: Mapping[str, Any],
    parents: Sequence[base.Artifact] = (),
    *,
    write: Callable[[Build], Mapping[str, int]],
    force: bool = False,
    redo_failed: bool = False,
) -> base.Artifact:
    """Builds an artifact, unless it is already complete for the same request.

    `request` holds every option that can change the result, as JSON values. Kinds that are kept by data set lie in the
    folder of the dataset among `parents`. `write` writes the files into `Build.folder` and returns the artifact's
    counts; it is not called if the artifact is complete. `force` rebuilds it even then: the old one stays until the new
    one is complete, and a stopped rebuild resumes. `redo_failed` reopens a complete artifact that holds failures, and
    keeps its files.

    Raises:
        OtherRequestError: If an artifact of this name was made from other parents or options.
        ArtifactError: If the folder holds something else, or cannot be made.
        LockedError: If another process is building it.
        UsageError: If the name cannot be that of an artifact.
        Planned: In a dry run, instead of anything else.
    """
    with building(workspace, kind, name, request, parents, force=force, redo_failed=redo_failed) as site:
        return site.done or site.finish(write(site))


def build_state(build: Callable[[Workspace], object], workspace: Workspace) -> str:
    """Returns the state of the artifact that a function builds in a workspace: done, unfinished or to do."""
    try:
        build(workspace.rehearsal())
    except Planned as planned:
        return planned.state
    raise AssertionError("a rehearsal builds nothing")


def _begun(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the plan of an unfinished artifact, and its command, versions, environment; both empty if unknown."""
    plan = base.read_json(folder / PLAN) if (folder / PLAN).is_file() else {}
    return plan, plan.pop(_ABOUT, {})


def unfinished(workspace: Workspace) -> list[tuple[str, Path, str]]:
    """Lists the unfinished artifacts: kind, final folder, and how to continue or remove it unless a process is at work.

    The command makes another artifact if what it reads, such as the user's own method, was edited since.
    """
    found = []
    for kind, place in base.FOLDERS.items():
        for folder in sorted((workspace.root / place).glob("*/*.partial" if kind in base.PER_DATASET else "*.partial")):
            final = folder.with_name(folder.name.removesuffix(".partial"))
            command = _begun(folder)[1].get("command") or "repeat the command that makes it"
            further = f"{command}; or remove it: rm -r {shlex.quote(workspace.relative(folder))}"
            found.append((kind, final, "another process goes on with it" if in_work(final) else further))
    return found


def _plan(made: Build | base.Artifact) -> dict[str, Any]:
    """Returns everything that determines the content of an artifact."""
    parents = sorted([p.kind, p.id] for p in made.parents)
    return {"kind": made.kind, "schema": made.schema, "request": made.request, "parents": parents}


def _refuse_other(where: Path, existing: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Raises OtherRequestError if the two plans differ."""
    if existing == plan:
        return
    old, new = existing.get("request", {}), plan["request"]
    differences = {key: (old.get(key), new.get(key)) for key in sorted({*old, *new}) if old.get(key) != new.get(key)}
    lines = [_DIGEST.sub(r"\1", _difference(key, *values)) for key, values in differences.items()]
    wanted, theirs = plan["parents"], existing.get("parents", [])
    for kind, id_ in wanted:
        others = [i for k, i in theirs if k == kind]
        if id_ not in others:
            lines.append(f"parent {kind}: {(others or ['none'])[0][:12]} there, {id_[:12]} in this request")
    lines += [f"parent {kind}: there, not in this request" for kind, _ in theirs if kind not in dict(wanted)]
    if existing.get("schema") != plan["schema"]:
        lines.append(f"schema: {existing.get('schema')} there, {plan['schema']} now")
    message = f"{where} exists and was made from something else:\n  " + "\n  ".join(lines or ["unreadable plan"])
    raise OtherRequestError(message, differences)


def _difference(key: str, there: object, here: object) -> str:
    """Describes how an entry of a request differs; gives no values if it has parts, such as the list of `--only`."""
    if isinstance(there, dict) and isinstance(here, dict):
        parts = " and ".join(sorted(part for part in there.keys() | here.keys() if there.get(part) != here.get(part)))
        what = "list, or of another translation," if key == "only" else parts
        return f"{key}: another {what} there than in this request"
    if (isinstance(here, dict) and there is None) or (isinstance(there, dict) and here is None):
        return f"{key}: {'in this request, not there' if there is None else 'there, not in this request'}"
    return f"{key}: {there!r} there, {here!r} in this request"


def _swap_in(partial: Path, final: Path) -> None:
    """Gives a complete artifact its name, replacing an old one without a gap if the file system can exchange names."""
    old = final.with_name(f"{final.name}.old")
    _remove(old)
    if final.exists() and _exchange(partial, final):
        os.rename(partial, old)
    while partial.exists():
        if final.exists():
            os.rename(final, old)
        try:
            os.rename(partial, final)
        except OSError:
            if not final.exists():  # else a reader has just put the old one back
                raise
    _remove(old)
    _tidy(final)


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges the names of two folders in one step; False if the system or the file system cannot."""
    call = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    return call is not None and call(-100, os.fsencode(one), -100, os.fsencode(other), 2) == 0


def _remove(old: Path) -> None:
    """Removes a replaced artifact, its record first, so that nothing takes the rest for a complete one."""
    if old.exists():
        (old / base.RECORD).unlink(missing_ok=True)
        shutil.rmtree(old, ignore_errors=True)


def _tidy(final: Path) -> None:
    """Removes files that only building needed."""
    if (final / PLAN).exists():  # on a read-only file system, even removing a missing file fails
        (final / PLAN).unlink()
    shutil.rmtree(final / IN_HAND, ignore_errors=True)


def in_work(final: Path) -> bool:
    """Whether another process is building an artifact; on another machine, whether it was within the last lease."""
    lock = _lock(final)
    return lock.exists() and not _silent(lock) and not _died_here(lock)


def _died_here(lock: Path) -> bool:
    """Whether the holder of a lock ran on this machine, in the same process namespace, and has ended."""
    held, here, namespace = _HOLDER.fullmatch(_holder(lock)), socket.gethostname(), Path("/proc/self/ns/pid")
    number = namespace.stat().st_ino if namespace.exists() else _FIRST_NAMESPACE
    here += "" if number == _FIRST_NAMESPACE else f"?pidns-{number:x}"  # as filelock writes it
    if held is None or held[2] != here or sys.platform == "win32":  # where signal 0 is Ctrl-C
        return False
    try:
        os.kill(int(held[1]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass  # another user's process
    return False


def _lock(final: Path) -> Path:
    return final.with_name(f"{final.name}.lock")


def _silent(lock: Path) -> bool:
    """Whether a lock has missed its heartbeat; after one more lease another process may take it over."""
    try:
        return time.time() - lock.stat().st_mtime > LEASE_SECONDS
    except FileNotFoundError:
        return False


def _holder(lock: Path) -> str:
    """Returns the holder of a lock, e.g. `pid=7 host=here`."""
    try:
        return " ".join(lock.read_text(errors="replace").split()[1:3])
    except FileNotFoundError:
        return "unknown"


@contextmanager
def locked(final: Path, patience: float = 0.0) -> Iterator[None]:
    """Keeps other writers out of a folder; takes over the lock of a process that has died.

    The lock, a file beside the folder, has host, pid and a heartbeat. Raises LockedError if another process is still
    writing after `patience` seconds; if its heartbeat has stopped, after two leases.
    """
    path = _lock(final)
    if _silent(path) and not path.stat().st_size:  # its process could not write into it
        path.unlink(missing_ok=True)
    if _silent(path):
        patience = 2 * LEASE_SECONDS
        say(f"{path} ({_holder(path)}) is silent; waiting up to {patience:g} s to see whether its process is dead")
    lease = filelock.SoftFileLease(path, lease_duration=LEASE_SECONDS)
    try:
        lease.acquire(timeout=patience)
    except filelock.Timeout:
        hint = f"wait for it; if it is dead, remove {path}"
        raise LockedError(f"another process is writing {final} ({_holder(path)})", hint) from None
    try:
        yield
    finally:
        lease.release()
