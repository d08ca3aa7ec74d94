"""Text encoders: a batch of tokenised texts in, one vector per text out.

A batch is one flat vector of ids, the offsets where texts begin, and marks where tokens begin.

Shape suffixes: B texts, N ids of the batch, W tokens of the batch, L tokens of the longest text, D dimension.
"""

import inspect
from typing import Any

import torch
from torch import nn

from ccr_cli import hub
from ccr_cli.errors import UnavailableError, UsageError
from ccr_cli.nets.lora import Lora, targets_of
from ccr_cli.nets.mean_bag import MeanBag
from ccr_cli.nets.ragged import TextPooling, Texts, pad_rows
from ccr_cli.nets.text_transformer import TransformerTextEncoder as TransformerTextEncoder
from ccr_cli.transformers_loading import transformers_loading


class NgramTextEncoder(nn.Module):
    """The mean of a text's hashed n-gram embeddings (fastText), shared by all languages.

    Only the rows of a batch's own ids get a gradient; with ``sparse`` it is a sparse tensor, which a dense optimiser
    refuses. ``scale`` is the standard deviation of the initial values: vectors are compared by angle, so it sets how
    far one optimiser step of a certain size turns them.
    """

    def __init__(self, buckets: int, dim: int, scale: float = 0.1, sparse: bool = True) -> None:
        super().__init__()
        self.dim = self.token_dim = dim
        self.buckets = buckets
        self.bag = MeanBag(buckets, dim, sparse=sparse)
        nn.init.normal_(self.bag.weight, std=scale)

    def forward(self, texts: Texts) -> torch.Tensor:
        """Returns (B, D), not normalised."""
        out_BD: torch.Tensor = self.bag(texts.ids_N, texts.offsets_B1)
        return out_BD

    def tokens(self, texts: Texts) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns one vector per token, the mean of its n-grams, padded: (B, L, D) and a mask (B, L)."""
        begins_W = texts.starts_N.nonzero().squeeze(1)
        token_WD = self.bag(texts.ids_N, torch.cat([begins_W, texts.offsets_B1[-1:]]))
        return pad_rows(token_WD, torch.searchsorted(begins_W, texts.offsets_B1))

    def config(self) -> dict[str, Any]:
        """Returns the settings for ``text_encoder_from_config``."""
        return {"kind": "ngram", "buckets": self.buckets, "dim": self.dim, "sparse": self.bag.sparse}


class GivenTextEncoder(nn.Module):
    """Precomputed text features, one row per text, looked up by number; saved with the model and never trained."""

    table_TD: torch.Tensor

    def __init__(self, table_TD: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("table_TD", table_TD)
        self.dim = self.token_dim = int(table_TD.shape[1])

    def forward(self, texts: Texts) -> torch.Tensor:
        """Returns (B, D), not normalised; every text is one id."""
        return self.table_TD[texts.ids_N]

    def tokens(self, texts: Texts) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns (B, 1, D) and a mask (B, 1): the feature of each text as its only token."""
        return pad_rows(self.table_TD[texts.ids_N], texts.offsets_B1, longest=1)

    def config(self) -> dict[str, Any]:
        """Returns the settings for ``text_encoder_from_config`` (without the features)."""
        return {"kind": "given", "texts": len(self.table_TD), "dim": self.dim}


TextEncoder = NgramTextEncoder | TransformerTextEncoder | GivenTextEncoder


def build_text_encoder(
    name: str,
    *,
    buckets: int = 1 << 16,
    dim: int = 256,
    frozen_layers: int = 0,
    pooling: TextPooling = "mean",
    lora_rank: int = 0,
    lora_alpha: float = 0,
) -> NgramTextEncoder | TransformerTextEncoder:
    """Builds a text encoder by name: ``ngram``, or a transformers model on this machine (folder or cached hub name).

    The options are those of `methods.config.Config`; `dim` is that of the n-gram vectors.

    Raises:
        ArtifactError: a folder of that name has no complete model.
        UnavailableError: the model is not on this machine or has no safetensors, or a package is not installed.
        UsageError: the model reads no texts, has no text vector for `own` pooling, or has too few layers.
    """
    if name == "ngram":
        return NgramTextEncoder(buckets, dim)
    try:
        located = hub.find(name)
        if located is None:
            raise OSError("not in the hub's cache")
        place = str(located.folder)
        with transformers_loading():
            import transformers

            settings = transformers.AutoConfig.from_pretrained(place, local_files_only=True)
            kind, whole = _class_of(settings), torch.float32  # even for a checkpoint in half precision
            if "input_ids" not in inspect.signature(kind.forward).parameters:
                raise UsageError(f"{name} ({kind.__name__}) has no text side", hint="--set text_encoder=MODEL")
            model = kind.from_pretrained(place, local_files_only=True, use_safetensors=True, dtype=whole)
            pad_id, pad_left = None, False
            if pooling == "own" and settings.model_type.startswith("siglip"):  # it reads padding as text
                tokenizer = transformers.AutoTokenizer.from_pretrained(place, local_files_only=True)
                pad_id, pad_left = tokenizer.pad_token_id, tokenizer.padding_side == "left"
    except (OSError, ValueError) as error:
        raise UnavailableError(f"no text encoder '{name}' on this machine", f"hf download {name}") from error
    encoder = TransformerTextEncoder(model, pooling, pad_id, pad_left)
    if lora_rank:
        encoder.adapt(Lora(lora_rank, lora_alpha or 2 * lora_rank, targets_of(encoder.model), frozen_layers))
    elif frozen_layers:
        encoder.freeze(frozen_layers)
    return encoder


def text_encoder_from_config(config: dict[str, Any]) -> TextEncoder:
    """Rebuilds the module that ``config()`` describes, with fresh weights and without any file.

    Raises:
        UnavailableError: peft is needed and not installed.
    """
    if config["kind"] == "ngram":
        return NgramTextEncoder(int(config["buckets"]), int(config["dim"]), sparse=bool(config["sparse"]))
    if config["kind"] == "given":
        return GivenTextEncoder(torch.zeros(int(config["texts"]), int(config["dim"])))
    assert config["kind"] == "transformers", config["kind"]
    with transformers_loading():
        from transformers import AutoConfig
    made = AutoConfig.for_model(**config["model"])
    pooling, padding = config.get("pooling", "mean"), (config.get("pad_id"), config.get("pad_left", False))
    encoder = TransformerTextEncoder(_class_of(made)._from_config(made), pooling, *padding)
    if "lora" in config:
        lora = config["lora"]
        encoder.adapt(Lora(lora["rank"], lora["alpha"], tuple(lora["targets"]), lora["first"]))
    return encoder


def _class_of(settings: Any) -> Any:
    """The class of a model: that of `AutoModel`, or a text tower with its projection, which `AutoModel` omits."""
    import transformers

    named = (settings.architectures or [""])[0]
    if named.endswith("TextModelWithProjection"):
        return getattr(transformers, named)
    return transformers.MODEL_MAPPING[type(settings)]
