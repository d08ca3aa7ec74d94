"""Whether the two captions of a training triplet agree, from texts alone: no model, no training.

Shape suffixes: N triplets, M shuffled pairs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ccr_cli.errors import ArtifactError
from ccr_cli.metrics.mtscores import round_trip_chrf
from ccr_cli.stages.shared.triplets import Triplets

Array = npt.NDArray[np.float64]
SHUFFLED = 4000


def agreement(triplets: Triplets, seed: int) -> tuple[Array, Array]:
    """Sentence chrF of every triplet's two captions, and of captions of different items.

    The given translation, put back into the source language, is compared with the given source caption; without
    back-translations, a second engine's translation of the given source caption with the given translation.

    Args:
        triplets: The training triplets.
        seed: Of the shuffle.

    Returns:
        chrF (N,) of the triplets, and (M,) of shuffled ones, 0..100.

    Raises:
        ArtifactError: If there are neither back-translations nor a second translation.
    """
    if triplets.back is not None:
        said, meant = triplets.back, triplets.source
    elif triplets.second is not None:
        said, meant = triplets.target, triplets.second
    else:
        languages = " ".join(f"--lang {lang}" for lang in triplets.langs)
        raise ArtifactError(
            "judge translation compares texts, and there is nothing to compare the translations with",
            hint=f"ccr translate {languages} --back, or name a second engine's translation of the same captions too",
        )
    order = np.random.default_rng(seed).permutation(len(triplets))[:SHUFFLED]
    other = np.roll(order, 1)
    items = triplets.item_N.cpu().numpy()
    apart = items[order] != items[other]
    null, _, _ = round_trip_chrf([meant[i] for i in order[apart]], [said[i] for i in other[apart]])
    return round_trip_chrf(meant, said)[0], null
