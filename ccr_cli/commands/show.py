"""Summaries for people, on standard error: standard output carries paths; and ccr show, which says them again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccr_cli import console
from ccr_cli.artifacts.base import Artifact
from ccr_cli.commands import common as c
from ccr_cli.commands.index import show_index
from ccr_cli.commands.show_evaluation import show_evaluation

if TYPE_CHECKING:
    from ccr_cli.artifacts.workspace import Workspace
    from ccr_cli.report.page.compose import Overview
    from ccr_cli.stages.report.workspace_list import Entry


def show_translation(artifact: Artifact, said: set[str] | None = None) -> None:
    """Says what is known of the quality of a translation, by split, and the signatures of the scores.

    Args:
        artifact: The translation.
        said: Signatures that were said before, and need not be again; takes up those that are said now.
    """
    from ccr_cli.artifacts import translation
    from ccr_cli.report.tables.translation_scores import signatures

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
    from ccr_cli.report.tables.translation_scores import wrote

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


def show_report(found: Overview) -> None:
    """Shows what a report says: its headline and its tables, drawn on a terminal, Markdown otherwise."""
    from ccr_cli.report.tables.table import to_markdown, to_rich

    err = console.stderr()
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
    json: c.Json = False,
    quiet: c.Quiet = False,
    verbose: c.Verbose = 0,
) -> None:
    """List what the workspace holds; or say again what the stage that made an artifact said of it at its end.

    The list has what was asked of each artifact in short and what came of it, in the order of the chain, the newest
    first. Of an artifact that is named it prints the path, and says what there is to say of translations, runs,
    evaluations, diagnoses and indexes.
    """
    c.setup(quiet, verbose)
    inputs = c.inputs_from(workspace, artifacts)
    from ccr_cli.stages.report.workspace_list import contents

    if json or not inputs.given:
        entries = contents(inputs.workspace, inputs.given or None)
        if json:
            c.show_json({"artifacts": [_facts(entry) for entry in entries]})
        elif entries:
            _list(inputs.workspace, entries)
        else:
            console.say(f"there is nothing in {inputs.workspace.root}")
            console.say("  try: ccr data import noto-emoji, or ccr demo for the whole chain; ccr data list has more")
        return
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


def _list(workspace: Workspace, entries: Sequence[Entry]) -> None:
    """Prints the artifacts of a workspace: two lines each on a terminal, where a path must not be broken, else TSV."""
    rows = []
    for entry in entries:
        path, made = workspace.relative(entry.path), entry.made[:16].replace("T", " ")
        rows.append((entry.kind, path, entry.asked, entry.found.words, made))
    if not sys.stdout.isatty():
        c.show_table(("kind", "artifact", "asked", "found", "made"), rows)
        return
    for _, path, asked, found, made in rows:
        print(console.plain(path))
        print(console.plain(f"    {' -> '.join(filter(None, (asked, found)))}{f' ({made})' if made else ''}"))


def _facts(entry: Entry) -> dict[str, Any]:
    """An artifact of the list as JSON."""
    about = c._facts(entry.artifact) if entry.artifact else {"kind": entry.kind, "path": str(entry.path)}
    figure = {"figure": entry.found.figure, "value": entry.found.value} if entry.found.figure else {}
    request = {"request": entry.artifact.request} if entry.artifact else {}
    return {**about, "asked": entry.asked, "found": entry.found.words, **figure, "made": entry.made, **request}


_SUMMARIES: dict[str, Callable[[Artifact], None]] = {
    "run": show_training,
    "evaluation": show_evaluation,
    "diagnosis": show_diagnosis,
    "index": show_index,
}

EPILOG = c.examples(
    "ccr show", "ccr show translations/noto-emoji/es-recorded", "ccr show runs/noto-emoji-es-uml-noise0.4-seed0"
)


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
