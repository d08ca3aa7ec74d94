"""Results in words: what a signature says and what the numbers show."""
