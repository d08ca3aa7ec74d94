"""What every translation engine offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
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
    `identity(config)`: what a request records in place of options that name a file.
    """

    def translate(self, texts: list[str]) -> list[Translation]:
        """Translates texts; same length and order. A text that fails does not stop the others."""
        ...

    def describe(self) -> dict[str, str]:
        """Says what translates: engine, model, version, command, licence."""
        ...
