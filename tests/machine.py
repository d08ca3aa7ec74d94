"""What a test may need of the machine beyond Python, and why it is skipped where that is missing.

`@pytest.mark.needs("apertium")` skips a test, with the reason, where something is missing. `pytest -m needs` runs
the tests that need something: `.ci/run` does so after it has installed the system packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DATA = Path(os.environ.get("CCR_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
"""Official files of collections, which may not be shipped."""
MODES = {"eng-spa", "eng-cat", "cat-fra"}


@cache
def missing(need: str) -> str:
    """Why a need is not met here; empty if it is.

    Args:
        need: `apertium`, `chromium`, or `data/` and a path below the folder of official files.
    """
    if need == "apertium":
        return "" if apertium_modes() >= MODES else f"apertium with {', '.join(sorted(MODES))} is not installed"
    if need == "chromium":
        return "" if CHROMIUM else "chromium is not installed"
    if need.startswith("data/"):
        path = DATA / need.removeprefix("data/")
        return "" if path.exists() else f"{path} does not exist; set CCR_TEST_DATA to the folder of official files"
    raise ValueError(f"unknown need {need!r}")


def apertium_modes() -> set[str]:
    """The pairs of languages that Apertium translates here."""
    if shutil.which("apertium") is None:
        return set()
    return set(subprocess.run(["apertium", "-l"], capture_output=True, text=True).stdout.split())
