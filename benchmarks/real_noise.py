"""Rank machine translations by suspicion, without synthetic noise, and measure precision against a human reader.

Runs trained on the original translations judge those of the validation captions, which they never saw. The first
hundred of their rankings, of rankings that need no training, and a hundred at random are exported as one shuffled list
without scores. A reader fills in verdicts by the criteria below; they give the precision of every ranking.

    python benchmarks/real_noise.py --methods uml --translations baidu-2016 --data FOLDER/flickr8kcn --workspace W
    (fill in verdict and reason in W/reading-baidu-2016.tsv)
    python benchmarks/real_noise.py --take W/reading-baidu-2016.tsv
    python benchmarks/real_noise.py                                  (the tables)

Captions that were read before are not listed again; their verdicts count for new rankings too.

A translation is *bad* if a reader of the translation alone would picture something that the English does not say, or
nothing at all, and *ok* otherwise, however awkward. A bad one has one reason:

    thing    another person, animal or object than the English names
    action   another action, state or direction
    relation who does what to whom, or where, is reversed
    number   another number of things
    missing  the topic of the caption was left out
    foreign  the topic of the caption was left untranslated
    garbled  no meaning can be made of it
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from robustness import code, grid, tables
from robustness.collection import Collection

from ccr_cli.artifacts import base, dataset, translation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.seeds import derive
from ccr_cli.judges.base import load_judge
from ccr_cli.metrics.mtscores import sentence_chrf
from ccr_cli.stages.shared import judging
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.triplets import Triplets, training_triplets
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.stage import train_on

CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = CHECKOUT / "benchmarks" / "results" / "real_noise"
TOP = 100
DEPTHS = (25, 50, 100)
RANDOM = "random"
REASONS = ("thing", "action", "relation", "number", "missing", "foreign", "garbled")
SHOWN = {
    "similarity": "similarity of English and translation, first run",
    "picture": "similarity of picture and translation, first run",
    "loss": "the latter less the similarity of picture and English",
    "engine": "chrF against the other engine's translation",
    "engine and similarity": "places by that chrF and by the similarity of English and translation, added",
    "round-trip": "chrF of the way back against the English",
    "length": "length of the English",
    RANDOM: "random",
}
CPU = torch.device("cpu")
Places = npt.NDArray[np.int64]


def validation_triplets(collection: Collection, cell: grid.Cell, needs: frozenset[str]) -> Triplets:
    """The validation captions as if they were to be trained on, with the other engine's translations."""
    sources = collection.sources(replace(cell, options=(("judge", "translation"),)))  # which has a second engine
    data = dataset.read(sources.data)
    items = data.items[data.items["split"] == "val"].assign(split="train")
    second = translation.read(sources.second) if sources.second else None
    seen = replace(data, items=items, captions=data.captions[data.captions["item_id"].isin(set(items["item_id"]))])
    return training_triplets(seen, sources.translations(), None, sources.features, needs, second)


def rankings(
    collection: Collection, cells: Sequence[grid.Cell], side: str | None
) -> tuple[Triplets, dict[str, Places]]:
    """Trains the cells, unless they are there, and ranks the validation captions; place 1 is the most suspicious."""
    inputs = Inputs(collection.workspace)
    ranks: dict[str, Places] = {}
    for cell in cells:
        options = TrainingOptions(
            method=cell.method, settings=dict(cell.options), seed=cell.seed, device="cpu", name=f"real-{cell.name}"
        )
        trained = train_on(inputs, collection.sources(cell), options)
        method, tokenizer = load_method(trained, CPU)
        triplets = validation_triplets(collection, cell, method.config.needs())
        own = load_judge(method.config.judge)
        embedded = judging.embed_triplets(method, triplets, tokenizer, CPU)
        opinion = judging.judge_triplets(
            own if own.speaks == "epoch" else load_judge("two-group"),
            side or method.config.judge_side,
            embedded,
            triplets,
            seed=derive(cell.seed, "real"),
            batch_size=method.config.batch_size,
            scores=method.judge_scores,
        )
        # what is asked is whether the translation is right, not whether the picture shows it
        ranks[f"suspicion of {cell.label}"] = places(opinion.p.ST, embedded.similarities()["ST"])
        if cell == cells[0]:
            near = embedded.similarities()
            ranks |= {name: places(near[side]) for name, side in (("similarity", "ST"), ("picture", "VT"))}
            ranks["loss"] = places(near["VT"] - near["VS"])
    if all(triplets.references):
        ranks["engine"] = places(sentence_chrf(triplets.target, triplets.references))
        ranks["engine and similarity"] = places((ranks["similarity"] + ranks["engine"]).astype(float))
    if triplets.back is not None:
        ranks["round-trip"] = places(sentence_chrf(triplets.back, [[text] for text in triplets.source]))
    ranks["length"] = places(-np.array([len(text) for text in triplets.source], dtype=float))
    ranks[RANDOM] = np.random.default_rng(derive(0, "random")).permutation(len(triplets)) + 1
    return triplets, ranks


def places(*keys: npt.NDArray[np.float64]) -> Places:
    """Places from 1 in ascending order of the first key, then of the next; equal ones as they come."""
    order = np.lexsort(keys[::-1])
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(1, len(order) + 1)
    return place


def export(triplets: Triplets, ranks: Mapping[str, Places], blind: Path, results: Path) -> int:
    """Writes the list for the reader, without what was read before, and the places, which the reader does not see."""
    name = blind.name.removeprefix("reading-")
    earlier = results / f"reading-{name}"
    known = set(_read(earlier)["caption_id"]) if earlier.exists() else set()
    ids = np.array(triplets.slot_ids)
    top = np.min(np.stack(list(ranks.values())), axis=0) <= TOP
    frame = pd.DataFrame(
        {"caption_id": ids, "english": triplets.source, "translation": triplets.target, "verdict": "", "reason": ""}
    )[top & ~np.isin(ids, list(known))]
    _write(blind, frame.sample(frac=1, random_state=0))
    shown = top | np.isin(ids, list(known))
    results.mkdir(parents=True, exist_ok=True)
    _write(
        results / f"ranks-{name}", pd.DataFrame({"caption_id": ids[shown], **{k: v[shown] for k, v in ranks.items()}})
    )
    return len(frame)


def take(filled: Path, results: Path) -> None:
    """Adds the verdicts of a filled list to those that are there, without the texts, by place in the first ranking.

    Raises:
        SystemExit: If a verdict is missing or a reason is not one.
    """
    read = _read(filled)
    wrong = ~read["verdict"].isin(["bad", "ok"]) | ((read["verdict"] == "bad") & ~read["reason"].isin(REASONS))
    if wrong.any():
        lines = ", ".join(str(line) for line in read[wrong].index + 2)
        raise SystemExit(f"{filled}: a verdict or a reason is missing, or none that is known, in lines {lines}")
    name = filled.name.removeprefix("reading-")
    ranks = _read(results / f"ranks-{name}").set_index("caption_id")
    first = ranks.columns[0]  # of the first method
    path = results / f"reading-{name}"
    earlier = [_read(path)] if path.exists() else []
    kept = pd.concat([*earlier, read])[["caption_id", "verdict", "reason"]].drop_duplicates("caption_id", keep="last")
    kept = kept.assign(rank=ranks.loc[kept["caption_id"], first].to_numpy(int))
    _write(path, kept.sort_values("rank")[["caption_id", "rank", "verdict", "reason"]])


def score(ranks: pd.DataFrame, reading: pd.DataFrame) -> list[dict[str, Any]]:
    """Precision of every ranking among its first 25, 50 and 100, with the 95 % interval of the last.

    Args:
        ranks: caption_id and the place of each caption in every ranking.
        reading: caption_id and verdict.
    """
    bad = set(reading.loc[reading["verdict"] == "bad", "caption_id"])
    out = []
    for name in (column for column in ranks.columns if column != "caption_id"):
        ordered = ranks.assign(place=ranks[name].astype(int)).sort_values("place")
        hits = [caption in bad for caption in ordered["caption_id"][:TOP]]
        low, high = wilson(sum(hits), len(hits))
        precision = {f"precision@{depth}": sum(hits[:depth]) / depth for depth in DEPTHS}
        out.append({"ranking": name, **precision, "low": low, "high": high})
    return out


def wilson(hits: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's interval of a share."""
    middle = (hits + z * z / 2) / (n + z * z)
    half = z * math.sqrt(hits * (n - hits) / n + z * z / 4) / (n + z * z)
    return max(0.0, middle - half), min(1.0, middle + half)


def block(results: Path) -> str:
    """A table for each reading that there is."""
    parts = []
    for path in sorted(results.glob("reading-*.tsv")):
        name = path.name.removeprefix("reading-")
        reading, facts = _read(path), json.loads((results / f"{Path(name).stem}.json").read_text("utf-8"))
        lines = [
            [
                SHOWN.get(each["ranking"], each["ranking"]),
                *(f"{each[f'precision@{depth}']:.2f}" for depth in DEPTHS),
                f"{each['low']:.2f} to {each['high']:.2f}",
            ]
            for each in score(_read(results / f"ranks-{name}"), reading)
        ]
        bad = int((reading["verdict"] == "bad").sum())
        title = (
            f"**{tables.NAMES[facts['translations']]}**: {facts['captions']:,} captions, {len(reading)} read, {bad} bad"
        )
        counts = reading.loc[reading["verdict"] == "bad", "reason"].value_counts()
        reasons = ", ".join(f"{reason} {n}" for reason, n in counts.items())
        header = ["ranking", *(f"precision at {d}" for d in DEPTHS), f"95 % interval at {TOP}"]
        parts.append(f"{title}\n\n{tables.markdown(header, lines)}\n\nReasons: {reasons}.")
    return "\n\n".join(parts) or "Not measured yet."


def _write(path: Path, frame: pd.DataFrame) -> None:
    frame.to_csv(path, sep="\t", index=False, quoting=csv.QUOTE_NONE, escapechar="\\", lineterminator="\n")


def _read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, sep="\t", dtype=str, quoting=csv.QUOTE_NONE, escapechar="\\", keep_default_na=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["uml"], choices=grid.methods(), metavar="LABEL")
    parser.add_argument("--judge-side", choices=["cross_lingual", "cross_modal", "both"], help="by default a method's")
    parser.add_argument("--translations", choices=(*grid.CHINESE, *grid.FRENCH), default=grid.CHINESE[0])
    parser.add_argument("--data", type=Path, help="folder of the collection")
    parser.add_argument("--workspace", type=Path, help="where artifacts and the list go; not into the checkout")
    parser.add_argument("--take", type=Path, metavar="FILE", help="a list that a reader has filled")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.take:
        take(options.take, options.results)
    if options.data is None or options.workspace is None:
        print(block(options.results))
        return
    workspace = Workspace(options.workspace.absolute())
    blind = workspace.root / f"reading-{options.translations}.tsv"
    if blind.exists():
        raise SystemExit(f"{blind} is there already; what a reader filled in is not overwritten")
    cells = [
        grid.fitted(grid.Cell(label, *grid.methods()[label], translations=options.translations))
        for label in options.methods
    ]
    triplets, ranks = rankings(Collection(workspace, options.data), cells, options.judge_side)
    listed = export(triplets, ranks, blind, options.results)
    facts = {
        "what": "validation captions ranked by suspicion, nothing switched",
        "runs": {cell.label: cell.config for cell in cells},
        "judge_side": options.judge_side,
        "translations": options.translations,
        "captions": len(triplets),
        "listed": listed,
        "code": code.version(),
    }
    base.write_json(options.results / f"{options.translations}.json", facts)
    print(f"{listed} captions to read: {blind}")


if __name__ == "__main__":
    main()
