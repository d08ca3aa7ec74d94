"""Corruption of queries, to see whether uncertainty rises (TCL Figure 5), and of translations, as noise."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ccr_cli.metrics.scripts import has_spaces


def corrupt_texts(texts: Sequence[str], share: float, how: str, lang: str, seed: int = 0) -> list[str]:
    """Corrupts a share (0 to 1) of the words of every text; of the characters in languages without spaces.

    Of n words, share * n are corrupted, rounded up or down at random so that the share is right on average. `drop`
    removes words, but never all; `replace` replaces them with words drawn from all texts; `shuffle` permutes them.
    """
    spaced = has_spaces(lang)
    words = [text.split() if spaced else list("".join(text.split())) for text in texts]
    pool = [word for caption in words for word in caption]
    rng = np.random.default_rng(seed)
    out = []
    for caption in words:
        number = int(share * len(caption) + rng.random())
        at = np.sort(rng.permutation(len(caption))[: min(number, len(caption) - (how == "drop"))])
        kept = list(caption)
        if how == "drop":
            kept = [word for place, word in enumerate(caption) if place not in at]
        elif how == "replace":
            for place in at:
                kept[place] = pool[rng.integers(len(pool))]
        else:
            for place, source in zip(at, rng.permutation(at), strict=True):
                kept[place] = caption[source]
        out.append((" " if spaced else "").join(kept))
    return out


SHARE = 0.5
"""Share of a text's content words that `mix_words` changes, rounded; at least one word."""
SHORT = 3
"""Words of up to this many letters are not content words: in any language short words are frequent (Zipf)."""


def mix_words(text: str, other: str, lang: str, seed: int) -> str:
    """Makes a text partly wrong: content words are replaced by another text's, preceded by one of them, or dropped.

    The first chosen word is always replaced (dropped if the other text has no different word), so that something
    changes. In languages without spaces, a word is two characters. A text is unchanged only if dropping leaves no word.
    """
    spaced, rng = has_spaces(lang), np.random.default_rng(seed)
    own, others = (_words(caption, spaced) for caption in (text, other))
    known, content = {word.casefold() for word in own}, set(_content(own))
    pool = [word for word in _content(others) if word.casefold() not in known]
    at = [place for place, word in enumerate(own) if word in content]
    parts = [[word] for word in own]
    for number, place in enumerate(rng.permutation(at)[: max(1, int(SHARE * len(at) + 0.5))]):
        fresh = [pool[rng.integers(len(pool))]] if pool else []
        parts[place] = [fresh, [*fresh, own[place]], []][rng.integers(3) if number else 0]
    mixed = [word for part in parts for word in part]
    return (" " if spaced else "").join(mixed) or text


def _words(text: str, spaced: bool) -> list[str]:
    """The words of a text; pairs of characters where there are no spaces."""
    joined = "".join(text.split())
    return text.split() if spaced else [joined[i : i + 2] for i in range(0, len(joined), 2)]


def _content(words: list[str]) -> list[str]:
    """The longer words, or all if there are none."""
    return [word for word in words if sum(map(str.isalnum, word)) > SHORT] or words


def mask_features(rows_ND: Tensor, share: float) -> Tensor:
    """Sets each entry of the rows to 0 with probability `share`, by a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    masked_ND = torch.rand(rows_ND.shape, generator=generator) < share
    return rows_ND.masked_fill(masked_ND.to(rows_ND.device), 0.0)
