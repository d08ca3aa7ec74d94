"""Protocols: which items of a data set are evaluated, with which captions, and in how many galleries."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ccr_cli.artifacts.signature import COMMON_PROTOCOLS, ZERO_SHOT
from ccr_cli.data.splits import SPLITS
from ccr_cli.errors import ArtifactError

POSITIVES = ("all", "single")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Protocol:
    """How a data set is evaluated."""

    name: str
    split: str = "test"
    items: int | None = None
    """Number of items, the first ones of the split in the data set's order; None means all."""
    folds: int = 1
    """Number of galleries: equally large consecutive parts of the items, in the data set's order."""
    captions: int | None = None
    """Number of captions per item, the first ones by k; None means all."""
    caption_set: str | None = None
    """The caption set to use; None means all."""
    positives: str = "all"
    """Positives of an item: `all` of its captions; `single`: only its first caption, the only one in the gallery;
    `label`: all captions of its category."""
    langs: tuple[str, ...] | None = None
    """Query languages; None means all."""

    def take(self, captions: pd.DataFrame) -> pd.DataFrame:
        """Returns the captions that the protocol uses: its caption set, and the first ones of each item."""
        if self.caption_set is not None:
            captions = captions[captions["caption_set"] == self.caption_set]
        return captions if self.captions is None else first_captions(captions, self.captions)


def read_protocols(manifest: Mapping[str, Any], where: str) -> dict[str, Protocol]:
    """Reads `[[protocols]]` of a manifest; if one is wrong, ArtifactError with a message that begins with `where`."""
    entries = manifest.get("protocols", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ArtifactError(f"{where}: protocols are tables, each under [[protocols]]")
    found: dict[str, Protocol] = {}
    for entry in entries:
        name = entry.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in found:
            raise ArtifactError(f"{where}: a protocol has a name of its own, of [A-Za-z0-9._-], not {name!r}")
        if name in (*COMMON_PROTOCOLS, *SPLITS) or name.startswith(ZERO_SHOT):
            raise ArtifactError(f"{where}: a protocol cannot be named {name!r}, which is reserved")
        for key, value in entry.items():
            if key not in _KEYS:
                raise ArtifactError(f"{where}: protocol {name!r} has the key {key!r}; known keys: {', '.join(_KEYS)}")
            fits, what = _KEYS[key]
            if not fits(value):
                raise ArtifactError(f"{where}: {key} of the protocol {name!r} is {what}, not {value!r}")
        fields: dict[str, Any] = {key: value for key, value in entry.items() if key in Protocol.__dataclass_fields__}
        found[name] = Protocol(**fields | ({"langs": tuple(fields["langs"])} if "langs" in fields else {}))
    return found


def _names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


_KEYS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("name", "caption_set", "note", "evidence"), (lambda value: isinstance(value, str), "text")),
    **dict.fromkeys(
        ("items", "folds", "captions"), (lambda value: type(value) is int and value >= 1, "a whole number from 1")
    ),
    "split": (lambda value: value in SPLITS, f"one of {', '.join(SPLITS)}"),
    "positives": (lambda value: value in POSITIVES, f"one of {', '.join(POSITIVES)}"),
    "langs": (_names, "a list of language tags"),
    "variants": (_names, "a list of names"),
}


def first_captions(captions: pd.DataFrame, number: int) -> pd.DataFrame:
    """Returns the first captions of each item by k, those of equal k in the data set's order."""
    first = captions.sort_values("k", kind="stable").groupby("item_id", sort=False).head(number)
    return captions[captions.index.isin(first.index)]


def fold_of(items: pd.DataFrame, protocol: Protocol, name: str) -> dict[str, int]:
    """Returns the evaluated items with their fold.

    Items that are dropped later (no features, a leak) still count here, so that the other items stay in the same
    gallery.

    Raises:
        ArtifactError: If there are too few items, or the folds would not be equally large. Reference implementations do
            not check this, and their results would not belong to the protocol they name.
    """
    ids = list(items["item_id"])[: protocol.items]
    if protocol.items is not None and len(ids) < protocol.items:
        raise ArtifactError(f"{protocol.name} needs {protocol.items} {protocol.split} items, and {name} has {len(ids)}")
    if len(ids) % protocol.folds:
        mean = f"{protocol.name} is a mean over {protocol.folds} folds of equal size"
        raise ArtifactError(f"{mean}, and {name} has {len(ids)} {protocol.split} items")
    return {item: place * protocol.folds // len(ids) for place, item in enumerate(ids)}
