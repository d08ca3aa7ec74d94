"""search: queries against a run's items, or against their captions.

Shape suffixes: Q queries, V entries that are searched, K candidates of an index, D embedding.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ccr_cli.artifacts import base, dataset, run
from ccr_cli.artifacts import index as artifact
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.frames import Frames
from ccr_cli.data.splits import SPLITS, items_of
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.stages.search.faiss_index import Index
from ccr_cli.stages.search.picture_query import PictureEncoder
from ccr_cli.stages.search.vector_cache import Vectors, kept
from ccr_cli.stages.search.vocabulary import known_to
from ccr_cli.stages.shared.embedding import choose_device, embed_visuals, encode_and_embed
from ccr_cli.stages.shared.inputs import Inputs, like, refuse_unread
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.pixels import Eye, eye_of
from ccr_cli.stages.shared.triplets import read_visuals

FINDS = ("items", "captions")
ENTRIES = 1 << 25
"""Similarities that are held at once."""
BATCH = 256
"""Queries that are answered together."""


@dataclass(frozen=True)
class Hit:
    """One result of a search."""

    place: int
    item_id: str
    similarity: float
    caption: str
    """The item's first caption in the source language; of a caption that was searched for, itself."""
    image: Path | None
    caption_id: str | None = None
    """Where captions were searched."""
    lang: str | None = None
    """Its language, likewise."""


@dataclass(frozen=True)
class Answer:
    """The results of one query."""

    query: str
    """The text; of a picture, its file."""
    hits: list[Hit]
    uncertainty: float | None
    """Of the query, in [0, 1]; None where the method has none, or picture was compared with picture or text with
    text: it speaks of one with the other."""
    picture: bool = False
    """Whether the query is a picture."""
    known: bool = True
    """Whether the text encoder was trained on a word of the query (see `Vocabulary`), as far as anybody can tell."""


@dataclass(frozen=True)
class Wanted:
    """What is searched, and how."""

    split: str | None = "test"
    """Whose items; None for all."""
    find: str = "items"
    """`items`, or `captions`."""
    lang: str | None = None
    """Captions of this language alone; None: of those that the run knows."""
    device: str = "auto"
    """`auto`, `cpu` or `cuda`."""

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            UsageError: If one of them is none that there is.
        """
        if self.find not in FINDS:
            raise UsageError(f"what is searched is {' or '.join(FINDS)}, not {self.find!r}")
        if self.split not in (None, *SPLITS):
            raise UsageError(f"there is no split {self.split!r}", hint=f"splits: all, {', '.join(SPLITS)}")


Nearest = tuple[Tensor, Tensor, float | None]
"""Similarities and numbers of the most similar entries (K,), and how uncertain the query is."""


def languages(workspace: Workspace, trained: base.Artifact) -> tuple[str, ...]:
    """The languages that a run was trained on: the targets, then the source."""
    manifest = workspace.parent(trained, "dataset").file("manifest.toml").read_text(encoding="utf-8")
    source = str(tomllib.loads(manifest).get("source_lang", "en"))
    return tuple(dict.fromkeys([*run.langs(run.config(trained)), source]))


def searched_by(index: base.Artifact, device: str = "auto") -> Wanted:
    """What an index is an index of."""
    asked = index.request
    return Wanted(asked["split"], asked["find"], asked["lang"], device)


def sources(
    inputs: Inputs, trained: base.Artifact, index: base.Artifact | None = None
) -> tuple[base.Artifact, base.Artifact]:
    """The data set that is searched, the run's own (or the index's) or another one that was given, and its features.

    Raises:
        ArtifactError: If another data set was named, and has no features of the run's encoder, or several.
        UsageError: If other data were named that would not be read.
    """
    data = inputs.parent(index or trained, "dataset")
    feats = inputs.parent(index or trained, "features")
    others = [a for a in inputs.given if a.kind == "dataset" and a.id != data.id]
    if index is not None and others:
        raise UsageError(f"{index.path} is of {data.name}, not of {others[0].name}", hint="leave one of them out")
    if others:
        data, feats = others[0], like(inputs, feats, dataset.read(others[0]))
    refuse_unread(inputs, trained, data, feats)
    return data, feats


class Searcher:
    """A run and what is searched with it; opened once, asked often.

    Args:
        inputs: Where the run's parents are; another data set that was given is searched in place of the run's own.
        trained: The run.
        wanted: What is searched.
        index: An index of just that, by `searched_by`, which then finds the candidates; else search is exact.

    Raises:
        ArtifactError: If another data set was named, and has no features of the run's encoder, or several; or there
            is nothing to be searched.
        UnavailableError: If an index was given and FAISS is not installed.
        UsageError: If other data were named that would not be read.
    """

    def __init__(
        self,
        inputs: Inputs,
        trained: base.Artifact,
        wanted: Wanted | None = None,
        index: base.Artifact | None = None,
    ) -> None:
        self.wanted = wanted = wanted or Wanted()
        data, self.features = sources(inputs, trained, index)
        self.data = dataset.read(data)
        self.trained = trained
        self._images: dict[str, Path | None] = {}
        self.langs = languages(inputs.workspace, trained)
        self._on = choose_device(wanted.device)
        self._method, self._tokenizer = load_method(trained, self._on)
        self._vocabulary = known_to(inputs.workspace, trained, self._tokenizer)
        self._index, self._candidates = None, 0
        if index is not None:
            facts = artifact.about(index)
            self._index = Index.read(index.file("index.faiss"), facts["type"], facts["effort"])
            self._candidates = _candidates(self._method.uncertainty_scope())
            self.ids: Sequence[str] = artifact.entries(index)
            return
        about: dict[str, Any] = {"features": self.features.id, "split": wanted.split, "find": wanted.find}
        if wanted.find == "captions":
            about["langs"] = list(self._caption_langs())
        found = kept(inputs.workspace, trained, about, self._items if wanted.find == "items" else self._captions)
        self.ids = found.ids
        self.rows_VD = found.rows_VD.to(self._on)

    def texts(self, queries: Iterable[str], top: int) -> Iterator[Answer]:
        """Searches with words; answers come in order, as soon as some queries are there.

        Args:
            queries: Texts, best in a language that the run was trained on.
            top: How many results a query.

        Raises:
            UsageError: If a query is empty.
        """
        rest = iter(queries)
        while batch := list(islice(rest, BATCH)):
            if not all(query.strip() for query in batch):
                raise UsageError("a query needs some text", hint='ccr search "una cara sonriente"')
            yield from self._answers(batch, self.vectors(batch), top, picture=False)

    def _knows(self, query: str) -> bool:
        try:
            return self._vocabulary is None or self._vocabulary.knows(query)
        except ArtifactError:  # what the run was trained on is gone
            self._vocabulary = None
            return True

    def file(self, path: Path, top: int) -> Answer:
        """Searches with a picture, or a video.

        Raises:
            ArtifactError: If the encoder of the run's features is not here, or another one.
            UsageError: If it cannot be read.
        """
        return self.picture(self.encoder.file(path), str(path), top)

    def picture(self, features: Frames, name: str, top: int) -> Answer:
        """Searches with the features of a picture, by `encoder`."""
        query_1D = embed_visuals(self._method, features, self._on)
        return next(self._answers([name], query_1D, top, picture=True))

    @cached_property
    def encoder(self) -> PictureEncoder | Eye:
        """What encodes pictures as the run's features were; of a run that sees pictures, what prepares them."""
        if "media" in self._method.config.needs():
            return eye_of(self.features)
        return PictureEncoder(self.features, self._on)

    def image(self, item_id: str) -> Path | None:
        """The medium of an item; None where it has none inside the media root, or there is no such item."""
        return dataset.media_path(self._root, self._media.get(item_id))

    def _shown(self, item_id: str) -> Path | None:
        """The medium of an item as it was when it was first found: to resolve a path takes longer than a search."""
        if item_id not in self._images:
            self._images[item_id] = self.image(item_id)
        return self._images[item_id]

    def vectors(self, texts: Sequence[str]) -> Tensor:
        """Vectors of texts (Q, D)."""
        return encode_and_embed(self._method, self._tokenizer, texts, self._on)

    def visuals(self, item_ids: Sequence[str]) -> Vectors:
        """Vectors of those items that have features."""
        visual, ids = read_visuals(self.features, list(item_ids), self._method.config.needs())
        return Vectors(ids, embed_visuals(self._method, visual, self._on))

    def _answers(self, names: Sequence[str], query_QD: Tensor, top: int, *, picture: bool) -> Iterator[Answer]:
        crossing = picture != (self.wanted.find == "items")
        nearest = self._all if self._index is None else self._indexed
        for name, (sim_K, at_K, unsure) in zip(names, nearest(query_QD, top), strict=True):
            pairs = zip(at_K.tolist(), sim_K.tolist(), strict=True)
            hits = [self._hit(place, at, value) for place, (at, value) in enumerate(pairs, 1)]
            yield Answer(name, hits, unsure if crossing else None, picture, picture or self._knows(name))

    @torch.no_grad()
    def _all(self, query_QD: Tensor, top: int) -> Iterator[Nearest]:
        """Compares every query with every entry."""
        for part_qD in torch.split(query_QD, max(1, ENTRIES // max(1, len(self.ids)))):
            sim_qV, uncertainty_q = self._method.score(part_qD, self.rows_VD)
            best = sim_qV.topk(min(top, len(self.ids)), dim=1)
            for q in range(len(part_qD)):
                yield best.values[q], best.indices[q], None if uncertainty_q is None else float(uncertainty_q[q])

    @torch.no_grad()
    def _indexed(self, query_QD: Tensor, top: int) -> Iterator[Nearest]:
        """Compares every query with the candidates of an index.

        The uncertainty is that of the candidates found; there is none where these are fewer than it looks at, or where
        it looks at everything.
        """
        assert self._index is not None
        found_QK = self._index.nearest(query_QD, min(len(self.ids), max(top, self._candidates)))
        for query_D, found_K in zip(query_QD, found_QK, strict=True):
            at_K = found_K[found_K >= 0]
            rows_KD = self._index.vectors(at_K).to(self._on)
            sim_1K, uncertainty_1 = self._method.score(query_D[None], rows_KD)
            best = sim_1K[0].topk(min(top, len(at_K)))
            enough = 0 < min(self._candidates, len(self.ids)) <= len(at_K)
            unsure = float(uncertainty_1[0]) if enough and uncertainty_1 is not None else None
            yield best.values, torch.from_numpy(at_K)[best.indices.cpu()], unsure

    def _hit(self, place: int, at: int, similarity: float) -> Hit:
        found = self.ids[at]
        if self.wanted.find == "items":
            return Hit(place, found, similarity, self._first_caption.get(found, ""), self._shown(found))
        item_id, text, lang = self._caption[found]
        return Hit(place, item_id, similarity, text, self._shown(item_id), found, lang)

    def _items(self) -> Vectors:
        """The items of the split that have features."""
        items = self.data.items if self.wanted.split is None else items_of(self.data.items, self.wanted.split)
        if items.empty:
            raise ArtifactError(f"{self.data.name} has no {self.wanted.split} items")
        return self.visuals(list(items["item_id"]))

    def _captions(self) -> Vectors:
        """The captions of the split's items in the languages wanted."""
        items = self.data.items if self.wanted.split is None else items_of(self.data.items, self.wanted.split)
        langs = self._caption_langs()
        found = self.data.captions
        found = found[found["lang"].isin(langs) & found["item_id"].isin(set(items["item_id"]))]
        if found.empty:
            where = f" of its {self.wanted.split} items" if self.wanted.split else ""
            raise ArtifactError(f"{self.data.name} has no captions{where} in {' or '.join(langs)}")
        return Vectors(list(found["caption_id"]), self.vectors(list(found["text"])))

    def _caption_langs(self) -> tuple[str, ...]:
        return (self.wanted.lang,) if self.wanted.lang else self.langs

    @cached_property
    def _first_caption(self) -> dict[str, str]:
        """Of each item, in the source language."""
        source = self.data.captions[self.data.captions["lang"] == self.data.source_lang]
        first = source.sort_values("k", kind="stable").drop_duplicates("item_id")
        return dict(zip(first["item_id"], first["text"], strict=True))

    @cached_property
    def _caption(self) -> dict[str, tuple[str, str, str]]:
        """Item, text and language of each caption."""
        table = self.data.captions
        rows = zip(table["item_id"], table["text"], table["lang"], strict=True)
        return dict(zip(table["caption_id"], rows, strict=True))

    @cached_property
    def _media(self) -> dict[str, str | None]:
        return dict(zip(self.data.items["item_id"], self.data.items["media"], strict=True))

    @cached_property
    def _root(self) -> Path | None:
        return dataset.media_root(self.data.artifact)


def _candidates(scope: str) -> int:
    """How many candidates a method's uncertainty looks at, 1 where the query alone; 0 where it looks at all."""
    found = re.match(r"top(\d+)", scope)
    return int(found[1]) if found else int(scope == "query")


def search(
    inputs: Inputs,
    trained: base.Artifact,
    queries: Sequence[str],
    *,
    split: str | None = "test",
    top: int = 5,
    device: str = "auto",
) -> list[Answer]:
    """Searches a run's items with words: an answer a query, in order. What can go wrong: see `Searcher`."""
    return list(Searcher(inputs, trained, Wanted(split, device=device)).texts(queries, top))
