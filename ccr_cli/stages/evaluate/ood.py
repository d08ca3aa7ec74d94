"""Whether uncertainty separates queries that belong to a gallery from others, and intact queries from corrupted ones.

The uncertainty is the method's own, where it has one; the trivial ones are always measured with it.

Shape suffixes: V visual items, T texts, D embedding, Q queries, G gallery.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from ccr_cli.stages.evaluate.targets import same_collection
from ccr_cli.stages.evaluate.uncertainty import OWN, Scorer, uncertainties
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.leaks import group_ids
from ccr_cli.stages.shared.scoring import ByDirection, EmbeddedGallery, Queries
from ccr_cli.stages.shared.splits import Split

SEED = 0
"""Seed of the halves."""
KnownAndUnknown = tuple[list[ByDirection], list[ByDirection]]
"""Queries that belong to the gallery that they search, and those that do not, of one or several galleries."""


def halves(embedded: EmbeddedGallery, data: dataset.Dataset) -> KnownAndUnknown:
    """Splits a gallery into random halves: every query searches the half that has its item, and the one that has not.

    Items of one group stay together.
    """
    group_of = dict(zip(data.items["item_id"], data.items["group"], strict=True))
    code_V = np.unique([group_of[item] for item in embedded.gallery.item_ids], return_inverse=True)[1]
    number = int(code_V.max()) + 1
    if number < 2:
        raise ArtifactError("a gallery of one item cannot be halved", hint="leave --ood half out")
    half_N = np.random.default_rng(SEED).permutation(np.arange(number) % 2)
    one, other = embedded.folds(half_N[code_V], 2)
    return [one.queries(), other.queries()], [one.queries(other), other.queries(one)]


def separations(
    scorer: Scorer, known: Sequence[ByDirection], unknown: Sequence[ByDirection]
) -> tuple[dict[str, Any], pd.DataFrame | None]:
    """How well the scores separate unknown queries from known ones, of one or several galleries, by direction.

    Returns:
        By direction `known`, `unknown` (counts), the figures of `separation` for the method's own uncertainty, where it
            has one, and by name for the others, `trivial`. And a row per query as an evaluation keeps it, without
            `result`; None where the method has no uncertainty.
    """
    out: dict[str, Any] = {}
    tables = []
    for direction in unknown[0]:
        kinds = [[queries[direction] for queries in kind] for kind in (known, unknown)]
        parts = [[uncertainties(scorer, queries) for queries in kind] for kind in kinds]
        scores = [{name: np.concatenate([part[name] for part in kind]) for name in kind[0]} for kind in parts]
        items = [[item for queries in kind for item in queries.items] for kind in kinds]
        figures = separation(scores[0], scores[1], *items)
        own = figures.pop(OWN, {})
        if not own:
            for trivial in figures.values():
                trivial.pop("gap", None)
        out[direction] = {"known": len(items[0]), "unknown": len(items[1]), **own, "trivial": figures}
        for kind, score, left_out in zip(kinds, scores, (False, True), strict=True):
            if own:
                ids = [id_ for queries in kind for id_ in queries.ids]
                entropy = np.concatenate([_entropy(scorer, queries) for queries in kind])
                table = pd.DataFrame({"query_id": ids, "uncertainty": score[OWN], "entropy": entropy})
                tables.append(table.assign(direction=direction, left_out=left_out))
    return out, pd.concat(tables, ignore_index=True) if tables else None


@torch.no_grad()
def _entropy(scorer: Scorer, queries: Queries) -> np.ndarray:
    """The entropy of each query (Q,); nan where the scorer knows no categories."""
    entropy_Q = scorer.entropy(queries.query_QD)
    return np.full(len(queries.ids), np.nan) if entropy_Q is None else entropy_Q.double().cpu().numpy()


def read_foreign_data(inputs: Inputs, name: str, own: dataset.Dataset, langs: Sequence[str], split: str) -> Split:
    """Reads the split of a data set (a name or path) whose captions search a gallery that they do not belong to."""
    folder = name if "/" in name else f"{FOLDERS['dataset']}/{name}"
    artifact = Inputs.from_paths(inputs.workspace, [folder]).one("dataset", "")
    inputs.note(artifact)
    data = dataset.read(artifact)
    if artifact.id == own.artifact.id or same_collection(own, data):
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
    """The queries of a gallery, and captions of another data set that search it; None without any in the language."""
    rows, name = captions_of(foreign, lang), foreign.data.name
    if rows.empty:
        warn(f"{name} has no {lang} captions for its {foreign.name} items: no --ood result for {lang}")
        return None
    items = [f"{name}/{item}" for item in rows["item_id"]]
    queries = Queries(list(rows["caption_id"]), items, embed(list(rows["text"])), embedded.visual_VD)
    return [embedded.queries()], [{"t2v": queries}]


def captions_of(split: Split, lang: str) -> pd.DataFrame:
    """The captions of a split in a language."""
    return split.captions[(split.captions["lang"] == lang) & split.captions["text"].notna()]
