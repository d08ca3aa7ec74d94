"""Whether the texts alone agree: the filter before any training.

Round-trip chrF where there are back-translations, or the chrF of another engine's translation of the same caption;
``two_group`` turns it into a probability, since the chrF of captions that do not belong together is known.
"""

from __future__ import annotations

from ccr_cli.judges.base import Scope
from ccr_cli.judges.two_group import clean_probability

SCOPE: Scope = "text"

__all__ = ["SCOPE", "clean_probability"]
