"""What is on disk: one file per kind, and what all kinds share."""
