"""What every method is configured with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ccr_cli import registry
from ccr_cli.nets.text_pooling import TextPooling

Side = Literal["cross_lingual", "cross_modal", "both"]
Need = Literal["frames", "media", "back", "labels"]
Visual = Literal["projection", "transformer", "gpo"]


@dataclass(frozen=True)
class Config:
    """What every method is configured with; a method's own Config adds its options."""

    epochs: int = 12
    """Passes over the training triplets."""
    batch_size: int = 128
    """Triplets a step."""
    accumulate: int = 1
    """Batches whose gradients are averaged before a step; each has its own negatives."""
    clip_norm: float = 0.0
    """Longest gradient, its norm over all weights; 0: as it is."""
    lr: float = 1e-3
    """Peak learning rate of what is trained from scratch, by AdamW."""
    encoder_lr: float = 2e-5
    """The same of a pretrained transformers encoder's weights, in its highest layer; of texts, and of media with
    `finetune`."""
    layer_decay: float = 1.0
    """Factor of that rate from each layer to the one below."""
    lr_warmup: int = 0
    """Steps over which learning rates rise from zero."""
    lr_drop: int = 0
    """Epoch from which on learning rates are a tenth; 0: they fall to zero along a cosine."""
    table_lr: float = 5e-3
    """Peak learning rate of the n-gram table: a rare word's row is seen in few steps, and must learn in these."""
    weight_decay: float = 0.0
    """Decoupled weight decay (AdamW) of matrices: not of biases, norms and tables."""
    text_encoder: str = "ngram"
    """`ngram` (hashed words and character n-grams, from scratch), or a transformers encoder by folder or name; `given`,
    and nothing else, where the data set brings features of its texts."""
    max_tokens: int = 64
    """Longest caption in tokens, for a transformers encoder."""
    pooling: TextPooling = "mean"
    """What makes one vector of a transformers encoder's tokens: their `mean`, `cls` (the first), `max`, `last`; `own`:
    what the model itself gives for a text."""
    frozen_layers: int = 0
    """Lowest layers of a transformers encoder that are not trained, its embeddings with them; 0 trains all."""
    lora_rank: int = 0
    """Rank of adapters (LoRA) in the other layers of a transformers encoder, whose own weights then stay; 0: none."""
    lora_alpha: float = 0.0
    """What adapters add is scaled by this over their rank; 0: twice the rank."""
    buckets: int = 32768
    """Rows of the n-gram table."""
    dim: int = 256
    """Dimension of the common space."""
    hidden: int = 0
    """Hidden units of the visual head; 0 is a linear map."""
    dropout: float = 0.4
    """Dropout of the visual features."""
    visual: Visual = "projection"
    """What makes one vector of an item's rows (frames, clips, regions): `projection` their mean, before the visual
    head; behind it `transformer`, or `gpo` (Generalized Pooling Operator)."""
    visual_layers: int = 2
    """Layers of this Transformer."""
    visual_heads: int = 8
    """Heads of its attention; they divide `dim`."""
    visual_drop: float = 0.2
    """Greatest share of an item's rows that training leaves out, drawn anew each time; not of `projection`."""
    text_dropout: float = 0.2
    """Dropout of the text vectors."""
    finetune: bool = False
    """Train the encoder of the features too, end to end from the media; one of `clip` or `vision`."""
    visual_frozen_layers: int = 0
    """Its lowest layers that are not trained, with what comes before them; 0 trains all."""
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
        if min(self.epochs, self.dim, self.max_tokens, self.accumulate) < 1 or min(self.batch_size, self.buckets) < 2:
            raise ValueError("epochs, dim, accumulate and max_tokens >= 1, batch_size and buckets >= 2 are needed")
        if min(self.lr, self.encoder_lr, self.table_lr) <= 0 or not 0 < self.layer_decay <= 1:
            raise ValueError("lr > 0, encoder_lr > 0, table_lr > 0 and layer_decay in (0, 1] are needed")
        if self.lora_alpha and not self.lora_rank:
            raise ValueError("lora_alpha scales adapters, and there are none: lora_rank=8, for instance")
        if min(self.weight_decay, self.lora_rank, self.lora_alpha) < 0:
            raise ValueError("weight_decay, lora_rank and lora_alpha >= 0 are needed")
        if min(self.clip_norm, self.lr_warmup, self.lr_drop, self.frozen_layers, self.hidden) < 0:
            raise ValueError("clip_norm, lr_warmup, lr_drop, frozen_layers and hidden >= 0 are needed")
        if not (0 <= self.dropout < 1 and 0 <= self.text_dropout < 1) or self.warmup_epochs < 0:
            raise ValueError("dropout and text_dropout in [0, 1) and warmup_epochs >= 0 are needed")
        if not 0 <= self.visual_drop < 1 or min(self.visual_layers, self.visual_heads) < 1:
            raise ValueError("visual_drop in [0, 1), visual_layers >= 1 and visual_heads >= 1 are needed")
        if self.visual_frozen_layers < 0:
            raise ValueError("visual_frozen_layers >= 0 is needed")
        if self.visual == "transformer" and self.dim % self.visual_heads:
            raise ValueError(f"visual_heads must divide dim, and {self.visual_heads} does not divide {self.dim}")
        if self.judge not in registry.names("judges"):
            raise ValueError(f"no judge {self.judge!r}; judges: {', '.join(registry.names('judges'))}")
        if self.judge != "none" and self.unjudged():
            raise ValueError(f"judge={self.judge} cannot judge: {self.unjudged()}")

    def needs(self) -> frozenset[Need]:
        """What the method reads beside one vector an item and a caption in two languages.

        `frames` (every row of an item's features), `media` (pictures in place of features), `back` (back-translations),
        `labels` (the items' categories: then the options include `classes`, their number, which is read from the data
        where it is 0).
        """
        wanted: dict[Need, bool] = {"frames": self.visual != "projection", "media": self.finetune}
        return frozenset(need for need, there in wanted.items() if there)

    def unjudged(self) -> str:
        """Why no judge can read the trained model's similarities; empty where one can."""
        return ""
