"""ccr data: list, describe, import, verify."""

from pathlib import Path
from typing import Annotated

import typer

from ccr_cli import console
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.commands import common as c
from ccr_cli.errors import UsageError
from ccr_cli.stages.data.options import ImportOptions
from ccr_cli.stages.shared.options import option

app = typer.Typer(
    cls=c.Commands, no_args_is_help=True, help="Data sets: list, describe, import, verify.", rich_markup_mode="rich"
)

Source = Annotated[str, typer.Argument(help="A bundled data set, a collection, or a folder in the dataset format.")]
Sources = Annotated[
    list[str] | None,
    typer.Argument(
        help="A bundled data set, a collection, a folder in the dataset format, or a .mat file of features. Or your "
        "own: tables of pictures and captions (CSV, Excel, JSON, Parquet) or a folder of both; `train=FILE`, `de=FILE` "
        "or `train.de=FILE` names split and language.",
        show_default=False,
    ),
]


@app.command("list", cls=c.Command, epilog=c.examples("ccr data list"))
@c.guarded
def list_(workspace: Path | None = None, json: bool = False) -> None:
    """List the bundled data sets, the collections that can be imported, and the data sets of the workspace."""
    from ccr_cli.stages.data.card import listing
    from ccr_cli.stages.shared.inputs import existing

    columns, rows = listing(Workspace(existing(workspace).absolute()))
    c.show_rows("datasets", columns, rows, json)


@app.command(
    "describe",
    cls=c.Command,
    epilog=c.examples("ccr data describe noto-emoji", "ccr data describe multi30k", "ccr data describe datasets/mine"),
)
@c.guarded
def describe(source: Source, workspace: Path | None = None) -> None:
    """Describe a data set: counts, languages, protocols, an example, licence, citation, missing files.

    For a collection that is not imported: its files, how to get them, and the source of every fact.
    """
    from ccr_cli.stages.data.card import card

    c.show_table(("what", "value"), card(Workspace((workspace or Path(".")).absolute()), source))


@app.command("show", cls=c.Command, hidden=True)
@c.guarded
def show(source: Source, workspace: Path | None = None) -> None:
    """The old name of `ccr data describe`."""
    c.note_renamed("ccr data show", "ccr data describe")
    describe(source=source, workspace=workspace)


@app.command(
    "import",
    cls=c.Command,
    epilog=c.examples(
        "ccr data import noto-emoji",
        "ccr data import products.csv",
        "ccr data import hf:OWNER/NAME",
        "ccr data import 'wds:data/train-{000..012}.tar'",
        "ccr data import products.xlsx --columns text=title,media=photo --media-root /data/images",
        "ccr data import multi30k --root DIR",
        "ccr data import flickr8k-cn --root DIR --allow-partial",
        "ccr data import FOLDER --media-root /data/images",
        "ccr data import wiki.mat",
        "ccr data import --format parallel train.en=a.en test.en=b.en test.de=b.de "
        "--split train=a.txt --split test=b.txt",
    ),
)
@c.guarded
def import_(
    sources: Sources = None,
    *,
    options: ImportOptions,
    workspace: Path | None = None,
    dry_run: bool = False,
    json: bool = False,
    quiet: bool = False,
    verbose: int = 0,
) -> None:
    """Import a bundled data set, a collection's official files, a folder, or your own files.

    Checks counts, hashes, ids, languages and splits; errors name file and line, the expected and the actual value.
    Images and videos may be missing, but every row of your own names one; an empty caption counts as none. If the
    source consists of features, also makes the features artifact.
    """
    from ccr_cli.stages.data.stage import import_source
    from ccr_cli.stages.shared.inputs import Inputs

    inputs = Inputs(Workspace((workspace or Path(".")).absolute(), dry_run))
    c.emit(inputs, import_source(inputs.workspace, sources or [], options), json)


@app.command(
    "verify", cls=c.Command, epilog=c.examples("ccr data verify noto-emoji", "ccr data verify multi30k --root DIR")
)
@c.guarded
def verify(
    source: Source,
    root: Path | None = option(None, "Folder that holds a collection's official files.", show_default=False),
    media_root: Path | None = option(None, "Folder that holds the images or videos.", show_default="beside the data"),
) -> None:
    """Check a data set against its manifest without importing it.

    Checks the files of a collection and their content; for a bundled data set or a folder, the media too.
    """
    from ccr_cli.data.manifests import read_folder
    from ccr_cli.stages.data.card import check_files
    from ccr_cli.stages.data.folder import absent_media, locate
    from ccr_cli.stages.data.stage import find_variant, require_root

    variant = find_variant(source)
    if variant is not None:
        rows, problems = check_files(variant, require_root(variant, root))
        c.show_table(("what", "found"), rows)
        for problem in problems:
            console.warn(str(problem))
        if problems:
            raise typer.Exit(4)
        return
    if root is not None:
        raise UsageError(f"--root needs a collection, and {source} is not one", hint="ccr data list")
    folder = read_folder(locate(source))
    missing = absent_media(folder.items, media_root or folder.path / "media")
    values = {
        "folder": folder.path,
        "files with the right hash": len(folder.manifest.get("files", [])),
        "items": len(folder.items),
        "captions": len(folder.captions),
        "empty captions": len(folder.refused),
        "missing media": len(missing),
    }
    c.show_table(("what", "value"), values.items())
    for name in missing[:5]:
        console.warn(f"missing: {name}")
    if folder.refused or missing:
        raise typer.Exit(3)
