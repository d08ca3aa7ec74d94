"""`ccr export`: a folder that works without ccr."""
