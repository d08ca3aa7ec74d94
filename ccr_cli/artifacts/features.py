"""features: one frozen encoder's vectors, in shards of rows, with an index from item to rows."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.artifacts import arrays
from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.parquet import artifact_table, read_table, table_schema, write_table
from ccr_cli.errors import ArtifactError
from ccr_cli.registry import SOURCE

SHARD_ITEMS = 4096
"""Items per shard. Part of the layout on disk: features of another shard size cannot be joined with `--concat`."""
GIVEN = "given"
"""Encoder name of ready-made features that were imported without one."""
FROM = "from"
"""Request key of features that `ccr extract --from` read: the sha256 of their source."""
CONCAT = "concat"
"""Request key of joined features: the ids of their parts, in order."""
PARTS = "parts"
"""Request key of joined features: the requests of their parts; in `encoder.json`, the parts' own content."""
FRAMES = ("fps", "frames", "clip_frames", "clip_stride")
"""Request keys that choose the frames of videos."""
OF_VIDEOS = ("sampling", "pool")
"""Keys of `encoder.json` for videos: the encoded frames, and whether only their mean is kept."""
STORED: np.dtype[np.float16] = np.dtype("<f2")
"""Type of the numbers on disk: half precision, little-endian."""
INDEX = table_schema("item_id string, shard int32, first_row int64, n_rows int32, status string, error string?")
"""`n_rows` is 1 for an image, T for a video, 0 for an item that failed. `status` is ok, failed, or damaged (a video of
which only some frames decode)."""


def shard_name(shard: int) -> str:
    """File name of a shard."""
    return f"{shard:05d}.npy"


def index_name(shard: int) -> str:
    """File name of the index of a shard, until `finish_index` joins all of them."""
    return f"index-{shard:05d}.parquet"


def read_index(artifact: Artifact) -> pd.DataFrame:
    """Reads the index of a features artifact."""
    return artifact_table(artifact, "index.parquet", INDEX)


def encoded_items(artifact: Artifact) -> list[str]:
    """Returns the ids of the items that have features, in the data set's order."""
    index = read_index(artifact)
    return list(index.loc[index["n_rows"] > 0, "item_id"])


def read_shard(artifact: Artifact, shard: int, index: pd.DataFrame) -> npt.NDArray[np.float16]:
    """Maps the rows (N, D) of a shard; ArtifactError if they are not what the encoder and the shard's index promise."""
    path = artifact.file(shard_name(shard))
    rows_ND, dim = arrays.mapped(path), artifact.json("encoder.json").get("dim")
    if rows_ND.dtype != STORED or rows_ND.ndim != 2 or dim not in (rows_ND.shape[1], None):
        found = f"{rows_ND.dtype} of shape {rows_ND.shape}, expected {STORED.name} of shape (N, {dim})"
        raise ArtifactError(f"{path} holds {found}", artifact.rebuild_hint())
    of_shard = index[index["shard"] == shard]
    if not (of_shard["first_row"] <= len(rows_ND) - of_shard["n_rows"]).all():
        problem = f"{path} has {len(rows_ND)} rows, fewer than index.parquet names"
        raise ArtifactError(problem, artifact.rebuild_hint())
    return rows_ND


def write_header(handle: IO[bytes], n_rows: int, dim: int) -> int:
    """Writes the header of a shard; returns the offset of the first row, the same for any number of rows."""
    np.lib.format.write_array_header_1_0(handle, {"descr": STORED.str, "fortran_order": False, "shape": (n_rows, dim)})
    return handle.tell()


def write_index(
    path: Path, item_ids: Sequence[str], shard: int, n_rows: npt.NDArray[np.int32], errors: Sequence[str | None]
) -> None:
    """Writes the index of a shard; an item without rows has failed, one with rows and an error is damaged."""
    first = np.cumsum(n_rows, dtype=np.int64) - n_rows
    status = ["failed" if not n else "damaged" if error else "ok" for n, error in zip(n_rows, errors, strict=True)]
    rows = {"first_row": np.where(n_rows > 0, first, 0), "n_rows": n_rows, "status": status}
    ids, reasons = list(item_ids), np.array(errors, dtype=object)
    write_table(path, pd.DataFrame({"item_id": ids, "shard": np.int32(shard), **rows, "error": reasons}), INDEX)


def finish_index(folder: Path, n_items: int) -> pd.DataFrame:
    """Joins the indexes of the shards into one, and removes them."""
    parts = sorted(folder.glob("index-*.parquet"))
    index = pd.concat([read_table(path, INDEX) for path in parts], ignore_index=True)
    assert len(index) == n_items, "the shards do not cover the items"
    write_table(folder / "index.parquet", index, INDEX)
    for path in parts:
        path.unlink()
    return index


@dataclass(frozen=True)
class EncoderPart:
    """The features of one encoder, alone or joined with others."""

    id: str
    request: dict[str, Any]
    given: dict[str, Any]
    """Options as the user wrote them, where the request differs (a folder is recorded by its content)."""

    @property
    def options(self) -> dict[str, Any]:
        """The encoder's own options, as the user wrote them."""
        values = {**self.request, **self.given}
        return {k: v for k, v in values.items() if k not in ("encoder", "dtype", "pool", SOURCE)}


def parts(artifact: Artifact) -> list[EncoderPart]:
    """Returns the features of each encoder in an artifact, in order; one if they are not joined."""
    written = artifact.environment.get("given")
    if CONCAT not in artifact.request:
        return [EncoderPart(artifact.id, artifact.request, written or {})]
    ids, requests = artifact.request[CONCAT], artifact.request[PARTS]
    return [EncoderPart(*part) for part in zip(ids, requests, written or [{}] * len(ids), strict=True)]


def comparable(one: Artifact, other: Artifact) -> bool:
    """Whether the same encoder made both in the same way; the choice of frames counts if both have videos."""
    return _alike(one.json("encoder.json"), other.json("encoder.json"))


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if PARTS in one and PARTS in other:
        pairs = zip(one[PARTS], other[PARTS], strict=False)
        return len(one[PARTS]) == len(other[PARTS]) and all(_alike(*pair) for pair in pairs)
    ignored = {key for key in OF_VIDEOS if key not in one or key not in other}
    return {k: v for k, v in one.items() if k not in ignored} == {k: v for k, v in other.items() if k not in ignored}


def command(artifact: Artifact, data: Path, *, videos: bool = True, **changed: str) -> str:
    """Returns the command that encodes the data set at a path in the same way, with some options changed."""
    encoders = parts(artifact)
    requests = [{**part.request, **part.given, **changed} for part in encoders]
    commands = [_command({k: v for k, v in request.items() if videos or k not in FRAMES}, data) for request in requests]
    unnamed = any(FROM in part.request and part.request["encoder"] == GIVEN for part in encoders)
    also = ", and these features again with the same name" if unnamed else ""
    return (commands[0] if len(encoders) == 1 else f"({'; '.join(commands)}) | ccr extract - --concat") + also


def _command(request: Mapping[str, Any], data: Path) -> str:
    options = dict(request)
    encoder, dtype = options.pop("encoder"), options.pop("dtype")
    options.pop(SOURCE, None)
    if FROM in options:
        named = shlex.join(["--encoder-name", "NAME" if encoder == GIVEN else str(encoder)])
        return f"{shlex.join(['ccr', 'extract', str(data)])} --from FILE {named}"
    if encoder == GIVEN:
        return "ccr data import FILE.mat"
    words = ["ccr", "extract", str(data), "--encoder", str(encoder)]
    words += [] if dtype == "float32" else ["--dtype", str(dtype)]
    words += ["--pool", str(options.pop("pool"))] if "pool" in options else []
    return shlex.join([*words, *(word for key, value in options.items() for word in ("--set", f"{key}={value}"))])


def read_rows(
    artifact: Artifact, item_ids: Sequence[str], *, pooled: bool
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], list[str]]:
    """Reads the rows of items in the given order, into a file if they are many; if `pooled`, each item's mean row.

    Returns:
        Rows (N, D) in float32, the offset of each item's first row (V + 1,), and the ids of the items that have
        features.

    Raises:
        ArtifactError: If none of them has features, or a shard is malformed.
    """
    index = read_index(artifact).set_index("item_id")
    known = set(index.index[index["n_rows"] > 0])
    kept = [i for i in item_ids if i in known]
    if not kept:
        hint = f"import a file that also has them, by ids such as {item_ids[0]!r}" if FROM in artifact.request else None
        raise ArtifactError(f"{artifact.path} has no features of any of the {len(item_ids)} items", hint)
    index = index.loc[kept]
    lengths = np.ones(len(kept), np.int64) if pooled else index["n_rows"].to_numpy(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows: npt.NDArray[np.float32] | None = None
    for shard in sorted(index["shard"].unique()):
        block = read_shard(artifact, int(shard), index)
        if rows is None:
            rows = arrays.empty((int(offsets[-1]), block.shape[1]), artifact.path)
        for at in np.flatnonzero(index["shard"].to_numpy() == shard):
            first, count = int(index["first_row"].iloc[at]), int(index["n_rows"].iloc[at])
            part = block[first : first + count].astype(np.float32)
            with np.errstate(invalid="ignore"):  # inf - inf
                rows[offsets[at] : offsets[at + 1]] = part.mean(axis=0, keepdims=True) if pooled else part
    assert rows is not None
    with np.errstate(invalid="ignore"):
        total = rows.sum(dtype=np.float64)
    if not np.isfinite(total):
        raise ArtifactError(f"{artifact.path} holds features that are not finite", artifact.rebuild_hint())
    return rows, offsets, kept
