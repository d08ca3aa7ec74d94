"""Training methods, one file each, found by listing this folder."""
