"""Artifacts on disk: one module per kind, and what all kinds share."""
