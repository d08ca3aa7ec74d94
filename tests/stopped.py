"""A training that is stopped whenever it saves its state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import toy

from ccr_cli.artifacts.base import Artifact
from ccr_cli.stages.train import loop
from ccr_cli.stages.train.state import load_state


def train(*command: str, workspace: Path) -> tuple[Artifact, list[dict[str, Any]]]:
    """Trains to the end, and again with a stop at every state; the run, the same bytes both times, and the states."""
    whole = toy.ok(*command, "--name", "whole", workspace=workspace).made
    rename = os.replace
    states: list[dict[str, Any]] = []

    def stops(source: Path, target: Path) -> None:
        rename(source, target)
        if Path(target).name == "state.json":
            state = load_state(Path(target).parent)
            assert state is not None
            states.append(state)
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "SAVE_SECONDS", 0.0)
        patch.setattr(os, "replace", stops)
        while (outcome := toy.ccr(*command, "--name", "again", workspace=workspace)).code != 0:
            assert outcome.code == 130
    assert outcome.made.files == whole.files
    return whole, states
