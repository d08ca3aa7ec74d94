"""Whether uncertainty separates queries that belong to a gallery from others, and intact queries from corrupted ones.

The uncertainty is the method's own, where it has one; the trivial ones are always measured with it.

Shape suffixes: V visual items, T texts, D embedding, Q queries, G gallery.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ccr_cli.artifacts import dataset
from ccr_cli.artifacts.workspace import FOLDERS
from ccr_cli.console import warn
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.metrics.uncertainty_comparison import separation
from ccr_cli.stages.evaluate.options import HALF
from ccr_cli.stages.evaluate.uncertainty import Scorer, query_uncertainty, trivial_uncertainties
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.leaks import group_ids
from ccr_cli.stages.shared.scoring import EmbeddedGallery
from ccr_cli.stages.shared.splits import Split

SEED = 0
"""Seed of the halves."""
OWN = "uncertainty"


@dataclass(frozen=True)
class Queries:
    """Queries of one direction, and the gallery that they search."""

    ids: list[str]
    items: list[str]
    """The item of each query."""
    query_QD: Tensor
    gallery_GD: Tensor

    def scores(self, scorer: Scorer) -> dict[str, np.ndarray]:
        """By name a score of every query, higher where less certain; the method's own first, where it has one."""
        own_Q = query_uncertainty(scorer, self.query_QD, self.gallery_GD)
        trivial = trivial_uncertainties(self.query_QD, self.gallery_GD)
        return trivial if own_Q is None else {OWN: own_Q, **trivial}


ByDirection = dict[str, Queries]
"""`t2v` and `v2t`, or one of them."""
KnownAndUnknown = tuple[list[ByDirection], list[ByDirection]]
"""Queries that belong to the gallery that they search, and those that do not, of one or several galleries."""


def queries_of(embedded: EmbeddedGallery, searched: EmbeddedGallery | None = None) -> ByDirection:
    """The queries of a gallery, which search it or another one."""
    galleries = (searched or embedded).directions()
    gallery = embedded.gallery
    return {
        "t2v": Queries(gallery.caption_ids, gallery.caption_items, embedded.text_TD, galleries["t2v"][1]),
        "v2t": Queries(gallery.item_ids, gallery.item_ids, embedded.visual_VD, galleries["v2t"][1]),
    }


def halves(embedded: EmbeddedGallery, data: dataset.Dataset) -> KnownAndUnknown:
    """Splits a gallery into random halves: every query searches the half that has its item, and the one that has not.

    Args:
        embedded: The gallery.
        data: Its data set; items of one group stay together.

    Raises:
        ArtifactError: If there is but one group.
    """
    group_of = dict(zip(data.items["item_id"], data.items["group"], strict=True))
    code_V = np.unique([group_of[item] for item in embedded.gallery.item_ids], return_inverse=True)[1]
    number = int(code_V.max()) + 1
    if number < 2:
        raise ArtifactError("a gallery of one item cannot be halved", hint="leave --ood half out")
    half_N = np.random.default_rng(SEED).permutation(np.arange(number) % 2)
    one, other = embedded.folds(half_N[code_V], 2)
    return [queries_of(one), queries_of(other)], [queries_of(one, other), queries_of(other, one)]


def separations(
    scorer: Scorer, known: Sequence[ByDirection], unknown: Sequence[ByDirection]
) -> tuple[dict[str, Any], pd.DataFrame | None]:
    """How well the scores separate unknown queries from known ones, by direction.

    Args:
        scorer: The model.
        known: Queries that are as they should be, of one or several galleries.
        unknown: The others; a direction that they lack is left out.

    Returns:
        By direction `known`, `unknown` (counts), the figures of `separation` for the method's own uncertainty, where it
        has one, and by name for the others, `trivial`. And a row per query as an evaluation keeps it, without `result`;
        None where the method has no uncertainty.
    """
    out: dict[str, Any] = {}
    rows = []
    for direction in unknown[0]:
        kinds = [[queries[direction] for queries in kind] for kind in (known, unknown)]
        scores = []
        for kind in kinds:
            parts = [queries.scores(scorer) for queries in kind]
            scores.append({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
        items = [[item for queries in kind for item in queries.items] for kind in kinds]
        figures = separation(scores[0], scores[1], items[0], items[1])
        own = figures.pop(OWN, {})
        if not own:
            for trivial in figures.values():
                trivial.pop("gap", None)
        out[direction] = {"known": len(items[0]), "unknown": len(items[1]), **own, "trivial": figures}
        for kind, score, left_out in zip(kinds, scores, (False, True), strict=True):
            if own:
                rows.append(_rows(scorer, direction, kind, score[OWN], left_out=left_out))
    return out, pd.concat(rows, ignore_index=True) if rows else None


@torch.no_grad()
def _rows(
    scorer: Scorer, direction: str, kind: Sequence[Queries], unc_Q: np.ndarray, *, left_out: bool
) -> pd.DataFrame:
    frame = pd.DataFrame({"query_id": [id_ for queries in kind for id_ in queries.ids], "uncertainty": unc_Q})
    entropies = [scorer.entropy(queries.query_QD) for queries in kind]
    known = [entropy_q.double().cpu().numpy() for entropy_q in entropies if entropy_q is not None]
    frame["entropy"] = np.concatenate(known) if known else np.nan
    return frame.assign(direction=direction, left_out=left_out)


def read_foreign_data(inputs: Inputs, name: str, own: dataset.Dataset, langs: Sequence[str], split: str) -> Split:
    """Reads the split of the data set whose captions search a gallery that they do not belong to.

    Args:
        inputs: Where to look for it.
        name: Its name or path.
        own: The data set of the gallery, which the run was trained on.
        langs: Languages of the queries.
        split: Split of both.

    Raises:
        UsageError: If it is of the same collection as the gallery.
        ArtifactError: If it is no data set, has no captions in the languages, or shares items with the other.
    """
    folder = name if "/" in name else f"{FOLDERS['dataset']}/{name}"
    artifact = Inputs.from_paths(inputs.workspace, [folder]).one("dataset", "")
    data = dataset.read(artifact)
    inputs.note(artifact)
    collection = own.manifest.get("collection")
    if artifact.id == own.artifact.id or (collection is not None and collection == data.manifest.get("collection")):
        raise UsageError(f"--ood {name} is of the collection that the run was trained on", hint=f"--ood {HALF}")
    foreign = Split.of(data, split)
    if all(captions_of(foreign, lang).empty for lang in langs):
        raise ArtifactError(f"{data.name} has no captions in {' or '.join(langs)} for its {split} items")
    shared = (set(group_ids(own, own.items)) & set(group_ids(data, foreign.items))) - {None}
    if shared:
        example = min(map(str, shared))
        raise ArtifactError(f"{data.name} ({split}) shares {len(shared)} groups with {own.name}: {example}, ...")
    return foreign


def foreign_queries(
    foreign: Split, lang: str, embedded: EmbeddedGallery, embed: Callable[[Sequence[str]], Tensor]
) -> KnownAndUnknown | None:
    """The queries of a gallery, and captions of another data set that search it; None without captions in the language.

    Args:
        foreign: The same split of the other data set.
        lang: Language of the queries.
        embedded: The gallery.
        embed: Embeds texts.
    """
    rows, name = captions_of(foreign, lang), foreign.data.name
    if rows.empty:
        warn(f"{name} has no {lang} captions for its {foreign.name} items: no --ood result for {lang}")
        return None
    items = [f"{name}/{item}" for item in rows["item_id"]]
    text_TD = embed(list(rows["text"]))
    return [queries_of(embedded)], [{"t2v": Queries(list(rows["caption_id"]), items, text_TD, embedded.visual_VD)}]


def captions_of(split: Split, lang: str) -> pd.DataFrame:
    """The captions of a split in a language."""
    return split.captions[(split.captions["lang"] == lang) & split.captions["text"].notna()]
