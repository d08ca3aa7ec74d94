"""Caption and translation are near to a sentence encoder; without training.

Any multilingual sentence encoder of transformers that ``sentence_encoder`` names; margins as in `metrics/margin.py`.
It has not learned from the pairs, so shuffled ones show where wrong ones lie, and the probability is that of
``lexical``.
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
        """Believes V-S, and the other sides as far as the captions are near."""
        p_N = clean_probability(*readings.margin())
        return Opinion(Belief(np.ones(len(readings)), p_N, p_N))


JUDGE = MarginJudge()
