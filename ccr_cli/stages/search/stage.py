"""search: queries against a run's items, or against their captions.

Shape suffixes: Q queries, V entries that are searched, K candidates or results, D embedding.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

import ccr_cli
from ccr_cli.artifacts import base, dataset, features, run
from ccr_cli.artifacts import index as index_artifact
from ccr_cli.artifacts.workspace import Workspace, slug
from ccr_cli.console import counted, say, warn
from ccr_cli.data.frames import Frames
from ccr_cli.data.splits import items_of, refuse_empty
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.metrics.logistic import HitProbability
from ccr_cli.report.content import ExampleHit, ExampleSearch
from ccr_cli.stages.search.faiss_index import Index
from ccr_cli.stages.search.options import SearchOptions, require_text
from ccr_cli.stages.search.vocabulary import vocabulary_of
from ccr_cli.stages.shared.embedding import choose_device, embed_visuals, encode_and_embed
from ccr_cli.stages.shared.inputs import Inputs, like, made_from, refuse_unread, require_parent
from ccr_cli.stages.shared.load_run import load_method, translated_captions
from ccr_cli.stages.shared.picture_encoder import PictureEncoder
from ccr_cli.stages.shared.triplets import gallery, read_visuals

EXAMPLE_LETTERS = 60
"""Maximum length of a caption used as an example query."""
ENTRIES = 1 << 25
"""Similarities that are held in memory at once."""
EMBEDDED = 1 << 16
"""Entries that are embedded at once."""
BATCH = 256
"""Queries that are answered together."""
FITTED_QUERIES, FITTED_RESULTS, LEAST = 1024, 10, 10
"""Probabilities are fitted to the first `FITTED_RESULTS` results of at most `FITTED_QUERIES` validation queries; at
least `LEAST` results must be right, and as many wrong."""


@dataclass(frozen=True)
class Hit:
    """One result of a search."""

    place: int
    item_id: str
    similarity: float
    caption: str
    """The item's first caption in the source language; if captions are searched, the caption itself."""
    image: Path | None
    caption_id: str | None
    """Set if captions are searched."""
    lang: str | None
    """Language of that caption."""
    probability: float | None = None
    """Probability that the query describes this item; None if unknown (`Searcher.calibrate`, or words never seen)."""


@dataclass(frozen=True)
class Answer:
    """The results of one query."""

    query: str
    """The text, or the file of a picture."""
    hits: list[Hit]
    uncertainty: float | None
    """The method's uncertainty of the query, in [0, 1]. None if the method has none, or if pictures are compared with
    pictures or texts with texts: it is only defined between the two."""
    picture: bool
    """Whether the query is a picture."""
    known: bool
    """False if the text encoder was trained on no word of the query (see `Vocabulary`)."""


Nearest = tuple[Tensor, Tensor, float | None]
"""Similarities and numbers of the most similar entries (K,), and the uncertainty of the query."""


def open_searcher(inputs: Inputs, options: SearchOptions) -> "Searcher":
    """Opens the run, and the index if any, that the inputs and options name.

    Raises:
        ArtifactError: If there is no such run or index.
        UsageError: If an option is unknown or contradicts the index.
    """
    lang, with_index = options.lang, bool(inputs.of_kind("index"))
    if not (with_index or options.index):
        return Searcher(inputs, choose_run(inputs, lang), options.filled())
    if with_index and not inputs.of_kind("run"):
        chosen = inputs.one("index", "")
        trained = inputs.parent(chosen, "run")
    else:
        trained = choose_run(inputs, lang)
        own = inputs.parent(trained, "dataset")
        data = _searched(inputs, own)

        def fits(candidate: base.Artifact) -> bool:
            usable = with_index or (made_from(data)(candidate) and not any(_contradictions(candidate, options)))
            return usable and made_from(trained)(candidate)

        flags = {
            "--split": options.split,
            "--find": options.find,
            "--lang": lang if options.find == "captions" else None,
        }
        text = " ".join(f"{flag} {value}" for flag, value in flags.items() if value)
        what = f"of {trained.name} over {data.name}" + (f" with {text}" if text else "")
        words = ("ccr index", str(trained.path), "" if data is own else str(data.path), text)
        chosen = inputs.one("index", what, fits, hint=" ".join(filter(None, words)))
    require_parent(chosen, trained)
    for flag, value, indexed in _contradictions(chosen, options):
        raise UsageError(f"{chosen.path} indexes {indexed}, not {flag} {value}", hint=f"leave out {flag} or the index")
    if lang and lang not in languages(inputs.workspace, trained):
        raise UsageError(f"{trained.name} does not know the language {lang}")
    return Searcher(inputs, trained, indexed_by(chosen, options.device), chosen)


def choose_run(inputs: Inputs, lang: str | None) -> base.Artifact:
    """Chooses the run among the inputs, else in the workspace; with `lang`, one that knows this language."""
    if lang is None:
        return inputs.one("run", "", hint="ccr train --method uml")
    hint = f"ccr translate --lang {lang} | ccr train - --method uml"
    known, trained_on = (lambda a: lang in languages(inputs.workspace, a)), lambda a: lang in run.langs(run.config(a))
    return inputs.one("run", f"that knows {lang}", known, hint, trained_on)


def languages(workspace: Workspace, trained: base.Artifact) -> tuple[str, ...]:
    """Returns the languages of a run: the targets, then the source; for an untrained model, all of its data set."""
    data = workspace.parent(trained, "dataset")
    source = str(data.toml("manifest.toml").get("source_lang", "en"))
    others = [] if trained.counts.get("steps", 1) else dataset.read(data).languages()
    return tuple(dict.fromkeys([*run.langs(run.config(trained)), source, *others]))


def indexed_by(index: base.Artifact, device: str = "auto") -> SearchOptions:
    """The options that an index was built with."""
    request = index.request
    return SearchOptions(request["find"], request["lang"], request["split"] or "all", device=device)


def _contradictions(index: base.Artifact, options: SearchOptions) -> Iterator[tuple[str, str, str]]:
    """The options that contradict an index: flag, value, and the index's own value."""
    built = indexed_by(index)
    values = [("--split", options.split, built.split), ("--find", options.find, built.find)]
    if built.find == "captions":
        values.append(("--lang", options.lang, built.lang or "any language"))
    yield from ((flag, value, str(own)) for flag, value, own in values if value not in (None, own))


def sources(
    inputs: Inputs, trained: base.Artifact, index: base.Artifact | None = None
) -> tuple[base.Artifact, base.Artifact]:
    """The data set to search and its features: those of the run or index, or another data set among the inputs."""
    data, feats = (inputs.parent(index or trained, kind) for kind in ("dataset", "features"))
    other = _searched(inputs, data)
    if index is not None and other is not data:
        raise UsageError(f"{index.path} indexes {data.name}, not {other.name}", hint="leave one of them out")
    if other is not data:
        data, feats = other, like(inputs, feats, dataset.read(other))
    refuse_unread(inputs, trained, data, feats)
    return data, feats


def _searched(inputs: Inputs, own: base.Artifact) -> base.Artifact:
    """The data set to search: another one among the inputs, else `own`."""
    return next((a for a in inputs.of_kind("dataset") if a.id != own.id), own)


def searched_split(data: dataset.Dataset, split: str | None) -> str:
    """Chooses the split to search: the given one, else `test`; `all` if ccr divided the items or none is in `test`."""
    divided = "split" in data.artifact.request
    return split or ("all" if divided or not (data.items["split"] == "test").any() else "test")


@dataclass(frozen=True)
class Vectors:
    """Entries to search: items or captions, and their vectors in float32."""

    ids: Sequence[str]
    rows_VD: Tensor


def cached(
    workspace: Workspace, trained: base.Artifact, about: Mapping[str, Any], make: Callable[[], Iterable[Vectors]]
) -> Vectors:
    """Maps the vectors of a run from the workspace's cache, or makes them part by part, and caches them if possible.

    With the cache, at most one part is in memory; without it, all are. `about` holds everything else that the vectors
    depend on, as JSON values; a file's name contains a hash of it all, so that no file is ever stale.
    `.cache/search/RUN/` can be deleted at any time and belongs to no artifact.
    """
    folder = workspace.root / ".cache" / "search" / slug(trained.name)
    key = base.canonical_json({"run": trained.id, "ccr": ccr_cli.__version__, **about})
    path = folder / f"{trained.id[:16]}-{base.sha256_text(key)[:16]}.safetensors"
    with suppress(OSError, SafetensorError, ValueError, KeyError):  # it is missing or damaged
        return _mapped(path, key)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder) as rows:
            _write(path, key, make(), rows)
        for other in folder.glob("*.safetensors"):
            if not other.name.startswith(trained.id[:16]):  # of an earlier version of the run
                other.unlink(missing_ok=True)
        return _mapped(path, key)
    except OSError as error:
        say(f"cannot cache vectors: {error.strerror or error}", level=1)
    parts = list(make())
    return Vectors([id_ for part in parts for id_ in part.ids], torch.cat([part.rows_VD for part in parts]))


def _mapped(path: Path, key: str) -> Vectors:
    """Maps the vectors of a cache file; ValueError if its key or shape is not the expected one."""
    with safe_open(path, framework="pt") as handle:
        facts = handle.metadata() or {}
        ids, rows_VD = json.loads(facts["ids"]), handle.get_tensor("vectors")
    if facts.get("key") != key or rows_VD.dtype != torch.float32 or (rows_VD.ndim, len(rows_VD)) != (2, len(ids)):
        raise ValueError(path)
    return Vectors(ids, rows_VD)


def _write(path: Path, key: str, parts: Iterable[Vectors], rows: IO[bytes]) -> None:
    """Writes vectors as safetensors; their rows go into a temporary file until their number is known."""
    ids: list[str] = []
    dim = 0
    for part in parts:
        ids += part.ids
        dim = part.rows_VD.shape[1]
        rows.write(part.rows_VD.cpu().contiguous().numpy().data)
    tensor = {"dtype": "F32", "shape": [len(ids), dim], "data_offsets": [0, rows.tell()]}
    header = json.dumps({"__metadata__": {"key": key, "ids": json.dumps(ids)}, "vectors": tensor}).encode()
    header += b" " * (-len(header) % 8)
    rows.seek(0)
    with base.atomic_open(path) as handle:
        handle.write(len(header).to_bytes(8, "little") + header)
        shutil.copyfileobj(rows, handle, 1 << 20)


class Searcher:
    """A run and the entries that it searches: opened once, for many queries.

    Another data set among the inputs is searched instead of the run's own. The options must be `filled`. An index of
    these options (`indexed_by`) finds the candidates; without it, search is exact.

    Raises:
        ArtifactError: If the other data set has no features of the run's encoder, or several; or if there is nothing
            to search.
        UnavailableError: If an index needs FAISS and it is not installed.
        UsageError: If an input would not be read.
    """

    def __init__(
        self, inputs: Inputs, trained: base.Artifact, options: SearchOptions, index: base.Artifact | None = None
    ) -> None:
        self.opened_ns = time.time_ns()
        data, self.features = sources(inputs, trained, index)
        self.data, self.trained, self._inputs = dataset.read(data), trained, inputs
        chosen = searched_split(self.data, options.split)
        self.options = replace(options, split=chosen)
        if options.split is None:
            count, total = len(self._of_split()), counted(len(self.data.items), "item")
            which = f"the {count:,} test items of {total} are searched; all of them: --split all"
            every = f"all {total} are searched, those of training too; test items only: --split test"
            every = every if (self.data.items["split"] == "test").any() else f"no test items: all {total} are searched"
            say(f"{self.data.name}: {every if chosen == 'all' else which}", style="dim")
        options = self.options
        self._resolved = cache(self.image)  # resolving takes longer than a search; to read a file, resolve it again
        self._media = dict(zip(self.data.items["item_id"], self.data.items["media"], strict=True))
        self._root = dataset.media_root(data)
        self.langs = languages(inputs.workspace, trained)
        self._device = choose_device(options.device)
        self._method, self._tokenizer = load_method(trained, self._device)
        self._vocabulary = vocabulary_of(inputs.workspace, trained, self._tokenizer)
        self._index, self._candidates, self.index, self.root = None, 0, index, inputs.workspace.root
        self._probability: HitProbability | None = None
        split = None if options.split == "all" else options.split
        about: dict[str, Any] = {"features": self.features.id, "split": split, "find": options.find}
        if options.find == "captions":
            about["langs"] = list(self._caption_langs)
        self._about = about if index is None else {"index": index.id}
        self.identity = (trained.id, data.id, self._about)
        if index is not None:
            self.ids: Sequence[str] = index_artifact.entries(index)
            self._index = Index.open(index, len(self.ids))
            self._candidates = self._method.uncertainty_candidates()
            return
        entries = cached(inputs.workspace, trained, about, self._items if options.find == "items" else self._captions)
        self.ids, self.rows_VD = entries.ids, entries.rows_VD.to(self._device)

    def calibrate(self) -> None:
        """Adds to results between texts and pictures the probability that they are right, or says why it cannot.

        It is fitted to validation items of the run's data set. Their source captions and translations (or, if captions
        are searched, their pictures) query the entries that users search, plus their own item (or caption) if the item
        is not among these. No caption of a test item is read.
        """
        about = {**self._about, "probability": [FITTED_QUERIES, FITTED_RESULTS, LEAST]}
        own = self.trained.parent("dataset")
        if own.id != self.data.artifact.id:
            say(f"results have no probability: it is known for items of {Path(own.path).name} only", style="dim")
            return
        try:
            fitted = cached(self._inputs.workspace, self.trained, about, lambda: [self._fitted()])
        except ArtifactError as error:
            say(f"results have no probability: {error.message}", style="dim")
        else:
            self._probability = HitProbability(*fitted.rows_VD[:, 0].tolist())

    def _fitted(self) -> Vectors:
        """Fits a `HitProbability` and returns its numbers as rows; ArtifactError if that is not possible."""
        data = dataset.read(self._inputs.parent(self.trained, "dataset"))
        frames = [data.captions_in(data.source_lang), *translated_captions(self._inputs.workspace, self.trained)]
        captions = self._tokenizer.readable(pd.concat([frame[["caption_id", "item_id", "text"]] for frame in frames]))
        feats = self._inputs.parent(self.trained, "features")
        known = gallery(data, feats, "val", captions, "captions", self._method.config.needs())
        some = np.linspace(0, len(known.texts) - 1, min(FITTED_QUERIES, len(known.texts))).round().astype(int)
        text_QD = self.vectors([known.texts[n] for n in some])
        visual_QD = embed_visuals(self._method, known.visual, self._device)[known.item_T[some]]
        query_QD, own_QD = (text_QD, visual_QD) if self.options.find == "items" else (visual_QD, text_QD)
        searched = {self._item_of(entry) for entry in self.ids}
        results: list[list[tuple[float, bool]]] = []
        for n, (sim_K, at_K, _) in zip(some, self._nearest(query_QD, FITTED_RESULTS), strict=True):
            item, own = known.item_ids[known.item_T[n]], len(results)
            found = [self._item_of(self.ids[at]) == item for at in at_K.tolist()]
            rows = list(zip(sim_K.tolist(), found, strict=True))
            if item not in searched:
                rows.append((float(query_QD[own] @ own_QD[own]), True))
            results.append(sorted(rows, reverse=True)[:FITTED_RESULTS])
        fitted = HitProbability.fitted(results, LEAST)
        if fitted is None:
            right, total = sum(hit for rows in results for _, hit in rows), sum(map(len, results))
            few = "right " if right < LEAST else "wrong " if total - right < LEAST else ""
            needed = f"too few {few}validation results, {right:,} right of {total:,}; {LEAST} {few}ones are needed"
            unrelated = f"of {total:,} validation results {right:,} are right, not more often the more similar ones"
            raise ArtifactError(needed if few else unrelated)
        numbers = torch.tensor([[value] for value in vars(fitted).values()])
        return Vectors(list(vars(fitted)), numbers)

    def texts(self, queries: Iterable[str], top: int) -> Iterator[Answer]:
        """Searches with words for the best `top` entries; yields the answers in order, a batch of queries at a time."""
        rest = iter(queries)
        while batch := list(islice(rest, BATCH)):
            if not all(require_text(query, f"the query {query!r}").strip() for query in batch):
                raise UsageError("the query is empty", hint='ccr search "una cara sonriente"')
            yield from self._answers(batch, self.vectors(batch), top, picture=False)

    def file(self, path: Path, top: int) -> Answer:
        """Searches with a picture, or a video; raises what `encoder` and its `file` raise."""
        return self.picture(self.encoder.file(path), str(path), top)

    def picture(self, features: Frames, name: str, top: int) -> Answer:
        """Searches with the features of a picture, as `encoder` makes them."""
        query_1D = embed_visuals(self._method, features, self._device)
        return next(self._answers([name], query_1D, top, picture=True))

    @cached_property
    def encoder(self) -> PictureEncoder:
        """Encodes query pictures as the run's features were; prepares pixels for a run that reads pictures itself."""
        return PictureEncoder(self.features, self._device, self._method.config.needs())

    def examples(self, count: int) -> list[str]:
        """Short captions of searched items as example queries, in the first of the run's languages that has some."""
        for _, captions in self.queries(self._of_split()["item_id"]):
            texts = captions["text"].drop_duplicates()
            texts = texts[texts.str.len() <= EXAMPLE_LETTERS]
            if len(texts):
                return list(texts.iloc[np.linspace(0, len(texts) - 1, min(count, len(texts))).astype(int)])
        return []

    def queries(self, item_ids: Iterable[str]) -> Iterator[tuple[str, pd.DataFrame]]:
        """Yields a description and the captions of items that the run can encode, by language in the run's order.

        In each language, human captions come before the translations that the run was trained on.
        """
        own = self.data.artifact.id == self._inputs.parent(self.trained, "dataset").id
        chosen = set(item_ids)
        for lang in self.langs:  # translations are read only when needed
            translated = translated_captions(self._inputs.workspace, self.trained) if own else ()
            for number, captions in enumerate(chain([self.data.captions], translated)):
                found = captions[(captions["lang"] == lang) & captions["item_id"].isin(chosen)]
                found = self._tokenizer.readable(found)
                if len(found):
                    yield f"translations into {lang}" if number else f"captions in {lang}", found

    def image(self, item_id: str) -> Path | None:
        """Returns the media file of an item; None if it has none inside the media root, or there is no such item."""
        return dataset.media_path(self._root, self._media.get(item_id))

    def vectors(self, texts: Sequence[str]) -> Tensor:
        """Vectors of texts (Q, D)."""
        return encode_and_embed(self._method, self._tokenizer, texts, self._device)

    def visuals(self, item_ids: Sequence[str]) -> Vectors:
        """Vectors of the items that have features."""
        visual, ids = read_visuals(self.features, list(item_ids), self._method.config.needs())
        return Vectors(ids, embed_visuals(self._method, visual, self._device))

    def _answers(self, names: Sequence[str], query_QD: Tensor, top: int, *, picture: bool) -> Iterator[Answer]:
        cross_modal = picture != (self.options.find == "items")
        for name, (sim_K, at_K, uncertainty) in zip(names, self._nearest(query_QD, top), strict=True):
            pairs = zip(at_K.tolist(), sim_K.tolist(), strict=True)
            hits = [self._hit(place, at, value) for place, (at, value) in enumerate(pairs, 1)]
            known = picture or self._knows(name)
            if cross_modal and known and self._probability:
                p_K = self._probability.of(sim_K.tolist())
                hits = [replace(hit, probability=p) for hit, p in zip(hits, p_K, strict=True)]
            yield Answer(name, hits, uncertainty if cross_modal else None, picture, known)

    def _knows(self, query: str) -> bool:
        try:
            return self._vocabulary is None or self._vocabulary.knows(query)
        except ArtifactError:  # its training data is gone
            self._vocabulary = None
            return True

    def _nearest(self, query_QD: Tensor, top: int) -> Iterator[Nearest]:
        return self._all(query_QD, top) if self._index is None else self._indexed(query_QD, top)

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

        The uncertainty is computed on these candidates; it is None if they are fewer than the method needs for it,
        or if it needs the whole gallery.
        """
        assert self._index is not None
        near_QK = self._index.nearest(query_QD, min(len(self.ids), max(top, self._candidates)))
        for query_D, near_K in zip(query_QD, near_QK, strict=True):
            at_K = near_K[near_K >= 0]
            rows_KD = self._index.vectors(at_K).to(self._device)
            sim_1K, uncertainty_1 = self._method.score(query_D[None], rows_KD)
            best = sim_1K[0].topk(min(top, len(at_K)))
            enough = 0 < min(self._candidates, len(self.ids)) <= len(at_K)
            uncertainty = float(uncertainty_1[0]) if enough and uncertainty_1 is not None else None
            yield best.values, torch.from_numpy(at_K)[best.indices.cpu()], uncertainty

    def _hit(self, place: int, at: int, similarity: float) -> Hit:
        entry = self.ids[at]
        item_id, text, caption_id, lang = self._shown.get(entry, (entry, "", None, None))
        return Hit(place, item_id, similarity, text, self._resolved(item_id), caption_id, lang)

    def _item_of(self, entry: str) -> str:
        return entry if self.options.find == "items" else self._shown[entry][0]

    @cached_property
    def _shown(self) -> dict[str, tuple[str, str, str | None, str | None]]:
        """Maps entries to item, text, caption id and language; the text of an item is its first source caption."""
        table = self.data.captions
        if self.options.find == "captions":
            rows = zip(table["caption_id"], table["item_id"], table["text"], table["lang"], strict=True)
            return {entry: (item, text, entry, lang) for entry, item, text, lang in rows}
        table = table[table["lang"] == self.data.source_lang].sort_values("k", kind="stable").drop_duplicates("item_id")
        return {item: (item, text, None, None) for item, text in zip(table["item_id"], table["text"], strict=True)}

    def _of_split(self) -> pd.DataFrame:
        return items_of(self.data.items, str(self.options.split))

    def _items(self) -> Iterator[Vectors]:
        items = self._of_split()
        refuse_empty(items, str(self.options.split), self.data.name)
        known = items["item_id"].isin(features.encoded_items(self.features))
        ids = list(items.loc[known, "item_id"] if known.any() else items["item_id"])
        yield from (self.visuals(ids[first : first + EMBEDDED]) for first in range(0, len(ids), EMBEDDED))

    def _captions(self) -> Iterator[Vectors]:
        captions, langs, split = self.data.captions, self._caption_langs, self.options.split
        captions = captions[captions["lang"].isin(langs) & captions["item_id"].isin(set(self._of_split()["item_id"]))]
        if captions.empty:
            where = "" if split == "all" else f" of its {split} items"
            raise ArtifactError(f"{self.data.name} has no captions{where} in {' or '.join(langs)}")
        total, captions = len(captions), self._tokenizer.readable(captions)
        if captions.empty:
            raise ArtifactError(f"{self.trained.name} has no vectors of these {total:,} captions", hint="--split all")
        if lacking := total - len(captions):
            warn(f"{lacking:,} of {total:,} captions have no vector and are not searched")
        ids, texts = list(captions["caption_id"]), list(captions["text"])
        for first in range(0, len(ids), EMBEDDED):
            some = slice(first, first + EMBEDDED)
            yield Vectors(ids[some], self.vectors(texts[some]))

    @property
    def _caption_langs(self) -> tuple[str, ...]:
        return (self.options.lang,) if self.options.lang else self.langs


def answers(searcher: Searcher, queries: Iterable[str] | Path, top: int) -> Iterator[Answer]:
    """Searches with texts, or with the picture of a file, for the best `top` entries; UsageError if a text is empty."""
    if isinstance(queries, Path) == (searcher.options.find == "captions"):  # only between texts and pictures
        searcher.calibrate()
    yield from [searcher.file(queries, top)] if isinstance(queries, Path) else searcher.texts(queries, top)


def warn_of_unknown(found: Sequence[Answer]) -> None:
    """Warns of queries in which the text encoder knows no word."""
    unknown = [answer.query for answer in found if not answer.known]
    if unknown:
        shown = ", ".join(map(repr, unknown[:5])) + (", ..." if len(unknown) > 5 else "")
        which = shown if len(found) == 1 else f"{len(unknown)} of {len(found)} queries ({shown})"
        warn(f"the text encoder was trained on no word of {which}: the results mean little")


def for_sheet(answers: Sequence[Answer], searcher: Searcher) -> tuple[list[ExampleSearch], str]:
    """The searches of a contact sheet, and its title."""
    options = searcher.options
    searches = [
        ExampleSearch(
            query=Path(answer.query).name if answer.picture else answer.query,
            lang=options.lang or "",
            results=[
                ExampleHit(h.item_id, h.caption, h.similarity, h.image, lang=h.lang or "", probability=h.probability)
                for h in answer.hits
            ],
            image=Path(answer.query) if answer.picture else None,
        )
        for answer in answers
    ]
    entries = f"{options.split}: {len(searcher.ids):,} {options.find}"
    return searches, f"{searcher.data.name}, {entries} · {searcher.trained.name}"
