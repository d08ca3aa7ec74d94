"""Plug-ins for ccr: a method and a judge."""
