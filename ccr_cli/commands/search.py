"""ccr search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccr_cli.commands import common as c


@c.guarded
def search(
    query: Annotated[str, typer.Argument(help="What to look for, in a language that the run was trained on.")],
    artifacts: c.Artifacts = None,
    split: Annotated[str, typer.Option("--split", help="Items to search: train, val, test or all.")] = "test",
    top: Annotated[int, typer.Option("--top", min=1, help="Results.")] = 5,
    device: c.Device = "auto",
    workspace: c.WorkspaceOption = Path("."),
    json: c.Json = False,
    quiet: c.Quiet = False,
    verbose: c.Verbose = 0,
) -> None:
    """Search a run's items in the languages that it was trained on.

    Prints the best items with similarity and the query's uncertainty: a table on a terminal, else TSV.
    """
    c.setup(quiet, verbose)
    inputs = c.inputs_from(workspace, artifacts)
    from ccr_cli.stages.search import search as stage

    trained = inputs.one("run", "", hint="ccr train --method uml")
    answer = stage(inputs, trained, [query], split=None if split == "all" else split, top=top, device=device)[0]
    if json:
        hits = [{**vars(hit), "image": str(hit.image) if hit.image else None} for hit in answer.hits]
        c.show_json({"query": query, "uncertainty": answer.uncertainty, "hits": hits})
        return
    unsure = "" if answer.uncertainty is None else f"{answer.uncertainty:.3f}"
    rows = [(h.place, f"{h.similarity:.3f}", h.item_id, h.caption, h.image or "", unsure) for h in answer.hits]
    c.show_table(("place", "similarity", "item", "caption", "image", "uncertainty"), rows, title=query)


EPILOG = c.examples(
    'ccr search "una cara sonriente"',
    'ccr search "chat" runs/noto-emoji-fr-uml-seed0 --top 10 --split all --json',
)
