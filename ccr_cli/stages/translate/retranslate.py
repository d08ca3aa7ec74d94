"""`ccr translate --only`: some captions are translated again or corrected by hand, the others stay as they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ccr_cli.artifacts import base, dataset, translation
from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.console import counted, say, warn
from ccr_cli.data import pairs_file
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.stages.shared.inputs import Inputs, made_from
from ccr_cli.stages.shared.judged_texts import forward_texts, judged, texts_of


@dataclass(frozen=True)
class Retranslation:
    """The captions that get a new translation, and the translation from which the others are kept."""

    original: base.Artifact
    captions: frozenset[str]
    corrections: Mapping[str, str]
    """Translations that a person typed, by caption; an engine translates the other captions."""
    sha256: str
    """Hash of the list that names the captions."""
    engine_named: bool
    """Whether the command line names an engine; else a list that changes no text is an error."""
    evaluated: Sequence[str]
    """The splits of these captions other than training."""
    no_correction: str
    """What the list lacks, if no caption is corrected."""

    @cached_property
    def sent(self) -> frozenset[str]:
        """The captions that an engine translates."""
        return self.captions - self.corrections.keys()

    @property
    def request(self) -> dict[str, Any]:
        """The part of the original's request that this one shares, and which captions are translated anew."""
        shared = {key: self.original.request[key] for key in ("split", "back", "queries")}
        only: dict[str, Any] = {"sha256": self.sha256, "of": self.original.request}
        only |= {"corrected": len(self.corrections)} if self.corrections else {}
        return shared | {"only": only | ({"evaluated": list(self.evaluated)} if self.evaluated else {})}

    def refuse_same(self, request: Mapping[str, Any]) -> None:
        """Refuses to translate again with the same engine and options."""
        requests = request, self.original.request
        new, old = ({k: v for k, v in r.items() if k == "engine" or k.startswith("set.")} for r in requests)
        if new == old and self.sent:
            none = "" if self.corrections else f"the list has {self.no_correction}, and "
            message = f"{none}{self.original.name} was made by the same engine: the captions would come out the same"
            hint = "type corrections into the list; or another --engine, or another model or table of it with --set"
            raise UsageError(message, hint=hint)

    def corrected(self, captions: pd.DataFrame, lang: str) -> pd.DataFrame:
        """The rows of the translations that a person typed, given the source captions."""
        rows = captions[captions["caption_id"].isin(self.corrections)]
        frame: pd.DataFrame = rows[["item_id", "split", "k"]].assign(
            caption_id=rows["caption_id"] + f"@{lang}",
            lang=lang,
            direction="forward",
            text=rows["caption_id"].map(self.corrections).astype(object),
            source_caption_id=rows["caption_id"],
            engine=translation.BY_HAND,
            model=self.sha256[:6],
            score=np.nan,
            status="ok",
        )
        return frame

    def ids(self, lang: str, home: str) -> set[str]:
        """The ids of all translations of these captions, in every direction and round."""
        rounds = int(self.original.request.get("rounds", 1))
        suffixes = [f"@{lang}@{home}" * number + f"@{lang}" for number in range(rounds)]
        endings = [suffix + end for suffix in suffixes for end in ("", f"@{home}")]
        return {caption + ending for caption in self.captions for ending in endings}

    def merge(self, new: pd.DataFrame, lang: str, home: str) -> pd.DataFrame:
        """Replaces the original's rows of these captions, in `lang` and in the source language, with the new rows."""
        before = translation.read(self.original)
        kept = before[~before["caption_id"].isin(self.ids(lang, home))].copy()
        kept.loc[kept["status"] != "ok", "status"] = f"not translated in {self.original.name}"
        place_of = {caption: place for place, caption in enumerate(before["caption_id"])}
        frame = pd.concat([kept, new[translation.CAPTIONS.names]], ignore_index=True)
        places = [place_of.get(caption, len(place_of)) for caption in frame["caption_id"]]
        ordered: pd.DataFrame = frame.iloc[np.argsort(places, kind="stable")].reset_index(drop=True)
        changed = {caption for caption, _ in forward_texts(ordered) - forward_texts(before)} & self.captions
        by_hand = (
            f", {len(changed & self.corrections.keys())} of them {translation.BY_HAND}" if self.corrections else ""
        )
        outcome = f"new translations: {len(changed)} of {counted(len(self.captions), 'caption')}{by_hand}; "
        outcome += f"the others are those of {self.original.name}"
        if not (changed or self.engine_named):
            raise UsageError(f"{outcome}: nothing was written", hint="another --engine, or other corrections")
        say(outcome) if changed else warn(f"{outcome}; try another engine or model")
        return ordered


def data_sets(inputs: Inputs, only: Path) -> set[str] | None:
    """The ids of the workspace's data sets that a list of captions may be about; None if there is no choice.

    They have all its captions; if several do, those with most of its source texts, then of its translations.

    Raises:
        ArtifactError: If no data set has the captions.
    """
    known = inputs.workspace.artifacts("dataset")
    if len(known) < 2:
        return None
    pairs = pairs_file.read(only)
    pairs.require("source_caption_id")
    rows, listed = pairs.frame, set(pairs.frame["source_caption_id"])
    sources = set(texts_of(rows, "source_text")) if "source_text" in rows else set()
    translated = set(texts_of(rows, "translation")) if "translation" in rows else set()
    order: dict[str, tuple[int, int]] = {}
    for artifact in known:
        data = dataset.read(artifact)
        captions = data.captions_in(data.source_lang)
        own = captions[captions["caption_id"].isin(listed)].rename(columns={"caption_id": "source_caption_id"})
        if len(own) == len(listed):
            made = filter(made_from(artifact), inputs.workspace.artifacts("translation") if translated else [])
            found = max((len(forward_texts(translation.read(a)) & translated) for a in made), default=0)
            order[artifact.id] = len(sources & set(texts_of(own))), found
    if not order:
        problem = f"no data set in {inputs.workspace.root} has all captions in {only}"
        raise ArtifactError(problem, hint=f"name theirs: ccr translate DATASET --only {only}")
    return {id_ for id_, place in order.items() if place == max(order.values())}


def languages(only: Path, named: Sequence[base.Artifact]) -> list[str]:
    """The languages of a list of captions: those of the named translations, else those that the list names.

    Raises:
        UsageError: If neither is known.
    """
    langs = {translation.language(artifact) for artifact in named if artifact.kind == "translation"}
    if langs := langs or pairs_file.read(only).langs:
        return sorted(langs)
    raise UsageError(f"which language? {only} has no column lang", hint="give --lang, or the translation to start from")


def find(inputs: Inputs, data: Dataset, lang: str, only: Path, engine: str) -> Retranslation:
    """Reads the list of captions and finds the translation to start from.

    A list with verdicts names the captions that it calls noisy; a list without names all of its captions. A correction
    in the list is the new translation of its caption, whatever the verdict. In a list with corrections the other
    captions are only translated again if an engine is named. A caption whose translation is not the one that was judged
    is skipped: it was translated again since, or switched by synthetic noise.

    Raises:
        ArtifactError: If there is no such translation, or more than one.
        UsageError: If the list names a caption that is no source caption, nothing to translate again, another
            language, or two corrections of one caption.
    """
    pairs = pairs_file.read(only)
    pairs.require("source_caption_id")
    pairs.refuse_others(data, "source_caption_id")
    if pairs.langs and lang not in pairs.langs:
        problem = f"{only} has pairs in {' and '.join(sorted(pairs.langs))}, not in {lang}"
        raise UsageError(problem, hint="leave --lang out")

    rows = pairs.frame.assign(correction=pairs.correction)
    rows = rows[rows["source_caption_id"].isin(data.captions["caption_id"])]
    if foreign := sorted(pairs.langs - {lang}):
        left_N, langs = rows["lang"].isin(foreign), " and ".join(foreign)
        say(f"{only}: {counted(int(left_N.sum()), 'pair')} in {langs}, left out of the translation into {lang}")
        rows = rows[~left_N]

    def of_data(artifact: base.Artifact) -> bool:
        return made_from(data.artifact)(artifact) and translation.language(artifact) == lang

    translations = list(filter(of_data, inputs.workspace.artifacts("translation")))
    judged_ids = judged(translations, rows)

    def fits(artifact: base.Artifact) -> bool:
        return of_data(artifact) and (artifact in inputs.named or artifact.id in judged_ids)

    original = inputs.one("translation", f"of {data.name} into {lang}", fits, hint=f"ccr translate --lang {lang}")
    if "translation" not in rows and original not in inputs.named:
        for made in translations:
            if made.request.get("only", {}).get("sha256", pairs.sha256) != pairs.sha256:
                path = inputs.workspace.relative(made.path)
                warn(f"the changes of {made.name} are left out; to keep them: ccr translate {path} --only {only}")
    if "alternative" in rows:
        rows = rows[rows["alternative"] == original.path.name]
    other = rows.iloc[:0]
    if "translation" in rows:
        table = translation.read(original)
        forward = forward_texts(table) | {(id_, "") for id_ in table.loc[table["status"] != "ok", "source_caption_id"]}
        judged_N = [pair in forward for pair in texts_of(rows, "translation")]
        other = rows[~np.array(judged_N, dtype=bool)]
    noisy = rows["verdict"] == "noisy" if "verdict" in rows else rows["correction"] == ""
    corrected = rows["correction"] != ""
    left = int((noisy & ~corrected).sum()) if corrected.any() and engine == "auto" else 0
    rows = rows[corrected if left else noisy | corrected]
    if not other.empty:
        others = counted(other["source_caption_id"].nunique(), "caption")
        where = f"{others} in {only}, such as {other['source_caption_id'].iloc[0]!r}"
        warn(f"{where}, with another translation than in {original.name}: skipped; {pairs_file.WHERE_TO_CORRECT}")
    if rows.empty and not other.empty:
        raise UsageError(
            f"{only} has no noisy pair in {lang}, and {pairs.no_correction}", hint=pairs_file.WHERE_TO_CORRECT
        )
    if rows.empty:
        raise UsageError(f"{only} has no noisy pair in {lang}, and {pairs.no_correction}: nothing to do")
    rows = rows[~rows.index.isin(other.index)]
    if rows.empty:
        message = f"{original.name} has none of the noisy or corrected translations in {only}"
        hint = f"{pairs_file.WHERE_TO_CORRECT}; or name the translation that was judged"
        raise UsageError(message, hint=hint)
    chosen = set(rows["source_caption_id"])
    typed = rows[rows["correction"] != ""]
    corrections = dict(zip(typed["source_caption_id"], typed["correction"], strict=True))
    for caption, text in zip(typed["source_caption_id"], typed["correction"], strict=True):
        if corrections[caption] != text:
            raise UsageError(f"{only} corrects {caption!r} twice: {text!r} and {corrections[caption]!r}")
    if left:
        captions = counted(left, "noisy caption")
        say(f"{captions} without a correction: not translated again; --engine NAME translates them again")
    items = data.captions.loc[data.captions["caption_id"].isin(chosen), "item_id"]
    splits = set(data.items.loc[data.items["item_id"].isin(items), "split"])
    named, evaluated = engine != "auto", sorted(splits - {"train"})
    return Retranslation(original, frozenset(chosen), corrections, pairs.sha256, named, evaluated, pairs.no_correction)
