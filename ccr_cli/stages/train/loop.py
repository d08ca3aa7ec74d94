"""The training loop of all methods: it resumes after any step and keeps the best epoch on validation.

Shape suffixes: N triplets, T texts, V visual items, D dimension.
"""

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
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
from ccr_cli.data.tokens import Tokens
from ccr_cli.errors import ArtifactError, CcrError
from ccr_cli.methods._coteaching import CoTaught
from ccr_cli.methods.base import Embedder, Method
from ccr_cli.nets.dual import DualEncoder
from ccr_cli.report.words.numbers import metric
from ccr_cli.stages.shared import judging
from ccr_cli.stages.shared.embedding import BATCH, choose_device, embed_texts, embed_visuals
from ccr_cli.stages.shared.scoring import EmbeddedGallery, Figures, over_folds, score_gallery
from ccr_cli.stages.shared.stop_signals import end_on, stop_signals
from ccr_cli.stages.shared.witnesses import recorded
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.processes import ProcessRank
from ccr_cli.stages.train.sources import Sources
from ccr_cli.stages.train.state import Progress, memory_mb, save_tensors
from ccr_cli.stages.train.step import Engine
from ccr_cli.stages.train.teacher import Teacher
from ccr_cli.stages.train.tracking import Curves, tracking
from ccr_cli.stages.train.training_data import TrainingData

STOPPING = "stopping after this step; the same signal again stops at once"
LEAST = 1e-6
"""Least probability that a judge without the truth can give: 0 would also remove the pair from the negatives."""
SAVE_SECONDS = 10.0
"""Seconds between saves of the state; more if a save takes over half a second, so that saving takes at most a twentieth
of the time."""
CHECK_STEPS = 50
"""Steps between checks that the loss is finite: reading it waits for the device."""
SPREAD = 1e-4
"""Least standard deviation of similarities; float32 resolves cosines to 1e-7, random vectors with D = 256 have 0.06."""
EQUAL = 1e-7
"""Uncertainties that differ by less are equal."""
_SAMPLE = 512


class Trainer:
    """Trains one run inside a building folder, resuming an earlier attempt."""

    def __init__(
        self,
        build: Build,
        sources: Sources,
        options: TrainingOptions,
        config: Any,
        teacher: Teacher | None,
        ranks: ProcessRank,
    ) -> None:
        self.build, self.options, self.ranks = build, options, ranks
        self.device, self.seed = choose_device(options.device), options.seed
        self.data = TrainingData(sources, config, options, teacher, build.folder)
        self.config, self.triplets = self.data.config, self.data.triplets
        least = 0.0 if self.data.judge.knows_truth else LEAST
        self.state = Progress(p=self.data.first_belief.tensors(self.device, least))
        module = registry.load("methods", options.method)
        self.method: Method = module.Method(self.config, self.data.visual_dim, self.data.text_encoder)
        self.engine = Engine(self.method, self.data, self.device, options, ranks)
        steps = self.engine.steps * self.config.epochs
        if self.config.lr_warmup >= steps > 0:
            warn(f"lr_warmup={self.config.lr_warmup}, and training has {steps} steps: its learning rate stays low")
        self._saved, self._cost = time.monotonic(), 0.0

    def train(self) -> None:
        """Trains to the last epoch and finishes the artifact; CcrError on a collapse before an epoch is complete."""
        if self.ranks.first:
            self._write_static()
        self._resume()
        epochs, steps = self.config.epochs, self.engine.steps
        done = self.state.epoch * steps + self.state.step
        collapse = ""
        tracker = self.options.report_to if self.ranks.first else None
        with (
            stop_signals(STOPPING if self.ranks.first else "") as received,
            progress(epochs * steps - done, f"train {self.options.method}", "steps") as advance,
            tracking(tracker, self.build.final, self.build.request, done) as curves,
        ):
            try:
                if self.state.best_epoch is None:
                    self._begin()
                while self.state.epoch < epochs:
                    self._epoch(self.state.epoch + 1, advance, received, curves)
            except Collapsed as collapsed:
                collapse = f"stopped in epoch {self.state.epoch + 1}: {collapsed}"
        if collapse and not epochs:
            raise ArtifactError(f"the pretrained model cannot be used: {collapse.partition(': ')[2]}")
        if collapse and self.state.best_epoch is None:
            lower = min(self.config.lr / 3, type(self.config)().lr)
            raise CcrError(collapse, hint=f"a lower learning rate may help: --set lr={lower:.0e}")
        if self.ranks.first:
            self._finish(collapse)

    def _write_static(self) -> None:
        """Writes what is known before the first step: the tokenizer and config.json."""
        folder, data, request = self.build.folder, self.data, self.build.request
        galleries = list(data.validation.values())
        name_of = {parent.kind: parent.path.rpartition("/")[2] for parent in self.build.parents}
        tokenizer = folder / "tokenizer"
        tokenizer.mkdir(exist_ok=True)
        data.tokenizer.save(tokenizer)
        settings = {key: request[key] for key in ("method", "lang", "seed", "noise", "preset")}
        settings |= {key: request[key] for key in ("langs", "translation_mix") if key in request}
        if "langs" in request or "alternatives" in request:
            each = data.translations.items()
            settings["translations"] = {lang: names if len(names) > 1 else names[0] for lang, names in each}
        if data.human:
            settings["human"] = list(data.human)
        settings |= {key: request[key] for key in ("pairs", "source") if key in request}
        settings |= {
            "select": data.select if data.validation and self.config.epochs else "last",
            "criterion": data.criterion,
            "validation": [sum(len(g.texts) for g in galleries), len(galleries[0].item_ids)] if galleries else None,
            "dtype": request["dtype"],
            "data": name_of["dataset"],
            "features": name_of["features"],
            "visual_dim": data.visual_dim,
        }
        if data.tower:
            settings["visual_tower"] = data.tower.config()
        settings |= {
            "text_encoder": self.method.encoder.text_encoder.config(),
            "triplets": len(self.triplets),
            "dropped": self.triplets.dropped,
            "options": recorded(self.config),
        }
        if Path(self.config.text_encoder).is_dir():
            self.build.environment["text_encoder"] = os.path.abspath(self.config.text_encoder)
        base.write_json(folder / "config.json", base.portable_values(settings, folder))

    def _begin(self) -> None:
        """Scores an aligned model before the first step, since it may be the best one, and judges the triplets.

        A judge that speaks first always judges here; one that speaks after each epoch does if the model is aligned, and
        there is no warm-up and no list of pairs with weights.
        """
        aligned, judged, data = self.config.aligned, None, self.data
        val = self._validate(0) if aligned else None
        early = aligned and not self.config.warmup_epochs and not data.weighed
        if data.judge.speaks == "first" or (data.judge.speaks == "epoch" and early):
            judged = self._judge(0)
        if aligned:
            entry = {"epoch": 0, "loss": {}, "val": val, "judge": judged, "best": self.state.best_epoch == 0}
            self.state.history.append(entry)

    def _epoch(self, epoch: int, advance: Any, received: list[int], curves: Curves) -> None:
        state, steps = self.state, self.engine.steps
        self.method.start_epoch(epoch)
        self.method.train()
        if state.step == 0:
            torch.manual_seed(derive(self.seed, "dropout", epoch, *([self.ranks.rank] if self.ranks.rank else [])))
        generator = torch.Generator().manual_seed(derive(self.seed, "order", epoch))
        order = self.data.order(generator, epoch, state.p)
        started = time.perf_counter() - state.seconds
        lr = self.engine.set_lr(epoch * steps - 1)  # for the history, if no step is left
        for step in range(state.step, steps):
            lr = self.engine.set_lr((epoch - 1) * steps + step)
            batches = self.engine.rows_of(order, step)
            state.add(self.engine.step(batches, state.p, judged=epoch > self.config.warmup_epochs))
            state.seconds = time.perf_counter() - started
            signal_number, due = self.ranks.agree(next(iter(received), None), self._due())
            if state.step % CHECK_STEPS == 0 or signal_number or due:
                self._check_loss()
            if state.step % CHECK_STEPS == 0:
                curves({"step": {**state.means(), "lr": lr}}, (epoch - 1) * steps + state.step)
            if signal_number or due:
                self._save()
            note = f"epoch {epoch}/{self.config.epochs}"
            best = f", best {self.data.criterion} {metric(state.best)}" if state.best >= 0 else ""
            advance(1, note=note + best)
            end_on(signal_number)
        self._check_loss()
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
        curves({**entry, "machine": state.timing[-1]}, epoch * steps)
        state.epoch, state.step, state.sums, state.seconds = epoch, 0, {}, 0.0
        signal_number, due = self.ranks.agree(next(iter(received), None), self._due())
        if signal_number or due or epoch == self.config.epochs:
            self._save()
        end_on(signal_number)

    def _check_loss(self) -> None:
        """Raises Collapsed if the loss is not finite, before a useless state is saved."""
        if not self.state.finite():
            means = self.state.means().items()
            terms = ", ".join(f"{term} {mean}" for term, mean in means if not math.isfinite(mean))
            raise Collapsed(f"the loss is not finite: {terms}")

    def _validate(self, epoch: int) -> dict[str, Any] | None:
        """Scores the half of validation that selects the epoch; keeps the weights if they are the best so far."""
        data, validation = self.data, self.data.validation
        self.method.eval()
        used = bool(epoch) or not self.config.epochs
        """Whether the model must tell items apart; before training it need not."""
        if not validation and not (used and len(self.triplets)):
            self._keep(epoch)
            return None
        if not validation:
            some = torch.arange(min(len(self.triplets), BATCH))
            items = self.triplets.visual.select(self.triplets.item_N[some])
            refuse_collapse(self.method, self._visuals(items), self._texts(data.target, some))
            self._keep(epoch)
            return None
        visual = self._visuals(next(iter(validation.values())).visual)
        texts = {lang: self._texts(data.tokenizer.encode(gallery.texts)) for lang, gallery in validation.items()}
        if used:
            refuse_collapse(self.method, visual, torch.cat(list(texts.values())))
        labelled = "labels" in data.needs
        scored = {
            lang: score_gallery(EmbeddedGallery(gallery, visual, texts[lang]), labelled=labelled)
            for lang, gallery in validation.items()
        }
        figures = self.ranks.of_first(_figures(scored))
        if figures[data.criterion] > self.state.best:
            self.state.best = figures[data.criterion]
            self._calibrate(visual, texts)
            self._keep(epoch)
        return figures

    def _visuals(self, visual: Frames, model: Embedder | None = None, folder: Path | None = None) -> Tensor:
        """Embeds items (V, D), divided among the processes; `folder` as for `embed_visuals`."""
        model = model or self.method
        return self.ranks.embed(lambda rows: embed_visuals(model, visual, self.device, rows, folder), len(visual))

    def _texts(
        self,
        table: Tokens,
        some_T: Tensor | None = None,
        model: Embedder | None = None,
        folder: Path | None = None,
    ) -> Tensor:
        """Embeds all or some texts (T, D), divided among the processes; `folder` as for `embed_texts`."""
        model, some = model or self.method, torch.arange(len(table)) if some_T is None else some_T
        return self.ranks.embed(lambda rows: embed_texts(model, table, self.device, some[rows], folder), len(some))

    def _calibrate(self, visual_VD: Tensor, text_TD_of: Mapping[str, Tensor]) -> None:
        """Passes the method the top similarities of all selecting queries and whether each first hit is right."""
        text_TD = torch.cat(list(text_TD_of.values()))
        item_T = torch.cat([torch.from_numpy(self.data.validation[lang].item_T) for lang in text_TD_of])
        item_T = item_T.to(self.device)
        parts = []
        for rows in torch.split(torch.arange(len(text_TD), device=self.device), BATCH):
            best = (text_TD[rows] @ visual_VD.T).topk(min(2, len(visual_VD)), dim=1)
            parts.append((best.values, best.indices[:, 0] == item_T[rows]))
        self.method.calibrate(*(torch.cat(part) for part in zip(*parts, strict=True)))

    def _judge(self, epoch: int) -> dict[str, Any] | None:
        """Judges all training triplets and records the evidence; from the end of the warm-up, training uses the belief.

        Epoch 0 is before the first step; a judge that speaks only then keeps its opinion.

        Returns the judge's figures; None without a judge, and for one that knows the truth.
        """
        config, data, judge = self.config, self.data, self.data.judge
        if judge.speaks == "never":
            return None
        self.method.eval()
        models = self.method.encoders() if isinstance(self.method, CoTaught) else [self.method]
        embedded = [self._embed_triplets(model) for model in models]
        each = [one.similarities() for one in embedded]
        similarities = {side: np.mean([one[side] for one in each], axis=0) for side in each[0]}
        if not all(np.isfinite(sim_N).all() for sim_N in similarities.values()):
            raise Collapsed("similarities of training pairs are not finite")
        if not self.ranks.first:
            return self._same_belief(None)
        first = judge.speaks == "first"
        if data.fixed_opinion:
            opinions = [data.fixed_opinion]
        elif first and epoch:
            opinions = judging.by_model(self.state.p)
        else:
            memory = self.state.memory
            opinions = [
                judging.judge_triplets(
                    judge,
                    config.judge_side,
                    one,
                    self.triplets,
                    seed=derive(self.seed, "null", epoch),
                    batch_size=config.batch_size,
                    scores=self.method.judge_scores,
                    config=config,
                    memory=memory if len(models) == 1 else memory.setdefault(f"model {number}", {}),
                )
                for number, one in enumerate(embedded)
            ]
        if (first and not epoch) or (epoch >= config.warmup_epochs and judge.speaks == "epoch"):
            self.state.p = judging.columns(opinions).tensors(self.device, LEAST)
        opinion = judging.mean_opinion(opinions)
        figures = None if judge.knows_truth else judging.quality(opinion, self.triplets)
        if not epoch and not config.aligned:  # a new head is random
            return self._same_belief(figures)
        folder = self.build.folder / "evidence"
        folder.mkdir(exist_ok=True)
        frame = pd.DataFrame(
            {
                "slot_id": self.triplets.slot_ids,
                "lang": np.asarray(self.triplets.langs)[self.triplets.lang_N],
                "alternative": self.triplets.alternative_N,
                **{f"sim_{side.lower()}": similarities[side].astype(np.float32) for side in ("VS", "VT", "ST")},
                "p_clean": opinion.p.VT.astype(np.float32),
            }
        )
        write_table(folder / f"epoch-{epoch:03d}.parquet", frame, run.evidence_schema(self.build.request))
        return self._same_belief(figures)

    def _embed_triplets(self, model: Embedder) -> judging.TripletEmbeddings:
        """Embeds the training triplets with the method, or with one of its models."""
        return judging.TripletEmbeddings(
            self._visuals(self.engine.visual, model, self.build.folder),
            self._texts(self.data.source, model=model, folder=self.build.folder),
            self._texts(self.data.target, model=model, folder=self.build.folder),
            self.triplets.item_N.to(self.device),
        )

    def _same_belief(self, quality: dict[str, Any] | None) -> dict[str, Any] | None:
        """Gives all processes the belief of the first one; returns the first one's figures."""
        if self.ranks.size > 1:
            p, quality = self.ranks.of_first((self.state.p.map(lambda side: side.cpu()), quality))
            self.state.p = p.map(lambda side: side.to(self.device))
        return quality

    def _keep(self, epoch: int) -> None:
        self.state.best_epoch = epoch
        if self.ranks.first:
            self.state.model = {k: v.detach().cpu().clone() for k, v in self.method.state_dict().items()}

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
            raise ArtifactError(f"processes see different contents of {self.build.folder}", hint="share the workspace")
        if loaded is None:
            return
        self.state, engine = loaded
        self.engine.load(engine)
        epoch, step, epochs = self.state.epoch, self.state.step, self.config.epochs
        if epoch < epochs:
            place = f"step {step} of {self.engine.steps} of epoch {epoch + 1}" if step else f"epoch {epoch}"
            say(f"going on after {place} of {epochs}")

    def _finish(self, collapse: str) -> None:
        """Writes the best epoch's weights, the record, and why training ended early, if it did."""
        state, timing = self.state, self.state.timing
        self.build.environment |= {
            "device": str(self.device),
            "threads": torch.get_num_threads(),
            "processes": self.ranks.size,
            "torch": torch.__version__,
            "seconds": round(sum(t["seconds"] for t in timing), 3),
            "triplets_per_second": round(float(np.median([t["triplets_per_second"] for t in timing] or [0.0])), 1),
            "epochs": [{name: round(value, 3) for name, value in t.items()} for t in timing],
        }
        if collapse:
            base.write_json(self.build.folder / run.STOPPED, {"why": collapse})
        state.write_history(self.build.folder)
        save_tensors(self.build.folder / "model.safetensors", state.model)
        self.build.finish(
            {
                "epochs": state.epoch,
                "best_epoch": state.best_epoch or 0,
                "triplets": len(self.triplets),
                "steps": self.engine.steps * state.epoch,
                "parameters": sum(p.numel() for p in self.method.parameters()),
                "models": sum(isinstance(part, DualEncoder) for part in self.method.modules()),
                **({"stopped": 1} if collapse else {}),
            }
        )


def _figures(scored: Mapping[str, Figures]) -> dict[str, Any]:
    """Validation figures; with several languages, their means and the figures of each language."""
    by_lang = {
        lang: {"SumR": figures.sum_r, "mAP": figures.mean_ap, "t2v": figures.t2v, "v2t": figures.v2t}
        for lang, figures in scored.items()
    }
    if len(by_lang) == 1:
        return next(iter(by_lang.values()))
    return {**_figures({"": over_folds(list(scored.values()))}), "langs": by_lang}


class Collapsed(Exception):
    """Training that has collapsed: the loss is not finite, or the model cannot tell items apart."""


def refuse_collapse(method: Method, visual_VD: Tensor, text_TD: Tensor) -> None:
    """Checks a sample of embedded items and texts.

    Raises:
        Collapsed: If vectors are not finite, all similarities are equal, or all texts are equally uncertain.
    """
    some_T = torch.linspace(0, len(text_TD) - 1, min(len(text_TD), _SAMPLE), device=text_TD.device).long()
    some_V = torch.linspace(0, len(visual_VD) - 1, min(len(visual_VD), _SAMPLE), device=visual_VD.device).long()
    sim_TV, uncertainty_T = method.score(text_TD[some_T], visual_VD[some_V])
    if count := int((~sim_TV.isfinite()).sum()):
        raise Collapsed(f"{count} of {sim_TV.numel()} similarities of texts and items are not finite")
    if sim_TV.numel() > 2 and float(sim_TV.std()) < SPREAD:
        raise Collapsed(f"all similarities are equal, {float(sim_TV.mean()):.4f}: the model tells nothing apart")
    if uncertainty_T is None or len(some_T) < 3 or method.calibrated:  # 0 for all is right if all hits are
        return
    low, high = float(uncertainty_T.min()), float(uncertainty_T.max())
    if high - low < EQUAL:
        raise Collapsed(f"the evidence is saturated: the uncertainty of every text is {low:.4f}")
