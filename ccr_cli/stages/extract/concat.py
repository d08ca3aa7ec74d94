"""extract --concat: the features of several encoders side by side, row by row.

Values are kept as they are. Rescaling would need statistics of a data set, so features of two data sets could not be
compared; the published 4,096 numbers of MSR-VTT-CN (ResNeXt-101, then ResNet-152; NRCCR) are not rescaled either.

Shape suffixes: P parts, V items, N rows of several items, D feature.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.artifacts import base, dataset, features
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.workspace import stem
from ccr_cli.errors import ArtifactError
from ccr_cli.stages.extract.options import ExtractOptions
from ccr_cli.stages.extract.write_features import ShardContent, write_outcome, write_shards
from ccr_cli.stages.shared.failures import refuse_too_many
from ccr_cli.stages.shared.inputs import Inputs, require_parent

BLOCK = 1 << 20
"""Bytes that are joined at once."""
SHOWN = 3
JOINT = "_"
"""Between the names of the parts."""


def extract_concat(inputs: Inputs, options: ExtractOptions) -> base.Artifact:
    """Joins two features artifacts or more of one data set side by side, in the order of the inputs.

    All parts must have the same number of rows for an item. An item that failed in one part has failed.

    Raises:
        ArtifactError: If the parts are too few, the same, of several data sets, or differ in their numbers of rows.
        CcrError: If more than `max_failed` of the items failed in a part.
    """
    parts = [a for a in inputs.named if a.kind == "features"]
    _refuse_same([*parts, *(a for a in inputs.repeated if a.kind == "features")])
    _refuse_few(inputs, parts)
    data = inputs.parent(parts[0], "dataset")
    for other in (a for a in inputs.named if a.kind == "dataset"):
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
        about = [base.read_json(part.file("encoder.json")) for part in parts]
        dim = sum(int(facts["dim"]) for facts in about)
        index = _write(site.folder, parts, indexes, items, (n_rows, errors), dim)
        site.environment["given"] = [encoder.given for encoder in encoders]
        of_encoders = [encoder for facts in about for encoder in facts.get("parts", [facts])]
        return write_outcome(site.folder, index, {"encoder": request["encoder"], "dim": dim, "parts": of_encoders})

    return build_artifact(inputs.workspace, "features", name, request, [data, *parts], write=write, force=options.force)


def _refuse_few(inputs: Inputs, parts: Sequence[base.Artifact]) -> None:
    """Lists what could be joined: an order is never guessed."""
    if len(parts) > 1:
        return
    datasets = {p.id for part in parts for p in part.parents} | {a.id for a in inputs.named if a.kind == "dataset"}
    candidates = [
        inputs.workspace.relative(a.path)
        for a in inputs.workspace.artifacts("features")
        if features.CONCAT not in a.request and (not datasets or any(p.id in datasets for p in a.parents))
    ]
    count = f"one was named: {parts[0].path}" if parts else "none was named"
    names = f"ccr extract --concat {shlex.join(candidates[:20])}"
    raise ArtifactError(
        f"--concat joins two or more features artifacts in the order of the command line; {count}",
        hint=names if len(candidates) > 1 else "extract the features of each encoder first",
    )


def _refuse_same(parts: Sequence[base.Artifact]) -> None:
    """Refuses the same features twice, or beside joined ones that contain them."""
    holder: dict[str, tuple[int, base.Artifact]] = {}
    for number, part in enumerate(parts):
        for encoder in features.parts(part):
            at, other = holder.setdefault(encoder.id, (number, part))
            if at != number:
                twice = f"both {other.path} and {part.path} contain features of {encoder.request['encoder']}"
                raise ArtifactError(
                    f"{part.path} is named twice" if part.path == other.path else twice,
                    hint="name each once; artifacts from a pipe need not be named again",
                )


def _refuse_unequal(
    parts: Sequence[base.Artifact], indexes: Sequence[pd.DataFrame], items: Sequence[str], data: Path
) -> None:
    """Refuses parts with other items or other numbers of rows; items that failed in a part are ignored."""
    for part, index in zip(parts, indexes, strict=True):
        if list(index["item_id"]) != items:
            raise ArtifactError(f"{part.path} does not have the items of {data} in their order", "extract it again")
    n_PV = np.stack([index["n_rows"].to_numpy(np.int64) for index in indexes])
    there_V = (n_PV > 0).all(axis=0)
    unequal = np.flatnonzero(there_V & (n_PV != n_PV[0]).any(axis=0))
    if not len(unequal):
        return
    shown = [f"{items[at]!r} {', '.join(map(str, n_PV[:, at]))}" for at in unequal[:SHOWN]]
    names = ", ".join(part.name for part in parts)
    raise ArtifactError(
        f"{len(unequal)} of {len(items)} items have different numbers of rows in {names}: "
        + "; ".join([*shown, *(["..."] if len(unequal) > SHOWN else [])]),
        hint=_equalizing_hint(parts, n_PV[:, there_V], data),
    )


def _equalizing_hint(parts: Sequence[base.Artifact], n_PV: npt.NDArray[np.int64], data: Path) -> str:
    """How to get the same number of rows in all parts."""
    single = (n_PV == 1).all(axis=1)
    several = [part for part, one in zip(parts, single, strict=True) if not one]
    imported = [part.name for part in several if any(features.FROM in e.request for e in features.parts(part))]
    if not single.any():
        means = "one row per item in all" if imported else "--pool mean in all of them"
        return f"the same frames in all of them (--set fps=N or --set frames=N, the same clips), or {means}"
    if imported:
        return f"one row per item in {imported[0]} too: pass the mean of its rows to ccr extract --from"
    return f"one row per item in all: {features.command(several[0], data, pool='mean')}"


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


def _write(
    folder: Path,
    parts: Sequence[base.Artifact],
    indexes: Sequence[pd.DataFrame],
    items: Sequence[str],
    content: ShardContent,
    dim: int,
) -> pd.DataFrame:
    """Writes the shards that do not exist yet; returns the index."""
    n_rows, errors = content
    step = max(1, BLOCK // (2 * dim))

    def fill(handle: IO[bytes], shard: int, part: slice) -> ShardContent:
        n_V = n_rows[part]
        total = int(n_V.sum())
        if total:
            files = [artifact.file(features.shard_name(shard)) for artifact in parts]
            places = [_places(index.iloc[part], shard, n_V) for index in indexes]
            for first in range(0, total, step):  # mapped again for each block, so that what was read leaves memory
                rows_PND = [
                    np.load(file, mmap_mode="r", allow_pickle=False)[place[first : first + step]]
                    for file, place in zip(files, places, strict=True)
                ]
                rows_ND = np.concatenate(rows_PND, axis=1)
                assert rows_ND.shape[1] == dim
                handle.write(rows_ND.data)
        return n_V, errors[part]

    return write_shards(folder, items, dim, fill, lambda first: 2.0 * dim * int(n_rows[first:].sum()))


def _places(index: pd.DataFrame, shard: int, n_V: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Where in its shard each row (N) of the items with rows is."""
    assert (index["shard"] == shard).all(), "a shard is a fixed number of items"
    first_V = index["first_row"].to_numpy(np.int64) - (np.cumsum(n_V, dtype=np.int64) - n_V)
    return np.repeat(first_V, n_V) + np.arange(n_V.sum())
