"""ccr index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccr_cli import console
from ccr_cli.artifacts.base import Artifact
from ccr_cli.commands import common as c


@c.guarded
def index(
    artifacts: c.Artifacts = None,
    split: Annotated[str, typer.Option("--split", help="Items to search: train, val, test or all.")] = "test",
    find: Annotated[str, typer.Option("--find", help="What to find: items, or captions of items.")] = "items",
    lang: Annotated[
        str | None,
        typer.Option("--lang", help="Take a run that knows this language; with --find captions, its captions alone."),
    ] = None,
    kind: Annotated[str, typer.Option("--type", help="ivf (cells) or hnsw (a graph).")] = "ivf",
    recall: Annotated[
        float, typer.Option("--recall", help="The share of the ten most similar that a query shall find.")
    ] = 0.99,
    device: c.Device = "auto",
    name: c.Name = None,
    force: c.Force = False,
    workspace: c.WorkspaceOption = Path("."),
    dry_run: c.DryRun = False,
    json: c.Json = False,
    quiet: c.Quiet = False,
    verbose: c.Verbose = 0,
) -> None:
    """Index what a run searches, for galleries of hundreds of thousands and more.

    Writes an artifact with a FAISS index, and how much of what exact search finds it finds. `ccr search` takes it
    with --index, or by name.
    """
    c.setup(quiet, verbose)
    inputs = c.inputs_from(workspace, artifacts, dry_run=dry_run)
    from ccr_cli.stages.search.build_index import Asked
    from ccr_cli.stages.search.build_index import index as stage
    from ccr_cli.stages.search.choice import chosen_run
    from ccr_cli.stages.search.stage import Wanted

    wanted = Wanted(None if split == "all" else split, find, lang, device)
    made = stage(inputs, chosen_run(inputs, lang), wanted, Asked(kind, recall), name=name, force=force)
    show_index(made)
    c.emit(inputs, [made], json)


def show_index(made: Artifact) -> None:
    """Says how near an index comes to exact search, and what that saves."""
    from ccr_cli.artifacts import index as artifact

    about, spent = artifact.about(made), made.about.get("environment") or {}
    found = about["recall"]
    console.say(
        f"  {made.counts['entries']:,} entries, {about['type']}, effort {about['effort']}: recall@{found['at']} "
        f"{found['value']:.3f} against exact search ({found['queries']} queries: {about['measured_on']})"
    )
    console.say(f"  {spent['query_ms']:.2g} ms a query, exact {spent['exact_query_ms']:.2g} ms")


EPILOG = c.examples(
    "ccr index",
    "ccr index runs/vatex-zh-uml-seed0 --split all --type hnsw",
    "ccr index --recall 0.95 | ccr search - --queries words.txt --json",
)
