r"""The TSV of ccr's dataset format: UTF-8, LF, a header line, no quoting; `\t`, `\n`, `\r` and `\\` escaped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ccr_cli.errors import ArtifactError

_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_UNESCAPES = {v: k for k, v in _ESCAPES.items()}


def read_tsv(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Reads a table row by row.

    Args:
        path: The file.
        columns: The header that it must have.

    Yields:
        Line number (the header is line 1) and the fields.

    Raises:
        ArtifactError: With file and line, if the header, the number of fields, an escape or the encoding is wrong.
    """
    try:
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except FileNotFoundError:
        raise ArtifactError(f"{path} is missing") from None
    except UnicodeDecodeError as error:
        at = path.read_bytes()[: error.start].count(b"\n") + 1
        raise ArtifactError(f"{path}, line {at}: not UTF-8") from None
    if lines[-1] == "":
        lines.pop()
    header = lines[0].rstrip("\r").split("\t") if lines else []
    if header != list(columns):
        raise ArtifactError(
            f"{path}, line 1: the header is {', '.join(header)!r}, expected the columns {', '.join(columns)}",
            hint="columns are separated by tabs",
        )
    for number, line in enumerate(lines[1:], start=2):
        fields = line.rstrip("\r").split("\t")
        if len(fields) != len(columns):
            raise ArtifactError(f"{path}, line {number}: {len(fields)} fields, expected {len(columns)}")
        try:
            texts = [_unescape(field) for field in fields]
        except KeyError as error:
            hint = r"only \t, \n, \r and \\ are escapes; a backslash is written \\"
            raise ArtifactError(f"{path}, line {number}: unknown escape {error.args[0]}", hint=hint) from None
        yield number, texts


def write_tsv_line(fields: Sequence[str]) -> str:
    """Returns one line, escaped, with its line end."""
    return "\t".join(re.sub(r"[\\\t\n\r]", lambda m: _ESCAPES[m.group()], f) for f in fields) + "\n"


def _unescape(field: str) -> str:
    if "\\" not in field:
        return field
    return re.sub(r"\\.?", lambda m: _UNESCAPES[m.group()], field, flags=re.DOTALL)
