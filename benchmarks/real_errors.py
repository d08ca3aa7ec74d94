"""How many real translation errors do rankings without a model find, according to two readers?

    python benchmarks/real_errors.py --rank FOLDER/flickr8kcn --list FOLDER    (shuffled lists, without places, to read)
    python benchmarks/real_errors.py                                          (the table, from what was read)

Machine translations of August 2016 of Flickr8k-CN's validation captions. Two readers each judged the first hundred of
every ranking and 150 random captions by `results/real_noise/august/RULES.md`, without seeing each other's verdicts; the
42 captions of 770 on which they differed were read a third time. The readers are language models.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm, rankdata
from sklearn.metrics import cohen_kappa_score, roc_auc_score

from ccr_cli.data.seeds import derive
from ccr_cli.metrics.lexical import Lexicon
from ccr_cli.metrics.mtscores import sentence_chrf

READ = Path(__file__).resolve().parent / "results" / "real_noise" / "august"
ENGINES = {"baidu": "mt:baidu-20160815", "google": "mt:google-20160816"}
TOP, RANDOM = 100, 150


def rankings(folder: Path) -> dict[str, pd.DataFrame]:
    """English, translation and the place in every ranking of each validation caption, by engine."""
    table = pd.read_parquet(folder / "captions.parquet")
    table["id"] = table["item_id"] + "#en#" + table["k"].astype(str)
    english = table[table["lang"] == "en"].set_index("id")
    texts = {name: table[table["source"] == engine].set_index("id")["text"] for name, engine in ENGINES.items()}
    texts = {name: column.reindex(english.index) for name, column in texts.items()}
    lexicons = {name: Lexicon(list(english["text"]), list(column)) for name, column in texts.items()}
    validation, made = english.index[english["split"] == "val"], {}
    for name, other in (("baidu", "google"), ("google", "baidu")):
        source, target = list(english["text"][validation]), list(texts[name][validation])
        score = {
            f"lexical, {how}": lexicons[who].scores(source, target) for how, who in (("own", name), ("other", other))
        }
        score["lexical, both"] = sum(norm.ppf(rankdata(each) / (len(each) + 1)) for each in score.values())
        score["chrF to the other engine"] = np.array(sentence_chrf(target, [[t] for t in texts[other][validation]]))
        place = {how: rankdata(each, method="ordinal") for how, each in score.items()}
        place["random"] = np.random.default_rng(derive(1, "random")).permutation(len(source)) + 1
        made[name] = pd.DataFrame({"english": source, "translation": target, **place}, index=validation)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", type=Path, help="folder of the collection, which is not part of the project")
    parser.add_argument("--list", type=Path, default=Path(), help="folder for the lists to read")
    given = parser.parse_args()
    if given.rank:
        for name, frame in rankings(given.rank).items():
            places = frame.drop(columns=["english", "translation"])
            shown = (places.drop(columns="random").min(axis=1) <= TOP) | (places["random"] <= RANDOM)
            frame.loc[shown, ["english", "translation"]].sample(frac=1, random_state=7).to_csv(
                given.list / f"{name}.tsv", sep="\t"
            )
        return
    for name in ENGINES:
        read = pd.read_csv(READ / f"{name}.tsv", sep="\t", keep_default_na=False).set_index("caption_id")
        bad, kappa = read["verdict"] == "bad", cohen_kappa_score(read["verdict_1"], read["verdict_2"])
        at_random = pd.to_numeric(read["random"]) <= RANDOM
        print(f"{name}: {len(read)} read, κ = {kappa:.2f}; of {RANDOM} at random {bad[at_random].mean():.2f} are bad")
        for ranking in ("lexical, own", "lexical, other", "lexical, both", "chrF to the other engine"):
            place, rng = pd.to_numeric(read[ranking]), np.random.default_rng(0)
            truth, score = bad[at_random].to_numpy(), -place[at_random].to_numpy(float)
            draws = (rng.integers(0, len(truth), len(truth)) for _ in range(2000))
            low, high = np.quantile([roc_auc_score(truth[i], score[i]) for i in draws], (0.025, 0.975))
            precision = "  ".join(f"{bad[place <= depth].mean():.2f}" for depth in (25, 50, TOP))
            print(f"  {ranking:25} {precision}   AUROC {roc_auc_score(truth, score):.2f} [{low:.2f}, {high:.2f}]")


if __name__ == "__main__":
    main()
