"""The figures of a run on one data set after the other, each with its signature.

Shape suffixes: V visual items, T texts, D embedding, Q queries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

import ccr_cli
from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.artifacts.evaluation import Corruption
from ccr_cli.artifacts.signature import COMMON_PROTOCOLS, HALVES, NONE, ScoreProtocol, Signature, fusion_value
from ccr_cli.artifacts.signature import galleries as gallery_sizes
from ccr_cli.console import say, warn
from ccr_cli.data.protocols import Protocol, first_captions, read_protocols
from ccr_cli.metrics import breakdown
from ccr_cli.metrics.corruption import corrupt_texts
from ccr_cli.stages.evaluate import ood
from ccr_cli.stages.evaluate.options import EvaluationOptions
from ccr_cli.stages.evaluate.targets import CHRF, FLAGGED, Target, captions_of, signature_name
from ccr_cli.stages.evaluate.uncertainty import (
    Scorer,
    Softmax,
    calibrations,
    deletions,
    fit_softmax,
    fold_uncertainties,
    query_uncertainty,
    with_trivial,
)
from ccr_cli.stages.shared.ensemble import Model
from ccr_cli.stages.shared.scoring import (
    EmbeddedGallery,
    Scores,
    intervals,
    over_folds,
    precision_curves,
    rank_table,
    right_answers,
    score_gallery,
)
from ccr_cli.stages.shared.splits import Split
from ccr_cli.stages.shared.triplets import Gallery, read_items, search_captions


@dataclass
class Evaluator:
    """Collects the results of all targets."""

    model: Model
    options: EvaluationOptions
    own: Dataset
    """The data set that the runs were trained on."""
    foreign: Split | None = None
    """The split of the data set of `--ood`."""
    results: list[dict[str, Any]] = field(default_factory=list)
    ranks: list[pd.DataFrame] = field(default_factory=list)
    outside: list[pd.DataFrame] = field(default_factory=list)
    softmax_of: dict[str, Softmax] = field(default_factory=dict)

    @cached_property
    def trained_without(self) -> str:
        """Categories that were left out of training, with commas between."""
        return str(self.model.ensemble.settings["options"].get("left_out", ""))

    @property
    def left_out(self) -> str:
        """Categories that are left out of the galleries."""
        return "" if self.options.zero_shot else self.trained_without

    def _of_left_out(self, split: Split) -> pd.Series[bool]:
        """Whether each item is of a category that was left out of training."""
        return split.items["label"].isin([int(label) for label in self.left_out.split(",") if label])

    def measure(self, target: Target, advance: Any) -> None:
        """Measures every language of one data set."""
        visual: Tensor | None = None
        protocol, split = target.protocol, target.split.where(~self._of_left_out(target.split))
        items = read_items(split, target.features[0], self.model.needs)
        for lang in target.langs:
            gallery, sets = self._gallery(target, split, items, lang)
            if protocol.caption_set not in (None, sets):
                say(f"{lang} has no captions of the set {protocol.caption_set!r}; its own are used: {sets}")
            _warn_mixed(target.data, lang, sets, protocol)
            if gallery.missing:
                warn(f"{gallery.missing} {protocol.split} items of {target.data.name} have no features")
            if visual is None:
                visual = self.model.visuals(gallery, target.features)
            embedded = self._language(target, lang, sets, gallery, visual)
            if self.options.corrupt:
                self._corrupted(target, lang, sets, embedded)
            advance(1)

    def _gallery(self, target: Target, split: Split, items: Gallery, lang: str) -> tuple[Gallery, str]:
        """The items with the captions of one language, and the caption sets of these."""
        protocol = target.protocol
        captions = captions_of(split, lang, protocol)
        if captions.empty and lang == split.data.source_lang and len(target.langs) > 1:
            protocol = replace(protocol, caption_set=None)
            captions = captions_of(split, lang, protocol)
        of_set = f" of the set {protocol.caption_set!r}" if protocol.caption_set else ""
        gallery = search_captions(items, split, captions, f"human {lang} captions{of_set}")
        if protocol.positives == "single":
            first = set(first_captions(captions, 1)["caption_id"])
            gallery = replace(gallery, first_T=np.flatnonzero([caption in first for caption in gallery.caption_ids]))
        used = captions[captions["caption_id"].isin(set(gallery.caption_ids))]
        return gallery, "+".join(sorted(used["caption_set"].unique()))

    def _language(self, target: Target, lang: str, sets: str, gallery: Gallery, visual_VD: Tensor) -> EmbeddedGallery:
        """Measures the queries of one language: as they are (returned), by every reading of the model, and fused."""
        text_TD = self.model.texts(gallery.texts)
        plain = EmbeddedGallery(gallery, visual_VD, text_TD)
        self._add(target, lang, sets, plain)
        for reading, vectors in self.model.readings(gallery):
            self._add(target, lang, sets, EmbeddedGallery(gallery, *vectors), reading=reading)
        translated = _translated_queries(target, gallery) if lang != target.data.source_lang else {}
        if translated:
            # a query without a translation is fused with itself, so it counts as it is
            english_TD = text_TD.clone()
            english_TD[list(translated)] = self.model.texts(list(translated.values()))
            alone = len(text_TD) - len(translated)
            if alone:
                warn(f"{alone} of {len(text_TD)} {lang} queries have no translation and are not fused with one")
            self._add(target, lang, sets, EmbeddedGallery(gallery, visual_VD, text_TD, english_TD), alone=alone)
        return plain

    def _corrupted(self, target: Target, lang: str, sets: str, intact: EmbeddedGallery) -> None:
        """Measures the same with captions, features or both corrupted."""
        corruption = Corruption(self.options.corruption or "drop", self.options.corrupt)
        gallery, visual_VD = intact.gallery, intact.visual_VD
        if corruption.kind != "features":
            how = "drop" if corruption.kind == "both" else corruption.kind
            gallery = replace(gallery, texts=corrupt_texts(gallery.texts, corruption.share, how, lang))
        if corruption.kind in ("features", "both"):
            visual_VD = self.model.visuals(gallery, target.features, masked=corruption.share)
        worse = EmbeddedGallery(gallery, visual_VD, self.model.texts(gallery.texts))
        self._add(target, lang, sets, worse, corruption=corruption)
        kinds = ([ood.queries_of(fold) for fold in self._folds(target, side)] for side in (intact, worse))
        self.results[-1]["told_apart"], _ = ood.separations(self._scorer(lang, intact), *kinds)

    def _scorer(self, lang: str, embedded: EmbeddedGallery) -> Scorer:
        """States the uncertainty of queries: the method if it can, else a softmax."""
        alone = self.model.alone
        if alone is not None and query_uncertainty(alone, embedded.text_TD[:1], embedded.visual_VD) is not None:
            return alone
        return self._softmax(lang)

    def _softmax(self, lang: str) -> Softmax:
        """Fitted once per language of queries."""
        if lang not in self.softmax_of:
            self.softmax_of[lang] = fit_softmax(self.model, lang, self.trained_without, self.own)
        return self.softmax_of[lang]

    def _folds(self, target: Target, embedded: EmbeddedGallery) -> list[EmbeddedGallery]:
        fold_V = np.array([target.fold_of[item] for item in embedded.gallery.item_ids])
        return embedded.folds(fold_V, target.protocol.folds)

    def _add(
        self,
        target: Target,
        lang: str,
        sets: str,
        embedded: EmbeddedGallery,
        *,
        alone: int = 0,
        reading: str = "",
        corruption: Corruption | None = None,
    ) -> None:
        """Adds a result, with the ranks of its queries.

        Args:
            target: The data set.
            lang: Language of the queries.
            sets: Their caption sets.
            embedded: The gallery, with translated queries where these are fused.
            alone: Number of queries without a translation.
            reading: Name of the reading of the model; empty for the usual one.
            corruption: How the queries are corrupted, if they are.
        """
        o, protocol, gallery = self.options, target.protocol, embedded.gallery
        labelled, fused = protocol.positives == "label", embedded.english_TD is not None
        folds = self._folds(target, embedded)
        scored = [
            score_gallery(
                fold.gallery,
                fold.visual_VD,
                fold.text_TD,
                english_TD=fold.english_TD,
                beta=o.beta,
                fusion=o.fusion,
                tie=o.ties,
                labelled=labelled,
            )
            for fold in folds
        ]
        scores = over_folds(scored)
        scorer = None if fused or reading else self._scorer(lang, embedded)
        unc = fold_uncertainties(scorer, folds) if scorer else None
        pairs = [(fold.gallery, fold_scores) for fold, fold_scores in zip(folds, scored, strict=True)]
        figures = calibrations(scored, unc, o.ties, scorer is not None and scorer.calibrated and not labelled)
        softmax = self._softmax(lang) if scorer else None
        more = None if softmax is None else softmax.disagreement if softmax is scorer else softmax.stated
        signature = self.signature(
            target,
            lang,
            caption_set=sets,
            q=str(len(gallery.texts)),
            gallery=gallery_sizes([len(fold.gallery.item_ids) for fold in folds]),
            dir="t2v+v2t",
            protocol=self._protocol(target, f"corrupt-{corruption}" if corruption else ""),
            pos={"all": "any"}.get(protocol.positives, protocol.positives),
            sim=self.model.ensemble.similarity(reading),
            fusion=fusion_value(o.beta, o.fusion, alone) if fused else NONE,
            unc=scorer.uncertainty_scope() if scorer and unc else NONE,
        )
        result = self.heading(target, lang, sets, signature) | {
            "fusion": fusion_value(o.beta, o.fusion) if fused else NONE,
            "reading": reading,
            "t2v": finite(scores.t2v),
            "v2t": finite(scores.v2t),
            "SumR": scores.sum_r,
            "intervals": intervals(pairs, o.ties),
            "breakdown": breakdowns(pairs, lang, target.translations, o.ties),
            "calibration": with_trivial(figures, folds, scored, unc, o.ties, more) if scorer else None,
        }
        if softmax and softmax.temperatures:
            result["temperature"] = list(softmax.temperatures)
        if corruption:
            result["corrupt"] = str(corruption)
        if unc is not None and o.corrupt:
            result["uncertainty"] = {d: float(np.concatenate([fold[d] for fold in unc]).mean()) for d in ("t2v", "v2t")}
        if labelled:
            result["precision"] = precision_curves(scored)
        if unc is not None and labelled:
            right = right_answers(gallery, labelled)
            result["deletion"] = deletions(embedded.visual_VD, embedded.text_TD, unc[0], right, o.ties)
        self.results.append(result)
        number = len(self.results) - 1
        if unc is not None and self.left_out and len(folds) == 1 and not corruption:
            self._left_out(target, lang, embedded)
        elif o.ood and not (fused or reading or corruption):
            self._out_of_distribution(target, lang, embedded, signature)
        for direction in ("t2v", "v2t"):
            for place, (fold_gallery, fold_scores) in enumerate(pairs):
                unc_Q = unc[place][direction] if unc else None
                self.ranks.append(rank_table(number, direction, place, fold_gallery, fold_scores, o.ties, unc_Q))

    def signature(self, target: Target, lang: str, **fields: str) -> Signature:
        """The signature of a result: the fields that differ, and those that all results on a data set share."""
        ensemble = self.model.ensemble
        return Signature(
            data=signature_name(target.data),
            split=target.protocol.split,
            lang=lang,
            ties=self.options.ties,
            mt=ensemble.mt(lang),
            noise=ensemble.noise,
            select=ensemble.settings["select"],
            leak=target.leak,
            ccr=ccr_cli.__version__,
            **fields,
        )

    def heading(self, target: Target, lang: str, sets: str, signature: Signature) -> dict[str, Any]:
        """The fields of a result that say what it is about."""
        return {
            **self.model.ensemble.heading(),
            "data": target.data.name,
            "split": target.protocol.split,
            "lang": lang,
            "caption_set": sets,
            "role": "source" if lang == target.data.source_lang else "target",
            "zero_shot": target.zero_shot,
            "signature": str(signature),
        }

    def _protocol(self, target: Target, change: str) -> str:
        name = target.protocol.name
        return str(ScoreProtocol(name, target.zero_shot, change, self.left_out, target.trained_on))

    def _left_out(self, target: Target, lang: str, embedded: EmbeddedGallery) -> None:
        """Measures the uncertainty of queries of the left-out categories, against the gallery of the others."""
        split = target.split.where(self._of_left_out(target.split))
        items = read_items(split, target.features[0], self.model.needs)
        gallery, _ = self._gallery(target, split, items, lang)
        visual_VD, text_TD = self.model.visuals(gallery, target.features), self.model.texts(gallery.texts)
        queries = ood.queries_of(EmbeddedGallery(gallery, visual_VD, text_TD), embedded)
        about = {"left_out": [int(label) for label in self.left_out.split(",")]}
        self._add_separation(about, self._scorer(lang, embedded), [ood.queries_of(embedded)], [queries])

    def _out_of_distribution(self, target: Target, lang: str, embedded: EmbeddedGallery, signature: Signature) -> None:
        """Measures the uncertainty of queries without a match: of the gallery's other half, or of another data set."""
        kinds: ood.KnownAndUnknown | None
        if self.foreign:
            what = signature_name(self.foreign.data)
            kinds = ood.foreign_queries(self.foreign, lang, embedded, self.model.texts)
        else:
            what, kinds = HALVES, ood.halves(embedded, target.data)
        if kinds is not None:
            sizes = gallery_sizes([len(queries["v2t"].ids) for queries in kinds[0]])
            signature = replace(signature, protocol=self._protocol(target, f"ood-{what}"), gallery=sizes)
            self._add_separation({"of": what, "signature": str(signature)}, self._scorer(lang, embedded), *kinds)

    def _add_separation(
        self, about: dict[str, Any], scorer: Scorer, known: list[ood.ByDirection], unknown: list[ood.ByDirection]
    ) -> None:
        """Adds to the last result how well its queries are separated from others that its gallery does not answer."""
        figures, rows = ood.separations(scorer, known, unknown)
        self.results[-1]["ood"] = about | figures
        if rows is not None:
            self.outside.append(rows.assign(result=np.int32(len(self.results) - 1)))


def _warn_mixed(data: Dataset, lang: str, sets: str, protocol: Protocol) -> None:
    """Warns if captions of several sets are pooled, and a protocol of the data set uses one of them alone."""
    mixed = set(sets.split("+"))
    if protocol.name not in COMMON_PROTOCOLS or protocol.caption_set is not None or len(mixed) == 1:
        return
    protocols = read_protocols(data.manifest, f"the manifest of {data.name}").values()
    fits = [p.name for p in protocols if p.caption_set in mixed and (p.langs is None or lang in p.langs)]
    if fits:
        warn(
            f"the {lang} captions of {data.name} are of several sets ({sets}), which papers do not pool: "
            f"--protocol {' or '.join(fits)}, or --caption-set"
        )


def breakdowns(
    folds: Sequence[tuple[Gallery, Scores]], lang: str, translations: pd.DataFrame | None, tie: str
) -> dict[str, Any]:
    """The figures of groups of text queries, all folds pooled, each query with its rank in its own fold.

    Args:
        folds: Each fold with its scores.
        lang: Language of the queries.
        translations: `Target.translations`.
        tie: mid, optimistic or pessimistic.

    Returns:
        `length`: `unit` and `groups`; `translation`, where queries were translated: `flagged`, `not_flagged`, and by
        chrF against human captions, where that is known, `groups`.
    """
    ranks = [scores.ranks_t2v for _, scores in folds]
    valid_Q = np.concatenate([fold.valid for fold in ranks])
    rank_Q = np.concatenate([fold.rank(tie) for fold in ranks])[valid_Q]
    ap_Q = np.concatenate([fold.ap(tie) for fold in ranks])[valid_Q]
    length_Q, unit = breakdown.lengths([text for gallery, _ in folds for text in gallery.texts], lang)
    out: dict[str, Any] = {
        "length": {"unit": unit, "groups": breakdown.by_value(length_Q[valid_Q], rank_Q, ap_Q)},
    }
    if translations is None or CHRF not in translations:
        return out
    queries = translations[(translations["direction"] == "query") & (translations["status"] == "ok")]
    queries = queries.drop_duplicates("source_caption_id").set_index("source_caption_id")
    queries = queries.reindex([caption for gallery, _ in folds for caption in gallery.caption_ids])[valid_Q]
    translated_Q = queries["status"].notna().to_numpy()
    if translated_Q.any():
        flagged_Q = (queries[FLAGGED].eq(True)).to_numpy()
        out["translation"] = {
            "flagged": breakdown.figures(rank_Q, ap_Q, translated_Q & flagged_Q),
            "not_flagged": breakdown.figures(rank_Q, ap_Q, translated_Q & ~flagged_Q),
            "groups": breakdown.by_value(queries[CHRF].to_numpy(np.float64), rank_Q, ap_Q, 4),
        }
    return out


def _translated_queries(target: Target, gallery: Gallery) -> dict[int, str]:
    """The queries in the source language, by their place in the gallery; those that could be translated."""
    if target.translations is None:
        return {}
    query = target.translations[(target.translations["direction"] == "query") & (target.translations["status"] == "ok")]
    text_of = dict(zip(query["source_caption_id"], query["text"], strict=True))
    return {place: text_of[caption] for place, caption in enumerate(gallery.caption_ids) if text_of.get(caption)}


def finite(figures: dict[str, float]) -> dict[str, float | None]:
    """Figures as JSON can hold them: None for nan."""
    return {key: value if math.isfinite(value) else None for key, value in figures.items()}
