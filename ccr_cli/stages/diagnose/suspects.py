"""The most suspicious pairs of a diagnosis for inspection: as table rows with their pictures, and as an HTML sheet."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ccr_cli.artifacts import base, dataset, diagnosis
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.console import counted
from ccr_cli.errors import UsageError
from ccr_cli.metrics.mtquality import WORD
from ccr_cli.metrics.word_flags import flagged, in_words
from ccr_cli.report.page import lists
from ccr_cli.report.words.artifact_summaries import threshold
from ccr_cli.stages.diagnose.verdicts import worst_rows
from ccr_cli.stages.shared.other_translations import learned, parallel_lexicon, texts_of, witness_lexicon

SHOWN = (
    *("place", "p_clean", "verdict", "rare", "split", "slot_id", "source_text", "translation", "back", "truth"),
    *("witness", "unmatched_source", "unmatched_translation", "flags", "image"),
)
"""Columns of the table that programs read."""
MOST = 5_000
"""Most pairs on one sheet."""


def most_suspicious(judged: pd.DataFrame, data: base.Artifact, count: int) -> list[dict[str, Any]]:
    """The most suspicious pairs from `with_words`, at most `count`, as dicts of their columns with None for null.

    Also has `rare`, whether the pair has words that the model hardly saw, and `image`, the path of the picture or None.
    """
    image = dataset.image_finder(data)
    return [
        row | {"rare": bool(row["support"] < diagnosis.RARE), "image": image(str(row["item_id"]))}
        for row in worst_rows(judged, judged.columns.tolist(), count)
    ]


def judged_pairs(
    workspace: Workspace, made: base.Artifact, most: int | None = None, parallel: str = ""
) -> tuple[pd.DataFrame, base.Artifact]:
    """The pairs of a diagnosis from `with_words`, which explains `most` and `parallel`, and their data set."""
    others = [workspace.linked(made, parent) for parent in made.parents if parent.kind == "translation"]
    of_run = diagnosis.of_run(made)
    data = workspace.parent(workspace.parent(made, "run") if of_run else others[0], "dataset")
    witnesses = others if of_run else others[1:]  # the first is the judged one
    pairs = with_words(diagnosis.read_pairs(made), dataset.read(data).source_lang, most, witnesses, parallel)
    return pairs, data


def with_words(
    pairs: pd.DataFrame,
    source_lang: str,
    most: int | None = None,
    others: Sequence[base.Artifact] = (),
    parallel: str = "",
) -> pd.DataFrame:
    """The most suspicious pairs, `most` of them or all, with the words that look wrong.

    A lexicon (`metrics.lexical`) is learned from all pairs of a language, whatever the judge; a second one from
    `others`, translations of the same captions, and from back-translations. A file of `parallel` text replaces both.
    The columns `unmatched_source` and `unmatched_translation` have the words without a counterpart and those left
    untranslated, comma-separated; `spans_source` and `spans_translation` say where each begins and ends; `flags` has
    what is plainly wrong (`metrics.word_flags`); `witness` has the text of the other translation if there is just one.
    """
    most, parts = len(pairs) if most is None else most, []
    for lang, part in pairs.groupby("lang", sort=False):
        source, target = tuple(part["source_text"]), tuple(part["translation"])
        first = part[part["place"] <= most]
        if lang == source_lang:  # nothing was translated
            lists = {name: pd.Series([()] * len(first), first.index) for name in ("spans_source", "spans_translation")}
            parts.append(first.assign(flags="", unmatched_source="", unmatched_translation="", **lists))
            continue
        known = texts_of(part["source_caption_id"], part["lang"], others)
        if parallel:
            lexicon, witness = parallel_lexicon(Path(parallel), source, target), None
        else:
            lexicon, witness = learned(source, target), witness_lexicon(source, target, list(part["back"]), known)
        texts = list(zip(first["source_text"], first["translation"], strict=True))
        flags = pd.Series(flagged(source, target, source_lang, str(lang)), index=part.index, dtype=object)[first.index]
        left = [flags_of.get("untranslated") or flags_of.get("copy", ()) for flags_of in flags]
        places = [
            tuple(map(_with_places, pair, lexicon.unmatched(*pair, witness), (words, words)))
            for pair, words in zip(texts, left, strict=True)
        ]
        columns: dict[str, list[Any]] = {"flags": list(map(in_words, flags))}
        if len(others) == 1:
            witnesses = pd.Series([", ".join(of_text) for of_text in known], index=part.index, dtype=object)
            columns["witness"] = list(witnesses[first.index])
        for side, name in enumerate(("source", "translation")):
            columns[f"spans_{name}"] = [each[side] for each in places]
            pairs_of_side = zip(texts, places, strict=True)
            words = [", ".join(text[side][a:b] for a, b in each[side]) for text, each in pairs_of_side]
            columns[f"unmatched_{name}"] = words
        parts.append(first.assign(**{k: pd.Series(v, index=first.index, dtype=object) for k, v in columns.items()}))
    return pd.concat(parts).sort_index()


def _with_places(text: str, places: Sequence[tuple[int, int]], words: Sequence[str]) -> list[tuple[int, int]]:
    """The given places in a text together with those of words that the engine left untranslated, in order."""
    left = (match.span() for match in WORD.finditer(text) if match[0].lower() in words)
    apart = [(first, last) for first, last in left if not any(a < last and first < b for a, b in places)]
    return sorted([*places, *apart])


def terminal_columns(rows: list[dict[str, Any]]) -> list[str]:
    """The columns that fit on a terminal: without ids and paths, and without those that are empty in all rows.

    P(clean) of a translation is left out: it finds a translation of something else, but not a wrong word.
    """
    left_out = {"slot_id", "image"} | ({"p_clean"} if rows and "split" in rows[0] else set())
    if all(row["translation"] == row["source_text"] for row in rows):
        left_out.add("translation")

    def has_value(value: object) -> bool:  # 0.0 is one
        return value is not None and value is not False and value != ""

    return [name for name in SHOWN if name not in left_out and any(has_value(row.get(name)) for row in rows)]


def sheet(rows: list[dict[str, Any]], made: base.Artifact, data: base.Artifact) -> str:
    """Rows of `most_suspicious` with their pictures as one self-contained page; UsageError if they are too many."""
    if len(rows) > MOST:
        raise UsageError(f"{len(rows):,} pairs are too many for one sheet (at most {MOST:,})", hint="--worst 200")
    image_of = {str(row["item_id"]): row["image"] for row in rows}
    summary = diagnosis.summary(made)
    judged = counted(summary["pairs"], diagnosis.judged(summary))
    title = f"{diagnosis.subject(summary)}: the {len(rows):,} most suspicious of {judged}"
    title += f", {summary['called_noisy']:,} of which are called noisy"
    source_lang, rule = dataset.read(data).source_lang, threshold(summary["split"])
    return lists.sheet(rows, image_of.get, summary["lang"], source_lang, title, rule)


def write_sheet(path: Path, rows: list[dict[str, Any]], made: base.Artifact, data: base.Artifact) -> None:
    """Writes a `sheet` to a file."""
    with base.atomic_open(path, "w") as handle:
        handle.write(sheet(rows, made, data))


def check_sheet(path: Path) -> Path:
    """Returns the path of a `sheet`; UsageError unless it names an HTML file in an existing folder."""
    if path.suffix != ".html":
        raise UsageError(f"the sheet is an .html file, not {path.name!r}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}")
    return path
