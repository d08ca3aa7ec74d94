"""Export of a data set: a folder that the library `datasets` loads, and that `ccr data import` reads again.

`data/SPLIT-*.parquet` has a row per caption, with its picture as the library stores pictures (`bytes` and `path`, and
`Image` in the schema), its translations and the verdicts of diagnoses. Captions of one item share its stored picture.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ccr_cli.artifacts import base, dataset, diagnosis, translation
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.console import counted, warn
from ccr_cli.errors import UsageError
from ccr_cli.stages.diagnose.suspects import judged_pairs
from ccr_cli.stages.export.model_card import render, translators
from ccr_cli.stages.export.options import ExportOptions
from ccr_cli.stages.shared.inputs import Inputs, latest, made_from, require_parent
from ccr_cli.stages.shared.load_run import translations_of

SPLITS = {"train": "train", "val": "validation", "test": "test"}
"""Names of the splits in files, as the library knows them."""
SHARD_BYTES, GROUP_ROWS = 500 << 20, 100
"""Approximate bytes of pictures per file, and rows written at once."""
_VERDICTS = {
    "verdict": "clean, noisy or not judged",
    "p_clean": "P(match) of picture, or of caption without a model, and translation",
    "place": "rank by suspicion, 1 the most suspicious",
    "flags": "what is plainly wrong with the translation",
}
"""Columns of a diagnosis and what they hold; the language is appended to each name, such as `verdict_es`."""
_COLUMNS = {
    "image": "the item's picture",
    "item_id": "the item, which several captions may share",
    "caption_id": "the caption",
    "caption": "its text",
    "lang": "the caption's language",
    "caption_set": "its kind, if there are several",
    "label": "the item's category",
    "mt": "the caption, machine-translated",
    **_VERDICTS,
}
_DTYPES = {pa.string(): "string", pa.int64(): "int64", pa.int32(): "int32", pa.float32(): "float32"}
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_LICENCE = re.compile(r"cc0-1\.0|cc-by(-nc)?(-sa|-nd)?-\d\.\d|mit|apache-2\.0|bsd-[23]-clause")
"""Licences whose usual name is also the hub's, except for case and spaces."""


def export_dataset(inputs: Inputs, options: ExportOptions) -> base.Artifact:
    """Exports a data set, with the named diagnoses, and one translation into each language.

    The translations are the named ones and those that were diagnosed, or else all in the workspace.

    Raises:
        ArtifactError: If several translations into a language fit, or the artifacts are of different data sets.
        UsageError: If the captions are features, two diagnoses judge one language, or one judges none of the texts.
    """
    workspace = inputs.workspace
    judged = inputs.of_kind("diagnosis")
    named = inputs.of_kind("translation")
    homes = inputs.of_kind("dataset")
    for made in judged:
        if diagnosis.of_run(made):
            trained = workspace.parent(made, "run")
            named += [a for each in translations_of(workspace, trained)[0].values() for a in each]
            homes.append(workspace.parent(trained, "dataset"))
        else:
            named.append(workspace.parent(made, "translation"))  # the first is the judged one
    homes += [workspace.parent(a, "dataset") for a in named]
    data = Inputs(workspace, [*{a.id: a for a in homes}.values()]).one("dataset", "")
    if (data.path / dataset.TEXTS).is_file():
        raise UsageError(f"the captions of {data.name} are features", hint="name a data set of texts")
    fitting = latest(
        [*{a.id: a for a in named or workspace.artifacts("translation") if named or made_from(data)(a)}.values()]
    )
    chosen = []
    for lang in sorted({translation.language(a) for a in fitting}):
        of_lang = [a for a in fitting if translation.language(a) == lang]
        chosen.append(Inputs(workspace, of_lang).one("translation", f"into {lang}"))
        require_parent(chosen[-1], data)
    parents = [data, *chosen, *judged]
    inputs.note(*parents)

    def write(site: Build) -> dict[str, int]:
        site.clear()
        return _write(site.folder, inputs, data, chosen, judged)

    name = options.name or (f"{data.name}-verdicts" if judged else data.name)
    return build_artifact(workspace, "export", name, {"form": "datasets"}, parents, write=write, force=options.force)


def _write(
    folder: Path,
    inputs: Inputs,
    data: base.Artifact,
    translations: Sequence[base.Artifact],
    diagnoses: Sequence[base.Artifact],
) -> dict[str, int]:
    content = dataset.read(data)
    items = content.items[["item_id", "split", "kind", "label"]]
    captions = content.captions[["caption_id", "item_id", "text", "lang", "caption_set"]]
    rows = items.merge(captions.rename(columns={"text": "caption"}), on="item_id")
    texts: dict[str, pd.Series] = {content.source_lang: rows["caption"].where(rows["lang"] == content.source_lang)}
    for made in translations:
        frame = translation.translated(translation.read(made)).drop_duplicates("source_caption_id")
        lang = translation.language(made)
        texts[lang] = rows[f"mt_{lang}"] = rows["caption_id"].map(frame.set_index("source_caption_id")["text"])
    for made in diagnoses:
        rows = _with_verdicts(rows, inputs, made, texts)
    names: Sequence[str] = content.manifest.get("labels") or ()
    find = dataset.image_finder(data)
    pictures = {item: find(item) for item in items.loc[items["kind"] == "image", "item_id"]}
    schema, there = _schema(rows, names), {item: path for item, path in pictures.items() if path}
    if missing := len(items) - len(there):
        warn(f"{counted(missing, 'item')} of {len(items):,} without a picture, in the folder as captions alone")
    (folder / "data").mkdir()
    splits = {}
    for split, file_name in SPLITS.items():
        part = rows[rows["split"] == split]
        if len(part):
            _write_split(folder / "data", file_name, part, schema, there)
            splits[file_name] = {"items": part["item_id"].nunique(), "captions": len(part)}
    licence = str(content.manifest.get("licence", "")).lower().replace(" ", "-")
    text = render(
        "dataset_card.md.j2",
        languages=[*dict.fromkeys([content.source_lang, *rows["lang"], *texts])],
        manifest=content.manifest,
        name=data.name,
        id=data.id[:16],
        splits=splits,
        columns=[(n, _COLUMNS.get(n) or _COLUMNS.get(n.rpartition("_")[0], "")) for n in schema.names],
        licence=licence if _LICENCE.fullmatch(licence) else "",
        pictures=len(there),
        translations=[entry for made in translations for entry in translators(inputs.workspace, made)],
        verdicts=[(diagnosis.judge(s), s["pairs"], s["called_noisy"]) for s in map(diagnosis.summary, diagnoses)],
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
    return {"captions": len(rows), "pictures": len(there), "translations": len(translations)}


def _with_verdicts(
    rows: pd.DataFrame, inputs: Inputs, made: base.Artifact, texts: dict[str, pd.Series]
) -> pd.DataFrame:
    """Adds the verdicts of a diagnosis to rows with exactly its texts; pairs switched by synthetic noise get none."""
    pairs, _ = judged_pairs(inputs.workspace, made)
    pairs = pairs[pairs["slot_id"] == pairs["source_caption_id"]]
    used = 0
    for lang in sorted(pairs["lang"].unique()):
        if lang not in texts:
            continue
        keys = pd.MultiIndex.from_arrays([rows["caption_id"], texts[lang]])
        part = pairs[pairs["lang"] == lang].drop_duplicates(["slot_id", "translation"])
        part = part.set_index(["slot_id", "translation"])[[*_VERDICTS]].reindex(keys)
        used += int(part["verdict"].notna().sum())
        for name in _VERDICTS:
            if f"{name}_{lang}" in rows:
                raise UsageError(f"several diagnoses judge the pairs in {lang}", hint=f"leave {made.name} out")
            rows = rows.assign(**{f"{name}_{lang}": part[name].to_numpy()})
    if not used:
        raise UsageError(f"{made.name} judges none of these texts", hint="name a diagnosis of these translations")
    return rows


def _schema(rows: pd.DataFrame, labels: Sequence[str]) -> pa.Schema:
    """Returns the schema of the files, with the types by which the library `datasets` knows the columns."""
    unused = {"split", "kind", *(["label"] if rows["label"].isna().all() else [])}
    kinds = {"image": _IMAGE, "label": pa.int64(), "p_clean": pa.float32(), "place": pa.int32()}
    names = ["image", *(str(name) for name in rows if name not in unused)]
    types = {name: kinds.get(name, kinds.get(name.rpartition("_")[0], pa.string())) for name in names}
    values = {kind: {"dtype": dtype, "_type": "Value"} for kind, dtype in _DTYPES.items()}
    features: dict[str, Any] = {name: values.get(kind, {"_type": "Image"}) for name, kind in types.items()}
    if labels and "label" in types:
        features["label"] = {"names": list(labels), "_type": "ClassLabel"}
    about = base.canonical_json({"info": {"features": features}})
    return pa.schema(list(types.items()), {"huggingface": about})


def _write_split(folder: Path, name: str, rows: pd.DataFrame, schema: pa.Schema, pictures: dict[str, Path]) -> None:
    size = sum(pictures[item].stat().st_size for item in rows["item_id"].unique() if item in pictures)
    shards = max(1, math.ceil(size / SHARD_BYTES))
    for number, places in enumerate(np.array_split(np.arange(len(rows)), shards)):
        path = folder / f"{name}-{number:05}-of-{shards:05}.parquet"
        with pq.ParquetWriter(path, schema, compression="zstd", dictionary_pagesize_limit=1 << 30) as writer:
            for first in range(0, len(places), GROUP_ROWS):
                part = rows.iloc[places[first : first + GROUP_ROWS]]
                images = [p and {"bytes": p.read_bytes(), "path": p.name} for p in map(pictures.get, part["item_id"])]
                arrays = [pa.array(part[f.name], f.type, from_pandas=True) for f in list(schema)[1:]]
                writer.write_table(pa.Table.from_arrays([pa.array(images, _IMAGE), *arrays], schema=schema))
