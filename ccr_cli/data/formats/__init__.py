"""The official files of collections: a reader a file format."""
