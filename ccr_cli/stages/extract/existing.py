"""extract --from and --concat: features that exist already, matched by item id or joined side by side.

Joined values are kept as they are. Rescaling would need statistics of a data set, so features of two data sets could
not be compared; the published 4,096 numbers of MSR-VTT-CN (ResNeXt-101, then ResNet-152; NRCCR) are not rescaled
either.

Shape suffixes: P parts, V items, T rows of an item, N rows of several, D feature.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.artifacts import base, dataset, features
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.workspace import stem
from ccr_cli.console import progress, warn
from ccr_cli.data import features as formats
from ccr_cli.data.features import FeatureTable, Place, half_precision, join
from ccr_cli.errors import ArtifactError, CcrError, ResourceError, UsageError, no_file
from ccr_cli.stages.extract.options import ExtractOptions, ReadyFeatures
from ccr_cli.stages.extract.write_features import ShardContent, write_outcome, write_shards
from ccr_cli.stages.shared.failures import refuse_too_many
from ccr_cli.stages.shared.inputs import Inputs, require_parent

BLOCK = 1 << 20
"""Bytes that are joined at once."""
HASHERS = 4
SHOWN = 3
JOINT = "_"
"""Separator between the names of the parts."""


_ALWAYS = frozenset(
    ("artifacts", "max_failed", "name", "force", "workspace", "dry_run", "json", "quiet", "verbose", "concat")
)
_OF_FROM = frozenset(("from_", "ids", "encoder_name", "media_root", "device", "batch_size", "workers"))


def ready_made(
    inputs: Inputs, existing: ReadyFeatures, options: ExtractOptions, given: Mapping[str, str]
) -> base.Artifact | None:
    """Joins or imports features if `existing` asks for it; None if it does not, so that media are encoded instead.

    Raises:
        UsageError: If an option of the command line (`given`: name to flag) has no effect.
        CcrError: As for `extract_from` and `extract_concat`.
    """
    if not (existing.concat or existing.from_):
        if existing.ids or existing.encoder_name:
            raise UsageError(f"{'--ids' if existing.ids else '--encoder-name'} goes with --from")
        return None
    mode, known = ("--concat", _ALWAYS) if existing.concat else ("--from", _ALWAYS | _OF_FROM)
    for name, flag in given.items():
        if name not in known:
            raise UsageError(f"{flag} has no effect with {mode}, which encodes nothing")
    return extract_concat(inputs, options) if existing.concat else extract_from(inputs, existing, options)


def extract_from(inputs: Inputs, existing: ReadyFeatures, options: ExtractOptions) -> base.Artifact:
    """Makes a features artifact from files; `data.features` documents their formats.

    Together the files must hold valid features, and each item at most once; items that they lack count as failed.

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
    request = {
        "encoder": encoder_name or features.GIVEN,
        "dtype": features.STORED.name,
        features.FROM: fingerprint(pairs),
    }

    def write(site: Build) -> dict[str, int]:
        items = list(dataset.read(data).items["item_id"])
        try:
            with ExitStack() as stack:
                tables = [stack.enter_context(formats.opened(*pair)) for pair in pairs]
                places, left = join(items, tables)
                missing = [item for item, place in zip(items, places, strict=True) if place is None]
                _report(missing, len(items), tables, left)
                first = f"NotInFile: no source has {missing[0]!r}" if missing else ""
                refuse_too_many(len(missing), len(items), max_failed, "items", first)
                t, entry = next(place for place in places if place is not None)
                dim = int(tables[t].rows(entry).shape[1])
                index = _write(site.folder, items, tables, places, dim)
            failed = index[index["status"] == "failed"]
            refuse_too_many(len(failed), len(items), max_failed, "items", next(iter(failed["error"]), ""))
        except CcrError as error:
            if not isinstance(error, ResourceError):
                site.clear()  # another source may replace the refused one
            raise
        about = {"encoder": request["encoder"], "dim": dim}
        about |= {} if encoder_name else {"source": {"sha256": request[features.FROM]}}
        site.environment["sources"] = [str(source.absolute()) for source in sources]
        return {**write_outcome(site.folder, index, about), "left_over": len(left)}

    first = Path(os.path.abspath(sources[0]))
    name = options.name or (first.name if first.is_dir() else re.sub(r"\.\w+$", "", first.name))
    return build_artifact(inputs.workspace, "features", name, request, [data], write=write, force=options.force)


def fingerprint(pairs: Sequence[tuple[Path, Path | None]]) -> str:
    """Returns a sha256 of the contents of sources and id lists, wherever they are; of one file, the file's own."""
    digests = [[_content(path) for path in pair if path is not None] for pair in pairs]
    single = len(digests) == len(digests[0]) == 1
    return digests[0][0] if single else base.sha256_text(base.canonical_json(sorted(digests)))


def _content(source: Path) -> str:
    """The sha256 of a file, or of the sorted list of name, size and sha256 of a folder's files."""
    if not source.exists():
        raise no_file(source)
    files = formats.content(source)
    digests = []
    with ThreadPoolExecutor(HASHERS) as pool, progress(len(files), "hash", "files") as advance:
        for digest in pool.map(base.sha256_file, files):
            digests.append(digest)
            advance()
    if not source.is_dir():
        return digests[0]
    whole = hashlib.sha256()
    for file, digest in zip(files, digests, strict=True):
        whole.update(os.fsencode(file.name) + f"\0{file.stat().st_size}\0{digest}\n".encode())
    return whole.hexdigest()


def _report(missing: Sequence[str], total: int, tables: Sequence[FeatureTable], left: Sequence[str]) -> None:
    """Warns of items without features and of entries without items; ArtifactError if no item has features."""
    where = ", ".join(str(table.path) for table in tables)
    if len(missing) == total:
        entries = f"it has {_some(left)}" if left else "it is empty"
        raise ArtifactError(f"none of the {total} items ({_some(missing)}) is in {where}: {entries}")
    if missing:
        warn(f"{len(missing)} of {total} items are not in {where}: {_some(missing)}")
    if left:
        warn(f"{len(left)} entries of {where} match no item and are left out: {_some(left)}")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def _write(
    folder: Path, items: Sequence[str], tables: Sequence[FeatureTable], places: Sequence[Place | None], dim: int
) -> pd.DataFrame:

    def fill(handle: IO[bytes], shard: int, part: slice) -> ShardContent:
        counts: list[int] = []
        errors: list[str | None] = []
        for item, place in zip(items[part], places[part], strict=True):
            rows_TD = np.empty((0, dim)) if place is None else tables[place[0]].rows(place[1])
            if rows_TD.shape[1] != dim:
                raise ArtifactError(f"{item!r} has features of {rows_TD.shape[1]} numbers, but the first item of {dim}")
            counts.append(len(rows_TD))
            missing = "NotInFile: no source has it" if place is None else "Empty: its entry has no rows"
            errors.append(None if len(rows_TD) else missing)
            handle.write(half_precision(item, rows_TD).data)
        return np.array(counts, dtype=np.int32), errors

    def need(first: int) -> float:
        """Extrapolates from the shards so far; without any, assumes one row per item."""
        done, left = (sum(place is not None for place in half) for half in (places[:first], places[first:]))
        size = sum(path.stat().st_size for path in folder.glob("*.npy"))
        return left * (size / done if done else features.STORED.itemsize * dim)

    return write_shards(folder, items, dim, fill, need)


def extract_concat(inputs: Inputs, options: ExtractOptions) -> base.Artifact:
    """Joins two or more features artifacts of one data set side by side, in the order of the inputs.

    All parts must have the same number of rows for an item. An item that failed in any part counts as failed.

    Raises:
        ArtifactError: If there are fewer than two parts, or they repeat, differ in data set or in rows per item.
        CcrError: If more than `max_failed` of the items failed in any part.
    """
    parts = inputs.of_kind("features")
    _refuse_same([*parts, *(a for a in inputs.repeated if a.kind == "features")])
    if len(parts) < 2:  # list what could be joined; the order is never guessed
        names = shlex.join(inputs.workspace.relative(a.path) for a in inputs.workspace.artifacts("features"))
        count = f"one was named: {parts[0].path}" if parts else "none was named"
        problem = f"--concat joins two or more features artifacts, in their order; {count}"
        raise ArtifactError(problem, hint=f"ccr extract --concat {names or 'features/A features/B'}")
    data = inputs.parent(parts[0], "dataset")
    for other in inputs.of_kind("dataset"):
        require_parent(parts[0], other)
    for part in parts:
        require_parent(part, data)
        inputs.note(part)
    items = list(dataset.read(data).items["item_id"])
    indexes = [features.read_index(part) for part in parts]
    _refuse_unequal(parts, indexes, items, data.path)
    encoders = [encoder for part in parts for encoder in features.parts(part)]
    request = {
        "encoder": JOINT.join(str(encoder.request["encoder"]) for encoder in encoders),
        features.CONCAT: [encoder.id for encoder in encoders],
        features.PARTS: [encoder.request for encoder in encoders],
    }
    name = options.name or stem(JOINT.join(part.name for part in parts), {}, {})

    def write(site: Build) -> dict[str, int]:
        n_rows, errors = _outcome(parts, indexes)
        failed = [error for error, count in zip(errors, n_rows, strict=True) if not count]
        refuse_too_many(len(failed), len(items), options.max_failed, "items", str(failed[0]) if failed else "")
        about = [part.json("encoder.json") for part in parts]
        dim = sum(int(facts["dim"]) for facts in about)
        step = max(1, BLOCK // (features.STORED.itemsize * dim))

        def fill(handle: IO[bytes], shard: int, part: slice) -> ShardContent:
            n_V = n_rows[part]
            places = [_places(index.iloc[part], shard, n_V) for index in indexes]
            for first in range(0, int(n_V.sum()), step):
                rows_PND = [  # mapped again for each block, so that what was read leaves memory
                    features.read_shard(artifact, shard, index)[place[first : first + step]]
                    for artifact, index, place in zip(parts, indexes, places, strict=True)
                ]
                rows_ND = np.concatenate(rows_PND, axis=1)
                assert rows_ND.shape[1] == dim
                handle.write(rows_ND.data)
            return n_V, errors[part]

        index = write_shards(site.folder, items, dim, fill, lambda first: 2.0 * dim * int(n_rows[first:].sum()))
        site.environment["given"] = [encoder.given for encoder in encoders]
        of_encoders = [encoder for facts in about for encoder in facts.get("parts", [facts])]
        return write_outcome(site.folder, index, {"encoder": request["encoder"], "dim": dim, "parts": of_encoders})

    return build_artifact(inputs.workspace, "features", name, request, [data, *parts], write=write, force=options.force)


def _refuse_same(parts: Sequence[base.Artifact]) -> None:
    """Refuses features that are named twice, or that another part already contains."""
    holder: dict[str, tuple[int, base.Artifact]] = {}
    for number, part in enumerate(parts):
        for encoder in features.parts(part):
            at, other = holder.setdefault(encoder.id, (number, part))
            if at != number:
                twice = f"both {other.path} and {part.path} contain features of {encoder.request['encoder']}"
                message = f"{part.path} is named twice" if part.path == other.path else twice
                raise ArtifactError(message, hint="name each once; artifacts from a pipe need not be named again")


def _refuse_unequal(
    parts: Sequence[base.Artifact], indexes: Sequence[pd.DataFrame], items: Sequence[str], data: Path
) -> None:
    """Refuses parts that differ in items or in rows per item; items that failed in a part are ignored."""
    for part, index in zip(parts, indexes, strict=True):
        if list(index["item_id"]) != items:
            raise ArtifactError(f"{part.path} does not have the items of {data} in their order", "extract it again")
    n_PV = np.stack([index["n_rows"].to_numpy(np.int64) for index in indexes])
    there_V = (n_PV > 0).all(axis=0)
    unequal = np.flatnonzero(there_V & (n_PV != n_PV[0]).any(axis=0))
    if not len(unequal):
        return
    shown = [f"{items[at]!r} {', '.join(map(str, n_PV[:, at]))}" for at in unequal[:SHOWN]]
    shown += ["..."] * (len(unequal) > SHOWN)
    names = ", ".join(part.name for part in parts)
    message = f"{len(unequal)} of {len(items)} items have different numbers of rows in {names}: {'; '.join(shown)}"
    hint = "the same frames in all (--set fps=N or --set frames=N), or one row per item in all (--pool mean)"
    raise ArtifactError(message, hint=f"{hint}; before --from, take the mean of the rows yourself")


def _outcome(parts: Sequence[base.Artifact], indexes: Sequence[pd.DataFrame]) -> ShardContent:
    """The number of rows of each item, 0 if it failed in a part, and its error."""
    n_PV = np.stack([index["n_rows"].to_numpy(np.int32) for index in indexes])
    n_rows = np.where((n_PV > 0).all(axis=0), n_PV[0], np.int32(0))
    errors: list[str | None] = [None] * len(n_rows)
    for at in np.flatnonzero(np.any([index["error"].notna() for index in indexes], axis=0)):
        own = [index["error"].iloc[at] if n_rows[at] or not n_PV[p, at] else None for p, index in enumerate(indexes)]
        labelled = [
            f"{error} (part {p}, {part.request['encoder']})"
            for p, (part, error) in enumerate(zip(parts, own, strict=True), 1)
            if error
        ]
        errors[at] = own[0] if len(set(own)) == 1 else "; ".join(labelled)
    return n_rows, errors


def _places(index: pd.DataFrame, shard: int, n_V: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Returns the position in its shard of each row (N) of the items that have rows."""
    assert (index["shard"] == shard).all(), "a shard is a fixed number of items"
    first_V = index["first_row"].to_numpy(np.int64) - (np.cumsum(n_V, dtype=np.int64) - n_V)
    return np.repeat(first_V, n_V) + np.arange(n_V.sum())
