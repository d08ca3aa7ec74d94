"""Frozen media encoders, one file a family, found by listing this folder."""
