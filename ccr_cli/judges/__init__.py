"""Judges: the probability that each training pair matches, from similarities, texts or the truth."""
