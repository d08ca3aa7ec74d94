"""The data of training: triplets, their texts tokenised once, and the selecting half of validation.

Shape suffixes: N triplets, V visual items.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from ccr_cli.artifacts import dataset, noise, translation
from ccr_cli.console import say, warn
from ccr_cli.data.seeds import derive
from ccr_cli.data.tokens import HFTokenizer, Tokenizer, TokenTable
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.judges.base import Belief, FloatArray, Judge, Opinion, load_judge
from ccr_cli.nets.text import TextEncoder
from ccr_cli.nets.tower import VisualTower
from ccr_cli.stages.shared import judging
from ccr_cli.stages.shared.options import configure
from ccr_cli.stages.shared.pixels import load_tower, require_same
from ccr_cli.stages.shared.text_encoders import make_text_encoder, make_tokenizer
from ccr_cli.stages.shared.triplets import Gallery, Triplets, gallery, training_triplets, without
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.sources import Sources

UNKNOWN = 0.2
"""Fraction of unknown tokens above which a tokenizer is broken or of another script."""


@dataclass(frozen=True)
class TrainingData:
    """Everything that training reads."""

    config: Any
    """The method's options, with `classes` counted where it was 0."""
    data: dataset.Dataset
    triplets: Triplets
    tokenizer: Tokenizer
    source: TokenTable
    target: TokenTable
    """`source` itself if nothing was translated."""
    back: TokenTable | None
    tower: VisualTower | None
    """The encoder of the features, if it is trained too."""
    label_V: Tensor | None
    """Category of each training item, numbered from 0, for a method that learns them."""
    validation: dict[str, Gallery]
    """The selecting half of validation by query language; empty where no epoch can be selected."""
    select: str
    """The selecting queries: `mt` or `human`."""
    human: tuple[str, ...]
    """Languages whose training captions were translated by people."""
    judge: Judge
    drawn: int | None
    """Seed that draws one language per caption each epoch; None: all languages each epoch."""
    fixed_opinion: Opinion | None
    """The opinion of a judge that needs no model: it stays the same in all epochs."""
    weights: Belief[FloatArray] | None = None
    """The probabilities of a list of pairs, if they weight the triplets."""

    @property
    def needs(self) -> frozenset[str]:
        """The inputs that the method reads, `Config.needs`."""
        needed: frozenset[str] = self.config.needs()
        return needed

    @property
    def visual_dim(self) -> int:
        """Length of a feature."""
        return self.triplets.visual.dim if self.tower is None else self.tower.dim

    @property
    def per_epoch(self) -> int:
        """Triplets per epoch."""
        return len(self.triplets) if self.drawn is None else int(self.triplets.slot_N.max()) + 1

    def order(self, generator: torch.Generator, epoch: int) -> Tensor:
        """The triplets of an epoch, in their order.

        Args:
            generator: Draws the order.
            epoch: Number of the epoch, from 1.
        """
        if self.drawn is None:
            return torch.randperm(len(self.triplets), generator=generator)
        rows = torch.from_numpy(draw(self.triplets.slot_N, derive(self.drawn, "language", epoch)))
        return rows[torch.randperm(len(rows), generator=generator)]

    @property
    def criterion(self) -> str:
        """The validation figure that selects the epoch."""
        return "mAP" if "labels" in self.needs else "SumR"

    def text_encoder(self) -> TextEncoder:
        """A new text encoder for these texts; torch's seed decides its first weights."""
        return make_text_encoder(self.config, self.data)

    def first_belief(self) -> Belief[FloatArray]:
        """The belief before the first epoch: of a judge that needs no model, of a list of pairs, or in all triplets."""
        if self.fixed_opinion is not None:
            return self.fixed_opinion.p
        return self.weights or judging.trust(self.triplets)


def read_training_data(sources: Sources, config: Any, options: TrainingOptions) -> TrainingData:
    """Reads the data of training.

    Args:
        sources: The artifacts.
        config: The method's options.
        options: The options of `ccr train`: method, seed, langs and select_on are read.

    Raises:
        ArtifactError: If an input of the method is missing.
        UsageError: If there are more categories than `classes`, or texts that cannot be compared.
    """
    whole, translations = dataset.read(sources.data), sources.translations()
    pairs = noise.read(sources.noise) if sources.noise else None
    second = translation.read(sources.second) if sources.second else None
    human = _by_people(sources, translations, whole)
    data = without(whole, getattr(config, "left_out", ""))
    needs = config.needs()
    tower = load_tower(sources.features, config.visual_frozen_layers) if "media" in needs else None
    judge = load_judge(config.judge)
    triplets = training_triplets(
        data, translations, pairs, sources.features, needs, second, compared=judge.compares_texts
    )
    if tower is not None:
        require_same(tower, triplets.visual, sources.features, triplets.item_ids)
    _require(needs, triplets, sources, translations, options.method)
    if triplets.dropped:
        why = "an item without features, or a caption untranslated or not translated back"
        warn(f"{triplets.dropped} triplets left out: {why}")
    triplets, weights = sources.pairs.apply(triplets) if sources.pairs else (triplets, None)
    if weights is not None and not judge.needs_model:
        hint = "leave --pairs-weight out, or --set judge=none"
        raise UsageError(
            f"judge={config.judge} and --pairs-weight both decide the belief in the pairs from the start", hint=hint
        )
    if config.visual != "projection" and tower is None and bool((triplets.visual.offsets_V1.diff() == 1).all()):
        warn(f"visual={config.visual} reads the rows of an item together, and every training item has one row")
    if judge.speaks in ("step", "epoch") and config.epochs <= config.warmup_epochs:
        warn(f"judge={config.judge} has no effect: warmup_epochs={config.warmup_epochs} of {config.epochs} epochs")
    select = options.select_on if sources.translated else "human"
    validation = _validation(data, translations, sources, select, needs)
    fixed_opinion = None
    if judge.speaks == "start":
        fixed_opinion = judging.judge_triplets(judge, "", None, triplets, seed=derive(options.seed, "null"))
    tokenizer = make_tokenizer(config, whole)
    say("tokenising", level=1)
    source = tokenizer.encode(triplets.source)
    if isinstance(tokenizer, HFTokenizer) and (unknown := tokenizer.unknown(source)) > UNKNOWN:
        warn(f"{unknown:.0%} of the captions' tokens are unknown to the tokenizer of {config.text_encoder}")
    label_V = None
    if "labels" in needs and triplets.label_V is not None:
        labels, numbers = np.unique(triplets.label_V.numpy(), return_inverse=True)
        label_V = torch.from_numpy(numbers)
        classes = config.classes or len(labels)
        if classes < len(labels):
            raise UsageError(f"classes={classes}, and the training items have {len(labels)} categories")
        config = configure(type(config), {"classes": classes}, f"method {options.method}", config)
    return TrainingData(
        config=config,
        data=whole,
        triplets=triplets,
        tokenizer=tokenizer,
        source=source,
        target=tokenizer.encode(triplets.target) if sources.translated else source,
        back=tokenizer.encode(triplets.back or []) if "back" in needs else None,
        tower=tower,
        label_V=label_V,
        validation=validation,
        select=select,
        human=human,
        judge=judge,
        drawn=options.seed if options.langs == "draw" else None,
        fixed_opinion=fixed_opinion,
        weights=weights,
    )


def _by_people(sources: Sources, translations: Mapping[str, pd.DataFrame], data: dataset.Dataset) -> tuple[str, ...]:
    """The languages in which people wrote the training captions."""
    if not sources.translated:
        return ()
    langs = tuple(lang for lang, frame in translations.items() if translation.by_people(frame, data.captions))
    for lang in langs:
        warn(f"people wrote the {lang} training captions: the run is marked as trained on human captions")
    return langs


def draw(slot_N: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64]:
    """Draws one triplet of each slot, of any language.

    Args:
        slot_N: Slot of each triplet.
        seed: Seed of the draw.

    Returns:
        Rows of the drawn triplets, ascending.
    """
    shuffled = np.random.default_rng(seed).permutation(len(slot_N))
    _, first = np.unique(slot_N[shuffled], return_index=True)
    return np.sort(shuffled[first])


def _require(
    needs: frozenset[str],
    triplets: Triplets,
    sources: Sources,
    translations: Mapping[str, pd.DataFrame],
    method: str,
) -> None:
    """Refuses to train without the method's inputs."""
    if "back" in needs and triplets.back is None:
        lacking = [lang for lang, frame in translations.items() if not (frame["direction"] == "back").any()]
        languages = " ".join(f"--lang {lang}" for lang in lacking or triplets.langs)
        raise ArtifactError(
            f"{method} reads back-translations, and the translations into "
            f"{' and '.join(lacking or triplets.langs)} lack them",
            hint=f"ccr translate {languages} --back, or --set cycle_weight=0",
        )
    if "labels" in needs and triplets.label_V is None:
        raise ArtifactError(f"{method} learns categories, and items of {sources.data.path} have no label")


def _validation(
    data: dataset.Dataset,
    translations: Mapping[str, pd.DataFrame],
    sources: Sources,
    select_on: str,
    needs: frozenset[str],
) -> dict[str, Gallery]:
    """The selecting half of validation with its queries, by language: machine-translated by default."""
    galleries, missed = {}, {}
    for lang, frame in translations.items():
        if select_on == "human":
            captions = data.captions[data.captions["lang"] == lang]
            what = f"human {lang} captions"
        else:
            captions = frame.loc[frame["direction"] == "forward", ["caption_id", "item_id", "text"]]
            what = f"translations into {lang}"
        try:
            galleries[lang] = gallery(data, sources.features, "val-select", captions, what, needs)
        except ArtifactError as error:
            missed[lang] = error.message
    for lang, why in missed.items():
        if galleries:
            warn(f"{lang} does not count for model selection: {why}")
    if not galleries:
        warn(f"no model selection, the last epoch is kept: {'; '.join(dict.fromkeys(missed.values()))}")
    return galleries
