"""Text encoders: a batch of tokenised texts in, one vector a text out.

A batch is one flat vector of ids and the offsets where each text begins.

Shape suffixes: B texts, N ids of the batch, L longest text, D dimension.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ccr_cli import hub
from ccr_cli.errors import UnavailableError


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

    def forward(self, ids_N: torch.Tensor, offsets_B1: torch.Tensor) -> torch.Tensor:
        """Return (B, D), not normalised."""
        ids_BL, mask_BL = pad_tokens(ids_N, offsets_B1, self.pad_id)
        output: Any = self.model(input_ids=ids_BL, attention_mask=mask_BL.long())
        hidden_BLD: torch.Tensor = output.last_hidden_state
        weight_BL1 = mask_BL.unsqueeze(-1).to(hidden_BLD.dtype)
        return (hidden_BLD * weight_BL1).sum(1) / weight_BL1.sum(1)

    def config(self) -> dict[str, Any]:
        """Return what ``text_encoder_from_config`` rebuilds the module from (weights not included)."""
        return {"kind": "transformers", "model": self._config}


def pad_tokens(ids_N: torch.Tensor, offsets_B1: torch.Tensor, pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn flat ids into a matrix, padded on the right.

    Returns:
        int64 ids (B, L) and a bool mask (B, L) that is true on real tokens.
    """
    lengths_B = offsets_B1.diff()
    width = int(lengths_B.max()) if len(lengths_B) else 0
    columns_L = torch.arange(width, device=lengths_B.device)
    mask_BL = columns_L < lengths_B.unsqueeze(1)
    ids_BL = torch.full(mask_BL.shape, pad_id, dtype=torch.int64, device=lengths_B.device)
    ids_BL[mask_BL] = ids_N  # both run text by text
    return ids_BL, mask_BL


def build_text_encoder(
    name: str, *, buckets: int = 1 << 16, dim: int = 256, pretrained: bool = True
) -> NgramTextEncoder | TransformerTextEncoder:
    """Make a text encoder by name.

    Args:
        name: ``ngram``, or a transformers model on this machine (folder or cached hub name).
        buckets: size of the n-gram table (``ngram`` only).
        dim: dimension of the n-gram vectors (``ngram`` only).
        pretrained: load the model's weights; else only its architecture.

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
        return TransformerTextEncoder(auto_model.from_pretrained(folder, local_files_only=True, use_safetensors=True))
    except (OSError, ValueError) as error:
        raise UnavailableError(f"no text encoder '{name}' on this machine", f"hf download {name}") from error


def text_encoder_from_config(config: dict[str, Any]) -> NgramTextEncoder | TransformerTextEncoder:
    """Rebuild the module that ``config()`` describes, with fresh weights and without any file.

    Raises:
        UnavailableError: transformers is needed and not installed.
    """
    if config["kind"] == "ngram":
        return NgramTextEncoder(int(config["buckets"]), int(config["dim"]), sparse=bool(config["sparse"]))
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
