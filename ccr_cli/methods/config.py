"""What every method is configured with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ccr_cli import registry

Side = Literal["cross_lingual", "cross_modal", "both"]
Need = Literal["frames", "back", "labels"]


@dataclass(frozen=True)
class Config:
    """What every method is configured with; a method's own Config adds its options."""

    epochs: int = 12
    """Passes over the training triplets."""
    batch_size: int = 128
    """Triplets a step."""
    lr: float = 1e-3
    """Peak learning rate of Adam."""
    lr_drop: int = 0
    """Epoch from which on learning rates are a tenth; 0: they fall to zero along a cosine."""
    table_lr: float = 5e-3
    """The same of the n-gram table: a rare word's row is seen in few steps, and must learn in these."""
    text_encoder: str = "ngram"
    """`ngram` (hashed words and character n-grams, from scratch), or a transformers encoder by folder or name; `given`,
    and nothing else, where the data set brings features of its texts."""
    max_tokens: int = 64
    """Longest caption in tokens, for a transformers encoder."""
    frozen_layers: int = 0
    """Lowest layers of a transformers encoder that are not trained, its embeddings with them; 0 trains all."""
    buckets: int = 32768
    """Rows of the n-gram table."""
    dim: int = 256
    """Dimension of the common space."""
    hidden: int = 0
    """Hidden units of the visual head; 0 is a linear map."""
    dropout: float = 0.4
    """Dropout of the visual features."""
    text_dropout: float = 0.2
    """Dropout of the text vectors."""
    judge: str = "none"
    """Who says which pair is noisy: a file of judges/."""
    judge_side: Side = "cross_lingual"
    """What the judge reads: S-T similarity, each visual view's own, or both."""
    warmup_epochs: int = 1
    """Epochs in which every pair counts as clean, before the judge speaks; the oracle speaks from the first."""

    def __post_init__(self) -> None:
        """Checks ranges.

        Raises:
            ValueError: If a value makes no sense.
        """
        if min(self.epochs, self.dim, self.max_tokens) < 1 or min(self.batch_size, self.buckets) < 2:
            raise ValueError("epochs, dim and max_tokens >= 1, batch_size and buckets >= 2 are needed")
        if min(self.lr, self.table_lr) <= 0:
            raise ValueError("lr > 0 and table_lr > 0 are needed")
        if min(self.lr_drop, self.frozen_layers, self.hidden) < 0:
            raise ValueError("lr_drop, frozen_layers and hidden >= 0 are needed")
        if not (0 <= self.dropout < 1 and 0 <= self.text_dropout < 1) or self.warmup_epochs < 0:
            raise ValueError("dropout and text_dropout in [0, 1) and warmup_epochs >= 0 are needed")
        if self.judge not in registry.names("judges"):
            raise ValueError(f"no judge {self.judge!r}; judges: {', '.join(registry.names('judges'))}")
        if self.judge != "none" and self.unjudged():
            raise ValueError(f"judge={self.judge} cannot judge: {self.unjudged()}")

    def needs(self) -> frozenset[Need]:
        """What the method reads beside one vector an item and a caption in two languages.

        `frames` (every row of an item's features), `back` (back-translations), `labels` (the items' categories: then
        the options include `classes`, their number, which is read from the data where it is 0).
        """
        return frozenset()

    def unjudged(self) -> str:
        """Why no judge can read the trained model's similarities; empty where one can."""
        return ""
