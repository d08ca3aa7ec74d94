"""Write docs/api.md out of the docstrings of the Python API: python docs/api_page.py."""

from __future__ import annotations

import inspect
import re
import textwrap
from functools import cached_property
from pathlib import Path
from typing import Any

from ccr_cli import api, results

PAGE = Path(__file__).with_name("api.md")
PAGES = {
    "import_data": "data.md",
    "open_artifact": "pipeline.md",
    "list_plugins": "../CONTRIBUTING.md#package-a-plug-in",
}
"""The page on each function that has none of its own name."""


def page() -> str:
    """The whole page."""
    summary, code, points = re.split(r"\n\n(?=    import|- )", str(api.__doc__), maxsplit=2)
    parts = ["# Python API", f"{summary}\n\n```python\n{textwrap.dedent(code)}\n```", points]
    parts += ["`docs/api_page.py` makes this page from the docstrings.", "## Functions"]
    parts.append("\n".join(f"- [`{name}`]({PAGES.get(name, f'{name}.md')}): {_about(name)}" for name in names()))
    parts.append("## Results")
    for kind in vars(results).values():
        if inspect.isclass(kind) and kind.__module__ == results.__name__:
            parts.append("\n".join([f"`{kind.__name__}`: {kind.__doc__}", "", *_members(kind)]))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def names() -> list[str]:
    """The functions in the order of the pipeline."""
    return [*api.COMMANDS, *(name for name in api.__all__ if name not in api.COMMANDS)]


def _about(name: str) -> str:
    """The description of a function, and what it returns."""
    function = getattr(api, name)
    first, *more = re.split(r"\n\n(?:Raises|Keywords)", inspect.cleandoc(function.__doc__))[0].split("\n\n")
    text = more[0] if more else first  # what a command does is on its page
    return f"{' '.join(text.split())} → `{inspect.signature(function).return_annotation}`"


def _members(kind: type) -> list[str]:
    """An entry for each attribute and method that a class adds, with the first line of its docstring."""
    fields = re.findall(r'^    ([a-z]\w*): [^\n]+\n    """(.+?)"""', inspect.getsource(kind), re.M | re.S)
    found = [(name, " ".join(text.split())) for name, text in fields]
    for name, member in vars(kind).items():
        method = inspect.isfunction(member)
        if not name.startswith("_") and (method or isinstance(member, property | cached_property)):
            found.append((f"{name}{_arguments(member)}" if method else name, str(member.__doc__).split("\n")[0]))
    return [f"- `{name}`: {text}" for name, text in found]


def _arguments(method: Any) -> str:
    """The arguments of a method."""
    _, *parameters = inspect.signature(method).parameters.values()
    return f"({', '.join(str(each.replace(annotation=inspect.Parameter.empty)) for each in parameters)})"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
