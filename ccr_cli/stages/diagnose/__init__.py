"""`ccr diagnose`: find the training pairs that a model considers mismatched."""
