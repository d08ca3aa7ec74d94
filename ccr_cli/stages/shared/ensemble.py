"""The models that are evaluated: one run, or several as an ensemble whose similarities are averaged.

The mean is over unnormalised cosines, so a pair's mean depends on that pair alone: it is computed block by block, as a
dot product of joined vectors. Min-max normalised similarities would depend on the whole query set.

Shape suffixes: V visual items, T texts, D embedding, X either.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from ccr_cli.artifacts import base, dataset, run, signature, translation
from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.artifacts.label import Label
from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import HFTokenizer
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.methods.base import Method, joined
from ccr_cli.metrics.corruption import mask_features
from ccr_cli.stages.shared.embedding import embed_visuals, encode_and_embed
from ccr_cli.stages.shared.inputs import Inputs, like, made_from
from ccr_cli.stages.shared.load_run import load_method, method_label, run_settings, translations_of
from ccr_cli.stages.shared.triplets import Gallery, read_visuals


@dataclass(frozen=True)
class Member:
    """A run that is evaluated, alone or in an ensemble."""

    artifact: base.Artifact
    settings: dict[str, Any]
    """Its config.json."""
    features: base.Artifact
    translated: Mapping[str, Sequence[base.Artifact]]
    """The translations it was trained on, by language."""

    @cached_property
    def engines(self) -> dict[str, str]:
        """The engines (or people) that made the translations it was trained on, by language, for the signature."""
        engines, human = {}, self.settings.get("human", [])
        for lang, artifacts in self.translated.items():
            frame = pd.concat(map(translation.read, artifacts))
            name = translation.engines(frame[frame["direction"] == "forward"])
            engines[lang] = f"{signature.HUMAN}:{name}" if lang in human else name
        return engines

    def must_agree(self, lang: bool, protocol: bool, own: bool) -> list[tuple[str, str, str]]:
        """What the runs of an ensemble must agree in: name, value here, and hint; arguments as for `read_ensemble`."""
        settings, data, noise = self.settings, self.artifact.parent("dataset"), self.settings["noise"]
        usual = "labelled" if settings.get("criterion") == "mAP" else "full"
        left_out = str(settings["options"].get("left_out", "")) or "none"
        kind = f"{signature.noise_kind(noise)}-{noise['ratio']:g}" if noise else "none"
        where, langs = f"{data.path} ({data.id[:8]})", "" if lang else " and ".join(run.langs(settings))
        alone = "or leave --ensemble out"
        return [
            ("trained on", where, f"give runs of one data set, {alone} to evaluate each by itself"),
            ("for queries in", langs, "--lang LANG, or give runs of one language"),
            ("by the protocol", "" if protocol else usual, "--protocol full, or labelled"),
            ("without the categories", left_out if own else "", f"give runs that left out the same, {alone}"),
            ("trained with noise", kind, f"give runs of one kind and ratio of noise, {alone}"),
        ]


@dataclass(frozen=True)
class Ensemble:
    """The runs that are evaluated together; most often a single one."""

    members: Sequence[Member]
    data: Dataset
    """The data set that the runs were trained on."""

    @property
    def first(self) -> Member:
        """The member whose dataset, split and languages the evaluation uses."""
        return self.members[0]

    @property
    def several(self) -> bool:
        """Whether there is more than one run."""
        return len(self.members) > 1

    @property
    def name(self) -> str:
        """The run's name; for several runs, the words that all names begin with, and the number of runs."""
        names = [member.artifact.name for member in self.members]
        if not self.several:
            return names[0]
        words = takewhile(lambda same: len({*same}) == 1, zip(*(name.split("-") for name in names), strict=False))
        return "-".join([*(word for word, *_ in words), f"x{len(names)}"])

    @property
    def settings(self) -> dict[str, Any]:
        """The run's config; for several runs, the first one's, with all methods and the lowest seed.

        If human queries in the target language selected the epoch of any run, `select` is `human`.
        """
        configs = [member.settings for member in self.members]
        if not self.several:
            return configs[0]
        selects = [settings["select"] for settings in configs]
        return configs[0] | {
            "method": "+".join(dict.fromkeys(settings["method"] for settings in configs)),
            "seed": min(settings["seed"] for settings in configs),
            "select": next((select for select in ("human", "mt") if select in selects), "last"),
        }

    def features_of(
        self, inputs: Inputs, data: Dataset, first: base.Artifact | None = None
    ) -> tuple[base.Artifact, ...]:
        """The features of a data set for each run; the first run reads `first`, by default its own."""
        found = [first or self.first.features]
        for member in self.members[1:]:
            if member.features.id == self.first.features.id:
                found.append(found[0])
            elif made_from(data.artifact)(member.features):
                found.append(member.features)
            else:
                found.append(like(inputs, member.features, data))
        return tuple(found)

    def trained_on(self, lang: str) -> dict[str, str]:
        """The facts of training for the signature of queries in a language: engines, noise, selecting queries."""
        engines = [signature.mt_value(member.engines, lang) for member in self.members]
        noises = [signature.noise_value(member.settings["noise"]) for member in self.members]
        values = {"mt": engines, "noise": noises}
        facts = {key: "+".join(dict.fromkeys(each)) for key, each in values.items()}
        return {**facts, "select": self.settings["select"]}

    def heading(self) -> dict[str, Any]:
        """The fields of a result that name the runs."""
        noise, settings = self.first.settings["noise"], self.settings
        names = {"ensemble": [member.artifact.name for member in self.members]} if self.several else {}
        return {
            "run": self.name,
            **names,
            "method": settings["method"],
            "label": str(Label.ensemble(method_label(member.settings) for member in self.members)),
            "noise": noise["ratio"] if noise else 0.0,
            "seed": settings["seed"],
        }


def read_ensemble(inputs: Inputs, runs: Sequence[base.Artifact], *, lang: bool, protocol: bool, own: bool) -> Ensemble:
    """Reads runs to evaluate together, in the order of their names; UsageError if they cannot form an ensemble.

    They must agree in the data set, the kind and ratio of noise, the query languages and the protocol (unless options
    set these: `lang`, `protocol`), and the categories left out of training if evaluated on their `own` data set.
    """
    members, runs, workspace = [], sorted(runs, key=lambda artifact: artifact.name), inputs.workspace
    data = inputs.parent(runs[0], "dataset")
    for artifact in runs:
        settings = run_settings(artifact)
        features, translated = workspace.parent(artifact, "features"), translations_of(workspace, artifact)[0]
        members.append(Member(artifact, settings, features, translated))
    first, *others = members
    for other in others:
        pairs = zip(first.must_agree(lang, protocol, own), other.must_agree(lang, protocol, own), strict=True)
        for (what, value, hint), (_, theirs, _) in pairs:
            if value != theirs:
                names = f"{first.artifact.name} and {other.artifact.name}"
                raise UsageError(f"{names} make no ensemble: {what} {value} and {theirs}", hint=hint)
    return Ensemble(members, dataset.read(data))


class Model:
    """The loaded models of an ensemble: their vectors are joined, so a dot product is the mean of the cosines."""

    def __init__(self, ensemble: Ensemble, device: torch.device) -> None:
        """Loads the models of the runs onto the device."""
        self.ensemble, self.device = ensemble, device
        self._parts = [load_method(member.artifact, device) for member in ensemble.members]
        self._widths: list[int] = []
        self._encoded, self._seconds = 0, 0.0

    @property
    def alone(self) -> Method | None:
        """The method of a single run; None for an ensemble."""
        return None if self.ensemble.several else self._parts[0][0]

    @property
    def needs(self) -> frozenset[str]:
        """What the first method reads of the items."""
        return frozenset(self._parts[0][0].config.needs())

    def texts(self, texts: Sequence[str]) -> Tensor:
        """Embeds texts (T, D)."""
        begun = time.monotonic()
        vectors = self._joined([encode_and_embed(*part, texts, self.device) for part in self._parts])
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._encoded, self._seconds = self._encoded + len(texts), self._seconds + time.monotonic() - begun
        return vectors

    @property
    def speed(self) -> dict[str, Any]:
        """The device, and how many texts per second it has embedded."""
        rate = {"texts_per_second": round(self._encoded / self._seconds, 2)} if self._seconds else {}
        return {"device": str(self.device), **rate}

    def unknown(self, texts: Sequence[str]) -> float:
        """The fraction of the texts' tokens that the tokenizer does not know; for several models, the largest."""
        tokenizers = [tokenizer for _, tokenizer in self._parts if isinstance(tokenizer, HFTokenizer)]
        return max((tokenizer.unknown(tokenizer.encode(texts)) for tokenizer in tokenizers), default=0.0)

    def visuals(self, gallery: Gallery, features: Sequence[base.Artifact], masked: float = 0.0) -> Tensor:
        """Embeds the items of a gallery (V, D), each model from its own features; `masked` is the share set to 0.

        Raises:
            ArtifactError: If a model lacks an item.
            UsageError: If features are to be masked and a model reads pictures.
        """
        out = []
        for (method, _), own in zip(self._parts, features, strict=True):
            visual = self._read(method, own, gallery, features[0])
            if masked and visual.rows_ND.ndim > 2:
                raise UsageError("only features can be masked, and this run reads pictures", hint="--corruption drop")
            if masked:
                whole = visual.select(torch.arange(len(visual)))
                visual = Frames(mask_features(whole.rows_ND, masked), whole.offsets_V1)
            out.append(embed_visuals(method, visual, self.device))
        return self._joined(out)

    def readings(self, gallery: Gallery) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
        """Yields vectors of a gallery's items and texts by each further reading of the model; an ensemble has none."""
        method, tokenizer = self._parts[0]
        for name, reading in (method.readings() if self.alone else {}).items():
            visual_VD = embed_visuals(reading, gallery.visual, self.device)
            yield name, (visual_VD, encode_and_embed(reading, tokenizer, gallery.texts, self.device))

    def apart(self, x_XD: Tensor) -> list[Tensor]:
        """Splits joined vectors into the unit vectors of each model."""
        return [part * len(self._parts) ** 0.5 for part in torch.split(x_XD, self._widths, dim=1)]

    def _read(self, method: Method, own: base.Artifact, gallery: Gallery, first: base.Artifact) -> Frames:
        """What a model reads of the items; the gallery holds what the first one reads."""
        needs = method.config.needs()
        if own.id == first.id and needs == self.needs:
            return gallery.visual
        visual, item_ids = read_visuals(own, gallery.item_ids, needs)
        if item_ids != gallery.item_ids:
            lacking = len(gallery.item_ids) - len(item_ids)
            problem = f"{own.path} lacks {lacking} items of which {first.path} has features"
            raise ArtifactError(problem, hint="leave --ensemble out, or extract them again: ccr extract --retry-failed")
        return visual

    def _joined(self, parts: Sequence[Tensor]) -> Tensor:
        self._widths = [part.shape[1] for part in parts]
        return joined(parts) if self.ensemble.several else parts[0]
