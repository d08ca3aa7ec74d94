"""extract: a frozen encoder's features of every item that has media.

Shape suffixes: B images in a batch, D feature.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from PIL import Image

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, features
from ccr_cli.artifacts.build import building
from ccr_cli.artifacts.tables import read_table, write_table
from ccr_cli.artifacts.workspace import stem
from ccr_cli.console import progress
from ccr_cli.data.sampling import Sampling
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.stages.embed import choose_device
from ccr_cli.stages.failures import failure, read_failures, refuse_too_many, write_failures
from ccr_cli.stages.options import configure, identified
from ccr_cli.stages.select import Inputs

DECODERS = 2
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
MAX_PIXELS = 64_000_000
_SAMPLING = frozenset(field.name for field in fields(Sampling))


def extract(
    inputs: Inputs,
    *,
    encoder: str | None = None,
    options: Mapping[str, str] | None = None,
    media_root: Path | None = None,
    batch_size: int = 64,
    device: str = "auto",
    dtype: str = "float32",
    max_failed: float = 0.2,
    name: str | None = None,
    force: bool = False,
    retry_failed: bool = False,
) -> base.Artifact:
    """Encodes every image of a data set.

    Args:
        inputs: Must lead to one data set.
        encoder: A file of encoders/; by default the one that the data set's manifest names, else `clip`.
        options: The encoder's own options, as text.
        media_root: Where the media lie, if not where the data set says.
        batch_size: Images at once; batches never cross a shard.
        device: `auto`, `cpu` or `cuda`.
        dtype: Precision of the encoder: float32, bfloat16 or float16.
        max_failed: Share of items that may fail.
        name: Name of the artifact.
        force: Extract again.
        retry_failed: Try failed items again, keep the rest.

    Returns:
        The features artifact; its count `failed` says how many items have none.

    Raises:
        CcrError: If more than `max_failed` of the items failed.
        UsageError: If there is no such precision.
    """
    if dtype not in DTYPES:
        raise UsageError(f"--dtype is one of {', '.join(DTYPES)}")
    data = inputs.one("dataset", "", hint="ccr data import noto-emoji")
    source = dataset.read(data)
    encoder = encoder or usual_encoder(source)
    module = registry.load("encoders", encoder)
    config = configure(module.Config, options or {}, f"encoder {encoder}")
    recorded = _without_sampling(identified(module, config))
    request = {"encoder": encoder, "dtype": dtype, **recorded}
    name = name or stem(encoder, request, usual_request(encoder))
    with building(
        inputs.workspace,
        "features",
        name,
        request,
        [data],
        data=data.name,
        force=force,
        redo_failed=retry_failed,
    ) as build:
        if build.done is None:
            root = media_root or dataset.media_root(data)
            if root is None or not root.is_dir():
                where = f"its media root {root} is not there" if root else "no media lie beside it"
                raise ArtifactError(f"{data.name} has no media: {where}", hint="say where: --media-root FOLDER")
            on = choose_device(device)
            model = module.Encoder(config, on, DTYPES[dtype])
            _encode(build.folder, source, root.resolve(), model, batch_size)
            index = features.finish_index(build.folder, len(source.items))
            failed = index[index["status"] == "failed"].to_dict("records")
            refuse_too_many(len(failed), len(index), max_failed, "items", str(failed[0]["error"]) if failed else "")
            attempts = {r["id"]: r["attempt"] for r in read_failures(build.folder)} if retry_failed else {}
            records = []
            for row in failed:
                kind, _, message = str(row["error"]).partition(": ")
                attempt = attempts.get(row["item_id"], 0) + 1
                records.append(failure(row["item_id"], "extract", kind, message, attempt))
            write_failures(build.folder, records)
            base.write_json(build.folder / "encoder.json", model.describe())
            build.environment["device"] = str(on)
            build.environment["given"] = {k: v for k, v in asdict(config).items() if recorded.get(k, v) != v}
            build.finish({"items": len(index), "rows": int(index["n_rows"].sum()), "failed": len(failed)})
        assert build.done is not None
        return build.done


def usual_encoder(data: dataset.Dataset) -> str:
    """The encoder that is taken if nobody names one."""
    return str(data.manifest.get("default_encoder", "clip"))


def usual_request(encoder: str) -> dict[str, Any]:
    """What is asked of an encoder if nobody sets any option."""
    return {"encoder": encoder, "dtype": "float32", **asdict(registry.load("encoders", encoder).Config())}


def _without_sampling(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in _SAMPLING}


def _encode(folder: Path, source: dataset.Dataset, root: Path, model: Any, batch_size: int) -> None:
    """Writes the shards that are not there yet, each with an index of its own until the end.

    Where an earlier attempt came to the end, only what failed in it is tried again.
    """
    items = source.items
    whole = folder / "index.parquet"
    earlier = read_table(whole, features.INDEX) if whole.is_file() else None
    with progress(len(items), "extract", "images") as advance:
        for shard, first in enumerate(range(0, len(items), features.SHARD_ITEMS)):
            part = items.iloc[first : first + features.SHARD_ITEMS]
            index_path = folder / f"index-{shard:05d}.parquet"
            if index_path.is_file():
                advance(len(part))
                continue
            path = folder / features.shard_name(shard)
            good, kept = _kept(path, part, shard, earlier)
            todo = part[~good]
            advance(len(part) - len(todo))
            rows, failed = _shard(todo, root, model, batch_size, advance)
            errors = np.full(len(part), None, dtype=object)
            errors[~good] = failed
            if kept is not None:
                rows = _merged(kept, rows, good[[error is None for error in errors]])
            buffer = io.BytesIO()
            np.save(buffer, rows, allow_pickle=False)
            with base.atomic_open(path) as handle:
                handle.write(buffer.getbuffer())
            write_table(index_path, _shard_index(part, shard, errors), features.INDEX)


def _kept(
    path: Path, part: pd.DataFrame, shard: int, earlier: pd.DataFrame | None
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float16] | None]:
    """Which items of a shard an earlier attempt encoded, and their rows."""
    nothing = np.zeros(len(part), dtype=bool)
    if earlier is None or not path.is_file():
        return nothing, None
    old = earlier[earlier["shard"] == shard]
    good = old["n_rows"].to_numpy() > 0
    rows: npt.NDArray[np.float16] = np.load(path, allow_pickle=False)
    if len(old) != len(part) or good.sum() != len(rows):  # stopped between writing the rows and their index
        return nothing, None
    return good, rows


def _merged(
    kept: npt.NDArray[np.float16], new: npt.NDArray[np.float16], was_kept: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float16]:
    rows = np.empty((len(was_kept), kept.shape[1]), dtype=np.float16)
    rows[was_kept], rows[~was_kept] = kept, new
    return rows


def _shard(
    part: pd.DataFrame, root: Path, model: Any, batch_size: int, advance: Any
) -> tuple[npt.NDArray[np.float16], list[str | None]]:
    """Encodes one shard; decoding runs ahead in threads."""
    errors: list[str | None] = []
    rows: list[npt.NDArray[np.float16]] = []
    batch: list[torch.Tensor] = []

    def flush() -> None:
        if batch:
            with torch.inference_mode():
                rows.append(model.encode(torch.stack(batch)).float().cpu().numpy().astype(np.float16))
            batch.clear()

    for pixels, error in _decoded(list(part["media"]), root, model, batch_size):
        errors.append(error)
        if pixels is not None:
            batch.append(pixels)
        if len(batch) == batch_size:
            flush()
        advance(1)
    flush()
    empty = np.zeros((0, model.dim), dtype=np.float16)
    return (np.concatenate(rows) if rows else empty), errors


def _decoded(
    media: list[str | None], root: Path, model: Any, batch_size: int
) -> Iterator[tuple[torch.Tensor | None, str | None]]:
    with ThreadPoolExecutor(DECODERS) as pool:
        ahead = 4 * batch_size
        pending = [pool.submit(_load, m, root, model) for m in media[:ahead]]
        for number in range(len(media)):
            yield pending[number].result()
            pending[number] = None  # type: ignore[call-overload]
            if number + ahead < len(media):
                pending.append(pool.submit(_load, media[number + ahead], root, model))


def _load(media: str | None, root: Path, model: Any) -> tuple[torch.Tensor | None, str | None]:
    """Decodes and preprocesses one image, or says why not."""
    if media is None:
        return None, "NoMedia: the item names no file"
    try:
        path = (root / media).resolve()
        if not path.is_relative_to(root):
            return None, f"OutsideMediaRoot: {media} leads out of the media root"
        with Image.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                return None, f"TooLarge: {image.width} x {image.height} pixels, at most {MAX_PIXELS}"
            image.load()
            return model.preprocess(image), None
    except FileNotFoundError:
        return None, f"FileNotFound: {media}"
    except MemoryError:
        raise
    except Exception as error:  # a damaged file can make a decoder raise anything; it never stops the others
        return None, f"{type(error).__name__}: {media}: {error}"


def _shard_index(part: pd.DataFrame, shard: int, errors: npt.NDArray[np.object_]) -> pd.DataFrame:
    good = np.array([error is None for error in errors])
    return pd.DataFrame(
        {
            "item_id": part["item_id"].to_list(),
            "shard": np.int32(shard),
            "first_row": np.where(good, np.cumsum(good) - 1, 0),
            "n_rows": good.astype(np.int32),
            "status": np.where(good, "ok", "failed"),
            "error": errors,
        }
    )
