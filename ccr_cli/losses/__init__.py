"""Losses: pure functions, tensors in, a tensor out."""
