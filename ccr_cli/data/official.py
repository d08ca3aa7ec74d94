"""The official files of a collection: finds them below a folder and checks them against the manifest."""

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
    """An official file, compared with its entry in the manifest."""

    spec: FileSpec
    path: Path | None
    """None if it is missing, or if another file of the collection lies in its place."""
    sha256: str = ""
    problem: str = ""
    """What is wrong with it: expected and found."""
    checked: str = ""
    """What was compared and agrees: `sha256`, `lines` or `bytes`; empty if the manifest has nothing to compare."""


def examine(specs: Sequence[FileSpec], root: Path) -> list[CheckedFile]:
    """Finds files, each path once, and compares them with the manifest's hash, else its number of lines or bytes."""
    unique = unique_paths(specs)
    places = locate([spec.path for spec in unique], root)
    owners = {known: spec.path for spec in unique for known in (spec.sha256, spec.unpacked_sha256) if known}
    return [_examine(spec, places[spec.path], owners) for spec in unique]


def unique_paths(specs: Sequence[FileSpec]) -> list[FileSpec]:
    """Returns every file once, even if it is read in two ways."""
    return list({spec.path: spec for spec in reversed(specs)}.values())[::-1]


def locate(paths: Sequence[str], root: Path) -> dict[str, Path | None]:
    """Finds files below the folder in which their paths begin, or below a deeper folder of the paths.

    All paths lose the same number of leading folders (short ones, all they have): the one with which the most files
    are found, while the paths stay distinct. The unpacked file `x` stands in for `x.gz`.
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
    known = spec.sha256 if packed else spec.unpacked_sha256
    if known and digest == known:
        return CheckedFile(spec, path, digest, checked="sha256")
    if not known:
        problem = _difference(spec, path, packed)
        countable = "lines" if spec.lines is not None else "bytes" if spec.bytes is not None and packed else ""
        return CheckedFile(spec, path, digest, problem, "" if problem else countable)
    of_another = digest in owners
    problem = f"this is the content of {owners[digest]}" if of_another else _difference(spec, path, packed)
    problem = f"{problem or 'other content'} (sha256 {known[:12]}… expected, {digest[:12]}… found)"
    return CheckedFile(spec, None if of_another else path, digest, problem)


def _difference(spec: FileSpec, path: Path, packed: bool) -> str:
    """Describes a wrong number of lines or bytes, or why lines cannot be counted; empty if nothing differs."""
    if spec.lines is not None:
        try:
            count = count_lines(path)
        except ArtifactError as error:
            return error.message.removeprefix(f"{path} ")
        if count != spec.lines:
            return f"{spec.lines:,} lines expected, {count:,} found"
    size = path.stat().st_size
    if spec.bytes is not None and packed and size != spec.bytes:
        return f"{spec.bytes:,} bytes expected, {size:,} found"
    return ""


def count_lines(path: Path) -> int:
    """Counts the lines of a file, unpacking gzip; the last one may lack its line end."""
    count, last = 0, b"\n"
    with opened(path) as file:
        for block in iter(functools.partial(file.read, 1 << 20), b""):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")
