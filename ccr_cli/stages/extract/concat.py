"""extract --concat: the features of several encoders side by side, row by row.

Numbers are kept as they are. Rescaling would need figures of a data set, so that features of two data sets could not be
compared, and the published 4,096 numbers of MSR-VTT-CN (ResNeXt-101, then ResNet-152; NRCCR) are raw too.

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
from ccr_cli.console import warn
from ccr_cli.errors import ArtifactError
from ccr_cli.stages.extract.shards import Told, finish, write_shards
from ccr_cli.stages.shared.failures import refuse_too_many
from ccr_cli.stages.shared.inputs import Inputs, require_parent

BLOCK = 1 << 20
"""Bytes that are joined at once."""
SHOWN = 3
JOINT = "_"
"""Between the names of the parts."""


def extract_concat(
    inputs: Inputs, *, max_failed: float = 0.2, name: str | None = None, force: bool = False
) -> base.Artifact:
    """Makes a features artifact of those that were given, in their order, all of one data set.

    Rows of an item are joined one by one, so all parts must have as many. An item that failed in one part has failed.

    Args:
        inputs: Must lead to two features artifacts or more.
        max_failed: Share of items that may have failed.
        name: Name of the artifact; by default the names of its parts.
        force: Join again.

    Returns:
        The features artifact.

    Raises:
        ArtifactError: If the parts are too few, the same, of several data sets, or differ in their numbers of rows.
        CcrError: If more than `max_failed` of the items failed in one of them.
    """
    given = [a for a in inputs.given if a.kind == "features"]
    _refuse_same([*given, *(a for a in inputs.repeated if a.kind == "features")])
    _refuse_few(inputs, given)
    data = inputs.parent(given[0], "dataset")
    for other in (a for a in inputs.given if a.kind == "dataset"):
        require_parent(given[0], other)
    for part in given:
        require_parent(part, data)
        inputs.note(part)
    items = list(dataset.read(data).items["item_id"])
    indexes = [features.read_index(part) for part in given]
    _refuse_unequal(given, indexes, items, data.path)
    encoders = [part for artifact in given for part in features.parts(artifact)]
    request = {
        "encoder": JOINT.join(str(part.request["encoder"]) for part in encoders),
        features.CONCAT: [part.id for part in encoders],
        features.PARTS: [part.request for part in encoders],
    }
    name = name or stem(JOINT.join(part.name for part in given), {}, {})

    def write(site: Build) -> dict[str, int]:
        n_rows, errors = _outcome(given, indexes)
        failed = [error for error, count in zip(errors, n_rows, strict=True) if not count]
        refuse_too_many(len(failed), len(items), max_failed, "items", str(failed[0]) if failed else "")
        about = [base.read_json(part.file("encoder.json")) for part in given]
        dim = sum(int(each["dim"]) for each in about)
        _write(site.folder, given, indexes, items, (n_rows, errors), dim)
        index = features.finish_index(site.folder, len(items))
        site.environment["given"] = [part.given for part in encoders]
        damaged = int((index["status"] == "damaged").sum())
        if damaged:
            warn(f"{damaged} videos are damaged; what decodes of them is there (index.parquet says how much)")
        parts = [part for each in about for part in each.get("parts", [each])]
        counts = finish(site.folder, index, {"encoder": request["encoder"], "dim": dim, "parts": parts})
        return counts | ({"damaged": damaged} if damaged else {})

    return build_artifact(inputs.workspace, "features", name, request, [data, *given], write=write, force=force)


def _refuse_few(inputs: Inputs, given: Sequence[base.Artifact]) -> None:
    """Lists what could be joined: an order is never guessed."""
    if len(given) > 1:
        return
    of = {p.id for a in given for p in a.parents} | {a.id for a in inputs.given if a.kind == "dataset"}
    there = [
        inputs.workspace.relative(a.path)
        for a in inputs.workspace.artifacts("features")
        if features.CONCAT not in a.request and (not of or any(p.id in of for p in a.parents))
    ]
    what = f"only {given[0].path} was" if given else "none were"
    raise ArtifactError(
        f"--concat joins two features artifacts or more, in the order in which they are given, and {what} given",
        hint=f"ccr extract --concat {shlex.join(there[:20])}" if len(there) > 1 else "extract each encoder's first",
    )


def _refuse_same(given: Sequence[base.Artifact]) -> None:
    """The same features twice, or features beside others that hold them already."""
    holder: dict[str, tuple[int, base.Artifact]] = {}
    for number, artifact in enumerate(given):
        for part in features.parts(artifact):
            at, other = holder.setdefault(part.id, (number, artifact))
            if at != number:
                twice = f"features of {part.request['encoder']} are both in {other.path} and in {artifact.path}"
                raise ArtifactError(
                    f"{artifact.path} was given twice" if artifact.path == other.path else twice,
                    hint="name each once; what comes through a pipe need not be named again",
                )


def _refuse_unequal(
    given: Sequence[base.Artifact], indexes: Sequence[pd.DataFrame], items: Sequence[str], data: Path
) -> None:
    """Other items, or items with other numbers of rows; those that failed in one part are left out in any case."""
    for part, index in zip(given, indexes, strict=True):
        if list(index["item_id"]) != items:
            raise ArtifactError(f"{part.path} has not the items of {data} in their order", hint="extract it again")
    n_PV = np.stack([index["n_rows"].to_numpy(np.int64) for index in indexes])
    there_V = (n_PV > 0).all(axis=0)
    unequal = np.flatnonzero(there_V & (n_PV != n_PV[0]).any(axis=0))
    if not len(unequal):
        return
    shown = [f"{items[at]!r} {', '.join(map(str, n_PV[:, at]))}" for at in unequal[:SHOWN]]
    names = ", ".join(part.name for part in given)
    raise ArtifactError(
        f"{len(unequal)} of {len(items)} items have not as many rows in all of {names}: "
        + "; ".join([*shown, *(["..."] if len(unequal) > SHOWN else [])]),
        hint=_make_equal(given, n_PV[:, there_V], data),
    )


def _make_equal(given: Sequence[base.Artifact], n_PV: npt.NDArray[np.int64], data: Path) -> str:
    """What to type so that all have as many rows."""
    single = (n_PV == 1).all(axis=1)
    several = [part for part, one in zip(given, single, strict=True) if not one]
    read = [a.name for a in several if any(features.FROM in part.request for part in features.parts(a))]
    if not single.any():
        means = "one row an item in all" if read else "--pool mean in all of them"
        return f"the same frames in all of them (--set fps=N or --set frames=N, the same clips), or {means}"
    if read:
        return f"one row an item in {read[0]} too: give the mean of its rows to ccr extract --from"
    return f"one row an item in all: {features.command(several[0], data, pool='mean')}"


def _outcome(given: Sequence[base.Artifact], indexes: Sequence[pd.DataFrame]) -> Told:
    """The number of rows of each item, 0 where it failed in a part, and what is amiss with it."""
    n_PV = np.stack([index["n_rows"].to_numpy(np.int32) for index in indexes])
    n_rows = np.where((n_PV > 0).all(axis=0), n_PV[0], np.int32(0))
    errors: list[str | None] = [None] * len(n_rows)
    for at in np.flatnonzero(np.any([index["error"].notna() for index in indexes], axis=0)):
        own = [index["error"].iloc[at] if n_rows[at] or not n_PV[p, at] else None for p, index in enumerate(indexes)]
        said = [
            f"{error} (part {p}, {part.request['encoder']})"
            for p, (part, error) in enumerate(zip(given, own, strict=True), 1)
            if error
        ]
        errors[at] = own[0] if len(set(own)) == 1 else "; ".join(said)
    return n_rows, errors


def _write(
    folder: Path,
    given: Sequence[base.Artifact],
    indexes: Sequence[pd.DataFrame],
    items: Sequence[str],
    told: Told,
    dim: int,
) -> None:
    """Writes the shards that are not there yet."""
    n_rows, errors = told
    step = max(1, BLOCK // (2 * dim))

    def fill(handle: IO[bytes], shard: int, part: slice) -> Told:
        n_V = n_rows[part]
        total = int(n_V.sum())
        features.write_header(handle, total, dim)
        if total:
            files = [artifact.file(features.shard_name(shard)) for artifact in given]
            places = [_places(index.iloc[part], shard, n_V) for index in indexes]
            for first in range(0, total, step):  # mapped anew for each block, so that what was read leaves memory
                rows_PND = [
                    np.load(file, mmap_mode="r", allow_pickle=False)[place[first : first + step]]
                    for file, place in zip(files, places, strict=True)
                ]
                rows_ND = np.concatenate(rows_PND, axis=1)
                assert rows_ND.shape[1] == dim
                handle.write(rows_ND.data)
        return n_V, errors[part]

    write_shards(folder, items, fill, lambda first: 2.0 * dim * int(n_rows[first:].sum()))


def _places(index: pd.DataFrame, shard: int, n_V: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Where in its shard each row (N) lies of the items that have rows in the end."""
    assert (index["shard"] == shard).all(), "a shard is a fixed number of items"
    first_V = index["first_row"].to_numpy(np.int64) - (np.cumsum(n_V, dtype=np.int64) - n_V)
    return np.repeat(first_V, n_V) + np.arange(n_V.sum())
