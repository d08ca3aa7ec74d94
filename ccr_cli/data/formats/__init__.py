"""Readers of caption files, one per file format."""
