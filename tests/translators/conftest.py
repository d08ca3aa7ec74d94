"""Tiny models of every family, trained once."""

from __future__ import annotations

from pathlib import Path

import pytest
import tinymt


@pytest.fixture(scope="session")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tinymt.marian(tmp_path_factory.mktemp("models") / "opus-mt-tiny")


@pytest.fixture(scope="session")
def m2m100(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tinymt.m2m100(tmp_path_factory.mktemp("models") / "m2m100-tiny")


@pytest.fixture(scope="session")
def nllb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tinymt.nllb(tmp_path_factory.mktemp("models") / "nllb-tiny")


@pytest.fixture(scope="session")
def madlad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tinymt.t5(tmp_path_factory.mktemp("models") / "madlad-tiny")


@pytest.fixture(params=["marian", "m2m100", "nllb", "madlad"])
def model(request: pytest.FixtureRequest) -> Path:
    """Each family in turn."""
    found: Path = request.getfixturevalue(request.param)
    return found
