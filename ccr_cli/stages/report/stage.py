"""report: many evaluations and diagnoses become tables, figures and one self-contained page."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ccr_cli.artifacts import base, dataset, diagnosis, evaluation, features, run
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.label import Label
from ccr_cli.artifacts.parquet import artifact_table
from ccr_cli.artifacts.signature import HUMAN, noise_kind
from ccr_cli.artifacts.workspace import FOLDERS, slug
from ccr_cli.console import counted, say, warn
from ccr_cli.data import published
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.report.content import (
    EmbeddingMap,
    ExampleSearch,
    ModelInternals,
    ReportData,
    ReportDataset,
    RunDiagnosis,
    SourceArtifact,
    TrainingHistory,
)
from ccr_cli.report.page import compose
from ccr_cli.report.tables import differences
from ccr_cli.report.tables import results as compare
from ccr_cli.report.tables.variants import variant_labels
from ccr_cli.stages.diagnose.verdicts import usual as usual_judge
from ccr_cli.stages.report.translations import gather_translations
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.labels import default_options, method_label
from ccr_cli.stages.shared.load_run import translations_of

HINT = "make one with: ccr evaluate"


def report(
    inputs: Inputs,
    *,
    name: str | None = None,
    title: str | None = None,
    searches: Sequence[ExampleSearch] = (),
    maps: Sequence[EmbeddingMap] = (),
    inside: ModelInternals | None = None,
    beside_published: bool = False,
    force: bool = False,
) -> base.Artifact:
    """Reports on evaluations, diagnoses and translations.

    Takes the evaluations and diagnoses given, and those in the workspace of the runs given; with none of these
    given, all of the workspace; and the translations given or trained on. What was made from a run that has been
    trained anew since is left out.

    Args:
        inputs: The artifacts given, and where the report goes.
        name: Name of the report; by default the main data set and language, and six hex digits of what it is
            made from, so that a report on other results is another one.
        title: Heading of the page.
        searches: Searches to show.
        maps: Maps of items and their captions to draw.
        inside: What models do within.
        beside_published: Set the results beside those of papers.
        force: Write it again.

    Returns:
        The report.

    Raises:
        ArtifactError: If there is no evaluation and no translation.
    """
    return write(inputs, *gather(inputs, title, searches, beside_published, maps, inside), name=name, force=force)


def write(
    inputs: Inputs,
    material: ReportData,
    parents: Sequence[base.Artifact],
    *,
    name: str | None = None,
    force: bool = False,
) -> base.Artifact:
    """Writes a report on what `gather` found; the other arguments as for `report`."""
    request: dict[str, Any] = {"title": material.title, "searches": [search.request() for search in material.searches]}
    if material.maps:
        request["maps"] = [each.request() for each in material.maps]
    if material.inside != ModelInternals():
        request["inside"] = material.inside.request()
    if material.published:
        request["published"] = material.published.digest
    name = name or _name(material, request, parents)

    def make(site: Build) -> dict[str, int]:
        for names in compare.repeated(compare.results_frame(material.results, material.facts)):
            warn(f"{' and '.join(names)} agree in method, options and seeds: their mean counts as one run")
        counts = Counter(parent.kind for parent in parents)
        read = ", ".join(counted(n, kind, FOLDERS[kind]) for kind, n in counts.items())
        say(f"a report on {read}: tables, figures, the page")
        return compose.write(material, site.folder)

    return build_artifact(inputs.workspace, "report", name, request, parents, write=make, force=force)


def summary(inputs: Inputs) -> compose.Overview:
    """What the evaluations and diagnoses say, without writing anything; for showing it on a terminal.

    Args:
        inputs: As for `report`.

    Raises:
        ArtifactError: If there is no evaluation and no translation.
    """
    return compose.overview(gather(inputs)[0])


def gather(
    inputs: Inputs,
    title: str | None = None,
    searches: Sequence[ExampleSearch] = (),
    beside_published: bool = False,
    maps: Sequence[EmbeddingMap] = (),
    inside: ModelInternals | None = None,
) -> tuple[ReportData, list[base.Artifact]]:
    """Reads all that a report shows, and says from which artifacts; arguments and errors as for `report`."""
    evaluations, diagnoses, runs = _select(inputs)
    translations, translated = gather_translations(inputs, runs.values())
    if not evaluations and not translations:
        whose = "of the runs given " if inputs.given else ""
        raise ArtifactError(f"there is no evaluation {whose}in {inputs.workspace.root}", hint=HINT)
    found = _results(evaluations)
    results, corrupted = ([pair for pair in found if bool(pair[1].get("corrupt")) is worse] for worse in (False, True))
    summaries = [(d, diagnosis.summary(d)) for d in diagnoses]
    labels = {evaluation.run_id(d): str(told["label"]) for d, told in summaries}
    labels |= {run_id: str(result["label"]) for run_id, result in results}
    parents = [*evaluations, *diagnoses, *runs.values(), *translated]
    material = ReportData(
        results=results,
        corrupted=corrupted,
        facts=_facts(inputs, runs, labels, evaluations),
        diagnoses=[_diagnosis(d, told, runs.get(evaluation.run_id(d))) for d, told in summaries],
        options={run_id: run.config(artifact).get("options") or {} for run_id, artifact in runs.items()},
        rankings=_rankings(evaluations),
        outside=_outside(evaluations),
        histories=[_history(run_id, artifact) for run_id, artifact in runs.items()],
        searches=searches,
        maps=maps,
        inside=inside or ModelInternals(),
        datasets=_collections(inputs, [*evaluations, *runs.values(), *translated]),
        translations=translations,
        artifacts=[_origin(artifact) for artifact in parents],
        title=title,
        published=published.read() if beside_published else None,
    )
    return material, parents


def _select(inputs: Inputs) -> tuple[list[base.Artifact], list[base.Artifact], dict[str, base.Artifact]]:
    """Evaluations, diagnoses, and their runs by id; an ensemble is of the runs given if all of its runs are."""
    given = {kind: [a for a in inputs.given if a.kind == kind] for kind in ("run", "evaluation", "diagnosis")}
    wanted = {a.id for a in given["run"]} | {
        evaluation.run_id(a) for k in ("evaluation", "diagnosis") for a in given[k]
    }
    explicit = {a.id for artifacts in given.values() for a in artifacts}
    runs: dict[str, base.Artifact] = {}
    kept: dict[str, list[base.Artifact]] = {}
    alone = not explicit and any(a.kind == "translation" for a in inputs.given)
    for kind in ("evaluation", "diagnosis"):

        def fits(a: base.Artifact) -> bool:
            return not alone and (not wanted or a.id in explicit or (_members(a) or {a.id}) <= wanted)

        kept[kind] = [a for a in inputs.all(kind, fits) if _current(inputs, a, runs, explicit)]
    return kept["evaluation"], kept["diagnosis"], runs


def _results(evaluations: Sequence[base.Artifact]) -> list[tuple[str, dict[str, Any]]]:
    """The results by run, each once: `ccr evaluate --corrupt` holds that of a plain evaluation too, and more of it."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for artifact in evaluations:
        for result in evaluation.results(artifact):
            if not (result.get("reading") or result.get("task")):
                key = (evaluation.run_id(artifact), str(result["signature"]))
                found[key] = found.get(key, {}) | result
    return [(run_id, result) for (run_id, _), result in found.items()]


def _current(inputs: Inputs, artifact: base.Artifact, runs: dict[str, base.Artifact], explicit: set[str]) -> bool:
    """Notes an artifact's run, or runs, and says whether the artifact speaks of them as they are now.

    A run that was deleted leaves its evaluation as it is; one that was trained anew makes it stale.

    Raises:
        ArtifactError: If an artifact that was given is stale.
    """
    for link in [link for link in artifact.parents if link.kind == "run" and link.id not in runs]:
        try:
            runs[link.id] = inputs.workspace.linked(artifact, link)
            inputs.note(runs[link.id])
        except ArtifactError as error:
            if not (inputs.workspace.root / link.path).exists():
                warn(f"{link.path} is gone: {artifact.name} is reported without its training")
            elif artifact.id in explicit:
                raise
            else:
                warn(f"{artifact.name} is left out: {error.message}")
                return False
    return True


def _facts(
    inputs: Inputs, runs: dict[str, base.Artifact], known: dict[str, str], evaluations: Sequence[base.Artifact]
) -> dict[str, compare.RunFacts]:
    """What the runs' configurations say; labels are told apart where runs of one label differ in their options."""
    configs = {run_id: run.config(artifact) for run_id, artifact in runs.items()}
    named = {
        run_id: (
            _label(config, known.get(run_id, str(config["method"]))),
            config | {"select": _saw(runs[run_id], config), "mended": _mended(inputs, runs[run_id])},
        )
        for run_id, config in configs.items()
    }
    defaults = {run_id: _defaults(config) for run_id, config in configs.items()}
    labels = variant_labels(named, defaults)
    facts = {
        run_id: compare.RunFacts(
            run=runs[run_id].name,
            label=str(labels[run_id]),
            lang="+".join(run.langs(config)),
            data=str(config.get("data") or ""),
            noise_kind=noise_kind(config.get("noise")),
            noise_seed=(config.get("noise") or {}).get("seed"),
            encoder=_encoder(inputs, runs[run_id], config),
        )
        for run_id, config in configs.items()
    }
    return facts | {
        e.id: _together(e, facts) for e in evaluations if evaluation.run_id(e) == e.id and _members(e) & set(facts)
    }


def _members(artifact: base.Artifact) -> set[str]:
    """The runs of an ensemble; of anything else the one that there is, if any."""
    return {link.id for link in artifact.parents if link.kind == "run"}


def _together(artifact: base.Artifact, facts: Mapping[str, compare.RunFacts]) -> compare.RunFacts:
    """What is known of an ensemble: what its runs have in common, under a label of all."""
    each = [facts[link.id] for link in artifact.parents if link.kind == "run" and link.id in facts]
    result = evaluation.results(artifact)[0]
    label = (
        str(Label.ensemble(Label.parse(fact.label) for fact in each))
        if len(each) == len(_members(artifact))
        else result["label"]
    )
    langs = dict.fromkeys(fact.lang for fact in each)
    encoders = " & ".join(dict.fromkeys(fact.encoder for fact in each if fact.encoder))
    lang = next(iter(langs)) if len(langs) == 1 else ""
    return replace(each[0], run=str(result["run"]), label=label, lang=lang, encoder=encoders)


def _saw(artifact: base.Artifact, config: dict[str, Any]) -> str:
    """`human` if captions that people wrote in the target language chose the epoch.

    Without a translation the target language is the source, whose captions may be seen.
    """
    return HUMAN if config.get("select") == HUMAN and artifact.has_parent("translation") else ""


def _mended(inputs: Inputs, artifact: base.Artifact) -> str:
    """By which list translations were made anew that were trained on (`ccr translate --only`): six of its digits."""
    with suppress(ArtifactError):
        translations = translations_of(inputs.workspace, artifact)[0].values()
        lists = [t.request["only"]["sha256"][:6] for t in translations if "only" in t.request]
        return "+".join(dict.fromkeys(lists))
    return ""


def _encoder(inputs: Inputs, artifact: base.Artifact, config: dict[str, Any]) -> str:
    """Features and text encoder: features that were made elsewhere by the encoder that was named, others by name."""
    visual = config.get("features")
    with suppress(ArtifactError):
        asked = inputs.workspace.parent(artifact, "features").request
        if features.FROM in asked and asked.get("encoder", features.GIVEN) != features.GIVEN:
            visual = asked["encoder"]
    parts = (visual, (config.get("options") or {}).get("text_encoder"))
    return " + ".join(str(part) for part in parts if part)


def _defaults(config: dict[str, Any]) -> dict[str, Any]:
    try:
        return default_options(config)
    except UsageError:  # a method that is not installed here
        return {}


def _label(config: dict[str, Any], known: str) -> Label:
    try:
        return method_label(config)
    except UsageError:
        return Label.parse(known)


def _diagnosis(artifact: base.Artifact, told: dict[str, Any], trained: base.Artifact | None) -> RunDiagnosis:
    usual = ("", "")
    if trained is not None:
        with suppress(UsageError, KeyError):  # a judge that is not installed here, or a run of an older version
            usual = usual_judge(run.config(trained)["options"])
    return RunDiagnosis(evaluation.run_id(artifact), told, partial(diagnosis.read_pairs, artifact), usual)


def _history(run_id: str, artifact: base.Artifact) -> TrainingHistory:
    config = run.config(artifact)
    mismatch = config.get("noise")
    noise = round(float(mismatch["ratio"]), 6) if mismatch else 0.0
    chosen = {"select": str(config.get("select") or ""), "criterion": str(config.get("criterion") or "SumR")}
    seed, evidence = int(config.get("seed") or 0), partial(_evidence, artifact)
    return TrainingHistory(run_id, noise, seed, run.history(artifact), **chosen, evidence=evidence)


def _evidence(artifact: base.Artifact, lang: str) -> Iterator[tuple[int, pd.DataFrame]]:
    yield from run.evidence(artifact, lang)


def _rankings(evaluations: Sequence[base.Artifact]) -> dict[tuple[str, str], Callable[[], pd.DataFrame]]:
    """Where the ranks of each result are; an evaluation of nothing has none."""
    return {
        (evaluation.run_id(artifact), str(result["signature"])): partial(_ranks, artifact, number)
        for artifact in evaluations
        for number, result in enumerate(evaluation.results(artifact))
    }


def _ranks(artifact: base.Artifact, number: int) -> pd.DataFrame:
    frame = evaluation.read_ranks(artifact)
    return frame.loc[frame["result"] == number, [*differences.NEEDED, "uncertainty"]]


def _outside(evaluations: Sequence[base.Artifact]) -> dict[tuple[str, str, str], Callable[[], pd.DataFrame]]:
    """Where the queries are that do not belong to a gallery."""
    return {
        (evaluation.run_id(artifact), str(result["signature"]), str(result["ood"].get("of", ""))): partial(
            _left_out, artifact, number
        )
        for artifact in evaluations
        for number, result in enumerate(evaluation.results(artifact))
        if "ood" in result and evaluation.read_outside(artifact) is not None
    }


def _left_out(artifact: base.Artifact, number: int) -> pd.DataFrame:
    frame = evaluation.read_outside(artifact)
    assert frame is not None
    return frame[frame["result"] == number]


def _collections(inputs: Inputs, artifacts: Iterable[base.Artifact]) -> list[ReportDataset]:
    """The data sets behind the results, each with its manifest and images; one that is gone is left out."""
    links = {p.id: p for artifact in artifacts for p in artifact.parents if p.kind == "dataset"}
    found = []
    for link in links.values():
        try:
            data = base.load(inputs.workspace.root / link.path, "dataset")
            if data.id != link.id:
                raise ArtifactError(f"{link.path} was imported anew")
            manifest = tomllib.loads(data.file("manifest.toml").read_text(encoding="utf-8"))
        except ArtifactError as error:
            warn(f"no images and no licence of {link.path}: {error.message}")
            continue
        inputs.note(data)
        items = artifact_table(data, "items.parquet", dataset.ITEMS, ["item_id", "media"])
        media = dict(zip(items["item_id"], items["media"], strict=True))
        found.append(ReportDataset(data.name, manifest, finder(data, media), partial(_captions, data)))
    return found


def finder(data: base.Artifact, media: dict[str, str | None]) -> Callable[[str], Path | None]:
    """Says where the picture of an item of a data set lies.

    Args:
        data: The data set.
        media: Of each item, relative to the media root.
    """
    return partial(_image, dataset.media_root(data), media)


def _captions(data: base.Artifact) -> pd.DataFrame:
    return artifact_table(data, "captions.parquet", dataset.CAPTIONS, ["caption_id", "item_id", "lang", "text"])


def _image(root: Path | None, media: dict[str, str | None], item_id: str) -> Path | None:
    """Where an item's picture lies; nothing outside the media root is ever read."""
    path = dataset.media_path(root, media.get(item_id))
    return path if path is not None and path.is_file() else None


def _origin(artifact: base.Artifact) -> SourceArtifact:
    parents = [f"{p.kind} {p.path} {p.id[:12]}" for p in artifact.parents]
    return SourceArtifact(artifact.kind, artifact.name, artifact.id, str(artifact.about.get("command") or ""), parents)


def _name(material: ReportData, request: dict[str, Any], parents: Sequence[base.Artifact]) -> str:
    views = compare.views(compare.results_frame(material.results, material.facts))
    main = views[0] if views else material.translations[0]
    content = base.canonical_json([request, sorted(artifact.id for artifact in parents)])
    return f"{slug(f'{main.data}-{main.lang}')[:100]}-{base.sha256_text(content)[:6]}"
