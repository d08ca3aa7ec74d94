"""A program that stands in for Apertium: it knows what a table holds, writes down what it is asked, and can be slow."""

from __future__ import annotations

import sys
from pathlib import Path

_PROGRAM = """#!{python} -IS
import sys, time
if "-z" in sys.argv:
    lines = open({table!r}, encoding="utf-8").read().split("\\n")[:-1]
    table = dict(line.split("\\t") for line in lines)
    texts = [t.removesuffix(".[]") for t in sys.stdin.buffer.read().decode().split("\\0")[:-1]]
    with open({asked!r}, "a", encoding="utf-8") as log:
        log.write("".join(text + "\\n" for text in texts))
    time.sleep({delay})
    sys.stdout.buffer.write("".join(table.get(text, "") + "\\0" for text in texts).encode())
else:
    print("eng-spa\\nspa-eng")
"""


class Engine:
    """The program `apertium` in a folder of its own; it translates both between English and Spanish.

    Args:
        folder: Where to put the program; to be first in PATH.
        delay: Seconds that every call takes.
    """

    def __init__(self, folder: Path, delay: float = 0.0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._table, self._asked = folder / "known.tsv", folder / "asked.txt"
        program = folder / "apertium"
        values = {"python": sys.executable, "table": str(self._table), "asked": str(self._asked), "delay": delay}
        program.write_text(_PROGRAM.format(**values))
        program.chmod(0o755)

    def knows(self, pairs: dict[str, str]) -> None:
        """Sets what it can translate; it fails on all else."""
        self._table.write_text("".join(f"{a}\t{b}\n" for a, b in pairs.items()), encoding="utf-8")

    def asked(self) -> list[str]:
        """What it has been asked, in order, as often as it was."""
        return self._asked.read_text(encoding="utf-8").splitlines() if self._asked.exists() else []

    def forget(self) -> None:
        """Begins a new list of what it is asked."""
        self._asked.unlink(missing_ok=True)
