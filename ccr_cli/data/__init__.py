"""Batches, noise, splits, texts as tokens."""
