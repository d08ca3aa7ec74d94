r"""The TSV of ccr's dataset format: UTF-8, LF, a header line, no quoting; `\t`, `\n`, `\r` and `\\` escaped."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ccr_cli.data.formats.base import lines
from ccr_cli.errors import ArtifactError

_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_UNESCAPES = {v: k for k, v in _ESCAPES.items()}


def read_tsv(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields the line number (the header, which must name these columns, is line 1) and the fields of every row.

    Raises:
        ArtifactError: With file and line, if the header, the number of fields, an escape or the encoding is wrong.
    """
    rows = ((number, line.split("\t")) for number, line in lines(path, nul=True))
    _, header = next(rows, (1, []))
    if header != list(columns):
        raise ArtifactError(
            f"{path}, line 1: the header is {', '.join(header)!r}, expected the columns {', '.join(columns)}",
            hint="columns are separated by tabs",
        )
    for number, fields in rows:
        if len(fields) != len(columns):
            raise ArtifactError(f"{path}, line {number}: {len(fields)} fields, expected {len(columns)}")
        try:
            texts = [re.sub(r"\\.?", lambda m: _UNESCAPES[m.group()], f) if "\\" in f else f for f in fields]
        except KeyError as error:
            hint = r"only \t, \n, \r and \\ are escapes; a backslash is written \\"
            raise ArtifactError(f"{path}, line {number}: unknown escape {error.args[0]}", hint=hint) from None
        yield number, texts


def write_tsv_line(fields: Sequence[str]) -> str:
    """Returns one line, escaped, with its line end."""
    return "\t".join(re.sub(r"[\\\t\n\r]", lambda m: _ESCAPES[m.group()], f) for f in fields) + "\n"
