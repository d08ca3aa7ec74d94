"""Similarity of caption and translation by a sentence encoder, without training.

Uses the multilingual sentence encoder of transformers that ``sentence_encoder`` names, and the margins of
`metrics/margin.py`. The encoder has not learned from the pairs, so shuffled pairs show where wrong ones lie, and the
probability is that of ``lexical``.
"""

import numpy as np

from ccr_cli.judges.base import Belief, Judge, Opinion, Readings
from ccr_cli.judges.lexical import clean_probability as clean_probability


class MarginJudge(Judge):
    """Judges the translations by a sentence encoder."""

    speaks = "start"
    mixture = True
    reads = frozenset({"sentence_encoder"})

    def judge(self, readings: Readings, side: str) -> Opinion:
        """Trusts V-S; the other sides get the probability from the margins."""
        p_N = clean_probability(*readings.margin())
        return Opinion(Belief(np.ones(len(readings)), p_N, p_N))


JUDGE = MarginJudge()
