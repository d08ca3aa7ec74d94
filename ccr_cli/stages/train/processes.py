"""The processes that train one run together under `torchrun`; in a single process everything here does nothing.

They divide a batch and gather its embeddings, so each loss sees the whole batch: the number of processes changes only
the duration of a run, and rounding.

Shape suffixes: B triplets of a whole batch, b those of a process, N rows of a table.
"""

import importlib
import inspect
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
from ccr_cli.errors import CcrError, UsageError
from ccr_cli.methods.base import Batch, Method
from ccr_cli.stages.shared.sharding import joined, rank_and_size

T = TypeVar("T")
GRACE = 10.0
"""Seconds within which torchrun notices that a process ended."""
PATIENCE = timedelta(hours=2)
"""How long a process waits for the others while the first saves, scores and judges."""


@dataclass(frozen=True)
class ProcessRank:
    """This process among those that train together: the first one writes and prints."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def part_of(self, rows_B: Tensor) -> Tensor:
        """This process's rows (b,) of a batch; the last part is padded with the first row."""
        if self.size == 1:
            return rows_B
        count = -(-len(rows_B) // self.size)
        part = rows_B[self.rank * count : (self.rank + 1) * count]
        return torch.cat([part, rows_B[:1].expand(count - len(part))])

    def gather(self, x: Tensor, total: int) -> Tensor:
        """The rows of all processes, as `part_of` divided them, with gradient."""
        return x if self.size == 1 else across(x)[:total]

    def embed(self, embed: Callable[[Tensor], Tensor], total: int) -> Tensor:
        """Embeds the rows of a table, given by number: divides them among the processes and gathers the vectors."""
        return self.gather(embed(self.part_of(torch.arange(total))), total)

    def agree(self, signal_number: int | None, due: bool) -> tuple[int | None, bool]:
        """Makes all processes stop (on any one's signal) or save (by the first one's clock) after the same step."""
        if self.size == 1:
            return signal_number, due
        highest = torch.tensor([signal_number or 0, int(due and self.first)])
        distributed.all_reduce(highest, distributed.ReduceOp.MAX)
        return int(highest[0]) or None, bool(highest[1])

    def of_first(self, value: T) -> T:
        """The first process's value."""
        if self.size == 1:
            return value
        box: list[Any] = [value if self.first else None]
        distributed.broadcast_object_list(box)
        first: T = box[0]
        return first

    def all(self, value: T) -> list[T]:
        """The values of all processes, in their order."""
        if self.size == 1:
            return [value]
        box: list[Any] = [None] * self.size
        distributed.all_gather_object(box, value)
        return box

    def lead(self, act: Callable[[], T]) -> T:
        """Lets the first process act alone; the others get its result, or end with its error.

        Raises:
            SystemExit: In the other processes, if the first one raised a CcrError, which that one prints.
        """
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
        """Wraps a method as a module that computes a batch's losses and averages gradients over the processes."""
        losses = _Losses(method)
        if self.size == 1:
            return losses
        tables = [(n, part) for n, part in losses.named_modules() if getattr(part, "sparse", False)]
        names = [f"{n}.{weight}" for n, part in tables for weight, _ in part.named_parameters(recurse=False)]
        names += [name for name, _ in losses.named_buffers()]  # `same_buffers` copies these
        # torch averages sparse gradients only with some builds of NCCL, so `average_sparse` does it
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(losses, names)  # type: ignore[no-untyped-call]
        return DistributedDataParallel(losses, find_unused_parameters=True)

    def averaging(self, losses: nn.Module, now: bool) -> AbstractContextManager[None]:
        """A context in which gradients are averaged over the processes now, or added up for later."""
        if isinstance(losses, DistributedDataParallel) and not now:
            later: AbstractContextManager[None] = losses.no_sync()
            return later
        return nullcontext()

    def same_buffers(self, method: Method) -> None:
        """Gives all processes the first one's running statistics of batch normalisation."""
        if self.size > 1:
            for part in method.modules():
                if isinstance(part, nn.modules.batchnorm._BatchNorm):
                    for buffer in part.buffers():
                        distributed.broadcast(buffer, 0)

    @torch.no_grad()
    def average_sparse(self, weights: Sequence[Tensor]) -> None:
        """Averages sparse gradients (rows of a table) over the processes."""
        for weight in weights if self.size > 1 else ():
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


ALONE = ProcessRank()


class Across(torch.autograd.Function):
    """Concatenates the rows of all processes (equally many of each) in the order of ranks, with gradients from all.

    Every process computes its loss on all rows. The gradient of a row is summed over the processes' losses, so the
    mean over processes of a weight's gradient is the gradient of their mean loss. If all compute the same loss, it is
    exactly the gradient of a single process with all rows.
    """

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        """Gathers the rows (b, ...) into (processes x b, ...)."""
        size = distributed.get_world_size()
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(size)]
        distributed.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> Tensor:
        """Sums the gradients of all processes, and takes this one's rows."""
        total = grads[0].clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total.chunk(distributed.get_world_size())[distributed.get_rank()]


def across(x: Tensor) -> Tensor:
    """Returns the rows of all processes, which must have equal numbers of rows."""
    out: Tensor = Across.apply(x)  # type: ignore[no-untyped-call]
    return out


class _Losses(nn.Module):
    """A method's losses as a module's forward pass."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the loss terms; UsageError if they break the contract of `Method.losses`."""
        terms = self.method.losses(batch)
        if wrong := _no_losses(terms):
            where = f"{inspect.getsourcefile(type(self.method))}: losses() of {type(self.method).__name__}"
            raise UsageError(f"{where} returns {wrong}", hint="return a dict of named scalar tensors: {'loss': loss}")
        return terms


def _no_losses(terms: object) -> str:
    """What is wrong with the result of a method's `losses`; empty if it is a dict of scalar tensors."""
    if not isinstance(terms, dict) or not terms:
        return "an empty dict" if terms == {} else type(terms).__name__
    for name, value in terms.items():
        if not isinstance(value, Tensor):
            return f"{type(value).__name__} as {name!r}"
        if value.numel() != 1:
            return f"a tensor of shape {tuple(value.shape)} as {name!r}"
    return ""


@contextmanager
def together(alone: bool = False) -> Iterator[ProcessRank]:
    """Joins the processes that `torchrun` started for one training; only the first one prints.

    Args:
        alone: Train in this process alone, as in a dry run.

    Raises:
        CcrError: If another process ends meanwhile.
        UsageError: If the environment is not that of `torchrun`.
        UnavailableError: If the processes cannot connect.
    """
    rank, size = rank_and_size()
    if size == 1 or alone:
        yield ProcessRank()
        return
    if rank:
        console.verbosity = -1
    importlib.import_module("torch._dynamo")  # DDP's own import, inside the group, would keep its threads alive
    with joined(None, PATIENCE):
        try:
            yield ProcessRank(rank, size)
        except CcrError:
            if rank:  # the first process prints the same error, and torchrun ends this one
                console.verbosity = -2
                time.sleep(GRACE)
                console.verbosity = -1
            raise
        except RuntimeError as error:
            if "gloo" not in str(error).lower() and "nccl" not in str(error).lower():
                raise
            message = "another process of torchrun ended; see its message"
            raise CcrError(message, hint="the same command resumes from the saved state") from None
