"""Processes that share work: those of torchrun, where they cannot meet."""

from __future__ import annotations

import socket

import pytest

from ccr_cli.errors import UnavailableError
from ccr_cli.stages.shared.sharding import meeting


def test_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": taken.getsockname()[1]}
        for name, value in found.items():
            monkeypatch.setenv(name, str(value))
        with pytest.raises(UnavailableError, match="torchrun") as caught, meeting():
            pass
    assert "--master-port" in (caught.value.hint or "")
