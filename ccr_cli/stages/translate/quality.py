"""The quality of a translation: per caption, and summed up by direction and split.

Scores against human references use one set of references at a time, and state whether these are translations of the
captions or were written by people who saw only the picture.
"""

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
    """Human captions in the target language for one set of captions."""

    source_set: str
    """Set of the captions that are translated."""
    caption_set: str
    """Set of the references."""
    kind: Kind
    """`translation`: each translates its own caption; `caption`: of the same item, written without the caption."""
    of: Texts
    """References by `caption_id` of the translated caption."""


def references(source: Dataset, lang: str, target: str) -> tuple[list[References], list[str]]:
    """Finds the human references of the captions in a language.

    Each set of captions has one set of references: its human translations, which `parallel` of the manifest names; else
    the set of the same name; else the only set. Sets are never mixed.

    Returns:
        The references in `target` of the captions in `lang`, and notes on sets without one.
    """
    sources, targets = source.captions_in(lang), source.captions_in(target)
    parallel: Mapping[str, str] = source.manifest.get("parallel") or {}
    sets = sorted(targets["caption_set"].unique())
    references, notes = [], []
    for group, rows in sources.groupby("caption_set", sort=True):
        name = str(group)
        translated = [other for other in sets if parallel.get(other) == name or parallel.get(name) == other]
        chosen = translated or [name] * (name in sets) or sets
        if len(chosen) > 1:
            which = "are translations of" if translated else "could be references of"
            notes.append(f"the {target} sets {', '.join(chosen)} {which} {name}: not mixed, so none was taken")
        elif chosen:
            kind: Kind = "translation" if translated else "caption"
            pool = targets[targets["caption_set"] == chosen[0]]
            references.append(References(name, chosen[0], kind, _join(rows, pool, kind)))
    return references, notes


def _join(rows: pd.DataFrame, pool: pd.DataFrame, kind: Kind) -> Texts:
    """Matches references to captions by item and, for translations, by caption number."""
    keys = ["item_id", "k"] if kind == "translation" else ["item_id"]
    pairs = rows[["caption_id", *keys]].merge(pool.sort_values("k", kind="stable")[[*keys, "text"]], on=keys)
    texts: Texts = {}
    for caption_id, text in zip(pairs["caption_id"], pairs["text"], strict=True):
        texts.setdefault(str(caption_id), []).append(str(text))
    return texts


def assess(frame: pd.DataFrame, source: Dataset) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Measures the quality of translations; text is null where one failed.

    Returns:
        The rows of `quality.parquet`, in the order of `frame`, and the content of `quality.json`.
    """
    captions = pd.concat([source.captions[["caption_id", "text", "lang"]], frame[["caption_id", "text", "lang"]]])
    place, text_C = pd.Index(captions["caption_id"], dtype=object), captions["text"].fillna("").to_numpy(object)
    back = frame[frame["direction"] == "back"]
    round_trip_of = dict(zip(back["source_caption_id"], back["text"].fillna(""), strict=True))
    tables, summary = [], dict[str, Any]()
    for direction, rows in frame.groupby("direction", sort=True):
        at = place.get_indexer(rows["source_caption_id"])
        rows = rows.assign(source=pd.Series(text_C[at], rows.index, dtype=object))
        langs = str(captions["lang"].iloc[at[0]]), str(rows["lang"].iloc[0])
        if direction == "forward" and round_trip_of:
            texts = rows["caption_id"].map(round_trip_of).astype(object)
            # a failed translation counts as an empty one; a caption corrected by hand is not translated back
            rows["round_trip"] = texts.where(texts.notna() | (rows["status"] == "ok"), "")
        human, notes = references(source, *langs) if direction in ("forward", "query") else ([], [])
        table, lengths = _captions(rows, langs, human)
        splits = {
            str(split): _split(rows[rows["split"] == split], table[rows["split"] == split], langs[1], human)
            for split in dict.fromkeys(rows["split"])
        }
        tables.append(table)
        facts = {"source_lang": langs[0], "lang": langs[1], "lengths": lengths, "splits": splits, "notes": notes}
        summary[str(direction)] = facts
    return pd.concat(tables).loc[frame.index], summary


def _captions(
    rows: pd.DataFrame, langs: tuple[str, str], human: Sequence[References]
) -> tuple[pd.DataFrame, dict[str, float] | None]:
    """The table of one direction, whose rows have `source` and maybe `round_trip`, and the length model behind it.

    `round_trip` is null for a caption that was not translated back.
    """
    signs = evidence(list(rows["source"]), list(rows["text"]), *langs)
    table = pd.DataFrame({"caption_id": rows["caption_id"]}, index=rows.index)
    table["length_ratio"], table["length_z"] = signs.length_ratio, signs.length_z
    table["sources"], table["left_in"] = signs.sources, signs.left_in
    table["round_trip_chrf"], table["reference_chrf"], table["reference_set"] = np.nan, np.nan, None
    if "round_trip" in rows:
        has_one = rows["round_trip"].notna()
        sources = [[source] for source in rows.loc[has_one, "source"]]
        table.loc[has_one, "round_trip_chrf"] = sentence_chrf(list(rows.loc[has_one, "round_trip"]), sources)
    for references in human:
        has_one = rows["source_caption_id"].isin(references.of)
        texts = [references.of[caption] for caption in rows.loc[has_one, "source_caption_id"]]
        table.loc[has_one, "reference_chrf"] = sentence_chrf(list(rows.loc[has_one, "text"].fillna("")), texts)
        table.loc[has_one, "reference_set"] = references.caption_set
    for flag, is_flagged in signs.flags.items():
        table[flag] = pd.array([None] * len(rows) if is_flagged is None else is_flagged, dtype="boolean")
    return table, None if signs.lengths is None else {**vars(signs.lengths), "threshold": LENGTH_Z}


def _split(rows: pd.DataFrame, quality: pd.DataFrame, lang: str, human: Sequence[References]) -> dict[str, Any]:
    ratios, scores = quality["length_ratio"].dropna(), rows["score"].dropna()
    summary: dict[str, Any] = {
        "captions": len(rows),
        "failed": int((rows["status"] != "ok").sum()),
        "flagged": int(quality[list(FLAGS)].fillna(False).any(axis=1).sum()),
        "flags": {flag: None if quality[flag].isna().all() else int(quality[flag].sum()) for flag in FLAGS},
        "repeated": int((quality["sources"] > 1).sum()),
        "length_ratio": float(ratios.median()) if len(ratios) else None,
        "score": float(scores.mean()) if len(scores) else None,
        "round_trip": None,
        "references": [],
    }
    if "round_trip" in rows and not (returned := rows.dropna(subset="round_trip")).empty:
        corpus, signature = corpus_chrf(list(returned["round_trip"]), list(returned["source"]))
        mean = float(quality["round_trip_chrf"].mean())
        summary["round_trip"] = {"chrF2": {"score": corpus, "sentence_mean": mean, "signature": signature}}
    for references in human:
        referenced = rows[rows["source_caption_id"].isin(references.of)]
        if referenced.empty:
            continue
        texts = [references.of[caption] for caption in referenced["source_caption_id"]]
        figures, note = corpus_scores(list(referenced["text"].fillna("")), texts, lang)
        counts = [len(human_texts) for human_texts in texts]
        summary["references"].append(
            {
                "kind": references.kind,
                "caption_set": references.caption_set,
                "source_set": references.source_set,
                "captions": len(referenced),
                "references": sum(counts),
                "each": [min(counts), max(counts)],
                "scores": figures,
                "note": note or None,
            }
        )
    return summary
