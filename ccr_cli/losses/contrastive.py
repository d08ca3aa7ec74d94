"""InfoNCE: symmetric softmax cross-entropy over the batch, with row weights."""

from torch import Tensor

from ccr_cli.losses.masks import both_directions, kept_B, masked_log_softmax_BK, taking_part, weighted_mean
from ccr_cli.losses.precision import check_positive, full_precision


@full_precision
def infonce(
    sim_BB: Tensor, temperature: float | Tensor = 0.07, mask_BB: Tensor | None = None, weight_B: Tensor | None = None
) -> Tensor:
    """Mean of the visual-to-text and text-to-visual cross-entropies, each a weighted mean over its rows.

    A temperature given as a tensor gets a gradient. Weighted by a judge that knows the truth, this is the oracle: the
    loss of the batch without its mismatched pairs.
    """
    if not isinstance(temperature, Tensor):
        check_positive("temperature", temperature)
    mask_BB, weight_B = taking_part(sim_BB, mask_BB, weight_B)

    def cross_entropy(logits_BB: Tensor, mask_BB: Tensor) -> Tensor:
        loss_B = -masked_log_softmax_BK(logits_BB, mask_BB).diagonal()
        return weighted_mean(loss_B, kept_B(weight_B, mask_BB))

    return both_directions(cross_entropy, sim_BB / temperature, mask_BB) / 2
