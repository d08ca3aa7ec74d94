"""What a table of translations has to do with a data set: how much of it is used, and of which splits it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ccr_cli.data.splits import SPLITS
from ccr_cli.translators.base import Translator


@dataclass(frozen=True)
class Coverage:
    """What a table answers of a data set's captions, whatever split is asked for."""

    table: Path
    lines: int
    used: int
    """Lines that are used: of two for one text one."""
    answered: dict[str, tuple[int, int]]
    """Captions that are answered, and all of them, by split."""

    def __str__(self) -> str:
        split = ", ".join(f"{n} of {of} captions of {name}" for name, (n, of) in self.answered.items())
        return f"of the {self.lines} lines of {self.table.name} {self.used} are used: it answers {split}"

    def hint(self, asked: str | None, max_failed: float) -> str:
        """What to do where too much failed."""
        if not self.used:
            return "is it for another data set? its sources are to be the captions as `ccr data show` has them"
        whole = [name for name, (n, of) in self.answered.items() if n >= (1 - max_failed) * of and name != asked]
        if whole and asked is None:
            return "; or ".join(f"--split {name}" for name in whole)
        if whole:
            return f"the table is for another split: --split {whole[0]}"
        return "complete the table and give the same command again, or raise --max-failed"


def coverage(engine: Translator, table: Path, captions: pd.DataFrame) -> Coverage:
    """Looks all captions of a data set up.

    Args:
        engine: `recorded`, set up for the source language and a table of the user's own.
        table: The file.
        captions: Source captions of all splits, with `text` and `split`.
    """
    texts = list(dict.fromkeys(captions["text"]))
    found = {texts[position] for position, result in engine.translate(texts) if result.text}
    known = captions["text"].isin(found)
    answered = {
        split: (int((known & of).sum()), int(of.sum())) for split in SPLITS if (of := captions["split"] == split).any()
    }
    return Coverage(table, _lines(table), len({text.strip() for text in found}), answered)


def _lines(table: Path) -> int:
    """How many translations are in the file: a TSV has a header."""
    lines = sum(1 for line in table.read_bytes().split(b"\n") if line.strip())
    headed = table.suffix != ".jsonl" and not table.name.endswith(".caption.txt")
    return max(lines - headed, 0)
