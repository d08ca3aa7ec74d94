"""ccr show, and the summaries that other commands print on standard error: standard output carries paths."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ccr_cli import console
from ccr_cli.artifacts.base import Artifact
from ccr_cli.commands import common as c
from ccr_cli.stages.shared.options import option

if TYPE_CHECKING:
    from ccr_cli.artifacts.workspace import Workspace
    from ccr_cli.report.page.compose import Overview
    from ccr_cli.report.tables.table import Table
    from ccr_cli.stages.report.workspace_list import Entry


def show_summary(artifact: Artifact, printed: set[str] | None = None) -> None:
    """Prints the summary of an artifact; dim lines that are in `printed` are not repeated."""
    from ccr_cli.report.tables.table import Table
    from ccr_cli.report.words.artifact_summaries import summary

    printed = set() if printed is None else printed
    as_table = console.stderr().is_terminal and console.verbosity >= 0
    for line in summary(artifact, brief=console.brief, as_table=as_table):
        if isinstance(line, Table):
            show_table(line)
        elif line.warning:
            console.warn(line.text)
        elif line.text not in printed:
            printed |= {line.text} if line.style == "dim" else set()
            console.say(line.text, style=line.style, level=line.level)


def show_report(overview: Overview) -> None:
    """Prints the headline and the tables of a report."""
    console.say(overview.findings.headline, style="bold")
    printed: set[str] = set()
    for table in overview.tables.values() if console.verbosity >= 0 else ():
        console.stderr().print()
        show_table(replace(table, notes=[note for note in table.notes if note not in printed]))
        printed.update(table.notes)


def show_table(table: Table) -> None:
    """Draws a table on a terminal; elsewhere writes Markdown."""
    from ccr_cli.report.tables.table import to_markdown, to_rich

    error = console.stderr()
    text = to_rich(table) if error.is_terminal else to_markdown(table)
    error.print(text, markup=False, soft_wrap=not error.is_terminal)


@c.guarded
def show(
    *,
    call: c.ListCall,
    config: bool = option(False, "Print the settings of a run as TOML, for ccr train --config."),
) -> None:
    """List the artifacts of the workspace, or summarise the given ones.

    The list follows the pipeline, newest first within each kind, with the main options and the outcome of each
    artifact. For a given artifact, ccr prints its path and repeats the summary of the command that made it.
    """
    inputs = call.inputs()
    from ccr_cli.stages.report.workspace_list import contents

    if config:
        from ccr_cli.commands.config_file import of_run

        print(of_run(inputs.one("run", "")), end="")
        return
    if not call.json and inputs.named:
        printed: set[str] = set()
        for artifact in inputs.named:
            print(artifact.path, flush=True)
            show_summary(artifact, printed)
        return
    entries = contents(inputs.workspace, inputs.named or None)
    if call.json:
        c.show_json({"artifacts": [_facts(entry) for entry in entries]})
    elif entries:
        _list(inputs.workspace, entries)
    else:
        console.say(f"{inputs.workspace.root} holds no artifacts")
        console.say("  try: ccr data import noto-emoji, or ccr demo for the whole pipeline; ccr data list has more")


def _list(workspace: Workspace, entries: Sequence[Entry]) -> None:
    """Prints the artifacts of a workspace: on a terminal in two lines, so that no path is broken; elsewhere TSV."""
    for_person = sys.stdout.isatty()
    rows = []
    for entry in entries:
        path, created = workspace.relative(entry.path), entry.created[:16].replace("T", " ")
        if for_person:
            print(console.plain(path))
            line = " -> ".join(filter(None, (entry.options, entry.outcome.words)))
            print(console.plain(f"    {line}{f' ({created})' if created else ''}"))
        rows.append((entry.kind, path, entry.options, entry.outcome.words, created))
    if not for_person:
        c.show_table(("kind", "artifact", "asked", "found", "made"), rows)


def _facts(entry: Entry) -> dict[str, Any]:
    about = c.artifact_facts(entry.artifact) if entry.artifact else {"kind": entry.kind, "path": str(entry.path)}
    outcome = entry.outcome
    figure = {"figure": outcome.figure, "value": outcome.value} if outcome.figure else {}
    request = {"request": entry.artifact.request} if entry.artifact else {}
    return {**about, "asked": entry.options, "found": outcome.words, **figure, "made": entry.created, **request}


EPILOG = c.examples(
    "ccr show", "ccr show translations/noto-emoji/es-recorded", "ccr show runs/noto-emoji-es-uml-noise0.4-seed0"
)
