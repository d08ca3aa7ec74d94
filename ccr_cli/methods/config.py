"""The options of every method, with their ranges."""

import itertools
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

from ccr_cli import registry
from ccr_cli.judges.config import JudgeConfig
from ccr_cli.losses.evidential import LEAST_TAU
from ccr_cli.nets.ragged import TextPooling

Side = Literal["cross_lingual", "cross_modal", "both"]
Need = Literal["frames", "media", "back", "labels", "teacher"]
Visual = Literal["projection", "transformer", "gpo"]
Head = Literal["linear", "identity", "residual"]


ALIGNED: dict[str, Any] = {"dropout": 0.0, "text_dropout": 0.0, "hidden": 0, "visual": "projection"}
"""Defaults of a run that starts from an alignment; `dim` follows from the features."""
ALIGNED_TEXTS: dict[str, Any] = {"pooling": "own", "max_tokens": 0}
"""Defaults of the text encoder of such a run, which also follows from the features."""


class Range(NamedTuple):
    """Allowed values of a numeric option; `Config` refuses others."""

    text: str
    least: float = -math.inf
    most: float = math.inf
    excluded: tuple[float, ...] = ()


Count = Annotated[int, Range(">= 1", 1)]
Pairs = Annotated[int, Range(">= 2", 2)]
NotNegative = Annotated[float, Range(">= 0", 0)]
Positive = Annotated[float, Range("> 0", 0, excluded=(0,))]
Share = Annotated[float, Range("in [0, 1]", 0, 1)]
Dropped = Annotated[float, Range("in [0, 1)", 0, 1, (1,))]
Whole = Annotated[int, Range(">= 0", 0)]
LeastTau = Annotated[float, Range(f">= {LEAST_TAU}", LEAST_TAU)]


def equal_rates(lr: float) -> dict[str, object]:
    """Settings of a preset: one learning rate (`lr` and others) for all weights, as papers have it."""
    return {"lr": lr, "table_lr": lr, "encoder_lr": lr}


@dataclass(frozen=True)
class Config(JudgeConfig):
    """The options of every method; a method's own Config adds others, and like its `PRESETS` may change defaults."""

    epochs: Whole = 12
    """Passes over the training triplets; 0: only with an aligned `head`."""
    batch_size: Pairs = 128
    """Triplets per step."""
    accumulate: Count = 1
    """Batches whose gradients are averaged for one step; negatives come from a single batch."""
    clip_norm: NotNegative = 0.0
    """Maximum norm of the gradient over all weights; 0: unlimited."""
    lr: Positive = 1e-3
    """Peak learning rate (AdamW) of weights trained from scratch."""
    encoder_lr: Positive = 2e-5
    """Peak learning rate of the top layer of a pretrained transformers encoder, for texts and, with `finetune`, for
    media."""
    layer_decay: Annotated[float, Range("in (0, 1]", 0, 1, (0,))] = 1.0
    """Factor on `encoder_lr` from each layer to the one below."""
    lr_warmup: Whole = 0
    """Steps over which learning rates rise from zero."""
    lr_drop: Whole = 0
    """Epoch from which learning rates are a tenth of their peak; 0: cosine decay to zero."""
    table_lr: Positive = 5e-3
    """Peak learning rate of the n-gram table: few steps update the row of a rare word."""
    weight_decay: NotNegative = 0.0
    """Decoupled weight decay (AdamW) of matrices, not of biases, norms and tables."""
    text_encoder: str = "ngram"
    """`ngram` (hashed words and character n-grams, from scratch), or a transformers encoder by folder or name; always
    `given` for a data set with features of its texts."""
    max_tokens: Whole = 64
    """Maximum length of a caption in tokens, for a transformers encoder; 0: as many as the model reads."""
    pooling: TextPooling = "mean"
    """How the tokens of a transformers encoder become one vector: `mean`, `cls` (the first), `max`, `last`, `own` (the
    model's own vector of a text)."""
    frozen_layers: Whole = 0
    """Number of lowest layers of a transformers encoder to freeze, with its embeddings; 0 trains all."""
    lora_rank: Whole = 0
    """Rank of adapters (LoRA) in the other layers of a transformers encoder, whose weights stay frozen; 0: none."""
    lora_alpha: NotNegative = 0.0
    """Scale of the adapters, before division by their rank; 0: twice the rank."""
    buckets: Pairs = 32768
    """Rows of the n-gram table."""
    dim: Count = 256
    """Dimension of the common space."""
    head: Head = "linear"
    """The visual head: `linear`, a new map; `identity` (no map) or `residual` (x + W x, W = 0 at first) to start from
    the alignment of the dual encoder that made the features, whose text side is then the text encoder."""
    hidden: Whole = 0
    """Hidden units of the visual head; 0: a linear map."""
    dropout: Dropped = 0.4
    """Dropout of the visual features."""
    visual: Visual = "projection"
    """How the rows of an item (frames, clips, regions) become one vector: `projection`, their mean before the visual
    head; `transformer` or `gpo` (Generalized Pooling Operator), after it."""
    visual_layers: Count = 2
    """Layers of the `transformer`."""
    visual_heads: Count = 8
    """Attention heads of the `transformer`; must divide `dim`."""
    visual_drop: Dropped = 0.2
    """Largest fraction of an item's rows that training drops at random; not with `projection`."""
    text_dropout: Dropped = 0.2
    """Dropout of the text vectors."""
    finetune: bool = False
    """Also train the encoder of the features (`clip` or `vision`), end to end on the media."""
    visual_frozen_layers: Whole = 0
    """With `finetune`, number of lowest layers to freeze, with everything before them; 0 trains all."""
    judge: str = "none"
    """The judge that decides which pairs are noisy: a file of judges/."""
    judge_side: Side = "cross_lingual"
    """Similarities that the judge reads: `cross_lingual` (S-T), `cross_modal` (V-S and V-T), or `both`."""
    warmup_epochs: Whole = 1
    """Epochs in which every pair counts as clean, before the judge takes effect; the oracle needs no warm-up."""
    drop_below: Share = 0.0
    """Probability of being clean below which a pair has weight 0 and is no rival of others; 0 drops none."""

    def __post_init__(self) -> None:
        hints = [get_type_hints(owner, include_extras=True).items() for owner in type(self).__mro__]
        for name, hint in itertools.chain(*hints):  # base classes too: a field with a new default keeps its range
            for allowed in getattr(hint, "__metadata__", ()):
                value: Any = getattr(self, name)
                if not allowed.least <= value <= allowed.most or value in allowed.excluded:
                    raise ValueError(f"{name} {allowed.text} is needed, not {value}")
        if self.lora_alpha and not self.lora_rank:
            raise ValueError("lora_alpha needs adapters: set lora_rank too, for example lora_rank=8")
        if not self.epochs and not self.aligned:
            raise ValueError("epochs >= 1 is needed, not 0: a new head is random before training")
        if self.aligned and (reason := self.unaligned()):
            raise ValueError(f"head={self.head} is not possible: {reason}")
        if self.visual == "transformer" and self.dim % self.visual_heads:
            raise ValueError(f"visual_heads must divide dim, and {self.visual_heads} does not divide {self.dim}")
        if not registry.has("judges", self.judge):
            raise ValueError(f"no judge {self.judge!r}; judges: {', '.join(registry.names('judges'))}")
        if self.judge != "none" and self.unjudged():
            raise ValueError(f"judge={self.judge} cannot judge: {self.unjudged()}")

    def needs(self) -> frozenset[Need]:
        """The inputs of the method beyond one vector per item and captions in two languages.

        `frames` (every row of an item's features), `media` (pictures in place of features), `back` (back-translations),
        `labels` (the items' categories: the options then include `classes`, their number; 0 counts those of the data),
        `teacher` (vectors of the source captions by a frozen model, which the option `teacher` names).
        """
        needs: dict[Need, bool] = {"frames": self.visual != "projection", "media": self.finetune}
        return frozenset(need for need, needed in needs.items() if needed)

    @property
    def aligned(self) -> bool:
        """Whether the run starts from the alignment of the model that made the features."""
        return self.head != "linear"

    def unaligned(self) -> str:
        """Why the method needs heads of its own; empty if it does not."""
        return ""

    def unjudged(self) -> str:
        """Why no judge can read the trained model's similarities; empty if one can."""
        return ""
