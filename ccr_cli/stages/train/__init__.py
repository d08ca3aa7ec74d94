"""`ccr train`: a dataset, a translation and features become a run."""
