"""Training data: triplets, their texts tokenised once, and the half of validation that selects the epoch.

Shape suffixes: N triplets, V visual items.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from ccr_cli.artifacts import arrays, dataset, noise, translation
from ccr_cli.console import counted, say, warn
from ccr_cli.data.seeds import derive
from ccr_cli.data.tokens import HFTokenizer, Tokens
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.judges.base import Belief, FloatArray, load_judge
from ccr_cli.methods.base import Method
from ccr_cli.stages.shared import judging
from ccr_cli.stages.shared.embedding import choose_device
from ccr_cli.stages.shared.options import configure
from ccr_cli.stages.shared.pixels import load_tower, require_same
from ccr_cli.stages.shared.text_encoders import make_text_side, read_text_vectors, readable_texts
from ccr_cli.stages.shared.triplets import Gallery, gallery, training_triplets, without
from ccr_cli.stages.train.alignment import require_same_space
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.sources import Sources
from ccr_cli.stages.train.teacher import Teacher

UNKNOWN = 0.2
"""Fraction of unknown tokens above which the tokenizer is probably broken or made for another script."""

TINY = 1e-12
"""Least weight of a translation in a draw."""
FEW = 10
"""Validation items below which the selection of an epoch is chance."""


class TrainingData:
    """Everything that training reads from its artifacts, by the options of the method and of `ccr train`.

    Large tables of tokens are kept in files of `folder`, if given.

    Raises:
        ArtifactError: If an input of the method is missing.
        UsageError: If there are more categories than `classes`, vectors of texts and pictures differ in dimension,
            corrections lack back-translations that are read, or weights of a list and a judge conflict.
    """

    def __init__(
        self,
        sources: Sources,
        config: Any,
        options: TrainingOptions,
        teacher: Teacher | None = None,
        folder: Path | None = None,
    ) -> None:
        self._read(sources, config, options)  # a method of its own, to free its tables
        self.teacher: tuple[Method | None, Tensor] | None = None
        """The teacher's method (None for a sentence encoder) and its vectors of the source captions (N, D)."""
        if teacher:
            self.teacher = teacher.vectors(self.triplets.source, choose_device(options.device))
        torch.manual_seed(derive(options.seed, "init"))  # the text encoder and the method's layers draw their weights
        self.tokenizer, self.text_encoder = make_text_side(config, partial(dataset.read, sources.data), self.vectors)
        say("tokenising", level=1)
        self.source = self._tokens(self.triplets.source, folder)
        if isinstance(self.tokenizer, HFTokenizer) and (unknown := self.tokenizer.unknown(self.source)) > UNKNOWN:
            warn(f"{unknown:.0%} of the captions' tokens are unknown to the tokenizer of {config.text_encoder}")
        self.target = self._tokens(self.triplets.target, folder) if sources.translated else self.source
        """`source` itself if nothing was translated."""
        self.back = self._tokens(self.triplets.back or [], folder) if "back" in self.needs else None
        self.label_V: Tensor | None = None
        """Category of each training item, numbered from 0, for a method that learns them."""
        if "labels" in self.needs and self.triplets.label_V is not None:
            labels, numbers = np.unique(self.triplets.label_V.numpy(), return_inverse=True)
            self.label_V = torch.from_numpy(numbers)
            classes = config.classes or len(labels)
            if classes < len(labels):
                raise UsageError(f"classes={classes}, and the training items have {len(labels)} categories")
            config = configure(type(config), {"classes": classes}, f"method {options.method}", config)
        self.config = config
        """The method's options, with `classes` counted where it was 0."""
        self.drawn = options.langs == "draw"
        """Whether each epoch has every caption in one language only."""
        self.seed, self.mix = options.seed, options.translation_mix

    def _tokens(self, texts: list[str], folder: Path | None) -> Tokens:
        table = self.tokenizer.encode(texts)
        if folder is None:
            return table
        ids_N, starts_N = (torch.from_numpy(arrays.moved(x.numpy(), folder)) for x in (table.ids_N, table.starts_N))
        return replace(table, ids_N=ids_N, starts_N=starts_N)

    def _read(self, sources: Sources, config: Any, options: TrainingOptions) -> None:
        """Reads the triplets and the validation queries."""
        data, translations = dataset.read(sources.data), sources.translations()
        captions, translated = data.captions, translations if sources.translated else {}
        self.translations = {lang: list(frames) for lang, frames in translations.items()}
        """Names of the translations by language."""
        self.human = tuple(
            lang
            for lang, frames in translated.items()
            if any(translation.by_people(frame, captions) for frame in frames.values())
        )
        for lang in self.human:
            warn(f"people wrote the {lang} training captions: the run is marked as trained on human captions")
        self.vectors = None
        """Vectors of texts instead of a text encoder; captions without one are left out."""
        if options.text_vectors:
            done = [frame[frame["text"].notna()] for frames in translated.values() for frame in frames.values()]
            texts = pd.concat([frame[["caption_id", "text"]] for frame in (captions, *done)])
            self.vectors = read_text_vectors(options.text_vectors, texts)
            if config.aligned:
                require_same_space(self.vectors, sources.features)
        self.needs: frozenset[str] = config.needs()
        """The inputs that the method reads, `Config.needs`."""
        self.tower = load_tower(sources.features, config.visual_frozen_layers) if "media" in self.needs else None
        """The encoder that made the features, if it is trained too."""
        self.judge = load_judge(config.judge)
        used, compared = without(data, getattr(config, "left_out", "")), self.judge.compares_texts
        least = 2 if config.epochs else 0
        if self.vectors:
            training = config.epochs > 0
            used, translations = readable_texts(self.vectors.tokenizer, used, translations, training=training)
        triplets = training_triplets(
            used,
            translations,
            noise.read(sources.noise) if sources.noise else None,
            sources.features,
            self.needs,
            translation.read(sources.second) if sources.second else None,
            compared=compared,
            least=least,
        )
        if "back" in self.needs and triplets.back is None:
            lacking = [
                lang
                for lang, frames in translations.items()
                if not all((frame["direction"] == "back").any() for frame in frames.values())
            ]
            languages = " ".join(f"--lang {lang}" for lang in lacking or triplets.langs)
            raise ArtifactError(
                f"{options.method} reads back-translations, and the translations into "
                f"{' and '.join(lacking or triplets.langs)} lack them",
                hint=f"ccr translate {languages} --back, or --set cycle_weight=0",
            )
        if "labels" in self.needs and triplets.label_V is None:
            problem = f"{options.method} learns categories, and items of {sources.data.path} have no label"
            raise ArtifactError(problem, hint="import them with a column of labels: --columns label=NAME")
        if triplets.dropped:
            why = "the item has no features, or the caption has no translation"
            why += " or no back-translation" if "back" in self.needs or compared else ""
            warn(f"{counted(triplets.dropped, 'triplet')} left out: {why}")
        visual, item_ids = triplets.visual, triplets.item_ids
        reads_back = triplets.back is not None and ("back" in self.needs or (compared and not sources.second))
        triplets, self.listed = sources.pairs.apply(triplets) if sources.pairs else (triplets, None)
        """The belief in each triplet from a list of pairs; None without one, or if it has no probabilities."""
        weights = self.listed if sources.pairs and sources.pairs.weighted else None
        if sources.pairs and reads_back and triplets.back is None:
            path = sources.pairs.table.path
            reader = options.method if "back" in self.needs else f"the judge {config.judge}"
            hint = f"ccr translate --only {path} --engine NAME makes them; train on the result"
            raise UsageError(f"{reader} reads back-translations, and the corrections in {path} have none", hint=hint)
        self.triplets = triplets
        if weights is not None and self.judge.speaks in ("first", "start"):
            hint = "leave --weigh-verdicts out, or --set judge=none"
            raise UsageError(
                f"judge={config.judge} and --weigh-verdicts both decide the belief in the pairs from the start",
                hint=hint,
            )
        if (
            config.visual != "projection"
            and self.tower is None
            and bool((triplets.visual.offsets_V1.diff() == 1).all())
        ):
            warn(f"visual={config.visual} reads the rows of an item together, and every training item has one row")
        if self.judge.speaks in ("step", "epoch") and config.epochs <= config.warmup_epochs:
            warn(f"judge={config.judge} is never used: warmup_epochs={config.warmup_epochs} of {config.epochs} epochs")
        self.select = options.select_on if sources.translated else "human"
        """Kind of the queries that select the epoch: `mt` or `human`."""
        self.validation: dict[str, Gallery] = {}
        """The half of validation that selects the epoch, by query language; empty if no epoch can be selected."""
        missed = {}
        for lang, frames in translations.items():
            frame = next(iter(frames.values()))
            queries, what = frame[frame["direction"] == "forward"], f"translations into {lang}"
            if self.select == "human":
                queries, what = used.captions_in(lang), f"human {lang} captions"
            queries = queries[["caption_id", "item_id", "text"]]
            try:
                self.validation[lang] = gallery(used, sources.features, "val-select", queries, what, self.needs)
            except ArtifactError as error:
                missed[lang] = error.message
        items = max((len(searched.item_ids) for searched in self.validation.values()), default=FEW)
        if items < FEW and config.epochs:
            warn(f"only {counted(items, 'validation item')} to select the epoch by: which epoch is kept is chance")
        for lang, reason in missed.items() if self.validation else ():
            warn(f"{lang} does not count for model selection: {reason}")
        if not self.validation and config.epochs:
            warn(f"no model selection, the last epoch is kept: {'; '.join(dict.fromkeys(missed.values()))}")
        self.fixed_opinion = None
        """The opinion of a judge that needs no model, the same in all epochs."""
        if self.judge.speaks == "start":
            seed = derive(options.seed, "null")
            self.fixed_opinion = judging.judge_triplets(self.judge, "", None, triplets, seed=seed, config=config)
        self.weighed = weights is not None
        """Whether a list of pairs weights the triplets."""
        self.first_belief: Belief[FloatArray] = weights or Belief(*[np.ones(len(triplets))] * 3)
        """The belief before the first epoch: of a judge that needs no model, of a list with weights, or 1 for all."""
        if self.fixed_opinion is not None:
            self.first_belief = self.fixed_opinion.p
        if self.tower is not None:
            require_same(self.tower, visual, sources.features, item_ids)

    @property
    def visual_dim(self) -> int:
        """Length of a feature."""
        return self.triplets.visual.dim if self.tower is None else self.tower.dim

    @property
    def per_epoch(self) -> int:
        """Triplets per epoch."""
        return len(np.unique(self.triplets.slot_N if self.drawn else self.triplets.place_N))

    def order(self, generator: torch.Generator, epoch: int, p: Belief[Tensor]) -> Tensor:
        """Draws the order of an epoch's triplets (epochs count from 1); `p` is the belief in all triplets.

        If a caption has several translations into one language, one is drawn: with equal probability (`draw`), or in
        proportion to the belief in S-T (`weighted`: the least of exponential variables with these rates); or the most
        believed is taken, the first named on a tie (`trusted`). A list of pairs with probabilities overrides `p`.
        """
        rows = np.arange(len(self.triplets))
        if self.triplets.alternative_N is not None:
            trust_N = p.ST.cpu().double().numpy() if self.listed is None else self.listed.ST
            trust_N = trust_N.reshape(len(rows), -1).mean(axis=1)  # over models judged one by one
            rng = np.random.default_rng(derive(self.seed, "translation", epoch))
            order_N = rng.permutation(rows)
            if self.mix == "weighted":
                order_N = np.argsort(rng.exponential(size=len(rows)) / np.maximum(trust_N, TINY))
            elif self.mix == "trusted":
                order_N = np.argsort(-trust_N, kind="stable")
            rows = first_of_each(self.triplets.place_N, order_N)
        if self.drawn:
            slot_N = self.triplets.slot_N[rows]
            order_N = np.random.default_rng(derive(self.seed, "language", epoch)).permutation(len(rows))
            rows = rows[first_of_each(slot_N, order_N)]
        return torch.from_numpy(rows)[torch.randperm(len(rows), generator=generator)]

    @property
    def criterion(self) -> str:
        """The validation figure that selects the epoch."""
        return "mAP" if "labels" in self.needs else "SumR"


def first_of_each(group_N: npt.NDArray[np.int64], order_N: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The row of each group that comes first in an order of the rows; the rows are returned in ascending order."""
    _, first = np.unique(group_N[order_N], return_index=True)
    return np.sort(order_N[first])
