"""The training loop: one for every method, resumable after every epoch, the best epoch chosen on validation.

Shape suffixes: N triplets, B triplets in a batch, V visual items, D dimension.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, noise, run, translation
from ccr_cli.artifacts.build import Build
from ccr_cli.artifacts.tables import write_table
from ccr_cli.console import progress, say, warn
from ccr_cli.data.seeds import derive
from ccr_cli.errors import ArtifactError, CcrError, UsageError
from ccr_cli.methods.base import Batch, Belief, Method
from ccr_cli.nets.dual import parameter_groups
from ccr_cli.nets.row_adam import RowAdam
from ccr_cli.stages import judging
from ccr_cli.stages.checkpoint import load_state, save_state, save_tensors
from ccr_cli.stages.embed import BATCH, embed_visuals, encode_and_embed
from ccr_cli.stages.options import configure
from ccr_cli.stages.scoring import score_gallery
from ccr_cli.stages.sources import Sources
from ccr_cli.stages.texts import make_text_encoder, make_tokenizer
from ccr_cli.stages.triplets import Gallery, Triplets, gallery, training_triplets, without

LEAST = 1e-6
"""Least probability that a judge of the epoch may give: 0 would also take the pair out of the negatives, which is
for those who know the truth."""
SAVE_SECONDS = 10.0
"""The state for resuming is saved after an epoch when the last save is at least this long ago."""


@dataclass
class _Progress:
    """Everything that changes from epoch to epoch, and therefore is saved for resuming."""

    epoch: int = 0
    best_epoch: int = 0
    best: float = -math.inf
    p: Belief[Tensor] = field(default_factory=lambda: Belief(*[torch.empty(0)] * 3))
    model: dict[str, Tensor] = field(default_factory=dict)
    """The best epoch's weights, on the CPU."""
    history: list[dict[str, Any]] = field(default_factory=list)
    timing: list[dict[str, float]] = field(default_factory=list)


class Trainer:
    """Trains one run inside a building folder, going on where an earlier attempt stopped."""

    def __init__(
        self,
        build: Build,
        sources: Sources,
        module: Any,
        config: Any,
        request: Mapping[str, Any],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.build, self.device, self.dtype = build, device, dtype
        self.seed, self.request = int(request["seed"]), request
        whole = dataset.read(sources.data)
        data = without(whole, getattr(config, "left_out", ""))
        translations = sources.translations()
        pairs = noise.read(sources.noise) if sources.noise else None
        self.needs = config.needs()
        second = translation.read(sources.second) if sources.second else None
        self.scope = registry.load("judges", config.judge).SCOPE
        self.triplets = training_triplets(
            data, translations, pairs, sources.features, self.needs, second, compared=self.scope == "text"
        )
        _require(self.needs, self.triplets, sources, str(request["method"]))
        if self.triplets.dropped:
            why = "an item without features, or a caption untranslated or not translated back"
            warn(f"{self.triplets.dropped} triplets left out: {why}")
        self.select = str(request["select_on"]) if sources.translation else "human"
        self.validation = _validation(data, translations, sources, self.select, self.needs)
        self.tokenizer = make_tokenizer(config, whole)
        say("tokenising", level=1)
        self.source = self.tokenizer.encode(self.triplets.source)
        self.target = self.tokenizer.encode(self.triplets.target) if sources.translation else self.source
        self.back = self.tokenizer.encode(self.triplets.back or []) if "back" in self.needs else None
        self.label_V: Tensor | None = None
        if "labels" in self.needs and self.triplets.label_V is not None:
            found, label_V = np.unique(self.triplets.label_V.numpy(), return_inverse=True)
            self.label_V = torch.from_numpy(label_V).to(device)
            classes = config.classes or len(found)
            if classes < len(found):
                raise UsageError(f"classes={classes}, and the training items have {len(found)} categories")
            config = configure(type(config), {"classes": classes}, f"method {request['method']}", config)
        self.config = config
        torch.manual_seed(derive(self.seed, "init"))
        text = make_text_encoder(config, whole)
        self.method: Method = module.Method(config, self.triplets.visual.dim, text).to(device)
        dense, sparse = parameter_groups(self.method)
        self.optimizers: list[torch.optim.Optimizer] = []
        if dense:
            self.optimizers.append(torch.optim.Adam(dense, lr=config.lr, fused=True))
        if sparse:
            self.optimizers.append(RowAdam(sparse, lr=config.table_lr))
        self.peaks = [float(optimizer.defaults["lr"]) for optimizer in self.optimizers]
        self.scaler = torch.amp.GradScaler(device.type, enabled=dtype is torch.float16)
        self.visual = self.triplets.visual.to(device)
        self.item_N = self.triplets.item_N.to(device)
        self.said = judging.from_texts(self.triplets, derive(self.seed, "null")) if self.scope == "text" else None
        self.state = _Progress(p=self._first_belief())

    @property
    def criterion(self) -> str:
        """The figure on validation that chooses the epoch."""
        return "mAP" if "labels" in self.needs else "SumR"

    @property
    def steps(self) -> int:
        """Optimiser steps an epoch; a last batch of one triplet is left out."""
        full, rest = divmod(len(self.triplets), int(self.config.batch_size))
        return full + int(rest >= 2)

    def train(self) -> None:
        """Trains to the last epoch and finishes the artifact."""
        self._write_static()
        self._resume()
        self._saved = time.monotonic()
        epochs = self.config.epochs
        what = f"train {self.request['method']}"
        with progress((epochs - self.state.epoch) * self.steps, what, "steps") as advance:
            while self.state.epoch < epochs:
                self._epoch(self.state.epoch + 1, advance)
        self._finish()

    def _write_static(self) -> None:
        folder = self.build.folder
        tokenizer = folder / "tokenizer"
        tokenizer.mkdir(exist_ok=True)
        self.tokenizer.save(tokenizer)
        base.write_json(
            folder / "config.json",
            {
                **{k: self.request[k] for k in ("method", "lang", "seed", "noise", "preset")},
                "select": self.select if self.validation else "last",
                "criterion": self.criterion,
                "validation": [len(self.validation.texts), len(self.validation.item_ids)] if self.validation else None,
                "dtype": self.request["dtype"],
                "data": self.build.parents[0].path.rsplit("/", 1)[-1],
                "features": self.build.parents[-1].path.rsplit("/", 1)[-1],
                "visual_dim": self.triplets.visual.dim,
                "text_encoder": self.method.encoder.text_encoder.config(),
                "triplets": len(self.triplets),
                "dropped": self.triplets.dropped,
                "options": asdict(self.config),
            },
        )

    def _epoch(self, epoch: int, advance: Any) -> None:
        started = time.perf_counter()
        self.method.start_epoch(epoch)
        self.method.train()
        torch.manual_seed(derive(self.seed, "dropout", epoch))
        generator = torch.Generator().manual_seed(derive(self.seed, "order", epoch))
        order = torch.randperm(len(self.triplets), generator=generator)
        sums: dict[str, Tensor] = {}
        for step in range(self.steps):
            rows = order[step * self.config.batch_size : (step + 1) * self.config.batch_size]
            lr = self._set_lr((epoch - 1) * self.steps + step)
            for term, value in self._step(rows, epoch).items():
                sums[term] = sums.get(term, torch.zeros((), device=self.device)) + value
            note = f"epoch {epoch}/{self.config.epochs}"
            advance(1, note=note if self.state.best < 0 else f"{note}, best {self.criterion} {self.state.best:.1f}")
        loss = {term: float(value) / self.steps for term, value in sums.items()}
        if not all(map(math.isfinite, loss.values())):
            raise CcrError(
                f"the loss is not finite in epoch {epoch}: {loss}",
                hint=f"a lower learning rate may help: --set lr={self.config.lr / 3:.0e}",
            )
        trained = time.perf_counter() - started
        entry = {"epoch": epoch, "lr": lr, "loss": {**loss, "total": sum(loss.values())}}
        entry["val"] = self._validate(epoch)
        entry["judge"] = self._judge(epoch)
        entry["best"] = self.state.best_epoch == epoch
        self.state.history.append(entry)
        self.state.timing.append({"train": trained, "all": time.perf_counter() - started})
        self._save(epoch)

    def _set_lr(self, step: int) -> float:
        share = 0.5 * (1 + math.cos(math.pi * step / (self.steps * self.config.epochs)))
        if self.config.lr_drop:
            share = 0.1 if step >= (self.config.lr_drop - 1) * self.steps else 1.0
        for optimizer, peak in zip(self.optimizers, self.peaks, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = peak * share
        return float(self.config.lr * share)

    def _step(self, rows: Tensor, epoch: int) -> dict[str, Tensor]:
        on_device = rows.to(self.device)
        items = self.item_N[on_device]
        source = self.source.select(rows).to(self.device)
        batch = Batch(
            visual=self.visual.select(items),
            source=source,
            target=source if self.target is self.source else self.target.select(rows).to(self.device),
            item_B=items,
            p=Belief(*(side[on_device] for side in (self.state.p.VS, self.state.p.VT, self.state.p.ST))),
            judged=epoch > self.config.warmup_epochs,
            back=self.back.select(rows).to(self.device) if self.back else None,
            label_B=self.label_V[items] if self.label_V is not None else None,
        )
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not torch.float32):
            terms = self.method.losses(batch)
        total = torch.stack([value.float() for value in terms.values()]).sum()
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(total).backward()  # type: ignore[no-untyped-call]
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
        self.scaler.update()
        return {term: value.detach() for term, value in terms.items()}

    def _validate(self, epoch: int) -> dict[str, Any] | None:
        """Scores the validation half that selects, and keeps the best epoch's weights."""
        if self.validation is None:
            self._keep(epoch)
            return None
        self.method.eval()
        visual = embed_visuals(self.method, self.validation.visual, self.device)
        texts = encode_and_embed(self.method, self.tokenizer, self.validation.texts, self.device)
        scores = score_gallery(self.validation, visual, texts, labelled="labels" in self.needs)
        figures: dict[str, Any] = {"SumR": scores.sum_r, "mAP": scores.mean_ap, "t2v": scores.t2v, "v2t": scores.v2t}
        if figures[self.criterion] > self.state.best:
            self.state.best = figures[self.criterion]
            self._calibrate(visual, texts)
            self._keep(epoch)
        return figures

    def _calibrate(self, visual_VD: Tensor, text_TD: Tensor) -> None:
        """Tells the method how often its first hits are right, on the queries that select."""
        assert self.validation is not None
        item_T = torch.from_numpy(self.validation.item_T).to(self.device)
        parts = []
        for rows in torch.split(torch.arange(len(text_TD), device=self.device), BATCH):
            best = (text_TD[rows] @ visual_VD.T).topk(min(2, len(visual_VD)), dim=1)
            parts.append((best.values, best.indices[:, 0] == item_T[rows]))
        self.method.calibrate(*(torch.cat(part) for part in zip(*parts, strict=True)))

    def _judge(self, epoch: int) -> dict[str, Any] | None:
        """Lets the judge see the whole training set; from the end of the warm-up on, its word counts.

        The oracle needs not look, and its figures would say nothing: what it reads is the model's similarities.
        """
        c = self.config
        if c.judge == "none":
            return None
        self.method.eval()
        embedded = judging.embed_triplets(self.method, self.triplets, self.source, self.target, self.device)
        if self.said is not None:  # texts do not change from epoch to epoch, and to compare them takes its time
            opinion = judging.Opinion(embedded.similarities(), self.said)
        else:
            opinion = judging.ask(
                c.judge,
                c.judge_side,
                embedded,
                self.triplets,
                seed=derive(self.seed, "null", epoch),
                batch_size=c.batch_size,
                read=self.method.judge_scores,
            )
        if epoch >= c.warmup_epochs and self.scope in ("epoch", "triangle"):
            self.state.p = self._to_device(opinion.p, least=LEAST)
        folder = self.build.folder / "evidence"
        folder.mkdir(exist_ok=True)
        frame = pd.DataFrame(
            {
                "slot_id": self.triplets.slot_ids,
                **{f"sim_{k.lower()}": opinion.similarity[k].astype(np.float32) for k in ("VS", "VT", "ST")},
                "p_clean": opinion.p.VT.astype(np.float32),
            }
        )
        write_table(folder / f"epoch-{epoch:03d}.parquet", frame, run.EVIDENCE)
        return None if self.scope == "truth" else judging.quality(opinion, self.triplets)

    def _first_belief(self) -> Belief[Tensor]:
        """What is believed before the first epoch: everything, unless the judge needs no model."""
        if self.scope == "truth":
            return self._to_device(judging.truth(self.triplets))
        if self.said is not None:
            return self._to_device(self.said, least=LEAST)
        return self._to_device(judging.trust(self.triplets))

    def _keep(self, epoch: int) -> None:
        self.state.best_epoch = epoch
        self.state.model = {k: v.detach().cpu().clone() for k, v in self.method.state_dict().items()}

    def _to_device(self, p: Belief[judging.Array], least: float = 0.0) -> Belief[Tensor]:
        return Belief(*(torch.from_numpy(x).float().clamp(min=least).to(self.device) for x in (p.VS, p.VT, p.ST)))

    def _save(self, epoch: int) -> None:
        self.state.epoch = epoch
        now = time.monotonic()
        if now - self._saved < SAVE_SECONDS and epoch < self.config.epochs:
            return
        self._saved = now
        with base.atomic_open(self.build.folder / "history.jsonl", "w") as handle:
            handle.writelines(json.dumps(entry) + "\n" for entry in self.state.history)
        state = {
            "model": self.method.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "scaler": self.scaler.state_dict(),
            "epoch": epoch,
            "best_epoch": self.state.best_epoch,
            "best": self.state.best if math.isfinite(self.state.best) else None,
            "best_model": self.state.model,
            "p": [self.state.p.VS, self.state.p.VT, self.state.p.ST],
            "history": [json.dumps(entry) for entry in self.state.history],
            "timing": self.state.timing,
        }
        save_state(self.build.folder / "last", epoch, state)

    def _resume(self) -> None:
        state = load_state(self.build.folder / "last")
        if state is None:
            return
        self.method.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.scaler.load_state_dict(state["scaler"])
        self.state = _Progress(
            epoch=state["epoch"],
            best_epoch=state["best_epoch"],
            best=-math.inf if state["best"] is None else state["best"],
            p=Belief(*(side.to(self.device) for side in state["p"])),
            model=state["best_model"],
            history=[json.loads(entry) for entry in state["history"]],
            timing=state["timing"],
        )
        if self.state.epoch < self.config.epochs:
            say(f"going on after epoch {self.state.epoch} of {self.config.epochs}")

    def _finish(self) -> None:
        rates = [len(self.triplets) / t["train"] for t in self.state.timing]
        self.build.environment |= {
            "device": str(self.device),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "seconds": round(sum(t["all"] for t in self.state.timing), 3),
            "triplets_per_second": round(float(np.median(rates)), 1),
        }
        save_tensors(self.build.folder / "model.safetensors", self.state.model)
        shutil.rmtree(self.build.folder / "last")
        self.build.finish(
            {
                "epochs": self.config.epochs,
                "best_epoch": self.state.best_epoch,
                "triplets": len(self.triplets),
                "steps": self.steps * self.config.epochs,
                "parameters": sum(p.numel() for p in self.method.parameters()),
            }
        )


def _require(needs: frozenset[str], triplets: Triplets, sources: Sources, method: str) -> None:
    """Refuses to train without what the method reads."""
    if "back" in needs and triplets.back is None:
        raise ArtifactError(
            f"{method} reads back-translations, and the translations into {sources.lang} lack them",
            hint=f"ccr translate --lang {sources.lang} --back, or --set cycle_weight=0",
        )
    if "labels" in needs and triplets.label_V is None:
        raise ArtifactError(f"{method} learns categories, and items of {sources.data.path} have no label")


def _validation(
    data: dataset.Dataset, translations: pd.DataFrame, sources: Sources, select_on: str, needs: frozenset[str]
) -> Gallery | None:
    """The validation half that selects, with the queries that may: machine-translated by default."""
    lang = sources.lang
    if select_on == "human":
        captions = data.captions[data.captions["lang"] == lang]
        what = f"human {lang} captions"
    else:
        forward = translations[translations["direction"] == "forward"]
        captions = forward[["caption_id", "item_id", "text"]]
        what = f"translations into {lang}"
    try:
        return gallery(data, sources.features, "val-select", captions, what, needs)
    except ArtifactError as error:
        warn(f"no model selection, the last epoch is kept: {error.message}")
        return None
