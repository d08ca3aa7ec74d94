"""`ccr report` and `ccr show`: collect what the page, its tables and figures need."""
