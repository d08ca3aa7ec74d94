"""The official files of a collection: where they lie below a folder, and whether they are what the manifest says."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ccr_cli.artifacts.base import sha256_file
from ccr_cli.data.collections import FileSpec
from ccr_cli.data.formats.base import opened
from ccr_cli.errors import ArtifactError


@dataclass(frozen=True)
class CheckedFile:
    """An official file, compared with what the manifest says of it."""

    spec: FileSpec
    path: Path | None
    """None if it is missing, or if another file of the collection lies in its place."""
    sha256: str = ""
    problem: str = ""
    """What is wrong with it: expected and found."""
    checked: str = ""
    """What was compared and agrees: `sha256`, `lines` or `bytes`; empty if the manifest has nothing to compare."""


def examine(specs: Sequence[FileSpec], root: Path) -> list[CheckedFile]:
    """Finds files and compares them with their hash in the manifest, else with their number of lines or bytes.

    Args:
        specs: The files that should be there; a path that occurs twice is examined once.
        root: The folder; it may lie deeper than the one in which the paths begin.

    Returns:
        One result per path, in their order.
    """
    unique = list({spec.path: spec for spec in reversed(specs)}.values())[::-1]
    places = locate([spec.path for spec in unique], root)
    owners = {known: spec.path for spec in unique for known in (spec.sha256, spec.unpacked_sha256) if known}
    return [_examine(spec, places[spec.path], owners) for spec in unique]


def locate(paths: Sequence[str], root: Path) -> dict[str, Path | None]:
    """Finds files below the folder in which their paths begin, or below a deeper one.

    Leading folders are taken off all paths, as many as let the most files be found and keep the paths different. The
    unpacked file `x` stands in for `x.gz`.
    """
    best: dict[str, Path | None] = dict.fromkeys(paths)
    for level in range(max((len(PurePosixPath(path).parts) for path in paths), default=0)):
        short = {path: PurePosixPath(*PurePosixPath(path).parts[min(level, path.count("/")) :]) for path in paths}
        if len(set(short.values())) < len(short):
            break
        found = {path: _there(root / rest) for path, rest in short.items()}
        if sum(map(bool, found.values())) > sum(map(bool, best.values())):
            best = found
    return best


def _there(path: Path) -> Path | None:
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    return path if path.is_file() else plain if plain.is_file() else None


def _examine(spec: FileSpec, path: Path | None, owners: Mapping[str, str]) -> CheckedFile:
    if path is None:
        return CheckedFile(spec, None, problem="missing")
    digest = sha256_file(path)
    packed = path.name == PurePosixPath(spec.path).name
    known_digest = spec.sha256 if packed else spec.unpacked_sha256
    if known_digest:
        if digest == known_digest:
            return CheckedFile(spec, path, digest, checked="sha256")
        of_another = digest in owners
        problem = f"this is the content of {owners[digest]}" if of_another else ""
        problem = problem or _difference(spec, path, count_bytes=packed)
        problem += f" (sha256 {known_digest[:12]}… expected, {digest[:12]}… found)"
        return CheckedFile(spec, None if of_another else path, digest, problem)
    problem = _difference(spec, path, count_bytes=packed)
    known = spec.lines is not None or (spec.bytes is not None and packed)
    if problem == _CHANGED:
        problem = ""
    checked = "" if problem or not known else "lines" if spec.lines is not None else "bytes"
    return CheckedFile(spec, path, digest, problem, checked)


_CHANGED = "other content"


def _difference(spec: FileSpec, path: Path, *, count_bytes: bool = True) -> str:
    """How a file differs, in numbers where there are any."""
    if spec.lines is not None:
        try:
            lines = count_lines(path)
        except ArtifactError as error:
            return error.message.removeprefix(f"{path} ")
        if lines != spec.lines:
            return f"{spec.lines:,} lines expected, {lines:,} found"
    size = path.stat().st_size
    if spec.bytes is not None and count_bytes and size != spec.bytes:
        return f"{spec.bytes:,} bytes expected, {size:,} found"
    return _CHANGED


def count_lines(path: Path) -> int:
    """The number of lines of a file, through gzip; the last one may lack its line end.

    Raises:
        ArtifactError: If a gzip is damaged.
    """
    count, last = 0, b"\n"
    with opened(path) as file:
        for block in iter(functools.partial(file.read, 1 << 20), b""):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")
