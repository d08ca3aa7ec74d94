"""Measure the judge `lexical`: its time, the mismatches that it finds, and human translations that it calls wrong.

    python benchmarks/lexical.py --flickr8kcn FOLDER --multi30k FOLDER [--pairs 30000 600000]
    python benchmarks/lexical.py --flickr8kcn FOLDER --multi30k FOLDER --dictionaries zh=FILE de=FILE fr=FILE
    python benchmarks/lexical.py --flickr8kcn FOLDER --multi30k FOLDER --eflomal

Training captions of Flickr8k-CN with machine translations, and of Multi30K with human ones. A share of the translations
is exchanged among each other. No model and no picture takes part.

With `--eflomal` (`pip install eflomal`) it compares that aligner's scores of the same words, both directions added.
With dictionaries it measures `fusion` instead: one word of a caption is replaced, so that its translation is wrong in
one word. Each witness alone, all of them, and all but one.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import re
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.data.dictionary import read_dictionary
from ccr_cli.judges.fusion import fused
from ccr_cli.judges.lexical import clean_probability
from ccr_cli.metrics.detection import auroc, detection
from ccr_cli.metrics.lexical import Lexicon, words

RESULTS = Path(__file__).resolve().parent / "results" / "lexical.json"
SHUFFLED = 4000


def measure(source: list[str], target: list[str], share: float, seed: int) -> dict[str, Any]:
    """Exchanges a share of the translations and judges all pairs."""
    rng, number = np.random.default_rng(seed), len(source)
    moved = rng.permutation(number)[: int(share * number)]
    giver = np.arange(number)
    giver[moved] = np.roll(moved, 1)
    given = [target[i] for i in giver]
    wrong = np.array([one != other for one, other in zip(given, target, strict=True)])
    left = rng.permutation(number)[: min(SHUFFLED, number // 5)]
    started = time.process_time()
    both = source + [source[i] for i in left], given + [given[i] for i in np.roll(left, 1)]
    score = Lexicon(*both).scores(*both)
    p = clean_probability(score[:number], score[number:])
    figures: dict[str, Any] = {"pairs": number, "exchanged": share, "seed": seed}
    figures |= {"cpu_seconds": round(time.process_time() - started, 1), "called_noisy": float((p < 0.5).mean())}
    if share:
        found = detection(p, wrong, 0.5)
        figures |= {key: round(float(found[key]), 4) for key in ("auroc", "precision", "recall")}
    return figures


def against_eflomal(source: list[str], target: list[str], share: float = 0.2) -> dict[str, Any]:
    """CPU seconds and AUROC of a lexicon and of eflomal, a share of the translations exchanged."""
    aligner = importlib.import_module("eflomal").Aligner()
    moved = np.random.default_rng(0).permutation(len(source))[: int(share * len(source))]
    giver = np.arange(len(source))
    giver[moved] = np.roll(moved, 1)
    given = [target[i] for i in giver]
    wrong = np.array([one != other for one, other in zip(given, target, strict=True)])
    found: dict[str, Any] = {"pairs": len(source), "exchanged": share}
    for name in ("lexicon", "eflomal"):
        before = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        if name == "lexicon":
            score = Lexicon(source, given).scores(source, given)
        else:
            with tempfile.TemporaryDirectory() as folder:
                texts = [[" ".join(words(text)) or "." for text in side] for side in (source, given)]
                paths = {
                    f"{kind}_filename_{way}": f"{folder}/{kind}-{way}"
                    for kind in ("links", "scores")
                    for way in ("fwd", "rev")
                }
                aligner.align(*texts, **paths, quiet=True)
                score = -np.sum([np.loadtxt(path) for key, path in paths.items() if "scores" in key], axis=0)
        after = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        spent = sum(b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime for a, b in zip(before, after, strict=True))
        found[name] = {"cpu_seconds": round(spent, 1), "auroc": auroc(-score, wrong)}
    return found


def flickr8k_cn(folder: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Training captions and their translations, by engine."""
    table = pd.read_parquet(folder / "captions.parquet")
    table = table[table["split"] == "train"].set_index(["item_id", "k"])
    english = table.loc[table["lang"] == "en", "text"]
    engines = [name for name in sorted(table["source"].unique()) if name.startswith("mt:") and name.endswith("-2016")]
    return {
        f"Flickr8k-CN, {name.removeprefix('mt:')}": (
            list(english), list(table.loc[table["source"] == name, "text"].reindex(english.index))
        )
        for name in engines
    }  # fmt: skip


def multi30k(folder: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Training captions and human translations, by language."""

    def lines(lang: str) -> list[str]:
        with gzip.open(folder / "task1" / "raw" / f"train.{lang}.gz", "rt", encoding="utf-8") as file:
            return file.read().splitlines()

    return {f"Multi30K, {lang} (human)": (lines("en"), lines(lang)) for lang in ("de", "fr", "cs")}


def partly_wrong(source: list[str], seed: int) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Replaces a content word in 13 % of the captions (1), and 30 frequent ones, each by one other, in 60 % (2).

    Returns the captions and what was done to each (0: nothing).
    """
    rng, tokens = np.random.default_rng(seed), [re.findall(r"\w+|\W+", text) for text in source]
    count = Counter(word.lower() for each in tokens for word in set(each) if word.isalpha())
    content = sorted(word for word, n in count.items() if 5 <= n < 0.1 * len(source) and len(word) > 2)
    frequent, known = [word for word in content if count[word] > 0.003 * len(source)], set(content)
    pool = [word for each in tokens for word in each if word.lower() in known]
    other_of = {word: str(rng.choice(frequent)) for word in rng.choice(frequent, 30, replace=False)}
    kind = np.zeros(len(source), dtype=np.int64)
    for number, each in enumerate(tokens):
        places = [place for place, word in enumerate(each) if word.lower() in known]
        certain = [place for place in places if each[place].lower() in other_of]
        new, what = ({place: other_of[each[place].lower()] for place in certain} if rng.random() < 0.6 else {}), 2
        if not new and places and rng.random() < 0.13:
            new, what = {int(rng.choice(places)): pool[rng.integers(len(pool))]}, 1
        for place, word in new.items():
            if words(word) != words(each[place]):
                each[place], kind[number] = word, what
    return ["".join(each) for each in tokens], kind


def ablation(
    source: list[str], target: list[str], other: list[str] | None, dictionary: Path, seed: int
) -> dict[str, Any]:
    """The AUROC of witnesses and of their fusion for partly wrong pairs, and what is called noisy if nothing is."""
    rows: dict[str, Any] = {"pairs": len(source), "seed": seed}
    entries, rng = read_dictionary(dictionary), np.random.default_rng(seed)
    left = rng.permutation(len(source))[: min(SHUFFLED, len(source) // 5)]
    replaced, kind = partly_wrong(source, seed)
    for given, name in ((source, "intact"), (replaced, "replaced")):
        both = given + [given[i] for i in left], target + [target[i] for i in np.roll(left, 1)]
        lexicons = {"words": Lexicon(*both), "dictionary": Lexicon(*both, entries)}
        lexicons |= {"other translation": Lexicon(source, other)} if other else {}
        score = {key: lexicon.scores(*both) for key, lexicon in lexicons.items()}
        halves = {key: (value[: len(source)], value[len(source) :]) for key, value in score.items()}
        if name == "intact":
            rows["called_noisy"] = float((clean_probability(*fused(halves.values())) < 0.5).mean())
            continue
        subsets = (
            [(key,) for key in halves] + [tuple(k for k in halves if k != key) for key in halves] + [tuple(halves)]
        )
        for subset in dict.fromkeys(each for each in subsets if each):
            p = fused(halves[key] for key in subset)[0]
            found = [auroc(-p[kind != left_out], kind[kind != left_out] > 0) for left_out in (2, 1)]
            rows[" + ".join(subset)] = [round(each, 3) for each in found if each is not None]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flickr8kcn", type=Path, required=True)
    parser.add_argument("--multi30k", type=Path, required=True)
    parser.add_argument("--pairs", type=int, nargs="*", default=[30_000, 600_000], help="sizes to time")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--eflomal", action="store_true", help="compare with eflomal instead")
    parser.add_argument("--dictionaries", nargs="*", metavar="LANG=FILE", help="measure fusion with these")
    args = parser.parse_args()
    sets = {**flickr8k_cn(args.flickr8kcn), **multi30k(args.multi30k)}
    if args.eflomal:
        rows = [{"data": name} | against_eflomal(*pair) for name, pair in sets.items()]
        RESULTS.with_name("eflomal.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        return
    if args.dictionaries:
        chinese = [name for name in sets if name.startswith("Flickr8k-CN")]
        others = {name: sets[chinese[not place]][1] for place, name in enumerate(chinese)}
        found = []
        for lang, _, path in (each.partition("=") for each in args.dictionaries):
            for name in chinese if lang == "zh" else [f"Multi30K, {lang} (human)"]:
                for seed in range(args.seeds):
                    row = ablation(*sets[name], others.get(name), Path(path), seed)
                    found.append({"data": name} | row)
                    print(found[-1], flush=True)
        RESULTS.with_name("fusion.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return
    rows = []
    for name, (source, target) in sets.items():
        for share in (0.0, 0.2, 0.4, 0.6):
            for seed in range(args.seeds):
                rows.append({"data": name} | measure(source, target, share, seed))
                print(rows[-1], flush=True)
    timed = []
    source, target = next(iter(sets.values()))
    for number in args.pairs:
        times = -(-number // len(source))
        row = measure((source * times)[:number], (target * times)[:number], 0.0, 0)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        timed.append({"pairs": number, "cpu_seconds": row["cpu_seconds"], "peak_gb_of_process": round(memory, 2)})
        print(timed[-1], flush=True)
    RESULTS.write_text(json.dumps({"rows": rows, "timed": timed}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
