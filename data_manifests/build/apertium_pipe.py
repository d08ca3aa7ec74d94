r"""Run Apertium over many short sentences at once without letting them touch each other.

Apertium reads running text: a line end is no sentence end to it, so with a sentence a line it moves words
across lines (``grinning face`` before ``fire engine`` becomes ``grinning Motor``). A blank line ends one.
Sentences are therefore separated by blank lines. Between Spanish and English that gives what a process for each
sentence gives; in the steps to and from Catalan and French about one sentence in a hundred still takes another
word because of its neighbours, so a table is repeated exactly only when it is translated as a whole.
Apertium's own deformatter escapes what is special to it (``[ ] { } ^ $ / \ @ < >``).
"""

from __future__ import annotations

import re
import subprocess

_BLANK_LINES = re.compile(r"\n\n+")


def command(mode: str) -> list[str]:
    """Return the command line of one step; ``-u`` leaves out the mark before unknown words."""
    return ["apertium", "-u", mode]


def translate(sentences: list[str], modes: list[str]) -> list[str]:
    """Translate through one mode after the other, one process a step.

    Args:
        sentences: Each without a line break and not empty.
        modes: As ``apertium -l`` lists them, e.g. ``["eng-cat", "cat-fra"]``.

    Returns:
        One translation a sentence.

    Raises:
        RuntimeError: A step printed fewer or more sentences than it was given.
    """
    for mode in modes:
        sentences = _step(sentences, mode)
    return sentences


def _step(sentences: list[str], mode: str) -> list[str]:
    if any(not sentence.strip() or "\n" in sentence for sentence in sentences):
        raise ValueError("a sentence is empty or has a line break")
    done = subprocess.run(
        command(mode), input="\n\n".join(sentences) + "\n", capture_output=True, encoding="utf-8", check=True
    )
    found = [re.sub(r"\s+", " ", block).strip() for block in _BLANK_LINES.split(done.stdout.strip("\n"))]
    if len(found) != len(sentences) or not all(found):
        raise RuntimeError(f"{mode}: {len(sentences)} sentences in, {len(found)} out")
    return found
