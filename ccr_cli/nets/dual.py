"""The dual encoder: pictures and texts of any language in one space of unit vectors.

Shape suffixes: B rows, V visual items, N rows of all items, D dimension.
"""

from torch import Tensor, nn
from torch.nn.functional import normalize

from ccr_cli.nets.heads import AlignedHead, Projection, Residual
from ccr_cli.nets.plain import Plain, Pool, Unit
from ccr_cli.nets.pooling import Pooling
from ccr_cli.nets.ragged import Rows, Texts, mean_rows
from ccr_cli.nets.text import TextEncoder, TransformerTextEncoder
from ccr_cli.nets.tower import VisualTower


class DualEncoder(nn.Module):
    """A visual head on features, and one text encoder for every language.

    With a `tower` the inputs are pictures instead of features. Normalisation to unit length happens here and nowhere
    else.

    Args:
        visual_head: maps features to D dimensions; an `AlignedHead` for features already in the common space.
        text_encoder: shared by all languages.
        text_head: maps the text encoder's output to D dimensions; None if it has D already.
        text_dropout: dropout probability of the text vectors' units.
        pooling: pools an item's rows after the head; None: the head maps their mean.
    """

    tower: VisualTower | None

    def __init__(
        self,
        visual_head: Projection | AlignedHead,
        text_encoder: TextEncoder,
        text_head: Projection | None = None,
        text_dropout: float = 0.0,
        pooling: Pooling | None = None,
    ) -> None:
        super().__init__()
        assert (text_head or text_encoder).dim == visual_head.dim, "the two sides differ in dimension"
        self.visual_head, self.text_encoder, self.text_head = visual_head, text_encoder, text_head
        self.text_dropout, self.pooling = nn.Dropout(text_dropout), pooling
        self.dim, self.tower = visual_head.dim, None

    def embed_visual(self, visual: Rows) -> Tensor:
        """Returns unit vectors (V, D) of visual items."""
        return normalize(self.pool_visual(visual), dim=-1)

    def see(self, visual: Rows) -> tuple[Tensor, Tensor]:
        """Returns features (N, D) and where those of each item begin; without a tower these are the inputs.

        With a tower, the rows are pictures (N, 3, H, W), and each gives one feature, or one per patch.
        """
        offsets_V1 = visual.offsets_V1
        if self.tower is None:
            return visual.rows_ND, offsets_V1
        output: Tensor = self.tower(visual.rows_ND)
        return (output, offsets_V1) if output.ndim == 2 else (output.flatten(0, 1), offsets_V1 * output.shape[1])

    def pool_visual(self, visual: Rows) -> Tensor:
        """Returns the vectors (V, D) of visual items before normalisation."""
        rows_ND, offsets_V1 = self.see(visual)
        if self.pooling is None:
            out_VD: Tensor = self.visual_head(mean_rows(rows_ND, offsets_V1))
        else:
            out_VD = self.pooling(self.visual_head(rows_ND), offsets_V1)
        return out_VD

    def embed_text(self, texts: Texts) -> Tensor:
        """Returns unit vectors (B, D) of texts."""
        return normalize(self.pool_text(texts), dim=-1)

    def pool_text(self, texts: Texts) -> Tensor:
        """Returns the vectors (B, D) of texts before normalisation."""
        out_BD = self.text_encoder(texts)
        if self.text_head is not None:
            out_BD = self.text_head(out_BD)
        dropped_BD: Tensor = self.text_dropout(out_BD)
        return dropped_BD

    def plain(self) -> Plain:
        """Returns the model as plain layers for inference."""
        text = () if self.text_head is None else tuple(self.text_head.layers)
        head = tuple(layer.linear() if isinstance(layer, Residual) else layer for layer in self.visual_head.layers)
        visual = (Pool(), *head, Unit()) if self.pooling is None else (*head, self.pooling, Unit())
        encoder = self.text_encoder
        if not isinstance(encoder, TransformerTextEncoder):
            return Plain(encoder, (Pool(), *text, Unit()), visual)
        merged, pooling, own = encoder.merged(), encoder.pooling, list[nn.Module]()
        if pooling == "own":
            pooling, own = merged.own_layers()
        return Plain(merged, (Pool(pooling), *own, *text, Unit()), visual)
