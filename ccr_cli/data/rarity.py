"""How much a collection says of the words of a text.

A word that no other item has is known from one pair alone: whether that pair matches, nothing else can tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ccr_cli.data.tokens import NgramTokenizer


def support(texts: Sequence[str], items: Sequence[int]) -> npt.NDArray[np.int32]:
    """Counts for each text the other items that share its best-known word.

    Words are as the n-gram tokenizer sees them; in Han, kana and hangul, pairs of characters.

    Args:
        texts: N texts in one language.
        items: The item of each.

    Returns:
        Shape (N,); 0 where no word of the text occurs with another item.
    """
    tokenizer = NgramTokenizer(ngram_min=3, ngram_max=2, cjk_max=2)  # whole words alone
    words_N = []
    seen: dict[str, set[int]] = defaultdict(set)
    for text, item in zip(texts, items, strict=True):
        features = tokenizer.features(text)
        words_N.append([f for f in features if len(f) > 1] or features)
        for word in words_N[-1]:
            seen[word].add(item)
    counts = [max((len(seen[word]) for word in words), default=1) - 1 for words in words_N]
    return np.array(counts, dtype=np.int32)
