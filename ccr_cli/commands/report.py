"""ccr report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccr_cli import console
from ccr_cli.commands import common as c


@c.guarded
def report(
    artifacts: c.Artifacts = None,
    title: Annotated[str | None, typer.Option("--title", help="Heading of the page.")] = None,
    searches: Annotated[
        int,
        typer.Option(
            "--searches",
            min=0,
            help="Show so many example searches a language, with the run that is best on validation.",
        ),
    ] = 0,
    map_: Annotated[
        int,
        typer.Option("--map", min=0, help="Draw so many items with their captions as a map (t-SNE)."),
    ] = 0,
    inside: Annotated[
        int,
        typer.Option("--inside", min=0, help="Show so many picture queries, soft targets and attention maps."),
    ] = 0,
    split: Annotated[
        str,
        typer.Option(
            "--split", help="Whose items --searches, --map and --inside show: train, val, test, val-select, val-report."
        ),
    ] = "test",
    published: Annotated[
        bool,
        typer.Option("--published", help="Set the results beside those that papers print, and say what differs."),
    ] = False,
    device: c.Device = "auto",
    name: c.Name = None,
    force: c.Force = False,
    workspace: c.WorkspaceOption = Path("."),
    dry_run: c.DryRun = False,
    json: c.Json = False,
    quiet: c.Quiet = False,
    verbose: c.Verbose = 0,
) -> None:
    """Make tables, figures and one self-contained HTML page from evaluations, diagnoses and translations.

    With none named, from all of the workspace; translations alone make a page too. The tables are shown on standard
    error. The example queries are human captions drawn by a fixed seed.
    """
    c.setup(quiet, verbose)
    inputs = c.inputs_from(workspace, artifacts, dry_run=dry_run)
    from ccr_cli.commands.show import show_report
    from ccr_cli.data.splits import refuse_unknown
    from ccr_cli.report.page.compose import overview
    from ccr_cli.stages.report.embedding_maps import sample_maps
    from ccr_cli.stages.report.model_internals import sample_inside
    from ccr_cli.stages.report.sample_searches import sample_searches
    from ccr_cli.stages.report.stage import gather, write

    refuse_unknown(split)
    shown, maps, within = [], [], None
    if searches:
        console.say(f"example searches: {searches} a language")
        shown = sample_searches(inputs, searches, split=split, device=device)
    if map_:
        console.say(f"a map of {map_} items")
        maps = sample_maps(inputs, map_, split=split, device=device)
    if inside:
        console.say(f"what models do within: {inside} examples")
        within = sample_inside(inputs, inside, split=split, device=device)
    material, parents = gather(inputs, title, shown, published, maps, within)
    made = write(inputs, material, parents, name=name, force=force)
    show_report(overview(material))
    c.emit(inputs, [made], json)
    console.say(f"the page: {made.path / 'report.html'}")


EPILOG = c.examples(
    "ccr report --searches 3",
    "ccr report evaluations/a evaluations/b diagnoses/a --title 'Two methods'",
    "ccr report translations/noto-emoji/es-recorded",
    "ccr report --searches 3 --map 20 --split val",
    "ccr report --published",
)
