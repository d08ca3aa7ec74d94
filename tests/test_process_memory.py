"""The memory of a process: its peak, its limit, and a system that tells neither."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ccr_cli import process_memory


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux has /proc")
def test_the_peak_is_that_of_the_kernel() -> None:
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert peak and process_memory.peak_mb() == pytest.approx(int(peak.group(1)) * 1024 / 1e6, rel=0.1)


LIMITED = """
from ccr_cli.process_memory import address_space, limit_address_space
limit_address_space(2 << 30)
assert address_space() == 2 << 30
try:
    bytes(3 << 30)
except MemoryError:
    print("refused")
"""
ELSEWHERE = """
import sys
sys.modules["resource"] = None  # as on Windows
from ccr_cli.cli import app
from ccr_cli.process_memory import address_space, limit_address_space, peak_mb
limit_address_space(1)
assert address_space() is None and peak_mb() == 0
app(["data", "list"])
"""


@pytest.mark.parametrize(("code", "printed"), [(LIMITED, "refused"), (ELSEWHERE, "noto-emoji")])
def test_in_a_process_of_its_own(code: str, printed: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and printed in done.stdout, done.stderr


def test_a_limit_that_the_system_refuses_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, where a process has reserved more than any limit."""
    asked = []

    def refuse(which: int, limits: tuple[int, int]) -> None:
        asked.append(limits[0])
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr("resource.setrlimit", refuse)
    process_memory.limit_address_space(2 << 30)
    assert asked == [2 << 30]
