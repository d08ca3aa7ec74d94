"""A table of captions in an Excel workbook."""

from __future__ import annotations

import io
import shlex
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ccr_cli.artifacts.base import refuse_special
from ccr_cli.data.formats.base import LARGEST_JSON, MOST_UNPACKED, Record, caption_format
from ccr_cli.data.formats.captions_csv import records
from ccr_cli.errors import ArtifactError, require_packages

if TYPE_CHECKING:
    from openpyxl import Workbook

SMALL_WORKBOOK = 2**26
"""A workbook may unpack to this many bytes, or to `MOST_UNPACKED` times its size, but at most to `LARGEST_JSON`."""


@caption_format
def excel(
    path: Path,
    *,
    sheet: str = "",
    columns: Sequence[str] = (),
    header: Mapping[str, str] | None = None,
    texts: Mapping[str, str] | None = None,
    header_line: int = 1,
) -> Iterator[Record]:
    """Reads captions from a sheet of a workbook (`.xlsx`) with the columns of `captions_csv`.

    Options:
        sheet: Name of the sheet; the first by default.
        columns: Names of the columns of a sheet without a header, in order; "" for a column to skip.
        header: The file's own column names, as for captions-csv.
        texts: Several columns of texts with their languages, as for captions-csv.
        header_line: Line of the header; those above it are skipped.
    """
    yield from records(path, sheet_rows(path, sheet, header_line), columns, header, texts)


def sheet_names(path: Path) -> list[str]:
    """Returns the names of a workbook's sheets, in order."""
    with _opened(path) as book:
        return [sheet.title for sheet in book.worksheets]


@contextmanager
def _opened(path: Path) -> Iterator[Workbook]:
    require_packages(f"the Excel file {path}", "excel", "openpyxl")
    import openpyxl

    try:
        with refuse_special(path).open("rb") as file:
            with zipfile.ZipFile(file) as archive:
                most = min(LARGEST_JSON, max(SMALL_WORKBOOK, MOST_UNPACKED * path.stat().st_size))
                if sum(entry.file_size for entry in archive.infolist()) > most:
                    raise ArtifactError(f"{path} is too large for a workbook", hint="save it as CSV (UTF-8)")
            yield openpyxl.load_workbook(file, read_only=True, data_only=True)
    except FileNotFoundError:
        raise ArtifactError(f"there is no {path}") from None
    except (ArtifactError, PermissionError, MemoryError):  # not of a wrong format, or explained already
        raise
    except Exception as error:  # a damaged part can make the reader raise anything
        problem = f"{path} is not an Excel workbook: {error}"
        raise ArtifactError(problem, hint="save it as .xlsx, or as CSV") from None


def sheet_rows(path: Path, sheet: str = "", header_line: int = 1) -> Iterator[tuple[int, list[str]]]:
    """Yields the number (from 1) and the cells of every non-empty row of a sheet."""
    with _opened(path) as book:
        if sheet and sheet not in book.sheetnames:
            raise ArtifactError(f"{path} has no sheet {sheet!r}", hint=f"--set sheet={shlex.quote(book.sheetnames[0])}")
        if not book.worksheets:
            raise ArtifactError(f"{path} has no sheet")
        table = book[sheet] if sheet else book.worksheets[0]
        table.reset_dimensions()  # some programs write wrong ones
        width = 0
        for number, row in enumerate(table.iter_rows(values_only=True), 1):
            cells = ["" if cell is None else _text(cell) for cell in row]
            while cells and not cells[-1]:
                cells.pop()
            if cells and number >= header_line:
                width = width or len(cells)
                yield number, cells + [""] * (width - len(cells))


def workbook(rows: Sequence[Sequence[object]], sentences: Collection[str] = ()) -> bytes:
    """Returns a workbook of one sheet with these rows; the first, the header, is frozen and has filters.

    Columns named in `sentences` are wide and wrap their text; the others are as wide as their cells, up to a limit.
    """
    import openpyxl
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import Alignment
    from openpyxl.utils import get_column_letter

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    sheet.freeze_panes = "A2"
    sheet.auto_filter.ref = f"A1:{get_column_letter(len(rows[0]))}{len(rows)}"
    wraps = [name in sentences for name in rows[0]]
    for number, (column, wrap) in enumerate(zip(zip(*rows, strict=True), wraps, strict=True), 1):
        widest = max(len(cell) if isinstance(cell, str) else NUMBER_WIDTH for cell in column)
        width = SENTENCE_WIDTH if wrap else min(MOST_WIDTH, widest + 4)
        sheet.column_dimensions[get_column_letter(number)].width = width
    alignment = Alignment(wrap_text=True, vertical="top")

    def filled(cell: object, wrap: bool) -> object:
        value = cell if isinstance(cell, str | int) else float(str(cell))
        if not wrap:
            return value
        styled = WriteOnlyCell(sheet, value)
        styled.alignment = alignment
        return styled

    for row in rows:
        sheet.append([filled(cell, wrap) for cell, wrap in zip(row, wraps, strict=True)])
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


SENTENCE_WIDTH, MOST_WIDTH, NUMBER_WIDTH = 45, 24, 8
"""Widths in characters: of columns of sentences, of the widest other column (ids are cut), and of numbers."""


def _text(cell: object) -> str:
    """Returns a cell as Excel shows it: a whole number without decimals."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
