"""Measuring: the figures of one run on one data set after the other, each with its signature.

Shape suffixes: V visual items, T texts, D embedding, Q queries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import ccr_cli
from ccr_cli.artifacts import base, dataset, translation
from ccr_cli.console import say, warn
from ccr_cli.data.splits import items_of
from ccr_cli.data.tokens import Tokenizer
from ccr_cli.methods.base import Method
from ccr_cli.metrics import calibration
from ccr_cli.metrics import signature as signatures
from ccr_cli.metrics.ranks import Ranks
from ccr_cli.metrics.recall import bootstrap_interval, summarise
from ccr_cli.stages.embed import embed_visuals, encode_and_embed
from ccr_cli.stages.labels import method_label
from ccr_cli.stages.scoring import Scores, rank_table, right_answers, score_gallery
from ccr_cli.stages.triplets import Gallery, gallery, only, without
from ccr_cli.stages.trust import deletions, out_of_distribution

QUERY_BLOCK = 1024
CURVE_POINTS = 50


@dataclass(frozen=True)
class Options:
    """What an evaluation measures and how."""

    split: str = "test"
    langs: tuple[str, ...] = ()
    """Languages of the queries; by default the run's target language (zero-shot: all that there are)."""
    zero_shot: bool = False
    """On every other data set of the workspace that has features of the same encoder."""
    caption_set: str | None = None
    """Only captions of this set; by default all. A source language that has none stands beside with all of its own."""
    beta: float = 0.8
    """Weight of the query as it is in score fusion with its translation, NRCCR eq. (13)."""
    fusion: str = "raw"
    """`raw`, or `minmax` as NRCCR's code normalises."""
    ties: str = "mid"
    """mid, optimistic or pessimistic."""
    protocol: str = ""
    """`full`: the query's own item is right; `labelled`: all of its category. By default what the method learns."""


@dataclass(frozen=True)
class Target:
    """A data set to evaluate on, with features and perhaps translated queries."""

    data: dataset.Dataset
    features: base.Artifact
    translations: pd.DataFrame | None
    langs: tuple[str, ...]
    leak: str


class Measuring:
    """Collects the results of all targets."""

    def __init__(
        self,
        method: Method,
        tokenizer: Tokenizer,
        device: torch.device,
        options: Options,
        settings: dict[str, Any],
        trained: base.Artifact,
        translated: base.Artifact | None,
    ) -> None:
        self.method, self.tokenizer, self.device = method, tokenizer, device
        self.options, self.settings, self.trained = options, settings, trained
        self.engine = "none" if translated is None else _engine(translated)
        self.left_out = "" if options.zero_shot else str(settings["options"].get("left_out", ""))
        self.results: list[dict[str, Any]] = []
        self.ranks: list[pd.DataFrame] = []

    def target(self, target: Target, advance: Any) -> None:
        """Measures every language of one data set."""
        visual: Tensor | None = None
        known = replace(target, data=without(target.data, self.left_out))
        for lang in target.langs:
            found, sets = self._gallery(known, lang)
            wanted = self.options.caption_set
            if wanted not in (None, sets):
                say(f"{lang} has no captions of the set {wanted!r} and is measured with its own: {sets}")
            if found.missing:
                warn(f"{found.missing} {self.options.split} items of {target.data.name} have no features")
            if visual is None:
                visual = embed_visuals(self.method, found.visual, self.device)
            self._language(target, lang, sets, found, visual)
            advance(1)

    def _gallery(self, target: Target, lang: str) -> tuple[Gallery, str]:
        """The items of a data set with the captions of one language, and the sets that these are of."""
        o = self.options
        beside = lang == target.data.source_lang and len(target.langs) > 1
        if beside and not asked_for(target.data, lang, o):
            o = replace(o, caption_set=None)
        captions = captions_of(target.data, lang, o)
        wanted = f" of the set {o.caption_set!r}" if o.caption_set else ""
        needs = self.method.config.needs()
        what = f"human {lang} captions{wanted}"
        found = gallery(target.data, target.features, self.options.split, captions, what, needs)
        return found, "+".join(sorted(captions["caption_set"].unique()))

    def _language(self, target: Target, lang: str, sets: str, found: Gallery, visual_VD: Tensor) -> None:
        """The queries of one language: as they are, by every reading of the model, and fused with their translation."""
        text_TD = encode_and_embed(self.method, self.tokenizer, found.texts, self.device)
        self._add(target, lang, sets, found, visual_VD, text_TD)
        for reading, model in self.method.readings().items():
            sides = (
                embed_visuals(model, found.visual, self.device),
                encode_and_embed(model, self.tokenizer, found.texts, self.device),
            )
            self._add(target, lang, sets, found, *sides, reading=reading)
        known = _translated_queries(target, found) if lang != target.data.source_lang else {}
        if known:
            # a query without translation stands in for its own: fused with itself, it counts as it is
            english_TD = text_TD.clone()
            english_TD[list(known)] = encode_and_embed(self.method, self.tokenizer, list(known.values()), self.device)
            alone = len(text_TD) - len(known)
            if alone:
                warn(f"{alone} of {len(text_TD)} {lang} queries have no translation and are not fused with one")
            self._add(target, lang, sets, found, visual_VD, text_TD, english_TD=english_TD, alone=alone)

    def _add(
        self,
        target: Target,
        lang: str,
        sets: str,
        found: Gallery,
        visual_VD: Tensor,
        text_TD: Tensor,
        *,
        english_TD: Tensor | None = None,
        alone: int = 0,
        reading: str = "",
    ) -> None:
        o, labelled = self.options, self.options.protocol == "labelled"
        scores = score_gallery(
            found,
            visual_VD,
            text_TD,
            english_TD=english_TD,
            beta=o.beta,
            fusion=o.fusion,
            tie=o.ties,
            labelled=labelled,
        )
        fusion = "none" if english_TD is None else f"{o.beta:g}{o.fusion}"
        fused = f"{fusion}-{alone}alone" if alone else fusion
        unc = None if english_TD is not None or reading else uncertainties(self.method, visual_VD, text_TD)

        def headline(t2v: Ranks, v2t: Ranks) -> float:
            return Scores(summarise(t2v, tie=o.ties), summarise(v2t, tie=o.ties), t2v, v2t).headline(labelled)

        interval = bootstrap_interval(
            (scores.ranks_t2v, scores.ranks_v2t),
            headline,
            seed=0,
            groups=(found.item_T, np.arange(len(found.item_ids))),
        )
        mismatch = self.settings["noise"]
        noise_text = "none"
        if mismatch:
            noise_text = f"{mismatch['style']}-{mismatch['target']}-{mismatch['ratio']:g}-seed{mismatch['seed']}"
        label = signatures.build(
            {
                "data": f"{target.data.name}@{target.data.artifact.id[:8]}",
                "split": o.split,
                "lang": lang,
                "caption_set": sets,
                "q": str(len(found.texts)),
                "gallery": str(len(found.item_ids)),
                "dir": "t2v+v2t",
                "protocol": self._protocol(),
                "pos": "label" if labelled else "any",
                "ties": o.ties,
                "sim": f"cosine-{reading}" if reading else "cosine",
                "fusion": fused,
                "mt": self.engine,
                "noise": noise_text,
                "unc": self.method.uncertainty_scope() if unc else "none",
                "select": self.settings["select"],
                "leak": target.leak,
                "ccr": ccr_cli.__version__,
            }
        )
        self.results.append(
            {
                "run": self.trained.name,
                "data": target.data.name,
                "split": o.split,
                "lang": lang,
                "caption_set": sets,
                "role": "source" if lang == target.data.source_lang else "target",
                "fusion": fusion,
                "reading": reading,
                "method": self.settings["method"],
                "label": method_label(self.settings),
                "noise": mismatch["ratio"] if mismatch else 0.0,
                "seed": self.settings["seed"],
                "zero_shot": o.zero_shot,
                "signature": label,
                "t2v": _finite(scores.t2v),
                "v2t": _finite(scores.v2t),
                "SumR": scores.sum_r,
                f"{'mAP' if labelled else 'SumR'}_interval": [interval.low, interval.high],
                "calibration": _calibrations(scores, unc, o.ties, self.method.calibrated and not labelled),
            }
        )
        if unc is not None and labelled:
            right = right_answers(found, labelled)
            self.results[-1]["deletion"] = deletions(visual_VD, text_TD, unc, right, o.ties)
        if unc is not None and self.left_out:
            unknown = self._unknown(target, lang, visual_VD, text_TD)
            self.results[-1]["ood"] = out_of_distribution(unc, unknown, self.left_out)
        number = len(self.results) - 1
        for direction, ranks, ids in (
            ("t2v", scores.ranks_t2v, found.caption_ids),
            ("v2t", scores.ranks_v2t, found.item_ids),
        ):
            self.ranks.append(rank_table(number, direction, ids, ranks, o.ties, unc[direction] if unc else None))

    def _protocol(self) -> str:
        """What the signature calls the protocol."""
        name = self.options.protocol or "full"
        if self.options.zero_shot:
            name = "zero-shot" if name == "full" else f"zero-shot-{name}"
        return f"{name}-without-{self.left_out}" if self.left_out else name

    def _unknown(self, target: Target, lang: str, visual_VD: Tensor, text_TD: Tensor) -> dict[str, np.ndarray]:
        """The uncertainty of queries of the categories that were left out, against the gallery of the others."""
        found, _ = self._gallery(replace(target, data=only(target.data, self.left_out)), lang)
        queries = {
            "t2v": (encode_and_embed(self.method, self.tokenizer, found.texts, self.device), visual_VD),
            "v2t": (embed_visuals(self.method, found.visual, self.device), text_TD),
        }
        out = {}
        for direction, (query_QD, gallery_GD) in queries.items():
            unknown_Q = query_uncertainty(self.method, query_QD, gallery_GD)
            assert unknown_Q is not None, "the method has an uncertainty of other queries"
            out[direction] = unknown_Q
        return out


def captions_of(data: dataset.Dataset, lang: str, options: Options) -> pd.DataFrame:
    """The human captions in a language, of the set that is asked for."""
    captions = data.captions[data.captions["lang"] == lang]
    return captions if options.caption_set is None else captions[captions["caption_set"] == options.caption_set]


def asked_for(data: dataset.Dataset, lang: str, options: Options) -> bool:
    """Whether the items to be measured have captions in a language, of the set that is asked for."""
    items = set(items_of(data.items, options.split)["item_id"])
    return bool(captions_of(data, lang, options)["item_id"].isin(items).any())


def uncertainties(method: Method, visual_VD: Tensor, text_TD: Tensor) -> dict[str, np.ndarray] | None:
    """The uncertainty of every query, by direction; None as soon as the method turns out to have none."""
    out = {}
    for direction, query_QD, gallery_GD in (("t2v", text_TD, visual_VD), ("v2t", visual_VD, text_TD)):
        uncertainty_Q = query_uncertainty(method, query_QD, gallery_GD)
        if uncertainty_Q is None:
            return None
        out[direction] = uncertainty_Q
    return out


@torch.no_grad()
def query_uncertainty(method: Method, query_QD: Tensor, gallery_GD: Tensor) -> np.ndarray | None:
    """The uncertainty of every query; None as soon as the method turns out to have none."""
    parts = []
    for block in torch.split(query_QD, QUERY_BLOCK):
        uncertainty_q = method.score(block, gallery_GD)[1]
        if uncertainty_q is None:
            return None
        parts.append(uncertainty_q)
    return torch.cat(parts).double().cpu().numpy()


def _engine(translated: base.Artifact) -> str:
    frame = translation.read(translated)
    first = frame.iloc[0]
    return f"{first['engine']}:{first['model']}"


def _translated_queries(target: Target, found: Gallery) -> dict[int, str]:
    """The queries in the source language, by their place in the gallery; those that could be translated."""
    if target.translations is None:
        return {}
    query = target.translations[(target.translations["direction"] == "query") & (target.translations["status"] == "ok")]
    text_of = dict(zip(query["source_caption_id"], query["text"], strict=True))
    return {place: text_of[caption] for place, caption in enumerate(found.caption_ids) if text_of.get(caption)}


def _calibrations(
    scores: Scores, unc: dict[str, np.ndarray] | None, tie: str, stated: bool = False
) -> dict[str, Any] | None:
    """What the uncertainty is worth, and where it states a probability, how far that is from what happens."""
    if unc is None:
        return None
    out = {}
    for direction, ranks in (("t2v", scores.ranks_t2v), ("v2t", scores.ranks_v2t)):
        rank = ranks.rank(tie)
        curve = calibration.risk_coverage(unc[direction], rank)
        at = np.linspace(0, len(curve.coverage) - 1, min(CURVE_POINTS, len(curve.coverage))).round().astype(int)
        points = {"coverage": curve.coverage[at].tolist(), "risk": curve.risk[at].tolist()}
        out[direction] = {**calibration.calibration(unc[direction], rank), "curve": points}
        if stated:
            out[direction]["ece"] = calibration.reliability(unc[direction], rank).ece
    return out


def _finite(figures: dict[str, float]) -> dict[str, float | None]:
    return {key: value if math.isfinite(value) else None for key, value in figures.items()}
