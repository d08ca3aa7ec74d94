"""The options of `ccr translate`, declared once: a field is a flag."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ccr_cli import registry
from ccr_cli.errors import UsageError
from ccr_cli.stages.shared.options import mismatch_flags, option, refuse_without_noise

_SEPARATOR = "\n"


@dataclass(frozen=True)
class TranslateOptions:
    """The options of `ccr translate`, in the order of its help; a translation has one language and one engine."""

    lang: str = option(
        None,
        "Target language (BCP 47); repeat for several.",
        command_line=(list[str] | None, _SEPARATOR.join),
        show_default=False,
    )
    engine: str = option(
        "auto",
        "`auto` uses recorded translations if the data set's tables hold the captions, else hf; repeat for a "
        "translation by each of several. `--set help` lists an engine's options. {translators}",
        command_line=(list[str], _SEPARATOR.join),
        autocompletion=registry.completion("translators", "auto"),
    )
    back: bool = option(False, "Also translate the result back into the source language.", "--back")
    queries: bool = option(
        False, "Also translate human val and test captions into the source language.", "--with-queries", was="--queries"
    )
    rounds: int = option(
        1, "Number of times to translate into the language, going back in between (2 or more: noisier).", min=1, max=9
    )
    split: str | None = option(None, "Translate only this split.", show_default="all")
    only: Path | None = option(
        None,
        "Use the corrections in this list (.csv, .tsv, .txt, .xlsx, .parquet), or translate its noisy captions again, "
        "and take the others from the existing translation in its language; ccr diagnose --export writes a list.",
        show_default=False,
    )
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The engine's own options."""
    device: str = "auto"
    max_failed: float = 0.2
    name: str | None = None
    force: bool = False
    retry_failed: bool = False
    no_cache: bool = option(False, "Neither read nor write the cache of translated sentences.", "--no-cache")

    def check(self) -> None:
        """Checks what needs no data; UsageError if there is no target language."""
        if not self.lang and self.only is None:
            back = " --back" if self.back else ""
            raise UsageError("which language? give --lang", f"ccr translate --lang es{back}")

    def languages(self) -> list[str]:
        """The languages of the command line, each once."""
        return list(dict.fromkeys(self.lang.split(_SEPARATOR))) if self.lang else []

    def engines(self) -> list[str]:
        """The engines of the command line, each once."""
        return list(dict.fromkeys(self.engine.split(_SEPARATOR)))


@dataclass(frozen=True)
class MismatchOptions:
    """The synthetic mismatches that `ccr translate` also makes, in the order of its help."""

    noise: list[float] | None = option(
        None,
        "Also make a synthetic mismatch with this fraction of wrong pairs; repeat for several.",
        show_default=False,
    )
    noise_style: str = "caption"
    noise_target: str | None = None
    noise_seed: int | None = None
    seed: int = 0

    def check(self) -> None:
        """Checks what needs no data; UsageError if an option has no effect."""
        if not self.noise:
            refuse_without_noise(mismatch_flags(self))
