"""What is measured: a run, or several as one, whose similarities are averaged.

The mean is of the cosines as they are: a pair's mean then depends on that pair alone, so it streams block by block and
is a dot product of joined vectors; min-max normalised ones would depend on the whole query set.

Shape suffixes: V visual items, T texts, D embedding, X either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from ccr_cli.artifacts import base, run, signature, translation
from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.artifacts.label import Label
from ccr_cli.data.frames import Frames
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.methods.base import Method, joined
from ccr_cli.metrics.corruption import mask_features
from ccr_cli.stages.shared.embedding import embed_visuals, encode_and_embed
from ccr_cli.stages.shared.inputs import Inputs, like, made_from
from ccr_cli.stages.shared.labels import method_label
from ccr_cli.stages.shared.load_run import load_method, translations_of
from ccr_cli.stages.shared.triplets import Gallery, read_visuals


@dataclass(frozen=True)
class Member:
    """A run that is measured, alone or with others."""

    artifact: base.Artifact
    settings: dict[str, Any]
    features: base.Artifact
    translated: Mapping[str, base.Artifact]
    """What it was trained on, by language."""

    @classmethod
    def of(cls, inputs: Inputs, artifact: base.Artifact) -> Member:
        """Reads what a run says of itself."""
        features = inputs.workspace.parent(artifact, "features")
        return cls(artifact, run.config(artifact), features, translations_of(inputs.workspace, artifact)[0])

    def mt(self, lang: str) -> str:
        """What a signature says of its translations."""
        human = self.settings.get("human", [])
        engines = {
            each: f"{translation.HUMAN}:{_engine(found)}" if each in human else _engine(found)
            for each, found in self.translated.items()
        }
        return signature.mt_value(engines, lang)

    @property
    def noise(self) -> str:
        """What a signature says of the mismatch."""
        drawn = self.settings["noise"]
        return signature.noise_value(**drawn) if drawn else signature.NONE


def _engine(translated: base.Artifact) -> str:
    """Engine and model of the translations, where some were made by another one both, the more frequent first."""
    frame = translation.read(translated)
    forward = frame[frame["direction"] == "forward"]
    return "&".join((forward["engine"] + ":" + forward["model"]).value_counts().index)


def _kind(noise: Mapping[str, Any] | None) -> str:
    return f"{noise['style']}-{noise['target']}-{noise['ratio']:g}" if noise else "none"


@dataclass(frozen=True)
class Crew:
    """The runs that are measured as one; most often a single one."""

    members: Sequence[Member]

    @property
    def first(self) -> Member:
        """That which says what is asked."""
        return self.members[0]

    @property
    def several(self) -> bool:
        """Whether it is an ensemble."""
        return len(self.members) > 1

    @property
    def name(self) -> str:
        """The run's; of several what their names begin with, and how many they are."""
        names = [member.artifact.name for member in self.members]
        if not self.several:
            return names[0]
        words = takewhile(lambda same: len({*same}) == 1, zip(*(name.split("-") for name in names), strict=False))
        return "-".join([*(word for word, *_ in words), f"x{len(names)}"])

    @property
    def settings(self) -> dict[str, Any]:
        """The run's config; of several that of the first, with what marks any of them.

        Queries that people wrote in the target language mark all, if they chose the epoch of one.
        """
        each = [member.settings for member in self.members]
        if not self.several:
            return each[0]
        chose = [settings["select"] for settings in each]
        return each[0] | {
            "method": "+".join(dict.fromkeys(settings["method"] for settings in each)),
            "seed": min(settings["seed"] for settings in each),
            "select": next((select for select in ("human", "mt") if select in chose), "last"),
        }

    def beside(self, inputs: Inputs, data: Dataset, features: base.Artifact) -> tuple[base.Artifact, ...]:
        """The features of a data set that the runs after the first one read.

        Args:
            inputs: Where to look for them.
            data: The data set: the one that they were trained on, or another.
            features: What the first one reads of it.
        """
        found = []
        for member in self.members[1:]:
            if member.features.id == self.first.features.id:
                found.append(features)
            elif made_from(data.artifact)(member.features):
                found.append(member.features)
            else:
                found.append(like(inputs, member.features, data))
        return tuple(found)

    def mt(self, lang: str) -> str:
        """What a signature says of the translations trained on."""
        return "+".join(dict.fromkeys(member.mt(lang) for member in self.members))

    @property
    def noise(self) -> str:
        """What a signature says of the mismatch trained on."""
        return "+".join(dict.fromkeys(member.noise for member in self.members))

    def similarity(self, reading: str = "") -> str:
        """What a signature calls the similarity."""
        return signature.sim_value(reading, len(self.members))

    def heading(self) -> dict[str, Any]:
        """What a result says of them."""
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


def crew(inputs: Inputs, runs: Sequence[base.Artifact], *, lang: bool, protocol: bool, own: bool) -> Crew:
    """The runs as one, in the order of their names.

    Args:
        inputs: Where their parents are.
        runs: The runs.
        lang: Whether the languages of the queries are said, so that the runs need not agree in theirs.
        protocol: Whether the protocol is.
        own: Whether they are measured on the data set that they were trained on.

    Raises:
        UsageError: If one was trained on another data set or at another noise, or would be asked something else.
    """
    members = [Member.of(inputs, artifact) for artifact in sorted(runs, key=lambda a: a.name)]
    told = [_asked(member, lang, protocol, own) for member in members]
    for member, facts in zip(members, told, strict=True):
        for what, hint in _MUST_AGREE.items():
            if facts[what] != told[0][what]:
                first = members[0].artifact.name
                raise UsageError(
                    f"{first} and {member.artifact.name} are no ensemble: {what} {told[0][what]}, and {facts[what]}",
                    hint=hint,
                )
    return Crew(members)


_MUST_AGREE = {
    "trained on": "give runs of one data set, or leave --ensemble out: each is then evaluated by itself",
    "for queries in": "--lang LANG, or give runs of one language",
    "by the protocol": "--protocol full, or labelled",
    "without the categories": "give runs that left out the same, or leave --ensemble out",
    "trained with noise": "give runs of one kind and ratio of noise, or leave --ensemble out",
}
"""What runs of an ensemble have in common, and what to type where they have not."""


def _asked(member: Member, lang: bool, protocol: bool, own: bool) -> dict[str, str]:
    settings = member.settings
    data = member.artifact.parent("dataset")
    left_out = str(settings["options"].get("left_out", ""))
    return {
        "trained on": f"{data.path} ({data.id[:8]})",
        "for queries in": "" if lang else " and ".join(run.langs(settings)),
        "by the protocol": "" if protocol else "labelled" if settings.get("criterion") == "mAP" else "full",
        "without the categories": (left_out or "none") if own else "",
        "trained with noise": _kind(settings["noise"]),
    }


class Model:
    """The models of the runs: their vectors joined, so that a dot product is the mean of the cosines."""

    def __init__(self, who: Crew, device: torch.device) -> None:
        """Loads them.

        Args:
            who: The runs.
            device: Where they compute.
        """
        self.who, self.device = who, device
        self._parts = [load_method(member.artifact, device) for member in who.members]
        self._widths: list[int] = []

    @property
    def alone(self) -> Method | None:
        """The method, where there is one run."""
        return None if self.who.several else self._parts[0][0]

    @property
    def needs(self) -> frozenset[str]:
        """What the first method reads of the items."""
        needed: frozenset[str] = self._parts[0][0].config.needs()
        return needed

    def texts(self, texts: Sequence[str]) -> Tensor:
        """Embeds texts (T, D)."""
        return self._joined([encode_and_embed(*part, texts, self.device) for part in self._parts])

    def visuals(self, found: Gallery, features: Sequence[base.Artifact], masked: float = 0.0) -> Tensor:
        """Embeds the items of a gallery (V, D).

        Args:
            found: The gallery.
            features: What each of the models reads of its items.
            masked: Share of the entries of features that is set to 0.

        Raises:
            ArtifactError: If a model lacks an item.
            UsageError: If a model that reads pictures is to have features masked.
        """
        out = []
        for (method, _), own in zip(self._parts, features, strict=True):
            visual = self._read(method, own, found, features[0])
            if masked and visual.rows_ND.ndim > 2:
                raise UsageError("only features can be masked, and this run reads pictures", hint="--corruption drop")
            if masked:
                whole = visual.select(torch.arange(len(visual)))
                visual = Frames(mask_features(whole.rows_ND, masked), whole.offsets_V1)
            out.append(embed_visuals(method, visual, self.device))
        return self._joined(out)

    def readings(self, found: Gallery) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
        """Items and texts of a gallery by each further reading of the model; an ensemble has none.

        Args:
            found: The gallery.
        """
        method, tokenizer = self._parts[0]
        for name, reading in (method.readings() if self.alone else {}).items():
            visual_VD = embed_visuals(reading, found.visual, self.device)
            yield name, (visual_VD, encode_and_embed(reading, tokenizer, found.texts, self.device))

    def apart(self, x_XD: Tensor) -> list[Tensor]:
        """The unit vectors of each model out of joined ones."""
        return [part * len(self._parts) ** 0.5 for part in torch.split(x_XD, self._widths, dim=1)]

    def _read(self, method: Method, own: base.Artifact, found: Gallery, first: base.Artifact) -> Frames:
        """What a model reads of the items: the gallery holds what the first one does."""
        needs = method.config.needs()
        if own.id == first.id and needs == self.needs:
            return found.visual
        visual, item_ids = read_visuals(own, found.item_ids, needs)
        if item_ids != found.item_ids:
            lacking = len(found.item_ids) - len(item_ids)
            raise ArtifactError(
                f"{own.path} lacks {lacking} items of which {first.path} has features",
                hint="leave --ensemble out, or extract them again: ccr extract --retry-failed",
            )
        return visual

    def _joined(self, parts: Sequence[Tensor]) -> Tensor:
        self._widths = [part.shape[1] for part in parts]
        return joined(parts) if self.who.several else parts[0]
