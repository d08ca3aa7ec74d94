"""A program that stands in for Apertium: it knows what a table holds, writes down what it is asked, and can be slow."""

from __future__ import annotations

import sys
from pathlib import Path

_PROGRAM = """#!{python} -IS
import os, sys, time
if "-z" in sys.argv:
    lines = open({table!r}, encoding="utf-8").read().split("\\n")[:-1]
    table = dict(line.split("\\t") for line in lines)
    texts = [t.removesuffix(".[]") for t in sys.stdin.buffer.read().decode().split("\\0")[:-1]]
    with open({asked!r}, "a", encoding="utf-8") as log:
        log.write("".join(text + "\\n" for text in texts))
    while os.path.exists({held!r}) and texts[0] in open({held!r}, encoding="utf-8").read().split("\\n"):
        time.sleep(0.02)
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
        self._held, self._program = folder / "held.txt", folder / "apertium"
        self.takes(delay)

    def takes(self, delay: float) -> None:
        """Sets the seconds that every call takes from now on."""
        values = {"python": sys.executable, "table": str(self._table), "asked": str(self._asked), "delay": delay}
        values["held"] = str(self._held)
        program = self._program.with_suffix(".new")
        program.write_text(_PROGRAM.format(**values))
        program.chmod(0o755)
        program.replace(self._program)

    def holds(self, *texts: str) -> None:
        """Lets every call that begins with one of these texts wait until this is called again."""
        self._held.with_suffix(".new").write_text("\n".join(texts), encoding="utf-8")
        self._held.with_suffix(".new").replace(self._held)

    def knows(self, pairs: dict[str, str]) -> None:
        """Sets what it can translate; it fails on all else."""
        self._table.write_text("".join(f"{a}\t{b}\n" for a, b in pairs.items()), encoding="utf-8")

    def asked(self) -> list[str]:
        """What it has been asked, in order, as often as it was."""
        return self._asked.read_text(encoding="utf-8").splitlines() if self._asked.exists() else []

    def forget(self) -> None:
        """Begins a new list of what it is asked."""
        self._asked.unlink(missing_ok=True)
