"""Uncertainty of what has none of its own: a softmax over the gallery, its temperature fitted on validation.

Shape suffixes: V visual items, T texts, D embedding, Q queries, G gallery.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ccr_cli.artifacts import base, dataset, translation
from ccr_cli.console import say
from ccr_cli.errors import ArtifactError
from ccr_cli.metrics.softmax_uncertainty import BLOCK, disagreement, fit_temperature, wrong_probability
from ccr_cli.stages.evaluate.uncertainty import query_uncertainty
from ccr_cli.stages.shared.ensemble import Model
from ccr_cli.stages.shared.triplets import gallery, without

HALF = "val-select"
"""The half of validation that chose the epoch: what is reported sees neither test items nor the other half."""
MOST = 1024
"""Queries that a temperature is fitted to."""


@dataclass(frozen=True)
class Softmax:
    """States the probability that the first result is wrong: a mean over the models, each with its temperature."""

    model: Model
    temperatures: Sequence[float]
    """One a model; none where there is no validation to fit them to."""
    calibrated = True

    def score(self, query_QD: Tensor, gallery_GD: Tensor) -> tuple[Tensor, Tensor | None]:
        """Mean similarities (Q, G), and the mean probability (Q,) that the greatest of them is not the right one's."""
        sim_QG = query_QD @ gallery_GD.T
        if not self.temperatures:
            return sim_QG, None
        first_Q = sim_QG.argmax(dim=1)
        wrong_Q = torch.zeros_like(first_Q, dtype=torch.float64)
        for q_QD, g_GD, temperature in self._each(query_QD, gallery_GD):
            wrong_Q += wrong_probability(q_QD @ g_GD.T, temperature, first_Q)
        return sim_QG, wrong_Q / len(self.temperatures)

    def entropy(self, query_QD: Tensor) -> None:
        """It knows no categories."""
        return

    def uncertainty_scope(self) -> str:
        """A softmax is over the whole gallery."""
        return "softmax"

    def stated(self, query_QD: Tensor, gallery_GD: Tensor) -> dict[str, np.ndarray]:
        """The same probability (Q,), to be set beside another uncertainty; nothing where no temperature is known."""
        wrong_Q = query_uncertainty(self, query_QD, gallery_GD)
        return {} if wrong_Q is None else {"softmax": wrong_Q}

    @torch.no_grad()
    def disagreement(self, query_QD: Tensor, gallery_GD: Tensor) -> dict[str, np.ndarray]:
        """How far the models of an ensemble are from each other in each query (Q,); nothing of one model."""
        if len(self.temperatures) < 2:
            return {}
        parts = []
        for block_qD in torch.split(query_QD, max(1, BLOCK // len(gallery_GD))):
            each = list(self._each(block_qD, gallery_GD))
            parts.append(disagreement((q @ g.T for q, g, _ in each), (t for _, _, t in each)))
        return {"disagreement": torch.cat(parts).cpu().numpy()}

    def _each(self, query_QD: Tensor, gallery_GD: Tensor) -> zip[tuple[Tensor, Tensor, float]]:
        return zip(self.model.apart(query_QD), self.model.apart(gallery_GD), self.temperatures, strict=True)


def soften(model: Model, lang: str, left_out: str, own: base.Artifact) -> Softmax:
    """Fits the temperatures to the texts of validation items that search them.

    They are machine translations into the language of the queries, or into one that was trained on: people's captions
    in a target language are not seen. Of queries in the source language they are its captions.

    Args:
        model: The models.
        lang: Of the queries.
        left_out: Categories that were left out of training.
        own: The data set that was trained on.
    """
    data = without(dataset.read(own), left_out)
    features = [member.features for member in model.who.members]
    try:
        found = gallery(data, features[0], HALF, _queries(model, data, lang), "captions", model.needs)
    except ArtifactError as error:
        say(f"no temperature, and no uncertainty: {error.message}", level=1)
        return Softmax(model, ())
    some = np.linspace(0, len(found.texts) - 1, min(MOST, len(found.texts))).round().astype(int)
    right_Q = torch.from_numpy(found.item_T[some]).to(model.device)
    visuals, texts = model.visuals(found, features), model.texts([found.texts[n] for n in some])
    pairs = zip(model.apart(texts), model.apart(visuals), strict=True)
    return Softmax(model, [fit_temperature(text_QD @ visual_VD.T, right_Q) for text_QD, visual_VD in pairs])


def _queries(model: Model, data: dataset.Dataset, lang: str) -> pd.DataFrame:
    """The captions that search."""
    translated = model.who.first.translated
    if lang == data.source_lang or not translated:
        return data.captions[data.captions["lang"] == data.source_lang]
    frame = translation.read(translated.get(lang) or next(iter(translated.values())))
    return frame.loc[frame["direction"] == "forward", ["caption_id", "item_id", "text"]]
