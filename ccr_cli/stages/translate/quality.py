"""Evidence of the quality of a translation: caption by caption, and in sum by direction and split.

Scores against human references are given for one set of references at a time, and say whether these are translations
of the captions or were written by people who saw the picture alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.artifacts.translation import FLAGS
from ccr_cli.metrics.mtquality import LENGTH_Z, evidence
from ccr_cli.metrics.mtscores import corpus_chrf, corpus_scores, sentence_chrf

Texts = dict[str, list[str]]
Kind = Literal["translation", "caption"]


@dataclass(frozen=True)
class References:
    """What people wrote in the target language about the items of one set of captions."""

    source_set: str
    """Set of the captions that are translated."""
    caption_set: str
    """Set of the references."""
    kind: Kind
    """`translation`: each of its own caption; `caption`: of the same item, written without the caption."""
    of: Texts
    """The references by `caption_id` of what is translated."""


def references(source: Dataset, lang: str, target: str) -> tuple[list[References], list[str]]:
    """Finds the human references of the captions in a language.

    For each set of captions one set of references: its human translations, which `parallel` of the manifest names; else
    the set of the same name; else the only one that there is. Sets are never mixed.

    Args:
        source: The data set.
        lang: Language of the captions that are translated.
        target: Language of the references.

    Returns:
        The references, and why there are none where there could be.
    """
    captions = source.captions
    asked, given = captions[captions["lang"] == lang], captions[captions["lang"] == target]
    parallel: Mapping[str, str] = source.manifest.get("parallel") or {}
    sets = sorted(given["caption_set"].unique())
    found, notes = [], []
    for name, rows in asked.groupby("caption_set", sort=True):
        own = str(name)
        translated = [other for other in sets if parallel.get(other) == own or parallel.get(own) == other]
        chosen = translated or [own] * (own in sets) or sets
        if len(chosen) > 1:
            which = "are translations of" if translated else "could be references of"
            notes.append(f"the {target} sets {', '.join(chosen)} {which} {own}: not mixed, so none was taken")
        elif chosen:
            kind: Kind = "translation" if translated else "caption"
            pool = given[given["caption_set"] == chosen[0]]
            found.append(References(own, chosen[0], kind, _join(rows, pool, kind)))
    return found, notes


def _join(rows: pd.DataFrame, pool: pd.DataFrame, kind: Kind) -> Texts:
    """The references of each caption: by item, and for translations by number too."""
    keys = ["item_id", "k"] if kind == "translation" else ["item_id"]
    pairs = rows[["caption_id", *keys]].merge(pool.sort_values("k", kind="stable")[[*keys, "text"]], on=keys)
    texts: Texts = {}
    for caption_id, text in zip(pairs["caption_id"], pairs["text"], strict=True):
        texts.setdefault(str(caption_id), []).append(str(text))
    return texts


def assess(frame: pd.DataFrame, source: Dataset) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Says what there is to say of translations.

    Args:
        frame: Rows of a translation; text is null where it failed.
        source: The data set that was translated.

    Returns:
        A row a caption as in `quality.parquet`, in the order of `frame`, and the content of `quality.json`.
    """
    text_of = dict(zip(source.captions["caption_id"], source.captions["text"], strict=True))
    lang_of = dict(zip(source.captions["caption_id"], source.captions["lang"], strict=True))
    text_of |= dict(zip(frame["caption_id"], frame["text"], strict=True))
    lang_of |= dict(zip(frame["caption_id"], frame["lang"], strict=True))
    back = frame[frame["direction"] == "back"]
    returned = dict(zip(back["source_caption_id"], back["text"], strict=True))
    tables, report = [], dict[str, Any]()
    for direction, part in frame.groupby("direction", sort=True):
        sources = [str(text_of[caption] or "") for caption in part["source_caption_id"]]
        langs = str(lang_of[part["source_caption_id"].iloc[0]]), str(part["lang"].iloc[0])
        trips = None
        if direction == "forward" and returned:
            trips = [str(returned.get(caption) or "") for caption in part["caption_id"]]
        human, notes = references(source, *langs) if direction in ("forward", "query") else ([], [])
        table, lengths = _captions(part, sources, langs, trips, human)
        splits = {
            str(split): _split(table, part, sources, trips, human, langs[1], np.flatnonzero(part["split"] == split))
            for split in dict.fromkeys(part["split"])
        }
        tables.append(table)
        told = {"source_lang": langs[0], "lang": langs[1], "lengths": lengths, "splits": splits, "notes": notes}
        report[str(direction)] = told
    return pd.concat(tables).loc[frame.index], report


def _captions(
    part: pd.DataFrame, sources: list[str], langs: tuple[str, str], trips: list[str] | None, human: Sequence[References]
) -> tuple[pd.DataFrame, dict[str, float] | None]:
    """The rows of one direction, and the length model behind them."""
    found = evidence(sources, list(part["text"]), *langs)
    table = pd.DataFrame({"caption_id": part["caption_id"]}, index=part.index)
    table["length_ratio"], table["length_z"] = found.length_ratio, found.length_z
    table["sources"], table["left_in"] = found.sources, found.left_in
    table["round_trip_chrf"] = np.nan if trips is None else sentence_chrf(trips, [[source] for source in sources])
    table["reference_chrf"], table["reference_set"] = np.nan, None
    for each in human:
        known = part["source_caption_id"].isin(each.of)
        rows = part[known]
        own = [each.of[caption] for caption in rows["source_caption_id"]]
        table.loc[known, "reference_chrf"] = sentence_chrf(list(rows["text"].fillna("")), own)
        table.loc[known, "reference_set"] = each.caption_set
    for flag, which in found.flags.items():
        table[flag] = pd.array([None] * len(part) if which is None else which, dtype="boolean")
    lengths = found.lengths
    return table, None if lengths is None else {**vars(lengths), "threshold": LENGTH_Z}


def _split(
    table: pd.DataFrame,
    part: pd.DataFrame,
    sources: list[str],
    trips: list[str] | None,
    human: Sequence[References],
    lang: str,
    which: Any,
) -> dict[str, Any]:
    """What is said of one split: `which` are its rows."""
    rows, evident = part.iloc[which], table.iloc[which]
    counts = {flag: None if evident[flag].isna().all() else int(evident[flag].sum()) for flag in FLAGS}
    ratios, scores = evident["length_ratio"].dropna(), rows["score"].dropna()
    told: dict[str, Any] = {
        "captions": len(rows),
        "failed": int((rows["status"] != "ok").sum()),
        "flagged": int(evident[list(FLAGS)].fillna(False).any(axis=1).sum()),
        "flags": counts,
        "repeated": int((evident["sources"] > 1).sum()),
        "length_ratio": float(ratios.median()) if len(ratios) else None,
        "score": float(scores.mean()) if len(scores) else None,
        "round_trip": None,
        "references": [],
    }
    if trips is not None:
        corpus, signature = corpus_chrf([trips[i] for i in which], [sources[i] for i in which])
        mean = float(evident["round_trip_chrf"].mean())
        told["round_trip"] = {"chrF2": {"score": corpus, "sentence_mean": mean, "signature": signature}}
    for each in human:
        known = rows[rows["source_caption_id"].isin(each.of)]
        if len(known):
            own = [each.of[caption] for caption in known["source_caption_id"]]
            figures, note = corpus_scores(list(known["text"].fillna("")), own, lang)
            many = [len(texts) for texts in own]
            counted = {"captions": len(known), "references": sum(many), "each": [min(many), max(many)]}
            about = {"kind": each.kind, "caption_set": each.caption_set, "source_set": each.source_set}
            told["references"].append({**about, **counted, "scores": figures, "note": note or None})
    return told
