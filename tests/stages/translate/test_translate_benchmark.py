"""benchmarks/translation_quality.py prints what it measured, and writes only where it is told to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import toy

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "results" / "translation_quality.json"


@pytest.mark.slow
def test_committed_results_are_written_only_when_asked(tmp_path: Path) -> None:
    before = RESULTS.read_bytes()
    command = [sys.executable, str(ROOT / "benchmarks" / "translation_quality.py"), str(tmp_path)]
    environment = toy.environment(tmp_path)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stdout)["rows"] == [], "nothing was measured in this call"
    assert RESULTS.read_bytes() == before
    out = tmp_path / "results.json"
    out.write_bytes(before)
    done = subprocess.run([*command, "--out", str(out)], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["rows"] == []
    assert json.loads(out.read_text())["rows"] == json.loads(before)["rows"], "rows that were not measured stay"
