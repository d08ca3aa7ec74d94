"""Judges: similarities of the given pairs in, the probability that each pair matches out."""
