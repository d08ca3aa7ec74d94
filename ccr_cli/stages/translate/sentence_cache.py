"""Translated sentences in append-only files: the cache, and the journal of a translation without one.

A folder holds a sub-folder per question: an engine with all that decides its translations, a source and a target
language. In it each process that writes has a file of its own, so any number of them write at once without waiting.
Reading merges the files, oldest first. A line is the hash of a sentence in Unicode NFC, a space, and the JSON of
`[translation, score]`. It is written in one piece as soon as the result is there; reading skips a torn line (of a
killed process or a full disk). Failures are not kept.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import secrets
import time
import unicodedata
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ccr_cli.artifacts.base import canonical_json, sha256_text, write_json
from ccr_cli.artifacts.workspace import slug
from ccr_cli.errors import ArtifactError
from ccr_cli.translators.base import Translation

_QUESTION = "question.json"


class TranslationCache:
    """The sentences that one engine, by its `Translator.identity()`, translated for one pair of languages."""

    def __init__(self, root: Path, identity: Mapping[str, Any], source: str, target: str) -> None:
        self._question = {"engine": dict(identity), "source": source, "target": target}
        self.folder = root / sha256_text(canonical_json(self._question))[:32]
        self._path: Path | None = None
        self._file = -1

    def read(self, texts: Iterable[str]) -> dict[str, Translation]:
        """Returns the known translations of sentences (in NFC); ArtifactError if the cache cannot be read."""
        text_of = {_key(text): text for text in texts}
        results: dict[str, Translation] = {}
        for path in sorted(self.folder.glob("*.jsonl")):
            try:
                with path.open("rb") as lines:
                    for line in lines:
                        key, _, answer = line.partition(b" ")
                        text = text_of.get(key)
                        if text is not None and text not in results and (result := _parse(answer)):
                            results[text] = result
            except FileNotFoundError:  # another process empties the cache
                continue
            except PermissionError as error:
                raise _refused(path, error) from None
        return results

    def write(self, text: str, result: Translation) -> None:
        """Keeps the translation of a sentence (in NFC).

        Raises:
            ArtifactError: If the cache cannot be written to.
            OSError: If the disk is full.
        """
        answer = json.dumps([result.text, result.score], ensure_ascii=False)
        line = _key(text) + b" " + answer.encode("utf-8", "surrogatepass") + b"\n"
        try:
            if self._path is None:
                self._open()
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOENT):
                raise _refused(self.folder, error) from None
            raise OSError(error.errno, error.strerror, str(self._path or self.folder)) from None

    def close(self) -> None:
        """Closes the file."""
        if self._file >= 0:
            os.close(self._file)
        self._path, self._file = None, -1

    def _open(self) -> None:
        """Creates a file of this process, whose name sorts after earlier ones."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / _QUESTION).exists():
            with suppress(FileNotFoundError):  # another process was faster
                write_json(self.folder / _QUESTION, self._question)
        host = slug(platform.node() or "host")[:40]
        path = self.folder / f"{time.time_ns():020d}-{host}-{os.getpid()}-{secrets.token_hex(3)}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        self._path = path


def normal(text: str) -> str:
    """The form in which sentences are compared and sent: Unicode NFC."""
    return unicodedata.normalize("NFC", text)


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32].encode()


def _parse(answer: bytes) -> Translation | None:
    """The translation in a line, None if the line is torn."""
    if not answer.endswith(b"\n"):
        return None
    try:
        text, score = json.loads(answer)
    except (TypeError, ValueError):
        return None
    return Translation(text, score) if isinstance(text, str) and isinstance(score, float | None) else None


def _refused(path: Path, error: OSError) -> ArtifactError:
    hint = "--cache DIR for another place, --no-cache for none"
    return ArtifactError(f"the cache of translations {path} cannot be used: {error.strerror}", hint=hint)
