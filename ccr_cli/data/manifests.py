"""The bundled manifests, and the reader of folders in ccr's dataset format."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ccr_cli.artifacts.base import read_toml, sha256_file, sha256_text
from ccr_cli.artifacts.dataset import CAPTIONS, ITEMS
from ccr_cli.console import HIDDEN, counted, plain
from ccr_cli.data.formats.base import listed
from ccr_cli.data.formats.columns import LANG
from ccr_cli.data.protocols import read_protocols
from ccr_cli.data.tsv import read_tsv
from ccr_cli.errors import ArtifactError

_SPACE = re.compile("[^:]+")
_NUMBER = re.compile(r"[0-9]{1,9}")
SPLITS = ("train", "val", "test")
_KINDS = ("image", "video", "features")


@dataclass
class Folder:
    """A data set read from a folder and checked."""

    path: Path
    manifest: dict[str, Any]
    items: pd.DataFrame
    captions: pd.DataFrame
    refused: list[dict[str, Any]] = field(default_factory=list)
    """Failure records of captions that were left out because their text is empty."""
    hidden: list[str] = field(default_factory=list)
    """Places of captions with control characters."""

    @property
    def tables(self) -> list[Path]:
        """The files of recorded translations that ship with the data set."""
        return sorted((self.path / "translations").glob("*.tsv"))


def bundled_root() -> Path:
    """Returns the folder of the bundled manifests: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "data_manifests"
    return inside if inside.is_dir() else package.parent / "data_manifests"


def bundled_names() -> list[str]:
    """Returns the names of the bundled data sets, sorted."""
    return sorted(path.parent.name for path in bundled_root().glob("*/manifest.toml"))


def bundled() -> dict[str, dict[str, Any]]:
    """Reads the manifests of every bundled data set, by name."""
    return {name: read_toml(bundled_root() / name / "manifest.toml") for name in bundled_names()}


def read_folder(path: Path) -> Folder:
    """Reads and checks a folder in the dataset format (docs/dataset-format.md); ArtifactError names file and line."""
    manifest = _read_manifest(path / "manifest.toml")
    for entry in manifest.get("files", []):
        file = path / entry["path"]
        if not file.exists():
            raise ArtifactError(f"{file} is missing, although the manifest lists it")
        digest = media_digest(file) if file.is_dir() else sha256_file(file)
        if digest != entry["sha256"]:
            raise ArtifactError(f"{file} differs from the manifest: sha256 {entry['sha256']} expected, {digest} found")
    items = _read_items(path / "items.tsv")
    captions, refused, hidden = _read_captions(path / "captions.tsv", set(items["item_id"]))
    where = path / "manifest.toml"
    for what, column in (("items", items["split"]), ("captions", captions["lang"])):
        found = column.value_counts()
        for key, number in manifest.get("counts", {}).get(what, {}).items():
            if number != found.get(key, 0):
                raise ArtifactError(f"{where}: {number} {what} in {key} expected, {found.get(key, 0)} found")
    parallel, sets = manifest.get("parallel", {}), set(captions["caption_set"])
    if not isinstance(parallel, dict) or not all(isinstance(name, str) for name in parallel.values()):
        raise ArtifactError(f"{where}: [parallel] maps a caption set to the one that it translates")
    for name in (*parallel, *parallel.values()):
        if name not in sets:
            raise ArtifactError(f"{where}: [parallel] names the caption set {name!r}; the data set has {sorted(sets)}")
    return Folder(path, manifest, items, captions, refused, hidden)


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.is_file():
        hint = "the format is described in docs/dataset-format.md; bundled data sets: ccr data list"
        raise ArtifactError(f"{path} is missing, so {path.parent} is not in ccr's dataset format", hint=hint)
    manifest = read_toml(path)
    for key in ("name", "source_lang"):
        if not isinstance(manifest.get(key), str):
            raise ArtifactError(f"{path} lacks the key {key!r} (a string)")
    refuse_lang(manifest["source_lang"], f"{path}: source_lang")
    for table, keys in (("files", ("path", "sha256")), ("translations", ("source", "target", "engine", "file"))):
        entries = manifest.get(table, [])
        fit = isinstance(entries, list) and all(isinstance(e, dict) for e in entries)
        if not fit or not all(isinstance(e.get(key), str) for e in entries for key in keys):
            raise ArtifactError(f"{path}: each [[{table}]] needs the keys {', '.join(keys)} (strings)")
    read_protocols(manifest, str(path))
    spaces(manifest, str(path))
    return manifest


def refuse_lang(lang: str, where: str) -> None:
    """Refuses a text that is not a language tag; `where` begins the message."""
    if not LANG.fullmatch(lang):
        raise ArtifactError(f"{where}: {lang!r} is not a language tag (BCP 47, such as en or pt-BR)")


def refuse_id(name: str, where: str) -> None:
    """Refuses an id that can look like another one, or break a line of a table; `where` begins the message."""
    if plain(name) != name:
        problem = f"{where}: the id {name!a} has a control character, a line break or a bidirectional override"
        raise ArtifactError(problem, hint="rename it in the file")


def with_hidden(places: Sequence[str]) -> str:
    """Describes captions with characters that could control a terminal or a page, by their places."""
    what = f"{counted(len(places), 'caption')} with control characters or bidirectional overrides"
    return f"{what}, kept in the data set, and shown and exported as \ufffd: {listed(places)}"


def empty_caption(caption_id: str, where: str) -> dict[str, Any]:
    """Returns the failure record of a caption that is left out because its text is empty."""
    message = f"empty caption ({where})"
    return {"id": caption_id, "stage": "import", "error": "EmptyCaption", "message": message, "attempt": 1}


def spaces(manifest: Mapping[str, Any], where: str) -> list[str]:
    """Returns the id spaces of a data set's groups (`id_space`): none, one or several; `where` begins messages."""
    named = manifest.get("id_space", [])
    found = [named] if isinstance(named, str) else named
    if not isinstance(found, list) or not all(isinstance(each, str) and _SPACE.fullmatch(each) for each in found):
        raise ArtifactError(f"{where}: id_space is a name without a colon, or a list of such, not {named!r}")
    return found


def media_digest(folder: Path) -> str:
    r"""Returns the digest of a folder: the sha256 of a line `name sha256\n` for each file, sorted by path."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return sha256_text("".join(f"{p.relative_to(folder).as_posix()} {sha256_file(p)}\n" for p in files))


def _read_items(path: Path) -> pd.DataFrame:
    rows: list[tuple[str, str, str, str | None, int | None, str]] = []
    seen: set[str] = set()
    for line, (item_id, split, kind, media, label, group) in read_tsv(path, ITEMS.names, ("media", "label", "group")):
        where = f"{path}, line {line}"
        if not item_id or item_id in seen:
            raise ArtifactError(f"{where}: item_id {item_id!r} is {'a duplicate' if item_id else 'empty'}")
        refuse_id(item_id, where)
        if split not in SPLITS or kind not in _KINDS:
            raise ArtifactError(f"{where}: split {split!r}, kind {kind!r}: a split is of {SPLITS}, a kind of {_KINDS}")
        if label and not _NUMBER.fullmatch(label):
            raise ArtifactError(f"{where}: label {label!r} is not a whole number of at most nine digits")
        seen.add(item_id)
        rows.append((item_id, split, kind, media or None, int(label) if label else None, group or item_id))
    if not rows:
        raise ArtifactError(f"{path} has no items")
    frame = pd.DataFrame(rows, columns=ITEMS.names).astype({"label": "Int32"})
    crossing = frame.groupby("group")["split"].nunique()
    if (crossing > 1).any():
        raise ArtifactError(f"{path}: the group {crossing.idxmax()!r} lies in more than one split")
    return frame


def _read_captions(path: Path, items: set[str]) -> tuple[pd.DataFrame, list[dict[str, Any]], list[str]]:
    rows: list[tuple[str, str, str, int, str, str]] = []
    refused: list[dict[str, Any]] = []
    hidden: list[str] = []
    seen: set[str] = set()
    for line, (caption_id, item_id, lang, k, text, caption_set) in read_tsv(path, CAPTIONS.names, ("caption_set",)):
        where = f"{path}, line {line}"
        if not caption_id or caption_id in seen:
            raise ArtifactError(f"{where}: caption_id {caption_id!r} is {'a duplicate' if caption_id else 'empty'}")
        refuse_id(caption_id, where)
        if item_id not in items:
            raise ArtifactError(f"{where}: unknown item {item_id!r}")
        refuse_lang(lang, where)
        if not _NUMBER.fullmatch(k):
            raise ArtifactError(f"{where}: k is a whole number of at most nine digits, not {k!r}")
        seen.add(caption_id)
        if not text.strip():
            refused.append(empty_caption(caption_id, f"{path.name}, line {line}"))
            continue
        if HIDDEN.search(text):
            hidden.append(f"{path.name}, line {line}")
        rows.append((caption_id, item_id, lang, int(k), unicodedata.normalize("NFC", text), caption_set or "human"))
    if not rows:
        raise ArtifactError(f"{path} has no captions")
    return pd.DataFrame(rows, columns=CAPTIONS.names), refused, hidden
