"""The options of every method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ccr_cli import registry
from ccr_cli.nets.ragged import TextPooling

Side = Literal["cross_lingual", "cross_modal", "both"]
Need = Literal["frames", "media", "back", "labels"]
Visual = Literal["projection", "transformer", "gpo"]


@dataclass(frozen=True)
class Config:
    """The options of every method; a method's own Config adds others."""

    epochs: int = 12
    """Passes over the training triplets."""
    batch_size: int = 128
    """Triplets per step."""
    accumulate: int = 1
    """Batches whose gradients are averaged for one step; negatives come from the same batch."""
    clip_norm: float = 0.0
    """Largest norm of the gradient over all weights; 0: unlimited."""
    lr: float = 1e-3
    """Peak learning rate (AdamW) of weights trained from scratch."""
    encoder_lr: float = 2e-5
    """Peak learning rate of the highest layer of a pretrained transformers encoder, of texts and, with `finetune`, of
    media."""
    layer_decay: float = 1.0
    """Factor of `encoder_lr` from one layer to the layer below."""
    lr_warmup: int = 0
    """Steps in which learning rates rise from zero."""
    lr_drop: int = 0
    """Epoch from which learning rates are a tenth; 0: they fall to zero along a cosine."""
    table_lr: float = 5e-3
    """Peak learning rate of the n-gram table: few steps update the row of a rare word."""
    weight_decay: float = 0.0
    """Decoupled weight decay (AdamW) of matrices, not of biases, norms and tables."""
    text_encoder: str = "ngram"
    """`ngram` (hashed words and character n-grams, from scratch), or a transformers encoder by folder or name; always
    `given` for a data set with features of its texts."""
    max_tokens: int = 64
    """Longest caption in tokens, for a transformers encoder."""
    pooling: TextPooling = "mean"
    """How the tokens of a transformers encoder become one vector: `mean`, `cls` (the first), `max`, `last`, `own` (the
    model's own vector of a text)."""
    frozen_layers: int = 0
    """Number of lowest layers of a transformers encoder that stay frozen, with its embeddings; 0 trains all."""
    lora_rank: int = 0
    """Rank of adapters (LoRA) in the other layers of a transformers encoder, whose weights stay frozen; 0: none."""
    lora_alpha: float = 0.0
    """Adapters are scaled by this divided by their rank; 0: twice the rank."""
    buckets: int = 32768
    """Rows of the n-gram table."""
    dim: int = 256
    """Dimension of the common space."""
    hidden: int = 0
    """Hidden units of the visual head; 0: a linear map."""
    dropout: float = 0.4
    """Dropout of the visual features."""
    visual: Visual = "projection"
    """How the rows of an item (frames, clips, regions) become one vector: `projection`, their mean before the visual
    head; after it `transformer`, or `gpo` (Generalized Pooling Operator)."""
    visual_layers: int = 2
    """Layers of the `transformer`."""
    visual_heads: int = 8
    """Attention heads of the `transformer`; must divide `dim`."""
    visual_drop: float = 0.2
    """Largest fraction of an item's rows that training drops at random; not with `projection`."""
    text_dropout: float = 0.2
    """Dropout of the text vectors."""
    finetune: bool = False
    """Also train the encoder of the features (`clip` or `vision`), end to end from the media."""
    visual_frozen_layers: int = 0
    """Number of lowest layers of that encoder that stay frozen, with everything before them; 0 trains all."""
    judge: str = "none"
    """The judge that decides which pairs are noisy: a file of judges/."""
    judge_side: Side = "cross_lingual"
    """The similarities that the judge reads: S-T, those with the picture, or both."""
    warmup_epochs: int = 1
    """Epochs in which every pair counts as clean, before the judge takes effect; the oracle needs no warm-up."""

    def __post_init__(self) -> None:
        """Raises ValueError if a value is out of range."""
        if min(self.epochs, self.dim, self.max_tokens, self.accumulate) < 1 or min(self.batch_size, self.buckets) < 2:
            raise ValueError("epochs, dim, accumulate and max_tokens >= 1, batch_size and buckets >= 2 are needed")
        if min(self.lr, self.encoder_lr, self.table_lr) <= 0 or not 0 < self.layer_decay <= 1:
            raise ValueError("lr > 0, encoder_lr > 0, table_lr > 0 and layer_decay in (0, 1] are needed")
        if self.lora_alpha and not self.lora_rank:
            raise ValueError("lora_alpha needs adapters: set lora_rank too, for example lora_rank=8")
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
        """The inputs of the method beyond one vector per item and captions in two languages.

        `frames` (every row of an item's features), `media` (pictures in place of features), `back` (back-translations),
        `labels` (the items' categories: the options then include `classes`, their number; 0 counts those of the data).
        """
        needs: dict[Need, bool] = {"frames": self.visual != "projection", "media": self.finetune}
        return frozenset(need for need, needed in needs.items() if needed)

    def unjudged(self) -> str:
        """Why no judge can read the trained model's similarities; empty if one can."""
        return ""
