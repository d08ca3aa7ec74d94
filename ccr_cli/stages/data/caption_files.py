"""Import of the user's own caption files, in one of the formats of collections."""

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
from ccr_cli.stages.data.collection import CollectionFiles, import_collection
from ccr_cli.stages.data.folder import warn_of_absent_media

VIDEOS = ("vatex", "msrvtt", "activitynet", "didemo")
"""Formats of video collections. Elsewhere a file names the kind of an item, or the ending of its medium decides."""
_WITH_LANG = ("vatex", "captions-csv", "jsonl")
_WITH_SPLIT = ("karpathy", "captions-csv", "jsonl", "msrvtt")


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
    """Makes a dataset artifact of caption files.

    Args:
        workspace: Where to.
        form: Their format.
        paths: The files; a split, a language or both may stand before a path: `train=`, `de=`, `train.de=`.
        lang: The source language, and the language of files that nothing else assigns one.
        splits: Lists of ids, `train=FILE`.
        ids: The list of ids that belongs to files of sentences.
        media: Path of an item's medium, with `{id}` in it.
        options: Options of the format.
        name: Name of the artifact; by default the first file's.
        media_root: Where the media lie; by default beside the first file.
        force: Import again.

    Raises:
        UsageError: If something is missing or contradictory.
        ArtifactError: If a file is wrong, with file and line.
    """
    typed = _options(form, options or {})
    if lang is not None and not LANG.fullmatch(lang):
        raise UsageError(f"--lang: {lang!r} is not a language tag (BCP 47, such as en)")
    if not paths:
        raise UsageError(f"no files: ccr data import --format {form} FILE...")
    lists = dict(_list(text) for text in splits)
    if len(lists) < len(splits):
        raise UsageError("--split names a split twice")
    if ids is not None and "ids" not in options_of(form):
        raise UsageError(f"--ids belongs to files of sentences; the format {form} has the ids of its captions itself")
    specs = [FileSpec(path=str(path), role="splits", split=split) for split, path in lists.items()]
    if ids is not None:
        specs.append(FileSpec(path=str(ids), role="ids"))
    specs += [_file(form, text, lang, lists, ids, typed) for text in paths]
    source = lang or next((spec.lang for spec in specs if spec.lang), "en")
    first = next(spec for spec in specs if spec.role == "captions")
    name = slug(name or stem(Path(first.path).name.split(".")[0]))
    kind = "video" if form in VIDEOS else "image"
    about = {"kind": kind, "source_lang": source, "get": "", "media": media or ""}
    variant = Variant(name, name, "own", "", about, tuple(specs))
    files = examine(specs, Path())
    lacking = [file.spec.path for file in files if file.path is None]
    if lacking:
        raise ArtifactError(f"there is no {lacking[0]}")
    digests = {file.spec.path: file.sha256 for file in files}
    request = {
        "name": name,
        "format": form,
        "options": typed,
        "source_lang": source,
        "media": media or "",
        "files": [
            {"sha256": digests[spec.path], "role": spec.role, "split": spec.split, "lang": spec.lang} for spec in specs
        ],
    }
    root = media_root or Path(first.path).parent
    own = CollectionFiles(variant, Path(), files, own_request=request)
    artifact = import_collection(workspace, own, name, media_root=root, force=force)
    warn_of_absent_media(dataset.read(artifact))
    return artifact


def _file(
    form: str, text: str, lang: str | None, lists: Mapping[str, Path], ids: Path | None, typed: Mapping[str, Any]
) -> FileSpec:
    """Describes a file of captions.

    Raises:
        UsageError: If its split, its language or its ids are unknown, with how to name them.
    """
    split, of, path = _parse(text)
    of = of or lang or ""
    quoted = shlex.quote(path)
    if not of and form not in _WITH_LANG:
        raise UsageError(f"the language of {path} is unknown", hint=f"--lang en, or before the file: en={quoted}")
    if not split and not lists and form not in _WITH_SPLIT:
        raise UsageError(
            f"the split of {path} is unknown",
            hint=f"before the file: train={quoted}; or lists of ids: --split train=IDS --split test=IDS",
        )
    options = dict(typed)
    if "ids" in options_of(form):
        id_list = ids or lists.get(split)
        if id_list is None:
            raise UsageError(
                f"{path} holds only sentences, and the items they belong to are unknown",
                hint="--ids FILE, one id per line; or one list per split: train=FILE --split train=IDS",
            )
        options["ids"] = str(id_list)
    return FileSpec(path=path, format=form, options=options, split=split, lang=of)


def _parse(text: str) -> tuple[str, str, str]:
    """Splits `train.de=FILE` into split, language and path; the name of an existing file is only a path."""
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


def _options(form: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Reads the options of a format into their types.

    Raises:
        UsageError: If an option is unknown, or a value does not have its type.
        OptionsAsked: For `help`.
    """
    known = {key: option for key, option in options_of(form).items() if "Path" not in str(option.annotation)}
    if "help" in texts:
        raise OptionsAsked(_help(form, known))
    options = {}
    for key, text in texts.items():
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
    """Name, default and meaning of every option; the meaning comes from the reader's docstring."""
    text = inspect.getdoc(reader(form)) or ""
    meanings = dict(re.findall(r"^    (\w+): (.+(?:\n        .+)*)", text, re.MULTILINE))
    return [
        (key, "" if option.default in (None, (), "") else str(option.default), " ".join(meanings.get(key, "").split()))
        for key, option in known.items()
    ]
