"""Measures a run on one data set after the other; every result has its signature.

Shape suffixes: V visual items, T texts, D embedding, Q queries.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

import ccr_cli
from ccr_cli.artifacts import translation
from ccr_cli.artifacts.base import canonical_json, sha256_text
from ccr_cli.artifacts.evaluation import Corruption
from ccr_cli.artifacts.label import Label
from ccr_cli.artifacts.signature import (
    COMMON_PROTOCOLS,
    HALVES,
    HUMAN,
    MT,
    NONE,
    TRANSLATE_TEST,
    ScoreProtocol,
    Signature,
    fusion_value,
    query_value,
    sim_value,
)
from ccr_cli.artifacts.signature import galleries as gallery_sizes
from ccr_cli.console import counted, say, warn
from ccr_cli.data.frames import Frames
from ccr_cli.data.protocols import first_captions, read_protocols
from ccr_cli.errors import ArtifactError
from ccr_cli.metrics import breakdown
from ccr_cli.metrics.bootstrap import DIRECTIONS
from ccr_cli.metrics.corruption import corrupt_texts
from ccr_cli.metrics.ranks import TENTHS, Positives, dot_sim, precision_recall, rank_both
from ccr_cli.stages.evaluate.options import EvaluationOptions
from ccr_cli.stages.evaluate.queries import captions_of
from ccr_cli.stages.evaluate.targets import CHRF, FLAGGED, Target, signature_name
from ccr_cli.stages.evaluate.uncertainty import (
    KnownAndUnknown,
    Scorer,
    Softmax,
    deletions,
    foreign_queries,
    halves,
    query_uncertainty,
    separations,
    uncertainty_figures,
)
from ccr_cli.stages.shared.ensemble import Model
from ccr_cli.stages.shared.scoring import (
    ByDirection,
    EmbeddedGallery,
    Figures,
    Scores,
    intervals,
    over_folds,
    rank_table,
    score_gallery,
)
from ccr_cli.stages.shared.splits import Split
from ccr_cli.stages.shared.triplets import Gallery, read_items, search_captions


@dataclass(frozen=True)
class QueryLanguage:
    """The queries that a result is about: those of one language and kind on a data set."""

    target: Target
    lang: str
    caption_sets: str
    kind: str = HUMAN
    """`human`, `mt` or `file`."""


@dataclass
class Evaluator:
    """Collects the results of all targets."""

    model: Model
    options: EvaluationOptions
    foreign: Split | None
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

    def _of_left_out(self, split: Split) -> "pd.Series[bool]":
        """Whether each item is of a category that was left out of training."""
        return split.items["label"].isin([int(label) for label in self.left_out.split(",") if label])

    def measure(self, target: Target, advance: Any) -> None:
        """Measures every language of one data set."""
        visual: Tensor | None = None
        protocol, split = target.protocol, target.split.where(~self._of_left_out(target.split))
        items = read_items(split, target.features[0], self.model.needs)
        for lang, kind in target.queries:
            gallery, sets = self._gallery(target, split, items, lang, kind)
            about = QueryLanguage(target, lang, sets, kind)
            if kind == HUMAN and protocol.caption_set not in (None, sets):
                say(f"{lang} has no captions of the set {protocol.caption_set!r}; its own are used: {sets}")
            if kind == HUMAN:
                _warn_mixed(about)
            if gallery.missing and visual is None:  # the same items in every language
                warn(f"{counted(gallery.missing, f'{protocol.split} item')} of {target.data.name} without features")
            if visual is None:
                visual = self.model.visuals(gallery, target.features)
            embedded = self._language(about, gallery, visual)
            if self.options.corrupt:
                self._corrupted(about, embedded)
            advance(1)

    def _gallery(
        self, target: Target, split: Split, items: Gallery, lang: str, kind: str = HUMAN
    ) -> tuple[Gallery, str]:
        """The items with the captions of one language and kind, and the sets of these captions."""
        captions, protocol = target.captions(split, lang, kind)
        first = set(first_captions(captions, 1)["caption_id"]) if protocol.positives == "single" else None
        of_set = f" of the set {protocol.caption_set!r}" if protocol.caption_set else ""
        what = {HUMAN: f"human {lang} captions", MT: f"machine-translated {lang} captions"}
        gallery = search_captions(items, split, captions, f"{what.get(kind, f'{lang} queries')}{of_set}")
        if first is not None:
            gallery = replace(gallery, first_T=np.flatnonzero([caption in first for caption in gallery.caption_ids]))
        used = captions[captions["caption_id"].isin(set(gallery.caption_ids))]
        return gallery, "+".join(sorted(used["caption_set"].unique()))

    def _language(self, about: QueryLanguage, gallery: Gallery, visual_VD: Tensor) -> EmbeddedGallery:
        """Measures the queries of one language: plain (returned), by every other reading of the model, and fused."""
        if (unknown := self.model.unknown(gallery.texts)) > UNKNOWN:
            warn(f"{unknown:.0%} of the tokens of the {about.lang} queries are unknown to the model's tokenizer")
        text_TD = self.model.texts(gallery.texts)
        plain = EmbeddedGallery(gallery, visual_VD, text_TD)
        self._measure(about, plain)
        for reading, vectors in self.model.readings(gallery):
            self._measure(about, EmbeddedGallery(gallery, *vectors), reading=reading)
        made = about.target.translated_queries.reindex(gallery.caption_ids)
        translated = {place: text for place, text in enumerate(made["text"]) if isinstance(text, str) and text}
        if translated and about.lang != about.target.data.source_lang:
            # a query without a translation is fused with itself, which changes nothing in raw fusion
            english_TD = text_TD.clone()
            english_TD[list(translated)] = self.model.texts(list(translated.values()))
            alone = len(text_TD) - len(translated)
            if alone:
                warn(f"{alone} of {len(text_TD)} {about.lang} queries have no translation and are not fused with one")
            engine = translation.engines(made)
            self._measure(about, EmbeddedGallery(gallery, visual_VD, text_TD, english_TD), alone=alone, engine=engine)
        return plain

    def _corrupted(self, about: QueryLanguage, intact: EmbeddedGallery) -> None:
        """Measures the same queries with captions, features or both corrupted."""
        corruption = Corruption(self.options.corruption or "drop", self.options.corrupt)
        gallery, visual_VD = intact.gallery, intact.visual_VD
        if corruption.kind != "features":
            how = "drop" if corruption.kind == "both" else corruption.kind
            gallery = replace(gallery, texts=corrupt_texts(gallery.texts, corruption.share, how, about.lang))
        if corruption.kind in ("features", "both"):
            visual_VD = self.model.visuals(gallery, about.target.features, masked=corruption.share)
        worse = EmbeddedGallery(gallery, visual_VD, self.model.texts(gallery.texts))
        self._measure(about, worse, corruption=corruption)
        kinds = ([fold.queries() for fold in self._folds(about.target, side)] for side in (intact, worse))
        self.results[-1]["told_apart"], _ = separations(self._scorer(about.lang, intact), *kinds)

    def _scorer(self, lang: str, embedded: EmbeddedGallery) -> Scorer:
        """What gives the uncertainty of queries: the method if it has one, else a softmax."""
        alone = self.model.alone
        if alone is not None and query_uncertainty(alone, embedded.text_TD[:1], embedded.visual_VD) is not None:
            return alone
        return self._softmax(lang)

    def _softmax(self, lang: str) -> Softmax:
        """The softmax for queries in a language, fitted once."""
        if lang not in self.softmax_of:
            self.softmax_of[lang] = Softmax.fitted(self.model, lang, self.trained_without)
        return self.softmax_of[lang]

    def _folds(self, target: Target, embedded: EmbeddedGallery) -> list[EmbeddedGallery]:
        fold_V = np.array([target.fold_of[item] for item in embedded.gallery.item_ids])
        return embedded.folds(fold_V, target.protocol.folds)

    def _measure(
        self,
        about: QueryLanguage,
        embedded: EmbeddedGallery,
        *,
        alone: int = 0,
        engine: str = "",
        reading: str = "",
        corruption: Corruption | None = None,
    ) -> None:
        """Measures queries and adds the result.

        If they are fused, `alone` is the number of queries without a translation, and `engine` translated the
        others. An empty `reading` is the usual one.
        """
        o, target, gallery = self.options, about.target, embedded.gallery
        labelled, fused = target.protocol.positives == "label", embedded.english_TD is not None
        folds = self._folds(target, embedded)
        scored = [score_gallery(f, beta=o.weight, fusion=o.fusion, tie=o.ties, labelled=labelled) for f in folds]
        queries = rank_table([(fold.gallery, scores) for fold, scores in zip(folds, scored, strict=True)], o.ties)
        texts = [text for fold in folds for text in fold.gallery.texts]
        groups = breakdowns(queries[queries["direction"] == "t2v"], texts, about.lang, target.translated_queries)
        facts: dict[str, Any] = {"breakdown": groups, "calibration": None}
        scorer = None if fused or reading else self._scorer(about.lang, embedded)
        unc_of: dict[str, np.ndarray] = {}
        if scorer:
            softmax = self._softmax(about.lang)
            probability = scorer.calibrated and not labelled
            facts["calibration"], unc_of = uncertainty_figures(scorer, folds, queries, softmax, probability)
            facts |= {"temperature": list(softmax.temperatures)} if softmax.temperatures else {}
        facts |= {"corrupt": str(corruption)} if corruption else {}
        if unc_of and o.corrupt:
            facts["uncertainty"] = {direction: float(unc_Q.mean()) for direction, unc_Q in unc_of.items()}
        if labelled:
            recalls = {"recall": [tenth / TENTHS for tenth in range(TENTHS + 1)]}
            facts["precision"] = recalls | {d: precision_recall([fold.ranks[d] for fold in scored]) for d in DIRECTIONS}
            facts |= {"deletion": deletions(embedded, unc_of, o.ties)} if unc_of else {}
        signature = self.signature(
            about,
            q=query_value(len(gallery.texts), about.kind, _digest(gallery)),
            gallery=gallery_sizes([len(fold.gallery.item_ids) for fold in folds]),
            dir="t2v+v2t",
            protocol=self._protocol(target, f"corrupt-{corruption}" if corruption else ""),
            pos={"all": "any"}.get(target.protocol.positives, target.protocol.positives),
            sim=sim_value(reading, len(self.model.ensemble.members)),
            fusion=fusion_value(o.weight, o.fusion, alone, engine) if fused else NONE,
            unc=scorer.uncertainty_scope() if scorer and unc_of else NONE,
        )
        named = {"fusion": fusion_value(o.weight, o.fusion) if fused else NONE, "reading": reading}
        if named["fusion"] == TRANSLATE_TEST:
            named["label"] = str(Label.parse(self.model.ensemble.heading()["label"]).translate_test())
        unc_Q = np.concatenate([unc_of[direction] for direction in DIRECTIONS]) if unc_of else np.nan
        self.add(about, signature, named, over_folds(scored), queries.assign(uncertainty=unc_Q), facts)
        if o.ood and not (fused or reading or corruption):
            self._out_of_distribution(about, embedded, signature)
        elif unc_of and self.left_out and len(folds) == 1 and not corruption:
            self._left_out(about, embedded)

    def add(
        self,
        about: QueryLanguage,
        signature: Signature,
        named: dict[str, Any],
        figures: Figures,
        queries: pd.DataFrame,
        facts: dict[str, Any],
    ) -> None:
        """Adds a result with the ranks of its queries, from `rank_table` with their `uncertainty`."""
        data, lang, ensemble = about.target.data, about.lang, self.model.ensemble
        heading = {
            **ensemble.heading(),
            "data": data.name,
            "split": about.target.protocol.split,
            "lang": lang,
            "caption_set": about.caption_sets,
            "role": "source" if lang == data.source_lang else "target",
            "zero_shot": about.target.zero_shot,
            **({} if about.kind == HUMAN else {"queries": about.kind}),
            "signature": str(signature),
            **named,
        }
        measured = {"t2v": finite(figures.t2v), "v2t": finite(figures.v2t), "SumR": figures.sum_r}
        self.results.append({**heading, **measured, "intervals": intervals(queries), **facts})
        answered = queries[queries["rank"].notna()].astype({"ties": np.int64})
        self.ranks.append(answered.assign(result=np.int32(len(self.results) - 1)))

    def signature(self, about: QueryLanguage, **fields: str) -> Signature:
        """The signature of a result: the fields that differ, and those that all results on a data set share."""
        ensemble, target = self.model.ensemble, about.target
        return Signature(
            data=signature_name(target.data),
            split=target.protocol.split,
            lang=about.lang,
            caption_set=about.caption_sets,
            ties=self.options.ties,
            leak=target.leak,
            ccr=ccr_cli.__version__,
            **ensemble.trained_on(about.lang),
            **fields,
        )

    def _protocol(self, target: Target, change: str) -> str:
        name = target.protocol.name
        return str(ScoreProtocol(name, target.zero_shot, change, self.left_out, target.trained_on))

    def _left_out(self, about: QueryLanguage, embedded: EmbeddedGallery) -> None:
        """Measures the uncertainty of queries of the left-out categories, against the gallery of the others."""
        target = about.target
        split = target.split.where(self._of_left_out(target.split))
        gallery, _ = self._gallery(
            target, split, read_items(split, target.features[0], self.model.needs), about.lang, about.kind
        )
        visual_VD, text_TD = self.model.visuals(gallery, target.features), self.model.texts(gallery.texts)
        unknown = EmbeddedGallery(gallery, visual_VD, text_TD).queries(embedded)
        left_out = {"left_out": [int(label) for label in self.left_out.split(",")]}
        self._add_separation(left_out, self._scorer(about.lang, embedded), [embedded.queries()], [unknown])

    def _out_of_distribution(self, about: QueryLanguage, embedded: EmbeddedGallery, signature: Signature) -> None:
        """Measures the uncertainty of queries without a match: of the gallery's other half or another data set."""
        kinds: KnownAndUnknown | None
        if self.foreign:
            what = signature_name(self.foreign.data)
            kinds = foreign_queries(self.foreign, about.lang, embedded, self.model.texts)
        else:
            what, kinds = HALVES, halves(embedded, about.target.data)
        if kinds is not None:
            sizes = gallery_sizes([len(queries["t2v"].gallery_GD) for queries in kinds[0]])
            signature = replace(signature, protocol=self._protocol(about.target, f"ood-{what}"), gallery=sizes)
            compared_with = {"of": what, "signature": str(signature)}
            self._add_separation(compared_with, self._scorer(about.lang, embedded), *kinds)

    def _add_separation(
        self, about: dict[str, Any], scorer: Scorer, known: list[ByDirection], unknown: list[ByDirection]
    ) -> None:
        """Adds to the last result how well uncertainty separates its queries from queries without a match."""
        figures, rows = separations(scorer, known, unknown)
        self.results[-1]["ood"] = about | figures
        if rows is not None:
            self.outside.append(rows.assign(result=np.int32(len(self.results) - 1)))


def _digest(gallery: Gallery) -> str:
    """A checksum of the queries and their items."""
    rows = zip(gallery.caption_ids, gallery.texts, gallery.item_T, strict=True)
    return sha256_text(canonical_json([[id_, text, gallery.item_ids[item]] for id_, text, item in rows]))


def _warn_mixed(about: QueryLanguage) -> None:
    """Warns if captions of several sets are pooled, and a protocol of the data set uses one of them alone."""
    data, lang, protocol = about.target.data, about.lang, about.target.protocol
    mixed = set(about.caption_sets.split("+"))
    if protocol.name not in COMMON_PROTOCOLS or protocol.caption_set is not None or len(mixed) == 1:
        return
    protocols = read_protocols(data.manifest, f"the manifest of {data.name}").values()
    fits = [p.name for p in protocols if p.caption_set in mixed and (p.langs is None or lang in p.langs)]
    if fits:
        mixture = f"the {lang} captions of {data.name} are of several sets ({about.caption_sets})"
        warn(f"{mixture}, which papers do not pool: --protocol {' or '.join(fits)}, or --caption-set")


def breakdowns(queries: pd.DataFrame, texts: Sequence[str], lang: str, translated: pd.DataFrame) -> dict[str, Any]:
    """The figures of groups of text queries; folds are pooled, each query with its rank in its own fold.

    `length` has `unit` and `groups`. `translation`, if queries were translated, has `flagged`, `not_flagged` and, where
    chrF against human captions is known, `groups` by chrF.
    """
    known_Q = queries["rank"].notna().to_numpy()
    rank_Q, ap_Q = (queries[name].to_numpy()[known_Q] for name in ("rank", "average_precision"))
    length_Q, unit = breakdown.lengths(texts, lang)
    out: dict[str, Any] = {"length": {"unit": unit, "groups": breakdown.by_value(length_Q[known_Q], rank_Q, ap_Q)}}
    rows = translated.reindex(queries["query_id"])[known_Q]
    translated_Q = rows["status"].notna().to_numpy()
    if translated_Q.any():
        flagged_Q = rows[FLAGGED].eq(True).to_numpy()
        out["translation"] = {
            "flagged": breakdown.figures(rank_Q, ap_Q, translated_Q & flagged_Q),
            "not_flagged": breakdown.figures(rank_Q, ap_Q, translated_Q & ~flagged_Q),
            "groups": breakdown.by_value(rows[CHRF].to_numpy(np.float64), rank_Q, ap_Q, 4),
        }
    return out


def finite(figures: dict[str, float]) -> dict[str, float | None]:
    """Figures as JSON can hold them: None for nan."""
    return {key: value if math.isfinite(value) else None for key, value in figures.items()}


UNKNOWN = 1 / 3
"""Fraction of unknown tokens above which a model can hardly read the queries."""
POSITIVES = ("caption", "item")
"""The right answers: the sentence's own translation, or that of any caption of its item."""


def measure_texts(evaluator: Evaluator, target: Target, advance: Callable[[int], None]) -> None:
    """Evaluates without pictures (NRCCR Table 5): sentences search their translations, by caption and by item."""
    langs = [lang for lang in target.langs if lang != target.data.source_lang]
    lacking = []
    for lang in langs:
        relation, pairs = pairs_of(target, lang)
        if pairs.empty:
            lacking.append(lang)
        else:
            about = QueryLanguage(target, lang, "+".join(sorted(set(pairs["caption_set"]))))
            _measure_sentences(evaluator, about, relation, pairs)
        advance(1)
    message = f"{target.data.name} has no {target.protocol.split} captions paired with sentences in the source language"
    if len(lacking) == len(langs):
        command = f"ccr translate --lang {langs[0] if langs else 'LANG'} --with-queries"
        raise ArtifactError(message, hint=f"{command}, or [parallel] in the manifest of the data set")
    if lacking:
        warn(f"{message} for {', '.join(lacking)}")


def pairs_of(target: Target, lang: str) -> tuple[str, pd.DataFrame]:
    """Pairs sentences of a language with their translations in the source language, by the first relation that exists.

    `parallel`: human captions that are translations of each other; `query-mt`: human captions and their machine
    translations (as in the paper); `mt`: machine translations and their source captions. A row has `item_id`,
    `caption_set`, `query_id` and `query` in the language, `source_id` and `source`.
    """
    data = target.data
    captions = captions_of(target.split, lang, target.protocol)
    english = target.split.captions_in(data.source_lang)
    parallel: Mapping[str, str] = data.manifest.get("parallel") or {}
    both = captions.merge(english, on=["item_id", "k"], suffixes=("", "_source"))
    parallel_sets = {*parallel.items(), *((own, other) for other, own in parallel.items())}
    sets = zip(both["caption_set"], both["caption_set_source"], strict=True)
    both = both[np.array([pair in parallel_sets for pair in sets], dtype=bool)]
    if not both.empty:
        return "parallel", _pairs(both, "caption_id", "text", "caption_id_source", "text_source")
    if target.translations is None:
        return "none", both
    queries = target.translated_queries.reset_index()
    both = captions.merge(queries, left_on="caption_id", right_on="source_caption_id", suffixes=("", "_mt"))
    if not both.empty:
        return "query-mt", _pairs(both, "caption_id", "text", "caption_id_mt", "text_mt")
    forward = translation.translated(target.translations[target.translations["lang"] == lang])
    forward = forward.drop_duplicates("source_caption_id")
    both = english.merge(forward, left_on="caption_id", right_on="source_caption_id", suffixes=("", "_mt"))
    return "mt", _pairs(both, "caption_id_mt", "text_mt", "caption_id", "text")


def _pairs(both: pd.DataFrame, query_id: str, query: str, source_id: str, source: str) -> pd.DataFrame:
    names = {query_id: "query_id", query: "query", source_id: "source_id", source: "source"}
    return both[[*names, "item_id", "caption_set"]].rename(columns=names)


def _measure_sentences(evaluator: Evaluator, about: QueryLanguage, relation: str, pairs: pd.DataFrame) -> None:
    tie, n, items = evaluator.options.ties, len(pairs), list(pairs["item_id"])
    text_TD, source_SD = (evaluator.model.texts(list(pairs[name])) for name in ("query", "source"))
    no_visuals = Frames.single(source_SD.new_zeros(n, 1))
    ids, texts = list(pairs["query_id"]), list(pairs["query"])
    gallery = Gallery(list(pairs["source_id"]), no_visuals, ids, texts, np.arange(n), None, 0)
    code_T = np.unique(items, return_inverse=True)[1]
    for right in POSITIVES:
        positives = Positives.from_ids(range(n), range(n)) if right == "caption" else Positives.from_ids(items, items)
        scores = Scores.of(*rank_both(dot_sim(source_SD, text_TD), n, n, positives), tie)
        queries = rank_table([(gallery, scores)], tie).assign(item_id=2 * items, item=np.tile(code_T, 2))
        signature = evaluator.signature(
            about,
            q=str(n),
            gallery=str(n),
            dir="t2s+s2t",
            protocol=f"text-{relation}",
            pos=right,
            sim=sim_value("", len(evaluator.model.ensemble.members)),
            fusion=NONE,
            unc=NONE,
        )
        named = {"task": "text", "fusion": NONE, "reading": ""}
        unmeasured: dict[str, Any] = {"breakdown": {}, "calibration": None}
        evaluator.add(about, signature, named, scores, queries.assign(uncertainty=np.nan), unmeasured)
