"""The options of `ccr data import`, declared once: a field is a flag."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccr_cli.data.formats.columns import known, role
from ccr_cli.errors import UsageError
from ccr_cli.stages.shared.options import option, parse_set

_OWN: dict[str, Any] = {"rich_help_panel": "Your own files", "show_default": False}


def parse_columns(values: Sequence[str]) -> Mapping[str, str] | Sequence[str]:
    """Parses --columns: `text=YOURS,media=YOURS`, or names in order if the file has no header; UsageError if mixed."""
    parts = [part.strip() for value in values for part in value.split(",")]
    if not any("=" in part for part in parts):
        return parts
    pairs = [part.partition("=") for part in parts]
    for ours, equals, _ in pairs:
        if not equals:
            raise UsageError(f"--columns {ours}: expected OURS=YOURS", hint="--columns text=YOURS,media=YOURS")
    swapped = [(theirs, ours) if known(theirs) and not known(ours) else (ours, theirs) for ours, _, theirs in pairs]
    if swapped != [(ours, theirs) for ours, _, theirs in pairs]:
        right = ",".join(f"{ours}={shlex.quote(theirs)}" for ours, theirs in swapped)
        raise UsageError(f"--columns {','.join(parts)}: the name in your file comes after the =", f"--columns {right}")
    found: dict[str, str] = {}
    for ours, theirs in ((role(ours.strip()), theirs.strip()) for ours, _, theirs in pairs):
        if ours in found and not (ours.startswith("text") and theirs and found[ours]):
            problem = f"--columns names the column {ours} twice: {found[ours]!r} and {theirs!r}"
            raise UsageError(problem, hint="one column for each; only text may have several")
        found[ours] = f"{found[ours]},{theirs}" if ours in found else theirs
    return found


@dataclass(frozen=True)
class ImportOptions:
    """The options of `ccr data import`, in the order of its help."""

    root: Path | None = option(None, "Folder that holds a collection's official files.", show_default=False)
    allow_partial: bool = option(False, "Import an incomplete collection; record what is missing or differs.")
    media_root: Path | None = option(
        None,
        "Folder that holds the images or videos; they may be missing.",
        show_default="beside the data, or in a folder there",
    )
    form: str | None = option(
        None,
        "Format of your files, read to the letter: captions-csv, jsonl, excel, parquet, folder, karpathy, coco, "
        "hashtag, parallel, vatex, msrvtt, activitynet or didemo; default: by name and content, and tidied.",
        "--format",
        **_OWN,
    )
    columns: Mapping[str, str] | Sequence[str] | None = option(
        None,
        "Your names of the columns, such as text=title,media=photo,item_id=sku (media= for none). Several texts: "
        "text=title,text=description, or text.en=title,text.de=titel. Machine translations: mt.zh=chinese. Without a "
        "header, all names in order: media,text. Default: guessed.",
        metavar="OURS=YOURS,...",
        command_line=(list[str] | None, parse_columns),
        **_OWN,
    )
    lang: str | None = option(
        None, "Source language, such as en; also the language of files without one of their own. Default: en.", **_OWN
    )
    splits: tuple[str, ...] = option(
        (),
        "List of the ids of one split (train, val or test), one id per line; repeat for each split. Or auto, the "
        "default where no split is named: 80 % train, 10 % val, 10 % test, look-alikes together; auto:SEED.",
        "--split",
        metavar="NAME=FILE|auto",
        command_line=(list[str] | None, tuple),
        **_OWN,
    )
    ids: Path | None = option(
        None,
        "For --format parallel: list of the ids of the sentences, one per line; default: the --split list.",
        **_OWN,
    )
    media: str | None = option(
        None,
        "Path of an item's image or video in the media folder, such as {id}.jpg; default: as the file says.",
        metavar="TEMPLATE",
        **_OWN,
    )
    format_options: Mapping[str, str] | None = option(
        None,
        "Set an option of the format; repeat for several. `--set help` lists them.",
        "--set",
        metavar="KEY=VALUE",
        command_line=(list[str] | None, parse_set),
        **_OWN,
    )
    name: str | None = None
    force: bool = False


DEFAULTS = ImportOptions()
