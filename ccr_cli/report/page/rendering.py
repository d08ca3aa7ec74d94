"""Renders the pages from their templates, style sheets and scripts, which lie in `templates/` and `static/`.

Whatever a template prints is escaped, and control characters in it are replaced.
"""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ccr_cli.console import escaped, plain
from ccr_cli.report.words.numbers import MISSING, likely

_FOLDER = Path(__file__).parent
POLICY = Markup("default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'")
"""Content security policy of a page without scripts."""


def static(*names: str) -> Markup:
    """Reads style sheets or scripts, one after the other, to stand in a page as they are."""
    return Markup("".join((_FOLDER / "static" / name).read_text(encoding="utf-8") for name in names))


def source_hash(source: str) -> str:
    """The source expression by which a policy allows one inline script or style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def script_json(value: object) -> Markup:
    """JSON for a `<script>` element, which nothing in it can end."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(re.sub("[<>&]", lambda match: f"\\u{ord(match[0]):04x}", escaped(text)))


def prose(value: object) -> str:
    """A sentence whose figures stay on one line with their unit and spread."""
    return re.sub(r"(?<=\d) (?=%)| (?=±)|(?<=±) ", "\u00a0", str(value))


def marked(text: str, spans: Sequence[tuple[int, int]]) -> Markup:
    """A text in which some spans, given by beginning and end in ascending order, are marked."""
    parts, done = Markup(), 0
    for first, last in spans:
        parts += Markup("{}<mark>{}</mark>").format(plain(text[done:first]), plain(text[first:last]))
        done = last
    return parts + plain(text[done:])


environment = Environment(
    loader=FileSystemLoader(_FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=lambda value: value if isinstance(value, Markup) else plain(str(value)),
    extensions=["jinja2.ext.do"],
)
environment.filters |= {"prose": prose, "likely": likely}
environment.globals["MISSING"] = MISSING


def served(name: str, title: str, *styles: str) -> tuple[str, str]:
    """A page that talks to the server it came from and to nobody else, and its content security policy.

    By that only its script and style sheet run, and only the server is reachable.
    """
    style, script = static("page.css", *styles), static("server_client.js", f"{name}.js")
    policy = (
        f"default-src 'none'; script-src {source_hash(script)}; style-src {source_hash(style)}; "
        "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return render(f"{name}.html.j2", title=title, style=style, script=script), policy


def render(template: str, **values: Any) -> str:
    """Renders a page."""
    return environment.get_template(template).render(policy=POLICY, **values)
