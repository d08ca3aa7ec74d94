"""How well a data set covers the words of a text.

A word that no other item has occurs in one pair alone, so no other pair shows whether that pair matches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ccr_cli.data.tokens import NgramTokenizer


def support(texts: Sequence[str], items: Sequence[int]) -> npt.NDArray[np.int32]:
    """Counts for each text the other items that share its most frequent word.

    Words are those of the n-gram tokenizer; in Han, kana and hangul, pairs of characters.

    Args:
        texts: N texts in one language.
        items: The item of each text.

    Returns:
        Shape (N,); 0 if no word of the text occurs with another item.
    """
    tokenizer = NgramTokenizer(ngram_min=3, ngram_max=2, cjk_max=2)  # whole words only
    words_N = []
    items_of: dict[str, set[int]] = defaultdict(set)
    for text, item in zip(texts, items, strict=True):
        features = tokenizer.features(text)
        words_N.append([f for f in features if len(f) > 1] or features)
        for word in words_N[-1]:
            items_of[word].add(item)
    counts = [max((len(items_of[word]) for word in words), default=1) - 1 for words in words_N]
    return np.array(counts, dtype=np.int32)
