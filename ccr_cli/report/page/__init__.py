"""The report's HTML page and the other pages that ccr writes."""
