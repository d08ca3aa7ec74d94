"""ccr: cross-lingual cross-modal retrieval under noisy translation."""

from __future__ import annotations

__version__ = "0.1.0"
