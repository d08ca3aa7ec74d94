"""A workspace: the folder in which artifacts have fixed places and names that a person can guess."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ccr_cli.artifacts import base
from ccr_cli.errors import ArtifactError, UsageError

FOLDERS: dict[str, str] = {
    "dataset": "datasets",
    "translation": "translations",
    "noise": "noise",
    "features": "features",
    "run": "runs",
    "evaluation": "evaluations",
    "diagnosis": "diagnoses",
    "report": "reports",
    "export": "exports",
    "index": "indexes",
}
"""Where each kind lies."""

PER_DATASET = {"translation", "noise", "features"}
"""Kinds whose folder has one more level, the data set's name."""

LONGEST_STEM = 110


@dataclass(frozen=True)
class Workspace:
    """A folder of artifacts; it can be moved, since everything inside refers to the rest relatively."""

    root: Path
    dry_run: bool = False
    """Only say what would be built: `artifacts.build.building` raises `Planned`."""
    planned: list[Any] = field(default_factory=list, repr=False, compare=False)
    """What a dry run has found so far that would be built."""

    def rehearsal(self) -> Workspace:
        """The same folder, where it is only said what would be built."""
        return replace(self, dry_run=True, planned=[])

    def place(self, kind: str, name: str, data: str | None = None) -> Path:
        """Returns the folder of an artifact.

        Args:
            kind: The artifact's kind.
            name: Its name, a slug already.
            data: The data set's name, for kinds that are kept by data set.
        """
        folder = self.root / FOLDERS[kind]
        if kind in PER_DATASET:
            assert data is not None, f"a {kind} is kept by data set"
            folder = folder / slug(data)
        return folder / name

    def artifacts(self, kind: str | None = None) -> list[base.Artifact]:
        """Lists the complete artifacts, by kind and name.

        Raises:
            ArtifactError: If one of them was tampered with.
        """
        return [base.load(path, each) for each, path in self.places() if kind is None or kind == each]

    def places(self) -> list[tuple[str, Path]]:
        """Lists the folders of complete artifacts with the kind that should be in each; nothing is read."""
        found = []
        for kind, folder in FOLDERS.items():
            depth = "*/*" if kind in PER_DATASET else "*"
            records = (self.root / folder).glob(f"{depth}/{base.RECORD}")
            finished = (r.parent for r in records if not r.parent.name.endswith((".partial", ".old", ".copy")))
            found += [(kind, path) for path in sorted(finished)]
        return found

    def relative(self, path: Path) -> str:
        """Returns a path relative to the workspace where it lies inside, else absolute."""
        resolved = path.resolve()
        root = self.root.resolve()
        return resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else str(resolved)

    def parent(self, artifact: base.Artifact, kind: str) -> base.Artifact:
        """Loads an artifact's (first) parent of a kind.

        Raises:
            ArtifactError: If there is none, or it is gone or has been replaced.
        """
        return self.linked(artifact, artifact.parent(kind))

    def linked(self, artifact: base.Artifact, link: base.Parent) -> base.Artifact:
        """Loads one of an artifact's parents and checks that it is still the one that it was made from.

        Raises:
            ArtifactError: If the parent is gone or has been replaced.
        """
        try:
            parent = base.load(self.root / link.path, link.kind)
        except ArtifactError as error:
            raise ArtifactError(
                f"{artifact.path} was made from the {link.kind} {link.path}: {error.message}", hint=error.hint
            ) from None
        if parent.id != link.id:
            raise ArtifactError(
                f"{artifact.path} was made from another state of {link.path} (id {link.id[:12]}, now {parent.id[:12]})",
                hint=artifact._rebuild_hint(),
            )
        return parent


def slug(text: str) -> str:
    """Turns any text into a safe file name.

    NFKC, `/` becomes `--`, everything outside `[A-Za-z0-9._-]` becomes `-`, at most 120 bytes.

    Raises:
        UsageError: If nothing is left of it.
    """
    plain = unicodedata.normalize("NFKC", text).replace("/", "--")
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).lstrip(".-")[:120]
    if not plain:
        raise UsageError(f"{text!r} has no character that can stand in an artifact's name")
    return plain


def stem(readable: str, request: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Names an artifact: the readable part plus six hex digits of the options that differ from the defaults.

    Args:
        readable: What a person would guess, e.g. `multi30k-de-uml-noise0.4-seed0`.
        request: Options by name.
        defaults: The same with their default values.
    """
    changed = {key: value for key, value in request.items() if defaults.get(key) != value}
    suffix = f"-{base.sha256_text(base.canonical_json(changed))[:6]}" if changed else ""
    if len(readable) > LONGEST_STEM:  # both ends say what it is; the digits tell apart what differs in between
        readable = f"{readable[:85]}-{base.sha256_text(readable)[:6]}-{readable[-17:]}"
    return slug(readable) + suffix
