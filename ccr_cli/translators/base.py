"""What every translation engine offers."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Translation:
    """The result of one text."""

    text: str | None
    """The translation; None if there is none, with the reason in `error`. "" for an empty text."""
    score: float | None = None
    """Mean log-probability per token, None if the engine has none."""
    error: str | None = None
    """Why there is no translation, in a few words."""
    tokens: tuple[int, int] | None = None
    """Numbers of tokens read and written, None if the engine counts none."""


class Translator(Protocol):
    """An engine set up for one pair: `Translator(source, target, config, *, dataset_dir, device)`.

    Its module also has `Config`. It may have `missing()` for `ccr doctor`, and `identity(config)`: what a request
    records in place of options that name a file. An engine that needs something that may be missing (a model, a key, a
    provider's reply) has `planned(source, target, config)` for a dry run: model, revision, licence, warning, and in
    `here` (yes or no) whether the engine can be set up; it sends no request. An engine that counts tokens has
    `usage(results)`, the entry of its results in `quality.json`.
    """

    def translate(self, texts: list[str], known: Collection[int] = ()) -> Iterator[tuple[int, Translation]]:
        """Yields (position, result) as results come, in any order: every position once, except those of `known`.

        A text that fails does not stop the others: its result has `error`. The caller stores each result at once, so
        a slow engine must yield early. An engine with batches forms them over all texts and skips only those whose
        texts are all known, so that a resumed run has the batches, and the bytes, of an uninterrupted one.
        """
        ...

    def describe(self) -> dict[str, str]:
        """Names engine, model, version, command and licence, and `revision` if there is one."""
        ...

    def identity(self) -> dict[str, Any]:
        """What determines the translations (engine, model, revision, options): the key of the cache.

        JSON values only. Empty if translating is a mere look-up: then nothing is cached.
        """
        ...
