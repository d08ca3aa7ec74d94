"""Queries made worse on purpose, to see whether uncertainty rises (TCL Figure 5)."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ccr_cli.metrics.scripts import has_spaces


def corrupt_texts(texts: Sequence[str], share: float, how: str, lang: str, seed: int = 0) -> list[str]:
    """Corrupts a share (0 to 1) of the words of every text; of the characters in languages without spaces.

    Of n words it is share * n, rounded up or down by chance so that the share is right on average. `drop` leaves words
    out, but never all; `replace` puts words drawn from all texts in their place; `shuffle` has those chosen change
    places.
    """
    spaced = has_spaces(lang)
    words = [text.split() if spaced else list("".join(text.split())) for text in texts]
    pool = [word for each in words for word in each]
    rng = np.random.default_rng(seed)
    out = []
    for each in words:
        number = int(share * len(each) + rng.random())
        at = np.sort(rng.permutation(len(each))[: min(number, len(each) - (how == "drop"))])
        kept = list(each)
        if how == "drop":
            kept = [word for place, word in enumerate(each) if place not in at]
        elif how == "replace":
            for place in at:
                kept[place] = pool[rng.integers(len(pool))]
        else:
            for place, source in zip(at, rng.permutation(at), strict=True):
                kept[place] = each[source]
        out.append((" " if spaced else "").join(kept))
    return out


def mask_features(rows_ND: Tensor, share: float) -> Tensor:
    """Sets a share of the entries of every row to 0, each with this chance; by a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    masked_ND = torch.rand(rows_ND.shape, generator=generator) < share
    return rows_ND.masked_fill(masked_ND.to(rows_ND.device), 0.0)
