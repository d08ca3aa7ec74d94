"""A workspace: the folder in which artifacts have fixed places and names that a person can guess."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ccr_cli.artifacts import base
from ccr_cli.errors import ArtifactError, UsageError

LONGEST_STEM = 110
_ENCODED = re.compile("(%[0-9A-F]{2})+")


@dataclass(frozen=True)
class Workspace:
    """A folder of artifacts; it can be moved, because all paths in it are relative."""

    root: Path
    dry_run: bool = False
    """Build nothing: `artifacts.build.build_artifact` raises `Planned` instead."""
    planned: list[Any] = field(default_factory=list, repr=False, compare=False)
    """The plans of a dry run so far."""

    def rehearsal(self) -> "Workspace":
        """Returns the same workspace in a dry run."""
        return replace(self, dry_run=True, planned=[])

    def place(self, kind: str, name: str, data: str | None = None) -> Path:
        """Returns the folder of an artifact; `data` is the data set's name, for kinds kept by data set."""
        folder = self.root / base.FOLDERS[kind]
        if kind in base.PER_DATASET:
            assert data is not None, f"a {kind} is kept by data set"
            folder = folder / slug(data)
        return folder / name

    def artifacts(self, kind: str | None = None) -> list[base.Artifact]:
        """Lists the complete artifacts, by kind and name; raises ArtifactError if one of them was tampered with."""
        return [base.load(path, place_kind) for place_kind, path in self.places() if kind in (None, place_kind)]

    def places(self) -> list[tuple[str, Path]]:
        """Lists the folders of complete artifacts with their expected kind, without reading them."""
        places = []
        for kind, folder in base.FOLDERS.items():
            depth = "*/*" if kind in base.PER_DATASET else "*"
            for moved in (self.root / folder).glob(f"{depth}.old"):
                base.put_back(moved.with_suffix(""))
            records = (self.root / folder).glob(f"{depth}/{base.RECORD}")
            finished = (r.parent for r in records if not r.parent.name.endswith((".partial", ".old", ".copy")))
            places += [(kind, path) for path in sorted(finished)]
        return places

    def relative(self, path: Path) -> str:
        """Returns a path inside the workspace as relative, any other as absolute."""
        resolved, root = path.resolve(), self.root.resolve()
        return resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else str(resolved)

    def place_of(self, artifact: base.Artifact, link: base.Parent) -> Path:
        """Returns where a parent of an artifact lies: in the artifact's own workspace, else in this one."""
        own = (base.home(artifact.path) or self.root) / link.path
        return own if own.exists() else self.root / link.path

    def parent(self, artifact: base.Artifact, kind: str) -> base.Artifact:
        """Loads an artifact's (first) parent of a kind; raises ArtifactError if there is none, or as `linked` does."""
        return self.linked(artifact, artifact.parent(kind))

    def stale(self, artifacts: Sequence[base.Artifact], rebuilt: Sequence[base.Artifact] | None = None) -> set[str]:
        """Returns the ids of artifacts that were made, directly or not, from another state of `rebuilt` (default: any).

        A deleted parent leaves an artifact valid.
        """
        now = {self.relative(a.path): a.id for a in (artifacts if rebuilt is None else rebuilt)}
        stale = {a.id for a in artifacts if any(now.get(link.path, link.id) != link.id for link in a.parents)}
        while more := {a.id for a in artifacts if any(link.id in stale for link in a.parents)} - stale:
            stale |= more
        return stale

    def parents_first(self, artifacts: Sequence[base.Artifact]) -> list[base.Artifact]:
        """Sorts artifacts by depth, so that each comes after its parents; at the same depth, the order is kept."""
        parents = {self.relative(a.path): [link.path for link in a.parents] for a in artifacts}
        level: dict[str, int] = {}

        def level_of(path: str) -> int:
            if path not in level:
                level[path] = 0  # paths may go in circles: only ids cannot
                level[path] = 1 + max((level_of(parent) for parent in parents[path] if parent in parents), default=0)
            return level[path]

        return sorted(artifacts, key=lambda artifact: level_of(self.relative(artifact.path)))

    def to_rebuild(
        self, artifacts: Sequence[base.Artifact], rebuilt: Sequence[base.Artifact] | None = None
    ) -> list[base.Artifact]:
        """Returns the stale artifacts, parents first, without noise, which `ccr train` makes again; see `stale`."""
        ids = self.stale(artifacts, rebuilt)
        return self.parents_first([a for a in artifacts if a.id in ids and a.kind != "noise"])

    def linked(self, artifact: base.Artifact, link: base.Parent) -> base.Artifact:
        """Loads a parent of an artifact; raises ArtifactError if it is gone or was replaced."""
        try:
            parent = base.load(self.place_of(artifact, link), link.kind)
        except ArtifactError as error:
            made_from = f"{artifact.path} was made from the {link.kind} {link.path}"
            raise ArtifactError(f"{made_from}: {error.message}", hint=error.hint) from None
        if parent.id != link.id:
            states = f"id {link.id[:12]}, now {parent.id[:12]}"
            problem = f"{artifact.path} was made from another state of {link.path} ({states})"
            raise ArtifactError(problem, hint=artifact.rebuild_hint())
        return parent


def slug(text: str) -> str:
    """Turns any text into a safe file name, at most 120 bytes of UTF-8; raises UsageError if it is empty.

    NFKC; letters, marks and digits of any script stay, `/` becomes `--`, and other characters outside `._-` become `-`.
    A text without any letter or digit is percent-encoded.
    """
    if _ENCODED.fullmatch(text):
        return _first(text, 120)
    normal = unicodedata.normalize("NFKC", text).replace("/", "--")
    plain = "".join(char if char in "._-" or unicodedata.category(char)[0] in "LMN" else "\0" for char in normal)
    plain = re.sub("\0+", "-", plain).lstrip(".-")
    plain = plain or "".join(f"%{byte:02X}" for byte in normal.encode(errors="replace"))
    if not plain:
        raise UsageError("an artifact needs a name of at least one character")
    return _first(plain, 120)


def stem(readable: str, request: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Names an artifact: the readable part plus six hex digits of the options that differ from the defaults."""
    changed = {key: value for key, value in request.items() if defaults.get(key) != value}
    suffix = f"-{base.sha256_text(base.canonical_json(changed))[:6]}" if changed else ""
    encoded = readable.encode()
    if len(encoded) > LONGEST_STEM:  # both ends stay readable; the digits stand for the middle
        end = encoded[-17:].decode(errors="ignore")
        readable = f"{_first(readable, 85)}-{base.sha256_text(readable)[:6]}-{end}"
    return slug(readable) + suffix


def _first(text: str, size: int) -> str:
    """Returns the beginning of a text, at most `size` bytes of UTF-8."""
    return text.encode()[:size].decode(errors="ignore")
