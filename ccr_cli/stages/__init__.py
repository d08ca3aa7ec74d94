"""The pipeline as plain functions: artifacts in, one artifact out."""
