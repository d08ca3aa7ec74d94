"""Translation engines, one file each, found by listing this folder."""
