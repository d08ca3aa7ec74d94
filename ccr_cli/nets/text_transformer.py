"""Text encoders of transformers: any model that reads tokens, or the text tower of a text-and-image model.

Where the model's type allows it, and pooling is not `own`, texts are not padded: every token goes through the model as
a text of its own, with its position as an input; only the attention pads texts to the longest one, and unpads them
again. Linear maps are nearly all of a text encoder's computation, so padding the attention costs next to nothing, and
the gradient of each weight is computed once per step. Other models get groups of texts of similar length, padded
together.

Shape suffixes: B texts of a batch or group, N ids of the batch, L ids of the longest, K distinct lengths, H heads, E
dimension of a head, D dimension.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from ccr_cli.errors import UsageError
from ccr_cli.nets.lora import Lora, add_lora, layers_of, merge_lora
from ccr_cli.nets.ragged import Places, TextPooling, Texts, pool_tokens

Ints = npt.NDArray[np.int64]
OVERHEAD_CPU = 24
"""Cost of one more group, in tokens: 17 for three layers of 768 with 30,000 pieces, more for a larger table."""
OVERHEAD_CUDA = 4096
"""The same on a GPU, estimated: twelve layers launch a thousand kernels, forward and backward, or 10 ms, in which such
a device computes several thousand tokens. So it makes few groups."""
_FROM_ZERO = {
    *("bert", "distilbert", "clip_text_model", "siglip_text_model", "siglip2_text_model", "chinese_clip_text_model")
}
_AFTER_PADDING = {"roberta", "xlm-roberta", "camembert", "altclip_text_model"}
"""Model types whose positions are an input, counted from 0 or from the padding id plus 1. All others are padded: T5 and
its kin, whose positions lie in the attention, and unknown types."""
_CAUSAL = {"clip_text_model"}
_OWN_POOLING: dict[str, TextPooling] = {
    **dict.fromkeys(("clip_text_model", "metaclip_2_text_model", "siglip_text_model"), "last"),
    **dict.fromkeys(("altclip_text_model", "chinese_clip_text_model"), "cls"),
}
"""The token whose projected state is the model's own text vector; without padding the last one ends the text."""
_T5 = {"t5", "mt5", "umt5"}
"""Model types that may lack a decoder without saying so. They take a mask of (B, 1, L, L) as it is; for one of (B, L),
transformers checks whether anything is padded, and has to wait for the device."""


class TransformerTextEncoder(nn.Module):
    """Any transformers encoder, with a pooling of its tokens.

    Padding is neither attended to nor pooled, so a text's vector is the same alone and in any batch. An
    encoder-decoder model contributes its encoder, a text-and-image model its text tower.

    Args:
        model: The model; its ``config`` is read.
        pooling: How a text's tokens become one vector; `own` is the model's own text vector.
        pad_id: The id to pad with; by default that of the model's configuration.
        pad_left: Whether padding that the model reads as text (SigLIP's) comes before the text.

    Raises:
        UsageError: `own` pooling of a model without a text vector of its own.
    """

    def __init__(
        self, model: nn.Module, pooling: TextPooling = "mean", pad_id: int | None = None, pad_left: bool = False
    ) -> None:
        super().__init__()
        config: Any = model.config
        self.pooling: TextPooling = pooling
        self.pad_left = pad_left
        self.lora: Lora | None = None
        self.projection: nn.Module | None = getattr(model, "text_projection", None) if pooling == "own" else None
        if getattr(config, "is_encoder_decoder", False) or config.model_type in _T5:
            model = model.get_encoder()  # type: ignore[operator]
        elif hasattr(model, "text_model"):
            model = model.text_model  # type: ignore[assignment]
        self.model: Any = model
        text_config: Any = model.config
        own_pad = getattr(text_config, "pad_token_id", None)
        self._configured_pad, self.pad_id = pad_id, next((int(p) for p in (pad_id, own_pad) if p is not None), 0)
        self._config: dict[str, Any] = config.to_dict()
        kind = str(text_config.model_type)
        self.packs = pooling != "own" and kind in _FROM_ZERO | _AFTER_PADDING
        self.width: int | None = None
        """Length to pad texts to if the model reads padding as text: SigLIP's own pooling takes the last position."""
        if pooling == "own" and kind.startswith("siglip"):
            self.width = int(text_config.max_position_embeddings)
        if pooling != "own":
            for part in ("pooler", "head"):  # they make the model's own text vector, which is not used here
                if (unread := getattr(model, part, None)) is not None:
                    unread.requires_grad_(False)
        self.token_dim, self.dim = self._widths()

    def _widths(self) -> tuple[int, int]:
        """Dimensions of a token's and of a text's vector, found by a trial run on one token."""
        training = self.model.training
        self.model.eval()
        with torch.no_grad():
            output = self.model(input_ids=torch.zeros(1, 1, dtype=torch.int64, device=next(self.parameters()).device))
            pooled = self._own(output) if self.pooling == "own" else output.last_hidden_state
        self.model.train(training)
        return int(output.last_hidden_state.shape[-1]), int(pooled.shape[-1])

    @property
    def longest(self) -> int | None:
        """Number of learned positions; None without any."""
        for name, table in self.model.named_modules():
            if "position_embedding" in name and isinstance(table, nn.Embedding):
                return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
        return None

    def forward(self, texts: Texts) -> Tensor:
        """Returns (B, D), not normalised."""
        if self.packs:
            return pool_tokens(*self.tokens(texts), self.pooling)
        groups, parts, own = self._groups(texts), [], self.pooling == "own"
        for rows in groups:
            output, mask_BL = self._padded(texts, rows)
            parts.append(self._own(output) if own else pool_tokens(output.last_hidden_state, mask_BL, self.pooling))
        return _in_order(parts, groups)

    def tokens(self, texts: Texts) -> tuple[Tensor, Tensor]:
        """Returns one vector per token, padded: (B, L, D) and a mask (B, L); every id is a token."""
        places = Places.of(texts.offsets_B1, len(texts.ids_N), int(texts.lengths_B.max()))
        if self.packs:
            return places.padded(self._packed(texts.ids_N, places)), places.mask_BL
        groups, parts = self._groups(texts), []
        for rows in groups:
            state_BLD = self._padded(texts, rows)[0].last_hidden_state
            parts.append(pad(state_BLD, (0, 0, 0, places.mask_BL.shape[1] - state_BLD.shape[1])))
        return _in_order(parts, groups), places.mask_BL

    def _groups(self, texts: Texts) -> list[Ints]:
        lengths_B = texts.lengths_B.numpy()
        if self.width is not None:
            return [np.arange(len(lengths_B))]
        return length_groups(lengths_B, OVERHEAD_CUDA if texts.ids_N.is_cuda else OVERHEAD_CPU)

    def _packed(self, ids_N: Tensor, places: Places) -> Tensor:
        """The last layer's state (N, D) of each token, without padding."""
        config = self.model.config
        first = config.pad_token_id + 1 if config.model_type in _AFTER_PADDING else 0
        with _packed_attention(config, places):
            output = self.model(input_ids=ids_N.unsqueeze(1), position_ids=(places.place_N + first).unsqueeze(1))
        state_ND: Tensor = output.last_hidden_state.squeeze(1)
        return state_ND

    def _padded(self, texts: Texts, rows_B: Ints) -> tuple[Any, Tensor]:
        """The model's output for some texts, padded on the right (or left, `pad_left`), and their mask (B, L)."""
        lengths_B = texts.lengths_B.numpy()[rows_B]
        width, device = self.width or int(lengths_B.max()), texts.ids_N.device
        row_B = torch.from_numpy(rows_B).to(device, non_blocking=True)
        begin_B1 = texts.offsets_B1[row_B].unsqueeze(1)
        column_L = torch.arange(width, device=device)
        length_B1 = texts.offsets_B1[row_B + 1].unsqueeze(1) - begin_B1
        place_BL = column_L - (width - length_B1 if self.pad_left else 0)
        mask_BL = (place_BL >= 0) & (place_BL < length_B1)
        ids_BL = texts.ids_N[(begin_B1 + place_BL).clamp(0, len(texts.ids_N) - 1)]
        ids_BL = torch.where(mask_BL, ids_BL, self.pad_id)
        if self.width is not None or lengths_B.min() == width:
            return self.model(input_ids=ids_BL), mask_BL
        attention_mask = mask_BL.long()
        if self.model.config.model_type in _T5:
            attention_mask = mask_BL[:, None, None, :].expand(-1, 1, width, -1)
        return self.model(input_ids=ids_BL, attention_mask=attention_mask), mask_BL

    def _own(self, output: Any) -> Tensor:
        """The model's own vector (B, D) of each text."""
        pooled_BD: Tensor | None = getattr(output, "pooler_output", None)
        if pooled_BD is None:
            if self.projection is None:
                problem = f"a model of type {self.model.config.model_type} gives no vector of a text by itself"
                raise UsageError(problem, hint="--set pooling=mean, cls, max or last")
            pooled_BD = output.last_hidden_state[:, 0]  # Chinese-CLIP has no pooler, and projects the first token
        return pooled_BD if self.projection is None else self.projection(pooled_BD)

    def own_layers(self) -> tuple[TextPooling, list[nn.Module]]:
        """Expresses the model's own text vector as a pooling of tokens and the layers after it, for an export.

        For SigLIP the tokens are those of a text padded to `width`.

        Raises:
            UsageError: The model makes its vector in another way.
        """
        kind = str(self.model.config.model_type)
        last = self.projection if self.projection is not None else getattr(self.model, "head", None)
        if kind not in _OWN_POOLING or not isinstance(last, nn.Linear):
            problem = f"the own vector (pooling=own) of a model of type {kind} cannot be exported"
            raise UsageError(problem, hint="train with --set pooling=cls, mean, max or last")
        layer = nn.Linear(last.in_features, last.out_features)
        with torch.no_grad():
            layer.weight.copy_(last.weight)
            layer.bias.zero_() if last.bias is None else layer.bias.copy_(last.bias)
        return _OWN_POOLING[kind], [layer]

    def freeze(self, layers: int) -> None:
        """Freezes the lowest `layers` layers and the embeddings before them.

        Raises:
            UsageError: There are fewer layers.
        """
        stack = layers_of(self.model)
        if layers > len(stack):
            raise UsageError(f"frozen_layers={layers}, and the text encoder has {len(stack)} layers")
        for weight in self.before_layers():
            weight.requires_grad_(False)
        for layer in stack[:layers]:
            layer.requires_grad_(False)

    def adapt(self, lora: Lora) -> None:
        """Adds adapters to the layers and freezes all other weights.

        Raises:
            UnavailableError: peft is not installed.
            UsageError: No layer is left for them.
        """
        if lora.first >= (count := len(layers_of(self.model))):
            problem = f"with frozen_layers={lora.first} of {count} layers none is left for adapters"
            raise UsageError(problem, hint="lora_rank freezes all weights but its adapters by itself")
        add_lora(self.model, lora)
        self.lora = lora
        if self.projection is not None:
            self.projection.requires_grad_(False)

    def before_layers(self) -> list[nn.Parameter]:
        """Weights below the lowest layer: the embeddings, and tables of relative positions."""
        layers = layers_of(self.model)
        within, first = {id(weight) for weight in layers.parameters()}, next(layers.parameters())
        below = list(takewhile(lambda weight: weight is not first, self.model.parameters()))
        known = within | {id(weight) for weight in below}
        tables = (part.weight for part in self.model.modules() if isinstance(part, nn.Embedding))
        return below + [weight for weight in tables if id(weight) not in known]

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compiles the model with torch.compile for batches of any size; its weights keep their names."""
        self.model.compile(dynamic=True)

    def merged(self) -> "TransformerTextEncoder":
        """Returns the encoder with its adapters merged into the weights; itself without adapters."""
        if self.lora is None:
            return self
        again = copy.deepcopy(self)
        merge_lora(again.model)
        again.lora = None
        return again

    def config(self) -> dict[str, Any]:
        """Returns the settings for ``text_encoder_from_config`` (without the weights)."""
        settings: dict[str, Any] = {"kind": "transformers", "model": self._config, "pooling": self.pooling}
        if self.lora is not None:
            settings["lora"] = self.lora.config()
        if self._configured_pad is not None:
            settings["pad_id"] = self._configured_pad
        if self.pad_left:
            settings["pad_left"] = True
        return settings


def _in_order(parts: list[Tensor], groups: list[Ints]) -> Tensor:
    """Joins the results of groups in the order of the texts."""
    if len(groups) == 1 and (np.diff(groups[0]) > 0).all():
        return parts[0]
    place_B = torch.from_numpy(np.argsort(np.concatenate(groups)))
    return torch.cat(parts).index_select(0, place_B.to(parts[0].device, non_blocking=True))


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
    """Attention of a packed model, called by transformers: states are (N, H, 1, E), the output is (N, 1, H, E)."""
    config: Any = module.config
    places, causal = config.packed_places, config.model_type in _CAUSAL
    q_BHLE, k_BHLE, v_BHLE = (places.padded(x.squeeze(2)).transpose(1, 2) for x in (query, key, value))
    mask = None if causal else places.mask_BL[:, None, None, :]  # padding comes after all that a token may attend to
    out_BHLE = scaled_dot_product_attention(
        q_BHLE, k_BHLE, v_BHLE, attn_mask=mask, dropout_p=dropout, scale=scaling, is_causal=causal
    )
    return places.taken(out_BHLE.transpose(1, 2)).unsqueeze(1), None


@contextmanager
def _packed_attention(config: Any, places: Places) -> Iterator[None]:
    """Makes a model use `attend`, which reads the places from the configuration: not all models pass arguments on."""
    from transformers import AttentionInterface

    AttentionInterface.register("ccr_packed", attend)
    before = config._attn_implementation
    config._attn_implementation, config.packed_places = "ccr_packed", places
    try:
        yield
    finally:
        config._attn_implementation = before
        del config.packed_places


def length_groups(lengths_B: Ints, overhead: int) -> list[Ints]:
    """Splits texts by length at the least cost: padded tokens, and `overhead` tokens per group.

    The best groups never split a length; dynamic programming over the distinct lengths finds them.

    Returns:
        Row numbers of the texts of each group, by rising length; texts of equal length keep their order.
    """
    if not len(lengths_B):
        return []
    order_B = np.argsort(lengths_B, kind="stable")
    length_K, count_K = np.unique(lengths_B, return_counts=True)
    before = np.concatenate([[0], np.cumsum(count_K)])
    least = np.zeros(len(length_K) + 1)
    cut = np.zeros(len(length_K) + 1, dtype=np.int64)
    for end in range(1, len(least)):
        cost = least[:end] + (before[end] - before[:end]) * length_K[end - 1] + overhead
        cut[end] = np.argmin(cost)
        least[end] = cost[cut[end]]
    parts, end = [], len(length_K)
    while end:
        parts.append(order_B[before[cut[end]] : before[end]])
        end = int(cut[end])
    return parts[::-1]
