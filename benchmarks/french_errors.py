"""Which rankings without a model put the worst of Apertium's French captions first?

Multi30K's first 15,000 training captions, translated by Apertium through Catalan, in one trip (English to French) and
in two (the way back, translated again). The truth is graded and automatic: the chrF of a translation to the human
French of the same caption; its lowest quarter counts as bad. The human French of the other training captions is one
more lexicon, the witness that a parallel corpus of the same kind would be.

    python benchmarks/french_errors.py --multi30k FOLDER --dictionary FILE --translated FILE

`--dictionary` is FreeDict's English-French. `--translated` keeps the translations; without it they are made.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from real_errors import FORMS, PAGE, Floats, areas, forms
from robustness import tables
from robustness.collection import apertium
from scipy.stats import rankdata, spearmanr

from ccr_cli.data.dictionary import read_dictionary
from ccr_cli.judges.fusion import fused
from ccr_cli.metrics.lexical import Lexicon
from ccr_cli.metrics.mtscores import sentence_chrf

RESULTS = Path(__file__).resolve().parent / "results" / "real_noise" / "french.json"
CAPTIONS, WORST = 15_000, 0.25
SHOWN = {
    "own, mean": "words, own",
    "other trip, mean": "words, the other trip's",
    "dictionary, mean": "words, FreeDict",
    "way back": "the way back",
    "fusion": "`fusion` of own, FreeDict, way back",
    "own, sum": "sums, own",
    "length": "length of the English",
}
"""Rankings of the table."""
OTHER = {"one": "two", "two": "one"}


def translated(path: Path, english: list[str]) -> pd.DataFrame:
    """English, the French of each trip, and the English between them."""
    if not path.exists():
        frame, source = pd.DataFrame({"en": english}), english
        for column, langs in (("one", ("en", "fr")), ("back", ("fr", "en")), ("two", ("en", "fr"))):
            source = frame[column] = [text or "" for text in apertium(*langs, source)]
        frame.to_csv(path, sep="\t", index=False)
    return pd.read_csv(path, sep="\t", keep_default_na=False)


def rankings(frame: pd.DataFrame, trip: str, rest: tuple[list[str], list[str]], dictionary: Path) -> dict[str, Floats]:
    """The score of each caption in every ranking; low is suspicious."""
    source, target = list(frame["en"]), list(frame[trip])
    lexicons = {
        "own": Lexicon(source, target),
        "other trip": Lexicon(source, list(frame[OTHER[trip]])),
        "dictionary": Lexicon(source, target, read_dictionary(dictionary)),
        "human French of others": Lexicon(*rest),
    }
    scored = {key: forms(lexicon, source, target) for key, lexicon in lexicons.items()}
    found = {f"{key}, {form}": scored[key][form] for key in lexicons for form in FORMS[:2]}
    found["length"] = -np.array([len(text.split()) for text in source], dtype=float)
    if trip == "one":
        found["way back"] = np.array(sentence_chrf(list(frame["back"]), [[text] for text in source]))
    known: list[str] = [name for name in ("own, mean", "dictionary, mean", "way back") if name in found]
    fusions: dict[str, list[str]] = {
        "fusion": known,
        "fusion without dictionary": [name for name in known if name != "dictionary, mean"],
        "fusion and human French of others": [*known, "human French of others, mean"],
    }
    for name, members in fusions.items():
        found[name] = fused((found[each], np.zeros(1)) for each in members)[0]
    return found


def block(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of the page."""
    found = {(row["ranking"], row["trip"]): row for row in rows}
    cells = {
        key: " ".join(f"{row[f'precision@{n}']:.2f}" for n in (25, 50, 100)) + f"; {row['auroc']:.2f}"
        for key, row in found.items()
    }
    lines = [[name, *(cells.get((ranking, trip), "") for trip in OTHER)] for ranking, name in SHOWN.items()]
    return tables.markdown(["precision at 25, 50, 100; AUROC (± 0.01)", "one trip", "two trips"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--multi30k", type=Path)
    parser.add_argument("--dictionary", type=Path)
    parser.add_argument("--translated", type=Path)
    parser.add_argument("--table", action="store_true", help="write the table of the page and nothing else")
    given = parser.parse_args()
    if given.table:
        filled = tables.fill(PAGE.read_text("utf-8"), {"french": block(json.loads(RESULTS.read_text("utf-8")))})
        PAGE.write_text(filled, encoding="utf-8")
        return

    def lines(lang: str) -> list[str]:
        with gzip.open(given.multi30k / "task1" / "raw" / f"train.{lang}.gz", "rt", encoding="utf-8") as file:
            return file.read().splitlines()

    english, human = lines("en"), lines("fr")
    frame = translated(given.translated, english[:CAPTIONS]).assign(human=human[:CAPTIONS])
    frame = frame[(frame["one"] != "") & (frame["two"] != "")]
    rows: list[dict[str, Any]] = []
    for trip in OTHER:
        chrf = np.array(sentence_chrf(list(frame[trip]), [[text] for text in frame["human"]]))
        bad = chrf <= np.quantile(chrf, WORST)
        print(f"{trip}: {len(frame)} captions, chrF {chrf.mean():.1f}, bad ones up to {chrf[bad].max():.1f}")
        for name, score in rankings(frame, trip, (english[CAPTIONS:], human[CAPTIONS:]), given.dictionary).items():
            place = rankdata(score, method="ordinal")
            area, draws = areas(bad, score, 200)
            row = {"trip": trip, "ranking": name, "auroc": area, "interval": list(np.quantile(draws, (0.025, 0.975)))}
            row |= {f"precision@{depth}": float(bad[place <= depth].mean()) for depth in (25, 50, 100)}
            rows.append(row | {"spearman": float(spearmanr(score, chrf).statistic)})
            print(
                trip,
                name,
                *(f"{key} {row[key]:.2f}" for key in ("precision@25", "precision@50", "precision@100", "auroc")),
            )
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
