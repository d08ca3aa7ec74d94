"""What every translation engine offers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Translation:
    """What became of one text."""

    text: str | None
    """The translation; None where there is none, and then `error` says why. Of an empty text it is empty."""
    score: float | None = None
    """Mean log-probability of a token, None where the engine has none."""
    error: str | None = None
    """Why there is no translation, in a few words."""


class Translator(Protocol):
    """An engine set up for one pair: `Translator(source, target, config, *, dataset_dir, device)`.

    Beside it a file has `Config` and `pairs(dataset_dir)`, the pairs known to be available right now, or
    None where that cannot be said without loading a model. It may have `missing()`, for `ccr doctor`, and
    `identity(config)`: what a request records in place of options that name a file; an engine that may
    need something that is not here (a model, a key, a provider's answer) has `planned(source, target, config)`, for a
    dry run: model, revision, licence, warning, and whether the engine can be set up as all of it is `here` (yes or
    no), found out without a network.
    """

    def translate(self, texts: list[str], known: Collection[int] = ()) -> Iterator[tuple[int, Translation]]:
        """Yields (position, result) as results come, in any order: every position once, those of `known` never.

        A text that fails does not stop the others: its result has `error`. What was yielded is kept by the caller
        at once, so an engine that is slow must yield early. Texts whose result is known already are there for an
        engine that forms batches: it forms them of all texts and leaves out those that hold known ones alone, so
        that work gone on with has the batches, and so the bytes, of work that was never stopped.
        """
        ...

    def describe(self) -> dict[str, str]:
        """Says what translates: engine, model, version, command, licence, and `revision` where there is one."""
        ...

    def identity(self) -> dict[str, Any]:
        """What decides the text that comes out (engine, model, revision, options): the key of the cache.

        JSON values only. Empty where asking costs no more than a look-up: then nothing is cached.
        """
        ...


def way_back(config: Any) -> Any:
    """An engine's options for translating into the data set's source language, as `config` is for the way out.

    The engine's own names of the languages change places, and `back_model` is the model. A prefix that tells a model
    what to do tells it the wrong thing.
    """
    if hasattr(config, "source_code"):
        config = replace(config, source_code=config.target_code, target_code=config.source_code)
    if hasattr(config, "back_model"):
        config = replace(config, model=config.back_model or config.model, prefix="")
    return config
