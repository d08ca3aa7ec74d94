"""From artifacts to tensors: training triplets, and galleries with queries.

Shape suffixes: N triplets, V visual items, T texts, D feature dimension.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from ccr_cli.artifacts import base, features, translation
from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.artifacts.noise import WORDS_OF
from ccr_cli.data.frames import Frames
from ccr_cli.data.seeds import derive
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.metrics.corruption import mix_words
from ccr_cli.stages.shared.pixels import read_pixels
from ccr_cli.stages.shared.splits import Split, items_alone

PARTLY = "partly"
"""Column of `Triplets.wrong`: whether a wrong translation is so in part."""


@dataclass(frozen=True)
class Triplets:
    """The training set of a method, synthetic mismatch included."""

    slot_ids: list[str]
    """The source caption whose place each triplet takes (N); of several languages one triplet each."""
    langs: tuple[str, ...]
    """Languages of the translations."""
    lang_N: npt.NDArray[np.int64]
    """Which of `langs` each triplet's translation is in, ascending."""
    visual: Frames
    """Features of the training items, float32; or their pictures."""
    item_N: Tensor
    """Which of `visual` each triplet has; also the id by which negatives are masked."""
    item_ids: list[str]
    """Item of each of `visual`."""
    source: list[str]
    """Source captions (N)."""
    target: list[str]
    """Translations (N)."""
    back: list[str] | None
    """The translations, translated back into the source language (N); None where one is missing."""
    references: list[tuple[str, ...]]
    """What other translations say for the source captions (N)."""
    label_V: Tensor | None
    """Category of each item, int64; None where one is missing."""
    wrong: pd.DataFrame | None
    """vs_wrong, vt_wrong, st_wrong of each triplet with synthetic noise; of the style `words` also `partly`."""
    dropped: int
    """Captions left out because an item has no features, or none of its translations has all texts that are read."""
    alternative_N: npt.NDArray[np.object_] | None = None
    """Name of each triplet's translation if a language has several, then with a triplet for each; None: one each."""

    def __len__(self) -> int:
        return len(self.slot_ids)

    @cached_property
    def slot_N(self) -> npt.NDArray[np.int64]:
        """Number of each triplet's slot: those of one caption in several translations share it."""
        return np.unique(self.slot_ids, return_inverse=True)[1]

    @property
    def place_N(self) -> npt.NDArray[np.int64]:
        """Number of each triplet's slot and language: the translations of one caption into one language share it."""
        return self.slot_N * len(self.langs) + self.lang_N

    def by_translation(self) -> "list[tuple[npt.NDArray[np.int64], Triplets]]":
        """The triplets of each translation that has some, and which of all they are."""
        if len(self.langs) == 1 and self.alternative_N is None:
            return [(np.arange(len(self)), self)]
        names_N = "" if self.alternative_N is None else self.alternative_N
        of_N = pd.DataFrame({"lang": self.lang_N, "name": names_N}).groupby(["lang", "name"], sort=False).ngroup()
        parts = []
        for number in range(of_N.max() + 1):
            rows = np.flatnonzero(of_N == number)
            lang, lang_N = self.langs[self.lang_N[rows[0]]], np.zeros(len(rows), dtype=np.int64)
            parts.append((rows, replace(self.select(rows), langs=(lang,), lang_N=lang_N)))
        return parts

    def select(self, rows: npt.NDArray[np.int64]) -> "Triplets":
        """Some of the triplets; their items stay."""
        lists = {name: getattr(self, name) for name in ("slot_ids", "source", "target", "back", "references")}
        texts: Any = {name: [values[row] for row in rows] for name, values in lists.items() if values is not None}
        return replace(
            self,
            **texts,
            lang_N=self.lang_N[rows],
            alternative_N=None if self.alternative_N is None else self.alternative_N[rows],
            item_N=self.item_N[torch.from_numpy(rows)],
            wrong=None if self.wrong is None else self.wrong.iloc[rows].reset_index(drop=True),
        )

    def correct(self, rows_N: npt.NDArray[np.bool_], texts_N: npt.NDArray[np.object_]) -> "Triplets":
        """The triplets with other translations in some rows, which then match; back-translations no longer fit."""
        if not rows_N.any():
            return self
        wrong = self.wrong
        if wrong is not None:
            intact = {
                "vt_wrong": wrong["vt_wrong"] & ~rows_N,
                "st_wrong": wrong["st_wrong"].mask(rows_N, wrong["vs_wrong"]),
            }
            intact |= {PARTLY: wrong[PARTLY] & ~rows_N} if PARTLY in wrong else {}
            wrong = wrong.assign(**intact)
        target = np.where(rows_N, texts_N, np.array(self.target, dtype=object))
        return replace(self, target=list(target), back=None, wrong=wrong)


@dataclass(frozen=True)
class Gallery:
    """Visual items and the captions that search them, one language."""

    item_ids: list[str]
    visual: Frames
    caption_ids: list[str]
    texts: list[str]
    item_T: np.ndarray
    """Row of the item that each caption describes."""
    label_V: Tensor | None
    """Category of each item, int64; None where one is missing."""
    missing: int
    """Items of the split without features."""
    first_T: np.ndarray | None = None
    """Rows of the captions that an item can find, ascending, one of each item; None: all of its captions."""


def training_triplets(
    data: Dataset,
    translations: Mapping[str, Mapping[str, pd.DataFrame]],
    noise: pd.DataFrame | None,
    feats: base.Artifact | None,
    needs: frozenset[str] = frozenset(),
    second: pd.DataFrame | None = None,
    *,
    compared: bool = False,
    least: int = 2,
) -> Triplets:
    """Joins captions, translations (by language and name), noise and features into triplets, in the data set's order.

    Without features (None) the triplets are those of every item of all splits, for a judge that reads texts alone.
    Where some captions have a text that is read and others lack it, the triplets of the latter are left out. The
    triplets of one translation follow on those of the other; a mismatch moves the same captions in each of them.
    `second` are another engine's translations, by default the other ones of the same language; with `compared` the
    judge `translation` speaks, which reads back-translations, else these. `needs` is what else the method reads,
    `Config.needs`. If fewer than `least` are left, or the noise is of other captions, it is an ArtifactError.
    """
    chosen = data if feats is None else Split.of(data, "train")
    item_ids = list(chosen.items["item_id"])
    if feats is not None and not least:
        index = features.read_index(feats)
        there = set(index.loc[index["n_rows"] > 0, "item_id"])
        item_ids = [item for item in item_ids if item in there]
    if feats is not None and (item_ids or least):
        visual, item_ids = read_visuals(feats, item_ids, needs)
    else:
        dim = 0 if feats is None else int(feats.json("encoder.json").get("dim") or 0)
        visual = Frames(torch.empty(len(item_ids), dim), torch.arange(len(item_ids) + 1))
    row_of = {item: row for row, item in enumerate(item_ids)}
    captions = chosen.captions[chosen.captions["lang"] == data.source_lang]
    text_of = dict(zip(captions["caption_id"], captions["text"], strict=True))
    if noise is None:
        ids = captions["caption_id"]
        noise = pd.DataFrame(
            {"slot_id": ids, "given_item_id": captions["item_id"], "given_source_id": ids, "given_translation_of": ids}
        )
    elif set(noise["slot_id"]) != set(captions["caption_id"]):
        raise ArtifactError("the noise was drawn over other captions than those of the training split")
    usable = noise["given_item_id"].isin(set(row_of)) & noise["given_source_id"].isin(set(text_of))
    kept, target, backs, references, dropped = [], [], [], [], 0
    for lang_number, (lang, alternatives) in enumerate(translations.items()):
        texts, ways_back = ([of(frame) for frame in alternatives.values()] for of in (texts_by_source, round_trips))
        unread = pd.Series(True, noise.index)
        for name, forward, back, number in zip(alternatives, texts, ways_back, range(len(texts)), strict=True):
            others = texts[:number] + texts[number + 1 :] if second is None else [texts_by_source(second)]
            other = set[str]().union(*others)
            read = usable & noise["given_translation_of"].isin(set(forward))
            if WORDS_OF in noise:
                read &= noise[WORDS_OF].isna() | noise[WORDS_OF].isin(set(forward))
            if all(ways_back) and (compared or "back" in needs):
                read &= noise["given_translation_of"].isin(set(back))
            elif other and compared:
                read &= noise["given_source_id"].isin(other)
            if read.sum() < least:
                into = f" in {name}" if len(alternatives) > 1 else f" into {lang}" if len(translations) > 1 else ""
                what = "captions have" if feats is None else f"training triplets{into} have features and"
                raise ArtifactError(f"only {read.sum()} of {len(noise)} {what} all texts")
            unread &= ~read
            kept.append(noise[read].assign(lang=lang_number, alternative=name))
            target += texts_of(kept[-1], forward, lang)
            backs += texts_of(kept[-1], back, lang)
            references += [tuple(each[i] for each in others if i in each) for i in kept[-1]["given_source_id"]]
        dropped += int(unread.sum())
    joined = pd.concat(kept, ignore_index=True)
    if WORDS_OF in joined:
        joined[PARTLY] = joined[WORDS_OF].notna()
    several = any(len(alternatives) > 1 for alternatives in translations.values())
    flags = [c for c in ("vs_wrong", "vt_wrong", "st_wrong", PARTLY) if c in joined.columns]
    return Triplets(
        slot_ids=list(joined["slot_id"]),
        langs=tuple(translations),
        lang_N=joined["lang"].to_numpy(np.int64),
        visual=visual,
        item_N=torch.tensor([row_of[i] for i in joined["given_item_id"]], dtype=torch.int64),
        item_ids=item_ids,
        source=[text_of[i] for i in joined["given_source_id"]],
        target=_whole(target) or [],
        back=_whole(backs),
        references=references,
        label_V=_labels(chosen.items, item_ids),
        wrong=joined[flags] if flags else None,
        dropped=dropped,
        alternative_N=joined["alternative"].to_numpy(object) if several else None,
    )


def texts_of(rows: pd.DataFrame, by_caption: Mapping[str, str], lang: str) -> list[str | None]:
    """The text that each row of a mismatch has among translations, or ways back, by their source caption.

    Rows that are partly wrong get words of another caption's text, drawn by both captions: the same in every run.
    """
    texts = [by_caption.get(caption) for caption in rows["given_translation_of"]]
    if WORDS_OF not in rows:
        return texts
    others = [None if caption is None else by_caption.get(caption) for caption in rows[WORDS_OF]]
    seeds = (derive(0, "words", *ids) for ids in zip(rows["slot_id"], rows[WORDS_OF], strict=True))
    return [
        text if text is None or other is None else mix_words(text, other, lang, seed)
        for text, other, seed in zip(texts, others, seeds, strict=True)
    ]


def _whole(texts: list[str | None]) -> list[str] | None:
    """The texts, None where one is missing."""
    known = [text for text in texts if text is not None]
    return known if len(known) == len(texts) else None


def texts_by_source(translations: pd.DataFrame, direction: str = "forward") -> dict[str, str]:
    """Translations of one direction by their source caption."""
    found = translation.translated(translations, direction)
    return dict(zip(found["source_caption_id"], found["text"], strict=True))


def round_trips(translations: pd.DataFrame) -> dict[str, str]:
    """Back-translations by the source caption that they began with."""
    forward = translations[translations["direction"] == "forward"]
    began = dict(zip(forward["caption_id"], forward["source_caption_id"], strict=True))
    return {began[i]: text for i, text in texts_by_source(translations, "back").items()}


def _labels(items: pd.DataFrame, item_ids: list[str]) -> Tensor | None:
    label_V = items.set_index("item_id")["label"].loc[item_ids]
    return None if label_V.isna().any() else torch.from_numpy(label_V.to_numpy(np.int64))


def without(data: Dataset, left_out: str) -> Dataset:
    """The data set without categories (numbers with commas between, or none); UsageError if no item has one of them."""
    if not left_out:
        return data
    labels = {int(label) for label in left_out.split(",")}
    absent = labels - set(data.items["label"].dropna())
    if absent:
        raise UsageError(f"no item of {data.name} has the category {min(absent)}, so it cannot be left out")
    return items_alone(data, ~data.items["label"].isin(labels))


def read_visuals(feats: base.Artifact, item_ids: list[str], needs: frozenset[str]) -> tuple[Frames, list[str]]:
    """Reads the features of items: every frame where a method needs frames, else one row an item.

    Returns the features, float32, or the pictures, where a method needs these; and the items that have features.
    """
    if "media" in needs:
        return read_pixels(feats, item_ids)
    rows, offsets, found = features.read_rows(feats, item_ids, pooled="frames" not in needs)
    return Frames(torch.from_numpy(rows), torch.from_numpy(offsets)), found


def gallery(
    data: Dataset, feats: base.Artifact, split: str, captions: pd.DataFrame, what: str, needs: frozenset[str]
) -> Gallery:
    """Makes a gallery of a split's items with features, and their captions (caption_id, item_id, text).

    `what` names the captions in messages; `needs` is what the method reads, `Config.needs`. No item or caption is an
    ArtifactError.
    """
    items = Split.of(data, split)
    return search_captions(read_items(items, feats, needs), items, captions, what)


def read_items(split: Split, feats: base.Artifact, needs: frozenset[str]) -> Gallery:
    """A gallery of a split's items with features, without captions, as for `gallery`."""
    if split.items.empty:
        raise ArtifactError(f"{split.data.name} has no {split.name} items")
    visual, item_ids = read_visuals(feats, list(split.items["item_id"]), needs)
    label_V, missing = _labels(split.items, item_ids), len(split.items) - len(item_ids)
    return Gallery(item_ids, visual, [], [], np.empty(0, dtype=np.int64), label_V, missing)


def search_captions(items: Gallery, split: Split, captions: pd.DataFrame, what: str) -> Gallery:
    """The gallery of the same items with other captions, as for `gallery`."""
    row_of = {item: row for row, item in enumerate(items.item_ids)}
    chosen = captions[captions["item_id"].isin(set(row_of)) & captions["text"].notna()]
    if chosen.empty:
        raise ArtifactError(f"{split.data.name} has no {what} for its {split.name} items")
    return replace(
        items,
        caption_ids=list(chosen["caption_id"]),
        texts=list(chosen["text"]),
        item_T=np.array([row_of[i] for i in chosen["item_id"]], dtype=np.int64),
    )
