"""ccr data: list, show, import, verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccr_cli import console
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.commands import common as c

app = typer.Typer(no_args_is_help=True, help="Data sets: list, show, import, verify.", rich_markup_mode="rich")

Source = Annotated[str, typer.Argument(help="Name of a bundled data set, or a folder in the dataset format.")]
Importable = Annotated[
    str,
    typer.Argument(help="Name of a bundled data set, a folder in the dataset format, or a .mat file of features."),
]

MediaRoot = Annotated[
    Path | None,
    typer.Option("--media-root", help="Where the media lie.", show_default="the folder's media/"),
]


@app.command("list", epilog=c.examples("ccr data list"))
@c.guarded
def list_(workspace: c.WorkspaceOption = Path("."), json: c.Json = False) -> None:
    """List the bundled data sets and those of the workspace."""
    c.setup(False, 0)
    inputs = c.inputs_from(workspace, None)
    from ccr_cli.data.manifests import bundled

    imported = {a.name: a for a in inputs.workspace.artifacts("dataset")}
    rows = []
    for name, manifest in bundled().items():
        langs = " ".join([manifest["source_lang"], *manifest.get("query_langs", [])])
        pairs = " ".join(f"{t['source']}->{t['target']}" for t in manifest.get("translations", []))
        state = "imported" if name in imported else "bundled"
        rows.append((name, state, manifest.get("title", ""), langs, pairs, manifest.get("licence", "")))
    for name, artifact in imported.items():
        if name not in bundled():
            langs = " ".join(k.removeprefix("captions.") for k in artifact.counts if k.startswith("captions."))
            rows.append((name, "imported", "", langs, "", ""))
    columns = ("name", "state", "title", "languages", "recorded translations", "licence")
    if json:
        c.show_json({"datasets": [dict(zip(columns, row, strict=True)) for row in rows]})
        return
    c.show_table(columns, rows)


@app.command("show", epilog=c.examples("ccr data show noto-emoji", "ccr data show datasets/mine"))
@c.guarded
def show(source: Source, workspace: c.WorkspaceOption = Path(".")) -> None:
    """Show a data set's card: counts, languages, an example, licence, citation."""
    c.setup(False, 0)
    from ccr_cli.stages.data import card

    c.show_table(("what", "value"), card(Workspace(workspace.absolute()), source))


@app.command(
    "import",
    epilog=c.examples(
        "ccr data import noto-emoji", "ccr data import FOLDER --media-root /data/images", "ccr data import wiki.mat"
    ),
)
@c.guarded
def import_(
    source: Importable,
    media_root: MediaRoot = None,
    name: c.Name = None,
    force: c.Force = False,
    workspace: c.WorkspaceOption = Path("."),
    dry_run: c.DryRun = False,
    json: c.Json = False,
    quiet: c.Quiet = False,
    verbose: c.Verbose = 0,
) -> None:
    """Make a dataset artifact from a bundled data set or a folder; of a .mat file, its features too.

    Counts, hashes, ids, languages and splits are checked; what is wrong is named with file and line.
    """
    c.setup(quiet, verbose)
    inputs = c.inputs_from(workspace, None, dry_run=dry_run)
    if source.endswith(".mat"):
        from ccr_cli.stages.given import import_given

        made = import_given(inputs.workspace, Path(source), name=name, force=force)
    else:
        from ccr_cli.stages.data import import_data

        made = [import_data(inputs.workspace, source, name=name, media_root=media_root, force=force)]
    c.emit(inputs, made, json)


@app.command("verify", epilog=c.examples("ccr data verify noto-emoji"))
@c.guarded
def verify(source: Source, media_root: MediaRoot = None) -> None:
    """Check a bundled data set or a folder against its manifest, and that its media are there, without importing it."""
    c.setup(False, 0)
    from ccr_cli.data.manifests import read_folder
    from ccr_cli.stages.data import absent_media, locate

    folder = read_folder(locate(source))
    checked = len(folder.manifest.get("files", []))
    missing = absent_media(folder.items, media_root or folder.path / "media")
    c.show_table(
        ("what", "value"),
        [
            ("folder", folder.path),
            ("files with the right hash", checked),
            ("items", len(folder.items)),
            ("captions", len(folder.captions)),
            ("empty captions", len(folder.refused)),
            ("media that are not there", len(missing)),
        ],
    )
    for name in missing[:5]:
        console.warn(f"there is no {name}")
    if folder.refused or missing:
        raise typer.Exit(3)
