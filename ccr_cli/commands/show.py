"""Summaries for people, on standard error: standard output carries paths; and ccr show, which says them again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccr_cli import console
from ccr_cli.artifacts.base import Artifact
from ccr_cli.commands import common as c
from ccr_cli.commands.index import show_index
from ccr_cli.errors import UsageError

if TYPE_CHECKING:
    from ccr_cli.report.compose import Overview

_DIRECTIONS = ("t2v", "v2t")


_SHOWN = ("R@1", "R@5", "R@10", "MedR", "mAP")


def show_translation(artifact: Artifact, said: set[str] | None = None) -> None:
    """Says what is known of the quality of a translation, by split, and the signatures of the scores.

    Args:
        artifact: The translation.
        said: Signatures that were said before, and need not be again; takes up those that are said now.
    """
    from ccr_cli.artifacts import translation
    from ccr_cli.report.translation_scores import signatures

    if not translation.has_quality(artifact):
        return
    told = {name: each for name, each in translation.quality(artifact).items() if name in ("forward", "query")}
    if console.brief:
        splits = [found for each in told.values() for found in each["splits"].values()]
        flagged = sum(found["flagged"] for found in splits)
        failed = sum(found["failed"] for found in splits)
        there = sum(found["captions"] for found in splits) - failed
        console.say(f"  {flagged} of {there} translations are flagged{f', {failed} captions failed' if failed else ''}")
        return
    scored = []
    for direction, each in told.items():
        for split, found in each["splits"].items():
            console.say(f"  {each['source_lang']} -> {each['lang']}, {direction}, {split}: {_flagged(found)}")
            for human in found["references"]:
                scores = ", ".join(f"{name} {_score(figures)}" for name, figures in human["scores"].items())
                console.say(f"    {scores} against {_references(human)}")
                scored.append(human)
        for note in each["notes"]:
            console.say(f"  no score: {note}")
    said = set() if said is None else said
    for line in dict.fromkeys([*signatures(scored), *(human["note"] for human in scored if human["note"])]):
        if line not in said:
            said.add(line)
            console.say(f"  {line}", style="dim")


def _flagged(found: dict[str, Any]) -> str:
    """What is known of a split without references."""
    flags = ", ".join(f"{flag} {n}" for flag, n in found["flags"].items() if n)
    failed = f", {found['failed']} failed: not translated" if found["failed"] else ""
    parts = [f"{found['captions']} captions{failed}, {found['flagged']} flagged{f' ({flags})' if flags else ''}"]
    if found["length_ratio"] is not None:
        parts.append(f"length ratio {found['length_ratio']:.2f}")
    if found["round_trip"]:
        parts.append(f"round trip chrF2 {found['round_trip']['chrF2']['score']:.1f}")
    return "; ".join(parts)


def _score(figures: dict[str, Any]) -> str:
    """A score with half the width of its interval."""
    interval = figures["interval"]
    return f"{figures['score']:.1f}" + (f" ± {(interval[1] - interval[0]) / 2:.1f}" if interval else "")


def _references(found: dict[str, Any]) -> str:
    """What was compared with, such as `1 human translation each (task1)`."""
    from ccr_cli.report.translation_scores import wrote

    sets = found["caption_set"] + ("" if found["source_set"] == found["caption_set"] else f" for {found['source_set']}")
    return f"{wrote(found)} ({sets}; {found['captions']} captions)"


def show_training(artifact: Artifact) -> None:
    """Says how training ended."""
    from ccr_cli.artifacts import run

    counts, seconds = artifact.counts, float(artifact.about["environment"].get("seconds", 0.0))
    best = run.history(artifact).set_index("epoch").loc[counts["best_epoch"]]
    config = run.config(artifact)
    figure = config.get("criterion", "SumR")
    each = {lang: best.get(f"val.langs.{lang}.{figure}") for lang in run.langs(config)}
    told = ", ".join(f"{lang} {value:.1f}" for lang, value in each.items() if value is not None)
    reached = f", {figure} {best[f'val.{figure}']:.1f} on validation" if f"val.{figure}" in best else ""
    reached += f": {told}" if told else ""
    if reached and config.get("validation"):
        queries, items = config["validation"]
        kind = "machine-translated" if config["select"] == "mt" else "human"
        reached += f" (half of it: {queries:,} {kind} queries, {items:,} items; not comparable with test figures)"
    console.say(f"  epoch {counts['best_epoch']} of {counts['epochs']} kept{reached}; {seconds:.0f} s of training")
    if counts.get("stopped"):
        console.warn(run.stopped(artifact))


def show_evaluation(artifact: Artifact) -> None:
    """Shows an evaluation's figures, their intervals and signatures: a table on a terminal, lines otherwise."""
    from ccr_cli.artifacts.evaluation import headline, mean_ap, results

    found = results(artifact)
    name = headline(found[0])  # one protocol an evaluation, one headline
    values = [mean_ap(r) if name == "mAP" else r[name] for r in found]
    if console.brief:
        say = ", ".join(f"{_what(r)} {_number(value)}" for r, value in zip(found, values, strict=True))
        console.say(f"  {name}: {say}")
        return
    heads = [_certain(r, name, None, value) for r, value in zip(found, values, strict=True)]
    if console.stderr().is_terminal and console.verbosity >= 0:
        _draw(artifact.name, found, name, heads)
    else:
        for result, value in zip(found, heads, strict=True):
            parts = {d: " ".join(f"{k} {_certain(result, k, d)}" for k in _SHOWN) for d in _DIRECTIONS}
            figures = [f"{_asked(result, d)} {text}" for d, text in parts.items()]
            console.say(f"{_what(result)}: {name} {value}; {'; '.join(figures)}")
    for result in found:
        console.say(result["signature"], style="dim")
        _break_down(result)
        _say_uncertainty(result)
        if told := result.get("uncertainty"):
            console.say(f"mean uncertainty: T2V {_number(told['t2v'], 3)}, V2T {_number(told['v2t'], 3)}")
        _say_apart(f"out of distribution ({result.get('ood', {}).get('of', 'left out')})", result.get("ood"))
        _say_apart("corrupted from intact", result.get("told_apart"))
    told = found[0].get("intervals")
    if told:
        console.say(
            f"± half of, or in brackets, the {told['level']:.0%} bootstrap interval over {told['drawn']}", style="dim"
        )


def _break_down(result: dict[str, Any]) -> None:
    """Says, where more is asked for (`-v`), the figures of short and long queries, and by their translation."""
    told = result.get("breakdown") or {}
    lines = []
    if told.get("length"):
        unit = told["length"]["unit"]
        lines += [(f"{g['low']:g} to {g['high']:g} {unit}", g) for g in told["length"]["groups"]]
    if told.get("translation"):
        found = told["translation"]
        lines += [(f"translated, {name.replace('_', ' ')}", found[name]) for name in ("flagged", "not_flagged")]
        lines += [(f"translated with chrF {g['low']:.0f} to {g['high']:.0f}", g) for g in found["groups"]]
    for what, group in lines:
        figures = " ".join(f"{k} {_number(group[k])}" for k in _SHOWN)
        console.say(f"  {what}: {group['queries']} queries ({group['share']:.0%}); T2V {figures}", level=1)


def _say_uncertainty(result: dict[str, Any]) -> None:
    """Says, where more is asked for, whether the uncertainty of text queries beats what similarities tell for free."""
    own = (result.get("calibration") or {}).get("t2v") or {}
    others = [
        f"{name} {_number(each['auroc'], 3)}{_verdict((each.get('gaps') or {}).get('auroc'))}"
        for name, each in (own.get("trivial") or {}).items()
    ]
    if others:
        mine = f"{_uncertainty(result)} {_number(own['auroc'], 3)} " if "auroc" in own else "no uncertainty of its own "
        console.say(f"  T2V, first result wrong, AUROC: {mine}beside {', '.join(others)}", level=1)


def _uncertainty(result: dict[str, Any]) -> str:
    """What an uncertainty is called: a softmax with its temperatures, where the method has none of its own."""
    if "|unc:softmax|" not in result["signature"]:
        return "uncertainty"
    return f"softmax at temperature {', '.join(f'{each:.3f}' for each in result['temperature'])}"


def _say_apart(what: str, told: dict[str, Any] | None) -> None:
    """Says how well queries of two kinds are told apart, and whether by more than what similarities tell for free."""
    for direction in _DIRECTIONS:
        own = (told or {}).get(direction)
        if own is None:
            continue
        others = [
            f"{each} {_number(found['auroc'], 3)}{_verdict(found.get('gap'))}" for each, found in own["trivial"].items()
        ]
        mine = "no uncertainty of its own"
        if "auroc" in own:
            ends = own["interval"]
            mine = f"uncertainty {_number(own['auroc'], 3)}" + (f" [{ends[0]:.3f}, {ends[1]:.3f}]" if ends else "")
        console.say(f"{direction.upper()} {what}, AUROC: {mine} beside {', '.join(others)}")


def _verdict(gap: list[float] | None) -> str:
    if gap is None:
        return ""
    said = "beaten" if gap[0] > 0 else "is better" if gap[1] < 0 else "not beaten"
    return f" ({said}: {gap[0]:+.3f} to {gap[1]:+.3f})"


def _what(result: dict[str, Any]) -> str:
    role = " (source)" if result["role"] == "source" else ""
    fusion = "" if result["fusion"] == "none" else f", fused {result['fusion']}"
    reading = f", {result['reading']} alone" if result.get("reading") else ""
    by = f", sentences by {result['signature'].partition('|pos:')[2].partition('|')[0]}" if result.get("task") else ""
    worse = f", corrupted {result['corrupt']}" if result.get("corrupt") else ""
    several = f", mean of {len(result['ensemble'])} runs" if result.get("ensemble") else ""
    return f"{result['data']} {result['lang']}{role}{several}{fusion}{reading}{by}{worse}"


def _asked(result: dict[str, Any], direction: str) -> str:
    """What a direction is called where it is shown; in text retrieval the source sentences stand for the pictures."""
    return (direction.replace("v", "s") if result.get("task") else direction).upper()


def _certain(result: dict[str, Any], name: str, direction: str | None, value: float | None = None) -> str:
    """A figure with half the width of its interval; a median, whose interval is lopsided, with both ends."""
    from ccr_cli.artifacts.evaluation import interval

    shown = _number(result[direction][name] if direction else value)
    ends = interval(result, name, direction)
    if ends is None or shown == "-":
        return shown
    low, high = ends
    return f"{shown} [{low:.1f}, {high:.1f}]" if name == "MedR" else f"{shown} ± {(high - low) / 2:.1f}"


def _draw(title: str, found: list[dict[str, Any]], name: str, heads: list[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(console.plain(title)), padding=(0, 0), pad_edge=False)
    table.add_column("queries")
    for column in ("", *_SHOWN):
        table.add_column(column, justify="right" if column else "left")
    for result, value in zip(found, heads, strict=True):
        what = f"{_what(result)}: {name} {value}"
        for n, direction in enumerate(_DIRECTIONS):
            cells = [_certain(result, k, direction) for k in _SHOWN]
            last = n == len(_DIRECTIONS) - 1
            table.add_row(Text("" if n else console.plain(what)), _asked(result, direction), *cells, end_section=last)
    console.stderr().print(table)


def show_diagnosis(artifact: Artifact) -> None:
    """Shows what a diagnosis found."""
    from ccr_cli.artifacts.diagnosis import summary

    found = summary(artifact)
    side = f" ({found['judge_side']})" if found["judge_side"] else ""
    told = found["judge"] == "oracle"
    rare = "" if told else f", {found['called_noisy_rare']} of them with words too rare to be known"
    console.say(
        f"{found['called_noisy']} of {found['pairs']} training pairs ({found['share_noisy']:.1%}) are called "
        f"mismatched by {found['judge']}{side}{rare}"
    )
    if "expected" in found["split"]:
        hopes = found["split"]["expected"]
        console.say(
            f"split by {_threshold(found['split'])}; if the mixture that was fitted were the truth, "
            f"{found['split']['wrong']:.1%} would be wrong, and these calls have precision "
            f"{_number(hopes['precision'], 2)}, recall {_number(hopes['recall'], 2)}"
        )
    if found["detection"]:
        d = found["detection"]
        console.say(
            f"against the synthetic truth: AUROC {_number(d['auroc'], 3)}, found {_number(d['recall'], 3)} of the "
            f"mismatched, false alarms {_number(d['false_alarms'], 3)}, F1 {_number(d['f1'], 3)}, calibration error "
            f"{_number(found['calibration']['ece'], 3)}"
        )
    for pair in [] if console.brief else found["most_suspicious"][:5]:
        console.say(f"  {pair['p_clean']:.2f}  {pair['source_text']}  ->  {pair['translation']}")


def _threshold(split: dict[str, Any]) -> str:
    """The rule by which pairs were called, such as `P(clean) < 0.5 of the mixture, sim_st < 0.312`."""
    if split["by"] == "share":
        return "a share that was asked for"
    near = [f"{name} < {split[name]:.3f}" for name in ("sim_st", "sim_vt") if split.get(name) is not None]
    return ", ".join([f"P(clean) < {split['p_clean']:g} of the {split['by']}", *near])


def show_report(found: Overview, path: Path) -> None:
    """Shows what a report says: its headline and its tables, drawn on a terminal, Markdown otherwise."""
    from ccr_cli.report.tables import to_markdown, to_rich

    err = console.stderr()
    console.say(f"  the page: {path}")
    console.say(found.findings.headline, style="bold")
    for table in found.tables.values():
        if console.verbosity >= 0:
            err.print()
            err.print(
                to_rich(table) if err.is_terminal else to_markdown(table), markup=False, soft_wrap=not err.is_terminal
            )


@c.guarded
def show(
    artifacts: c.Artifacts = None,
    workspace: c.WorkspaceOption = Path("."),
    quiet: c.Quiet = False,
    verbose: c.Verbose = 0,
) -> None:
    """Say again what the stage that made an artifact said of it at its end.

    Of translations, runs, evaluations, diagnoses and indexes. Prints the artifact's path.
    """
    c.setup(quiet, verbose)
    inputs = c.inputs_from(workspace, artifacts)
    if not inputs.given:
        raise UsageError("which artifact?", hint="ccr show evaluations/NAME")
    summaries: dict[str, Callable[[Artifact], None]] = {
        **_SUMMARIES,
        "translation": partial(show_translation, said=set()),
    }
    for artifact in inputs.given:
        print(artifact.path, flush=True)
        if artifact.kind in summaries:
            summaries[artifact.kind](artifact)
        else:
            console.say(f"  {', '.join(f'{n} {what}' for what, n in artifact.counts.items())}")


_SUMMARIES: dict[str, Callable[[Artifact], None]] = {
    "run": show_training,
    "evaluation": show_evaluation,
    "diagnosis": show_diagnosis,
    "index": show_index,
}

EPILOG = c.examples("ccr show translations/noto-emoji/es-recorded", "ccr show runs/noto-emoji-es-uml-noise0.4-seed0")


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
