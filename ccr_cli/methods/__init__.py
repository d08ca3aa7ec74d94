"""Training methods, one file each, listed from this folder."""
