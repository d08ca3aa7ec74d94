"""Measuring: the figures of one run on one data set after the other, each with its signature.

Shape suffixes: V visual items, T texts, D embedding, Q queries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

import ccr_cli
from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.evaluation import Corruption
from ccr_cli.artifacts.signature import HALVES, ScoreProtocol, Signature, data_value, fusion_value
from ccr_cli.artifacts.signature import galleries as gallery_sizes
from ccr_cli.console import say, warn
from ccr_cli.data.protocols import USUAL, Protocol, first_captions, read_protocols
from ccr_cli.data.splits import items_of
from ccr_cli.metrics.corruption import corrupt_texts
from ccr_cli.stages.evaluate import ood
from ccr_cli.stages.evaluate.deletion import deletions
from ccr_cli.stages.evaluate.query_groups import breakdowns
from ccr_cli.stages.evaluate.temperature import Softmax, soften
from ccr_cli.stages.evaluate.uncertainty import Scorer, calibrations, of_folds, query_uncertainty, with_trivial
from ccr_cli.stages.shared.ensemble import Model
from ccr_cli.stages.shared.scoring import (
    Sides,
    intervals,
    over_folds,
    precision_curves,
    rank_table,
    right_answers,
    score_gallery,
)
from ccr_cli.stages.shared.triplets import Gallery, gallery, only, without


@dataclass(frozen=True)
class Options:
    """What an evaluation measures and how."""

    split: str | None = None
    """By default the protocol's: `test`, or what the manifest says."""
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
    """`full`: the query's own item is right; `labelled`: all of its category; or a name of the data set's manifest. By
    default what the method learns."""
    task: str = "visual"
    """`visual`, or `text`: sentences in the target language search their English ones, and back."""
    corrupt: float = 0.0
    """Share of the words of captions, or of features, that is corrupted in a second result."""
    corruption: str = "drop"
    """drop, replace or shuffle words; features, masked; or both, words dropped and features masked."""
    ood: str = ""
    """Whether uncertainty tells queries that do not belong to the gallery: `half` of it, taken out, asks the other
    half; or the name of a data set, whose captions ask."""
    drop_leaks: bool = False
    """Of other data sets, leave out the items that the run has seen."""


@dataclass(frozen=True)
class Target:
    """A data set to evaluate on, with features and perhaps translated queries."""

    data: dataset.Dataset
    features: base.Artifact
    translations: pd.DataFrame | None
    langs: tuple[str, ...]
    leak: str
    protocol: Protocol
    fold_of: dict[str, int]
    """Fold of each item of the split."""
    zero_shot: bool = False
    """Whether the run was trained on another collection."""
    trained_on: str = ""
    """What the run was trained on, as a signature says it, where that is another data set."""
    beside: tuple[base.Artifact, ...] = ()
    """The features that the further runs of an ensemble read."""

    @property
    def each(self) -> tuple[base.Artifact, ...]:
        """The features that each of the runs reads."""
        return (self.features, *self.beside)


class Measuring:
    """Collects the results of all targets."""

    def __init__(
        self, model: Model, options: Options, own: base.Artifact, other: dataset.Dataset | None = None
    ) -> None:
        """Args: the models, what is measured, the data set that they were trained on, and the one of `--ood`."""
        self.model, self.options, self.own, self.other = model, options, own, other
        self.trained_without = str(model.who.settings["options"].get("left_out", ""))
        self.left_out = "" if options.zero_shot else self.trained_without
        self.softmax: dict[str, Softmax] = {}
        self.results: list[dict[str, Any]] = []
        self.ranks: list[pd.DataFrame] = []
        self.outside: list[pd.DataFrame] = []

    def target(self, target: Target, advance: Any) -> None:
        """Measures every language of one data set."""
        visual: Tensor | None = None
        known, protocol = replace(target, data=without(target.data, self.left_out)), target.protocol
        for lang in target.langs:
            found, sets = self._gallery(known, lang)
            if protocol.caption_set not in (None, sets):
                wanted = protocol.caption_set
                say(f"{lang} has no captions of the set {wanted!r} and is measured with its own: {sets}")
            _warn_mixed(target.data, lang, sets, protocol)
            if found.missing:
                warn(f"{found.missing} {protocol.split} items of {target.data.name} have no features")
            if visual is None:
                visual = self.model.visuals(found, target.each)
            sides = self._language(target, lang, sets, found, visual)
            if self.options.corrupt:
                self._corrupted(target, lang, sets, sides)
            advance(1)

    def _gallery(self, target: Target, lang: str) -> tuple[Gallery, str]:
        """The items of a data set with the captions of one language, and the sets that these are of."""
        protocol = target.protocol
        beside = lang == target.data.source_lang and len(target.langs) > 1
        if beside and not asked_for(target.data, lang, protocol):
            protocol = replace(protocol, caption_set=None)
        captions = captions_of(target.data, lang, protocol)
        wanted = f" of the set {protocol.caption_set!r}" if protocol.caption_set else ""
        what = f"human {lang} captions{wanted}"
        found = gallery(target.data, target.features, protocol.split, captions, what, self.model.needs)
        if protocol.positives == "single":
            first = set(first_captions(captions, 1)["caption_id"])
            found = replace(found, first_T=np.flatnonzero([caption in first for caption in found.caption_ids]))
        asked = captions[captions["caption_id"].isin(set(found.caption_ids))]
        return found, "+".join(sorted(asked["caption_set"].unique()))

    def _language(self, target: Target, lang: str, sets: str, found: Gallery, visual_VD: Tensor) -> Sides:
        """The queries of one language: as they are (returned), by every reading of the model, and fused."""
        text_TD = self.model.texts(found.texts)
        plain = Sides(found, visual_VD, text_TD)
        self._add(target, lang, sets, plain)
        for reading, vectors in self.model.readings(found):
            self._add(target, lang, sets, Sides(found, *vectors), reading=reading)
        known = _translated_queries(target, found) if lang != target.data.source_lang else {}
        if known:
            # a query without translation stands in for its own: fused with itself, it counts as it is
            english_TD = text_TD.clone()
            english_TD[list(known)] = self.model.texts(list(known.values()))
            alone = len(text_TD) - len(known)
            if alone:
                warn(f"{alone} of {len(text_TD)} {lang} queries have no translation and are not fused with one")
            self._add(target, lang, sets, Sides(found, visual_VD, text_TD, english_TD), alone=alone)
        return plain

    def _corrupted(self, target: Target, lang: str, sets: str, intact: Sides) -> None:
        """The same with captions, features or both made worse."""
        o, found, visual_VD = self.options, intact.found, intact.visual_VD
        if o.corruption != "features":
            how = "drop" if o.corruption == "both" else o.corruption
            found = replace(found, texts=corrupt_texts(found.texts, o.corrupt, how, lang))
        if o.corruption in ("features", "both"):
            visual_VD = self.model.visuals(found, target.each, masked=o.corrupt)
        worse = Sides(found, visual_VD, self.model.texts(found.texts))
        self._add(target, lang, sets, worse, worse=str(Corruption(o.corruption, o.corrupt)))
        kinds = ([ood.asked(fold) for fold in self._folds(target, sides)] for sides in (intact, worse))
        self.results[-1]["told_apart"], _ = ood.told_apart(self._scorer(lang, intact), *kinds)

    def _scorer(self, lang: str, sides: Sides) -> Scorer:
        """Who says how unsure a query is: the method, if it can; else a softmax."""
        alone = self.model.alone
        if alone is not None and query_uncertainty(alone, sides.text_TD[:1], sides.visual_VD) is not None:
            return alone
        return self._softmax(lang)

    def _softmax(self, lang: str) -> Softmax:
        """Fitted once to each language of queries."""
        if lang not in self.softmax:
            self.softmax[lang] = soften(self.model, lang, self.trained_without, self.own)
        return self.softmax[lang]

    def _folds(self, target: Target, sides: Sides) -> list[Sides]:
        return sides.folds(np.array([target.fold_of[item] for item in sides.found.item_ids]), target.protocol.folds)

    def _add(
        self,
        target: Target,
        lang: str,
        sets: str,
        sides: Sides,
        *,
        alone: int = 0,
        reading: str = "",
        worse: str = "",
    ) -> None:
        o, protocol, found = self.options, target.protocol, sides.found
        labelled, fuses = protocol.positives == "label", sides.english_TD is not None
        folds = self._folds(target, sides)
        scored = [
            score_gallery(
                fold.found,
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
        fusion = fusion_value(o.beta, o.fusion) if fuses else "none"
        scorer = None if fuses or reading else self._scorer(lang, sides)
        unc = of_folds(scorer, folds) if scorer else None
        parts = [(fold.found, each) for fold, each in zip(folds, scored, strict=True)]
        known = calibrations(scored, unc, o.ties, scorer is not None and scorer.calibrated and not labelled)
        softmax = self._softmax(lang) if scorer else None
        more = None if softmax is None else softmax.disagreement if softmax is scorer else softmax.stated
        label = self.signature(
            target,
            lang,
            caption_set=sets,
            q=str(len(found.texts)),
            gallery=gallery_sizes([len(fold.found.item_ids) for fold in folds]),
            dir="t2v+v2t",
            protocol=self._protocol(target, f"corrupt-{worse}" if worse else ""),
            pos={"all": "any"}.get(protocol.positives, protocol.positives),
            sim=self.model.who.similarity(reading),
            fusion=fusion_value(o.beta, o.fusion, alone) if fuses else "none",
            unc=scorer.uncertainty_scope() if scorer and unc else "none",
        )
        self.results.append(
            self.heading(target, lang, sets, label)
            | {
                "fusion": fusion,
                "reading": reading,
                "t2v": finite(scores.t2v),
                "v2t": finite(scores.v2t),
                "SumR": scores.sum_r,
                "intervals": intervals(parts, o.ties),
                "breakdown": breakdowns(parts, lang, target.translations, o.ties),
                "calibration": with_trivial(known, folds, scored, unc, o.ties, more) if scorer else None,
            }
        )
        if softmax and softmax.temperatures:
            self.results[-1]["temperature"] = list(softmax.temperatures)
        if worse:
            self.results[-1]["corrupt"] = worse
        if unc is not None and o.corrupt:
            means = {d: float(np.concatenate([fold[d] for fold in unc]).mean()) for d in ("t2v", "v2t")}
            self.results[-1]["uncertainty"] = means
        if labelled:
            self.results[-1]["precision"] = precision_curves(scored)
        if unc is not None and labelled:
            right = right_answers(found, labelled)
            self.results[-1]["deletion"] = deletions(sides.visual_VD, sides.text_TD, unc[0], right, o.ties)
        number = len(self.results) - 1
        if unc is not None and self.left_out and len(folds) == 1 and not worse:
            self._left_out(target, lang, sides)
        elif o.ood and not (fuses or reading or worse):
            self._outside(target, lang, sides, label)
        for direction in ("t2v", "v2t"):
            for place, (fold, each) in enumerate(zip(folds, scored, strict=True)):
                unc_Q = unc[place][direction] if unc else None
                self.ranks.append(rank_table(number, direction, place, fold.found, each, o.ties, unc_Q))

    def signature(self, target: Target, lang: str, **fields: str) -> Signature:
        """The signature of a result: what is said here, and what is the same in all results on a data set."""
        who = self.model.who
        return Signature(
            data=named(target.data),
            split=target.protocol.split,
            lang=lang,
            ties=self.options.ties,
            mt=who.mt(lang),
            noise=who.noise,
            select=who.settings["select"],
            leak=target.leak,
            ccr=ccr_cli.__version__,
            **fields,
        )

    def heading(self, target: Target, lang: str, sets: str, label: Signature) -> dict[str, Any]:
        """What a result is of."""
        return {
            **self.model.who.heading(),
            "data": target.data.name,
            "split": target.protocol.split,
            "lang": lang,
            "caption_set": sets,
            "role": "source" if lang == target.data.source_lang else "target",
            "zero_shot": target.zero_shot,
            "signature": str(label),
        }

    def _protocol(self, target: Target, more: str) -> str:
        """What the signature calls the protocol."""
        name = target.protocol.name
        return str(ScoreProtocol(name, target.zero_shot, more, self.left_out, target.trained_on))

    def _left_out(self, target: Target, lang: str, sides: Sides) -> None:
        """The uncertainty of queries of the categories that were left out, against the gallery of the others."""
        found, _ = self._gallery(replace(target, data=only(target.data, self.left_out)), lang)
        outside = Sides(found, self.model.visuals(found, target.each), self.model.texts(found.texts))
        about = {"left_out": [int(label) for label in self.left_out.split(",")]}
        self._tell(about, self._scorer(lang, sides), [ood.asked(sides)], [ood.asked(outside, sides)])

    def _outside(self, target: Target, lang: str, sides: Sides, label: Signature) -> None:
        """The uncertainty of queries that do not belong to the gallery: of its other half, or of another data set."""
        what = named(self.other) if self.other else HALVES
        kinds: ood.Kinds | None = (
            ood.strangers(self.other, lang, target.protocol.split, sides, self.model.texts)
            if self.other
            else ood.halves(sides, target.data)
        )
        if kinds is not None:
            sizes = gallery_sizes([len(each["v2t"].ids) for each in kinds[0]])
            label = replace(label, protocol=self._protocol(target, f"ood-{what}"), gallery=sizes)
            self._tell({"of": what, "signature": str(label)}, self._scorer(lang, sides), *kinds)

    def _tell(self, about: dict[str, Any], scorer: Scorer, known: list[ood.Both], unknown: list[ood.Both]) -> None:
        """How well queries of a result are told from others that do not belong to its gallery."""
        told, rows = ood.told_apart(scorer, known, unknown)
        self.results[-1]["ood"] = about | told
        if rows is not None:
            self.outside.append(rows.assign(result=np.int32(len(self.results) - 1)))


def named(data: dataset.Dataset) -> str:
    """What a signature calls a data set."""
    return data_value(data.name, data.artifact.id, partial=bool(data.manifest.get("partial")))


def _warn_mixed(data: dataset.Dataset, lang: str, sets: str, protocol: Protocol) -> None:
    """Warns where captions of several sets are measured as one, and a protocol of the data set is of one of them."""
    mixed = set(sets.split("+"))
    if protocol.name not in USUAL or protocol.caption_set is not None or len(mixed) == 1:
        return
    known = read_protocols(data.manifest, f"the manifest of {data.name}").values()
    fits = [each.name for each in known if each.caption_set in mixed and (each.langs is None or lang in each.langs)]
    if fits:
        warn(
            f"the {lang} captions of {data.name} are of several sets ({sets}), which are not measured as one "
            f"elsewhere: --protocol {' or '.join(fits)}, or --caption-set"
        )


def captions_of(data: dataset.Dataset, lang: str, protocol: Protocol) -> pd.DataFrame:
    """The human captions in a language that a protocol takes."""
    captions = data.captions[data.captions["lang"] == lang]
    if protocol.caption_set is not None:
        captions = captions[captions["caption_set"] == protocol.caption_set]
    return captions if protocol.captions is None else first_captions(captions, protocol.captions)


def asked_for(data: dataset.Dataset, lang: str, protocol: Protocol) -> bool:
    """Whether the items to be measured have captions in a language that the protocol takes."""
    items = set(items_of(data.items, protocol.split)["item_id"])
    return bool(captions_of(data, lang, protocol)["item_id"].isin(items).any())


def _translated_queries(target: Target, found: Gallery) -> dict[int, str]:
    """The queries in the source language, by their place in the gallery; those that could be translated."""
    if target.translations is None:
        return {}
    query = target.translations[(target.translations["direction"] == "query") & (target.translations["status"] == "ok")]
    text_of = dict(zip(query["source_caption_id"], query["text"], strict=True))
    return {place: text_of[caption] for place, caption in enumerate(found.caption_ids) if text_of.get(caption)}


def finite(figures: dict[str, float]) -> dict[str, float | None]:
    """Figures as JSON can hold them: None where there is none."""
    return {key: value if math.isfinite(value) else None for key, value in figures.items()}
