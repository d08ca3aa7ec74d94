"""The stage of `ccr review`."""
