"""Transformers models without padding: all but the attention runs on the tokens that exist.

Every token goes through the model as a text of its own, with its position as an input; only the attention pads texts
to the longest one, and unpads them again. Linear maps are nearly all of a text encoder's computation, so padding there
costs next to nothing, and the gradient of each weight is computed once per step.

Shape suffixes: B texts, N tokens of all of them, L longest, H heads, E dimension of a head, D dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ccr_cli.nets.ragged import Places

NAME = "ccr_packed"
_FROM_ZERO = {
    *("bert", "distilbert", "clip_text_model", "siglip_text_model", "siglip2_text_model", "chinese_clip_text_model"),
}
_AFTER_PADDING = {"roberta", "xlm-roberta", "camembert", "altclip_text_model"}
"""Models whose positions are an input, counted from 0 or behind the number of the padding. Those of T5 and its kin
lie in the attention itself; other models are padded."""
_CAUSAL = {"clip_text_model"}


def packs(model_type: str) -> bool:
    """Whether models of a type can run packed."""
    return model_type in _FROM_ZERO | _AFTER_PADDING


def run(model: Any, ids_N: Tensor, places: Places) -> Tensor:
    """Runs a model of a type that packs.

    Args:
        model: It.
        ids_N: Ids of all tokens.
        places: Where each stands.

    Returns:
        The last layer's state (N, D) of each token.
    """
    kind, first = model.config.model_type, 0
    if kind in _AFTER_PADDING:
        first = model.config.pad_token_id + 1
    with _attention(model.config, places):
        output = model(input_ids=ids_N.unsqueeze(1), position_ids=(places.place_N + first).unsqueeze(1))
    state_ND: Tensor = output.last_hidden_state.squeeze(1)
    return state_ND


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention of a packed model, as transformers calls it: states are (N, H, 1, E), out (N, 1, H, E)."""
    config: Any = module.config
    places, causal = config.packed_places, config.model_type in _CAUSAL
    q_BHLE, k_BHLE, v_BHLE = (places.padded(x.squeeze(2)).transpose(1, 2) for x in (query, key, value))
    mask = None if causal else places.mask_BL[:, None, None, :]  # padding is behind what a token may look at
    out_BHLE = scaled_dot_product_attention(
        q_BHLE, k_BHLE, v_BHLE, attn_mask=mask, dropout_p=dropout, scale=scaling, is_causal=causal
    )
    return places.taken(out_BHLE.transpose(1, 2)).unsqueeze(1), None


@contextmanager
def _attention(config: Any, places: Places) -> Iterator[None]:
    """Makes a model use `attend`, which reads the places from the configuration: not all models pass arguments on."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend)
    before = config._attn_implementation
    config._attn_implementation, config.packed_places = NAME, places
    try:
        yield
    finally:
        config._attn_implementation = before
        del config.packed_places
