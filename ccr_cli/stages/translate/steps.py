"""The steps of a translation, sentence by sentence, and the cache of translated sentences.

A step translates sentences from one language into another. The first starts with the sentences of the data set, each
once, cut into groups of a fixed size in the data set's order; the next translates the results of each group. So groups
do not depend on the number of workers or on interruptions. Engines form their batches inside a group, and always
receive the whole group, with the positions of known results.
"""

import errno
import hashlib
import json
import os
import platform
import re
import secrets
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Any

from ccr_cli.artifacts.base import canonical_json, sha256_text, write_json
from ccr_cli.artifacts.workspace import slug
from ccr_cli.console import counted, progress, say
from ccr_cli.errors import ArtifactError
from ccr_cli.translators.base import Translation, Translator

GROUP_SENTENCES = 4096

_HALF = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair: valid in JSON, but in no file."""

Groups = list[list[str]]
Results = dict[str, Translation]
"""Results by sentence; one that failed has an error and no text."""


@dataclass(frozen=True)
class Step:
    """One direction of a translation."""

    direction: str
    """Direction of the results: forward, back, query, or a round before the last."""
    source: str
    target: str


@dataclass
class Engines:
    """Makes the engine of each step, and holds one at a time, since models are large."""

    module: Any
    config: Any
    home: str
    """The data set's source language."""
    dataset_dir: Path
    device: str
    cache: Path
    """Folder of the results."""
    silent: bool
    """Show no progress, for look-ups before the work."""
    source: Mapping[str, Any]
    """The checksum of an installed engine's source, for the cache."""
    _pair: tuple[str, str] | None = None
    _engine: Translator | None = None

    def of(self, step: Step) -> Translator:
        """The engine of a step; UnavailableError if the engine, its model or the pair is unavailable."""
        pair = (step.source, step.target)
        if self._engine is None or self._pair != pair:
            self._pair = self._engine = None  # free its memory before the next one
            where = {"dataset_dir": self.dataset_dir, "device": self.device}
            self._engine = self.module.Translator(*pair, self.config_of(step), **where)
            self._pair = pair
        return self._engine

    def by_caption(self, step: Step) -> Mapping[tuple[str, str], Translation]:
        """Results of `recorded` by caption id and text, which take precedence over those by text."""
        found: Mapping[tuple[str, str], Translation] = getattr(self.of(step), "by_caption", {})
        return found

    def config_of(self, step: Step) -> Any:
        """The engine's options for a step.

        For a step back into the data set's language, the language codes are swapped, `back_model` becomes the model,
        and the prefix, which names the direction, is dropped.
        """
        config = self.config
        if step.target == self.home and hasattr(config, "source_code"):
            config = replace(config, source_code=config.target_code, target_code=config.source_code)
        if step.target == self.home and hasattr(config, "back_model"):
            config = replace(config, model=config.back_model or config.model, prefix="")
        return config

    def kept(self, step: Step) -> "TranslationCache | None":
        """The cache of a step; None for an engine without one."""
        identity = self.of(step).identity()
        return TranslationCache(self.cache, {**identity, **self.source}, step.source, step.target) if identity else None


def begin(texts: Iterable[str]) -> Groups:
    """Cuts sentences into groups: each sentence once, in order of first appearance."""
    unique = list(dict.fromkeys(texts))
    return [unique[first : first + GROUP_SENTENCES] for first in range(0, len(unique), GROUP_SENTENCES)]


def follow(groups: Groups, results: Results) -> Groups:
    """The results of each group, without sentences that failed or are not yet known."""
    return [
        list(dict.fromkeys(result.text for text in group if (result := results.get(text)) and result.text))
        for group in groups
    ]


def run(engines: Engines, step: Step, groups: Groups, seed: Results) -> Results:
    """Runs a step and stores every result as it comes; returns the result of each sentence.

    `seed` holds further known results.
    """
    engine, kept = engines.of(step), engines.kept(step)
    if engines.silent:
        return {text: result for group in groups for text, result in _translate(engine, group, {})}
    results = known(groups, kept, seed)
    total = len({text for group in groups for text in group})
    label = f"translate {step.source} -> {step.target} ({step.direction})"
    if results:
        say(f"{label}: {len(results)} of {counted(total, 'caption')} known already")
    try:
        with progress(total - len(results), label, "captions") as advance:
            for group in groups:
                for text, result in _translate(engine, group, results):
                    results[text] = result
                    if kept is not None and result.text:
                        kept.write(text, result)
                    advance()
    finally:
        if kept is not None:
            kept.close()
    return results


def known(groups: Groups, kept: "TranslationCache | None", seed: Results) -> Results:
    """Returns the known results; the seed precedes the cache, but equal results keep the cache's token counts."""
    texts = [text for group in groups for text in group]
    cached = kept.read(texts) if kept is not None else {}
    seeded = {text: seed[text] for text in texts if text in seed}
    counted = {text for text in cached.keys() & seeded if replace(cached[text], tokens=None) == seeded[text]}
    return cached | {text: result for text, result in seeded.items() if text not in counted}


def _translate(
    engine: Translator, group: list[str], results: Mapping[str, Translation]
) -> Iterator[tuple[str, Translation]]:
    """Translates the unknown sentences of a group."""
    positions = {position for position, text in enumerate(group) if text in results}
    if len(positions) == len(group):
        return
    for position, result in engine.translate(group, positions):
        text = normal(result.text.strip()) if result.text else ""
        if not text:
            yield group[position], replace(result, text=None, error=result.error or "empty translation")
        elif _HALF.search(text):
            yield group[position], Translation(None, error="half of a UTF-16 character")
        else:
            yield group[position], result if text == result.text else replace(result, text=text)


_QUESTION = "question.json"


class TranslationCache:
    """Sentences that one engine (`Translator.identity()`) translated for one pair of languages.

    It is a folder of append-only files: the cache, or the journal of a translation without one. Each process that
    writes has a file of its own, so any number of them write at once without waiting. Reading merges the files, oldest
    first. A line is the hash of a sentence in Unicode NFC, a space, and the JSON of `[translation, score]`, then the
    tokens read and written if the engine counts them. It is written in one piece as soon as the result is there;
    reading skips a torn line (of a killed process or a full disk). Failures are not kept.
    """

    def __init__(self, root: Path, identity: Mapping[str, Any], source: str, target: str) -> None:
        self._question = {"engine": dict(identity), "source": source, "target": target}
        self.folder = root / sha256_text(canonical_json(self._question))[:32]
        self._file: FileIO | None = None

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
        answer = json.dumps([result.text, result.score, *(result.tokens or ())], ensure_ascii=False)
        line = _key(text) + b" " + answer.encode("utf-8", "surrogatepass") + b"\n"
        try:
            self._file = self._file or self._opened()
            while line:
                line = line[self._file.write(line) :]
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOENT):
                raise _refused(self.folder, error) from None
            path = self._file.name if self._file else self.folder
            raise OSError(error.errno, error.strerror, str(path)) from None

    def close(self) -> None:
        """Closes the file."""
        if self._file:
            self._file.close()
        self._file = None

    def _opened(self) -> FileIO:
        """Creates a file of this process, whose name sorts after earlier ones."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / _QUESTION).exists():
            with suppress(FileNotFoundError):  # another process was faster
                write_json(self.folder / _QUESTION, self._question)
        host = slug(platform.node() or "host")[:40]
        return FileIO(self.folder / f"{time.time_ns():020d}-{host}-{os.getpid()}-{secrets.token_hex(3)}.jsonl", "xb")


def normal(text: str) -> str:
    """Normalises a sentence to Unicode NFC, the form in which sentences are compared and sent."""
    return unicodedata.normalize("NFC", text)


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32].encode()


def _parse(answer: bytes) -> Translation | None:
    """The translation in a line, None if the line is torn."""
    if not answer.endswith(b"\n"):
        return None
    try:
        text, score, *tokens = json.loads(answer)
    except (TypeError, ValueError):
        return None
    if not isinstance(text, str) or not isinstance(score, float | None):
        return None
    counted = len(tokens) == 2 and all(isinstance(number, int) for number in tokens)
    return Translation(text, score, tokens=(tokens[0], tokens[1]) if counted else None)


def _refused(path: Path, error: OSError) -> ArtifactError:
    hint = "--cache DIR for another place, --no-cache for none"
    return ArtifactError(f"the cache of translations {path} cannot be used: {error.strerror}", hint=hint)
