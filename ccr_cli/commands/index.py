"""ccr index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccr_cli.commands import common as c


@c.guarded
def index(
    artifacts: c.Artifacts = None,
    split: Annotated[str, typer.Option("--split", help="Items to search: train, val, test or all.")] = "test",
    find: Annotated[str, typer.Option("--find", help="What to search: items or captions.")] = "items",
    lang: Annotated[
        str | None,
        typer.Option(
            "--lang", help="Use a run that knows this language; with --find captions, search its captions only."
        ),
    ] = None,
    kind: Annotated[str, typer.Option("--type", help="Kind of index: ivf (cells) or hnsw (graph).")] = "ivf",
    recall: Annotated[
        float,
        typer.Option(
            "--recall", help="Fraction of the ten most similar entries that queries must find (above 0, up to 1)."
        ),
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
    """Build a search index, for galleries of hundreds of thousands of items.

    Writes an artifact with a FAISS index and its recall against exact search. `ccr search` uses it with --index, or if
    it is among the artifacts.
    """
    c.setup(quiet, verbose)
    inputs = c.inputs_from(workspace, artifacts, dry_run=dry_run)
    from ccr_cli.commands.show import show_summary
    from ccr_cli.stages.search.build_index import IndexOptions
    from ccr_cli.stages.search.build_index import index as stage
    from ccr_cli.stages.search.stage import SearchOptions, choose_run

    options = SearchOptions(None if split == "all" else split, find, lang, device)
    made = stage(inputs, choose_run(inputs, lang), options, IndexOptions(kind, recall), name=name, force=force)
    show_summary(made)
    c.emit(inputs, [made], json)


EPILOG = c.examples(
    "ccr index",
    "ccr index runs/vatex-zh-uml-seed0 --split all --type hnsw",
    "ccr index --recall 0.95 | ccr search - --queries words.txt --json",
)
