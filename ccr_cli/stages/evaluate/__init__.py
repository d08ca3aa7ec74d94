"""`ccr evaluate` and `ccr compare`: retrieval metrics, uncertainty and paired tests."""
