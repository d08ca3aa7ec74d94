"""The options of `ccr train`: each field is a flag and, where marked, an entry of the run's request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ccr_cli import registry
from ccr_cli.errors import UnavailableError, UsageError, no_share
from ccr_cli.stages.shared.options import flag, option

SEVERAL = "+"
"""Joins the languages of one run: `de+fr`."""
CHOICES: dict[str, tuple[str | None, ...]] = {
    "langs": ("all", "draw"),
    "translation_mix": ("draw", "weighted", "trusted", "first"),
    "select_on": ("mt", "human"),
    "report_to": (None, "tensorboard", "trackio", "wandb"),
    "dtype": ("float32", "bfloat16", "float16"),
}
"""Allowed values by option."""


def _fraction(texts: Sequence[str]) -> float:
    """Parses `--noise`; UsageError if it is not one number (`40%` is not)."""
    if len(texts) > 1:
        problem = f"--noise is given {len(texts)} times, and a run has one mismatch"
        raise UsageError(problem, hint=f"a run for each: --sweep noise={','.join(texts)}")
    try:
        return float(texts[0])
    except ValueError:
        raise UsageError(f"--noise {texts[0]}: not a number from 0 to 1", hint="--noise 0.4 is 40 %") from None


@dataclass(frozen=True)
class TrainingOptions:
    """The options of `ccr train`, in the order of its help."""

    method: str = option(
        "uml",
        "{methods}",
        "--method",
        "-m",
        request=True,
        sweep=True,
        autocompletion=registry.completion("methods"),
    )
    lang: str | None = option(
        None,
        "Target language; repeat for one run on several.",
        request=True,
        sweep=True,
        command_line=(list[str] | None, lambda languages: SEVERAL.join(languages) or None),
        show_default="the language of the given translations, or of the only one",
    )
    langs: str = option(
        "all",
        "With several languages: `all` trains on every caption in every language each epoch; `draw` picks one language "
        "per caption each epoch.",
        "--language-mix",
        was="--langs",
        request=True,
        sweep=True,
    )
    translation_mix: str = option(
        "draw",
        "With several translations into one language: `draw` picks one per caption each epoch, `weighted` by the "
        "probability that it is right, `trusted` takes the most probable one; `first` trains on the first of two, and "
        "judges compare it with the second.",
        request=True,
        sweep=True,
    )
    text_vectors: Path | None = option(
        None,
        "Vectors of the captions by id, made by any model, instead of a text encoder: Parquet, .safetensors, .npz, "
        "HDF5, or .npy with NAME.txt.",
        request=lambda o: o.text_vectors is not None,
        show_default=False,
    )
    pairs: Path | None = option(
        None,
        "Train on the pairs of this file (.csv, .xlsx, .parquet, ...) except those it calls noisy; ccr diagnose "
        "--export writes one.",
        "--verdicts",
        was="--pairs",
        request=True,
        show_default="all pairs",
    )
    pairs_weight: bool = option(
        False,
        "With --verdicts: keep all pairs and weight them by the file's probabilities.",
        "--weigh-verdicts",
        was="--pairs-weight",
    )
    seed: int = field(default=0, metadata={"request": True, "sweep": True})
    noise: float | None = option(
        None,
        "Fraction of mismatched triplets (0 to 1).",
        request=True,
        sweep=True,
        command_line=(list[str] | None, _fraction),
        metavar="<float>",
        show_default="none",
    )
    noise_style: str = field(default="caption", metadata={"sweep": True})
    noise_target: str | None = field(default=None, metadata={"sweep": True})
    noise_seed: int | None = field(default=None, metadata={"sweep": True})
    preset: str | None = option(
        None,
        "Named settings of the method, such as `paper`; `help` lists them.",
        request=True,
        sweep=True,
        show_default=False,
    )
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Values of the method's Config, as text or typed."""
    epochs: int | None = option(None, "Passes over the training triplets.", min=0, show_default="the method's")
    batch_size: int | None = option(None, "Triplets per step.", min=2, show_default="the method's")
    select_on: str = option(
        "mt",
        "Validation queries that select the best epoch: mt (machine-translated) or human. Test data are never used.",
        request=True,
        sweep=True,
    )
    report_to: str | None = option(
        None, "Also log training curves to: tensorboard, trackio or wandb (offline).", show_default=False
    )
    compiled: bool = option(
        False, "Speed up a transformers encoder with torch.compile; compiling takes a minute.", "--compile"
    )
    device: str = "auto"
    dtype: str = field(default="float32", metadata={"request": True, "sweep": True})
    name: str | None = None
    force: bool = False

    def check(self) -> None:
        """Checks values that need no data.

        Raises:
            UnavailableError: If the tracker is not installed.
            UsageError: If a value is out of range, not among the choices, or needs another option.
        """
        if self.noise is not None and not 0 <= self.noise <= 1:
            raise no_share("--noise ", self.noise)
        for own in fields(self):
            choices = CHOICES.get(own.name)
            if choices and getattr(self, own.name) not in choices:
                raise UsageError(
                    f"{flag(own)} is one of {', '.join(filter(None, choices))}, not {getattr(self, own.name)!r}"
                )
        if self.report_to and find_spec(self.report_to) is None:
            raise UnavailableError(f"{self.report_to} is not installed", hint="pip install 'ccr-cli[track]'")
        if self.pairs is None and self.pairs_weight:
            raise UsageError("--weigh-verdicts goes with --verdicts", hint="ccr diagnose RUN --export FILE writes one")

    @property
    def trusts(self) -> bool:
        """Whether the choice among translations depends on the probability that each is right."""
        return self.translation_mix in ("weighted", "trusted")

    def config_settings(self) -> dict[str, Any]:
        """`settings`, with the options that have flags of their own."""
        flags = {"epochs": self.epochs, "batch_size": self.batch_size}
        return {**self.settings, **{key: value for key, value in flags.items() if value is not None}}
