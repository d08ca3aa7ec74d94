"""The findings of a report in sentences; nothing goes beyond what the numbers support."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ccr_cli.artifacts.label import ORACLE, Label
from ccr_cli.artifacts.signature import HUMAN, MT, SELECTED
from ccr_cli.report.tables import chance, comparable
from ccr_cli.report.tables.differences import QueryRanks, Recovery, intervals_overlap, recovery
from ccr_cli.report.words import signature_words
from ccr_cli.report.words.numbers import MINUS, decimal, ends, listed, mean_sd, metric, percent, probability

HEADLINE_NOISE = 0.4
CHANCE = "; this may be due to chance: "
OVERLAP = f"{CHANCE}their 95% intervals overlap"


@dataclass(frozen=True)
class Tile:
    """A figure shown large."""

    value: str
    what: str
    detail: str = ""
    open: bool = False
    """It may be due to chance."""


@dataclass(frozen=True)
class Findings:
    """The headline, further sentences and tiles, and the method and noise ratio that they are about."""

    headline: str
    more: tuple[str, ...]
    tiles: tuple[Tile, ...]
    method: str
    noise: float


def findings(view: comparable.View, diagnoses: pd.DataFrame, ranks: QueryRanks | None = None) -> Findings:
    """Compares the best noise-robust method of the main view with infonce at the headline noise ratio.

    The method is the best of those that neither ignore noise nor know the truth (without any, the best that ignores
    noise); the noise ratio is 40% if it was run, else the highest. Runs on repaired pairs or translations are variants
    of their method, and so are ensembles of its runs: they get sentences of their own. Diagnoses come in the order of
    `diagnoses.by_choice`; the ranks are for intervals of differences.
    """
    ranks = ranks or QueryRanks()
    frame, figure = view.frame, view.figure
    labels = [Label.parse(label) for label in frame["label"]]
    variant = [label.is_repaired or label.is_ensemble or label.is_translate_test for label in labels]
    methods = frame[~np.array(variant, dtype=bool)]
    methods = frame if methods.empty else methods
    noise = _headline_noise(methods)
    rows = methods[methods["noise"] == noise]
    means = rows.groupby("label")[figure].mean()
    competitors = [label for label in means.index if not comparable.is_oracle(label)] or list(means.index)
    robust = [label for label in competitors if not comparable.is_plain(label)]
    candidates = robust or competitors
    method = str(means[candidates].idxmax())
    win = recovery(frame, method, noise, figure=figure, ranks=ranks)
    values = comparable.replicates(rows[rows["label"] == method], figure)
    encoders = _encoders(rows, method)

    kind = signature_words.WORDS["wrong_translations"].get(view.noise_kind, "mismatched pairs")
    where = f"At {percent(noise)} {kind}" if noise else "Without synthetic noise"
    subject = method
    if len(candidates) > 1 and win:
        made_for_noise = all(comparable.is_robust(rows, label) for label in candidates)
        group = _group_words(rows, candidates, encoders, "noise-robust methods" if made_for_noise else "methods")
        subject = f"{method} (the best of {group})"
    kind = "" if view.queries == HUMAN else f" for {signature_words.queries(view.queries)}"
    few = f"{signature_words.too_few(view.few_queries)}. " if view.few_queries else ""
    headline = f"{few}{where}, {subject} reaches {view.named} {_mean(values)}{kind}"
    other_encoders = _encoders(rows, win.against) if win else []
    differ = bool(encoders and other_encoders) and encoders != other_encoders
    if win:
        models, others = (_models(rows, label) for label in (method, win.against))
        has = [f"other encoders ({' or '.join(other_encoders)}, not {' or '.join(encoders)})"] if differ else []
        has += [f"{others} model{'s' * (others > 1)}, not {models}"] if models and others and models != others else []
        apart = f" and has {listed(has)}" if has else ""
        headline += f", {_signed(win)}, which ignores noise{apart}{_chance(win)}"

    more = [signature_words.ABOUT_MT] if view.queries == MT else []
    if SELECTED in view.setting.fields.get("leak", ""):
        more.append("Items that chose the epochs are among those searched: --split val-report leaves them out.")
    more += [_near_chance(view.chance, method)] if view.chance is not None and _is_close(rows, method, view) else []
    if comparable.counterpart(frame, method, comparable.BASELINE) is None:
        variants = [label for label in comparable.methods(frame) if comparable.base_label(label) == comparable.BASELINE]
        if variants:
            more.append(f"There is no single baseline: {listed(variants)} differ, and none has the default options.")
    if win and win.value is not None:
        interval = _recovery_interval(win)
        beyond = f"; above 100% it is better than {comparable.BASELINE} with that oracle" if win.value > 1 else ""
        more.append(
            f"It recovers {percent(win.value, 0)} of what an oracle that knows the mismatched pairs would gain"
            f"{f' ({interval})' if interval else ''}{', which may be due to chance too' if win.may_be_chance else ''}"
            f"{beyond}."
        )
    clean = recovery(frame, method, 0.0, figure=figure, ranks=ranks) if noise else None
    if clean:
        more.append(f"Without noise it is {_signed(clean)}{_chance(clean)}.")
    repaired = _repaired(view, noise, ranks)
    own = [label for label in repaired if label != method and str(Label.parse(label).unrepaired) == method]
    headline = " ".join([f"{headline}.", *map(repaired.pop, own)])
    more += [*repaired.values(), *_ensembles(view, noise, ranks)]
    level = "" if view.chance is None else f", chance: {metric(view.chance)}"
    tiles = [Tile(metric(values.mean()), f"{view.named} of {method}", f"{percent(noise)} noise, {view.scale}{level}")]
    if win:
        difference = decimal(win.difference, sign=True)
        detail = f"{view.named}, {_paired(win)}{', other encoders' if differ else ''}"
        tiles.append(Tile(difference, f"compared with {win.against}", detail, win.may_be_chance))
        if win.value is not None:
            share = percent(win.value, 0)
            beyond = f"above 100%: better than {comparable.BASELINE} with the oracle" if win.value > 1 else ""
            detail = "; ".join(filter(None, [_recovery_interval(win), beyond]))
            tiles.append(Tile(share, "of the gap to the oracle recovered", detail, win.may_be_chance))
    sentences, detection_tiles = _detection(diagnoses, view, method, noise)
    return Findings(headline, (*more, *sentences), (*tiles, *detection_tiles), method, noise)


def _is_close(rows: pd.DataFrame, method: str, view: comparable.View) -> bool:
    runs = rows.loc[rows["label"] == method, ["SumR", "low", "high"]].dropna().to_numpy(float).tolist()
    return bool(runs) and all(chance.is_close(value, (low, high), view.chance) for value, low, high in runs)


def _near_chance(level: float, method: str) -> str:
    if Label.parse(method).method == comparable.PRETRAINED:
        todo = "Try a model that knows the language, or translated queries (ccr evaluate --translate-test)."
        return f"That is close to chance (SumR {metric(level)}). {todo}"
    other = "" if comparable.base_label(method) == comparable.BASELINE else f", try {comparable.BASELINE}"
    todo = f"Train it for more epochs{other}, or check the pairs with ccr diagnose."
    return f"That is close to chance (SumR {metric(level)}). {todo}"


def _headline_noise(frame: pd.DataFrame) -> float:
    """40% if it was run, else the highest ratio; only ratios at which infonce was run too, if there are any."""
    plain = frame["label"].map(comparable.base_label) == comparable.BASELINE
    baseline, others = set(frame.loc[plain, "noise"]), set(frame.loc[~plain, "noise"])
    ratios = baseline & others or set(frame["noise"])
    return HEADLINE_NOISE if HEADLINE_NOISE in ratios else float(max(ratios))


def _encoders(rows: pd.DataFrame, label: str) -> list[str]:
    """The known encoders of a method's runs."""
    if "encoder" not in rows:
        return []
    return sorted({str(encoder) for encoder in rows.loc[rows["label"] == label, "encoder"] if encoder})


def _models(rows: pd.DataFrame, label: str) -> int:
    """The dual encoders that a method trains; 0 if its runs do not say it, or differ."""
    found = set(rows.loc[rows["label"] == label, "models"])
    return int(found.pop()) if len(found) == 1 else 0


def _group_words(rows: pd.DataFrame, labels: list[str], encoders: list[str], noun: str) -> str:
    """The group of which a method is the best: methods, each once, or variants of one."""
    methods = len({Label.parse(label).method for label in labels})
    words = f"{methods} {noun}" if methods > 1 else f"{len(labels)} variants"
    known = [_encoders(rows, label) for label in labels]
    return words + (", not all with the same encoders" if any(e and e != encoders for e in known) else "")


def _repaired(view: comparable.View, noise: float, ranks: QueryRanks) -> dict[str, str]:
    """How variants that were trained on repaired pairs or translations compare with the method itself, by label."""
    rows = view.frame[view.frame["noise"] == noise]
    labels, sentences = comparable.methods(rows), {}
    for label in (label for label in labels if Label.parse(label).is_repaired):
        values = comparable.replicates(rows[rows["label"] == label], view.figure)
        plain = str(Label.parse(label).unrepaired)
        win = recovery(rows, label, noise, figure=view.figure, against=plain, ranks=ranks) if plain in labels else None
        comparison = f", {_signed(win)}{_chance(win)}" if win else ""
        sentences[label] = f"Repaired, {label} reaches {_mean(values)}{comparison}."
    return sentences


def _ensembles(view: comparable.View, noise: float, ranks: QueryRanks) -> list[str]:
    """How ensembles compare with single runs of the same methods."""
    rows = view.frame[view.frame["noise"] == noise]
    means, sentences = rows.groupby("label")[view.figure].mean(), []
    for label in (label for label in comparable.methods(rows) if Label.parse(label).is_ensemble):
        members = Label.parse(label).members
        difference = float(means[label] - means.reindex(members).mean(skipna=False))
        comparison = ""
        if math.isfinite(difference):
            single, ensemble = (rows[rows["label"].isin(labels)] for labels in (members, [label]))
            interval = ranks.interval(single, ensemble, view.figure, difference)
            direction = "above" if difference > 0 else "below"
            comparison = f", {metric(abs(difference))} {direction} the mean of single runs"
            if interval is None:
                comparison += OVERLAP if intervals_overlap(single, ensemble, view.figure) else ""
            elif interval[0] > 0 or interval[1] < 0:
                comparison += f" (95% interval {ends(*interval)})"
            else:
                comparison += _contains_zero(interval)
        sentences.append(f"As an ensemble, {label} reaches {metric(means[label])}{comparison}.")
    return sentences


def _contains_zero(interval: tuple[float, float]) -> str:
    return f"{CHANCE}its 95% interval, {ends(*interval)}, contains 0"


def _mean(values: "pd.Series[float]") -> str:
    """The mean of runs with their number, and whether they differ in the seed of training or only in the mismatch's."""
    n, trained = len(values), values.index.get_level_values("seed").nunique()
    runs = f"{n} seeds" if trained == n else f"{n} runs of {trained} training seed{'s' if trained > 1 else ''}"
    return f"{mean_sd(values.mean(), values.std(ddof=1))} ({runs if n > 1 else 'one seed'})"


def _signed(win: Recovery) -> str:
    """How far above or below the baseline; level with it where the results do not decide the direction."""
    difference = mean_sd(abs(win.difference), win.difference_sd)
    if win.level:
        sign = "+" if win.difference >= 0 else MINUS
        interval = f"; 95% interval {ends(*win.interval)}" if win.interval else ""
        return f"level with {win.against} ({sign}{difference}{interval})"
    interval = f" (95% interval {ends(*win.interval)})" if win.interval and not win.holds_zero else ""
    return f"{difference} {'above' if win.difference > 0 else 'below'} {win.against}{interval}"


def _chance(win: Recovery) -> str:
    """A reservation about a difference that may be due to chance."""
    if win.level or not win.may_be_chance:
        return ""
    if win.interval and win.holds_zero:
        return _contains_zero(win.interval)
    return OVERLAP if win.overlap else f"{CHANCE}it is within its standard deviation over seeds"


def _recovery_interval(win: Recovery) -> str:
    parts = []
    if win.low is not None and win.high is not None:
        parts.append(f"95% interval {ends(100 * win.low, 100 * win.high, 0)}%")
    parts += [f"n = {win.value_seeds}"] if win.value_seeds != win.seeds else []
    return ", ".join(parts)


def _paired(win: Recovery) -> str:
    """The support of a difference, for its tile."""
    spread = f"sd {metric(win.difference_sd)}, " if win.difference_sd is not None else ""
    parts, reasons = [f"paired; {spread}n = {win.seeds}"], []
    reasons += ["within 1 sd"] if win.within else []
    reasons += ["95% intervals overlap"] if win.overlap else []
    if win.interval:
        (reasons if win.holds_zero else parts).append(f"95% interval {ends(*win.interval)}")
    parts += [f"may be due to chance: {', '.join(reasons or ['close to 0'])}"] if win.may_be_chance else []
    return "; ".join(parts)


def _detection(
    diagnoses: pd.DataFrame, view: comparable.View, method: str, noise: float
) -> tuple[list[str], list[Tile]]:
    """How many mismatched pairs the method's own judge finds."""
    if diagnoses.empty:
        return [], []
    rows = diagnoses[(diagnoses["label"] == method) & (diagnoses["noise"] == noise)]
    rows = rows[rows["run_id"].isin(set(view.frame["run_id"])) & (rows["judge"] != ORACLE)]
    if rows.empty:
        return [], []
    judge = str(rows["judge"].iloc[0])
    rows = rows[(rows["judge"] == judge) & (rows["judge_side"] == rows["judge_side"].iloc[0])]
    recall, alarms, auroc = (float(rows[name].mean()) for name in ("recall", "false_alarms", "auroc"))
    if not math.isfinite(recall):
        share = percent(float(rows["share_noisy"].mean()), 1)
        return [f"It calls {share} of the training pairs noisy (judge {judge}); none is a synthetic mismatch."], []
    false_alarms = f"{percent(alarms, 1)} false alarms" if math.isfinite(alarms) else ""
    sentence = f"It finds {percent(recall, 0)} of the mismatched training pairs"
    sentence += f" with {false_alarms}" if false_alarms else ""
    sentence += f" (AUROC {probability(auroc)}, judge {judge})." if math.isfinite(auroc) else f" (judge {judge})."
    return [sentence], [Tile(percent(recall, 0), "of mismatched pairs found", false_alarms)]
