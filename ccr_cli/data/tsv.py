r"""The TSV of ccr's dataset format: UTF-8, LF, a header line, no quoting; `\t`, `\n`, `\r` and `\\` escaped."""

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from ccr_cli.data.formats.base import lines
from ccr_cli.errors import ArtifactError

_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_UNESCAPES = {v: k for k, v in _ESCAPES.items()}


def read_tsv(path: Path, columns: Sequence[str], optional: Collection[str] = ()) -> Iterator[tuple[int, list[str]]]:
    """Yields the line number and the fields of every row; the header, line 1, must name these columns.

    The header may leave out optional columns; their fields are then empty.

    Raises:
        ArtifactError: With file and line, if the header, the number of fields, an escape or the encoding is wrong.
    """
    rows = ((number, line.split("\t")) for number, line in lines(path, nul=True))
    _, header = next(rows, (1, []))
    present = [column for column in columns if column in header or column not in optional]
    if header != present:
        expected = ", ".join(f"[{column}]" if column in optional else column for column in columns)
        problem = f"{path}, line 1: the header is {', '.join(header)!r}, expected the columns {expected}"
        hint = "columns are separated by tabs" + "; those in brackets may be missing" * bool(optional)
        raise ArtifactError(problem, hint=hint)
    for number, fields in rows:
        if len(fields) != len(present):
            raise ArtifactError(f"{path}, line {number}: {len(fields)} fields, expected {len(present)}")
        try:
            texts = [re.sub(r"\\.?", lambda m: _UNESCAPES[m.group()], f) if "\\" in f else f for f in fields]
        except KeyError as error:
            hint = r"only \t, \n, \r and \\ are escapes; a backslash is written \\"
            raise ArtifactError(f"{path}, line {number}: unknown escape {error.args[0]}", hint=hint) from None
        yield number, [texts[present.index(column)] if column in present else "" for column in columns]


def write_tsv_line(fields: Sequence[str]) -> str:
    """Returns one line, escaped, with its line end."""
    return "\t".join(re.sub(r"[\\\t\n\r]", lambda m: _ESCAPES[m.group()], f) for f in fields) + "\n"
