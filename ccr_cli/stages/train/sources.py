"""The artifacts that a run is trained on; a missing synthetic mismatch is drawn."""

import shlex
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, noise, translation
from ccr_cli.artifacts.build import Build, Planned, build_artifact
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.artifacts.signature import noise_value
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data import mismatch
from ccr_cli.errors import ArtifactError, UsageError, no_share
from ccr_cli.stages.shared.inputs import Inputs, latest, made_from, require_parent
from ccr_cli.stages.shared.judged_texts import judged
from ccr_cli.stages.shared.options import mismatch_flags, refuse_without_noise
from ccr_cli.stages.shared.splits import Split
from ccr_cli.stages.train.options import SEVERAL, TrainingOptions
from ccr_cli.stages.train.pair_list import PairSelection
from ccr_cli.stages.translate.options import MismatchOptions


@dataclass
class Sources:
    """The artifacts that a run is trained on."""

    data: base.Artifact
    translated: tuple[base.Artifact, ...]
    """Sorted by language; empty for a run on source captions alone. With several translations into one
    language, training picks one per caption, and the first provides the validation queries."""
    features: base.Artifact
    noise: base.Artifact | None
    second: base.Artifact | None = None
    """A translation to compare with, for judges of texts; not trained on."""
    pairs: PairSelection | None = None
    """A list of the pairs to train on; None: all pairs."""

    @property
    def parents(self) -> list[base.Artifact]:
        """These artifacts, as parents of the run."""
        parents = (self.data, *self.translated, self.second, self.noise, self.features)
        return [a for a in parents if a is not None]

    @property
    def langs(self) -> tuple[str, ...]:
        """The languages of the translations; without translations the language of the captions."""
        return tuple(self.by_language) or (dataset.read(self.data).source_lang,)

    @property
    def by_language(self) -> dict[str, list[base.Artifact]]:
        """The translations by language."""
        languages = dict.fromkeys(map(translation.language, self.translated))
        return {lang: [a for a in self.translated if translation.language(a) == lang] for lang in languages}

    @property
    def alternatives(self) -> bool:
        """Whether there are several translations into one language."""
        return len(self.translated) > len(self.by_language)

    def translations(self) -> dict[str, dict[str, pd.DataFrame]]:
        """The translations by language and name; the captions themselves if nothing was translated."""
        if self.translated:
            return {k: {a.path.name: translation.read(a) for a in same} for k, same in self.by_language.items()}
        data = dataset.read(self.data)
        captions = data.captions_in(data.source_lang)
        return {data.source_lang: {"": translation.untranslated(captions)}}


def find_sources(
    inputs: Inputs,
    lang: str | None,
    method: str = "",
    *,
    back: bool = False,
    compare: bool = False,
    pairs: PairSelection | None = None,
) -> Sources:
    """Finds the data set, translations and features to train on, without noise.

    All given translations are trained on; a repaired translation replaces the one that it was made from. If none is
    given, this searches for translations of the given data set, or of that of the given features or noise. A method
    that needs no translation does without if there is none, or if `lang` is the language of the captions.

    Args:
        inputs: The given artifacts, and where to look for others.
        lang: Target language, or several joined by `+`; by default those of the given translations, else the language
            of the only translation.
        method: The method to train.
        back: Prefer translations with back-translations.
        compare: Train on the first of two given translations into the only language, and compare it with the second.
        pairs: A list of the pairs to train on; the translation whose texts it has is preferred.

    Raises:
        ArtifactError: If an artifact is missing, several fit, or they are not of one data set.
        UsageError: If two translations into one language have the same name.
    """
    optional = bool(method) and not registry.load("methods", method).Method.TRANSLATED
    datasets = inputs.of_kind("dataset")
    links = [(a, p) for a in inputs.of_kind("features", "noise") for p in a.parents if p.kind == "dataset"]
    paths = {a.id: a.path for a in datasets} or {p.id: inputs.workspace.place_of(a, p) for a, p in links}
    narrow = optional or not inputs.of_kind("translation")

    def of_data(artifact: base.Artifact) -> bool:
        return not narrow or not paths or any(p.id in paths for p in artifact.parents)

    translations = latest(list(filter(of_data, inputs.of_kind("translation"))))
    known = tuple(sorted({translation.language(a) for a in translations}))
    languages = (tuple(sorted(set(lang.split(SEVERAL)))) if lang else known) or (None,)
    fitting = [a for a in translations if translation.language(a) in languages]
    second = fitting[1] if compare and len(languages) == 1 and len(fitting) == 2 else None
    place = next(iter(paths.values())) if narrow and len(paths) == 1 else None
    translated = []
    for language in languages:
        alternatives = [a for a in fitting if translation.language(a) == language and a is not second]
        if len({a.path.name for a in alternatives}) < len(alternatives):
            problem = f"two translations into {language} have the name {alternatives[-1].path.name}"
            raise UsageError(problem, hint="give one another --name")
        inputs.note(*alternatives)
        translated += alternatives
        if alternatives:
            continue

        def fits(artifact: base.Artifact, language: str | None = language) -> bool:
            return of_data(artifact) and language in (None, translation.language(artifact))

        of_list = judged(filter(fits, inputs.workspace.artifacts("translation")), pairs.table.frame) if pairs else None

        def better(artifact: base.Artifact, of_list: set[str] | None = of_list) -> bool:
            return (of_list is None or artifact.id in of_list) and (not back or bool(artifact.request.get("back")))

        which = " ".join([*([f"of {place.name}"] if place else []), *([f"into {language}"] if language else [])])
        hint = f"ccr translate{f' {inputs.workspace.relative(place)}' if place else ''} --lang {language or 'LANG'}"
        if place and (place / dataset.TEXTS).is_file():
            methods, _ = registry.loaded("methods")
            untranslated = " or ".join(name for name, module in methods.items() if not module.Method.TRANSLATED)
            hint = f"its texts are features, and cannot be translated: --method {untranslated}"
        find = inputs.maybe if optional else partial(inputs.one, hint=hint)
        try:
            artifact = find("translation", which, fits, better=better)
        except ArtifactError as error:
            candidates = [a for a in datasets or inputs.workspace.artifacts("dataset") if not paths or a.id in paths]
            if not language or not candidates or any(dataset.read(a).source_lang != language for a in candidates):
                raise
            same = f"{language} is the captions' own language: leave --lang out, or --method source-only"
            raise ArtifactError(error.message, hint=same) from None
        if artifact is not None:
            translated.append(artifact)
        elif language is not None and len(languages) > 1:
            raise ArtifactError(f"there is no translation {which}", hint=hint)
    if translated:
        data = inputs.parent(translated[0], "dataset")
        for artifact in datasets:
            require_parent(translated[0], artifact)
    else:
        data = inputs.one(
            "dataset",
            "",
            lambda a: not paths or a.id in paths,
            hint="ccr data import noto-emoji",
            better=dataset.has_training_items,
        )
        if lang not in (None, dataset.read(data).source_lang):
            raise ArtifactError(f"there is no translation of {data.name} into {lang}", hint=hint)
    feats = inputs.one(
        "features", f"of {data.name}", made_from(data), hint=f"ccr extract {shlex.quote(str(data.path))}"
    )
    for artifact in (feats, *translated, *([second] if second else [])):
        require_parent(artifact, data)
    if second:
        inputs.note(second)
    return Sources(data, tuple(translated), feats, None, second, pairs)


def make_noise(
    workspace: Workspace,
    data: base.Artifact,
    ratio: float,
    options: MismatchOptions | TrainingOptions,
    *,
    name: str | None = None,
    force: bool = False,
) -> base.Artifact:
    """Draws a fraction `ratio` of the training triplets to mismatch; all methods and languages share one draw.

    The data set is the only parent. The options have style, target (`data.mismatch`) and seed; `force` draws again.

    Raises:
        UsageError: If the ratio is out of range, or the style or target unknown or unfit.
    """
    if not 0 < ratio <= 1:
        raise no_share("--noise ", ratio)
    style, target = options.noise_style, mismatch.target_of(options.noise_style, options.noise_target)
    seed = options.seed if options.noise_seed is None else options.noise_seed
    request = {"ratio": ratio, "style": style, "target": target, "seed": seed}
    request |= {} if style in mismatch.STYLES else registry.installed_source("noise", style)
    name = name or noise_value(request)

    def write(site: Build) -> dict[str, int]:
        source = dataset.read(data)
        captions = Split.of(source, "train").captions_in(source.source_lang)
        pairs = mismatch.mismatch(captions, ratio, style, target, seed)
        write_table(site.folder / "pairs.parquet", pairs, noise.schema(style))
        wrong = int((pairs["vt_wrong"] | pairs["vs_wrong"]).sum())
        facts = {**request, "nominal": ratio, "effective": wrong / max(len(pairs), 1)}
        base.write_json(site.folder / "noise.json", facts)
        return {"triplets": len(pairs), "mismatched": wrong}

    return build_artifact(workspace, "noise", name, request, [data], write=write, force=force)


def with_noise(inputs: Inputs, sources: Sources, options: TrainingOptions) -> Sources:
    """Adds the synthetic mismatch: the given noise artifact, or the one that the options describe, drawn if missing.

    With neither a given artifact nor a ratio, training is clean, whatever the workspace holds.

    Raises:
        ArtifactError: If the given noise is of another data set.
        UsageError: If both a noise artifact and options of a mismatch are given, or such options and no ratio; or if
            there are no translations to switch.
    """
    ratio = options.noise
    named, flags = inputs.of_kind("noise"), mismatch_flags(options)
    targets = {str(a.request["target"]) for a in named}
    if ratio and not named:
        targets.add(mismatch.target_of(options.noise_style, options.noise_target))
    if not sources.translated and targets - {"pair"}:
        raise UsageError("there are no translations to switch", hint="--noise-target pair")
    if named:
        artifact = inputs.one("noise", "")
        if ratio is not None or flags:
            flag = flags[0] if ratio is None else "--noise"
            raise UsageError(f"{artifact.path} and {flag} both set the mismatch", hint="leave one out")
        require_parent(artifact, sources.data)
        return replace(sources, noise=artifact)
    if ratio is None:
        refuse_without_noise(flags)
    if not ratio:
        return sources
    draw = partial(make_noise, data=sources.data, ratio=ratio, options=options, force=options.force)
    try:
        drawn = draw(inputs.workspace)
    except Planned as planned:  # the run's plan needs the noise, so a dry run draws a missing one in another folder
        with TemporaryDirectory() as folder:
            drawn = base.load(planned.path, "noise") if planned.state == "done" else draw(Workspace(Path(folder)))
    inputs.note(drawn)
    return replace(sources, noise=drawn)
