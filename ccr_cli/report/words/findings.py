"""What the numbers say, in sentences; nothing is said that they do not hold."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ccr_cli.report.tables import results
from ccr_cli.report.tables.paired_interval import Answers, overlap
from ccr_cli.report.tables.recovery import Recovery, recovery
from ccr_cli.report.words.numbers import MINUS, percent

HEADLINE_NOISE = 0.4
CHANCE = "; that may be chance: "
OVERLAP = f"{CHANCE}their 95% intervals overlap"


@dataclass(frozen=True)
class Tile:
    """A figure that deserves to be read from afar."""

    value: str
    what: str
    detail: str = ""
    open: bool = False
    """It may be chance."""


@dataclass(frozen=True)
class Findings:
    """The headline, what else matters, and which method and noise ratio they speak of."""

    headline: str
    more: tuple[str, ...]
    tiles: tuple[Tile, ...]
    method: str
    noise: float


def findings(view: results.View, diagnoses: pd.DataFrame, answers: Answers | None = None) -> Findings:
    """Says how the best noise-robust method stands against infonce at the headline noise ratio.

    The method is the best of those that are neither a plain one nor an oracle (if there is none, the best plain
    one); the noise ratio is 40% if it was run, else the highest. A run on repaired pairs or translations is a variant
    of its method, and so is an ensemble of its runs: they are spoken of by themselves, unless there is nothing else.

    Args:
        view: The main view.
        diagnoses: A diagnoses frame in the order of `judges.by_choice`, may be empty.
        answers: What the runs answered, for intervals of differences.
    """
    answers = answers or Answers()
    apart = [results.is_repaired(label) or results.is_ensemble(label) for label in view.frame["label"]]
    counted = view.frame[~np.array(apart, dtype=bool)]
    counted = view.frame if counted.empty else counted
    noise = _headline_noise(counted)
    at = counted[counted["noise"] == noise]
    means = at.groupby("label")[view.figure].mean()
    rivals = [m for m in means.index if not results.is_oracle(m)] or list(means.index)
    robust = [m for m in rivals if not results.is_plain(m)]
    chosen_from = robust or rivals
    method = str(means[chosen_from].idxmax())
    win = recovery(view.frame, method, noise, figure=view.figure, answers=answers)
    values = results.replicates(at[at["label"] == method], view.figure)
    stands = _mean_sd(values)
    kind = "switched translations" if view.noise_kind.endswith("translation") else "mismatched pairs"
    where = f"At {percent(noise)} {kind}" if noise else "Without synthetic noise"
    own = _encoders(at, method)
    best_of = _counted(at, chosen_from, own, "noise-robust methods" if robust else "methods")
    chosen = f"{method} (the best of {best_of})" if len(chosen_from) > 1 and win else method
    headline = f"{where}, {chosen} reaches {view.named} {stands}{_seeds(values)}"
    others = _others(own, _encoders(at, win.against)) if win else ""
    headline += f", {_signed(win)}, which knows nothing of noise{others}{_chance(win)}." if win else "."
    more = []
    if results.counterpart(view.frame, method, results.BASELINE) is None:
        variants = [m for m in results.methods(view.frame) if results.base_label(m) == results.BASELINE]
        if variants:
            more.append(f"There is no single baseline: {' and '.join(variants)} differ, and none has default options.")
    gap = _recovered(win)
    if gap:
        more.append(gap)
    clean = recovery(view.frame, method, 0.0, figure=view.figure, answers=answers) if noise else None
    if clean:
        more.append(f"Without noise it is {_signed(clean)}{_chance(clean)}.")
    more += [*_repaired(view, noise, answers), *_together(view, noise, answers)]
    tiles = [Tile(f"{values.mean():.1f}", f"{view.named} of {method}", f"{percent(noise)} noise, {view.scale}")]
    if win:
        difference = f"{win.difference:+.1f}".replace("-", MINUS)
        detail = f"{view.named}, {_paired(win)}{', other encoders' * bool(others)}"
        tiles.append(Tile(difference, f"against {win.against}", detail, win.open))
    if win and win.value is not None:
        tiles.append(Tile(f"{100 * win.value:.0f}%", "of the gap to the oracle recovered", _interval(win), win.open))
    said, tile = _detection(diagnoses, view, method, noise)
    more += said
    return Findings(headline, tuple(more), (*tiles, *tile), method, noise)


def _headline_noise(frame: pd.DataFrame) -> float:
    """40% if it was run, else the highest; only ratios at which infonce was run too, if there are any."""
    plain = frame["label"].map(results.base_label) == results.BASELINE
    shared, others = set(frame.loc[plain, "noise"]), set(frame.loc[~plain, "noise"])
    ratios = shared & others or set(frame["noise"])
    return HEADLINE_NOISE if HEADLINE_NOISE in ratios else float(max(ratios))


def _encoders(at: pd.DataFrame, label: str) -> list[str]:
    """The encoders of a method's runs, as far as they are known."""
    own = at[at["label"] == label]
    return sorted({str(encoder) for encoder in own["encoder"] if encoder}) if "encoder" in own else []


def _others(own: list[str], theirs: list[str]) -> str:
    """What is said where the baseline has other encoders."""
    apart = bool(own and theirs) and own != theirs
    return f" and has other encoders ({' or '.join(theirs)}, not {' or '.join(own)})" if apart else ""


def _counted(at: pd.DataFrame, labels: list[str], own: list[str], what: str) -> str:
    """What a method is the best of: methods, each once, or variants of one; and whether their encoders are the same."""
    methods = len({results.method(label) for label in labels})
    said = f"{methods} {what}" if methods > 1 else f"{len(labels)} variants"
    known = [_encoders(at, label) for label in labels]
    return said + (", not all with the same encoders" if any(each and each != own for each in known) else "")


def _repaired(view: results.View, noise: float, answers: Answers) -> list[str]:
    """How variants that were trained on repaired pairs or translations stand against the method as it is."""
    at = view.frame[view.frame["noise"] == noise]
    labels, said = results.methods(at), []
    for label in (each for each in labels if results.is_repaired(each)):
        values = results.replicates(at[at["label"] == label], view.figure)
        plain = results.unrepaired(label)
        there = plain in labels
        win = recovery(at, label, noise, figure=view.figure, against=plain, answers=answers) if there else None
        than = f", {_signed(win)}{_chance(win)}" if win else ""
        said.append(f"Repaired, {label} reaches {_mean_sd(values)}{_seeds(values)}{than}.")
    return said


def _together(view: results.View, noise: float, answers: Answers) -> list[str]:
    """How ensembles stand against single runs of the same methods, where there are some."""
    at = view.frame[view.frame["noise"] == noise]
    means, said = at.groupby("label")[view.figure].mean(), []
    for label in (each for each in results.methods(at) if results.is_ensemble(each)):
        difference = means[label] - means.reindex(results.members(label)).mean(skipna=False)
        than = ""
        if difference == difference:
            alone, whole = (at[at["label"].isin(each)] for each in (results.members(label), [label]))
            interval = answers.interval(alone, whole, view.figure, float(difference))
            than = f", {abs(difference):.1f} {'above' if difference > 0 else 'below'} the mean of single runs"
            if interval is None:
                than += OVERLAP if overlap(alone, whole, view.figure) else ""
            else:
                sure = interval[0] > 0 or interval[1] < 0
                than += f" (95% interval {_ends(interval)})" if sure else _holds_zero(interval)
        said.append(f"As an ensemble, {label} reaches {means[label]:.1f}{than}.")
    return said


def _ends(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.1f} to {interval[1]:.1f}".replace("-", MINUS)


def _holds_zero(interval: tuple[float, float]) -> str:
    return f"{CHANCE}its 95% interval, {_ends(interval)}, holds 0"


def _mean_sd(values: pd.Series[float]) -> str:
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f}" if len(values) > 1 else f"{values.mean():.1f}"


def _seeds(values: pd.Series[float]) -> str:
    """How many runs, and whether they differ in the seed of training or only in that of the mismatch."""
    n, trained = len(values), values.index.get_level_values("seed").nunique()
    if n == 1:
        return " (one seed)"
    return f" ({n} seeds)" if trained == n else f" ({n} runs of {trained} training seed{'s' if trained > 1 else ''})"


def _signed(win: Recovery) -> str:
    """How far above or below the baseline; level with it where the results do not say on which side."""
    spread = f" ± {win.difference_sd:.1f}" if win.difference_sd is not None else ""
    if win.level:
        sign = "+" if win.difference >= 0 else MINUS
        ends = f"; 95% interval {_ends(win.interval)}" if win.interval else ""
        return f"level with {win.against} ({sign}{abs(win.difference):.1f}{spread}{ends})"
    ends = f" (95% interval {_ends(win.interval)})" if win.interval and not win.holds_zero else ""
    return f"{abs(win.difference):.1f}{spread} {'above' if win.difference > 0 else 'below'} {win.against}{ends}"


def _chance(win: Recovery) -> str:
    """What is said of a difference between two results that may be chance."""
    if win.level or not win.open:
        return ""
    if win.interval and win.holds_zero:
        return _holds_zero(win.interval)
    return OVERLAP if win.overlap else f"{CHANCE}it is within its standard deviation over seeds"


def _recovered(win: Recovery | None) -> str | None:
    if win is None or win.value is None:
        return None
    share = f"{100 * win.value:.0f}%"
    interval = _interval(win)
    return (
        f"Of what an oracle that knows the mismatched pairs would gain, it wins {share}"
        f"{f' ({interval})' if interval else ''}{', which may be chance too' * win.open}."
    )


def _interval(win: Recovery) -> str:
    told = [f"n = {win.value_seeds}"] if win.value_seeds != win.seeds else []
    if win.low is not None and win.high is not None:
        told.insert(0, f"95% interval {100 * win.low:.0f} to {100 * win.high:.0f}%")
    return ", ".join(told)


def _paired(win: Recovery) -> str:
    spread = f"sd {win.difference_sd:.1f}, " if win.difference_sd is not None else ""
    said = [f"paired; {spread}n = {win.seeds}"]
    why = ["within 1 sd"] * win.within + ["95% intervals overlap"] * win.overlap
    if win.interval:
        (why if win.holds_zero else said).append(f"95% interval {_ends(win.interval)}")
    return "; ".join(said + [f"may be chance: {', '.join(why or ['next to nothing'])}"] * win.open)


def _detection(diagnoses: pd.DataFrame, view: results.View, method: str, noise: float) -> tuple[list[str], list[Tile]]:
    if diagnoses.empty:
        return [], []
    rows = diagnoses[(diagnoses["label"] == method) & (diagnoses["noise"] == noise)]
    rows = rows[rows["run_id"].isin(set(view.frame["run_id"])) & (rows["judge"] != "oracle")]
    if rows.empty:
        return [], []
    judge = str(rows["judge"].iloc[0])
    rows = rows[(rows["judge"] == judge) & (rows["judge_side"] == rows["judge_side"].iloc[0])]
    found, alarms, auroc = (float(rows[name].mean()) for name in ("recall", "false_alarms", "auroc"))
    if not math.isfinite(found):
        called = 100 * float(rows["share_noisy"].mean())
        said = f"It calls {called:.1f}% of the training pairs noisy (judge {judge}), although none was mismatched on "
        return [f"{said}purpose."], []
    said = f"It finds {100 * found:.0f}% of the mismatched training pairs"
    said += f" with {100 * alarms:.1f}% false alarms" if math.isfinite(alarms) else ""
    said += f" (AUROC {auroc:.3f}, judge {judge})." if math.isfinite(auroc) else f" (judge {judge})."
    detail = f"{100 * alarms:.1f}% false alarms" if math.isfinite(alarms) else ""
    return [said], [Tile(f"{100 * found:.0f}%", "of mismatched pairs found", detail)]
