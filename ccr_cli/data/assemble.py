"""Assembles a data set from caption files: items with split and group, captions with language and number."""

import copy
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ccr_cli.artifacts.dataset import CAPTIONS, ITEMS
from ccr_cli.console import HIDDEN, counted
from ccr_cli.data.collections import DEFAULT_SET, FileSpec, Variant
from ccr_cli.data.formats import reader
from ccr_cli.data.formats.base import Record, is_video, stem
from ccr_cli.data.formats.columns import LANG
from ccr_cli.data.formats.text_files import read_ids
from ccr_cli.data.manifests import empty_caption, refuse_id, with_hidden
from ccr_cli.data.seeds import shuffled
from ccr_cli.errors import ArtifactError

SPLIT_NAMES = {
    "train": "train", "restval": "train", "training": "train", "val": "val", "dev": "val", "valid": "val",
    "validate": "val", "validation": "val", "test": "test",
}  # fmt: skip
"""Names of splits in files; Karpathy's `restval` belongs to training."""
SPLITS_OTHERWISE = "before a file: train=FILE; or lists of ids: --split train=IDS --split test=IDS"
"""What to type to name splits that the files do not name."""
_BLOCK = 1 << 16
_POS = re.compile(r":[A-Za-z]+$")
_OTHERS = "left out, as captions of the same text have another one"


class ItemName(NamedTuple):
    """The item, group and medium that an official id stands for."""

    item: str
    group: str
    media: str | None


class _Item(NamedTuple):
    split: str
    media: str
    label: int | None
    group: str
    where: str
    """Place in the files where its split was named."""
    kind: str


class Assembly:
    """Reads the files of a variant one after the other.

    `locate` returns the path of a file of the collection, None if it is missing; `lenient` leaves out files that cannot
    be read, instead of stopping at them.
    """

    def __init__(self, variant: Variant, locate: Callable[[str], Path | None], *, lenient: bool = False) -> None:
        self.variant, self.locate, self.lenient = variant, locate, lenient
        self.names: dict[str, ItemName] = {}
        self.lists = [spec for spec in variant.files if spec.role == "splits"]
        self.lists_lacking = False
        """Whether a list is missing or wrong; an item that no other list names may then belong to it."""
        self.listed: dict[str, str] = {}
        self.own = variant.own
        self.stems: dict[str, list[str]] = {}
        """The ids of the lists, by their stem: the id without the ending of a media file."""
        self.spelt: dict[str, str] = {}
        """The captions' spelling of an id of the lists, where it differs."""
        self.items: dict[str, _Item] = {}
        self.rows: list[tuple[str, str, str, int, str, str, str]] = []
        """Columns and place in the files of the captions read last; `tables` has the earlier ones, to save memory."""
        self.tables: list[pd.DataFrame] = []
        self.refused: list[dict[str, Any]] = []
        """Failure records of captions that are left out because their text is empty."""
        self.unread: dict[str, str] = {}
        """The reason for every file that could not be read."""
        self.translations: dict[str, dict[str, str]] = {}
        """Recorded translations by source text, by the name of their table."""
        self.exceptions: dict[str, list[tuple[str, str, str]]] = {}
        """By table: source text, translation and id of each caption whose translation is not the table's."""
        self.notes: list[str] = []
        """Messages for the user: what was left out, and how much."""
        self.split_rule = ""
        """How ccr divided the items; empty if the files name the splits."""
        self.left_out: Counter[str] = Counter()
        self.unlisted = ""
        """The first id of the captions that no list names."""
        self.odd: set[str] = set()
        self.hidden: list[str] = []
        """Places of captions with control characters."""
        self.langs: set[str] = set()
        self.numbers: Counter[tuple[str, str, str]] = Counter()

    def run(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Reads all files and returns items and captions; ArtifactError names file and line."""
        for spec in self.lists:
            self.lists_lacking |= not self._attempt(spec, self._list)
        for spec in self.variant.files:
            if spec.role == "captions":
                self._attempt(spec, self._captions)
        items, captions = self._item_table(), self._caption_table()
        self.notes = [f"{counted(number, 'caption')} {why}" for why, number in self.left_out.items()]
        if self.own and self.unlisted:
            self.notes.append(
                f"the first id that no list names is {self.unlisted!r}; "
                f"the first id of the lists is {next(iter(self.listed))!r}"
            )
        if self.hidden:
            self.notes.append(with_hidden(self.hidden))
        source = str(self.variant.about["source_lang"])
        bare = items.loc[~items["item_id"].isin(captions.loc[captions["lang"] == source, "item_id"]), "item_id"]
        if len(bare):
            why = f"without a caption in {source}, the source language"
            self.notes.append(f"{counted(len(bare), 'item')} {why}, e.g. {bare.iloc[0]!r}")
        odd = sorted(self.odd & set(self.items))
        if odd:
            self.notes.append(f"{len(odd):,} ids have another form than the others of the collection, e.g. {odd[0]!r}")
        self._translate(captions)
        return items, captions

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
        """Reads a file with `take`; returns whether it exists and could be read."""
        place = self.locate(spec.path)
        if place is None:
            return False
        before = {key: copy.copy(value) for key, value in vars(self).items()} if self.lenient else {}
        try:
            take(spec, place)
        except ArtifactError as error:
            if not self.lenient:
                raise
            vars(self).update(before)  # keep nothing of a file with an error
            self.unread[spec.path] = error.message
        return spec.path not in self.unread

    def _records(self, spec: FileSpec, place: Path) -> Iterator[Record]:
        options = dict(spec.options)
        for key in spec.path_options():
            further = self.locate(options[key])
            if further is None:
                raise ArtifactError(f"{options[key]} is missing; {spec.path} cannot be read without it")
            options[key] = further
        return reader(spec.format)(place, **options)

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
        for record in self._records(spec, place):
            named = self.name(self._as_listed(record.item))
            split = self._split(spec, record, named)
            first, matched = first or record.item, matched or bool(split)
            if not split:
                continue
            self._add(named, split, record)
            if not spec.keep or split in spec.keep:
                self._caption(spec, record, named.item)
        if self.own and first and not matched and not self.listed:
            column = "name the column of the splits: --columns split=YOURS"
            hint = f"before the file: train={shlex.quote(spec.path)}; or {column}"
            raise ArtifactError(f"{place}: the split of its items, such as {first!r}, is unknown", hint=hint)
        if self.own and first and not matched:
            ids = f"its first id is {first!r}, the lists' is {next(iter(self.listed))!r}"
            hint = "the ids of a list are those of the captions; the ending of a media file may be missing"
            raise ArtifactError(f"{place}: no list of a split names an item of it: {ids}", hint=hint)

    def _as_listed(self, official: str) -> str:
        """Returns an id as the lists write it, if exactly one of theirs differs only by a media ending on one side."""
        found = self.stems.get(stem(official), [])
        if not self.own or official in self.listed or len(found) != 1 or stem(official) not in (official, found[0]):
            return official
        if (other := self.spelt.setdefault(found[0], official)) != official:
            raise ArtifactError(f"{other!r} and {official!r} of the captions would both be {found[0]!r} of the lists")
        return found[0]

    def _split(self, spec: FileSpec, record: Record, named: ItemName) -> str:
        """Returns the split of a caption's item: from the lists, else from earlier captions, else from the file."""
        named_split = spec.split or SPLIT_NAMES.get(record.split.strip().lower(), "")
        if record.split and not named_split:
            known = ", ".join(SPLIT_NAMES)
            hint = "--columns split=NAME for another column, --columns split= for none" if self.own else None
            raise ArtifactError(f"{record.where}: the split is {record.split!r}; known: {known}", hint)
        item = self.items.get(named.item)
        if self.lists:
            kept = named_split if named_split in self.variant.unlisted and not self.lists_lacking else ""
            split = self.listed.get(named.item) or (item.split if item else kept)
            if not split:
                self.left_out["of items that no list of a split names"] += 1
                self.unlisted = self.unlisted or record.item
            return split
        if item is None:
            if not named_split:
                where = f" in {Path(spec.path).name}" if self.own else ""
                self.left_out[f"of items whose split is unknown{where}"] += 1
            return named_split
        if named_split and named_split != item.split:
            problem = f"{record.where}: {record.item!r} is in {named_split}, and in {item.split} ({item.where})"
            raise ArtifactError(problem)
        return item.split

    def _add(self, named: ItemName, split: str, record: Record) -> None:
        """Adds an item, or completes it from a further record."""
        item = self.items.get(named.item)
        if item is None:
            refuse_id(named.item, record.where)
            group, media = record.group or named.group, named.media or record.media
            self.items[named.item] = _Item(split, media, record.label, group, record.where, record.kind)
            return
        for what, new, old in (("label", record.label, item.label), ("kind", record.kind or None, item.kind or None)):
            if new is not None and old is not None and new != old:
                raise ArtifactError(f"{record.where}: the {what} of {record.item!r} is {new}, and before {old}")
        self.items[named.item] = item._replace(
            media=item.media or record.media,
            label=record.label if item.label is None else item.label,
            group=record.group or item.group,
            kind=item.kind or record.kind,
        )

    def _caption(self, spec: FileSpec, record: Record, item: str) -> None:
        lang = record.lang or spec.lang
        if lang not in self.langs:
            if not LANG.fullmatch(lang):
                what = f"{lang!r} is not a language tag (BCP 47, such as en)" if lang else "the language is unknown"
                hint = "--lang LANG, or before the file: LANG=FILE"
                if record.lang and self.own:
                    hint = "write a tag such as en there; or, for no column of languages: --columns lang= --lang LANG"
                raise ArtifactError(f"{record.where}: {what}", hint)
            self.langs.add(lang)
        chosen = record.caption_set or spec.caption_set or DEFAULT_SET
        k = record.k if record.k is not None else spec.k
        if k is None:
            key = (item, lang, chosen)
            k = self.numbers[key]
            self.numbers[key] += 1
        if text := caption_text(spec, record):
            refuse_id(record.caption_id, record.where)
            if HIDDEN.search(text):
                self.hidden.append(record.where)
            self.rows.append((record.caption_id, item, lang, k, text, chosen, record.where))
            if len(self.rows) == _BLOCK:
                self._pack()
        else:
            self.refused.append(empty_caption(record.caption_id or f"{item}#{lang}#{k}", record.where))

    def _item_table(self) -> pd.DataFrame:
        if not self.items:
            raise self._nothing("items")
        template, halves = str(self.variant.about.get("media", "")), self._halves()
        rows = []
        for item, row in self.items.items():
            media = row.media or template.replace("{id}", item)
            kind = row.kind or ("video" if is_video(media) else self.variant.kind)
            rows.append((item, halves.get(item, row.split), kind, media or None, row.label, row.group))
        return pd.DataFrame(rows, columns=ITEMS.names).astype({"label": "Int32"})

    def _nothing(self, what: str) -> ArtifactError:
        why = "; ".join(f"{counted(number, 'caption')} {why}" for why, number in self.left_out.items())
        hint = f"--split auto divides the items; or {SPLITS_OTHERWISE}" if why else None
        if self.own and not why:
            why = "no caption in " + ", ".join(spec.path for spec in self.variant.files if spec.role == "captions")
            hint = "write a row, or an object, for each caption, with the name of its picture and the text"
        return ArtifactError(f"{self.variant.name} has no {what}" + (f": {why}" if why else ""), hint=hint)

    def _halves(self) -> dict[str, str]:
        """Divides the split to halve into val and test: a hash of seed and item decides, the same on every machine."""
        if not self.variant.halve:
            return {}
        split, seed = self.variant.halve["split"], self.variant.halve["seed"]
        drawn = shuffled((item for item, row in self.items.items() if row.split == split), seed)
        half = (len(drawn) + 1) // 2
        return {**dict.fromkeys(drawn[:half], "val"), **dict.fromkeys(drawn[half:], "test")}

    def _pack(self) -> None:
        if self.rows or not self.tables:
            self.tables.append(pd.DataFrame(self.rows, columns=[*CAPTIONS.names, "where"]))
        self.rows = []

    def _caption_table(self) -> pd.DataFrame:
        self._pack()
        frame = pd.concat(self.tables, ignore_index=True)
        self.tables = []
        if frame.empty:
            raise self._nothing("captions")
        again = frame.duplicated(["item_id", "lang", "caption_set", "k"], keep=False)
        if again.any():
            first = frame[again].iloc[0]
            same = frame[again & (frame["item_id"] == first["item_id"]) & (frame["lang"] == first["lang"])]
            where = " and ".join(same["where"].head(2))
            problem = f"{first['item_id']!r} has two captions of number {first['k']} in {first['lang']}: {where}"
            raise ArtifactError(problem)
        frame["caption_id"] = _caption_ids(frame)
        return frame.drop(columns="where")

    def _translate(self, captions: pd.DataFrame) -> None:
        """Adds the recorded translations; if a text has several, the first one."""
        specs = [spec for spec in self.variant.files if spec.role == "translations"]
        for spec in specs:
            self._attempt(spec, partial(self._translations, captions))
        language_of = {spec.table: spec.source for spec in specs}
        for name, table in self.translations.items():
            texts = captions.loc[captions["lang"] == language_of[name], "text"]
            if lacking := sum(text not in table for text in texts):
                share = f"{lacking:,} of {len(texts):,} captions in {language_of[name]}"
                self.notes.append(f"{share} have no translation in {name}")

    def _translations(self, captions: pd.DataFrame, spec: FileSpec, place: Path) -> None:
        """Adds the translations of a file by source text, which is found by item and number."""
        own = captions[captions["lang"] == spec.source]
        if spec.caption_set:
            own = own[own["caption_set"] == spec.caption_set]
        if own.duplicated(["item_id", "k"]).any():
            sets = ", ".join(sorted(own["caption_set"].unique()))
            problem = f"{place}: the {spec.source} captions are of several sets ({sets}); which does it translate?"
            raise ArtifactError(problem, hint="in the manifest, caption_set of the file")
        text_of = {(i, k): text for i, k, text in zip(own["item_id"], own["k"], own["text"], strict=True)}
        found: dict[str, str] = {}
        left_out: Counter[str] = Counter()
        for record in self._records(spec, place):
            source = text_of.get((self.name(record.item).item, record.k))
            if source is not None:
                target = caption_text(spec, record)
                if not target:
                    left_out["without a text"] += 1
                elif found.setdefault(source, target) != target:
                    left_out[_OTHERS] += 1
        if not found:
            raise ArtifactError(f"{place} translates no {spec.source} caption of {self.variant.name}")
        table = self.translations.setdefault(spec.table, {})
        left_out[_OTHERS] += sum(table.setdefault(text, target) != target for text, target in found.items())
        self.notes += [
            f"{counted(number, 'translation')} of {spec.path} {why}" for why, number in left_out.items() if number
        ]


def _caption_ids(frame: pd.DataFrame) -> "pd.Series[str]":
    """Returns official ids, with the language where they repeat, else ids made of item, language, set and number."""
    sets = frame.groupby("lang")["caption_set"].transform("nunique")
    named = frame["item_id"] + "#" + frame["lang"] + "#"
    named = named + (frame["caption_set"] + "#").where(sets > 1, "") + frame["k"].astype(str)
    ids = frame["caption_id"].where(frame["caption_id"] != "", named)
    ids = ids.where(~ids.duplicated(keep=False), frame["lang"] + ":" + ids)
    return ids.where(~ids.duplicated(keep=False), named)


def caption_text(spec: FileSpec, record: Record) -> str:
    """Returns a caption's text; segmented words are joined without parts of speech, and wide gaps become commas."""
    text = record.text
    if spec.segmented:
        clauses = ["".join(_POS.sub("", word) for word in part.split()) for part in re.split(r"\s{2,}", text.strip())]
        text = "\uff0c".join(clause for clause in clauses if clause)
    return unicodedata.normalize("NFC", text).strip()
