"""extract --from: ready-made features, matched with the items of a data set by their ids.

Shape suffixes: T rows of an item, N rows of several, D feature.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.artifacts import base, dataset, features
from ccr_cli.artifacts.build import PLAN, Build, build_artifact
from ccr_cli.console import progress, warn
from ccr_cli.data import features as formats
from ccr_cli.data.features import FeatureTable, Joined, join
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.stages.extract.options import ExtractOptions, ReadyFeatures
from ccr_cli.stages.extract.write_features import ShardContent, write_outcome, write_shards
from ccr_cli.stages.shared.failures import refuse_too_many
from ccr_cli.stages.shared.inputs import Inputs

BLOCK = 1 << 20
"""Bytes that are converted at once."""
HASHERS = 4
LARGEST = float(np.finfo(np.float16).max)
SHOWN = 3


def extract_from(inputs: Inputs, existing: ReadyFeatures, options: ExtractOptions) -> base.Artifact:
    """Makes a features artifact from files; `data.features` documents their formats.

    Together the files hold the features of each item once, and must be valid; items that they lack have failed.

    Raises:
        ArtifactError: If a source is damaged, or holds no item.
        CcrError: If more than `max_failed` of the items are missing.
        UsageError: If the sources and the lists of ids do not match.
    """
    sources, encoder_name, max_failed = existing.from_ or [], existing.encoder_name, options.max_failed
    if encoder_name is not None and not encoder_name.strip():
        raise UsageError("--encoder-name is empty")
    data = inputs.one("dataset", "", hint="ccr data import FOLDER")
    pairs = formats.with_lists(sources, existing.ids or [])
    request = {"encoder": encoder_name or features.GIVEN, "dtype": "float16", features.FROM: _fingerprint(pairs)}

    def write(site: Build) -> dict[str, int]:
        items = list(dataset.read(data).items["item_id"])
        try:
            with ExitStack() as stack:
                tables = [stack.enter_context(formats.opened(*pair)) for pair in pairs]
                joined = join(items, tables)
                _report(items, tables, joined)
                missing = [item for item, place in zip(items, joined.places, strict=True) if place is None]
                first = f"{missing[0]!r} has no features" if missing else ""
                refuse_too_many(len(missing), len(items), max_failed, "items", first)
                t, entry = next(place for place in joined.places if place is not None)
                dim = int(tables[t].rows(entry).shape[1])
                index = _write(site.folder, items, tables, joined, dim)
        except ArtifactError:
            for path in site.folder.iterdir():  # another source may replace the refused one
                if path.name != PLAN:
                    path.unlink()
            raise
        failed = index[index["status"] == "failed"]
        refuse_too_many(len(failed), len(items), max_failed, "items", next(iter(failed["error"]), ""))
        about = {"encoder": request["encoder"], "dim": dim}
        about |= {} if encoder_name else {"source": {"sha256": request[features.FROM]}}
        site.environment["sources"] = [str(source.absolute()) for source in sources]
        return {**write_outcome(site.folder, index, about), "left_over": len(joined.left)}

    first = Path(os.path.abspath(sources[0]))
    name = options.name or (first.name if first.is_dir() else re.sub(r"\.\w+$", "", first.name))
    return build_artifact(inputs.workspace, "features", name, request, [data], write=write, force=options.force)


def _fingerprint(pairs: Sequence[tuple[Path, Path | None]]) -> str:
    """The sha256 of one file; of several files, folders and lists, that of their contents, wherever they are."""
    digests = [[_content(path) for path in pair if path is not None] for pair in pairs]
    if len(digests) == len(digests[0]) == 1:
        return digests[0][0]
    return base.sha256_text(base.canonical_json(sorted(digests)))


def _content(source: Path) -> str:
    """The sha256 of a file, or of the sorted list of name, size and sha256 of a folder's files."""
    if not source.exists():
        raise ArtifactError(f"{source} does not exist")
    files = formats.content(source)
    with ThreadPoolExecutor(HASHERS) as pool, progress(len(files), "hash", "files") as advance:
        digests = []
        for digest in pool.map(base.sha256_file, files):
            digests.append(digest)
            advance()
    if not source.is_dir():
        return digests[0]
    whole = hashlib.sha256()
    for file, digest in zip(files, digests, strict=True):
        whole.update(os.fsencode(file.name) + f"\0{file.stat().st_size}\0{digest}\n".encode())
    return whole.hexdigest()


def _report(items: Sequence[str], tables: Sequence[FeatureTable], joined: Joined) -> None:
    """Warns of items without features and of entries without items; ArtifactError if no item has features."""
    where = ", ".join(str(table.path) for table in tables)
    missing = [item for item, place in zip(items, joined.places, strict=True) if place is None]
    if len(missing) == len(items):
        entries = f"it has {_some(joined.left)}" if joined.left else "it is empty"
        raise ArtifactError(f"none of the {len(items)} items ({_some(missing)}) is in {where}: {entries}")
    if missing:
        warn(f"{len(missing)} of {len(items)} items are not in {where}: {_some(missing)}")
    if joined.left:
        warn(f"{len(joined.left)} entries of {where} match no item and are left out: {_some(joined.left)}")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def _write(
    folder: Path, items: Sequence[str], tables: Sequence[FeatureTable], joined: Joined, dim: int
) -> pd.DataFrame:
    """Writes the shards that do not exist yet, rows as they come; returns the index."""

    def fill(handle: IO[bytes], shard: int, part: slice) -> ShardContent:
        counts: list[int] = []
        errors: list[str | None] = []
        block: list[tuple[str, npt.NDArray[Any]]] = []
        size = 0
        for item, place in zip(items[part], joined.places[part], strict=True):
            rows_TD = np.empty((0, dim)) if place is None else tables[place[0]].rows(place[1])
            if rows_TD.shape[1] != dim:
                raise ArtifactError(f"{item!r} has features of {rows_TD.shape[1]} numbers, but the first item of {dim}")
            counts.append(len(rows_TD))
            missing = "NotInFile: no source has it" if place is None else "Empty: its entry has no rows"
            errors.append(None if len(rows_TD) else missing)
            block.append((item, rows_TD))
            size += rows_TD.nbytes
            if size >= BLOCK:
                handle.write(_half(block).data)
                block, size = [], 0
        if block:
            handle.write(_half(block).data)
        return np.array(counts, dtype=np.int32), errors

    def need(first: int) -> float:
        """Extrapolates from the shards so far; before that, one row per item."""
        done, left = (
            sum(place is not None for place in half) for half in (joined.places[:first], joined.places[first:])
        )
        size = sum(path.stat().st_size for path in folder.glob("*.npy"))
        return left * (size / done if done else 2 * dim)

    return write_shards(folder, items, dim, fill, need)


def _half(block: Sequence[tuple[str, npt.NDArray[Any]]]) -> npt.NDArray[np.float16]:
    """The rows of several items in half precision; ArtifactError if a value is not finite or too large."""
    half_ND = np.empty((sum(len(rows) for _, rows in block), block[0][1].shape[1]), dtype="<f2")
    at = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for _, rows_TD in block:
            half_ND[at : at + len(rows_TD)] = rows_TD
            at += len(rows_TD)
    bits = half_ND.view("<u2") & 0x7FFF  # without the sign; numpy compares half precision itself ten times as slowly
    if bits.max(initial=0) < 0x7C00:
        return half_ND
    for item, rows_TD in block:
        bad = np.flatnonzero(~np.isfinite(rows_TD).all(axis=1))
        if len(bad):
            hint = "fix the features, or leave the item out: it is then recorded as missing"
            raise ArtifactError(f"row {bad[0] + 1} of {item!r} holds NaN or infinity", hint=hint)
    item, most = max(((i, float(np.abs(r.astype(np.float64)).max(initial=0))) for i, r in block), key=lambda p: p[1])
    hint = "scale all features by one factor, or each row to unit length"
    raise ArtifactError(f"{item!r} holds {most:g}, but half precision ends at {LARGEST:g}", hint=hint)
