"""Flickr8k-CN as artifacts: two query languages, every engine, given and simulated features.

`flickr8k-zh` has Baidu's and Google's Chinese of two dates, and captions written in Chinese. `flickr8k-fr` has
Apertium's translations of the English captions in one and in two round trips, and one French caption (Multi30K's) for
934 of the 1,000 validation photographs; the others are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import filelock
import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli import registry
from ccr_cli.artifacts import base, features
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.console import progress
from ccr_cli.data.tsv import write_tsv_line
from ccr_cli.stages.data.folder import import_folder
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.sources import Sources, find_sources, with_noise
from ccr_cli.stages.translate.options import TranslateOptions
from ccr_cli.stages.translate.stage import translate
from robustness.grid import CHINESE, FRENCH, SECOND, Cell, language

Array = npt.NDArray[np.float32]

SIMULATED_NOISE = 2.0
"""Length of the noise beside that of a mean of unit vectors, before both become one vector."""
SIMULATED_SEED = 0
_CHUNK = 4096


@dataclass(frozen=True)
class Collection:
    """The collection in a workspace; what is not there yet is made when it is asked for."""

    workspace: Workspace
    source: Path
    """Folder with items.csv, captions.parquet and efficientnet_lite0_fp16.npy."""
    sentences: Path | None = None
    """Folder of a transformers sentence encoder, for the simulated features."""

    def sources(self, cell: Cell) -> Sources:
        """What a cell is trained from. One process at a time makes what is missing."""
        self.workspace.root.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(self.workspace.root / "sources.lock"):
            lang = language(cell.translations)
            data = self._data(lang if cell.regime == "given" else f"{lang}-mt")
            engines = [cell.translations]
            if cell.config["judge"] == "translation" and lang == "zh":
                engines.append(SECOND[cell.translations])
            translated = [self._translated(data, lang, engine) for engine in engines]
            inputs = Inputs(self.workspace, [data, *translated, self._features(data, cell.regime)])
            sources = find_sources(inputs, lang, compare=True)
            if not cell.noise:
                return sources
            mismatch = TrainingOptions(
                noise=cell.noise, noise_style=cell.style, noise_target=cell.target, noise_seed=cell.seed
            )
            return with_noise(inputs, sources, mismatch)

    def _translated(self, data: base.Artifact, lang: str, engine: str) -> base.Artifact:
        known = lang == "fr"  # Apertium's way back, and of the queries into English
        inputs, options = Inputs(self.workspace, [data]), {"engine": engine}
        return translate(inputs, TranslateOptions(lang, engine="recorded", settings=options, back=known, queries=known))

    def _data(self, name: str) -> base.Artifact:
        folder = self.workspace.root / "import" / name
        if not (folder / "manifest.toml").is_file():
            (folder / "translations").mkdir(parents=True, exist_ok=True)
            if name == "fr":
                self._french(folder)
            else:
                self._chinese(folder, f"mt:{CHINESE[0]}" if name == "zh-mt" else "human")
            # last, since it says that the folder is complete
            text = f'name = "flickr8k-{name}"\nsource_lang = "en"\nquery_langs = ["{name[:2]}"]\n'
            (folder / "manifest.toml").write_text(text, encoding="utf-8")
        return import_folder(self.workspace, str(folder))

    def _read(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        items = pd.read_csv(self.source / "items.csv", dtype=str)
        return items[items["split"] != "test"], pd.read_parquet(self.source / "captions.parquet")

    def _chinese(self, folder: Path, source: str) -> None:
        items, captions = self._read()
        english = captions[captions["lang"] == "en"]
        queries = captions[(captions["lang"] == "zh") & (captions["source"] == source) & (captions["split"] == "val")]
        _write_collection(folder, items, [english, queries])
        for engine in CHINESE:
            made = captions[captions["source"] == f"mt:{engine}"]
            pairs = english.merge(made, on=["item_id", "k"], suffixes=("", "_mt"))
            _write_pairs(folder, engine, "en", "zh", dict(zip(pairs["text"], pairs["text_mt"], strict=True)))

    def _french(self, folder: Path) -> None:
        items, captions = self._read()
        human = captions[captions["source"] == "human"]
        written = human[human["lang"] == "fr"]
        items = items[(items["split"] == "train") | items["item_id"].isin(written["item_id"])]
        english = human[(human["lang"] == "en") & human["item_id"].isin(items["item_id"])]
        _write_collection(folder, items, [english, written])
        french, texts = list(dict.fromkeys(written["text"])), list(dict.fromkeys(english["text"]))
        queries = dict(zip(french, apertium("fr", "en", french), strict=True))
        source = {text: text for text in texts}
        """What stands in the place of each caption when it is translated."""
        for engine in FRENCH:
            forward = _chain(source, "en", "fr")
            back = _chain(forward, "fr", "en")
            _write_pairs(folder, engine, "en", "fr", forward)
            _write_pairs(folder, engine, "fr", "en", queries | {forward[text]: back[text] for text in back})
            source = back

    def _features(self, data: base.Artifact, regime: str) -> base.Artifact:
        if regime == "given":
            vectors = np.load(self.source / "efficientnet_lite0_fp16.npy", allow_pickle=False)
            items = pd.read_csv(self.source / "items.csv", dtype=str)["item_id"]
            return self._write_features(data, "efficientnet-lite0", list(items), vectors, {"image_size": 224})
        if self.sentences is None:
            raise SystemExit("simulated features need --sentences, the folder of a sentence encoder")
        cache = self.workspace.root / "sentences.npy"
        _, captions = self._read()
        english = captions[captions["lang"] == "en"].reset_index(drop=True)
        if not cache.is_file():
            np.save(cache, embed_sentences(self.sentences, list(english["text"])))
        ids, vectors = simulate(list(english["item_id"]), np.load(cache), SIMULATED_NOISE, SIMULATED_SEED)
        facts = {"noise": SIMULATED_NOISE, "seed": SIMULATED_SEED}
        return self._write_features(data, "simulated", ids, vectors.astype(np.float16), facts)

    def _write_features(
        self,
        data: base.Artifact,
        name: str,
        item_ids: list[str],
        vectors: npt.NDArray[np.float16],
        facts: dict[str, float],
    ) -> base.Artifact:
        def write(site: Build) -> dict[str, int]:
            size = features.SHARD_ITEMS
            for shard in range(-(-len(item_ids) // size)):
                np.save(site.folder / features.shard_name(shard), vectors[shard * size : (shard + 1) * size])
            rows = np.arange(len(item_ids))
            index = pd.DataFrame({"item_id": item_ids, "shard": (rows // size).astype(np.int32)})
            index = index.assign(first_row=rows % size, n_rows=np.int32(1), status="ok")
            index["error"] = pd.array([None] * len(rows), dtype=object)
            write_table(site.folder / "index.parquet", index, features.INDEX)
            base.write_json(site.folder / "encoder.json", {"model": name, **facts})
            return {"items": len(item_ids), "failed": 0}

        return build_artifact(self.workspace, "features", name, {"encoder": name, **facts}, [data], write=write)


def apertium(source: str, target: str, texts: list[str]) -> list[str | None]:
    """Translates texts; None where the engine fails."""
    module = registry.load("translators", "apertium")
    engine = module.Translator(source, target, module.Config(), dataset_dir=None, device="cpu")
    out: list[str | None] = []
    with progress(len(texts), f"apertium {source} -> {target}", "captions") as advance:
        for first in range(0, len(texts), _CHUNK):
            part = texts[first : first + _CHUNK]
            made = dict(engine.translate(part))
            out += [made[position].text for position in range(len(part))]
            advance(len(part))
    return out


def _chain(text_of: dict[str, str], source: str, target: str) -> dict[str, str]:
    """Translates what stands for each caption; captions on which the engine fails are left out."""
    texts = list(dict.fromkeys(text_of.values()))
    made = dict(zip(texts, apertium(source, target, texts), strict=True))
    return {caption: new for caption, text in text_of.items() if (new := made[text])}


def embed_sentences(folder: Path, texts: list[str]) -> Array:
    """Unit vectors of sentences: the mean of a transformers encoder's last hidden states."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    order = np.argsort([len(text) for text in texts], kind="stable")
    out = np.empty((len(texts), model.config.hidden_size), dtype=np.float32)
    with torch.inference_mode(), progress(len(texts), "embed", "captions") as advance:
        for rows in np.array_split(order, max(1, len(order) // 256)):
            given = tokenizer([texts[row] for row in rows], padding=True, truncation=True, return_tensors="pt")
            hidden_BLD = model(**given).last_hidden_state
            mask_BL1 = given["attention_mask"][..., None].float()
            mean_BD = (hidden_BLD * mask_BL1).sum(1) / mask_BL1.sum(1)
            out[rows] = torch.nn.functional.normalize(mean_BD, dim=1).numpy()
            advance(len(rows))
    return out


def simulate(item_ids: list[str], sentence_ND: Array, noise: float, seed: int) -> tuple[list[str], Array]:
    """A visual feature out of captions: their mean, and Gaussian noise of `noise` times its length.

    Args:
        item_ids: Item of each caption (N).
        sentence_ND: Unit vectors of the captions.
        noise: Expected length of the noise beside the mean's, which is 1.
        seed: Of the noise.

    Returns:
        Items in the order in which they come, and their features (V, D).
    """
    codes, ids = pd.factorize(np.asarray(item_ids, dtype=object))
    mean_VD = np.zeros((len(ids), sentence_ND.shape[1]))
    np.add.at(mean_VD, codes, sentence_ND)
    mean_VD /= np.linalg.norm(mean_VD, axis=1, keepdims=True)
    drawn_VD = np.random.default_rng(seed).standard_normal(mean_VD.shape) / np.sqrt(mean_VD.shape[1])
    return [str(i) for i in ids], (mean_VD + noise * drawn_VD).astype(np.float32)


def _write_collection(folder: Path, items: pd.DataFrame, captions: list[pd.DataFrame]) -> None:
    rows = ((i, split, "features", "", "", i) for i, split in zip(items["item_id"], items["split"], strict=True))
    _write(folder / "items.tsv", ("item_id", "split", "kind", "media", "label", "group"), rows)
    columns = ("caption_id", "item_id", "lang", "k", "text", "caption_set")
    _write(folder / "captions.tsv", columns, _caption_rows(pd.concat(captions)))


def _caption_rows(captions: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    for row in captions.to_dict("records"):
        made_by = row["source"].removeprefix("mt:")
        caption_id = f"{row['item_id']}#{row['lang']}#{row['k']}" + ("" if made_by == "human" else f"#{made_by}")
        yield caption_id, row["item_id"], row["lang"], str(row["k"]), row["text"], made_by


def _write_pairs(folder: Path, engine: str, source: str, target: str, pairs: Mapping[str, str | None]) -> None:
    known = ((text, made) for text, made in pairs.items() if made)
    _write(folder / "translations" / f"{engine}-{source}-{target}.tsv", ("source", "target"), known)


def _write(path: Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as handle:
        handle.writelines(write_tsv_line(row) for row in (header, *rows))
