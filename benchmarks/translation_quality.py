"""Measure the quality of machine translations of real captions: BLEU and chrF against human captions, and flags.

Multi30K, task 1: Apertium's French of a split, through Catalan and through Spanish, against human translations of the
same captions. Flickr8k-CN: translations of the validation captions by two commercial engines at two dates, against five
independent Chinese captions of each photograph; and Apertium's Spanish of the training captions, without references.
The collections are not part of this project.

    python benchmarks/translation_quality.py WORKSPACE --multi30k DIR --flickr8k DIR [--split test] [--out FILE]

DIR of Multi30K has `task1/`; that of Flickr8k-CN `items.csv` and `captions.parquet`. Both become data sets of the
workspace, for further commands. Results are printed; `--out` writes them to a file, replacing rows of the same data,
split, language and models.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

import ccr_cli
from ccr_cli.artifacts import base, translation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.tsv import write_tsv_line
from ccr_cli.stages.data.folder import import_folder
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.translate.options import TranslateOptions
from ccr_cli.stages.translate.stage import translate

MULTI30K = {"train": "train", "val": "val", "test": "test_2016_flickr"}
LANGS = ("en", "de", "fr", "cs")
MODES = ("eng-cat,cat-fra", "eng-spa,es-fr")
ENGINES = ("baidu-2016", "baidu-20160815", "google-2016", "google-20160816")
ITEM = ("item_id", "split", "kind", "media", "label", "group")
CAPTION = ("caption_id", "item_id", "lang", "k", "text", "caption_set")


def write(path: Path, lines: Iterable[Iterable[str]]) -> None:
    """A table of the dataset format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(write_tsv_line(list(line)) for line in lines), encoding="utf-8", newline="")


def multi30k(source: Path, folder: Path) -> None:
    """Task 1 in the dataset format: a caption of each photograph, and its translations."""
    items, captions = [ITEM], [CAPTION]
    for split, stem in MULTI30K.items():
        names = (source / "task1" / "image_splits" / f"{stem}.txt").read_text(encoding="utf-8").split()
        ids = [name.removesuffix(".jpg") for name in names]
        items += [(each, split, "image", "", "", each) for each in ids]
        for lang in LANGS:
            packed = (source / "task1" / "raw" / f"{stem}.{lang}.gz").read_bytes()
            lines = gzip.decompress(packed).decode("utf-8").removesuffix("\n").split("\n")
            rows = zip(ids, lines, strict=True)
            captions += [(f"{each}#{lang}", each, lang, "0", text, "task1") for each, text in rows]
    write(folder / "items.tsv", items)
    write(folder / "captions.tsv", captions)
    manifest = 'name = "multi30k"\nsource_lang = "en"\n\n[parallel]\ntask1 = "task1"\n'
    (folder / "manifest.toml").write_text(manifest, encoding="utf-8")


def flickr8k(source: Path, folder: Path) -> None:
    """English and Chinese captions in the dataset format, and a table of translations for each engine."""
    items = pd.read_csv(source / "items.csv", dtype=str).query("split != 'test'")
    captions = pd.read_parquet(source / "captions.parquet")
    human = captions[(captions["source"] == "human") & captions["lang"].isin(["en", "zh"])]
    lines = ((i, split, "image", "", "", i) for i, split in zip(items["item_id"], items["split"], strict=True))
    write(folder / "items.tsv", [ITEM, *lines])
    columns = (human[name].astype(str) for name in ("item_id", "lang", "k", "text"))
    rows = zip(*columns, strict=True)
    write(folder / "captions.tsv", [CAPTION, *((f"{i}#{lang}#{k}", i, lang, k, text, "") for i, lang, k, text in rows)])
    english = human[human["lang"] == "en"]
    for engine in ENGINES:
        made = captions[captions["source"] == f"mt:{engine}"]
        pairs = english.merge(made, on=["item_id", "k"], suffixes=("", "_mt"))
        table = dict(zip(pairs["text"].str.strip(), pairs["text_mt"], strict=True))
        write(folder / "translations" / f"{engine}-en-zh.tsv", [("source", "target"), *table.items()])
    (folder / "manifest.toml").write_text('name = "flickr8k"\nsource_lang = "en"\n', encoding="utf-8")


def row(made: base.Artifact, data: str, split: str) -> dict[str, Any]:
    """What is known of a split's translations."""
    found = translation.quality(made)["forward"]
    models = sorted({*translation.read(made)["model"]})
    about = {"data": data, "split": split, "lang": found["lang"], "engine": made.request["engine"], "models": models}
    return {**about, **found["splits"][split], "lengths": found["lengths"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--multi30k", type=Path)
    parser.add_argument("--flickr8k", type=Path)
    parser.add_argument("--split", choices=MULTI30K, default="test", help="of Multi30K")
    parser.add_argument("--out", type=Path, help="file of results; by default none")
    options = parser.parse_args()
    workspace = Workspace(options.workspace.absolute())
    rows = []
    if options.multi30k:
        multi30k(options.multi30k, workspace.root / "import" / "multi30k")
        inputs = Inputs(workspace, [import_folder(workspace, str(workspace.root / "import" / "multi30k"))])
        for modes in MODES:
            wanted = TranslateOptions("fr", engine="apertium", settings={"modes": modes}, split=options.split)
            rows.append(row(translate(inputs, wanted), "multi30k", options.split))
    if options.flickr8k:
        flickr8k(options.flickr8k, workspace.root / "import" / "flickr8k")
        inputs = Inputs(workspace, [import_folder(workspace, str(workspace.root / "import" / "flickr8k"))])
        for engine in ENGINES:
            wanted = TranslateOptions("zh", engine="recorded", settings={"engine": engine}, split="val")
            rows.append(row(translate(inputs, wanted), "flickr8k", "val"))
        rows.append(
            row(translate(inputs, TranslateOptions("es", engine="apertium", split="train")), "flickr8k", "train")
        )
    what = "Machine translations of real captions: flags, and scores against human references with their signatures"
    found = {"what": what, "ccr": ccr_cli.__version__, "rows": rows}
    print(json.dumps(found, indent=1, ensure_ascii=False))
    if options.out:
        keys = ("data", "split", "lang", "models")
        earlier = base.read_json(options.out)["rows"] if options.out.exists() else []
        kept = [old for old in earlier if not any(all(old[key] == new[key] for key in keys) for new in rows)]
        base.write_json(options.out, found | {"rows": [*kept, *rows]})


if __name__ == "__main__":
    main()
