"""The bundled manifests, and the reader of folders in ccr's dataset format."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ccr_cli.artifacts.base import sha256_file, sha256_text
from ccr_cli.data.protocols import read_protocols
from ccr_cli.data.tsv import read_tsv
from ccr_cli.errors import ArtifactError

_ITEM_COLUMNS = ("item_id", "split", "kind", "media", "label", "group")
_CAPTION_COLUMNS = ("caption_id", "item_id", "lang", "k", "text", "caption_set")
LANG = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*")
_SPACE = re.compile("[^:]+")
_NUMBER = re.compile(r"[0-9]{1,9}")
_SPLITS = ("train", "val", "test")
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

    @property
    def tables(self) -> list[Path]:
        """The recorded translations that ship with the data set."""
        return sorted((self.path / "translations").glob("*.tsv"))


def bundled_root() -> Path:
    """Returns the folder of the bundled manifests: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "data_manifests"
    return inside if inside.is_dir() else package.parent / "data_manifests"


def bundled() -> dict[str, dict[str, Any]]:
    """Reads the manifests of every bundled data set, by name."""
    paths = sorted(bundled_root().glob("*/manifest.toml"))
    return {path.parent.name: tomllib.loads(path.read_text(encoding="utf-8")) for path in paths}


def read_folder(path: Path) -> Folder:
    """Reads and checks a folder in the dataset format (see docs/dataset-format.md).

    Raises:
        ArtifactError: With file and line, and expected against found where a count or a hash differs.
    """
    manifest = _read_manifest(path / "manifest.toml")
    _check_files(path, manifest)
    items = _read_items(path / "items.tsv")
    captions, refused = _read_captions(path / "captions.tsv", set(items["item_id"]))
    _check_counts(path / "manifest.toml", manifest, items, captions)
    _check_parallel(path / "manifest.toml", manifest.get("parallel", {}), set(captions["caption_set"]))
    return Folder(path, manifest, items, captions, refused)


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ArtifactError(
            f"{path} is missing, so {path.parent} is not in ccr's dataset format",
            hint="the format is described in docs/dataset-format.md; bundled data sets: ccr data list",
        )
    try:
        manifest = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path} is not valid TOML: {error}") from None
    for key in ("name", "source_lang"):
        if not isinstance(manifest.get(key), str):
            raise ArtifactError(f"{path} lacks the key {key!r} (a string)")
    if not LANG.fullmatch(manifest["source_lang"]):
        raise ArtifactError(
            f"{path}: source_lang {manifest['source_lang']!r} is not a language tag (BCP 47, such as en)"
        )
    for table, keys in (("files", ("path", "sha256")), ("translations", ("source", "target", "engine", "file"))):
        entries = manifest.get(table, [])
        fit = isinstance(entries, list) and all(isinstance(e, dict) for e in entries)
        for key in keys:
            if not fit or not all(isinstance(e.get(key), str) for e in entries):
                raise ArtifactError(f"{path}: each [[{table}]] needs the keys {', '.join(keys)} (strings)")
    read_protocols(manifest, str(path))
    spaces(manifest, str(path))
    return manifest


def spaces(manifest: Mapping[str, Any], where: str) -> list[str]:
    """Returns the id spaces of a data set's groups (`id_space`): none, one or several.

    Raises:
        ArtifactError: If it is neither a name without a colon nor a list of them; `where` is for the message.
    """
    named = manifest.get("id_space", [])
    found = [named] if isinstance(named, str) else named
    if not isinstance(found, list) or not all(isinstance(each, str) and _SPACE.fullmatch(each) for each in found):
        raise ArtifactError(f"{where}: id_space is a name without a colon, or a list of such, not {named!r}")
    return found


def _check_counts(path: Path, manifest: dict[str, Any], items: pd.DataFrame, captions: pd.DataFrame) -> None:
    """Compares the manifest's counts with the content."""
    expected = manifest.get("counts", {})
    for what, found in (("items", items["split"].value_counts()), ("captions", captions["lang"].value_counts())):
        for key, number in expected.get(what, {}).items():
            if number != found.get(key, 0):
                raise ArtifactError(f"{path}: {number} {what} in {key} expected, {found.get(key, 0)} found")


def _check_parallel(path: Path, parallel: Any, sets: set[str]) -> None:
    """Checks that the caption sets of `[parallel]` exist."""
    if not isinstance(parallel, dict) or not all(isinstance(each, str) for each in parallel.values()):
        raise ArtifactError(f"{path}: [parallel] maps a caption set to the one that it translates")
    for name in (*parallel, *parallel.values()):
        if name not in sets:
            raise ArtifactError(
                f"{path}: [parallel] names the unknown caption set {name!r}; the data set has {sorted(sets)}"
            )


def _check_files(root: Path, manifest: dict[str, Any]) -> None:
    for entry in manifest.get("files", []):
        path = root / entry["path"]
        if not path.exists():
            raise ArtifactError(f"{path} is missing, although the manifest lists it")
        found = media_digest(path) if path.is_dir() else sha256_file(path)
        if found != entry["sha256"]:
            raise ArtifactError(f"{path} differs from the manifest: sha256 {entry['sha256']} expected, {found} found")


def media_digest(folder: Path) -> str:
    r"""Digest of a folder of files: sha256 over its sorted lines `name sha256\n`."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return sha256_text("".join(f"{p.relative_to(folder).as_posix()} {sha256_file(p)}\n" for p in files))


def _read_items(path: Path) -> pd.DataFrame:
    rows: list[tuple[str, str, str, str | None, int | None, str]] = []
    seen: set[str] = set()
    for line, (item_id, split, kind, media, label, group) in read_tsv(path, _ITEM_COLUMNS):
        where = f"{path}, line {line}"
        if not item_id or item_id in seen:
            raise ArtifactError(f"{where}: item_id {item_id!r} is {'a duplicate' if item_id else 'empty'}")
        if split not in _SPLITS or kind not in _KINDS:
            raise ArtifactError(f"{where}: split {split!r}, kind {kind!r}: a split is of {_SPLITS}, a kind of {_KINDS}")
        if label and not _NUMBER.fullmatch(label):
            raise ArtifactError(f"{where}: label {label!r} is not a whole number of at most nine digits")
        seen.add(item_id)
        rows.append((item_id, split, kind, media or None, int(label) if label else None, group or item_id))
    if not rows:
        raise ArtifactError(f"{path} has no items")
    frame = pd.DataFrame(rows, columns=list(_ITEM_COLUMNS)).astype({"label": "Int32"})
    crossing = frame.groupby("group")["split"].nunique()
    if (crossing > 1).any():
        raise ArtifactError(f"{path}: the group {crossing.idxmax()!r} lies in more than one split")
    return frame


def _read_captions(path: Path, items: set[str]) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    rows: list[tuple[str, str, str, int, str, str]] = []
    refused: list[dict[str, Any]] = []
    seen: set[str] = set()
    for line, (caption_id, item_id, lang, k, text, caption_set) in read_tsv(path, _CAPTION_COLUMNS):
        where = f"{path}, line {line}"
        if not caption_id or caption_id in seen:
            raise ArtifactError(f"{where}: caption_id {caption_id!r} is {'a duplicate' if caption_id else 'empty'}")
        if item_id not in items:
            raise ArtifactError(f"{where}: unknown item {item_id!r}")
        if not LANG.fullmatch(lang):
            raise ArtifactError(f"{where}: {lang!r} is not a language tag (BCP 47, such as en, zh or pt-BR)")
        if not _NUMBER.fullmatch(k):
            raise ArtifactError(f"{where}: k is a whole number of at most nine digits, not {k!r}")
        seen.add(caption_id)
        if not text.strip():
            message = f"empty caption ({path.name}, line {line})"
            refused.append(
                {
                    "id": caption_id,
                    "stage": "import",
                    "error": "EmptyCaption",
                    "message": message,
                    "attempt": 1,
                }
            )
            continue
        rows.append((caption_id, item_id, lang, int(k), unicodedata.normalize("NFC", text), caption_set or "human"))
    if not rows:
        raise ArtifactError(f"{path} has no captions")
    return pd.DataFrame(rows, columns=list(_CAPTION_COLUMNS)), refused
