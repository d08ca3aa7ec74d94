"""Frozen media encoders, one file per family, found by listing this folder."""
