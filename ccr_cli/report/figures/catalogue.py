"""Which figures a report has: each from its data, and where these are not there, the command that makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ccr_cli.artifacts.signature import SOFTMAX, signature_of
from ccr_cli.metrics import breakdown
from ccr_cli.metrics.calibration import Reliability
from ccr_cli.metrics.calibration import reliability as binned
from ccr_cli.report.figures import (
    comparison,
    corruption,
    embedding_maps,
    epochs,
    lengths,
    model_internals,
    option_effect,
    pair_scores,
    picture_queries,
    trust,
    unanswerable,
)
from ccr_cli.report.figures.figure_kinds import Drawing, Kind, Seen
from ccr_cli.report.figures.search_strip import strip
from ccr_cli.report.tables import judge_choice, language_grid, results


def drawn(seen: Seen) -> dict[str, Drawing]:
    """The figures whose data are there, by name. Only inside `canvas.drawing`."""
    made = {kind.name.format(seen.main.figure.lower()): kind.draw(seen) for kind in KINDS}
    return {name: each for name, each in made.items() if each is not None and each.figure is not None}


def absent(seen: Seen, made: Mapping[str, Drawing]) -> list[Kind]:
    """The figures whose data are not there."""
    return [kind for kind in KINDS if kind.name.format(seen.main.figure.lower()) not in made]


def _headline(seen: Seen) -> Drawing:
    what = f"{seen.main.named} against the share of mismatched training pairs. {seen.found.headline}"
    return Drawing(comparison.by_noise(seen.main), what)


def _languages(seen: Seen) -> Drawing:
    figure = comparison.by_language(language_grid.alike(seen.views))
    caption = "Mean over runs that differ in their seeds; band: ± 1 sd. Axes do not start at 0."
    return Drawing(figure, f"{seen.main.named} against the share of mismatched pairs, a panel a language", caption)


def _options(seen: Seen) -> Drawing:
    found = option_effect.curves(seen.main.frame, seen.material.options)
    figure = option_effect.sweep(found, seen.main.figure, seen.main.named)
    said = ", ".join(dict.fromkeys(curve.option for curve in found))
    caption = "Each panel: runs that differ in this option and their seeds alone. Bars: ± 1 sd over n runs."
    return Drawing(figure, f"{seen.main.named} by the value of an option: {said}", caption)


def _training(seen: Seen) -> Drawing:
    runs = set(seen.main.frame["run_id"])
    histories = [
        {**vars(h), "label": seen.material.label(h.run_id, "run"), "history": h.frame}
        for h in seen.material.histories
        if h.run_id in runs
    ]
    others = any(history["criterion"] != seen.main.figure for history in histories)
    caption = "A line a run; the dot is the epoch that was kept. AUROC: mismatched against intact training pairs."
    caption += " Runs that validated by another figure are left out." if others else ""
    what = f"Validation {seen.main.figure} and the judge's AUROC by epoch"
    return Drawing(comparison.training(histories, seen.main.figure), what, caption)


def _losses(seen: Seen) -> Drawing:
    frames: dict[str, pd.DataFrame] = {}
    runs = set(seen.main.frame["run_id"])
    for history in sorted(seen.material.histories, key=lambda h: h.seed):
        label = seen.material.label(history.run_id, "run")
        if history.run_id in runs and history.noise == seen.found.noise and not results.is_oracle(label):
            frames.setdefault(label, history.frame)
    order = sorted(frames, key=lambda k: (k != seen.found.method, k != results.base_label(k), results.method_order(k)))
    caption = f"Terms with their weights, {seen.at} noise; one run a method, the lowest seed."
    return Drawing(epochs.losses({label: frames[label] for label in order}), "Terms of the loss by epoch", caption)


def _beliefs(seen: Seen) -> Drawing | None:
    each = next((d for d in seen.suspects if round(float(d.summary.get("noise") or 0), 6) == seen.found.noise), None)
    if each is None:
        return None
    label = seen.material.label(each.run_id, str(each.summary["label"]))
    title = f"{label}, {seen.at} noise, seed {each.summary.get('seed')}"
    what = f"Histograms of what {label} believes of intact and of mismatched training pairs at {seen.at} noise"
    caption = f"Judge: {judge_choice.judge(each.summary)}. Pairs left of the dotted line are called noisy."
    return Drawing(comparison.beliefs(each.load_pairs(), title), what, caption)


def _judges(seen: Seen) -> Drawing:
    figure = comparison.judges(seen.judged(seen.pairs), f"Finding the mismatched pairs, {seen.at} noise")
    return Drawing(figure, "ROC and precision-recall curves of the judges", "One run a method, the lowest seed.")


def _epochs(seen: Seen) -> Drawing | None:
    histories = {history.run_id: history for history in seen.material.histories}
    order = sorted(seen.known, key=lambda label: (label != seen.found.method, results.method_order(label)))
    for label in order:
        run_id, lang = seen.diagnoses[label].run_id, seen.main.lang
        told = [] if run_id not in histories else list(histories[run_id].evidence(lang))
        pairs = seen.known[label]
        truth = pd.Series((pairs["truth"] == "noisy").to_numpy(bool), index=pairs["slot_id"])
        figure = epochs.densities(told, truth, f"{label}, {seen.at} noise")
        if figure is not None:
            what = f"Densities of the judge's doubt and of similarity, of intact and mismatched pairs, by {label}"
            caption = "What the run wrote of every training pair in its first, a middle and its last epoch that judges."
            return Drawing(figure, what, caption)
    return None


def _uncertainty(seen: Seen) -> Drawing:
    figure = epochs.uncertainties(seen.known, f"Uncertainty of training pairs, {seen.at} noise")
    caption = "Of the epoch that was kept, both directions averaged. Scales differ. One run a method, the lowest seed."
    return Drawing(figure, "Densities of the uncertainty of intact and of mismatched training pairs", caption)


def _risk(seen: Seen) -> Drawing:
    curves = seen.first(_curve)
    caption = (
        "If the uncertainty knows when retrieval fails, the surest queries fail least and the curve rises to the "
        "dotted line, the failure rate of all queries. In brackets: area, lower is better. One run a method, the "
        "lowest seed."
    )
    what = "Share of wrong first results against the share of queries answered, surest first"
    return Drawing(trust.risk(curves, seen.asked), what, caption)


def _curve(run_id: str, result: Mapping[str, Any]) -> dict[str, Any] | None:
    told = _calibration(result)
    if not told.get("curve"):
        return None
    trivial = {
        name: {**each["curve"], "aurc": each.get("aurc")}
        for name, each in (told.get("trivial") or {}).items()
        if each.get("curve")
    }
    signed = signature_of(result)
    named = SOFTMAX if signed and signed.softmax else "uncertainty"
    areas = {key: told.get(key) for key in ("aurc_random", "aurc")}
    return {**told["curve"], **areas, "named": named, "trivial": trivial}


def _calibration(result: Mapping[str, Any]) -> Mapping[str, Any]:
    known = result.get("calibration") or {}
    told: Mapping[str, Any] = known.get("t2v", known)
    return told


def _reliability(seen: Seen) -> Drawing:
    def read(run_id: str, result: Mapping[str, Any]) -> Reliability | None:
        if _calibration(result).get("ece") is None:  # its uncertainty is no probability
            return None
        ranks = seen.material.ranks(run_id, str(result.get("signature")), "t2v")
        known = ranks[ranks["uncertainty"].notna()] if ranks is not None else None
        if known is None or known.empty or not known["uncertainty"].between(0, 1).all():
            return None
        return binned(known["uncertainty"].to_numpy(float), known["rank"].to_numpy(float))

    figure = trust.reliability(seen.first(read), seen.asked)
    caption = (
        "Ten classes of equally many queries, of methods whose uncertainty states a probability. ECE: mean distance "
        "from the diagonal. One run a method, the lowest seed."
    )
    return Drawing(figure, "Share of right first results against stated confidence", caption)


def _precision(seen: Seen) -> Drawing:
    curves = seen.first(lambda run_id, result: result.get("precision"))
    figure = trust.precision(curves, f"Right answers of the query's category, {seen.at} noise")
    caption = (
        "The greatest precision at this recall or a higher one, mean over queries. One run a method, the lowest seed."
    )
    return Drawing(figure, "Precision against recall by category, both directions", caption)


def _deletion(seen: Seen) -> Drawing:
    curves = seen.first(lambda run_id, result: result.get("deletion"))
    caption = "Average precision over the right answers that are kept, mean over queries that keep one."
    return Drawing(
        trust.deletion(curves, f"Deleting doubtful pairs, {seen.at} noise"),
        "mAP against the share of pairs deleted, by uncertainty and by similarity",
        caption,
    )


def _corruption(seen: Seen) -> Drawing:
    def read(run_id: str, result: Mapping[str, Any]) -> dict[corruption.Level, pd.DataFrame] | None:
        signature = str(result.get("signature"))
        signatures = dict(corruption.beside(seen.material, run_id, signature)) | {corruption.Level(): signature}
        tables = {}
        for level in corruption.shown(list(signatures)):
            parts = [seen.material.ranks(run_id, signatures[level], direction) for direction in ("t2v", "v2t")]
            tables[level] = pd.concat([part for part in parts if part is not None] or [pd.DataFrame()])
        known = all(len(each) and each["uncertainty"].notna().all() for each in tables.values())
        return tables if known else None

    found = seen.first(read)
    order = sorted(found, key=lambda label: (label != seen.found.method, results.method_order(label)))
    caption = (
        "What is corrupted asks in one direction and is found in the other (`both`: each time); area 1, scales differ. "
        f"The outermost bars hold what lies beyond. At most {corruption.MOST} methods; one run each, the lowest seed."
    )
    figure = corruption.densities({label: found[label] for label in order}, f"Corrupted queries, {seen.at} noise")
    return Drawing(figure, "Densities of the uncertainty of intact and of corrupted queries, both ways", caption)


_OUTSIDE = f"At most {unanswerable.MOST} methods; one run each, the lowest seed."


def _kinds(seen: Seen) -> unanswerable.Kinds:
    """By name; of two states of a data set, whose names are the same, what the first does not have is the second's."""
    out: dict[str, dict[str, pd.DataFrame]] = {}
    for kind, tables in seen.outside.items():
        out[unanswerable.named(kind)] = {**tables, **out.get(unanswerable.named(kind), {})}
    return out


def _left_out(seen: Seen) -> Drawing:
    kinds = _kinds(seen)
    strange = "; ".join(kinds)
    figure = unanswerable.densities(kinds, "Uncertainty in and out of distribution")
    caption = f"Not of the gallery: {strange}. AUROC: these are the more uncertain. {_OUTSIDE}"
    return Drawing(figure, f"Densities of uncertainty of queries of the gallery and of others: {strange}", caption)


def _entropy(seen: Seen) -> Drawing:
    figure = unanswerable.entropy(_kinds(seen), "Entropy against uncertainty")
    caption = (
        f"Entropy of the shares of the categories, 1: all alike. At most {unanswerable.DOTS} dots a kind. {_OUTSIDE}"
    )
    return Drawing(figure, "Entropy of a query's categories against its uncertainty, a dot a query", caption)


def _lengths(seen: Seen) -> Drawing | None:
    collection = seen.material.dataset(seen.main.data)
    captions = collection.captions() if collection else None
    if captions is None or captions.empty:
        return None
    lang = seen.main.lang
    own = captions[captions["lang"] == lang]
    counts, counted = breakdown.lengths(list(own["text"]), lang)
    known = dict(zip(own["caption_id"], counts.astype(int).tolist(), strict=True))
    items = dict(zip(own["caption_id"], own["item_id"], strict=True))
    ranks: dict[str, list[pd.DataFrame]] = {}
    for run_id, label, result in seen.results():
        part = seen.material.ranks(run_id, str(result.get("signature")), "t2v")
        if part is not None and not part.empty:
            ranks.setdefault(label, []).append(part)
    base = results.counterpart(seen.main.frame, seen.found.method, results.BASELINE)
    found = lengths.by_length(ranks, known, items, base)
    if found is None:
        return None
    caption = (
        "Mean over the runs of a method, with 95% intervals by bootstrap over items, each with all its queries; those "
        "of differences are paired. Of n queries; bars behind the lines: their share, not to scale."
    )
    figure = lengths.draw(found, counted, base, seen.asked)
    return Drawing(figure, "R@5 by the length of the query", caption)


def _scored(seen: Seen) -> Drawing | None:
    chosen = pair_scores.choose(seen.judged(dict(list(seen.pairs.items())[: pair_scores.MOST])))
    if not chosen:
        return None
    first = next(iter(seen.diagnoses.values()))
    fact = seen.material.facts.get(first.run_id)
    collection = seen.material.dataset(fact.data) if fact else None
    image = collection.image if collection else lambda item_id: None
    title = f"Three training pairs as {len(chosen[0].p_clean)} runs score them, {seen.at} noise"
    caption = (
        "Chosen by rule: from the upper quarter of all, by the largest difference of P(clean), by the lowest mean."
    )
    source = collection.source_lang if collection else ""
    return Drawing(
        pair_scores.draw(chosen, image, title, source), "Training pairs with what each run makes of them", caption
    )


def _map(seen: Seen) -> Drawing:
    caption = (
        "t-SNE of the embeddings by cosine distance; items drawn by a fixed seed, a line from each caption to "
        "its item. "
        "Distances between groups mean nothing."
    )
    return Drawing(embedding_maps.draw(seen.material.maps), "Map of items with their captions", caption)


def _searches(seen: Seen) -> Drawing:
    return Drawing(strip(seen.material.searches), "Searches in several languages with the first images found")


def _targets(seen: Seen) -> Drawing:
    caption = (
        "Shares of the pictures in a batch of pairs, the five largest; the caption's own is framed. Captions chosen by "
        "rule: evenly from the surest to the least sure of the batch. Drawn by a fixed seed, not noisy."
    )
    what = "Captions with the soft targets that the loss makes of them"
    return Drawing(strip(seen.material.inside.targets, shares=True), what, caption)


def _attention(seen: Seen) -> Drawing:
    caption = (
        "Share of a row's attention, the mean over heads, by the weights of the block over tokens: a row adds up to 1. "
        "Colours run from the least to the largest share of a panel. Captions drawn by a fixed seed."
    )
    figure = model_internals.attention(seen.material.inside.attention)
    return Drawing(figure, "What the tokens of a caption read of the tokens of its translation", caption)


def _pictures(seen: Seen) -> Drawing:
    collection = seen.material.dataset(seen.main.data)
    source = f" in {collection.source_lang}" if collection else ""
    caption = (
        "The most similar captions, a tick at the picture's own; grey: a caption of their item"
        f"{source}. Drawn by a fixed seed."
    )
    figure = picture_queries.draw(seen.material.inside.pictures)
    return Drawing(figure, "Picture queries with the captions that they find", caption)


KINDS = (
    Kind("{}", "the headline figure against noise", "ccr train --noise 0.4, then ccr evaluate", _headline),
    Kind(
        "languages",
        "the same by language",
        "ccr train --lang fr --noise 0.4, then ccr evaluate",
        _languages,
    ),
    Kind(
        "options", "what an option does", "ccr train --method uml --sweep beta=0.1,0.3,0.9 | ccr evaluate -", _options
    ),
    Kind("training", "validation by epoch", "ccr train", _training),
    Kind("losses", "terms of the loss by epoch", "ccr train", _losses),
    Kind("beliefs", "what a judge believes", "ccr diagnose", _beliefs),
    Kind("judges", "ROC and precision-recall of the judges", "ccr train --noise 0.4, then ccr diagnose", _judges),
    Kind(
        "epochs",
        "intact and mismatched pairs early, midway and late",
        "ccr train --noise 0.4 --set judge=triangle, then ccr diagnose",
        _epochs,
    ),
    Kind("uncertainty", "uncertainty of pairs", "ccr train --noise 0.4, then ccr diagnose", _uncertainty),
    Kind("risk", "risk against coverage", "ccr train --method uml, then ccr evaluate", _risk),
    Kind(
        "calibration",
        "right answers against stated confidence",
        "ccr train --method infonce, then ccr evaluate",
        _reliability,
    ),
    Kind(
        "precision",
        "precision against recall",
        "ccr train --method fume, then ccr evaluate --protocol labelled",
        _precision,
    ),
    Kind(
        "deletion", "mAP against deletion", "ccr train --method fume, then ccr evaluate --protocol labelled", _deletion
    ),
    Kind(
        "outside",
        "uncertainty of queries that do not belong to the gallery",
        "ccr train --method uml, then ccr evaluate --ood half",
        _left_out,
    ),
    Kind(
        "entropy",
        "entropy against uncertainty",
        "ccr train --method fume --set left_out=3,8, then ccr evaluate",
        _entropy,
    ),
    Kind(
        "corruption",
        "uncertainty of corrupted queries",
        "ccr train --method uml, then ccr evaluate --corrupt 0.3 and ccr evaluate --corrupt 0.6",
        _corruption,
    ),
    Kind("lengths", "recall by length of the query", "ccr evaluate", _lengths),
    Kind("scored", "pairs scored by several runs", "ccr diagnose of two runs of the same noise", _scored),
    Kind("where", "a map of items with their captions", "ccr report --map 20", _map),
    Kind("pictures", "picture queries", "ccr report --inside 3", _pictures),
    Kind("targets", "soft targets", "ccr train --method disncl, then ccr report --inside 3", _targets),
    Kind("attention", "cross-attention", "ccr train --method nrccr, then ccr report --inside 3", _attention),
    Kind("searches", "example searches", "ccr report --searches 3", _searches),
)
"""In the order of the page; a name with {} takes that of the figure that stands for a result."""
