"""Sharing work among processes: the parts of a schedule's array (`--shard 3/64`), or those that `torchrun` started."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from ccr_cli.errors import CcrError, UnavailableError, UsageError

T = TypeVar("T")
_PATIENCE = timedelta(days=30)
"""How long a process waits for the slowest; one that dies is noticed by `torchrun` at once."""


@dataclass(frozen=True)
class Part:
    """Which of the groups of work a worker takes."""

    number: int = 0
    of: int = 1

    def take(self, groups: list[T]) -> list[T]:
        """The worker's own groups."""
        return groups[self.number :: self.of]

    def __str__(self) -> str:
        return f"part {self.number + 1} of {self.of}"


def parse_part(shard: str) -> Part:
    """`3/64` is the third of 64.

    Raises:
        UsageError: If there is no such part, or `torchrun` shares the work already.
    """
    if rank_and_size()[1] > 1:
        raise UsageError("torchrun shares the work among its processes by itself", hint="leave --shard out")
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", shard)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError(
            f"--shard {shard}: there is no such part", hint="--shard 1/4 is the first of four, 4/4 the last"
        )
    return Part(int(found[1]) - 1, int(found[2]))


def on_ray(executor: str, parts: int | None, shard: str | None) -> bool:
    """Whether a Ray cluster is to do the work.

    Raises:
        UsageError: If there is no such executor, or other options say how the work is shared.
    """
    if executor not in ("local", "ray"):
        raise UsageError(f"--executor is local or ray, not {executor!r}")
    if executor == "local":
        if parts is not None:
            raise UsageError("--parts goes with --executor ray", hint="one part of many: --shard I/N")
        return False
    if shard is not None or rank_and_size()[1] > 1:
        other = "torchrun" if shard is None else "--shard"
        raise UsageError(f"{other} shares the work, and so does --executor ray", hint="one of the two")
    return True


def rank_and_size() -> tuple[int, int]:
    """This process's number and how many there are, as `torchrun` says in the environment; (0, 1) without it."""
    found = {name: os.environ.get(name, usual) for name, usual in (("RANK", "0"), ("WORLD_SIZE", "1"))}
    rank, size = (int(value) if value.isdecimal() else -1 for value in found.values())
    if not 0 <= rank < size:
        raise UsageError(f"the environment says {found}: there is no such rank", hint="unset RANK WORLD_SIZE")
    return rank, size


def own_device(device: str) -> str:
    """The GPU of this process, where `torchrun` started several on a machine."""
    import torch

    if device not in ("auto", "cuda") or not torch.cuda.is_available():
        return device
    return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"


@contextmanager
def joined(backend: str | None, patience: timedelta) -> Iterator[None]:
    """Joins the processes that `torchrun` started.

    Args:
        backend: Of torch.distributed; None: NCCL for what is on GPUs, gloo for the rest.
        patience: How long one waits for another.

    Raises:
        UsageError: If the environment is not `torchrun`'s.
        UnavailableError: If they do not find each other.
    """
    from torch import distributed

    try:
        distributed.init_process_group(backend, timeout=patience)
    except ValueError as error:  # RANK without MASTER_ADDR, or the like
        hint = "unset RANK WORLD_SIZE, or start it with torchrun"
        raise UsageError(f"the environment is not torchrun's: {error}", hint=hint) from None
    except RuntimeError as error:  # torch's own errors of the network: the port is taken, nobody answers
        first = str(error).strip().split("\n", 1)[0]
        hint = "torchrun --master-port N, or --standalone on one machine"
        raise UnavailableError(f"the processes of torchrun do not find each other: {first}", hint=hint) from None
    try:
        yield
    finally:
        distributed.destroy_process_group()


@contextmanager
def meeting() -> Iterator[Callable[[], None]]:
    """Joins the processes as `joined` does; yields what returns when all of them have called it."""
    from torch import distributed

    with joined("gloo", _PATIENCE):
        yield lambda: _wait(distributed.barrier)


def _wait(barrier: Callable[[], object]) -> None:
    try:
        barrier()
    except RuntimeError:  # gloo's, of a connection that is closed
        message = "another process of torchrun ended before its part was done; why, it says itself"
        raise CcrError(message, hint="the same command goes on: what succeeded is kept") from None
