"""Sharing work between processes: parts of a job array (`--shard 3/64`), or the processes of `torchrun`."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from ccr_cli.errors import CcrError, UnavailableError, UsageError

T = TypeVar("T")
_PATIENCE = timedelta(days=30)
"""How long a process waits for the slowest; `torchrun` itself notices one that dies."""


@dataclass(frozen=True)
class WorkPart:
    """One part of the work: every `of`-th group, from number `number`."""

    number: int = 0
    of: int = 1

    def take(self, groups: Sequence[T]) -> list[T]:
        """Returns the groups of this part."""
        return list(groups[self.number :: self.of])

    def __str__(self) -> str:
        return f"part {self.number + 1} of {self.of}"


def parse_part(shard: str) -> WorkPart:
    """Parses a part such as `3/64`, the third of 64; UsageError if invalid, or under `torchrun`."""
    if rank_and_size()[1] > 1:
        raise UsageError("torchrun already shares the work between its processes", hint="leave --shard out")
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", shard)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"invalid --shard {shard}", hint="--shard 1/4 is the first of four parts, 4/4 the last")
    return WorkPart(int(match[1]) - 1, int(match[2]))


def on_ray(executor: str, parts: int | None, shard: str | None) -> bool:
    """Returns whether a Ray cluster does the work; UsageError on an unknown executor, or options that do not fit it."""
    if executor not in ("local", "ray"):
        raise UsageError(f"--executor is local or ray, not {executor!r}")
    if executor == "local":
        if parts is not None:
            raise UsageError("--parts goes with --executor ray", hint="one part of many: --shard I/N")
        return False
    if shard is not None or rank_and_size()[1] > 1:
        other = "torchrun" if shard is None else "--shard"
        raise UsageError(f"{other} and --executor ray both share the work", hint="use one of the two")
    return True


def rank_and_size() -> tuple[int, int]:
    """Returns this process's rank and the number of processes, as `torchrun` sets them; (0, 1) without `torchrun`."""
    variables = {"RANK": os.environ.get("RANK", "0"), "WORLD_SIZE": os.environ.get("WORLD_SIZE", "1")}
    rank, size = (int(value) if value.isdecimal() else -1 for value in variables.values())
    if not 0 <= rank < size:
        raise UsageError(f"invalid rank in the environment: {variables}", hint="unset RANK WORLD_SIZE")
    return rank, size


def own_device(device: str) -> str:
    """Returns this process's own GPU (by local rank) for `auto` and `cuda` if there are GPUs, else `device` itself."""
    import torch

    if device not in ("auto", "cuda") or not torch.cuda.is_available():
        return device
    return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"


@contextmanager
def joined(backend: str | None, patience: timedelta) -> Iterator[None]:
    """Connects the processes of `torchrun`; each waits for the others for up to `patience`.

    The default backend is NCCL for tensors on GPUs and gloo for the rest.

    Raises:
        UsageError: If the environment was not set by `torchrun`.
        UnavailableError: If the processes cannot connect.
    """
    from torch import distributed

    try:
        distributed.init_process_group(backend, timeout=patience)
    except ValueError as error:  # RANK without MASTER_ADDR, or the like
        hint = "unset RANK WORLD_SIZE, or start it with torchrun"
        raise UsageError(f"the environment was not set by torchrun: {error}", hint=hint) from None
    except RuntimeError as error:  # torch's network errors: the port is taken, nobody answers
        first = str(error).strip().split("\n", 1)[0]
        hint = "torchrun --master-port N, or --standalone on one machine"
        raise UnavailableError(f"the processes of torchrun cannot connect: {first}", hint=hint) from None
    try:
        yield
    finally:
        distributed.destroy_process_group()


@contextmanager
def meeting() -> Iterator[Callable[[], None]]:
    """Connects the processes as `joined` does; yields a function that returns when all of them have called it."""
    from torch import distributed

    with joined("gloo", _PATIENCE):

        def wait() -> None:
            try:
                distributed.barrier()
            except RuntimeError:  # gloo's, for a closed connection
                message = "another process of torchrun ended before its part was done; see its messages"
                raise CcrError(message, hint="the same command resumes: finished work is kept") from None

        yield wait
