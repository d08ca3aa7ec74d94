"""The processes that train one run together, as `torchrun` starts them; alone, everything here does nothing.

A batch is divided among them and its embeddings gathered, so each loss sees the whole batch: the number of processes
changes how long a run takes, and rounding, nothing else.

Shape suffixes: B triplets of a whole batch, b those of a process, N rows of a table.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from ccr_cli import console
from ccr_cli.errors import CcrError, Terminated
from ccr_cli.methods.base import Batch, Method
from ccr_cli.nets.gather import across
from ccr_cli.stages.shared.sharding import joined, rank_and_size

T = TypeVar("T")
GRACE = 10.0
"""Seconds within which torchrun has noticed that a process ended."""
PATIENCE = timedelta(hours=2)
"""How long a process waits for the others: the first saves, scores and judges meanwhile."""


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def own(self, rows_B: Tensor) -> Tensor:
        """This process's rows (b,) of a batch; what is lacking in the last part is filled up with the first row."""
        if self.size == 1:
            return rows_B
        each = -(-len(rows_B) // self.size)
        part = rows_B[self.rank * each : (self.rank + 1) * each]
        return torch.cat([part, rows_B[:1].expand(each - len(part))])

    def gather(self, x: Tensor, total: int) -> Tensor:
        """The rows of all processes, as `own` divided them, with gradient."""
        return x if self.size == 1 else across(x)[:total]

    def embed(self, embed: Callable[[Tensor], Tensor], total: int) -> Tensor:
        """Divides the embedding of a table's rows, and gathers it.

        Args:
            embed: Embeds rows of the table, by number.
            total: How many there are.
        """
        return self.gather(embed(self.own(torch.arange(total))), total)

    def agree(self, asked: int | None, due: bool) -> tuple[int | None, bool]:
        """Has all processes stop, or save, after the same step.

        Args:
            asked: The signal that came, if any.
            due: Whether it is time to save; the first process's clock counts.
        """
        if self.size == 1:
            return asked, due
        said = torch.tensor([asked or 0, int(due and self.first)])
        distributed.all_reduce(said, distributed.ReduceOp.MAX)
        return int(said[0]) or None, bool(said[1])

    def of_first(self, value: T) -> T:
        """The first process's value."""
        if self.size == 1:
            return value
        box: list[Any] = [value if self.first else None]
        distributed.broadcast_object_list(box)
        said: T = box[0]
        return said

    def all(self, value: T) -> list[T]:
        """The values of all processes, in their order."""
        if self.size == 1:
            return [value]
        box: list[Any] = [None] * self.size
        distributed.all_gather_object(box, value)
        return box

    def lead(self, act: Callable[[], T]) -> T:
        """Has the first process act alone; all get its result, or end with its error.

        Raises:
            SystemExit: In the others, if the first one raised an error of the user's, which it says itself.
        """
        if self.size == 1:
            return act()
        if not self.first:
            result, code = self.of_first((None, 0))
            if code:
                raise SystemExit(code)
            return result  # type: ignore[return-value]
        try:
            result = act()
        except CcrError as error:
            self.of_first((None, error.exit_code))
            raise
        self.of_first((result, 0))
        return result

    def wrap(self, method: Method) -> nn.Module:
        """What computes a batch's losses, so that gradients are averaged over the processes while they come."""
        losses = _Losses(method)
        if self.size == 1:
            return losses
        tables = [(n, part) for n, part in losses.named_modules() if getattr(part, "sparse", False)]
        names = [f"{n}.{weight}" for n, part in tables for weight, _ in part.named_parameters(recurse=False)]
        names += [name for name, _ in losses.named_buffers()]  # `same_buffers` does these, now and then
        # torch averages sparse gradients with some builds of NCCL only: `average_sparse` does these
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(losses, names)  # type: ignore[no-untyped-call]
        return DistributedDataParallel(losses, find_unused_parameters=True)

    def averaging(self, losses: nn.Module, now: bool) -> AbstractContextManager[None]:
        """Within it gradients are averaged over the processes, or added up for later."""
        if isinstance(losses, DistributedDataParallel) and not now:
            later: AbstractContextManager[None] = losses.no_sync()
            return later
        return nullcontext()

    def same_buffers(self, method: Method) -> None:
        """Gives all processes the first one's running statistics."""
        if self.size > 1:
            for part in method.modules():
                if isinstance(part, nn.modules.batchnorm._BatchNorm):
                    for buffer in part.buffers():
                        distributed.broadcast(buffer, 0)

    @torch.no_grad()
    def average_sparse(self, weights: Sequence[Tensor]) -> None:
        """Averages sparse gradients (rows of a table) over the processes."""
        if self.size == 1:
            return
        for weight in weights:
            assert weight.grad is not None, "every process has rows of its own"
            grad = weight.grad.coalesce()
            counts = self.all(int(grad.indices().shape[1]))
            row_N = torch.zeros(max(counts), dtype=torch.int64, device=weight.device)
            value_ND = weight.new_zeros(max(counts), weight.shape[1])
            row_N[: counts[self.rank]], value_ND[: counts[self.rank]] = grad.indices()[0], grad.values()
            parts = zip(counts, across(row_N).chunk(self.size), across(value_ND).chunk(self.size), strict=True)
            rows, values = zip(*((r_N[:n], v_ND[:n]) for n, r_N, v_ND in parts), strict=True)
            mean = torch.cat(values) / self.size
            weight.grad = torch.sparse_coo_tensor(torch.cat(rows)[None], mean, weight.shape, check_invariants=False)


ALONE = Ranks()


class _Losses(nn.Module):
    """A method's losses as a module's forward pass."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return self.method.losses(batch)


@contextmanager
def together(alone: bool = False) -> Iterator[Ranks]:
    """Joins the processes that `torchrun` started for one training; only the first of them goes on to print.

    Args:
        alone: Whether there is nothing to share, as in a dry run.

    Raises:
        CcrError: If another process ends while this one waits for it.
        UsageError: If the environment is not `torchrun`'s.
        UnavailableError: If they do not find each other.
    """
    rank, size = rank_and_size()
    if size == 1 or alone:
        yield Ranks()
        return
    if rank:
        console.verbosity = -1
    importlib.import_module("torch._dynamo")  # as DDP does: imported within, it keeps the group, and its threads, alive
    with joined(None, PATIENCE):
        try:
            yield Ranks(rank, size)
        except (KeyboardInterrupt, Terminated):
            console.verbosity = -2 if rank else console.verbosity
            raise
        except CcrError:
            if rank:  # where the first process found the same, it says so, and torchrun ends this one
                console.verbosity = -2
                time.sleep(GRACE)
                console.verbosity = -1
            raise
        except RuntimeError as error:
            if "gloo" not in str(error).lower() and "nccl" not in str(error).lower():
                raise
            message = "another process of torchrun ended; why, it says itself"
            raise CcrError(message, hint="the same command goes on from what was saved") from None
