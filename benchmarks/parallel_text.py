"""How well does a lexicon of parallel text find wrong translations: human translations of other captions?

1. Apertium's French of Multi30K's first 15,000 training captions, as in `french_errors.py`. The parallel text is the
   human French of the others, all of it and less. The rule (parallel text instead of the other witnesses) was chosen on
   every other caption (`chosen on`); `reported on` are the rest. The truth is the chrF to the human French of the same
   captions, which favours the words of the same translators.
2. Therefore also human French and German of the same captions, in whose English words are replaced (`lexical.py`):
   single errors, and systematic ones. Also how often their words are underlined, and in right captions.
3. The captions whose machine translations were read (`real_errors.py`). There is no human translation of Flickr8k's
   captions into Chinese. Instead each English caption of a picture stands with each Chinese one that people wrote for
   it; the pictures of one half of validation teach a lexicon for the other half. The labels had been in sight.

`messages` are another kind of parallel text: the translated messages of programs (`*.mo`) of a computer.

    python benchmarks/parallel_text.py --data FOLDER --dictionaries fr=FILE zh=FILE --translated FILE

`--data` has `multi30k` and `flickr8kcn`; `--messages` is often /usr/share/locale. `--table` writes the table of
docs/wrong-translations.md.
"""

from __future__ import annotations

import argparse
import gettext
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from french_errors import CAPTIONS, OTHER, WORST, translated
from lexical import multi30k, partly_wrong
from real_errors import ENGINES, PAGE, RANDOM, READ, Floats, areas, labels
from robustness import tables
from scipy.stats import rankdata

from ccr_cli.data.dictionary import read_dictionary
from ccr_cli.data.seeds import derive
from ccr_cli.judges.fusion import fused
from ccr_cli.metrics.detection import auroc
from ccr_cli.metrics.lexical import Lexicon
from ccr_cli.metrics.mtscores import sentence_chrf

RESULTS = Path(__file__).resolve().parent / "results" / "parallel_text.json"
SIZES = (300, 1000, 3000)
DEPTHS = (25, 50, 100)
SHOWN = {
    "own": "own words",
    "parallel 300": "300 sentences by people",
    "parallel 1000": "1,000",
    "parallel": "14,000",
    "messages": "messages of programs",
    "own + parallel": "14,000 + own words",
    "dictionary + parallel": "14,000 + FreeDict",
    "other + parallel": "14,000 + the other trip's",
}
"""Witnesses of the table."""
UNDERLINED = 700
"""Captions of each kind whose underlined words are counted."""


def messages(folder: Path | None, lang: str) -> Lexicon | None:
    """The lexicon of the messages of programs; None without a folder."""
    pairs: dict[tuple[str, str], None] = {}
    for path in sorted((folder / lang / "LC_MESSAGES").glob("*.mo")) if folder else ():
        with path.open("rb") as file:
            try:
                catalog: dict[Any, str] = vars(gettext.GNUTranslations(file))["_catalog"]
            except UnicodeDecodeError:
                continue
        for key, text in catalog.items():
            source = (key[0] if isinstance(key, tuple) else key).rpartition("\4")[2]
            one, two = (re.sub(r"[_&%\\]|\s+", " ", each).strip() for each in (source, text))
            if one and two:
                pairs[one, two] = None
    return Lexicon([one for one, _ in pairs], [two for _, two in pairs]) if pairs else None


def combined(scores: dict[str, Floats], how: str) -> Floats:
    """The score of a witness, or of several: `own + parallel` is the judge `lexical`, `own, parallel` is `fusion`."""
    if " + " in how:
        return np.asarray(sum(scores[name] for name in how.split(" + ")))
    return fused((scores[name], np.zeros(1)) for name in how.split(", "))[0] if ", " in how else scores[how]


def french(data: Path, dictionary: Path, path: Path, folder: Path | None) -> list[dict[str, Any]]:
    """Precision and AUROC on both halves."""
    english, human = multi30k(data / "multi30k")["Multi30K, fr (human)"]
    frame = translated(path, english[:CAPTIONS]).assign(human=human[:CAPTIONS])
    frame = frame[(frame["one"] != "") & (frame["two"] != "")]
    rest = english[CAPTIONS:], human[CAPTIONS:]
    lexicons = {f"parallel {n}": Lexicon(rest[0][:n], rest[1][:n]) for n in SIZES} | {"parallel": Lexicon(*rest)}
    if of_messages := messages(folder, "fr"):
        lexicons["messages"] = of_messages
    rows, source = [], list(frame["en"])
    back = np.array(sentence_chrf(list(frame["back"]), [[text] for text in source]))
    hows = ["own + parallel", "own, parallel", "dictionary + parallel", "dictionary, parallel", "back, parallel"]
    hows += ["other + parallel", "own + parallel 1000", "own, parallel 1000"]
    for trip, other in OTHER.items():
        target = list(frame[trip])
        chrf = np.array(sentence_chrf(target, [[text] for text in frame["human"]]))
        bad = chrf <= np.quantile(chrf, WORST)
        own = {"own": Lexicon(source, target), "other": Lexicon(source, list(frame[other]))}
        own["dictionary"] = Lexicon(source, target, read_dictionary(dictionary))
        scores = {name: lexicon.scores(source, target) for name, lexicon in (own | lexicons).items()} | {"back": back}
        for how in [*scores, *hows]:
            score = combined(scores, how)
            for half, part in enumerate(("chosen on", "reported on")):
                truth, value = bad[half::2], score[half::2]
                place = rankdata(value, method="ordinal")
                row = {"data": f"Apertium, {trip}", "witness": how, "part": part, "auroc": areas(truth, value, 1)[0]}
                rows.append(row | {f"precision@{n}": float(truth[place <= n].mean()) for n in DEPTHS})
                print(rows[-1], flush=True)
    return rows


def replaced(data: Path, lang: str, folder: Path | None) -> list[dict[str, Any]]:
    """AUROC of single and of systematic errors, and the share of captions with underlined words."""
    english, human = multi30k(data / "multi30k")[f"Multi30K, {lang} (human)"]
    source, target, right = *(side[:CAPTIONS] for side in (english, human)), english[:CAPTIONS]
    source, kind = partly_wrong(source, 0)
    rest = english[CAPTIONS:], human[CAPTIONS:]
    lexicons = {"own": Lexicon(source, target), "parallel": Lexicon(*rest)}
    lexicons["parallel 1000"] = Lexicon(rest[0][:1000], rest[1][:1000])
    if of_messages := messages(folder, lang):
        lexicons["messages"] = of_messages
    scores = {name: lexicon.scores(source, target) for name, lexicon in lexicons.items()}
    rng, rows = np.random.default_rng(0), []
    some = [rng.permutation(np.flatnonzero(kind == each))[:UNDERLINED] for each in range(3)]
    for how in [*scores, "own + parallel", "own, parallel", "own + parallel 1000"]:
        score = combined(scores, how)
        row: dict[str, Any] = {"data": f"replaced, {lang}", "witness": how}
        for name, without in (("single", 2), ("systematic", 1)):
            row[name] = auroc(-score[kind != without], kind[kind != without] > 0)
        if how in ("own", "parallel"):
            found = [[_underlined(lexicons[how], source[i], target[i], right[i]) for i in rows_] for rows_ in some]
            row["underlined"] = [float(np.mean(each)) for each in found]
        rows.append(row)
        print(row, flush=True)
    return rows


def _underlined(lexicon: Lexicon, source: str, target: str, right: str) -> bool:
    """Whether a replaced word is underlined, or in a right caption any."""
    spans, first = lexicon.unmatched(source, target)[0], 0
    for word, before in zip(*(re.findall(r"\w+|\W+", text) for text in (source, right)), strict=True):
        if word != before and any(a < first + len(word) and first < b for a, b in spans):
            return True
        first += len(word)
    return source == right and bool(spans)


def chinese(data: Path, dictionary: Path, folder: Path | None) -> list[dict[str, Any]]:
    """AUROC on the random captions of either batch, and the precision among the first hundred that were read."""
    table = pd.read_parquet(data / "flickr8kcn" / "captions.parquet")
    table["id"] = table["item_id"] + "#en#" + table["k"].astype(str)
    english = table[table["lang"] == "en"].set_index("id")
    written = table[(table["lang"] == "zh") & (table["source"] == "human")]
    val = english[english["split"] == "val"]
    items = np.random.default_rng(derive(0, "halves")).permutation(sorted(val["item_id"].unique()))
    first_half = val["item_id"].isin(items[: len(items) // 2]).to_numpy()
    parts = [val[first_half].merge(written, on="item_id"), val[~first_half].merge(written, on="item_id")]
    halves = [Lexicon(list(part["text_x"]), list(part["text_y"])) for part in parts]
    of_messages, entries, rows = messages(folder, "zh_CN"), read_dictionary(dictionary), []
    texts = {name: table[table["source"] == f"mt:{engine}"].set_index("id")["text"] for name, engine in ENGINES.items()}
    for name, other in (("baidu", "google"), ("google", "baidu")):
        source, target = list(val["text"]), list(texts[name][val.index])
        every = [list(column.reindex(english.index)) for column in (english["text"], texts[name], texts[other])]
        lexicons = {"own": Lexicon(*every[:2]), "other": Lexicon(every[0], every[2])}
        lexicons |= {"dictionary": Lexicon(every[0], every[1], entries)} | (
            {"messages": of_messages} if of_messages else {}
        )
        scores = {key: lexicon.scores(source, target) for key, lexicon in lexicons.items()}
        scores["written"] = np.where(first_half, *(half.scores(source, target) for half in reversed(halves)))
        place = pd.read_csv(READ / f"places-{name}.tsv", sep="\t").set_index("caption_id")
        bad = labels(name)[2]
        for how in [*scores, "own + written", "own, other, dictionary", "own, other, dictionary, written"]:
            score = pd.Series(combined(scores, how), index=val.index)
            row: dict[str, Any] = {"data": name, "witness": how}
            for batch in ("random", "random 2"):
                ids = place.index[place[batch].between(1, RANDOM)].intersection(bad.index)
                area, draws = areas(bad[ids].to_numpy(), np.asarray(score[ids]))
                row[batch] = [area, *np.quantile(draws, (0.025, 0.975))]
            read = score.nsmallest(100).index.intersection(bad.index)
            rows.append(row | {"precision of read": float(bad[read].mean()), "read of 100": len(read)})
            print(rows[-1], flush=True)
    return rows


def block(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of the page."""
    found = {(row["data"], row["witness"]): row for row in rows if row.get("part") != "chosen on"}
    lines = []
    for how, name in SHOWN.items():
        cells = [name]
        for trip in OTHER:
            row = found[f"Apertium, {trip}", how]
            cells.append(f"{row['precision@100']:.2f}, {row['auroc']:.2f}")
        for lang in ("fr", "de"):
            other = found.get((f"replaced, {lang}", how))
            cells.append(f"{other['single']:.2f}, {other['systematic']:.2f}" if other else "")
        lines.append(cells)
    return tables.markdown(["witness", "one trip", "two trips", "words replaced: French", "German"], lines)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--dictionaries", nargs=2, metavar="LANG=FILE")
    parser.add_argument("--translated", type=Path, help="as of french_errors.py")
    parser.add_argument("--messages", type=Path, help="folder of gettext's catalogues by language")
    parser.add_argument("--table", action="store_true", help="write the table of the page and nothing else")
    given = parser.parse_args(words)
    if given.table:
        filled = tables.fill(PAGE.read_text("utf-8"), {"parallel": block(json.loads(RESULTS.read_text("utf-8")))})
        PAGE.write_text(filled, encoding="utf-8")
        return
    if None in (given.data, given.dictionaries, given.translated):
        parser.error("--data, --dictionaries and --translated are needed")
    of = {lang: Path(path) for lang, _, path in (each.partition("=") for each in given.dictionaries)}
    rows = french(given.data, of["fr"], given.translated, given.messages)
    rows += [row for lang in ("fr", "de") for row in replaced(given.data, lang, given.messages)]
    rows += chinese(given.data, of["zh"], given.messages)
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
