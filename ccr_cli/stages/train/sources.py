"""The artifacts that a run is trained on: found, or drawn where a synthetic mismatch is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, noise, translation
from ccr_cli.artifacts.build import Build, Planned, build_artifact
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data import mismatch
from ccr_cli.errors import ArtifactError, UsageError, no_share
from ccr_cli.stages.shared.inputs import Inputs, made_from, require_parent
from ccr_cli.stages.train.options import SEVERAL, TrainingOptions
from ccr_cli.stages.train.pair_list import Chosen


@dataclass
class Sources:
    """The artifacts that a run is trained from."""

    data: base.Artifact
    translated: tuple[base.Artifact, ...]
    """One a language, in the order of their names; none where a method trains on what nobody translated."""
    features: base.Artifact
    noise: base.Artifact | None
    second: base.Artifact | None = None
    """Another engine's translation, for the judge `translation`."""
    pairs: Chosen | None = None
    """A list of the pairs to train on; None: all of them."""

    @property
    def parents(self) -> list[base.Artifact]:
        """All of them."""
        return [a for a in (self.data, *self.translated, self.second, self.noise, self.features) if a is not None]

    @property
    def langs(self) -> tuple[str, ...]:
        """The languages of the translations, else that of the captions."""
        return tuple(map(translation.language, self.translated)) or (dataset.read(self.data).source_lang,)

    def translations(self) -> dict[str, pd.DataFrame]:
        """The translations by language; the captions themselves where nothing was translated."""
        if self.translated:
            return dict(zip(self.langs, map(translation.read, self.translated), strict=True))
        data = dataset.read(self.data)
        captions = data.captions[data.captions["lang"] == data.source_lang]
        return {data.source_lang: translation.untranslated(captions)}


def find_sources(inputs: Inputs, lang: str | None, method: str = "", back: bool = False) -> Sources:
    """Finds the data set, translations and features to train from, without noise.

    Of two translations into one language that are given the first is trained on, and the second is what the judge
    `translation` compares it with; of translations into several languages all are trained on. Where none is given,
    those of the data set that is given are looked at, or of the one that given features or noise are of. A method
    that needs no translation does without where there is none, and where `lang` is the language of the captions
    themselves.

    Args:
        inputs: What was given, and where to look.
        lang: Language of the translation, several with `+` between; by default those that are given, else that of
            the only one.
        method: Who trains.
        back: Whether back-translations are read: of several translations those that have them come into question.

    Raises:
        ArtifactError: If one is missing, several fit, or they are not of one data set.
        UsageError: If a judge's second translation is given beside several languages.
    """
    optional = bool(method) and not registry.load("methods", method).Method.TRANSLATED
    datasets = [a for a in inputs.given if a.kind == "dataset"]
    others = [p for a in inputs.given if a.kind in ("features", "noise") for p in a.parents if p.kind == "dataset"]
    wanted = {a.id: a.path for a in datasets} or {p.id: inputs.workspace.root / p.path for p in others}
    narrow = optional or all(a.kind != "translation" for a in inputs.given)

    def known(artifact: base.Artifact) -> bool:
        return not narrow or not wanted or any(p.id in wanted for p in artifact.parents)

    named = [a for a in inputs.given if a.kind == "translation" and known(a)]
    asked = tuple(sorted(set(lang.split(SEVERAL)))) if lang else ()
    found = asked or tuple(sorted({translation.language(a) for a in named})) or (None,)
    if len(found) == 1:
        inputs, second = _aside(inputs, [a for a in named if translation.language(a) in found])
    elif len(named) > len({translation.language(a) for a in named}):
        raise UsageError(
            f"several translations into one language, and {len(found)} languages",
            hint="one translation a language: the judge translation then reads back-translations",
        )
    else:
        second = None
    place = next(iter(wanted.values())) if narrow and len(wanted) == 1 else None
    translated = []
    for each in found:

        def fits(artifact: base.Artifact, each: str | None = each) -> bool:
            return known(artifact) and each in (None, translation.language(artifact))

        of = " ".join([*([f"of {place.name}"] if place else []), *([f"into {each}"] if each else [])])
        hint = f"ccr translate{f' {inputs.workspace.relative(place)}' if place else ''} --lang {each or 'LANG'}"
        if place and (place / dataset.TEXTS).is_file():
            methods, _ = registry.loaded("methods")
            without = " or ".join(name for name, module in methods.items() if not module.Method.TRANSLATED)
            hint = f"its texts are features, and cannot be translated: --method {without}"

        def better(artifact: base.Artifact) -> bool:
            return bool(artifact.request.get("back")) or not back

        try:
            one = (inputs.maybe if optional else partial(inputs.one, hint=hint))("translation", of, fits, better=better)
        except ArtifactError as error:
            if not _own(datasets or inputs.workspace.artifacts("dataset"), wanted, each):
                raise
            own = f"{each} is the captions' own language: leave --lang out, or --method source-only"
            raise ArtifactError(error.message, hint=own) from None
        if one is not None:
            translated.append(one)
        elif each is not None and len(found) > 1:
            raise ArtifactError(f"there is no translation {of}", hint=hint)
    if translated:
        data = inputs.parent(translated[0], "dataset")
        for given in datasets:
            require_parent(translated[0], given)
    else:
        data = inputs.one("dataset", "", lambda a: not wanted or a.id in wanted, hint="ccr data import noto-emoji")
        if lang not in (None, dataset.read(data).source_lang):
            raise ArtifactError(f"there is no translation of {data.name} into {lang}", hint=hint)
    feats = inputs.one("features", f"of {data.name}", made_from(data), hint=f"ccr extract {data.path}")
    for each_of in (feats, *translated, *([second] if second else [])):
        require_parent(each_of, data)
    if second:
        inputs.note(second)
    return Sources(data, tuple(translated), feats, None, second)


def _own(datasets: Sequence[base.Artifact], wanted: Mapping[str, object], lang: str | None) -> bool:
    """Whether a language is that of the captions themselves, in all data sets that come into question."""
    asked = [a for a in datasets if not wanted or a.id in wanted] if lang else []
    return bool(asked) and all(dataset.read(a).source_lang == lang for a in asked)


def _aside(inputs: Inputs, named: list[base.Artifact]) -> tuple[Inputs, base.Artifact | None]:
    """Takes the second of two translations into one language aside."""
    if len(named) != 2:
        return inputs, None
    return replace(inputs, given=[a for a in inputs.given if a is not named[1]]), named[1]


def make_noise(
    workspace: Workspace,
    data: base.Artifact,
    ratio: float,
    *,
    style: str = "caption",
    target: str = "translation",
    seed: int = 0,
    name: str | None = None,
    force: bool = False,
) -> base.Artifact:
    """Draws which training triplets are mismatched; all methods and languages share one draw.

    Args:
        workspace: Where the artifact goes.
        data: The dataset artifact, its only parent.
        ratio: Nominal fraction of mismatched triplets.
        style: Which captions move, see `data.mismatch`.
        target: `translation` (T alone) or `pair` (S and T together).
        seed: Seed of the draw.
        name: Name of the artifact.
        force: Draw again.

    Returns:
        The noise artifact.

    Raises:
        UsageError: If the ratio is out of range, or the style or target unknown.
    """
    if not 0 < ratio <= 1:
        raise no_share("--noise ", ratio)
    mismatch.check(style, target)
    request = {"ratio": ratio, "style": style, "target": target, "seed": seed}
    name = name or f"{style}-{target}-{ratio:g}-seed{seed}"

    def write(site: Build) -> dict[str, int]:
        source = dataset.read(data)
        train = set(source.items.loc[source.items["split"] == "train", "item_id"])
        captions = source.captions[source.captions["lang"] == source.source_lang]
        pairs = mismatch.mismatch(captions[captions["item_id"].isin(train)], ratio, style, target, seed)
        write_table(site.folder / "pairs.parquet", pairs, noise.PAIRS)
        wrong = int((pairs["vt_wrong"] | pairs["vs_wrong"]).sum())
        facts = {**request, "nominal": ratio, "effective": wrong / max(len(pairs), 1)}
        base.write_json(site.folder / "noise.json", facts)
        return {"triplets": len(pairs), "mismatched": wrong}

    return build_artifact(workspace, "noise", name, request, [data], write=write, force=force)


def with_noise(inputs: Inputs, sources: Sources, options: TrainingOptions) -> Sources:
    """Adds the synthetic mismatch: the noise artifact given, or the one of that ratio, drawn if it is missing.

    Without a ratio and without a given noise artifact training is clean, whatever the workspace holds.

    Raises:
        ArtifactError: If the given noise is of another data set.
        UsageError: If both a noise artifact and a ratio are given, or there are no translations to switch.
    """
    ratio, style, target = options.noise, options.noise_style, options.noise_target
    seed = options.seed if options.noise_seed is None else options.noise_seed
    given = [a for a in inputs.given if a.kind == "noise"]
    targets = [str(a.request["target"]) for a in given] or ([target] if ratio else [])
    if not sources.translated and "translation" in targets:
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
