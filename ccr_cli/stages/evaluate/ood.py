"""Whether scores tell queries that belong to a gallery from those that do not, and intact from corrupted ones.

What stands for "uncertain" is the method's own uncertainty, where it has one, and beside it the trivial scores.

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
from ccr_cli.data.splits import items_of
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.metrics.separation import apart
from ccr_cli.stages.data.leaks import group_ids
from ccr_cli.stages.evaluate.uncertainty import Scorer, query_uncertainty, trivial_uncertainties
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.scoring import Sides

HALF = "half"
SEED = 0
"""Of the halves."""
OWN = "uncertainty"


@dataclass(frozen=True)
class Asked:
    """Queries of one direction, and the gallery that they ask."""

    ids: list[str]
    items: list[str]
    """The item of each query."""
    query_QD: Tensor
    gallery_GD: Tensor

    def scores(self, method: Scorer) -> dict[str, np.ndarray]:
        """By name a score of every query, higher where less certain; the method's own first, where it has one."""
        own_Q = query_uncertainty(method, self.query_QD, self.gallery_GD)
        trivial = trivial_uncertainties(self.query_QD, self.gallery_GD)
        return trivial if own_Q is None else {OWN: own_Q, **trivial}


Both = dict[str, Asked]
"""By direction, `t2v` and `v2t`, or one of them."""
Kinds = tuple[list[Both], list[Both]]
"""Queries that belong to the gallery that they ask, and those that do not, of one or several galleries."""


def asked(sides: Sides, of: Sides | None = None) -> Both:
    """The queries of a gallery, which ask that gallery or another one."""
    of, found = of or sides, sides.found
    first, text_TD = of.found.first_T, of.text_TD
    if first is not None:
        text_TD = text_TD[torch.from_numpy(first).to(text_TD.device)]
    own = [found.item_ids[v] for v in found.item_T]
    return {
        "t2v": Asked(found.caption_ids, own, sides.text_TD, of.visual_VD),
        "v2t": Asked(found.item_ids, found.item_ids, sides.visual_VD, text_TD),
    }


def halves(sides: Sides, data: dataset.Dataset) -> Kinds:
    """Cuts a gallery into two at random: every query asks the half that has its item, and the half that has not.

    Args:
        sides: The gallery.
        data: Its data set; items of one group are in one half.

    Raises:
        ArtifactError: If there is but one group.
    """
    group_of = dict(zip(data.items["item_id"], data.items["group"], strict=True))
    code_V = np.unique([group_of[item] for item in sides.found.item_ids], return_inverse=True)[1]
    number = int(code_V.max()) + 1
    if number < 2:
        raise ArtifactError("a gallery of one item cannot be halved", hint="leave --ood half out")
    half_N = np.random.default_rng(SEED).permutation(np.arange(number) % 2)
    one, other = sides.folds(half_N[code_V], 2)
    return [asked(one), asked(other)], [asked(one, other), asked(other, one)]


def told_apart(
    method: Scorer, known: Sequence[Both], unknown: Sequence[Both]
) -> tuple[dict[str, Any], pd.DataFrame | None]:
    """How well the scores tell unknown queries from known ones, by direction.

    Args:
        method: The model.
        known: Queries that are as they should be, of one or several galleries.
        unknown: The others; a direction that they lack is left out.

    Returns:
        By direction `known`, `unknown` (how many), what `apart` says of the method's own uncertainty, where it has one,
        and by name of the others, `trivial`. And a row a query as an evaluation keeps it, but for `result`; None where
        the method has no uncertainty.
    """
    told: dict[str, Any] = {}
    rows = []
    for direction in unknown[0]:
        kinds = [[each[direction] for each in kind] for kind in (known, unknown)]
        scores = [_together(method, kind) for kind in kinds]
        items = [[item for each in kind for item in each.items] for kind in kinds]
        found = apart(scores[0], scores[1], items[0], items[1])
        own = found.pop(OWN, {})
        if not own:
            for each in found.values():
                each.pop("gap", None)
        told[direction] = {"known": len(items[0]), "unknown": len(items[1]), **own, "trivial": found}
        for kind, score, left_out in zip(kinds, scores, (False, True), strict=True):
            if own:
                rows.append(_rows(method, direction, kind, score[OWN], left_out=left_out))
    return told, pd.concat(rows, ignore_index=True) if rows else None


def _together(method: Scorer, kind: Sequence[Asked]) -> dict[str, np.ndarray]:
    parts = [each.scores(method) for each in kind]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@torch.no_grad()
def _rows(method: Scorer, direction: str, kind: Sequence[Asked], unc_Q: np.ndarray, *, left_out: bool) -> pd.DataFrame:
    frame = pd.DataFrame({"query_id": [one for each in kind for one in each.ids], "uncertainty": unc_Q})
    entropies = [method.entropy(each.query_QD) for each in kind]
    known = [entropy_q.double().cpu().numpy() for entropy_q in entropies if entropy_q is not None]
    frame["entropy"] = np.concatenate(known) if known else np.nan
    return frame.assign(direction=direction, left_out=left_out)


def other_data(inputs: Inputs, name: str, own: dataset.Dataset, langs: Sequence[str], split: str) -> dataset.Dataset:
    """The data set whose captions ask a gallery that they do not belong to.

    Args:
        inputs: Where to look for it.
        name: Its name or path.
        own: What the gallery is of, and the run was trained on.
        langs: Of the queries.
        split: Of both.

    Raises:
        UsageError: If it is of the same collection as the gallery.
        ArtifactError: If it is no data set, has no captions in the languages, or is known to have items of the other.
    """
    folder = name if "/" in name else f"{FOLDERS['dataset']}/{name}"
    found = Inputs.from_paths(inputs.workspace, [folder]).one("dataset", "")
    other = dataset.read(found)
    inputs.note(found)
    collection = own.manifest.get("collection")
    if found.id == own.artifact.id or (collection is not None and collection == other.manifest.get("collection")):
        raise UsageError(f"--ood {name} is of the collection that the run was trained on", hint=f"--ood {HALF}")
    if all(captions_of(other, lang, split).empty for lang in langs):
        raise ArtifactError(f"{other.name} has no captions in {' or '.join(langs)} for its {split} items")
    shared = (set(group_ids(own, own.items)) & set(group_ids(other, items_of(other.items, split)))) - {None}
    if shared:
        raise ArtifactError(
            f"{len(shared)} groups of {other.name} ({split}) are in {own.name} too: {min(map(str, shared))}, ..."
        )
    return other


def strangers(
    other: dataset.Dataset, lang: str, split: str, sides: Sides, embed: Callable[[Sequence[str]], Tensor]
) -> Kinds | None:
    """The queries of a gallery, and captions of another data set that ask it; None where it has none in the language.

    Args:
        other: The other data set.
        lang: Of the queries.
        split: Of both.
        sides: The gallery.
        embed: Makes vectors of texts.
    """
    rows = captions_of(other, lang, split)
    if rows.empty:
        warn(f"{other.name} has no {lang} captions for its {split} items: no --ood in {lang}")
        return None
    items = [f"{other.name}/{item}" for item in rows["item_id"]]
    text_TD = embed(list(rows["text"]))
    return [asked(sides)], [{"t2v": Asked(list(rows["caption_id"]), items, text_TD, sides.visual_VD)}]


def captions_of(data: dataset.Dataset, lang: str, split: str) -> pd.DataFrame:
    """The captions of a language that items of a split have."""
    captions = data.captions[(data.captions["lang"] == lang) & data.captions["text"].notna()]
    return captions[captions["item_id"].isin(set(items_of(data.items, split)["item_id"]))]
