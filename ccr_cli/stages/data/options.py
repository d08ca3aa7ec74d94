"""The options of `ccr data import`, declared once: a field is a flag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccr_cli.stages.shared.options import option, parse_set

_OWN: dict[str, Any] = {"rich_help_panel": "Your own files", "show_default": False}


@dataclass(frozen=True)
class ImportOptions:
    """The options of `ccr data import`, in the order of its help."""

    root: Path | None = option(None, "Folder that holds a collection's official files.", show_default=False)
    allow_partial: bool = option(False, "Import an incomplete collection; record what is missing or differs.")
    media_root: Path | None = option(
        None, "Folder that holds the images or videos; they may be missing.", show_default="beside the data"
    )
    form: str | None = option(
        None,
        "Format of your caption files: captions-csv, jsonl, karpathy, coco, hashtag, parallel, vatex, msrvtt, "
        "activitynet or didemo.",
        "--format",
        **_OWN,
    )
    lang: str | None = option(
        None, "Source language, such as en; also the language of files without one of their own.", **_OWN
    )
    splits: tuple[str, ...] = option(
        (),
        "List of the ids of one split (train, val or test), one id per line; repeat for each split.",
        "--split",
        metavar="NAME=FILE",
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
