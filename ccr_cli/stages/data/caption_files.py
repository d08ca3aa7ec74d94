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
from ccr_cli.data.collections import FileSpec, Variant
from ccr_cli.data.formats import options_of, reader
from ccr_cli.data.formats.base import stem
from ccr_cli.data.manifests import LANG, SPLITS
from ccr_cli.data.official import examine
from ccr_cli.errors import ArtifactError, OptionsAsked, UsageError
from ccr_cli.stages.data.collection import CollectionFiles, import_collection
from ccr_cli.stages.data.folder import warn_of_absent_media
from ccr_cli.stages.data.options import ImportOptions

VIDEOS = ("vatex", "msrvtt", "activitynet", "didemo")
"""Formats of video collections. Elsewhere a file names the kind of an item, or the ending of its medium decides."""
_WITH_LANG = ("vatex", "captions-csv", "jsonl")
_WITH_SPLIT = ("karpathy", "captions-csv", "jsonl", "msrvtt")


def import_own(workspace: Workspace, form: str, paths: Sequence[str], options: ImportOptions) -> base.Artifact:
    """Makes a dataset artifact of caption files; UsageError if something is missing or contradictory.

    A split, a language or both may stand before a path: `train=`, `de=`, `train.de=`.
    """
    typed = _options(form, options.format_options or {})
    if options.lang is not None and not LANG.fullmatch(options.lang):
        raise UsageError(f"--lang: {options.lang!r} is not a language tag (BCP 47, such as en)")
    lists = dict(map(_list, options.splits))
    if len(lists) < len(options.splits):
        raise UsageError("--split names a split twice")
    ids, media = options.ids, options.media or ""
    if ids is not None and "ids" not in options_of(form):
        raise UsageError(f"--ids belongs to files of sentences; the format {form} has the ids of its captions itself")
    captions = [_file(form, text, options, lists, typed) for text in paths]
    specs = [FileSpec(path=path, role="splits", split=split) for split, path in lists.items()]
    specs += [FileSpec(path=str(ids), role="ids")] if ids is not None else []
    specs += captions
    source = options.lang or next((spec.lang for spec in captions if spec.lang), "en")
    first = Path(captions[0].path)
    name = slug(options.name or stem(first.name.split(".")[0]))
    kind = "video" if form in VIDEOS else "image"
    variant = Variant(
        name, name, "own", "", {"kind": kind, "source_lang": source, "get": "", "media": media}, tuple(specs)
    )
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
        "media": media,
        "files": [
            {"sha256": digests[spec.path], "role": spec.role, "split": spec.split, "lang": spec.lang} for spec in specs
        ],
    }
    own = CollectionFiles(variant, first.parent, files, own_request=request)
    artifact = import_collection(workspace, own, options)
    warn_of_absent_media(dataset.read(artifact))
    return artifact


def _file(form: str, text: str, options: ImportOptions, lists: Mapping[str, str], typed: Mapping[str, Any]) -> FileSpec:
    """Describes a file of captions; UsageError if its split, its language or its ids are unknown."""
    split, lang, path = _parse(text)
    lang = lang or options.lang or ""
    quoted = shlex.quote(path)
    if not lang and form not in _WITH_LANG:
        raise UsageError(f"the language of {path} is unknown", hint=f"--lang en, or before the file: en={quoted}")
    if not split and not lists and form not in _WITH_SPLIT:
        raise UsageError(
            f"the split of {path} is unknown",
            hint=f"before the file: train={quoted}; or lists of ids: --split train=IDS --split test=IDS",
        )
    own = dict(typed)
    if "ids" in options_of(form):
        id_list = options.ids or lists.get(split)
        if id_list is None:
            raise UsageError(
                f"{path} holds only sentences, and the items they belong to are unknown",
                hint="--ids FILE, one id per line; or one list per split: train=FILE --split train=IDS",
            )
        own["ids"] = str(id_list)
    return FileSpec(path=path, format=form, options=own, split=split, lang=lang)


def _parse(text: str) -> tuple[str, str, str]:
    """Splits `train.de=FILE` into split, language and path; the name of an existing file is only a path."""
    before, equals, path = text.partition("=")
    parts = before.split(".")
    split = SPLIT_NAMES.get(parts[0].lower(), "")
    langs = parts[1:] if split else parts
    if not equals or len(langs) > 1 or not all(map(LANG.fullmatch, langs)) or Path(text).exists():
        return "", "", text
    return split, "".join(langs), path


def _list(text: str) -> tuple[str, str]:
    """Splits `train=IDS` into split and path."""
    name, equals, path = text.partition("=")
    split = SPLIT_NAMES.get(name.lower())
    if not split or not equals:
        raise UsageError(f"--split {text}: expected NAME=IDS, the name one of {', '.join(SPLITS)}")
    return split, str(Path(path))


def _options(form: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Reads the options of a format into their types; OptionsAsked for `help`."""
    known = {key: annotation for key, annotation in options_of(form).items() if "Path" not in annotation}
    if "help" in texts:
        parameters, doc = inspect.signature(reader(form)).parameters, inspect.getdoc(reader(form)) or ""
        meanings = dict(re.findall(r"^    (\w+): (.+(?:\n        .+)*)", doc, re.MULTILINE))
        defaults = {key: parameters[key].default for key in known}
        raise OptionsAsked(
            [
                (key, "" if default in (None, (), "") else str(default), " ".join(meanings.get(key, "").split()))
                for key, default in defaults.items()
            ]
        )
    for key in texts:
        if key not in known:
            raise UsageError(f"the format {form} has no option {key!r}", hint=f"options: {', '.join(known) or 'none'}")
    return {key: _typed(key, text, known[key]) for key, text in texts.items()}


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
