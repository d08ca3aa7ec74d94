"""The parts common to all artifacts: `artifact.json`, identity, hash-checked reading, atomic writing.

An artifact is a folder. `artifact.json` is written last, so its presence means that the folder is complete.
`id` is the sha256 of the canonical JSON of kind, schema, request, the parents' ids and the files, so two
artifacts with the same id hold the same bytes made in the same way.
"""

import hashlib
import json
import os
import re
import secrets
import shlex
import shutil
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from ccr_cli.artifacts.shapes import ANY, SHAPES, problem
from ccr_cli.console import escaped
from ccr_cli.errors import ArtifactError

RECORD = "artifact.json"
FAILURES = "failures.jsonl"
CLOCK_TICK_NS = 100_000_000
"""File systems round the time of a change; two changes within this time may look like one."""

FOLDERS = {
    "dataset": "datasets",
    "translation": "translations",
    "noise": "noise",
    "features": "features",
    "run": "runs",
    "evaluation": "evaluations",
    "diagnosis": "diagnoses",
    "report": "reports",
    "export": "exports",
    "index": "indexes",
}
"""The folder of each kind."""
SCHEMAS = dict.fromkeys(FOLDERS, 1) | {"diagnosis": 2}
"""The layout version that this ccr writes, by kind."""
PER_DATASET = {"translation", "noise", "features"}
"""Kinds whose folder has one more level: the data set's name."""
LOCAL = ".local"
"""Folder of a workspace for facts about this machine only: paths outside the workspace, in `ID.json`."""
ELSEWHERE = "PATH"
"""Placeholder for the folder of a file outside the workspace."""
_PATH = re.compile(r"""(?<![^\s='",(\[])/[^\s'",)\]]+""")


@dataclass(frozen=True)
class FileEntry:
    """One file of an artifact: its path inside the folder, its size in bytes and its sha256."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Parent:
    """An artifact that another one was made from: kind, id, and path relative to the workspace."""

    kind: str
    id: str
    path: str


@dataclass(frozen=True)
class Artifact:
    """A complete artifact on disk, as `artifact.json` describes it."""

    path: Path
    kind: str
    schema: int
    name: str
    id: str
    request: dict[str, Any]
    parents: tuple[Parent, ...]
    files: tuple[FileEntry, ...]
    counts: dict[str, int]
    about: dict[str, Any] = field(default_factory=dict)
    """Facts outside the identity: created, command, versions, environment. Paths of this machine are among them."""

    @property
    def environment(self) -> dict[str, Any]:
        """Facts about how and where it was made, such as times; empty if they are unknown."""
        return self.about.get("environment") or {}

    def entry(self, name: str) -> FileEntry:
        """Returns the entry of a file in the record; raises ArtifactError if there is none."""
        for entry in self.files:
            if entry.path == name:
                return entry
        raise ArtifactError(f"{self.path} has no file {name!r}", hint=self.rebuild_hint())

    def file(self, name: str) -> Path:
        """Returns the path of one of the artifact's files after checking that it is the recorded one.

        A process hashes each file once, unless it changes on disk.

        Raises:
            ArtifactError: If the file is not part of the artifact, is missing, or was changed.
        """
        entry, path = self.entry(name), self.path / name
        if not path.is_file():
            raise ArtifactError(f"{path} is missing, although the artifact lists it", hint=self.rebuild_hint())
        if path.stat().st_size != entry.bytes or known_sha256(path) != entry.sha256:
            raise ArtifactError(f"{path} was changed after it was written", hint=self.rebuild_hint())
        return path

    def json(self, name: str) -> dict[str, Any]:
        """Reads one of the artifact's JSON files; raises what `file` and `read_json` raise."""
        return self._fitting(name, read_json(self.file(name)))

    def jsonl(self, name: str) -> list[dict[str, Any]]:
        """Reads one of the artifact's files with a JSON value in each line; raises what `json` raises."""
        path = self.file(name)
        return [self._fitting(name, parse_json(path, line)) for line in read_utf8(path).split("\n") if line]

    def toml(self, name: str) -> dict[str, Any]:
        """Reads one of the artifact's TOML files; raises what `json` raises."""
        return self._fitting(name, read_toml(self.file(name)))

    def _fitting(self, name: str, value: Any) -> dict[str, Any]:
        """Returns the content of a file; ArtifactError unless it has the shape that `SHAPES` prescribes."""
        if wrong := problem(value, SHAPES.get(self.kind, {}).get(name, {str: ANY})):
            raise ArtifactError(f"{self.path / name}: {wrong}", hint=self.rebuild_hint())
        fitting: dict[str, Any] = value
        return fitting

    def has(self, name: str) -> bool:
        """Whether the artifact has a file of that name."""
        return any(f.path == name for f in self.files)

    def parent(self, kind: str) -> Parent:
        """Returns the (first) parent of a kind; raises ArtifactError if there is none."""
        for parent in self.parents:
            if parent.kind == kind:
                return parent
        raise ArtifactError(f"{self.path} ({self.kind}) was not made from a {kind}")

    def has_parent(self, kind: str) -> bool:
        """Whether the artifact has a parent of a kind."""
        return any(p.kind == kind for p in self.parents)

    def origin(self) -> tuple[str, list[Parent]]:
        """Returns the command that made the artifact, and its parents, without paths of this machine."""
        root = home(self.path) or self.path
        parents = [replace(parent, path=portable(parent.path, root)) for parent in self.parents]
        return portable_command(str(self.about.get("command") or ""), root), parents

    def rebuild_hint(self) -> str:
        """Returns a hint with the command that makes the artifact again."""
        command = self.rebuild_command()
        return f"rebuild it: {shlex.join(command)}" if command else f"rebuild it, or see: ccr verify {self.path}"

    def rebuild_command(self) -> list[str]:
        """Returns the words of the command that makes the artifact again; empty if it is unknown.

        The parents are named, because the recorded words may by now select others.
        """
        command = self.about.get("command")
        if not isinstance(command, str) or not command:
            return []
        words = [word for word in _words(command) if word != "--force"]
        runs = [parent.path for parent in self.parents if parent.kind == "run" and self.kind != "run"]
        paths = runs or [parent.path for parent in self.parents if parent.kind != "noise"]
        typed = [word.removeprefix("--witness=") for word in words]
        named = {path for path in paths for word in typed if word == Path(path).name or f"/{word}".endswith(f"/{path}")}
        if "-" in words or not {"data", "demo", "report"} & {*words[1:2]}:  # these take none, or all of the workspace
            words = [word for word in words if word not in ("-", "latest") and not word.startswith("best:")]
            words[2:2] = [path for path in paths if path not in named]
        if words[1:2] == ["report"]:  # its default name says what it was made from
            words = with_name(words, self.name)
        return [*words, "--force"]


def with_name(words: list[str], name: str) -> list[str]:
    """Adds `--name` to a command that does not have it."""
    return words if any(word.partition("=")[0] == "--name" for word in words) else [*words, "--name", name]


def canonical_json(value: object) -> str:
    """Serialises a value so that equal values give equal text (sorted keys, no spaces, UTF-8)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_text(text: str) -> str:
    """Returns the sha256 of a text's UTF-8 bytes in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def refuse_special(path: Path) -> Path:
    """Returns the path; ArtifactError if it is a pipe, socket or device, whose reading may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ArtifactError(f"{path} is a pipe, a socket or a device, expected a file", hint="save it as a file")
    return path


def sha256_file(path: Path) -> str:
    """Returns the sha256 of a file in hex; ArtifactError if it is a pipe, socket or device."""
    with refuse_special(path).open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


_hashed: dict[Path, tuple[tuple[int, ...], str]] = {}
"""By path: the state of an artifact's file when it was hashed, and its sha256."""


def known_sha256(path: Path, written: str | None = None) -> str:
    """Like `sha256_file`, but reads a file again only if it has changed since this process hashed it.

    `written` is the sha256 of a file that this process has just written.
    """
    stat = path.stat()
    settled = time.time_ns() - stat.st_ctime_ns >= CLOCK_TICK_NS  # else another change could have the same time
    state = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    if written is None and path in _hashed and _hashed[path][0] == state:
        return _hashed[path][1]
    sha256 = written or sha256_file(path)
    if settled:
        _hashed[path] = state, sha256
    return sha256


def identity(
    kind: str, schema: int, request: Mapping[str, Any], parents: Sequence[Parent], files: Sequence[FileEntry]
) -> str:
    """Computes an artifact's id from everything that its content depends on."""
    content = {"parents": sorted(p.id for p in parents), "files": sorted([f.path, f.bytes, f.sha256] for f in files)}
    return sha256_text(canonical_json({"kind": kind, "schema": schema, "request": request, **content}))


def _words(command: str) -> list[str]:
    """Splits a recorded command into words; somebody else may have written it, so quotes may be unbalanced."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def portable(text: str, root: Path) -> str:
    """Removes absolute paths from a text: inside the workspace they become relative, of others only the name is kept.

    A text that begins with `/` is one path, spaces included.
    """

    def relative(path: str) -> str:
        place, homes = Path(os.path.abspath(path)), (root.absolute(), root.resolve())
        inside = next((place.relative_to(each).as_posix() for each in homes if place.is_relative_to(each)), None)
        return f"{ELSEWHERE}/{place.name}".rstrip("/") if inside is None else inside

    return relative(text) if text.startswith("/") else _PATH.sub(lambda found: relative(found[0]), text)


def portable_command(command: str, root: Path) -> str:
    """Applies `portable` to every word of a command; a path may follow a `=`."""
    words = [re.split(r"(?<==)(?=/)", word, maxsplit=1) for word in _words(command)]
    return shlex.join("".join(portable(part, root) for part in parts) for parts in words)


def portable_values(value: Any, root: Path) -> Any:
    """Applies `portable` to every text in a tree of lists and dicts."""
    if isinstance(value, Mapping):
        return {key: portable_values(inner, root) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [portable_values(inner, root) for inner in value]
    return portable(value, root) if isinstance(value, str) else value


def home(path: Path) -> Path | None:
    """Returns the workspace that an artifact's path is in; None if it is in none."""
    for kind, folder in FOLDERS.items():
        depth = 2 if kind in PER_DATASET else 1
        if len(path.parents) > depth and path.parents[depth - 1].name == folder:
            return path.parents[depth]
    return None


@contextmanager
def atomic_open(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Opens a file (`wb` or `w`) that gets its name only once it is complete and on disk; its folder must exist.

    Text is UTF-8 with LF line ends; bytes that are not UTF-8 become JSON escapes.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    text = {"encoding": "utf-8", "errors": "backslashreplace", "newline": "\n"}
    options: dict[str, Any] = {} if "b" in mode else text
    try:
        with partial.open(mode, **options) as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: object) -> None:
    """Writes a value as indented JSON, atomically; control characters are escaped."""
    with atomic_open(path, "w") as handle:
        handle.write(escaped(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)) + "\n")


def copy_files(source: Path, target: Path) -> None:
    """Copies all files below a folder; unlike `copytree`, it raises the first error at once."""
    for path in sorted(p for p in source.rglob("*") if p.is_file()):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)


def read_json(path: Path) -> Any:
    """Reads a JSON file; raises ArtifactError if it is not valid JSON."""
    return parse_json(path, read_utf8(path))


def parse_json(path: Path, text: str) -> Any:
    """Reads the JSON in a file, or in a line of it; raises ArtifactError if it is not valid JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is not valid JSON: {str(error)[:200]}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Reads a TOML file; raises ArtifactError if it is not valid TOML."""
    try:
        return tomllib.loads(read_utf8(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ArtifactError(f"{path} is not valid TOML: {error}") from None


def read_utf8(path: Path) -> str:
    """Reads a text file; raises ArtifactError if it is not UTF-8."""
    try:
        return refuse_special(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{path} is not UTF-8: {error}") from None


def load(path: Path, kind: str | None = None) -> Artifact:
    """Reads the record of an artifact (of a kind, if one is expected) and checks that it is complete and fits its id.

    Raises:
        ArtifactError: If it is missing, unfinished, changed, of another kind or of another schema version.
    """
    record = path / RECORD
    put_back(path)
    if not record.is_file():
        if path.name.endswith(".partial"):
            raise ArtifactError(f"{path} is unfinished", hint="repeat the command that makes it; it continues")
        what = "has no artifact.json, so it is not an artifact" if path.exists() else "does not exist"
        raise ArtifactError(f"{path} {what}", hint="list the workspace's artifacts with: ccr show")
    again = "move the folder away, and repeat the command that made the artifact"
    try:
        raw = read_json(record)
    except ArtifactError as error:
        raise ArtifactError(error.message, hint=again) from None
    own = SHAPES.get(str(raw.get("kind")), {}) if isinstance(raw, dict) else {}
    shape = SHAPES["record"] | {key: own[key] for key in ("request", "counts") if key in own}
    if wrong := problem(raw, shape):
        raise ArtifactError(f"{record} is damaged: {wrong}", hint=again)
    local = _local(path.resolve(), raw["id"])
    links = local.get("parents", {})
    artifact = Artifact(
        path=path.resolve(),
        parents=tuple(Parent(p["kind"], p["id"], links.get(p["id"], p["path"])) for p in raw["parents"]),
        files=tuple(FileEntry(f["path"], f["bytes"], f["sha256"]) for f in raw["files"]),
        about={k: local.get(k, raw.get(k)) for k in ("created", "command", "versions", "environment")},
        **{key: raw[key] for key in ("kind", "schema", "name", "id", "request", "counts")},
    )
    paths = [Path(f.path) for f in artifact.files] + [Path(p.path) for p in artifact.parents]
    outside = [str(place) for place in paths if "\0" in str(place) or ".." in place.parts]
    outside += [f.path for f in artifact.files if Path(f.path).is_absolute()]
    if outside:
        raise ArtifactError(f"{record} lists a file outside the artifact: {outside[0]}")
    if artifact.kind not in SCHEMAS:
        raise ArtifactError(f"{path} has the unknown kind {artifact.kind!r}", hint="upgrade ccr")
    schema, known = artifact.schema, SCHEMAS[artifact.kind]
    by = f"ccr ({artifact.kind} schema {schema}, this ccr has {known})"
    if schema > known:
        raise ArtifactError(f"{path} was written by a newer {by}", hint="upgrade ccr")
    if kind is not None and artifact.kind != kind:
        raise ArtifactError(f"{path} is a {artifact.kind}, not a {kind}")
    if artifact.id != identity(artifact.kind, schema, artifact.request, artifact.parents, artifact.files):
        raise ArtifactError(f"{record} was changed after it was written (its id does not match)")
    if schema < known:
        raise ArtifactError(f"{path} was written by an older {by}", hint=artifact.rebuild_hint())
    return artifact


def _local(path: Path, id_: str) -> dict[str, Any]:
    """Reads what a workspace keeps outside the artifact: `command`, `environment`, and paths of `parents` by id."""
    file = (home(path) or path) / LOCAL / f"{id_}.json"
    if not re.fullmatch("[0-9a-f]{64}", id_) or not file.is_file():
        return {}
    facts: dict[str, Any] = read_json(file)
    if wrong := problem(facts, SHAPES["local"]):
        raise ArtifactError(f"{file}: {wrong}", hint=f"remove it: rm {shlex.quote(str(file))}")
    return facts


def write_record(folder: Path, root: Path, record: Mapping[str, Any]) -> None:
    """Writes `artifact.json` without paths of this machine, which the workspace keeps in `LOCAL`."""
    links = {p["id"]: p["path"] for p in record["parents"] if Path(p["path"]).is_absolute()}
    facts = {"command": record["command"], "environment": record["environment"], "parents": links}
    shared = {
        "command": portable_command(record["command"], root),
        "environment": portable_values(record["environment"], root),
        "parents": [{**p, "path": portable(p["path"], root)} for p in record["parents"]],
    }
    if any(shared[key] != record[key] for key in shared):
        (root / LOCAL).mkdir(exist_ok=True)
        write_json(root / LOCAL / f"{record['id']}.json", facts)
    write_json(folder / RECORD, {**record, **shared})


def put_back(path: Path) -> None:
    """Restores an artifact that a rebuild moved aside, if the rebuild stopped before the new one was in place."""
    old = path.with_name(f"{path.name}.old")
    if not path.exists() and (old / RECORD).is_file():
        with suppress(OSError):  # another process was faster
            os.rename(old, path)


def verify(artifact: Artifact) -> list[str]:
    """Compares every file of an artifact with its record; returns the problems, one line each."""
    problems = []
    listed = {f.path for f in artifact.files} | {RECORD}
    for entry in artifact.files:
        path = artifact.path / entry.path
        if not path.is_file():
            problems.append(f"missing: {entry.path}")
        elif path.stat().st_size != entry.bytes:
            problems.append(f"size: {entry.path} has {path.stat().st_size} bytes, expected {entry.bytes}")
        elif sha256_file(path) != entry.sha256:
            problems.append(f"changed: {entry.path}")
    for path in sorted(p for p in artifact.path.rglob("*") if p.is_file() and not p.name.startswith(".")):
        name = path.relative_to(artifact.path).as_posix()
        if name not in listed:
            problems.append(f"unexpected: {name}")
    return problems
