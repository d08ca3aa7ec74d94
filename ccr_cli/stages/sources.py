"""What a run is trained from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, translation
from ccr_cli.artifacts.build import Planned
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.stages.noise import make_noise
from ccr_cli.stages.select import Inputs, made_from, require_parent


@dataclass
class Sources:
    """The artifacts that a run is trained from."""

    data: base.Artifact
    translation: base.Artifact | None
    """None where a method trains on what nobody translated."""
    features: base.Artifact
    noise: base.Artifact | None
    second: base.Artifact | None = None
    """Another engine's translation, for the judge `translation`."""

    @property
    def parents(self) -> list[base.Artifact]:
        """All of them."""
        return [a for a in (self.data, self.translation, self.second, self.noise, self.features) if a is not None]

    @property
    def lang(self) -> str:
        """The language of the translations, else of the captions."""
        if self.translation is not None:
            return translation.language(self.translation)
        return dataset.read(self.data).source_lang

    def translations(self) -> pd.DataFrame:
        """The translations; the captions themselves where nothing was translated."""
        if self.translation is not None:
            return translation.read(self.translation)
        data = dataset.read(self.data)
        return translation.untranslated(data.captions[data.captions["lang"] == data.source_lang])


def find_sources(inputs: Inputs, lang: str | None, method: str = "") -> Sources:
    """Finds the data set, translation and features to train from, without noise.

    Of two translations that are given the first is trained on, and the second is what the judge `translation`
    compares it with. Where none is given, those of the data set that is given are looked at, or of the one that given
    features or noise are of. A method that needs no translation does without where there is none, and where `lang` is
    the language of the captions themselves.

    Args:
        inputs: What was given, and where to look.
        lang: Language of the translation; by default that of the only one.
        method: Who trains.

    Raises:
        ArtifactError: If one is missing, several fit, or they are not of one data set.
    """
    optional = bool(method) and not registry.load("methods", method).Method.TRANSLATED
    datasets = [a for a in inputs.given if a.kind == "dataset"]
    others = [p for a in inputs.given if a.kind in ("features", "noise") for p in a.parents if p.kind == "dataset"]
    wanted = {a.id: a.path for a in datasets} or {p.id: inputs.workspace.root / p.path for p in others}
    narrow = optional or all(a.kind != "translation" for a in inputs.given)

    def fits(artifact: base.Artifact) -> bool:
        known = not narrow or not wanted or any(p.id in wanted for p in artifact.parents)
        return known and (lang is None or translation.language(artifact) == lang)

    place = next(iter(wanted.values())) if narrow and len(wanted) == 1 else None
    asked = " ".join([*([f"of {place.name}"] if place else []), *([f"into {lang}"] if lang else [])])
    named = [a for a in inputs.given if a.kind == "translation" and fits(a)]
    second = named[1] if len(named) == 2 else None
    if second:
        inputs = replace(inputs, given=[a for a in inputs.given if a is not second])
    hint = f"ccr translate{f' {inputs.workspace.relative(place)}' if place else ''} --lang {lang or 'LANG'}"
    if place and (place / dataset.TEXTS).is_file():
        without = (name for name in registry.names("methods") if not registry.load("methods", name).Method.TRANSLATED)
        hint = f"its texts are features, and cannot be translated: --method {' or '.join(without)}"
    find = inputs.maybe if optional else partial(inputs.one, hint=hint)
    translated = find("translation", asked, fits)
    if translated is None:
        data = inputs.one("dataset", "", lambda a: not wanted or a.id in wanted, hint="ccr data import noto-emoji")
        if lang not in (None, dataset.read(data).source_lang):
            raise ArtifactError(f"there is no translation of {data.name} into {lang}", hint=hint)
    else:
        data = inputs.parent(translated, "dataset")
        for given in datasets:
            require_parent(translated, given)
    feats = inputs.one("features", f"of {data.name}", made_from(data), hint=f"ccr extract {data.path}")
    require_parent(feats, data)
    if second:
        require_parent(second, data)
        inputs.note(second)
    return Sources(data, translated, feats, None, second)


def with_noise(inputs: Inputs, sources: Sources, ratio: float | None, *, style: str, target: str, seed: int) -> Sources:
    """Adds the noise that is asked for: the artifact given, or the one of that ratio, drawn if it is not there yet.

    Without a ratio, and with no noise artifact given, training is clean whatever lies in the workspace.

    Raises:
        ArtifactError: If the given noise is of another data set.
        UsageError: If a noise artifact is given and a ratio too, or translations shall be switched and there are none.
    """
    given = [a for a in inputs.given if a.kind == "noise"]
    targets = [str(a.request["target"]) for a in given] or ([target] if ratio else [])
    if sources.translation is None and "translation" in targets:
        raise UsageError("there are no translations that could be switched", hint="--noise-target pair")
    if given:
        chosen = inputs.one("noise", "")
        if ratio is not None:
            raise UsageError(f"{chosen.path} and --noise are two answers to one question", hint="leave one out")
        require_parent(chosen, sources.data)
        return replace(sources, noise=chosen)
    if not ratio:
        return sources
    draw = partial(make_noise, data=sources.data, ratio=ratio, style=style, target=target, seed=seed)
    try:
        drawn = draw(inputs.workspace)
    except Planned as planned:  # the plan of the run needs the noise, so one that is not there yet is drawn aside
        with TemporaryDirectory() as aside:
            drawn = base.load(planned.path, "noise") if planned.state == "done" else draw(Workspace(Path(aside)))
    inputs.note(drawn)
    return replace(sources, noise=drawn)
