"""data import of a collection of one's own, out of files in one of the formats."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.workspace import Workspace, slug
from ccr_cli.data.assemble import SPLIT_NAMES
from ccr_cli.data.collections import SPLITS, FileSpec, Variant, options_of, reader
from ccr_cli.data.formats.base import stem
from ccr_cli.data.manifests import LANG
from ccr_cli.data.official import examine
from ccr_cli.errors import ArtifactError, OptionsAsked, UsageError
from ccr_cli.stages.data.collection import Material, build
from ccr_cli.stages.data.folder import warn_of_absent_media

VIDEOS = ("vatex", "msrvtt", "activitynet", "didemo")
"""Formats of collections of videos; elsewhere a file says what an item is, or the ending of its medium."""
_SAYS_LANG = ("vatex", "captions-csv", "jsonl")
_SAYS_SPLIT = ("karpathy", "captions-csv", "jsonl", "msrvtt")


def import_own(
    workspace: Workspace,
    form: str,
    paths: Sequence[str],
    *,
    lang: str | None = None,
    splits: Sequence[str] = (),
    ids: Path | None = None,
    media: str | None = None,
    options: Mapping[str, str] | None = None,
    name: str | None = None,
    media_root: Path | None = None,
    force: bool = False,
) -> base.Artifact:
    """Makes a dataset artifact of files of captions.

    Args:
        workspace: Where to.
        form: Their format.
        paths: The files, each perhaps with what all of it is before it: `train=`, `de=`, `train.de=`.
        lang: The source language, and that of files of which nothing else says it.
        splits: Lists of ids, `train=FILE`.
        ids: The list of ids beside files of sentences.
        media: Where an item's medium lies, with `{id}` in it.
        options: Options of the format.
        name: Name of the artifact; by default the first file's.
        media_root: Where the media lie; by default beside the first file.
        force: Import again.

    Raises:
        UsageError: If something is missing or contradicts itself.
        ArtifactError: If a file is wrong, with file and line.
    """
    given = _options(form, options or {})
    if lang is not None and not LANG.fullmatch(lang):
        raise UsageError(f"--lang: {lang!r} is no language tag (BCP 47, such as en)")
    if not paths:
        raise UsageError(f"which files? ccr data import --format {form} FILE...")
    lists = dict(_list(each) for each in splits)
    if len(lists) < len(splits):
        raise UsageError("--split names a split twice")
    if ids is not None and "ids" not in options_of(form):
        raise UsageError(f"--ids is for files of sentences alone; {form} says itself which item a caption is of")
    specs = [FileSpec(path=str(path), role="splits", split=split) for split, path in lists.items()]
    if ids is not None:
        specs.append(FileSpec(path=str(ids), role="ids"))
    specs += [_file(form, each, lang, lists, ids, given) for each in paths]
    source = lang or next((spec.lang for spec in specs if spec.lang), "en")
    first = next(spec for spec in specs if spec.role == "captions")
    name = slug(name or stem(Path(first.path).name.split(".")[0]))
    kind = "video" if form in VIDEOS else "image"
    about = {"kind": kind, "source_lang": source, "get": "", "media": media or ""}
    variant = Variant(name, name, "own", "", about, tuple(specs))
    found = examine(specs, Path())
    lacking = [each.spec.path for each in found if each.path is None]
    if lacking:
        raise ArtifactError(f"there is no {lacking[0]}")
    asked = {
        "name": name,
        "format": form,
        "options": given,
        "source_lang": source,
        "media": media or "",
        "files": [
            {"sha256": each.sha256, "role": spec.role, "split": spec.split, "lang": spec.lang}
            for spec in specs
            for each in found
            if each.spec.path == spec.path
        ],
    }
    material = Material(variant, Path(), found, asked=asked)
    root = media_root or Path(first.path).parent
    made = build(workspace, material, name, allow_partial=False, media_root=root, force=force)
    warn_of_absent_media(dataset.read(made))
    return made


def _file(
    form: str, text: str, lang: str | None, lists: Mapping[str, Path], ids: Path | None, given: Mapping[str, Any]
) -> FileSpec:
    """What is known of a file of captions.

    Raises:
        UsageError: With what must be said, if nothing says its split, its language or its ids.
    """
    split, of, path = _parse(text)
    of = of or lang or ""
    quoted = shlex.quote(path)
    if not of and form not in _SAYS_LANG:
        raise UsageError(
            f"nothing says which language {path} is in", hint=f"--lang en, or before the file: en={quoted}"
        )
    if not split and not lists and form not in _SAYS_SPLIT:
        raise UsageError(
            f"nothing says which split {path} is of",
            hint=f"before the file: train={quoted}; or lists of ids: --split train=IDS --split test=IDS",
        )
    options = dict(given)
    if "ids" in options_of(form):
        listed = ids or lists.get(split)
        if listed is None:
            raise UsageError(
                f"{path} holds sentences alone, and nothing says which items they are of",
                hint="--ids FILE, an id a line; or one list a split: train=FILE --split train=IDS",
            )
        options["ids"] = str(listed)
    return FileSpec(path=path, format=form, options=options, split=split, lang=of)


def _parse(text: str) -> tuple[str, str, str]:
    """Split, language and path out of `train.de=FILE`; what is a file as it stands is a path."""
    before, equals, path = text.partition("=")
    parts = before.split(".")
    split = SPLIT_NAMES.get(parts[0].lower(), "")
    langs = parts[1:] if split else parts
    if not equals or len(langs) > 1 or not all(map(LANG.fullmatch, langs)) or Path(text).exists():
        return "", "", text
    return split, "".join(langs), path


def _list(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    split = SPLIT_NAMES.get(name.lower())
    if not split or not equals:
        raise UsageError(f"--split {text}: expected NAME=IDS, the name one of {', '.join(SPLITS)}")
    return split, Path(path)


def _options(form: str, given: Mapping[str, str]) -> dict[str, Any]:
    """The options of a format in their types.

    Raises:
        UsageError: If there is none of a name, or a value is none of its type.
        OptionsAsked: For `help`.
    """
    known = {key: each for key, each in options_of(form).items() if "Path" not in str(each.annotation)}
    if "help" in given:
        raise OptionsAsked(_help(form, known))
    options = {}
    for key, text in given.items():
        if key not in known:
            shown = ", ".join(known) or "none"
            raise UsageError(f"the format {form} has no option {key!r}", hint=f"options: {shown}")
        options[key] = _typed(key, text, str(known[key].annotation))
    return options


def _typed(key: str, text: str, annotation: str) -> Any:
    if annotation == "bool":
        if text not in ("true", "false"):
            raise UsageError(f"--set {key} is true or false, not {text!r}")
        return text == "true"
    if "Mapping" in annotation:
        pairs = [part.partition(":") for part in text.split(",")]
        if not all(colon and value for _, colon, value in pairs):
            raise UsageError(f"--set {key}={text}: expected OURS:THEIRS,OURS:THEIRS")
        return {ours: theirs for ours, _, theirs in pairs}
    return text.split(",") if "Sequence" in annotation else text


def _help(form: str, known: Mapping[str, inspect.Parameter]) -> list[tuple[str, str, str]]:
    """Name, default and meaning of each option, the last out of the reader's docstring."""
    text = inspect.getdoc(reader(form)) or ""
    said = dict(re.findall(r"^    (\w+): (.+(?:\n        .+)*)", text, re.MULTILINE))
    return [
        (key, "" if each.default in (None, (), "") else str(each.default), " ".join(said.get(key, "").split()))
        for key, each in known.items()
    ]
