"""The training loop: one for every method, resumable after every step, the best epoch chosen on validation.

Shape suffixes: N triplets, T texts, V visual items, D dimension.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ccr_cli import registry
from ccr_cli.artifacts import base, run
from ccr_cli.artifacts.build import Build
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.console import progress, say, warn
from ccr_cli.data.frames import Frames
from ccr_cli.data.seeds import derive
from ccr_cli.data.tokens import TokenTable
from ccr_cli.errors import ArtifactError, CcrError
from ccr_cli.judges.base import Belief, FloatArray
from ccr_cli.methods.base import Method
from ccr_cli.stages.shared import judging
from ccr_cli.stages.shared.embedding import BATCH, choose_device, embed_texts, embed_visuals
from ccr_cli.stages.shared.scoring import Figures, over_folds, score_gallery
from ccr_cli.stages.shared.triplets import Gallery
from ccr_cli.stages.train.checkpoint import save_tensors
from ccr_cli.stages.train.collapse import Collapsed, refuse_collapse
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.processes import ALONE, Ranks
from ccr_cli.stages.train.sources import Sources
from ccr_cli.stages.train.state import Progress, memory_mb
from ccr_cli.stages.train.step import Engine, compile_encoders
from ccr_cli.stages.train.stopping import Stop, heed, stoppable
from ccr_cli.stages.train.tracking import Tracker, tracker
from ccr_cli.stages.train.training_data import gather

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LEAST = 1e-6
"""Least probability that a judge of the epoch may give: 0 would also take the pair out of the negatives, which is
for those who know the truth."""
SAVE_SECONDS = 10.0
"""The state for resuming is saved when the last save is so long ago; longer by as much as saving takes longer than
half a second, so that it takes a twentieth of the time at most."""
CHECK_STEPS = 50
"""How often the loss is looked at: to read it, the device must be waited for."""


class Trainer:
    """Trains one run inside a building folder, going on where an earlier attempt stopped."""

    def __init__(
        self, build: Build, sources: Sources, options: TrainingOptions, config: Any, ranks: Ranks = ALONE
    ) -> None:
        self.build, self.options, self.ranks = build, options, ranks
        self.device = choose_device(options.device)
        self.seed = options.seed
        self.material = gather(sources, config, options)
        self.config, self.triplets = self.material.config, self.material.triplets
        torch.manual_seed(derive(self.seed, "init"))
        module = registry.load("methods", options.method)
        text = self.material.text_encoder()
        self.method: Method = module.Method(self.config, self.material.visual_dim, text)
        if self.material.tower is not None:
            self.method.attach(self.material.tower)
        self.method.to(self.device)
        if options.compiled:
            compile_encoders(self.method)
        self.engine = Engine(self.method, self.material, self.device, DTYPES[options.dtype], ranks)
        steps = self.engine.steps * self.config.epochs
        if self.config.lr_warmup >= steps:
            warn(f"lr_warmup={self.config.lr_warmup}, and training has {steps} steps: its learning rate stays low")
        least = 0.0 if self.material.judge.knows_truth else LEAST
        self.state = Progress(p=self._to_device(self.material.first_belief(), least))
        self._saved, self._cost = time.monotonic(), 0.0

    def train(self) -> None:
        """Trains to the last epoch and finishes the artifact.

        Raises:
            CcrError: If training comes to nothing before an epoch is done.
        """
        if self.ranks.first:
            self._write_static()
        self._resume()
        epochs, steps = self.config.epochs, self.engine.steps
        left = (epochs - self.state.epoch) * steps - self.state.step
        stopped = ""
        done = self.state.epoch * steps + self.state.step
        curves = self.build.final.parent.parent / "tensorboard" / self.build.final.name
        with (
            stoppable("after this step", self.ranks.first) as stop,
            progress(left, f"train {self.build.request['method']}", "steps") as advance,
            tracker(self.options.report_to if self.ranks.first else None, curves, done) as track,
        ):
            try:
                while self.state.epoch < epochs:
                    self._epoch(self.state.epoch + 1, advance, stop, track)
            except Collapsed as collapsed:
                stopped = f"stopped in epoch {self.state.epoch + 1}: {collapsed}"
        if stopped and not self.state.best_epoch:
            lower = min(self.config.lr / 3, type(self.config)().lr)
            raise CcrError(stopped, hint=f"a lower learning rate may help: --set lr={lower:.0e}")
        if self.ranks.first:
            self._finish(stopped)

    def _write_static(self) -> None:
        folder, validation, tower = self.build.folder, self.material.validation, self.material.tower
        tokenizer = folder / "tokenizer"
        tokenizer.mkdir(exist_ok=True)
        self.material.tokenizer.save(tokenizer)
        base.write_json(
            folder / "config.json",
            {
                **{k: self.build.request[k] for k in ("method", "lang", "seed", "noise", "preset")},
                **self._special(),
                **({"pairs": self.build.request["pairs"]} if "pairs" in self.build.request else {}),
                "select": self.material.select if validation else "last",
                "criterion": self.material.criterion,
                "validation": _size(validation) if validation else None,
                "dtype": self.build.request["dtype"],
                "data": self.build.parents[0].path.rsplit("/", 1)[-1],
                "features": self.build.parents[-1].path.rsplit("/", 1)[-1],
                "visual_dim": self.material.visual_dim,
                **({"visual_tower": tower.config()} if tower else {}),
                "text_encoder": self.method.encoder.text_encoder.config(),
                "triplets": len(self.triplets),
                "dropped": self.triplets.dropped,
                "options": asdict(self.config),
            },
        )

    def _special(self) -> dict[str, Any]:
        """What is said of a run on several languages alone, or on captions that people wrote."""
        human = {"human": list(self.material.human)} if self.material.human else {}
        if "langs" not in self.build.request:
            return human
        names = [parent.path.rsplit("/", 1)[-1] for parent in self.build.parents if parent.kind == "translation"]
        translations = dict(zip(self.triplets.langs, names, strict=True))
        return {"langs": self.build.request["langs"], "translations": translations, **human}

    def _epoch(self, epoch: int, advance: Any, stop: Stop, track: Tracker) -> None:
        state, steps = self.state, self.engine.steps
        self.method.start_epoch(epoch)
        self.method.train()
        if state.step == 0:
            torch.manual_seed(derive(self.seed, "dropout", epoch, *([self.ranks.rank] if self.ranks.rank else [])))
        generator = torch.Generator().manual_seed(derive(self.seed, "order", epoch))
        order = self.material.order(generator, epoch)
        started = time.perf_counter() - state.seconds
        lr = self.engine.set_lr(epoch * steps - 1)  # for the history, where all steps are done
        for step in range(state.step, steps):
            lr = self.engine.set_lr((epoch - 1) * steps + step)
            parts = self.engine.rows_of(order, step)
            state.add(self.engine.step(parts, state.p, judged=epoch > self.config.warmup_epochs))
            state.seconds = time.perf_counter() - started
            asked, due = self.ranks.agree(stop.asked, self._due())
            if state.step % CHECK_STEPS == 0 or asked or due:
                self._check_loss(epoch)
            if state.step % CHECK_STEPS == 0:
                track.log({"step": {**state.means(), "lr": lr}}, (epoch - 1) * steps + state.step)
            if asked or due:
                self._save()
            note = f"epoch {epoch}/{self.config.epochs}"
            best = f", best {self.material.criterion} {state.best:.1f}" if state.best >= 0 else ""
            advance(1, note=note + best)
            heed(asked)
        self._check_loss(epoch)
        self.ranks.same_buffers(self.method)
        means = state.means()
        norm, skipped = means.pop("grad_norm"), means.pop("skipped", 0.0)
        norm /= max(1 - skipped, 1 / steps)
        trained = time.perf_counter() - started
        entry = {"epoch": epoch, "lr": lr, "loss": {**means, "total": sum(means.values())}, "grad_norm": norm}
        entry |= {"skipped_steps": round(skipped * steps)} if self.engine.scaler.is_enabled() else {}
        entry["val"] = self._validate(epoch)
        entry["judge"] = self._judge(epoch)
        entry["best"] = state.best_epoch == epoch
        state.history.append(entry)
        seconds, rate = time.perf_counter() - started, len(order) / trained
        state.timing.append({"seconds": seconds, "triplets_per_second": rate, "memory_mb": memory_mb(self.device)})
        track.log({**entry, "machine": state.timing[-1]}, epoch * steps)
        state.epoch, state.step, state.sums, state.seconds = epoch, 0, {}, 0.0
        asked, due = self.ranks.agree(stop.asked, self._due())
        if asked or due or epoch == self.config.epochs:
            self._save()
        heed(asked)

    def _check_loss(self, epoch: int) -> None:
        """Stops before a state is saved that no good can come of."""
        if self.state.finite():
            return
        found = ", ".join(f"{term} {mean}" for term, mean in self.state.means().items() if not math.isfinite(mean))
        raise Collapsed(f"the loss is not finite: {found}")

    def _validate(self, epoch: int) -> dict[str, Any] | None:
        """Scores the validation half that selects, and keeps the best epoch's weights."""
        m, validation = self.material, self.material.validation
        self.method.eval()
        if not validation:
            some = torch.arange(min(len(self.triplets), BATCH))
            items = self.triplets.visual.select(self.triplets.item_N[some])
            refuse_collapse(self.method, self._visuals(items), self._texts(m.target, some))
            self._keep(epoch)
            return None
        visual = self._visuals(next(iter(validation.values())).visual)
        texts = {lang: self._texts(m.tokenizer.encode(each.texts)) for lang, each in validation.items()}
        refuse_collapse(self.method, visual, torch.cat(list(texts.values())))
        scored = {
            lang: score_gallery(each, visual, texts[lang], labelled="labels" in m.needs)
            for lang, each in validation.items()
        }
        figures = self.ranks.of_first(_figures(scored))
        if figures[m.criterion] > self.state.best:
            self.state.best = figures[m.criterion]
            self._calibrate(visual, texts)
            self._keep(epoch)
        return figures

    def _visuals(self, visual: Frames) -> Tensor:
        """Embeds items (V, D), each process its share."""
        if self.ranks.size == 1:
            return embed_visuals(self.method, visual, self.device)
        return self.ranks.embed(lambda rows: embed_visuals(self.method, visual, self.device, rows), len(visual))

    def _texts(self, table: TokenTable, some_T: Tensor | None = None) -> Tensor:
        """Embeds texts (T, D), all or some, each process its share."""
        some = torch.arange(len(table)) if some_T is None else some_T
        return self.ranks.embed(lambda rows: embed_texts(self.method, table, self.device, some[rows]), len(some))

    def _calibrate(self, visual_VD: Tensor, text_TD_of: Mapping[str, Tensor]) -> None:
        """Tells the method how often its first hits are right, on the queries that select, of all languages."""
        text_TD = torch.cat(list(text_TD_of.values()))
        item_T = torch.cat([torch.from_numpy(self.material.validation[lang].item_T) for lang in text_TD_of])
        item_T = item_T.to(self.device)
        parts = []
        for rows in torch.split(torch.arange(len(text_TD), device=self.device), BATCH):
            best = (text_TD[rows] @ visual_VD.T).topk(min(2, len(visual_VD)), dim=1)
            parts.append((best.values, best.indices[:, 0] == item_T[rows]))
        self.method.calibrate(*(torch.cat(part) for part in zip(*parts, strict=True)))

    def _judge(self, epoch: int) -> dict[str, Any] | None:
        """Judges the whole training set and records the evidence; after the warm-up training believes the judge.

        Returns:
            The judge's figures; None without a judge, and for one that knows the truth.
        """
        c, m = self.config, self.material
        if m.judge.speaks == "never":
            return None
        self.method.eval()
        embedded = judging.Embedded(
            self._visuals(self.engine.visual),
            self._texts(m.source),
            self._texts(m.target),
            self.triplets.item_N.to(self.device),
        )
        if not self.ranks.first:
            return self._told_belief(None)
        opinion = m.fixed_opinion or judging.judge_triplets(
            m.judge,
            c.judge_side,
            embedded,
            self.triplets,
            seed=derive(self.seed, "null", epoch),
            batch_size=c.batch_size,
            scores=self.method.judge_scores,
        )
        if epoch >= c.warmup_epochs and m.judge.speaks == "epoch":
            self.state.p = self._to_device(opinion.p, LEAST)
        similarities = embedded.similarities()
        folder = self.build.folder / "evidence"
        folder.mkdir(exist_ok=True)
        frame = pd.DataFrame(
            {
                "slot_id": self.triplets.slot_ids,
                "lang": np.asarray(self.triplets.langs)[self.triplets.lang_N],
                **{f"sim_{k.lower()}": similarities[k].astype(np.float32) for k in ("VS", "VT", "ST")},
                "p_clean": opinion.p.VT.astype(np.float32),
            }
        )
        write_table(folder / f"epoch-{epoch:03d}.parquet", frame, run.by_language(run.EVIDENCE, self.triplets.langs))
        return self._told_belief(None if m.judge.knows_truth else judging.quality(opinion, self.triplets))

    def _told_belief(self, quality: dict[str, Any] | None) -> dict[str, Any] | None:
        """Has all processes believe what the first one does; returns its figures."""
        if self.ranks.size > 1:
            p = self.state.p
            sides, quality = self.ranks.of_first(([p.VS.cpu(), p.VT.cpu(), p.ST.cpu()], quality))
            self.state.p = Belief(*(side.to(self.device) for side in sides))
        return quality

    def _keep(self, epoch: int) -> None:
        self.state.best_epoch = epoch
        if self.ranks.first:
            self.state.model = {k: v.detach().cpu().clone() for k, v in self.method.state_dict().items()}

    def _to_device(self, p: Belief[FloatArray], least: float) -> Belief[Tensor]:
        return Belief(*(torch.from_numpy(x).float().clamp(min=least).to(self.device) for x in (p.VS, p.VT, p.ST)))

    def _due(self) -> bool:
        return time.monotonic() - self._saved >= SAVE_SECONDS * max(1.0, 2 * self._cost)

    def _save(self) -> None:
        self.ranks.same_buffers(self.method)
        started, engine = time.monotonic(), self.engine.state()
        if self.ranks.first:
            self.state.save(self.build.folder, engine)
        self._saved = time.monotonic()
        self._cost = self._saved - started

    def _resume(self) -> None:
        loaded = Progress.load(self.build.folder, self.device)
        if len({*self.ranks.all(loaded and (loaded[0].epoch, loaded[0].step))}) > 1:
            raise ArtifactError(f"not all processes see the same {self.build.folder}", hint="share the workspace")
        if loaded is None:
            return
        self.state, engine = loaded
        self.engine.load(engine)
        if self.state.epoch < self.config.epochs:
            epoch, step = self.state.epoch, self.state.step
            where = (
                f"after epoch {epoch}" if not step else f"after step {step} of {self.engine.steps} of epoch {epoch + 1}"
            )
            say(f"going on {where} of {self.config.epochs}")

    def _finish(self, stopped: str) -> None:
        """Writes the best epoch's weights and the record.

        Args:
            stopped: Why training ended early; empty if it did not.
        """
        state, timing = self.state, self.state.timing
        self.build.environment |= {
            "device": str(self.device),
            "threads": torch.get_num_threads(),
            "processes": self.ranks.size,
            "torch": torch.__version__,
            "seconds": round(sum(t["seconds"] for t in timing), 3),
            "triplets_per_second": round(float(np.median([t["triplets_per_second"] for t in timing])), 1),
            "epochs": [{name: round(value, 3) for name, value in t.items()} for t in timing],
        }
        if stopped:
            base.write_json(self.build.folder / run.STOPPED, {"why": stopped})
        state.write_history(self.build.folder)
        save_tensors(self.build.folder / "model.safetensors", state.model)
        self.build.finish(
            {
                "epochs": len(state.history),
                "best_epoch": state.best_epoch,
                "triplets": len(self.triplets),
                "steps": self.engine.steps * len(state.history),
                "parameters": sum(p.numel() for p in self.method.parameters()),
                **({"stopped": 1} if stopped else {}),
            }
        )


def _size(validation: Mapping[str, Gallery]) -> list[int]:
    """How many queries, of all languages, and items choose the epoch."""
    return [sum(len(each.texts) for each in validation.values()), len(next(iter(validation.values())).item_ids)]


def _figures(scored: Mapping[str, Figures]) -> dict[str, Any]:
    """Figures on validation; of several languages their means, and each language's."""
    told = {
        lang: {"SumR": each.sum_r, "mAP": each.mean_ap, "t2v": each.t2v, "v2t": each.v2t}
        for lang, each in scored.items()
    }
    if len(told) == 1:
        return next(iter(told.values()))
    return {**_figures({"": over_folds(list(scored.values()))}), "langs": told}
