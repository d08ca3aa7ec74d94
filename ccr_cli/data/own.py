"""Assembles a data set from the user's own files, which need not name splits or item ids."""

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from ccr_cli.console import counted
from ccr_cli.data import divide
from ccr_cli.data.assemble import Assembly, ItemName, caption_text
from ccr_cli.data.collections import FileSpec, Variant
from ccr_cli.data.formats.base import Record, listed, stem
from ccr_cli.data.formats.columns import LANG, tag_of
from ccr_cli.data.languages import usual
from ccr_cli.data.near_duplicates import read_hashes
from ccr_cli.errors import ArtifactError

MOST_FOLDERS, MOST_COMPARED = 100, 1000
"""Most folders beside the captions to search for media, and most media to look for in each."""
_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_TOGETHER = "near-duplicate pictures and equal captions together"


@dataclass(frozen=True)
class OwnRules:
    """How to read the user's own files."""

    beside: Path
    """The folder of the first file."""
    tidy: bool
    """Whether to leave out captions that an item has twice, require a medium for every item, and draw validation items
    if there are none; otherwise the files are read to the letter."""
    seed: int | None = None
    """Seed for dividing the items at random; None: the files name the splits."""
    media_root: Path | None = None
    """The media root that the user names."""
    absolute: str = ""
    """The `common_folder` of the media."""

    def root(self, items: pd.DataFrame) -> Path:
        """Returns the media root: the user's, else the common folder, else the folder with the most media.

        The candidates are the folder of the captions and its subfolders, except hidden ones; the first wins a tie.
        """
        if self.media_root is not None:
            return self.media_root
        if self.absolute:
            return Path(self.absolute)
        media = list(items["media"].dropna().unique())

        def there(folder: Path, names: Sequence[str]) -> int:
            return sum(os.path.isfile(os.path.join(folder, name)) for name in names)

        if there(self.beside, media) == len(media):
            return self.beside
        with os.scandir(self.beside) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
        folders = [self.beside, *(self.beside / name for name in names[:MOST_FOLDERS])]
        some = media[:: -(-len(media) // MOST_COMPARED)]
        return max(folders, key=lambda folder: there(folder, some))

    def relative(self, media: str) -> str:
        """Returns an absolute path relative to the media root or the common folder; unchanged if it is in neither."""
        for folder in (self.media_root, Path(self.absolute)):
            if folder is not None and Path(media).is_relative_to(folder.absolute()):
                return Path(media).relative_to(folder.absolute()).as_posix()
        return media


def plain_path(media: str, beside: Path) -> str:
    """Returns the path of a medium with slashes, absolute if it leads out of the folder of the captions."""
    media = media.strip().replace("\\", "/")  # Windows paths
    return os.path.abspath(beside / media) if os.path.isabs(media) or media.startswith("../") else media


def common_folder(media: Sequence[str], beside: Path) -> str:
    """Returns the folder that all media with absolute plain paths lie in; empty if there are none."""
    paths = {plain_path(name, beside) for name in media}
    folders = {os.path.dirname(path) for path in paths if os.path.isabs(path)}
    return os.path.commonpath(folders) if folders else ""


def own_table(source: str, target: str, path: str) -> FileSpec:
    """Returns the table of recorded translations that a file's columns become."""
    return FileSpec(path=path, role="translations", source=source, target=target, engine="own")


class OwnAssembly(Assembly):
    """Reads the user's own files; see `OwnRules`. An item without an id is named after its picture or video."""

    def __init__(self, variant: Variant, locate: Callable[[str], Path | None], rules: OwnRules) -> None:
        super().__init__(variant, locate)
        self.rules = rules
        self.media_of: dict[str, str] = {}
        """The medium of every item that is named after it."""
        self.texts: set[tuple[str, str, str, str]] = set()
        """Item, language, set and text of every caption."""
        self.retranslated: defaultdict[str, dict[int, str]] = defaultdict(dict)
        """By table and position of the caption: translations that differ from an earlier one of the same text."""
        self.empty: list[str] = []
        """Places of the captions without a text."""

    def run(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Reads all files and returns items and captions; the items are divided where the files name no split."""
        items, captions = super().run()
        if self.empty:
            rows = counted(len(self.empty), "empty caption counts", "empty captions count")
            self.notes.append(f"{rows} as none: {listed(self.empty)}")
        training = items["split"] == "train"
        if self.rules.seed is not None:
            return self._divide(items, captions, self.rules.seed, divide.SHARES), captions
        if self.rules.tidy and "val" not in set(items["split"]) and training.sum() > 1:
            some = self._divide(items[training], captions, 0, {"val": divide.SHARES["val"]})
            return pd.concat([some, items[~training]]).sort_index(), captions
        return items, captions

    def _divide(self, items: pd.DataFrame, captions: pd.DataFrame, seed: int, shares: dict[str, float]) -> pd.DataFrame:
        pictures = items["media"].where(items["kind"] == "image", None)
        hashes = read_hashes(self.rules.root(items), list(pictures))
        items, notes = divide.divided(items, captions, hashes, seed, shares)
        numbers = ", ".join(f"{(items['split'] == split).sum():,} {split}" for split in ("train", *shares))
        percent = " and ".join(f"{share:.0%} {split}" for split, share in shares.items())
        self.split_rule = f"{percent} of the {'' if len(shares) > 1 else 'training '}items, {_TOGETHER}; seed {seed}"
        self.notes += [f"split: {self.split_rule} ({numbers})", *notes]
        if unread := int(pictures.notna().sum()) - sum(value is not None for value in hashes):
            self.notes.append(f"{unread:,} pictures could not be compared, because they are missing or unreadable")
        return items

    def _records(self, spec: FileSpec, place: Path) -> Iterator[Record]:
        nameless = []
        for record in super()._records(spec, place):
            media = record.media
            if record.translations and not record.item and not media.strip():
                record = replace(record, item=re.sub(r"\W+", "-", record.where))  # texts without pictures
            if not record.item and not media.strip():
                nameless.append(record.where)
                continue
            if self.rules.tidy and _URL.match(media.strip()):
                raise ArtifactError(
                    f"{record.where}: {media[:80]!r} is on the web, and ccr reads pictures from files",
                    hint="download the pictures, and name their files in a column: --columns media=YOURS",
                )
            if self.rules.tidy:
                media = plain_path(media, self.rules.beside)
                media = self.rules.relative(media) if os.path.isabs(media) else media
            tag = tag_of(record.lang) or usual(record.lang)
            lang = tag if LANG.fullmatch(tag) else record.lang
            yield replace(record, item=record.item or self._named(media), media=media, lang=lang)
        if nameless:
            rows = counted(len(nameless), "row")
            problem = f"{listed(nameless)}: neither an id nor the name of a picture ({rows})"
            raise ArtifactError(problem, "name the picture in these rows, or delete them")

    def _named(self, media: str) -> str:
        """Returns the id of an item that is named after its medium: without the ending, unless that is taken."""
        names = (stem(media), media)
        return next((name for name in names if self.media_of.setdefault(name, media) == media), media)

    def _add(self, named: ItemName, split: str, record: Record) -> None:
        item = self.items.get(named.item)
        if self.rules.tidy and item and item.media and record.media and item.media != record.media:
            raise ArtifactError(
                f"{record.where}: the picture of {record.item!r} is {record.media!r}, and before {item.media!r}",
                hint="an item has one picture; --columns item_id= names the items after their pictures",
            )
        super()._add(named, split, record)

    def _caption(self, spec: FileSpec, record: Record, item: str) -> None:
        key = (item, record.lang or spec.lang, record.caption_set, caption_text(spec, record))
        repeated = self.rules.tidy and bool(key[-1]) and key in self.texts
        self._add_translations(record, key[1], key[-1], repeated)
        if repeated:
            self.left_out["left out, repeating another one of the item"] += 1
            return
        self.texts.add(key)
        if self.rules.tidy and not key[-1]:
            self.empty.append(record.where)
            return
        super()._caption(spec, record, item)

    def _translate(self, captions: pd.DataFrame) -> None:
        """Keeps the tables made from the captions' rows, and lists the captions whose translation differs from them."""
        for table in (spec for spec in self.variant.files if spec.role == "translations"):
            made = self.translations.get(table.table, {})
            texts = captions.loc[captions["lang"] == table.source, "text"]
            if several := self.retranslated.get(table.table, {}):
                own = captions.iloc[list(several)]
                self.exceptions[table.table] = [*zip(own["text"], several.values(), own["caption_id"], strict=True)]
            share = f"{counted(len(texts), 'caption')} in {table.source}, {sum(text in made for text in texts):,}"
            self.notes.append(f"{share} with a translation into {table.target}")

    def _add_translations(self, record: Record, lang: str, text: str, repeated: bool) -> None:
        """Records the machine translations of a caption; `repeated`: it equals an earlier caption of the item."""
        for target, made in record.translations if lang == self.variant.about["source_lang"] and text else ():
            name, normal = own_table(lang, target, "").table, unicodedata.normalize("NFC", made).strip()
            table = self.translations.setdefault(name, {})
            if normal and table.setdefault(text, normal) != normal and not repeated:
                self.retranslated[name][len(self.rows) + sum(map(len, self.tables))] = normal

    def _item_table(self) -> pd.DataFrame:
        items = super()._item_table()
        lacking = items.loc[items["media"].isna(), "item_id"]
        if self.rules.tidy and len(lacking) and not self.translations:
            places = listed([self.items[item].where for item in lacking])
            raise ArtifactError(
                f"{places}: {counted(len(lacking), 'item')} without a picture, the first {lacking.iloc[0]!r}",
                hint="fill in the file names, or delete these rows; or name the column: --columns media=YOURS; or make "
                "the names of the ids: --media '{id}.jpg'; captions without pictures need --format",
            )
        return items
