"""The page of `ccr serve`: one HTML file that talks to the server it came from and to nobody else."""

from __future__ import annotations

from ccr_cli.report.page.rendering import render, source_hash, static

_STYLE, _SCRIPT = static("page.css", "search_page.css"), static("search_page.js")
POLICY = (
    f"default-src 'none'; script-src {source_hash(_SCRIPT)}; style-src {source_hash(_STYLE)}; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content security policy: only this script and this style sheet run, and only the server is reachable."""


def page() -> str:
    """The page; the same for every run."""
    return render("search_page.html.j2", title="Search", style=_STYLE, script=_SCRIPT)
