"""A dual encoder as a sequence of plain layers, which can be described and applied without ccr.

Shape suffixes: B rows of a batch, L tokens of the longest text, D dimension.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, normalize, scaled_dot_product_attention

from ccr_cli.nets.attention import SequenceEncoder, positions
from ccr_cli.nets.pooling import RANK_TEMPERATURE, FrameTransformer, GeneralizedPooling
from ccr_cli.nets.ragged import TextPooling, masked_mean, pool_tokens
from ccr_cli.nets.text import TextEncoder, TransformerTextEncoder


class Pool(nn.Module):
    """Pools rows into one vector: a text's tokens (n-grams in the n-gram encoder), or frames."""

    def __init__(self, how: TextPooling = "mean") -> None:
        super().__init__()
        self.how: TextPooling = how


class Block(nn.Module):
    """Pools rows into one vector by a Transformer block and the map after it, both in `encoder`.

    With `keeps_lone_row` a single row skips both block and map.
    """

    def __init__(self, encoder: SequenceEncoder, keeps_lone_row: bool) -> None:
        super().__init__()
        self.encoder, self.keeps_lone_row = encoder, keeps_lone_row


class Unit(nn.Module):
    """Scales vectors to unit length."""

    def forward(self, x_BD: Tensor) -> Tensor:
        """Returns unit vectors (B, D)."""
        return normalize(x_BD, dim=-1)


@dataclass(frozen=True)
class Plain:
    """A dual encoder whose two sides are sequences of layers.

    `Pool`, `Block` or a `Pooling` pools the rows into one vector; the other layers map each row, or that vector.

    It is the model at inference, so there is no dropout.
    """

    text_encoder: TextEncoder
    """Turns a text into rows."""
    text: tuple[nn.Module, ...]
    visual: tuple[nn.Module, ...]
    """Layers applied to an item's features; `text` has those applied to the rows of a text."""

    @property
    def dim(self) -> int:
        """Length of a vector."""
        maps = [layer for layer in self.visual if isinstance(layer, nn.Linear | Block)]
        if not maps:  # the features are in the space of the texts
            return self.text_encoder.dim
        last = maps[-1].encoder.linear if isinstance(maps[-1], Block) else maps[-1]
        return int(last.out_features)


WORDS = {
    "mean": "the mean row",
    "cls": "the first row",
    "max": "the greatest value of each column",
    "last": "the last row",
    "layer_norm": "x minus its mean, divided by the square root of its variance + eps",
    "linear": "x @ weight.T + bias",
    "relu": "the greater of x and 0",
    "leaky_relu": "x where it is above 0, else slope * x",
    "gelu": "x * P(z < x) for a standard normal z",
    "unit": "x divided by its Euclidean length",
    "frames": "as block, but with layers of attention and feed_forward one after the other (blocks.0 and so on), and "
    "without a map; x is added to what comes out of each row; the mean row",
    "gpo": "in each column the values in descending order; the sum of rank_weight * value. rank_weight of n rows: a "
    "GRU reads the positions (as in block, 32 long) of the ranks 0 to n - 1 in both directions; the mean of its two "
    "states @ linear, divided by temperature; softmax over the ranks",
    "block": "x as layer_norm does it (eps 1e-5) + position_scale * positions; scaled dot-product attention of all "
    "rows among themselves (query, key, value, out); attention_norm of the sum; feed_forward of that, gelu between; "
    "norm of the sum; the mean row; map. Positions: sin and cos, by turns, of row / 10000^(2 i / D). With lone_row "
    "'kept' a single row stays as it is",
}
"""The operation of each layer on a row x, or on all rows at once; `described` names the tensors."""


def described(layers: Sequence[nn.Module]) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """Describes layers as JSON values; also returns their tensors, by the names used there.

    Batch normalisation is folded into the linear map before it.
    """
    steps: list[dict[str, Any]] = []
    tensors: dict[str, Tensor] = {}
    for layer in layers:
        if isinstance(layer, nn.Dropout):
            continue
        name = str(len(steps))
        step: dict[str, Any] = {"layer": layer.how if isinstance(layer, Pool) else _KINDS[type(layer)]}
        match layer:
            case nn.Linear():
                step |= {"weight": f"{name}.weight", "bias": f"{name}.bias"}
                step |= {"in": layer.in_features, "out": layer.out_features}
            case nn.LayerNorm():
                assert not layer.elementwise_affine, "no layer of ccr has weights there"
                step["eps"] = layer.eps
            case nn.LeakyReLU():
                step["slope"] = layer.negative_slope
            case nn.GELU():
                assert layer.approximate == "none", "no layer of ccr approximates it"
            case FrameTransformer():
                step |= {"tensors": f"{name}.", "layers": len(layer.blocks), "heads": layer.heads}
                step["position_scale"] = layer.position_scale.item()
            case GeneralizedPooling():
                step |= {"tensors": f"{name}.", "temperature": RANK_TEMPERATURE}
            case Block():
                encoder = layer.encoder
                step |= {"tensors": f"{name}.", "heads": encoder.block.heads}
                step |= {"position_scale": encoder.position_scale.item()}
                step |= {"lone_row": "kept" if layer.keeps_lone_row else "as any other"}
                step |= {"in": encoder.linear.in_features, "out": encoder.linear.out_features}
        state = _block_tensors(layer.encoder) if isinstance(layer, Block) else layer.state_dict()
        tensors |= {f"{name}.{part}": tensor for part, tensor in state.items()}
        steps.append({**step, "does": WORDS[step["layer"]]})
    return steps, {name: tensor.detach().cpu().float().contiguous() for name, tensor in tensors.items()}


_KINDS: dict[type[nn.Module], str] = {
    Block: "block",
    FrameTransformer: "frames",
    GeneralizedPooling: "gpo",
    Unit: "unit",
    nn.Linear: "linear",
    nn.LayerNorm: "layer_norm",
    nn.ReLU: "relu",
    nn.LeakyReLU: "leaky_relu",
    nn.GELU: "gelu",
}


def _block_tensors(encoder: SequenceEncoder) -> dict[str, Tensor]:
    norm = encoder.batch_norm
    assert norm.running_mean is not None and norm.running_var is not None
    scale_D = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    folded = {
        "map.weight": encoder.linear.weight * scale_D[:, None],
        "map.bias": norm.bias - norm.running_mean * scale_D,
    }
    return {**encoder.block.state_dict(), **folded}


def _over_padding(encoder: SequenceEncoder, x_BLD: Tensor, mask_BL: Tensor) -> Tensor:
    """The encoder's output in evaluation mode, computed on padded rows: ONNX needs shapes known beforehand."""
    block, (_, length, dim) = encoder.block, x_BLD.shape
    x_BLD = layer_norm(x_BLD, (dim,)) + encoder.position_scale * positions(length, dim, x_BLD.device)
    parts = (block.query, block.key, block.value)
    q_BHLD, k_BHLD, v_BHLD = (p(x_BLD).unflatten(2, (block.heads, -1)).transpose(1, 2) for p in parts)
    read_BHLD = scaled_dot_product_attention(q_BHLD, k_BHLD, v_BHLD, attn_mask=mask_BL[:, None, None, :])
    y_BLD = block.attention_norm(x_BLD + block.out(read_BHLD.transpose(1, 2).flatten(2)))
    y_BLD = block.norm(y_BLD + block.feed_forward(y_BLD))
    out_BD: Tensor = encoder.batch_norm(encoder.linear(masked_mean(y_BLD, mask_BL)))
    return out_BD


class PlainText(nn.Module):
    """The text side of a dual encoder whose text encoder is a transformers model, from padded ids to vectors."""

    def __init__(self, plain: Plain) -> None:
        super().__init__()
        assert isinstance(plain.text_encoder, TransformerTextEncoder), "no other has padded ids"
        self.model = plain.text_encoder.model
        self.layers = nn.ModuleList(plain.text)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Returns (B, D); ids and mask are (B, L)."""
        x: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        for layer in self.layers:
            if isinstance(layer, Pool):
                x = pool_tokens(x, attention_mask.bool(), layer.how)
            elif isinstance(layer, Block):
                x = _over_padding(layer.encoder, x, attention_mask.bool())
            else:
                x = layer(x)
        return x
