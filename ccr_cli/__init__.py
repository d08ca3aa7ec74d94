"""ccr: cross-lingual cross-modal retrieval under noisy translation."""

__version__ = "0.1.0"
