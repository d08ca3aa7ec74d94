"""`ccr search`, `ccr index` and `ccr serve`: query a run's gallery."""
