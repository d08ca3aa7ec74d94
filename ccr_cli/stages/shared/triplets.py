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
from ccr_cli.data.splits import refuse_empty
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.metrics.corruption import mix_words
from ccr_cli.stages.shared.pixels import read_pixels
from ccr_cli.stages.shared.splits import Split, items_alone

TEXTS = ("slot_ids", "source_ids", "source", "target", "backs", "back", "references")
"""Fields of `Triplets` with one value per triplet."""
PARTLY = "partly"
"""Column of `Triplets.wrong`: whether a wrong translation is wrong only in part."""


@dataclass(frozen=True)
class Triplets:
    """The training set of a method, synthetic mismatch included."""

    slot_ids: list[str]
    """Source caption whose place each triplet takes (N); with several languages, one triplet for each."""
    source_ids: list[str]
    """Source caption that each triplet has (N): another one if noise moved it."""
    langs: tuple[str, ...]
    """Languages of the translations."""
    lang_N: npt.NDArray[np.int64]
    """Index in `langs` of each triplet's translation, ascending."""
    visual: Frames
    """Features of the training items, float32; or their pictures."""
    item_N: Tensor
    """Index in `visual` of each triplet's item; also the id that masks negatives."""
    item_ids: list[str]
    """Ids of the items in `visual`."""
    source: list[str]
    """Source captions (N)."""
    target: list[str]
    """Translations (N)."""
    backs: list[str | None]
    """Back-translations into the source language (N), None where missing."""
    back: list[str] | None
    """The same; None if any of them is missing."""
    references: list[tuple[str, ...]]
    """Other translations of each source caption (N)."""
    label_V: Tensor | None
    """Category of each item, int64; None if any is missing."""
    wrong: pd.DataFrame | None
    """vs_wrong, vt_wrong, st_wrong of each triplet with synthetic noise, and `partly` with the style `words`."""
    dropped: int
    """Captions left out because their item has no features, or no translation has all texts that are read."""
    alternative_N: npt.NDArray[np.object_] | None = None
    """Name of each triplet's translation if a language has several, with a triplet for each; else None."""

    def __len__(self) -> int:
        return len(self.slot_ids)

    @cached_property
    def slot_N(self) -> npt.NDArray[np.int64]:
        """Number of each triplet's slot, which all translations of one caption share."""
        return np.unique(self.slot_ids, return_inverse=True)[1]

    @property
    def place_N(self) -> npt.NDArray[np.int64]:
        """Number of each triplet's slot and language, which all translations of one caption into one language share."""
        return self.slot_N * len(self.langs) + self.lang_N

    def by_translation(self) -> "list[tuple[npt.NDArray[np.int64], Triplets]]":
        """Row numbers and triplets of each translation that has any."""
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
        """Selects triplets; keeps all items."""
        lists = {name: getattr(self, name) for name in TEXTS}
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
        """Corrects the translations of some rows, which then match; drops their back-translations."""
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
        backs = [None if corrected else back for corrected, back in zip(rows_N, self.backs, strict=True)]
        return replace(self, target=list(target), backs=backs, back=None, wrong=wrong)


@dataclass(frozen=True)
class Gallery:
    """Visual items, and the captions of one language that search them."""

    item_ids: list[str]
    visual: Frames
    caption_ids: list[str]
    texts: list[str]
    item_T: np.ndarray
    """Row of the item that each caption describes."""
    label_V: Tensor | None
    """Category of each item, int64; None if any is missing."""
    missing: int
    """Items of the split without features."""
    first_T: np.ndarray | None = None
    """Rows of the captions that items can find, ascending, one per item; None: all captions."""


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

    Without features (None), the triplets are those of all splits, for a judge that reads texts alone. Triplets that
    lack a text which is read are left out, unless all captions lack it. The triplets of one translation follow those
    of the previous one; a mismatch moves the same captions in each. `second` has another engine's translations; by
    default, the other translations into the same language take its place. With `compared`, a judge compares texts: it
    reads back-translations or, without any, `second`. `needs` is what else the method reads (`Config.needs`).
    ArtifactError if a translation has fewer than `least` triplets left, or the noise is of other captions.
    """
    chosen = data if feats is None else Split.of(data, "train")
    items, captions = chosen.items, chosen.captions_in(data.source_lang)
    id_C, text_C, item_C = (captions[name].to_numpy(object) for name in ("caption_id", "text", "item_id"))
    del chosen, captions  # with millions of captions, every copy counts
    place, flags = pd.Index(id_C, dtype=object), None
    slot_N = source_N = translation_N = np.arange(len(place))
    words_N = np.full(len(place), -1)
    partly_N = words_N >= 0
    if noise is not None:
        slot_N, source_N, translation_N = (
            place.get_indexer(noise[name]) for name in ("slot_id", "given_source_id", "given_translation_of")
        )
        if not np.array_equal(np.unique(slot_N), np.arange(len(place))):
            raise ArtifactError("the noise was drawn over other captions than those of the training split")
        item_C = noise["given_item_id"].to_numpy(object)
        flags = noise[[name for name in ("vs_wrong", "vt_wrong", "st_wrong") if name in noise]]
        if WORDS_OF in noise:
            words_N, partly_N = place.get_indexer(noise[WORDS_OF]), noise[WORDS_OF].notna().to_numpy()
            flags = flags.assign(**{PARTLY: partly_N})
    del noise
    item_ids = list(items["item_id"])
    if feats is not None and not least:
        there = set(features.encoded_items(feats))
        item_ids = [item for item in item_ids if item in there]
    if feats is not None and (item_ids or least):
        visual, item_ids = read_visuals(feats, item_ids, needs)
    else:
        dim = 0 if feats is None else int(feats.json("encoder.json").get("dim") or 0)
        visual = Frames(torch.empty(len(item_ids), dim), torch.arange(len(item_ids) + 1))
    item_N = pd.Index(item_ids, dtype=object).get_indexer(item_C)
    usable_N = (item_N >= 0) & (source_N >= 0)
    target: list[str | None] = []
    backs: list[str | None] = []
    references: list[tuple[str, ...]] = []
    rows_of: list[npt.NDArray[np.int64]] = []
    dropped = 0
    for lang, alternatives in translations.items():
        texts, ways_back = ([of(frame, place) for frame in alternatives.values()] for of in (_forward, _ways_back))
        unread_N = np.ones(len(slot_N), dtype=bool)
        for name, forward_C, back_C, number in zip(alternatives, texts, ways_back, range(len(texts)), strict=True):
            others = texts[:number] + texts[number + 1 :] if second is None else [_forward(second, place)]
            read_N = usable_N & _there(forward_C, translation_N) & (~partly_N | _there(forward_C, words_N))
            if all(pd.notna(each_C).any() for each_C in ways_back) and (compared or "back" in needs):
                read_N &= _there(back_C, translation_N)
            elif compared and any(pd.notna(each_C).any() for each_C in others):
                read_N &= np.any([_there(each_C, source_N) for each_C in others], axis=0)
            rows = np.flatnonzero(read_N)
            if len(rows) < least:
                into = f" in {name}" if len(alternatives) > 1 else f" into {lang}" if len(translations) > 1 else ""
                what = "captions have" if feats is None else f"training triplets{into} have features and"
                raise ArtifactError(f"only {len(rows)} of {len(slot_N)} {what} all texts")
            unread_N &= ~read_N
            rows_of.append(rows)
            for joined, given_C in ((target, forward_C), (backs, back_C)):
                joined += given_C[translation_N[rows]].tolist()
                for at in np.flatnonzero(partly_N[rows]):  # the words of both captions
                    own, other = joined[at - len(rows)], given_C[words_N[rows[at]]]
                    if own is not None and other is not None:
                        seed = derive(0, "words", id_C[slot_N[rows[at]]], id_C[words_N[rows[at]]])
                        joined[at - len(rows)] = mix_words(own, other, lang, seed)
            given = zip(*(each_C[source_N[rows]] for each_C in others), strict=True) if others else [()] * len(rows)
            references += [tuple(text for text in each if text is not None) for each in given]
        dropped += int(unread_N.sum())
    sizes, names = [len(rows) for rows in rows_of], [name for each in translations.values() for name in each]
    langs = [number for number, each in enumerate(translations.values()) for _ in each]
    all_N = np.concatenate(rows_of)
    return Triplets(
        slot_ids=id_C[slot_N[all_N]].tolist(),
        source_ids=id_C[source_N[all_N]].tolist(),
        langs=tuple(translations),
        lang_N=np.repeat(langs, sizes),
        visual=visual,
        item_N=torch.from_numpy(item_N[all_N]),
        item_ids=item_ids,
        source=text_C[source_N[all_N]].tolist(),
        target=_whole(target) or [],
        backs=backs,
        back=_whole(backs),
        references=references,
        label_V=_labels(items, item_ids),
        wrong=flags.iloc[all_N].reset_index(drop=True) if flags is not None and len(flags.columns) else None,
        dropped=dropped,
        alternative_N=np.repeat(np.array(names, object), sizes) if len(names) > len(translations) else None,
    )


def _there(text_C: npt.NDArray[np.object_], at_N: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether the captions at the given rows (-1: no caption) have a text."""
    return (at_N >= 0) & pd.notna(text_C)[at_N]


def _whole(texts: list[str | None]) -> list[str] | None:
    """The texts; None if any is missing."""
    known = [text for text in texts if text is not None]
    return known if len(known) == len(texts) else None


def texts_by_source(translations: pd.DataFrame) -> dict[str, str]:
    """The text of each translation, by the id of its source caption."""
    found = translation.translated(translations)
    return dict(zip(found["source_caption_id"], found["text"], strict=True))


def _forward(translations: pd.DataFrame, place: Any) -> npt.NDArray[np.object_]:
    """The translation (C,) of each source caption, None where missing."""
    found = translation.translated(translations)
    return _placed(place.get_indexer(found["source_caption_id"]), found["text"], len(place))


def _ways_back(translations: pd.DataFrame, place: Any) -> npt.NDArray[np.object_]:
    """The back-translation (C,) of each source caption, None where missing."""
    found = translation.translated(translations, "back")
    if found.empty:
        return np.full(len(place), None)
    forward = translations.loc[translations["direction"] == "forward", ["caption_id", "source_caption_id"]]
    of = pd.Index(forward["caption_id"], dtype=object).get_indexer(found["source_caption_id"])
    at = np.where(of >= 0, place.get_indexer(forward["source_caption_id"])[of], -1)
    return _placed(at, found["text"], len(place))


def _placed(at: npt.NDArray[np.int64], texts: "pd.Series[Any]", size: int) -> npt.NDArray[np.object_]:
    text_C = np.full(size, None)
    text_C[at[at >= 0]] = texts.to_numpy(object)[at >= 0]
    return text_C


def _labels(items: pd.DataFrame, item_ids: list[str]) -> Tensor | None:
    label_V = items.set_index("item_id")["label"].loc[item_ids]
    return None if label_V.isna().any() else torch.from_numpy(label_V.to_numpy(np.int64))


def without(data: Dataset, left_out: str) -> Dataset:
    """The data set without some categories (comma-separated numbers); UsageError if no item has one of them."""
    if not left_out:
        return data
    labels = {int(label) for label in left_out.split(",")}
    absent = labels - set(data.items["label"].dropna())
    if absent:
        raise UsageError(f"no item of {data.name} has the category {min(absent)}, so it cannot be left out")
    return items_alone(data, ~data.items["label"].isin(labels))


def read_visuals(feats: base.Artifact, item_ids: list[str], needs: frozenset[str]) -> tuple[Frames, list[str]]:
    """Reads the features of items: every frame if a method needs frames, else one row per item.

    Returns the features (float32), or the pictures if a method needs them, and the items that have features.
    """
    if "media" in needs:
        return read_pixels(feats, item_ids)
    rows, offsets, found = features.read_rows(feats, item_ids, pooled="frames" not in needs)
    return Frames(torch.from_numpy(rows), torch.from_numpy(offsets)), found


def gallery(
    data: Dataset, feats: base.Artifact, split: str, captions: pd.DataFrame, what: str, needs: frozenset[str]
) -> Gallery:
    """Makes a gallery of a split's items with features, and their captions (caption_id, item_id, text).

    `what` names the captions in messages; `needs` is what the method reads, `Config.needs`. ArtifactError if there is
    no item or no caption.
    """
    items = Split.of(data, split)
    return search_captions(read_items(items, feats, needs), items, captions, what)


def read_items(split: Split, feats: base.Artifact, needs: frozenset[str]) -> Gallery:
    """A gallery of a split's items with features, still without captions; arguments as for `gallery`."""
    refuse_empty(split.items, split.name, split.data.name)
    visual, item_ids = read_visuals(feats, list(split.items["item_id"]), needs)
    label_V, missing = _labels(split.items, item_ids), len(split.items) - len(item_ids)
    return Gallery(item_ids, visual, [], [], np.empty(0, dtype=np.int64), label_V, missing)


def search_captions(items: Gallery, split: Split, captions: pd.DataFrame, what: str) -> Gallery:
    """The gallery of the same items with other captions; arguments as for `gallery`."""
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
