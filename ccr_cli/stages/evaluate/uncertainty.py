"""The uncertainty of queries, and what it is worth.

A method that states no uncertainty gets a softmax over the gallery, its temperature fitted on validation items.

Shape suffixes: V visual items, T texts, D embedding, Q queries, G gallery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ccr_cli.artifacts import translation
from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.artifacts.signature import SOFTMAX
from ccr_cli.console import say
from ccr_cli.errors import ArtifactError
from ccr_cli.losses.credibility import pair_uncertainty
from ccr_cli.metrics import calibration, softmax_uncertainty
from ccr_cli.metrics.deletion import delete, deletion_curve
from ccr_cli.metrics.positives import Positives
from ccr_cli.metrics.uncertainty_comparison import gaps
from ccr_cli.stages.shared.ensemble import Model
from ccr_cli.stages.shared.scoring import EmbeddedGallery, Scores
from ccr_cli.stages.shared.triplets import gallery, without

QUERY_BLOCK = 1024
LARGEST = 2**26
"""Most similarities held at once: fewer queries together where the gallery is large. Also the most pairs of a deletion
curve, which needs whole matrices."""
CURVE_POINTS = 50
TEMPERATURE_SPLIT = "val-select"
"""The half of validation that selects the epoch: no temperature is fitted to test items or to the other half."""
TEMPERATURE_QUERIES = 1024
"""Most queries that a temperature is fitted to."""
DELETION_THRESHOLD = 0.5
"""Uncertainty of a pair at which FUME's Table 1 deletes."""


class Scorer(Protocol):
    """States how uncertain a query is: a method, or a softmax in its place."""

    @property
    def calibrated(self) -> bool:
        """Whether the uncertainty is the probability that the first result is wrong."""

    def score(self, query_QD: Tensor, gallery_GD: Tensor) -> tuple[Tensor, Tensor | None]:
        """Similarities (Q, G) and the uncertainty (Q,) of each query, or None where it has none."""

    def entropy(self, query_QD: Tensor) -> Tensor | None:
        """Entropy of each query's shares of the categories (Q,); None where it knows no categories."""

    def uncertainty_scope(self) -> str:
        """What the uncertainty is computed from, for the signature."""


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


def fold_uncertainties(scorer: Scorer, folds: Sequence[EmbeddedGallery]) -> list[dict[str, np.ndarray]] | None:
    """The uncertainty of every query in its fold, by direction; None if the scorer has none."""
    out = []
    for fold in folds:
        by_direction = {}
        for direction, sides in fold.directions().items():
            unc_Q = query_uncertainty(scorer, *sides)
            if unc_Q is None:
                return None
            by_direction[direction] = unc_Q
        out.append(by_direction)
    return out


@torch.no_grad()
def trivial_uncertainties(query_QD: Tensor, gallery_GD: Tensor) -> dict[str, np.ndarray]:
    """What similarities alone tell: minus the greatest, and minus its lead over the second, each (Q,).

    In a gallery of one item no lead is known, and all queries are equally uncertain.
    """
    top_Q2 = torch.cat([(q @ gallery_GD.T).topk(min(2, len(gallery_GD))).values for q in _blocks(query_QD, gallery_GD)])
    top_Q2 = top_Q2.double().cpu()
    return {"top similarity": -top_Q2[:, 0].numpy(), "margin": (top_Q2[:, -1] - top_Q2[:, 0]).numpy()}


@dataclass(frozen=True)
class Softmax:
    """States the probability that the first result is wrong: a mean over the models, each with its temperature."""

    model: Model
    temperatures: Sequence[float]
    """One per model; none where there are no validation items to fit them to."""
    calibrated = True

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
        """None: a softmax knows no categories."""
        return

    def uncertainty_scope(self) -> str:
        """A softmax is over the whole gallery."""
        return SOFTMAX

    def stated(self, query_QD: Tensor, gallery_GD: Tensor) -> dict[str, np.ndarray]:
        """The probability (Q,) by its name, for comparison with another uncertainty; empty without a temperature."""
        wrong_Q = query_uncertainty(self, query_QD, gallery_GD)
        return {} if wrong_Q is None else {SOFTMAX: wrong_Q}

    @torch.no_grad()
    def disagreement(self, query_QD: Tensor, gallery_GD: Tensor) -> dict[str, np.ndarray]:
        """How much the models of an ensemble disagree about each query (Q,), by its name; empty for one model."""
        if len(self.temperatures) < 2:
            return {}
        parts = []
        for block_qD in torch.split(query_QD, max(1, softmax_uncertainty.BLOCK // len(gallery_GD))):
            models = list(self._per_model(block_qD, gallery_GD))
            sims, temperatures = (q @ g.T for q, g, _ in models), (t for _, _, t in models)
            parts.append(softmax_uncertainty.disagreement(sims, temperatures))
        return {"disagreement": torch.cat(parts).cpu().numpy()}

    def _per_model(self, query_QD: Tensor, gallery_GD: Tensor) -> zip[tuple[Tensor, Tensor, float]]:
        return zip(self.model.apart(query_QD), self.model.apart(gallery_GD), self.temperatures, strict=True)


def fit_softmax(model: Model, lang: str, left_out: str, data: Dataset) -> Softmax:
    """Fits the temperatures to validation items and the texts that search them.

    The texts are machine translations into the language of the queries, or into one that was trained on; human captions
    in a target language are not used. For queries in the source language they are its captions.

    Args:
        model: The models.
        lang: Language of the queries.
        left_out: Categories that were left out of training.
        data: The data set that was trained on.
    """
    data = without(data, left_out)
    features = [member.features for member in model.ensemble.members]
    translated = model.ensemble.first.translated
    captions = data.captions[data.captions["lang"] == data.source_lang]
    if lang != data.source_lang and translated:
        frame = translation.read(translated.get(lang) or next(iter(translated.values())))
        captions = frame.loc[frame["direction"] == "forward", ["caption_id", "item_id", "text"]]
    try:
        validation = gallery(data, features[0], TEMPERATURE_SPLIT, captions, "captions", model.needs)
    except ArtifactError as error:
        say(f"no temperature can be fitted, so there is no uncertainty: {error.message}", level=1)
        return Softmax(model, ())
    count = len(validation.texts)
    some = np.linspace(0, count - 1, min(TEMPERATURE_QUERIES, count)).round().astype(int)
    right_Q = torch.from_numpy(validation.item_T[some]).to(model.device)
    visuals, texts = model.visuals(validation, features), model.texts([validation.texts[n] for n in some])
    pairs = zip(model.apart(texts), model.apart(visuals), strict=True)
    fit = softmax_uncertainty.fit_temperature
    return Softmax(model, [fit(text_QD @ visual_VD.T, right_Q) for text_QD, visual_VD in pairs])


def calibrations(
    scores: Sequence[Scores], unc: Sequence[Mapping[str, np.ndarray]] | None, tie: str, stated: bool = False
) -> dict[str, Any] | None:
    """Figures of the uncertainty by direction, and where it is a probability, how well that is calibrated.

    Args:
        scores: Scores of each fold. The queries of all folds are pooled, each with its rank in its own fold.
        unc: The uncertainty of each query of each fold, by direction.
        tie: mid, optimistic or pessimistic.
        stated: Whether the uncertainty is the probability of failing.
    """
    if unc is None:
        return None
    out = {}
    for direction, rank_Q in _ranks(scores, tie).items():
        unc_Q = np.concatenate([fold[direction] for fold in unc])
        out[direction] = {**calibration.calibration(unc_Q, rank_Q), "curve": _points(unc_Q, rank_Q)}
        if stated:
            out[direction]["ece"] = calibration.reliability(unc_Q, rank_Q).ece
    return out


def with_trivial(
    own: dict[str, Any] | None,
    folds: Sequence[EmbeddedGallery],
    scores: Sequence[Scores],
    unc: Sequence[Mapping[str, np.ndarray]] | None,
    tie: str,
    more: Callable[[Tensor, Tensor], dict[str, np.ndarray]] | None = None,
) -> dict[str, Any]:
    """Compares the method's uncertainty with the trivial ones; lists these alone where it has none.

    Args:
        own: Result of `calibrations`.
        folds: The galleries.
        scores: Scores of each fold.
        unc: The method's uncertainty of each query of each fold.
        tie: mid, optimistic or pessimistic.
        more: Returns further uncertainties by name, from queries and what they search.

    Returns:
        By direction the figures of `own` (without it, those that need no uncertainty), and `trivial`: by name `auroc`,
        `aurc`, `curve`; and where the method has an uncertainty, `gaps`: its figures minus these, low and high end, by
        a paired bootstrap over items.
    """
    out: dict[str, Any] = {}
    sides = [fold.directions() for fold in folds]
    for direction, rank_Q in _ranks(scores, tie).items():
        pairs = [side[direction] for side in sides]
        parts = [trivial_uncertainties(*pair) | (more(*pair) if more else {}) for pair in pairs]
        others = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        valid_Q = ~np.isnan(rank_Q)
        trivial: dict[str, Any] = {}
        for name, unc_Q in others.items():
            figures = calibration.calibration(unc_Q, rank_Q)
            trivial[name] = {key: figures[key] for key in ("auroc", "aurc")} | {"curve": _points(unc_Q, rank_Q)}
        if unc is not None and valid_Q.any():
            own_Q = np.concatenate([fold[direction] for fold in unc])[valid_Q]
            rivals = {name: unc_Q[valid_Q] for name, unc_Q in others.items()}
            for name, gap in gaps(own_Q, rivals, rank_Q[valid_Q], _items(folds, direction)[valid_Q]).items():
                trivial[name]["gaps"] = gap
        alone = {key: figures[key] for key in ("aurc_random", "aurc_best", "queries")}
        out[direction] = {**(own[direction] if own else alone), "trivial": trivial}
    return out


def _items(folds: Sequence[EmbeddedGallery], direction: str) -> np.ndarray:
    """A number for the item of each query, different in each fold."""
    before = np.cumsum([0, *(len(fold.gallery.item_ids) for fold in folds)])
    own = [fold.gallery.item_T if direction == "t2v" else np.arange(len(fold.gallery.item_ids)) for fold in folds]
    return np.concatenate([items + start for items, start in zip(own, before, strict=False)])


def _ranks(scores: Sequence[Scores], tie: str) -> dict[str, np.ndarray]:
    """The rank of every query of all folds, by direction."""
    both = {"t2v": [fold.ranks_t2v for fold in scores], "v2t": [fold.ranks_v2t for fold in scores]}
    return {direction: np.concatenate([fold.rank(tie) for fold in ranks]) for direction, ranks in both.items()}


def _points(unc_Q: np.ndarray, rank_Q: np.ndarray) -> dict[str, list[float]]:
    """At most `CURVE_POINTS` points of the risk-coverage curve."""
    curve = calibration.risk_coverage(unc_Q, rank_Q)
    at = np.linspace(0, len(curve.coverage) - 1, min(CURVE_POINTS, len(curve.coverage))).round().astype(int)
    return {"coverage": curve.coverage[at].tolist(), "risk": curve.risk[at].tolist()}


def deletions(
    visual_VD: Tensor, text_TD: Tensor, unc: Mapping[str, np.ndarray], visual_of_text: Positives, tie: str
) -> dict[str, Any] | None:
    """Deletion curves of both directions, by the uncertainty of pairs and by similarity, on data with categories.

    Args:
        visual_VD: Unit vectors of the items.
        text_TD: Unit vectors of the texts.
        unc: Uncertainty of every text (`t2v`) and every item (`v2t`).
        visual_of_text: The right items of each text.
        tie: mid, optimistic or pessimistic.

    Returns:
        By direction: `uncertainty`, `similarity`: a list of points each; `threshold`: the point at an uncertainty of
        0.5. None where there are too many pairs.
    """
    if len(visual_VD) * len(text_TD) > LARGEST:
        return None
    u_T, u_V = (torch.from_numpy(unc[direction]) for direction in ("t2v", "v2t"))
    sim_VT = (visual_VD @ text_TD.T).cpu()
    unc_VT = pair_uncertainty(u_V, u_T)
    sides = {
        "t2v": (sim_VT.T.contiguous(), unc_VT.T.contiguous(), visual_of_text),
        "v2t": (sim_VT, unc_VT, visual_of_text.reversed(len(visual_VD))),
    }
    return {
        direction: {
            "uncertainty": [asdict(point) for point in deletion_curve(sim_QG, unc_QG, right, tie=tie)],
            "similarity": [asdict(point) for point in deletion_curve(sim_QG, -sim_QG, right, tie=tie)],
            "threshold": asdict(delete(sim_QG, unc_QG, right, DELETION_THRESHOLD, tie=tie)),
        }
        for direction, (sim_QG, unc_QG, right) in sides.items()
    }
