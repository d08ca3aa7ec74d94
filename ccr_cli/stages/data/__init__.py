"""Import of collections, own files and ready-made features as dataset artifacts."""
