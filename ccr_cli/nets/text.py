"""Text encoders: a batch of tokenised texts in, one vector a text out.

A batch is one flat vector of ids and the offsets where each text begins; for one vector a token, also where the
tokens begin.

Shape suffixes: B texts, N ids of the batch, W tokens of the batch, L tokens of the longest text, D dimension.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import torch
from torch import nn

from ccr_cli import hub
from ccr_cli.errors import UnavailableError
from ccr_cli.nets.ragged import masked_mean, pad_rows


class NgramTextEncoder(nn.Module):
    """The mean of a text's hashed n-gram embeddings (fastText), shared by all languages.

    Only the rows of a batch's own ids get a gradient; with ``sparse`` it is a sparse tensor, which a dense
    optimiser refuses: see ``nets.dual.parameter_groups``.
    """

    def __init__(self, buckets: int, dim: int, scale: float = 0.1, sparse: bool = True) -> None:
        """Make the table of embeddings.

        Args:
            buckets: the tokenizer's ``vocab_size``.
            dim: length of a vector.
            scale: standard deviation of the initial values. Vectors are compared by angle, so it sets how far
                one optimiser step of a given size turns them.
            sparse: keep the gradient sparse.
        """
        super().__init__()
        self.dim, self.buckets = dim, buckets
        self.bag = nn.EmbeddingBag(buckets, dim, mode="mean", include_last_offset=True, sparse=sparse)
        nn.init.normal_(self.bag.weight, std=scale)

    def forward(self, ids_N: torch.Tensor, offsets_B1: torch.Tensor) -> torch.Tensor:
        """Return (B, D), not normalised."""
        out_BD: torch.Tensor = self.bag(ids_N, offsets_B1)
        return out_BD

    def tokens(
        self, ids_N: torch.Tensor, offsets_B1: torch.Tensor, starts_N: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one vector a token, the mean of its n-grams, padded: (B, L, D) and a mask (B, L)."""
        begins_W = starts_N.nonzero().squeeze(1)
        token_WD = self.bag(ids_N, torch.cat([begins_W, offsets_B1[-1:]]))
        return pad_rows(token_WD, torch.searchsorted(begins_W, offsets_B1))

    def config(self) -> dict[str, Any]:
        """Return what ``text_encoder_from_config`` rebuilds the module from."""
        return {"kind": "ngram", "buckets": self.buckets, "dim": self.dim, "sparse": self.bag.sparse}


class TransformerTextEncoder(nn.Module):
    """Any transformers encoder with mean pooling over the tokens that exist.

    Padding is added inside, to the longest text of the batch, and neither attended to nor pooled, so a
    text's vector is the same alone and in any batch. Of an encoder-decoder model the encoder is used, of
    a text-and-image model the text tower.
    """

    def __init__(self, model: nn.Module) -> None:
        """Wrap a transformers model (its ``config`` is read)."""
        super().__init__()
        config: Any = model.config
        if getattr(config, "is_encoder_decoder", False):
            model = model.get_encoder()  # type: ignore[operator]
        elif hasattr(model, "text_model"):
            model = model.text_model  # type: ignore[assignment]
        text_config = getattr(config, "text_config", None) or config
        self.model = model
        self.dim = int(getattr(text_config, "hidden_size", None) or text_config.d_model)
        pad = getattr(text_config, "pad_token_id", None)
        self.pad_id = 0 if pad is None else int(pad)
        self._config: dict[str, Any] = config.to_dict()
        for part in ("pooler", "head"):  # a vector of the whole text by other means, which nothing here reads
            if (unread := getattr(model, part, None)) is not None:
                unread.requires_grad_(False)

    @property
    def longest(self) -> int | None:
        """Most tokens that its learned positions reach; None if it has none."""
        for name, table in self.model.named_modules():
            if "position_embedding" in name and isinstance(table, nn.Embedding):
                return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
        return None

    def forward(self, ids_N: torch.Tensor, offsets_B1: torch.Tensor) -> torch.Tensor:
        """Return (B, D), not normalised."""
        return masked_mean(*self.tokens(ids_N, offsets_B1))

    def tokens(
        self, ids_N: torch.Tensor, offsets_B1: torch.Tensor, starts_N: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one vector a token, padded: (B, L, D) and a mask (B, L); every id is a token."""
        ids_BL, mask_BL = pad_rows(ids_N, offsets_B1, self.pad_id)
        output: Any = self.model(input_ids=ids_BL, attention_mask=mask_BL.long())
        return output.last_hidden_state, mask_BL

    def freeze(self, layers: int) -> None:
        """Stop training the lowest `layers` layers, and what comes before them: the embeddings."""
        stack = max((part for part in self.model.modules() if isinstance(part, nn.ModuleList)), key=len)
        first = next(stack.parameters())
        for weight in takewhile(lambda weight: weight is not first, self.model.parameters()):
            weight.requires_grad_(False)
        for layer in stack[:layers]:
            layer.requires_grad_(False)

    def config(self) -> dict[str, Any]:
        """Return what ``text_encoder_from_config`` rebuilds the module from (weights not included)."""
        return {"kind": "transformers", "model": self._config}


class GivenTextEncoder(nn.Module):
    """Features that texts came with, looked up by number; they are saved with the model and never trained."""

    table_TD: torch.Tensor

    def __init__(self, table_TD: torch.Tensor) -> None:
        """Keep the features.

        Args:
            table_TD: one row a text.
        """
        super().__init__()
        self.register_buffer("table_TD", table_TD)
        self.dim = int(table_TD.shape[1])

    def forward(self, ids_N: torch.Tensor, offsets_B1: torch.Tensor) -> torch.Tensor:
        """Return (B, D), not normalised; every text is one id."""
        return self.table_TD[ids_N]

    def tokens(
        self, ids_N: torch.Tensor, offsets_B1: torch.Tensor, starts_N: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (B, 1, D) and a mask (B, 1): the feature is all that is known of a text."""
        return pad_rows(self.table_TD[ids_N], offsets_B1)

    def config(self) -> dict[str, Any]:
        """Return what ``text_encoder_from_config`` rebuilds the module from (the features not included)."""
        return {"kind": "given", "texts": len(self.table_TD), "dim": self.dim}


TextEncoder = NgramTextEncoder | TransformerTextEncoder | GivenTextEncoder


def build_text_encoder(
    name: str, *, buckets: int = 1 << 16, dim: int = 256, pretrained: bool = True, frozen_layers: int = 0
) -> NgramTextEncoder | TransformerTextEncoder:
    """Make a text encoder by name.

    Args:
        name: ``ngram``, or a transformers model on this machine (folder or cached hub name).
        buckets: size of the n-gram table (``ngram`` only).
        dim: dimension of the n-gram vectors (``ngram`` only).
        pretrained: load the model's weights; else only its architecture.
        frozen_layers: lowest layers of a transformers model that are not trained, embeddings with them; 0: none.

    Raises:
        ArtifactError: a folder of that name has no complete model.
        UnavailableError: the model is not on this machine or has no safetensors, or transformers is not installed.
    """
    if name == "ngram":
        return NgramTextEncoder(buckets, dim)
    auto_config, auto_model = _transformers(name)
    try:
        if not pretrained:
            settings = auto_config.from_pretrained(name, local_files_only=True)
            return TransformerTextEncoder(auto_model.from_config(settings))
        located = hub.find(name)
        if located is None:
            raise OSError("not in the hub's cache")
        folder = str(located.folder)
        encoder = TransformerTextEncoder(
            auto_model.from_pretrained(folder, local_files_only=True, use_safetensors=True)
        )
        if frozen_layers:
            encoder.freeze(frozen_layers)
        return encoder
    except (OSError, ValueError) as error:
        raise UnavailableError(f"no text encoder '{name}' on this machine", f"hf download {name}") from error


def text_encoder_from_config(config: dict[str, Any]) -> TextEncoder:
    """Rebuild the module that ``config()`` describes, with fresh weights and without any file.

    Raises:
        UnavailableError: transformers is needed and not installed.
    """
    if config["kind"] == "ngram":
        return NgramTextEncoder(int(config["buckets"]), int(config["dim"]), sparse=bool(config["sparse"]))
    if config["kind"] == "given":
        return GivenTextEncoder(torch.zeros(int(config["texts"]), int(config["dim"])))
    assert config["kind"] == "transformers", config["kind"]
    settings = dict(config["model"])
    model_type = settings.pop("model_type")
    auto_config, auto_model = _transformers(model_type)
    return TransformerTextEncoder(auto_model.from_config(auto_config.for_model(model_type, **settings)))


def _transformers(name: str) -> tuple[Any, Any]:
    try:
        from transformers import AutoConfig, AutoModel
    except ImportError as error:
        raise UnavailableError(
            f"text encoder '{name}' needs the package transformers", "pip install transformers"
        ) from error
    return AutoConfig, AutoModel
