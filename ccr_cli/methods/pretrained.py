"""A pretrained dual encoder without training: its text encoder, its features.

It measures the zero-shot retrieval of the model that made the features, in each language.
"""

from dataclasses import dataclass

from torch import Tensor

from ccr_cli.methods import base
from ccr_cli.methods.config import Head, Whole


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `pretrained`."""

    epochs: Whole = 0
    """Always 0: nothing is trained."""
    head: Head = "identity"
    """Always `identity`: the features are in the space of the texts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs or self.head != "identity":
            raise ValueError(
                "it trains nothing; to train from it, another method: --method infonce --set head=residual"
            )
        if self.judge != "none":
            raise ValueError(f"it trains nothing, so judge={self.judge} has no pairs to weigh: ccr diagnose --judge")


class Method(base.Method):
    """Cosine similarities of the model's own vectors."""

    TRANSLATED = False
    TRAINED = False
    config: Config

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """No losses: nothing is trained."""
        return {}
