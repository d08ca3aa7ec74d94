"""Agreement of caption and translation as texts: a filter before any training.

Reads round-trip chrF if there are back-translations, or else chrF against another engine's translation of the same
caption. ``two_group`` turns it into a probability, with the chrF of captions of different items as the null.
"""

import numpy as np

from ccr_cli.judges.base import Belief, Judge, Opinion, Readings
from ccr_cli.judges.two_group import clean_probability as clean_probability


class TextJudge(Judge):
    """Judges the translations by texts, without a model."""

    speaks = "start"
    mixture = True
    compares_texts = True

    def judge(self, readings: Readings, side: str) -> Opinion:
        """Trusts V-S; the other sides get the probability from the captions' agreement."""
        p_N = clean_probability(*readings.agreement())
        return Opinion(Belief(np.ones(len(readings)), p_N, p_N))


JUDGE = TextJudge()
