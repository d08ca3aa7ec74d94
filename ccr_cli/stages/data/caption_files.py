"""Import of the user's own caption files, in one of the formats of collections."""

import codecs
import inspect
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.build import OtherRequestError
from ccr_cli.artifacts.workspace import Workspace, slug
from ccr_cli.console import counted, say, warn
from ccr_cli.data.assemble import SPLIT_NAMES, SPLITS_OTHERWISE, Assembly
from ccr_cli.data.collections import FileSpec, Variant
from ccr_cli.data.formats import options_of, reader
from ccr_cli.data.formats.base import stem
from ccr_cli.data.formats.captions_csv import COLUMNS, made_in
from ccr_cli.data.formats.columns import LANG, MACHINE
from ccr_cli.data.formats.folder import captioned
from ccr_cli.data.formats.layout import TABLES, Layout, form_of, look
from ccr_cli.data.languages import usual
from ccr_cli.data.manifests import SPLITS
from ccr_cli.data.official import CheckedFile, examine
from ccr_cli.data.own import OwnAssembly, OwnRules, common_folder, own_table
from ccr_cli.errors import ArtifactError, OptionsAsked, UsageError, no_file
from ccr_cli.stages.data.collection import CollectionFiles, import_collection
from ccr_cli.stages.data.folder import absent_media, warn_of_absent_media
from ccr_cli.stages.data.options import ImportOptions

VIDEOS = ("vatex", "msrvtt", "activitynet", "didemo")
"""Formats of video collections. In other formats, a file states the kind of an item, or the media extension decides."""
_NO_CHARSETS = ("idna", "punycode", "unicode-escape", "raw-unicode-escape")
"""Python's encodings of texts that write domain names or source code."""


@dataclass(kw_only=True)
class OwnFiles(CollectionFiles):
    """The user's own files."""

    own_request: dict[str, Any]
    rules: OwnRules

    def request(self, name: str) -> dict[str, Any]:
        """The request of the dataset artifact: the options, and the files by content."""
        return self.own_request

    def assembly(self, lenient: bool) -> Assembly:
        """Returns the assembly that reads the files."""
        return OwnAssembly(self.variant, self.place, self.rules)

    def media_root(self, items: pd.DataFrame) -> Path:
        """The folder that holds the media of items."""
        return self.rules.root(items)


def import_own(workspace: Workspace, paths: Sequence[str], options: ImportOptions) -> base.Artifact:
    """Imports caption files as a dataset artifact; UsageError if something is missing or contradictory.

    A path may have a prefix with its split, its language or both: `train=`, `de=`, `train.de=`. Without `options.form`,
    the format is inferred from the name or content of a file, and the captions are tidied (`OwnRules`).
    """
    forms = dict.fromkeys([options.form] if options.form else [form_of(Path(parse_source(text)[2])) for text in paths])
    if len(forms) > 1:
        raise UsageError(f"the files have different formats: {', '.join(forms)}", hint="import files of one format")
    (form,) = forms
    typed = _options(form, options.format_options or {})
    if options.lang is not None and not LANG.fullmatch(options.lang):
        raise UsageError(f"--lang: {options.lang!r} is not a language tag (BCP 47, such as en)")
    options = replace(options, lang=options.lang and usual(options.lang))
    lists, seed = _splits(options.splits)
    ids, media = options.ids, options.media or ""
    if ids is not None and "ids" not in options_of(form):
        raise UsageError(f"--ids belongs to files of sentences; the format {form} has the ids of its captions itself")
    sources = [_source(form, text, options, lists, typed) for text in paths]
    seed = _seed(form, sources, seed, lists)
    captions = [spec if seed is None else replace(spec, split="train") for spec, _ in sources]  # until divided
    specs = [FileSpec(path=path, role="splits", split=split) for split, path in lists.items()]
    specs += [FileSpec(path=str(ids), role="ids")] if ids is not None else []
    files = examine([spec for spec in [*specs, *captions] if spec.format != "folder"], Path())
    files += [
        CheckedFile(spec, Path(spec.path), _digest(Path(spec.path))) for spec in captions if spec.format == "folder"
    ]
    lacking = [file.spec for file in files if file.path is None]
    if lacking:
        raise no_file(Path(lacking[0].path), {"splits": "--split", "ids": "--ids"}.get(lacking[0].role, ""))
    first, tidy = Path(captions[0].path), options.form is None
    name = slug(options.name or (first.resolve().name if first.is_dir() else stem(first.name.split(".")[0])))
    source_lang = options.lang or next((spec.lang for spec in captions if spec.lang), "en")
    about = {"kind": "video" if form in VIDEOS else "image", "source_lang": source_lang, "get": "", "media": media}
    digests = {file.spec.path: file.sha256 for file in files}
    request = {
        "name": name,
        "format": form,
        "options": typed,
        "source_lang": source_lang,
        "media": media,
        "files": [{"sha256": digests[spec.path], "role": spec.role, "split": spec.split, "lang": ""} for spec in specs]
        + [_request(spec, digests[spec.path], typed) for spec, _ in sources],
        **({} if seed is None else {"split": f"auto:{seed}"}),
        **({"tidy": True} if tidy else {}),
    }
    beside = first if first.is_dir() else first.parent
    absolute = common_folder([name for _, layout in sources for name in layout.facts.media], beside) if tidy else ""
    rules = OwnRules(beside, tidy, seed, options.media_root, absolute)
    targets = dict.fromkeys(lang for _, layout in sources for lang in layout.facts.translations)
    tables = [own_table(source_lang, target, captions[0].path) for target in targets]
    variant = Variant(name, name, "own", "", about, (*specs, *captions, *tables))
    own = OwnFiles(variant, beside, files, own_request=request, rules=rules)
    try:
        artifact = import_collection(workspace, own, options)
    except OtherRequestError as error:
        raise _in_words(error, workspace.place("dataset", name), files) from None
    if options.force:
        _warn_of_stale(workspace, artifact)
    _summarise(dataset.read(artifact))
    return artifact


_FLAGS = {"source_lang": "--lang", "media": "--media", "split": "--split", "options": "--set", "tidy": "--format"}
"""The command-line option behind an entry of a request; by default `--` and the entry's name."""
_MOST_STALE = 10
"""Maximum number of artifacts to list."""


def _in_words(error: OtherRequestError, place: Path, files: Sequence[CheckedFile]) -> ArtifactError:
    """Returns an error that says which files or options differ from the earlier import at a place."""
    try:
        entries = tomllib.loads((place / "manifest.toml").read_text(encoding="utf-8")).get("files", [])
    except OSError:  # the earlier import is unfinished
        return error
    before = {entry["path"]: entry["sha256"] for entry in entries}
    now = {file.path.name: file.sha256 for file in files if file.path is not None}
    changes = [f"{name} has changed" for name in now if name in before and now[name] != before[name]]
    changes += [f"{name} is new" for name in now if name not in before and now[name] not in before.values()]
    changes += [f"{name} is missing" for name in before if name not in now and before[name] not in now.values()]
    if not changes and "files" in error.differences:
        changes = [f"other columns, splits or languages of {', '.join(now)}"]
    changes += [f"another {_FLAGS.get(key, f'--{key}')}" for key in error.differences if key != "files"]
    return ArtifactError(f"{place} was imported from something else: {', '.join(changes)}", error.hint)


def _warn_of_stale(workspace: Workspace, data: base.Artifact) -> None:
    """Warns of the artifacts that were made, directly or indirectly, from another state of a data set."""
    made = []
    for kind, path in workspace.places():
        with suppress(ArtifactError):
            made.append(base.load(path, kind))
    stale = [f"{workspace.relative(a.path)}; {a.rebuild_hint()}" for a in workspace.to_rebuild(made, [data])]
    if stale:
        more = [f"and {len(stale) - _MOST_STALE:,} more; ccr show lists them"] if len(stale) > _MOST_STALE else []
        lines = "\n  ".join([*stale[:_MOST_STALE], *more])
        where = "" if workspace.root.resolve() == Path.cwd() else f" --workspace {shlex.quote(str(workspace.root))}"
        warn(f"made from the earlier {data.name}; ccr rebuild{where} makes all again, in this order:\n  {lines}")


def _request(spec: FileSpec, sha256: str, typed: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a caption file's entry in the request, with the options that `typed` does not set for all files."""
    entry = {"sha256": sha256, "role": "captions", "split": spec.split, "lang": spec.lang}
    types = options_of(spec.format)
    further = {key: value for key, value in spec.options.items() if key not in typed and "Path" not in types[key]}
    return {**entry, "options": further} if further else entry


def _source(
    form: str, text: str, options: ImportOptions, lists: Mapping[str, str], typed: Mapping[str, Any]
) -> tuple[FileSpec, Layout]:
    """Inspects a caption file and reports what was guessed; UsageError if its ids are unknown.

    The returned language is empty if only the file itself names languages.
    """
    split, lang, path = parse_source(text)
    if not Path(path).exists():
        raise no_file(Path(path))
    own = dict(typed)
    if "ids" in options_of(form):
        id_list = options.ids or lists.get(split)
        if id_list is None:
            raise UsageError(
                f"{path} holds only sentences, and the items they belong to are unknown",
                hint="--ids FILE, one id per line; or one list per split: train=FILE --split train=IDS",
            )
        own["ids"] = str(id_list)
    layout = look(Path(path), options.form or "", own, options.columns or ())
    for note in layout.notes:
        say(note)
    lang = lang or options.lang or ""
    if not lang and not layout.facts.langs:
        lang = "en"
        otherwise = f"--lang LANG, or before the file: LANG={shlex.quote(path)}"
        say(f"captions of {path} without a language are in {lang}; otherwise: {otherwise}")
    return FileSpec(path=path, format=layout.form, options=layout.options, split=split, lang=lang), layout


def _seed(
    form: str, sources: Sequence[tuple[FileSpec, Layout]], seed: int | None, lists: Mapping[str, str]
) -> int | None:
    """Returns the seed for dividing the items into splits; None if the splits are named."""
    if seed is not None or lists:
        return seed
    unknown = [spec.path for spec, layout in sources if not spec.split and not layout.facts.splits]
    if len(unknown) == len(sources):
        say(f"no split is named, so --split auto divides the items; otherwise: {SPLITS_OTHERWISE}")
        return 0
    if unknown and form not in TABLES:
        raise UsageError(
            f"the split of {unknown[0]} is unknown", hint=f"before the file: train={shlex.quote(unknown[0])}"
        )
    return None


def _digest(folder: Path) -> str:
    """Returns the digest of a folder of pictures: caption files count by content, media by name only."""
    found = captioned(folder)
    lines = [f"{path.as_posix()}\n" for path in found.captions]
    for path, _ in sorted({file for files in found.captions.values() for file in files}):
        lines.append(f"{path.as_posix()} {base.sha256_file(folder / path)}\n")
    return base.sha256_text("".join(lines))


def _summarise(data: dataset.Dataset) -> None:
    splits = ", ".join(f"{number:,} {split}" for split in SPLITS if (number := (data.items["split"] == split).sum()))
    langs = ", ".join(f"{number:,} {lang}" for lang, number in data.captions["lang"].value_counts().items())
    items, captions = counted(len(data.items), "item"), counted(len(data.captions), "caption")
    say(f"{data.name}: {items} ({splits}), {captions} ({langs})")
    named, root = data.items["media"].nunique(), dataset.media_root(data.artifact)
    if named and root is not None:
        missing = absent_media(data.items, root)
        what = counted(named, "picture or video", "pictures or videos")
        without = int(data.items["media"].isna().sum())
        others = f"; {counted(without, 'item')} without one" if without else ""
        say(f"{data.name}: {named - len(missing):,} of {what} found in {root}{others}")
        warn_of_absent_media(missing, named)


def parse_source(text: str) -> tuple[str, str, str]:
    """Splits `train.de=FILE` into split, language and path; if `text` names an existing file, it is the path."""
    before, equals, path = text.partition("=")
    parts = before.split(".")
    split = SPLIT_NAMES.get(parts[0].lower(), "")
    langs = parts[1:] if split else parts
    if not equals or len(langs) > 1 or not all(map(LANG.fullmatch, langs)) or Path(text).exists():
        return "", "", text
    return split, "".join(map(usual, langs)), path


def _splits(texts: Sequence[str]) -> tuple[dict[str, str], int | None]:
    """Parses --split: the id list of each split (`train=IDS`), or the seed of `auto` or `auto:SEED`."""
    lists: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        split, auto = SPLIT_NAMES.get(name.lower()), re.fullmatch(r"auto(?::(\d{1,9}))?", text)
        if auto and len(texts) > 1:
            raise UsageError("--split auto and lists of splits exclude each other")
        if auto:
            return {}, int(auto[1] or 0)
        if not split or not equals:
            expected = f"auto, auto:SEED or NAME=IDS, the name one of {', '.join(SPLITS)}"
            raise UsageError(f"--split {text}: expected {expected}")
        if split in lists:
            raise UsageError("--split names a split twice")
        lists[split] = str(Path(path))
    return lists, None


def _options(form: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Parses the options of a format into their types; raises OptionsAsked for `help`."""
    known = {key: annotation for key, annotation in options_of(form).items() if "Path" not in annotation}
    if "help" in texts:
        parameters, doc = inspect.signature(reader(form)).parameters, inspect.getdoc(reader(form)) or ""
        meanings = dict(re.findall(r"^    (\w+): (.+(?:\n        .+)*)", doc, re.MULTILINE))
        replaced = ("columns", "header", "item", "texts", *COLUMNS) if form in TABLES else ()  # by --columns
        defaults = {key: parameters[key].default for key in known if key not in replaced}
        rows = [
            (key, "" if default in (None, (), "") else str(default), " ".join(meanings.get(key, "").split()))
            for key, default in defaults.items()
        ]
        columns = ("--columns", "", "Your names of the columns: text=YOURS,media=YOURS.")
        raise OptionsAsked([*rows, columns] if form in TABLES else rows)
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
        typed = {ours: theirs for ours, _, theirs in pairs}
        made = {name: made_in(tag) for name, tag in typed.items() if key == "texts"}
        return typed | {name: f"{MACHINE}.{usual(lang)}" for name, lang in made.items() if lang}
    if annotation == "int":
        if not re.fullmatch("[1-9][0-9]{0,8}", text):
            raise UsageError(f"--set {key} is a whole number from 1, not {text!r}")
        return int(text)
    if key == "encoding":
        try:
            "a".encode(text)
            if codecs.lookup(text).name in _NO_CHARSETS:
                raise LookupError
        except (LookupError, UnicodeError):
            hint = "an encoding that Python knows, such as --set encoding=cp1252"
            raise UsageError(f"--set encoding={text}: there is no text encoding of that name", hint) from None
    return text.split(",") if "Sequence" in annotation else text
