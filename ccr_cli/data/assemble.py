"""Assembles a data set from caption files: items with split and group, captions with language and number."""

from __future__ import annotations

import copy
import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ccr_cli.data.collections import DEFAULT_SET, FileSpec, Variant, path_options, reader
from ccr_cli.data.formats.base import Record, is_video, stem
from ccr_cli.data.formats.id_list import read_ids
from ccr_cli.data.manifests import LANG
from ccr_cli.errors import ArtifactError

SPLIT_NAMES = {
    "train": "train", "restval": "train", "training": "train", "val": "val", "dev": "val", "valid": "val",
    "validate": "val", "validation": "val", "test": "test",
}  # fmt: skip
"""Names of splits in files; Karpathy's `restval` belongs to training."""
_POS = re.compile(r":[A-Za-z]+$")
EMPTY, OTHERS = "are empty", "are left out, as captions of the same text have another one"
"""Reasons for leaving out translations."""
_TAKEN = ("listed", "items", "rows", "refused", "left_out", "odd", "langs", "numbers")
"""Attributes of an assembly that are restored if a file turns out to be wrong."""
_Row = tuple[str, str, int | None, str, str, str]
Locate = Callable[[str], Path | None]


@dataclass(frozen=True)
class ItemName:
    """The item, group and medium that an official id stands for."""

    item: str
    group: str
    media: str | None


@dataclass
class Assembled:
    """A data set in tables, with the problems noticed on the way."""

    items: pd.DataFrame
    captions: pd.DataFrame
    refused: list[dict[str, Any]] = field(default_factory=list)
    """Failure records of captions that were left out because their text is empty."""
    unread: dict[str, str] = field(default_factory=dict)
    """The reason for every file that could not be read."""
    notes: list[str] = field(default_factory=list)
    """Messages for the user: what was left out, and how much."""


def resolved(spec: FileSpec, locate: Locate) -> dict[str, Any]:
    """Returns the options of a file for its reader, with the names of further files replaced by their paths.

    Raises:
        ArtifactError: If one of these files is missing.
    """
    options = dict(spec.options)
    for key in set(path_options(spec)) & set(options):
        place = locate(options[key])
        if place is None:
            raise ArtifactError(f"{options[key]} is missing; {spec.path} cannot be read without it")
        options[key] = place
    return options


class Assembly:
    """Reads the files of a variant one after the other.

    Args:
        variant: The variant to assemble.
        locate: Returns the path of a file of the collection; None if it is missing.
        lenient: Leave out files that cannot be read, instead of stopping at them.
    """

    def __init__(self, variant: Variant, locate: Locate, *, lenient: bool = False) -> None:
        self.variant, self.locate, self.lenient = variant, locate, lenient
        self.names: dict[str, ItemName] = {}
        self.lists = [spec for spec in variant.files if spec.role == "splits"]
        self.lists_lacking = False
        """Whether a list is missing or wrong; an item that no other list names may then belong to it."""
        self.listed: dict[str, str] = {}
        self.own = variant.toml == Path()
        """Whether the files are the user's own, without a manifest."""
        self.stems: dict[str, list[str]] = {}
        """The ids of the lists, by their stem without the ending of a media file."""
        self.spelt: dict[str, str] = {}
        """The captions' spelling of an id of the lists, where it differs."""
        self.items: dict[str, _Row] = {}
        """By item: split, media, label, group, where the split was named, kind."""
        self.rows: list[tuple[str, str, str, int, str, str, str]] = []
        self.refused: list[dict[str, Any]] = []
        self.unread: dict[str, str] = {}
        self.left_out: Counter[str] = Counter()
        self.unlisted = ""
        """The first id of the captions that no list names."""
        self.odd: set[str] = set()
        self.langs: set[str] = set()
        self.numbers: Counter[tuple[str, str, str]] = Counter()

    def run(self) -> Assembled:
        """Reads everything: the lists of splits, then the captions.

        Raises:
            ArtifactError: With file and line, if something is wrong.
        """
        for spec in self.lists:
            self.lists_lacking |= not self._attempt(spec, self._list)
        for spec in self.variant.files:
            if spec.role == "captions":
                self._attempt(spec, self._captions)
        items = self._items()
        captions = self._frame()
        notes = [f"{number:,} captions {why}" for why, number in self.left_out.items()]
        if self.own and self.unlisted:
            notes.append(
                f"the first id that no list names is {self.unlisted!r}; "
                f"the first id of the lists is {next(iter(self.listed))!r}"
            )
        source = str(self.variant.about["source_lang"])
        bare = items.loc[~items["item_id"].isin(captions.loc[captions["lang"] == source, "item_id"]), "item_id"]
        if len(bare):
            notes.append(f"{len(bare):,} items have no caption in {source}, the source language, e.g. {bare.iloc[0]!r}")
        odd = sorted(self.odd & set(self.items))
        if odd:
            notes.append(f"{len(odd):,} ids have another form than the others of the collection, e.g. {odd[0]!r}")
        return Assembled(items, captions, self.refused, self.unread, notes)

    def name(self, official: str) -> ItemName:
        """Returns the item of an official id, and its group in its id space."""
        known = self.names.get(official)
        if known is None:
            for pattern, space in self.variant.ids:
                if match := pattern.fullmatch(official):
                    parts = match.groupdict()
                    item = parts.get("item") or official
                    known = ItemName(item, f"{space}:{parts['id']}" if space else item, parts.get("media"))
                    break
            else:
                known = ItemName(official, official, None)
                self.odd |= {official} if self.variant.ids else set()
            self.names[official] = known
        return known

    def _attempt(self, spec: FileSpec, take: Callable[[FileSpec, Path], None]) -> bool:
        place = self.locate(spec.path)
        if place is None:
            return False
        before = {key: copy.copy(getattr(self, key)) for key in _TAKEN} if self.lenient else {}
        try:
            take(spec, place)
        except ArtifactError as error:
            if not self.lenient:
                raise
            vars(self).update(before)  # nothing of a file that is wrong anywhere is kept
            self.unread[spec.path] = error.message
        return spec.path not in self.unread

    def _list(self, spec: FileSpec, place: Path) -> None:
        for line, official in enumerate(read_ids(place), 1):
            named = self.name(official)
            if named.item in self.listed:
                other = self.listed[named.item]
                again = "twice" if other == spec.split else f"in {other} and in {spec.split}"
                raise ArtifactError(f"{place}, line {line}: the lists name {official!r} {again}")
            self.listed[named.item] = spec.split
            self.stems.setdefault(stem(official), []).append(official)
            self._add(named, spec.split, Record(official, "", f"{place.name}, line {line}"))

    def _captions(self, spec: FileSpec, place: Path) -> None:
        first, matched = "", False
        for record in reader(spec.format)(place, **resolved(spec, self.locate)):
            named = self.name(self._as_listed(record.item))
            split = self._split(spec, record, named)
            first, matched = first or record.item, matched or bool(split)
            if not split:
                continue
            self._add(named, split, record)
            if spec.keep and split not in spec.keep:
                continue
            self._caption(spec, record, named.item)
        if self.own and self.listed and first and not matched:
            raise ArtifactError(
                f"{place}: no list of a split names an item of it: its first id is {first!r}, the lists' is "
                f"{next(iter(self.listed))!r}",
                hint="the ids of a list are those of the captions; the ending of a media file may be missing",
            )

    def _as_listed(self, official: str) -> str:
        """Returns an id as the lists write it, if only one side has the ending of a media file and one item fits.

        Raises:
            ArtifactError: If two ids of the captions would be one of the lists.
        """
        found = self.stems.get(stem(official), [])
        if not self.own or official in self.listed or len(found) != 1 or stem(official) not in (official, found[0]):
            return official
        if (other := self.spelt.setdefault(found[0], official)) != official:
            raise ArtifactError(f"{other!r} and {official!r} of the captions would both be {found[0]!r} of the lists")
        return found[0]

    def _split(self, spec: FileSpec, record: Record, named: ItemName) -> str:
        """The split of a caption's item: from the lists, or else from earlier captions, or else from the file."""
        named_split = spec.split or SPLIT_NAMES.get(record.split.lower(), "")
        if record.split and not spec.split and not named_split:
            known = ", ".join(dict.fromkeys(SPLIT_NAMES))
            raise ArtifactError(f"{record.where}: the split is {record.split!r}; known: {known}")
        known_as = self.items.get(named.item)
        if self.lists:
            kept = named_split if named_split in self.variant.unlisted and not self.lists_lacking else ""
            split = self.listed.get(named.item) or (known_as[0] if known_as else kept)
            if not split:
                self.left_out["belong to items that no list of a split names"] += 1
                self.unlisted = self.unlisted or record.item
            return split
        if known_as is None:
            if not named_split:
                self.left_out["belong to items whose split is unknown"] += 1
            return named_split
        if named_split and named_split != known_as[0]:
            raise ArtifactError(
                f"{record.where}: {record.item!r} is in {named_split}, and in {known_as[0]} ({known_as[4]})"
            )
        return known_as[0]

    def _add(self, named: ItemName, split: str, record: Record) -> None:
        row = self.items.get(named.item)
        if row is None:
            group = record.group or named.group
            media = named.media or record.media
            self.items[named.item] = (split, media, record.label, group, record.where, record.kind)
            return
        known_split, media, label, group, where, kind = row
        if record.label is not None and label is not None and label != record.label:
            raise ArtifactError(f"{record.where}: the label of {record.item!r} is {record.label}, and before {label}")
        if record.kind and kind and kind != record.kind:
            raise ArtifactError(f"{record.where}: {record.item!r} is of the kind {record.kind}, and before {kind}")
        label = record.label if label is None else label
        group, kind = record.group or group, kind or record.kind
        self.items[named.item] = (known_split, media or record.media, label, group, where, kind)

    def _caption(self, spec: FileSpec, record: Record, item: str) -> None:
        lang = record.lang or spec.lang
        if lang not in self.langs:
            if not LANG.fullmatch(lang):
                what = f"{lang!r} is not a language tag (BCP 47, such as en)" if lang else "the language is unknown"
                raise ArtifactError(f"{record.where}: {what}", hint="--lang LANG, or before the file: LANG=FILE")
            self.langs.add(lang)
        text = _text(spec, record)
        chosen = record.caption_set or spec.caption_set or DEFAULT_SET
        k = record.k if record.k is not None else spec.k
        if k is None:
            key = (item, lang, chosen)
            k = self.numbers[key]
            self.numbers[key] += 1
        if text:
            self.rows.append((record.caption_id, item, lang, k, text, chosen, record.where))
        else:
            self.refused.append(
                {
                    "id": record.caption_id or f"{item}#{lang}#{k}",
                    "stage": "import",
                    "error": "EmptyCaption",
                    "message": f"empty caption ({record.where})",
                    "attempt": 1,
                }
            )

    def _items(self) -> pd.DataFrame:
        if not self.items:
            raise self._nothing("items")
        halves = self._halves()
        template = str(self.variant.about.get("media", ""))
        media = [row[1] or template.replace("{id}", item) or None for item, row in self.items.items()]
        known = [row[5] for row in self.items.values()]
        return pd.DataFrame(
            {
                "item_id": list(self.items),
                "split": [halves.get(item, row[0]) for item, row in self.items.items()],
                "kind": [kind or self._kind(medium) for kind, medium in zip(known, media, strict=True)],
                "media": media,
                "label": pd.array([row[2] for row in self.items.values()], dtype="Int32"),
                "group": [row[3] for row in self.items.values()],
            }
        )

    def _kind(self, medium: str | None) -> str:
        """The kind of an item that no file names: the data set's, or video if its medium has the ending of one."""
        return "video" if medium and is_video(medium) else self.variant.kind

    def _nothing(self, what: str) -> ArtifactError:
        why = "; ".join(f"{number:,} captions {why}" for why, number in self.left_out.items())
        hint = "before a file: train=FILE; or lists of ids: --split train=IDS --split test=IDS" if why else None
        return ArtifactError(f"{self.variant.name} has no {what}" + (f": {why}" if why else ""), hint=hint)

    def _halves(self) -> dict[str, str]:
        """The split of each drawn item: a hash of seed and item decides, so it is the same everywhere."""
        if not self.variant.halve:
            return {}
        split, seed = self.variant.halve["split"], self.variant.halve["seed"]
        drawn = [item for item, row in self.items.items() if row[0] == split]
        drawn.sort(key=lambda item: hashlib.sha256(f"{seed} {item}".encode()).digest())
        half = (len(drawn) + 1) // 2
        return {**dict.fromkeys(drawn[:half], "val"), **dict.fromkeys(drawn[half:], "test")}

    def _frame(self) -> pd.DataFrame:
        columns = ["caption_id", "item_id", "lang", "k", "text", "caption_set", "where"]
        frame = pd.DataFrame(self.rows, columns=columns)
        if frame.empty:
            raise self._nothing("captions")
        again = frame.duplicated(["item_id", "lang", "caption_set", "k"], keep=False)
        if again.any():
            first = frame[again].iloc[0]
            same = frame[again & (frame["item_id"] == first["item_id"]) & (frame["lang"] == first["lang"])]
            where = " and ".join(same["where"].head(2))
            raise ArtifactError(
                f"{first['item_id']!r} has two captions of number {first['k']} in {first['lang']}: {where}"
            )
        frame["caption_id"] = _caption_ids(frame)
        return frame.drop(columns="where")


def _caption_ids(frame: pd.DataFrame) -> list[str]:
    """The official ids where there are some that tell the captions apart, else item, language, set and number."""
    sets = frame.groupby("lang")["caption_set"].transform("nunique")
    named = frame["item_id"] + "#" + frame["lang"] + "#"
    named = named + (frame["caption_set"] + "#").where(sets > 1, "") + frame["k"].astype(str)
    ids = frame["caption_id"].where(frame["caption_id"] != "", named)
    ids = ids.where(~ids.duplicated(keep=False), frame["lang"] + ":" + ids)
    return list(ids.where(~ids.duplicated(keep=False), named))


def _joined(text: str) -> str:
    """A Chinese sentence out of its words: parts of speech and blanks go, a wider gap is a comma."""
    clauses = ["".join(_POS.sub("", word) for word in part.split()) for part in re.split(r"\s{2,}", text.strip())]
    return "\uff0c".join(clause for clause in clauses if clause)


def _text(spec: FileSpec, record: Record) -> str:
    return unicodedata.normalize("NFC", _joined(record.text) if spec.segmented else record.text).strip()


def translations(spec: FileSpec, assembly: Assembly, captions: pd.DataFrame) -> tuple[dict[str, str], Counter[str]]:
    """Recorded translations, joined with the captions that they are of by item and number.

    Args:
        spec: The file, with its languages.
        assembly: What knows the items and where files lie.
        captions: Of the data set.

    Returns:
        Translations by source text, the first one where a text has several, and how many are left out, by why.

    Raises:
        ArtifactError: If the file cannot be read, or has none of a caption of the data set, or nothing says which
            captions of an item it is of.
    """
    place = assembly.locate(spec.path)
    assert place is not None
    own = captions[captions["lang"] == spec.source]
    if spec.caption_set:
        own = own[own["caption_set"] == spec.caption_set]
    if own.duplicated(["item_id", "k"]).any():
        sets = ", ".join(sorted(own["caption_set"].unique()))
        raise ArtifactError(
            f"{place}: the {spec.source} captions are of several sets ({sets}), and nothing says which it translates",
            hint="in the manifest, caption_set of the file",
        )
    text_of = {(i, k): text for i, k, text in zip(own["item_id"], own["k"], own["text"], strict=True)}
    found: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for record in reader(spec.format)(place, **resolved(spec, assembly.locate)):
        source = text_of.get((assembly.name(record.item).item, record.k))
        if source is not None:
            target = _text(spec, record)
            if not target:
                left_out[EMPTY] += 1
            elif found.setdefault(source, target) != target:
                left_out[OTHERS] += 1
    if not found:
        raise ArtifactError(f"{place} translates no {spec.source} caption of {assembly.variant.name}")
    return found, left_out


def crossing(items: pd.DataFrame) -> pd.Series[int]:
    """The groups that lie in more than one split, with the number of them."""
    shared = items[items["group"].duplicated(keep=False)]
    splits = shared.groupby("group")["split"].nunique()
    return splits[splits > 1]
