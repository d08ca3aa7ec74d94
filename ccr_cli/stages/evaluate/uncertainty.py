"""The uncertainty of queries, and how well it detects failures, queries without a match, and corrupted queries.

A method without an uncertainty gets a softmax over the gallery, its temperature fitted on validation items. Trivial
uncertainties are always measured too.

Shape suffixes: V visual items, T texts, D embedding, Q queries, G gallery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ccr_cli.artifacts import base, dataset, translation
from ccr_cli.artifacts.signature import SOFTMAX
from ccr_cli.console import say, warn
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.losses.credibility import pair_uncertainty
from ccr_cli.methods.base import Method
from ccr_cli.metrics import softmax_uncertainty
from ccr_cli.metrics.bootstrap import DIRECTIONS
from ccr_cli.metrics.deletion import delete, deletion_curve
from ccr_cli.metrics.uncertainty_comparison import compared, separation
from ccr_cli.stages.evaluate.options import HALF
from ccr_cli.stages.evaluate.targets import Target, same_collection
from ccr_cli.stages.shared.ensemble import Model
from ccr_cli.stages.shared.leaks import group_ids
from ccr_cli.stages.shared.scoring import ByDirection, EmbeddedGallery, Queries, right_answers
from ccr_cli.stages.shared.splits import Split
from ccr_cli.stages.shared.triplets import gallery, without

OWN = "uncertainty"
QUERY_BLOCK = 1024
LARGEST = 2**26
"""Most similarities held at once: a block has fewer queries if the gallery is large. Also the most pairs of a deletion
curve, which needs whole matrices."""
TEMPERATURE_SPLIT = "val-select"
"""The half of validation that selects the epoch: no temperature is fitted to test items or to the other half."""
TEMPERATURE_QUERIES = 1024
"""Most queries that a temperature is fitted to."""
DELETION_THRESHOLD = 0.5
"""Uncertainty of a pair at which FUME's Table 1 deletes."""


def uncertainties(scorer: Scorer, queries: Queries, softmax: Softmax | None = None) -> dict[str, np.ndarray]:
    """All uncertainties of the queries (Q,) by name: the scorer's own (`OWN`, if it has one), and trivial ones.

    `softmax` adds its probability; if it is the scorer itself, it adds the disagreement of its models.
    """
    sides = queries.query_QD, queries.gallery_GD
    further = None
    if softmax:
        further = softmax.disagreement(*sides) if softmax is scorer else query_uncertainty(softmax, *sides)
    own_Q, name = query_uncertainty(scorer, *sides), "disagreement" if softmax is scorer else SOFTMAX
    by_name = {OWN: own_Q, **trivial_uncertainties(*sides), name: further}
    return {name: unc_Q for name, unc_Q in by_name.items() if unc_Q is not None}


def uncertainty_figures(
    scorer: Scorer, folds: Sequence[EmbeddedGallery], queries: pd.DataFrame, softmax: Softmax | None, probability: bool
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The figures of every uncertainty, by direction, as `compared` returns them; `queries` is their `rank_table`.

    `probability`: whether the uncertainty is the probability of failing. Also returns the scorer's own uncertainty
    (Q,) by direction, if it has one.
    """
    figures: dict[str, Any] = {}
    own: dict[str, np.ndarray] = {}
    for direction in DIRECTIONS:
        parts = [uncertainties(scorer, fold.queries()[direction], softmax) for fold in folds]
        by_name = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        own |= {direction: by_name.pop(OWN)} if OWN in by_name else {}
        rows = queries[queries["direction"] == direction]
        ranked = rows["rank"].to_numpy(), rows["item"].to_numpy()
        figures[direction] = compared(own.get(direction), by_name, *ranked, probability=probability)
    return figures, own


@torch.no_grad()
def query_uncertainty(scorer: Scorer, query_QD: Tensor, gallery_GD: Tensor) -> np.ndarray | None:
    """The uncertainty of every query; None if the scorer has none."""
    parts = []
    for block in _blocks(query_QD, gallery_GD):
        uncertainty_q = scorer.score(block, gallery_GD)[1]
        if uncertainty_q is None:
            return None
        parts.append(uncertainty_q)
    return torch.cat(parts).double().cpu().numpy()


def _blocks(query_QD: Tensor, gallery_GD: Tensor) -> tuple[Tensor, ...]:
    return torch.split(query_QD, max(1, min(QUERY_BLOCK, LARGEST // max(len(gallery_GD), 1))))


@torch.no_grad()
def trivial_uncertainties(query_QD: Tensor, gallery_GD: Tensor) -> dict[str, np.ndarray]:
    """Uncertainties (Q,) by similarity alone: minus the greatest, and minus its lead over the second (0 if alone)."""
    top_Q2 = torch.cat([(q @ gallery_GD.T).topk(min(2, len(gallery_GD))).values for q in _blocks(query_QD, gallery_GD)])
    top_Q2 = top_Q2.double().cpu()
    return {"top similarity": -top_Q2[:, 0].numpy(), "margin": (top_Q2[:, -1] - top_Q2[:, 0]).numpy()}


@dataclass(frozen=True)
class Softmax:
    """Predicts the probability that the first result is wrong: a mean over the models, each with its temperature."""

    model: Model
    temperatures: Sequence[float]
    """One per model; none where there are no validation items to fit them to."""
    calibrated = True

    @classmethod
    def fitted(cls, model: Model, lang: str, left_out: str) -> Softmax:
        """Fits the temperatures to validation items of the training data and the texts that search them.

        The texts are machine translations into the language of the queries, or into one that was trained on; human
        captions in a target language are not used. For queries in the source language, these are its captions.
        """
        data = without(model.ensemble.data, left_out)
        features = [member.features for member in model.ensemble.members]
        translated = model.ensemble.first.translated
        captions = data.captions_in(data.source_lang)
        if lang != data.source_lang and translated:
            frame = translation.read((translated.get(lang) or next(iter(translated.values())))[0])
            captions = frame.loc[frame["direction"] == "forward", ["caption_id", "item_id", "text"]]
        try:
            validation = gallery(data, features[0], TEMPERATURE_SPLIT, captions, "captions", model.needs)
            count = len(validation.texts)
            some = np.linspace(0, count - 1, min(TEMPERATURE_QUERIES, count)).round().astype(int)
            texts = model.texts([validation.texts[n] for n in some])
        except ArtifactError as error:
            say(f"no temperature can be fitted, so there is no uncertainty: {error.message}", level=1)
            return cls(model, ())
        right_Q = torch.from_numpy(validation.item_T[some]).to(model.device)
        visuals = model.visuals(validation, features)
        pairs = zip(model.apart(texts), model.apart(visuals), strict=True)
        fit = softmax_uncertainty.fit_temperature
        return cls(model, [fit(text_QD @ visual_VD.T, right_Q) for text_QD, visual_VD in pairs])

    def score(self, query_QD: Tensor, gallery_GD: Tensor) -> tuple[Tensor, Tensor | None]:
        """Mean similarities (Q, G), and the mean probability (Q,) that the most similar item is not the right one."""
        sim_QG = query_QD @ gallery_GD.T
        if not self.temperatures:
            return sim_QG, None
        first_Q = sim_QG.argmax(dim=1)
        wrong_Q = torch.zeros_like(first_Q, dtype=torch.float64)
        for q_QD, g_GD, temperature in self._per_model(query_QD, gallery_GD):
            wrong_Q += softmax_uncertainty.wrong_probability(q_QD @ g_GD.T, temperature, first_Q)
        return sim_QG, wrong_Q / len(self.temperatures)

    def entropy(self, query_QD: Tensor) -> None:
        """Returns None: a softmax knows no categories."""
        return

    def uncertainty_scope(self) -> str:
        """What decides the uncertainty, for the signature: a softmax over the whole gallery."""
        return SOFTMAX

    @torch.no_grad()
    def disagreement(self, query_QD: Tensor, gallery_GD: Tensor) -> np.ndarray | None:
        """How much the models of an ensemble disagree about each query (Q,); None for one model."""
        if len(self.temperatures) < 2:
            return None
        parts = []
        for block_qD in torch.split(query_QD, max(1, softmax_uncertainty.BLOCK // len(gallery_GD))):
            models = list(self._per_model(block_qD, gallery_GD))
            sims, temperatures = (q @ g.T for q, g, _ in models), (t for _, _, t in models)
            parts.append(softmax_uncertainty.disagreement(sims, temperatures))
        return torch.cat(parts).cpu().numpy()

    def _per_model(self, query_QD: Tensor, gallery_GD: Tensor) -> zip[tuple[Tensor, Tensor, float]]:
        return zip(self.model.apart(query_QD), self.model.apart(gallery_GD), self.temperatures, strict=True)


Scorer = Method | Softmax
"""What gives the uncertainty of queries: a method, or a softmax in its place."""


def deletions(embedded: EmbeddedGallery, unc: Mapping[str, np.ndarray], tie: str) -> dict[str, Any] | None:
    """Deletion curves of both directions, by the uncertainty of pairs and by similarity, on data with categories.

    Each direction has lists of points, and the point at the `threshold`. None if there are too many pairs. `unc` has
    the uncertainty of texts (`t2v`) and of items (`v2t`).
    """
    visual_VD, text_TD = embedded.visual_VD, embedded.text_TD
    if len(visual_VD) * len(text_TD) > LARGEST:
        return None
    sim_VT = (visual_VD @ text_TD.T).cpu()
    unc_VT = pair_uncertainty(torch.from_numpy(unc["v2t"]), torch.from_numpy(unc["t2v"]))
    right = right_answers(embedded.gallery, labelled=True)
    sides = {
        "t2v": (sim_VT.T.contiguous(), unc_VT.T.contiguous(), right),
        "v2t": (sim_VT, unc_VT, right.reversed(len(visual_VD))),
    }
    return {
        direction: {
            "uncertainty": [asdict(point) for point in deletion_curve(sim_QG, unc_QG, right, tie=tie)],
            "similarity": [asdict(point) for point in deletion_curve(sim_QG, -sim_QG, right, tie=tie)],
            "threshold": asdict(delete(sim_QG, unc_QG, right, DELETION_THRESHOLD, tie=tie)),
        }
        for direction, (sim_QG, unc_QG, right) in sides.items()
    }


SEED = 0
"""Seed of the halves."""
KnownAndUnknown = tuple[list[ByDirection], list[ByDirection]]
"""Queries with a match in the gallery that they search, and queries without one, of one or several galleries."""


def halves(embedded: EmbeddedGallery, data: dataset.Dataset) -> KnownAndUnknown:
    """Splits a gallery into random halves, groups together: every query searches its item's half, and the other one."""
    group_of = dict(zip(data.items["item_id"], data.items["group"], strict=True))
    code_V = np.unique([group_of[item] for item in embedded.gallery.item_ids], return_inverse=True)[1]
    number = int(code_V.max()) + 1
    if number < 2:
        raise ArtifactError("a gallery of 1 item cannot be halved", hint="leave --ood half out")
    half_N = np.random.default_rng(SEED).permutation(np.arange(number) % 2)
    one, other = embedded.folds(half_N[code_V], 2)
    known, unknown = [(one, one), (other, other)], [(one, other), (other, one)]
    return [_asking(*sides) for sides in known], [_asking(*sides) for sides in unknown]


def _asking(own: EmbeddedGallery, searched: EmbeddedGallery) -> ByDirection:
    """The queries of a gallery that search another; an item without a caption to find asks nothing."""
    queries, item_T, first = own.queries(searched), own.gallery.item_T, own.gallery.first_T
    rows, v2t = np.unique(item_T if first is None else item_T[first]), queries["v2t"]
    ids, on_Q = [v2t.ids[row] for row in rows], torch.from_numpy(rows).to(v2t.query_QD.device)
    return queries | {"v2t": Queries(ids, ids, v2t.query_QD[on_Q], v2t.gallery_GD)}


def separations(
    scorer: Scorer, known: Sequence[ByDirection], unknown: Sequence[ByDirection]
) -> tuple[dict[str, Any], pd.DataFrame | None]:
    """How well the scores separate unknown queries from known ones, of one or several galleries, by direction.

    Returns, by direction, the counts `known` and `unknown`, the figures of `separation` for the scorer's own
    uncertainty, if it has one, and as `trivial` those for the others by name; and a table with a row per query, as an
    evaluation keeps it, or None without an own uncertainty.
    """
    out: dict[str, Any] = {}
    rows = []
    for direction in unknown[0]:
        of_kinds = [[queries[direction] for queries in kind] for kind in (known, unknown)]
        tables = [pd.concat([_scored(scorer, queries) for queries in kind], ignore_index=True) for kind in of_kinds]
        scores = [{str(name): t[name].to_numpy() for name in t if name not in _FACTS} for t in tables]
        items = [list(table["item"]) for table in tables]
        figures = separation(scores[0], scores[1], *items)
        own = figures.pop(OWN, {})
        if own:
            rows += [
                t.assign(direction=direction, left_out=unasked)
                for t, unasked in zip(tables, (False, True), strict=True)
            ]
        else:
            for trivial in figures.values():
                trivial.pop("gap", None)
        out[direction] = {"known": len(items[0]), "unknown": len(items[1]), **own, "trivial": figures}
    return out, pd.concat(rows, ignore_index=True) if rows else None


_FACTS = ("query_id", "item", "entropy")


@torch.no_grad()
def _scored(scorer: Scorer, queries: Queries) -> pd.DataFrame:
    """All uncertainties of the queries, and their entropy; nan if the scorer knows no categories."""
    entropy_Q = scorer.entropy(queries.query_QD)
    entropy = np.nan if entropy_Q is None else entropy_Q.double().cpu().numpy()
    facts = pd.DataFrame({"query_id": queries.ids, "item": queries.items, "entropy": entropy})
    return facts.assign(**uncertainties(scorer, queries))


def read_foreign_data(artifact: base.Artifact, target: Target) -> Split:
    """Reads the split of a data set whose captions serve as queries without a match in the target's gallery."""
    own, langs, split = target.data, target.langs, target.protocol.split
    data = dataset.read(artifact)
    if artifact.id == own.artifact.id or same_collection(own, data):
        raise UsageError(f"--ood {data.name} is of the collection that the run was trained on", hint=f"--ood {HALF}")
    foreign = Split.of(data, split)
    if all(foreign.captions_in(lang).empty for lang in langs):
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
    rows, name = foreign.captions_in(lang), foreign.data.name
    if rows.empty:
        warn(f"{name} has no {lang} captions for its {foreign.name} items: no --ood result for {lang}")
        return None
    items = [f"{name}/{item}" for item in rows["item_id"]]
    queries = Queries(list(rows["caption_id"]), items, embed(list(rows["text"])), embedded.visual_VD)
    return [embedded.queries()], [{"t2v": queries}]
