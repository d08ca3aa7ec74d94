"""One optimiser step: batches, mixed precision, accumulation, clipping and learning rates.

Shape suffixes: B triplets in a batch, V visual items.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from ccr_cli.data.frames import sent
from ccr_cli.errors import UsageError
from ccr_cli.methods.base import Batch, Belief, Config, Method
from ccr_cli.nets.lora import layers_of
from ccr_cli.nets.row_adam import RowAdam
from ccr_cli.nets.text_transformer import TransformerTextEncoder
from ccr_cli.nets.tower import VisualTower
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.processes import ALONE, ProcessRank
from ccr_cli.stages.train.training_data import TrainingData

ROOM = 0.5
"""Fraction of a device's free memory that features may take; larger ones stay on the host and are sent by batch."""


class Engine:
    """Takes the optimiser steps of a method: holds the model, its data and the optimisers."""

    def __init__(
        self,
        method: Method,
        data: TrainingData,
        device: torch.device,
        options: TrainingOptions,
        ranks: ProcessRank = ALONE,
    ) -> None:
        self.method, self.data, self.device, self.ranks = method, data, device, ranks
        self.dtype: torch.dtype = getattr(torch, options.dtype)
        """The dtype of autocast; float32 means no autocast."""
        self.config, self.triplets = data.config, data.per_epoch
        encoders = [part for part in method.modules() if isinstance(part, TransformerTextEncoder)]
        if options.compiled and not encoders:
            raise UsageError("--compile is for transformers encoders; this run has none", hint="leave --compile out")
        for encoder in encoders if options.compiled else ():
            encoder.compile()
        if data.tower is not None:
            method.attach(data.tower)
        self.teacher_ND = None if data.teacher is None else method.follow(*data.teacher).to(device)
        method.to(device)
        self.losses = ranks.wrap(method)
        visual, self.item_N = data.triplets.visual, data.triplets.item_N.to(device)
        fits = device.type == "cuda" and visual.rows_ND.nbytes <= ROOM * torch.cuda.mem_get_info(device)[0]
        self.visual = visual.to(device) if fits else visual
        self.label_V = None if data.label_V is None else data.label_V.to(device)
        dense, sparse = parameter_groups(method, self.config)
        self.optimizers: list[torch.optim.Optimizer] = []
        if dense:
            self.optimizers.append(torch.optim.AdamW(dense, fused=True))
        if sparse:
            self.optimizers.append(RowAdam(sparse))
        for group in self._groups():
            group["initial_lr"] = group["lr"]
        self.sparse: list[Tensor] = [weight for group in sparse for weight in group["params"]]
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype is torch.float16)

    @property
    def steps(self) -> int:
        """Optimiser steps per epoch; a final batch of one triplet is left out."""
        full, rest = divmod(self.triplets, int(self.config.batch_size))
        return math.ceil((full + int(rest >= 2)) / int(self.config.accumulate))

    def rows_of(self, order: Tensor, step: int) -> list[Tensor]:
        """The batches of a step (counted from 0), as parts of an epoch's rows: one, or as many as are accumulated."""
        size, n = int(self.config.batch_size), int(self.config.accumulate)
        parts = torch.split(order[step * n * size : (step + 1) * n * size], size)
        return [rows for rows in parts if len(rows) >= 2]

    def set_lr(self, done: int) -> float:
        """Sets the learning rates after `done` steps; returns the rate of weights trained from scratch."""
        total, c = self.steps * self.config.epochs, self.config
        share = 0.5 * (1 + math.cos(math.pi * done / total))
        if c.lr_drop:
            share = 0.1 if done >= (c.lr_drop - 1) * self.steps else 1.0
        if done < c.lr_warmup:
            share *= (done + 1) / (c.lr_warmup + 1)
        for group in self._groups():
            group["lr"] = group["initial_lr"] * share
        return float(c.lr * share)

    def step(self, parts: Sequence[Tensor], p: Belief[Tensor], judged: bool) -> dict[str, Tensor]:
        """Takes one optimiser step.

        Args:
            parts: Row numbers of the triplets of each batch; the gradients of the batches are averaged.
            p: Belief in all triplets.
            judged: Whether the warm-up is over.

        Returns:
            Loss terms by name, and the norm of the gradient before clipping as `grad_norm`; on the device. Under
            float16 also `skipped`: 1 where the gradient overflowed, so that the step was skipped and its norm is 0.
        """
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        sums: dict[str, Tensor] = {}
        for number, rows in enumerate(parts, 1):
            batch = self._batch(rows, p, judged)
            with self.ranks.averaging(self.losses, now=number == len(parts)):
                with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not torch.float32):
                    terms = self.losses(batch)
                total = torch.stack([value.float() for value in terms.values()]).sum()
                self.scaler.scale(total / len(parts)).backward()  # type: ignore[no-untyped-call]
            for term, value in terms.items():
                sums[term] = sums.get(term, 0) + value.detach() / len(parts)
        self.ranks.average_sparse(self.sparse)
        sums |= self._clip()
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
        self.scaler.update()
        return sums

    def state(self) -> dict[str, Any]:
        """Everything that changes from step to step, including the random states of all processes."""
        random = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.device)
        return {
            "model": self.method.state_dict(),
            "buffers": dict(unsaved_buffers(self.method)),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "scaler": self.scaler.state_dict(),
            "random": self.ranks.all(random),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restores a `state`; a process whose random state it lacks is seeded by its rank."""
        self.method.load_state_dict(state["model"])
        remembered = state.get("buffers", {})  # none in states of older versions
        for name, buffer in unsaved_buffers(self.method):
            if name in remembered:
                buffer.copy_(remembered[name])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.scaler.load_state_dict(state["scaler"])
        torch.manual_seed(self.ranks.rank)
        if self.ranks.rank < len(state["random"]):
            random = state["random"][self.ranks.rank]
            torch.set_rng_state(random["cpu"])
            if self.device.type == "cuda" and "cuda" in random:
                torch.cuda.set_rng_state(random["cuda"], self.device)

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def _batch(self, rows: Tensor, p: Belief[Tensor], judged: bool) -> Batch:
        data, rows_b = self.data, self.ranks.part_of(rows)
        on_device = sent(rows, self.device)
        item_B, device_rows_b = self.item_N[on_device], self.ranks.part_of(on_device)
        source = data.source.select(rows_b).to(self.device)
        resident = self.visual.offsets_V1.device.type == self.device.type
        items_b = self.item_N[device_rows_b] if resident else data.triplets.item_N[rows_b]
        return Batch(
            visual=self.visual.select(items_b).to(self.device),
            source=source,
            target=source if data.target is data.source else data.target.select(rows_b).to(self.device),
            item_B=item_B,
            p=p.map(lambda side_N: side_N[on_device]),
            judged=judged,
            back=data.back.select(rows_b).to(self.device) if data.back else None,
            row_B=on_device,
            label_B=self.label_V[item_B] if self.label_V is not None else None,
            teacher_BD=self.teacher_ND[on_device] if self.teacher_ND is not None else None,
            gather=self.ranks.gather if self.ranks.size > 1 else None,
        )

    def _clip(self) -> dict[str, Tensor]:
        """Clips the norm of the whole gradient to `clip_norm`; returns the norm before clipping."""
        for weight in self.sparse:
            if weight.grad is not None:
                weight.grad = weight.grad.coalesce()
        by_optimizer = [_gradients(optimizer) for optimizer in self.optimizers]
        grads = [grad for part in by_optimizer for grad in part]
        overflow = {}
        if self.scaler.is_enabled():  # the scaler checks each optimiser alone: where one overflows, all must skip
            scaled = get_total_norm(grads)
            for part in by_optimizer:
                if part:
                    part[0].view(-1)[:1].add_(scaled * 0)
            for optimizer in self.optimizers:
                self.scaler.unscale_(optimizer)
            overflow = {"skipped": 1 - scaled.isfinite().float()}
        norm = torch.nan_to_num(get_total_norm(grads), 0.0, 0.0, 0.0) if overflow else get_total_norm(grads)
        if self.config.clip_norm:
            torch._foreach_mul_(grads, (self.config.clip_norm / (norm + 1e-6)).clamp(max=1.0))
        return {"grad_norm": norm, **overflow}


def unsaved_buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Names and values of the buffers that a trained model does not keep: state that only training needs."""
    saved = module.state_dict().keys()
    return ((name, buffer) for name, buffer in module.named_buffers() if name not in saved)


def _gradients(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The gradients of an optimiser's weights; for a sparse gradient, the values of its rows."""
    weights = (weight for group in optimizer.param_groups for weight in group["params"] if weight.grad is not None)
    return [weight.grad.values() if weight.grad.is_sparse else weight.grad for weight in weights]


Group = dict[str, Any]


def parameter_groups(module: nn.Module, config: Config) -> tuple[list[Group], list[Group]]:
    """Splits trainable parameters by the kind of gradient they get, by learning rate and by weight decay.

    Only matrices decay: no biases, norms or embedding tables.

    Returns:
        Groups with dense gradients, for AdamW, and groups with sparse ones, for RowAdam; either list may be empty.
    """
    parts = [part for part in module.modules() if isinstance(part, nn.EmbeddingBag | nn.Embedding)]
    tables = {id(w) for part in parts for w in part.parameters(recurse=False)}
    sparse = {id(w) for part in parts if part.sparse for w in part.parameters(recurse=False)}
    rate = dict(_pretrained(module, config))
    dense: dict[tuple[float, float], list[nn.Parameter]] = {}
    moved = []
    for weight in module.parameters():
        if not weight.requires_grad:
            continue
        if id(weight) in sparse:
            moved.append(weight)
            continue
        decay = config.weight_decay if weight.ndim > 1 and id(weight) not in tables else 0.0
        dense.setdefault((rate.get(id(weight), config.lr), decay), []).append(weight)
    groups: list[Group] = [{"params": group, "lr": lr, "weight_decay": decay} for (lr, decay), group in dense.items()]
    return groups, [{"params": moved, "lr": config.table_lr}] if moved else []


def _pretrained(module: nn.Module, config: Config) -> Iterator[tuple[int, float]]:
    """Yields id and learning rate of each pretrained weight; adapters are left out, as they train from scratch."""
    for encoder in (part for part in module.modules() if isinstance(part, TransformerTextEncoder | VisualTower)):
        layers = layers_of(encoder.model)
        below = {id(w): len(layers) for w in encoder.before_layers()}
        for depth, layer in enumerate(reversed(layers)):
            below |= {id(w): depth for w in layer.parameters()}
        for name, weight in encoder.named_parameters():
            if "lora_" not in name:
                yield id(weight), config.encoder_lr * config.layer_decay ** below.get(id(weight), 0)
