"""Import of pictures packed with their captions: Parquet files with image bytes, webdataset tar files, hub data sets.

Sources are unpacked once, into a folder of the workspace with the pictures and a JSON Lines file of their rows, which
is then imported like any other caption file.
"""

import hashlib
import io
import itertools
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from functools import partial
from glob import glob
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from PIL import Image

from ccr_cli.artifacts.base import atomic_open, refuse_special, sha256_file, sha256_text
from ccr_cli.artifacts.parquet import parquet_batches, parquet_schema
from ccr_cli.artifacts.workspace import Workspace, slug
from ccr_cli.console import counted, progress, say
from ccr_cli.data.assemble import SPLIT_NAMES
from ccr_cli.data.formats.base import LARGEST_JSON, is_media
from ccr_cli.errors import ArtifactError, UnavailableError, UsageError
from ccr_cli.hub import PROBE_SECONDS, in_time, refusal
from ccr_cli.stages.data.caption_files import parse_source

FOLDER = "unpacked"
"""Folder of the workspace that holds the unpacked pictures."""
ROWS = "captions.jsonl"
TARS, HUB = "wds:", "hf:"
"""Prefixes of a pattern of tar files, and of the name of a data set on the hub."""
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_SHARD = re.compile(r"(.+?)-\d+-of-\d+")
"""Name of a shard: `train-00000-of-00002`."""
_CONVERTED = "refs/convert/parquet"
"""Revision with the hub's own conversion of a data set to Parquet."""

Write = Callable[[bytes, str], str]


def is_packed(source: str) -> bool:
    """Whether a source packs its pictures into Parquet or tar files, or is a data set on the hub."""
    path = Path(parse_source(source)[2])
    of_file = path.is_file() and (path.suffix == ".tar" or (path.suffix == ".parquet" and bool(_pictures(path))))
    return source.startswith((TARS, HUB)) or of_file


def unpack(workspace: Workspace, sources: Sequence[str]) -> tuple[str, Path]:
    """Unpacks sources that are not unpacked yet; a file may have a prefix with its split, its language or both.

    Returns:
        A name for the data set, and the file of rows, in the folder of the pictures.

    Raises:
        ArtifactError: If a file is missing, damaged, or holds no pictures.
        UnavailableError: If the hub has no such data set, or cannot be reached.
        UsageError: If the sources are invalid, the hub's data set has several parts, or a dry run would have to unpack.
    """
    if len(sources) > 1 and any(source.startswith((TARS, HUB)) for source in sources):
        several = "one pattern names several tars: ccr data import 'wds:data/train-{000..012}.tar'"
        hint = several if sources[0].startswith(TARS) else f"ccr data import '{sources[0]}'"
        raise UsageError("only one data set at a time", hint=hint)
    first, named = sources[0], list[tuple[str, str]]()
    if first.startswith(HUB):
        name, files = first.removeprefix(HUB), _from_hub(first.removeprefix(HUB))
    else:
        parsed = [] if first.startswith(TARS) else [parse_source(source) for source in sources]
        named = [(split, lang) for split, lang, _ in parsed]
        files = [Path(path) for _, _, path in parsed] or _tars(first.removeprefix(TARS))
        name = re.sub(r"[-_.]*(\d+|\{.*)?$", "", files[0].stem) or files[0].stem
        if shard := _SHARD.fullmatch(files[0].stem):
            above = files[0].resolve().parent
            name = shard[1] if shard[1] not in SPLIT_NAMES else (above.parent if above.name == "data" else above).name
    lines = [f"{file.name} {sha256_file(file)}" for file in files]
    marks = [{k: v for k, v in zip(("split", "lang"), each, strict=True) if v} for each in named] or [{}] * len(files)
    lines = [" ".join([line, *mark.values()]) for line, mark in zip(lines, marks, strict=True)]
    digest = sha256_text("".join(f"{line}\n" for line in lines))
    folder = workspace.root / FOLDER / f"{slug(name)}-{digest[:12]}"
    splits = {_split(file) for file, mark in zip(files, marks, strict=True) if "split" not in mark} - {""}
    if splits:
        say(f"the names of the files give the splits: {', '.join(sorted(splits))}; otherwise: --split auto")
    if not (folder / ROWS).exists():
        if workspace.dry_run:
            raise UsageError(f"a dry run does not unpack {first}", hint="without --dry-run")
        folder.mkdir(parents=True, exist_ok=True)
        _unpack(files, marks, folder)
    return slug(name), folder / ROWS


def _unpack(files: Sequence[Path], marks: Sequence[Mapping[str, str]], folder: Path) -> None:
    """Writes the pictures of files and, last of all, their rows, each with the split and language of its file."""
    written: dict[str, str] = {}  # digest of each file
    file_of: dict[tuple[str, str, str], str] = {}  # by stem, ending and digest
    numbers: dict[tuple[str, str], Iterator[int]] = {}  # those not tried yet, by stem and ending

    def write(content: bytes, name: str) -> str:
        """Writes a picture and returns its unique name; pictures of the same name and content share a file."""
        plain = PurePosixPath(slug(PurePosixPath(name.replace("\\", "/")).name))
        is_named = is_media(plain.name)
        stem, ending = (plain.stem, plain.suffix) if is_named else (plain.name, f".{_format(content)}")
        digest = hashlib.sha256(content).hexdigest()
        if (stem, ending, digest) in file_of:
            return file_of[stem, ending, digest]
        for number in numbers.setdefault((stem, ending), itertools.count(1)):
            file = f"{stem}{'' if number == 1 else f'-{number}'}{ending}"
            other = written.setdefault(file, digest)
            file_of.setdefault((stem, ending, other), file)
            if other == digest:
                break
        (folder / file).write_bytes(content)
        return file

    total = sum(file.stat().st_size for file in files) >> 20
    with progress(total, "unpack", "MiB") as advance, atomic_open(folder / ROWS) as rows:
        for file, mark in zip(files, marks, strict=True):
            split = _split(file)
            for row in _tar_rows(file, write) if file.suffix == ".tar" else _parquet_rows(file, write):
                row = {**({"split": split} if split else {}), **row, **mark}
                rows.write(f"{json.dumps(row, ensure_ascii=False, default=str)}\n".encode("utf-8", "surrogatepass"))
            advance(file.stat().st_size >> 20)
    say(f"{counted(len(written), 'picture')} unpacked into {folder}")


def _format(content: bytes) -> str:
    """Returns the usual file extension for a picture's content; ValueError if it is not a picture."""
    with suppress(Exception), Image.open(io.BytesIO(content)) as picture:
        return "jpg" if picture.format == "JPEG" else str(picture.format).lower()
    raise ValueError("is no picture")


def _split(path: Path) -> str:
    """Finds the split that a file or its folder names: `train-00000-of-00002.parquet`, `validation/0000.parquet`."""
    words = re.split(r"[^a-z]+", f"{path.parent.name} {path.stem}".lower())
    return next((word for word in reversed(words) if word in SPLIT_NAMES), "")


def _pictures(path: Path) -> list[str]:
    """The columns of a Parquet file that hold pictures: bytes, or objects with `bytes` and `path`."""

    def holds(kind: pa.DataType) -> bool:
        return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))

    def has(kind: pa.DataType) -> bool:
        return holds(kind) or (pa.types.is_struct(kind) and any(f.name == "bytes" and holds(f.type) for f in kind))

    return [field.name for field in parquet_schema(path) if has(field.type)]


def _parquet_rows(path: Path, write: Write) -> Iterator[dict[str, Any]]:
    """Yields the rows of a Parquet file, each picture replaced by the name of its file."""
    pictures = _pictures(path)
    if not pictures:
        raise ArtifactError(f"{path} has no column with pictures", hint="name the file of captions alone")
    rows = (row for batch in parquet_batches(path) for row in batch.to_pylist())
    for number, row in enumerate(rows, 1):
        for column in pictures:
            value = row[column] if isinstance(row[column], Mapping) else {"bytes": row[column]}
            name = str(value.get("path") or f"{path.stem}-{number}")
            if value.get("bytes"):
                try:
                    name = write(value["bytes"], name)
                except ValueError as error:
                    hint = "--format parquet reads the captions alone"
                    raise ArtifactError(f"{path}, row {number}: {column} {error}", hint) from None
            row[column] = name if value.get("bytes") or value.get("path") else None
        yield row


def _tars(pattern: str) -> list[Path]:
    """Returns the tar files of a pattern with `*`, `?`, and `{000..012}` for a range of numbers."""
    if "://" in pattern or pattern.startswith("pipe:"):
        raise UsageError(f"{TARS}{pattern}: ccr reads tar files on this machine", hint="download them first")
    numbers = _RANGE.search(pattern)
    if numbers:
        first, last = numbers.groups()
        names = [_RANGE.sub(f"{n:0{len(first)}}", pattern, count=1) for n in range(int(first), int(last) + 1)]
        return [path for name in names for path in _tars(name)]
    found = [Path(name) for name in sorted(glob(pattern))]
    if not found:
        raise UsageError(f"there is no {pattern}", hint=f"quote the pattern: '{TARS}data/train-*.tar'")
    return found


def _tar_rows(path: Path, write: Write) -> Iterator[dict[str, Any]]:
    """Yields the samples of a webdataset tar file: adjacent files whose names agree up to the first dot."""
    try:
        with tarfile.open(refuse_special(path), "r|*") as tar:
            members = ((_key(member.name), member) for member in tar if member.isreg())
            for key, sample in itertools.groupby(members, lambda pair: pair[0][0]):
                row: dict[str, Any] = {"item_id": key}
                for (_, ending), member in sample:
                    if is_media(f".{ending}") or ending in ("txt", "json", "cls"):
                        if member.size > LARGEST_JSON:
                            raise ArtifactError(f"{path}: {member.name} has {member.size >> 20} MiB")
                        file = tar.extractfile(member)
                        content = file.read() if file else b""
                        row = {**row, **_part(path, member.name, ending, content, write)}
                yield row
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise ArtifactError(f"{path} is cut off or damaged: {error}", hint="fetch it again") from None


def _key(name: str) -> tuple[str, str]:
    """Splits a name in a tar file into key and ending, as webdataset does."""
    folder, slash, file = name.rpartition("/")
    key, _, ending = file.partition(".")
    return f"{folder}{slash}{key}", ending.lower()


def _part(path: Path, name: str, ending: str, content: bytes, write: Write) -> dict[str, Any]:
    """Returns the columns that one file of a sample adds to its row."""
    try:
        if ending == "json":
            value = json.loads(content)
            if not isinstance(value, dict):
                raise ValueError("is no JSON object")
            return value
        if ending in ("txt", "cls"):
            text = content.decode().strip()
            return {"text": text} if ending == "txt" else {"label": int(text)}
        return {"media": write(content, f"{name.replace('/', '-')}")}
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}: {name}: {error}") from None


def _from_hub(name: str) -> list[Path]:
    """The Parquet files of a data set on the hub, downloaded into the hub's cache: `OWNER/NAME[/PART][@REVISION]`."""
    from huggingface_hub import HfApi, snapshot_download

    repo, _, revision = name.partition("@")
    repo, part = "/".join(repo.split("/")[:2]), "/".join(repo.split("/")[2:])
    try:
        for version in [revision] if revision else ["main", _CONVERTED]:
            info = in_time(partial(HfApi().dataset_info, repo, revision=version, timeout=PROBE_SECONDS))
            listed = [entry.rfilename for entry in info.siblings or []]
            files = [file for file in listed if fnmatch(file, f"{part}/*.parquet" if part else "*.parquet")]
            if files:
                break
        else:
            raise UnavailableError(f"the data set {name} has no Parquet files", hint="download it, and name its files")
        parts = sorted({file.split("/")[0] for file in files if "/" in file} - {"data"})
        if not part and len(parts) > 1:
            raise UsageError(f"{name} has several parts: {', '.join(parts)}", hint=f"hf:{repo}/{parts[0]}")
        say(f"{HUB}{name}: {len(files):,} Parquet files")
        folder = snapshot_download(repo, repo_type="dataset", revision=version, allow_patterns=files)
    except (UnavailableError, UsageError):
        raise
    except Exception as error:  # whatever the client raises; a second call resumes the download
        problem = f"the data set {name} is not available: {refusal(error, 'no such data set or revision')}"
        raise UnavailableError(
            problem, hint="check name and network (hf auth login if private), or name files: ccr data import *.parquet"
        ) from error
    return [Path(folder) / file for file in sorted(files)]
