"""report: evaluations, diagnoses and translations become tables, figures and one self-contained page."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from ccr_cli.artifacts import base, dataset, diagnosis, evaluation, features, run, translation
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.label import Label
from ccr_cli.artifacts.parquet import artifact_table
from ccr_cli.artifacts.signature import HUMAN, is_translate_test, noise_kind
from ccr_cli.artifacts.workspace import slug
from ccr_cli.console import counted, say, warn
from ccr_cli.data import published
from ccr_cli.data.splits import refuse_unknown
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.report import content
from ccr_cli.report.page import compose
from ccr_cli.report.tables import comparable
from ccr_cli.report.tables.differences import NEEDED
from ccr_cli.report.tables.systems import SystemCost
from ccr_cli.report.tables.variants import ALONE, variant_labels
from ccr_cli.stages.diagnose.stage import usual_judge
from ccr_cli.stages.report.examples import Examples
from ccr_cli.stages.report.options import ReportOptions
from ccr_cli.stages.shared.inputs import Inputs, made_from, without_orphans
from ccr_cli.stages.shared.load_run import default_options, method_label, translations_of
from ccr_cli.stages.translate.quality import references

_BLOCK = 1 << 16


def report(inputs: Inputs, options: ReportOptions) -> tuple[base.Artifact, compose.Overview]:
    """Reports on evaluations, diagnoses and translations.

    Covers the given evaluations and diagnoses, and those of the given runs; if none of these are given, all of the
    given data sets, else of the workspace. Also covers the translations that are given or that runs were trained on.
    An artifact that is not given is left out if one of its runs was retrained since, or all of them were deleted.

    By default the report is named by its main data set and language and six hex digits of a hash of what it is made
    from, so that a report on other results has another name. Also returns its findings and tables.

    Raises:
        ArtifactError: If there is no evaluation and no translation, or a given one is stale.
    """
    refuse_unknown(options.split)
    data, shown = gather(inputs, title=options.title), dict[str, Any]()
    runs = _example_runs(inputs, data.artifacts)
    examples = Examples(Inputs(inputs.workspace, runs, inputs.read), options.split, options.device)
    if not runs and (options.searches or options.map or options.inside):
        warn("no run of what is reported is there: no searches, no map, nothing inside")
        options = replace(options, searches=0, map=0, inside=0)
    if options.searches:
        say(f"example searches: {options.searches} per language")
        shown["searches"] = examples.searches(options.searches)
    if options.map:
        say(f"map of {options.map} items")
        shown["maps"] = examples.maps(options.map)
    if options.inside:
        say(f"inside the models: {options.inside} examples")
        shown["inside"] = examples.internals(options.inside)
    if options.published:
        shown["published"] = published.read()
    data = replace(data, **shown)
    return write(inputs, data, name=options.name, force=options.force), compose.overview(data)


def gather(inputs: Inputs, **shown: Any) -> content.ReportData:
    """Reads everything that a report shows; errors as for `report`. `shown` holds further fields of the data."""
    evaluations, diagnoses, runs = _select(inputs)
    of_runs, of_translations = ([d for d in diagnoses if diagnosis.of_run(d) is kind] for kind in (True, False))
    for judged in of_translations:
        if not {"data", "translation"} <= diagnosis.summary(judged).keys():
            raise ArtifactError(f"{judged.path} judges neither a run nor a translation", hint=judged.rebuild_hint())
    translations, translated = _translations(inputs, [*runs.values(), *of_translations])
    if not evaluations and not translations:
        whose = "of the given artifacts " if inputs.named else ""
        what = f"there is no evaluation {whose}in {inputs.workspace.root}"
        raise ArtifactError(what, hint="make one with: ccr evaluate")
    numbered = [
        (evaluation.run_id(artifact), str(result["signature"]), artifact, number, result)
        for artifact in evaluations
        for number, result in enumerate(evaluation.results(artifact))
    ]
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    # each once: `ccr evaluate --corrupt` repeats the result of a plain evaluation and adds to it
    for run_id, signature, _, _, result in numbered:
        if not (result.get("reading") or result.get("task")):
            merged[run_id, signature] = merged.get((run_id, signature), {}) | result
    intact, corrupted = ([(k, r) for (k, _), r in merged.items() if bool(r.get("corrupt")) is c] for c in (False, True))
    summaries = [(d, diagnosis.summary(d)) for d in of_runs]
    labels = {evaluation.run_id(d): str(facts["label"]) for d, facts in summaries}
    labels |= {run_id: str(result["label"]) for run_id, result in intact if not is_translate_test(result["fusion"])}
    return content.ReportData(
        results=intact,
        corrupted=corrupted,
        facts=_facts(inputs, runs, labels, evaluations),
        diagnoses=[_diagnosis(d, facts, runs.get(evaluation.run_id(d))) for d, facts in summaries],
        judged_translations=[
            diagnosis.summary(d) for d in sorted(of_translations, key=lambda d: (str(d.about.get("created")), d.name))
        ],
        options={run_id: run.config(artifact).get("options") or {} for run_id, artifact in runs.items()},
        rankings={(run_id, signature): partial(_ranks, a, n) for run_id, signature, a, n, _ in numbered},
        outside={
            (run_id, signature, str(result["ood"].get("of", ""))): partial(_outside, a, n)
            for run_id, signature, a, n, result in numbered
            if "ood" in result and evaluation.read_outside(a) is not None
        },
        histories=[_history(run_id, artifact) for run_id, artifact in runs.items()],
        costs=_costs(inputs, runs, evaluations),
        datasets=_datasets(inputs, [*evaluations, *runs.values(), *translated]),
        translations=translations,
        artifacts=[*evaluations, *diagnoses, *runs.values(), *translated],
        **shown,
    )


def write(inputs: Inputs, data: content.ReportData, *, name: str | None, force: bool) -> base.Artifact:
    """Writes a report on what `gather` returned; the other arguments as for `report`."""
    request: dict[str, Any] = {"title": data.title, "searches": [search.request() for search in data.searches]}
    if data.maps:
        request["maps"] = [drawn.request() for drawn in data.maps]
    if data.inside != content.ModelInternals():
        request["inside"] = data.inside.request()
    if data.published:
        request["published"] = data.published.digest

    def make(site: Build) -> dict[str, int]:
        for names in comparable.repeated(comparable.results_frame(data.results, data.facts)):
            warn(f"{' and '.join(names)} agree in method, options and seeds: their mean counts as one run")
        counts = Counter(parent.kind for parent in data.artifacts)
        sources = ", ".join(counted(n, kind, base.FOLDERS[kind]) for kind, n in counts.items())
        say(f"a report on {sources}: tables, figures, the page")
        return compose.write(data, site.folder)

    name = name or _name(data, request)
    return build_artifact(inputs.workspace, "report", name, request, data.artifacts, write=make, force=force)


def _name(data: content.ReportData, request: dict[str, Any]) -> str:
    views = comparable.views(comparable.results_frame(data.results, data.facts))
    main = views[0] if views else data.translations[0]
    made_from = base.canonical_json([request, sorted(artifact.id for artifact in data.artifacts)])
    return f"{slug(f'{main.data}-{main.lang}')[:100]}-{base.sha256_text(made_from)[:6]}"


def _select(inputs: Inputs) -> tuple[list[base.Artifact], list[base.Artifact], dict[str, base.Artifact]]:
    """Selects evaluations, diagnoses, and their runs by id; given runs select an ensemble if all its runs are given."""
    explicit = {a.id for a in inputs.of_kind("run", "evaluation", "diagnosis")}
    chosen = {a.id for a in inputs.of_kind("run")}
    chosen |= {evaluation.run_id(a) for a in inputs.of_kind("evaluation", "diagnosis")}
    translations = inputs.of_kind("translation")
    data = [] if explicit else inputs.of_kind("dataset")
    if data:
        made = [a for kind in ("run", "translation") for a in inputs.workspace.artifacts(kind)]
        data += list(filter(made_from(*data), made))
    of_data, of_translations = made_from(*data), made_from(*translations)

    def fits(a: base.Artifact) -> bool:
        if translations and not explicit:
            return a.kind == "diagnosis" and not diagnosis.of_run(a) and of_translations(a)
        if data and not of_data(a):
            return False
        return not chosen or a.id in explicit or (_members(a) or {a.id}) <= chosen

    runs: dict[str, base.Artifact] = {}

    def current(a: base.Artifact) -> bool:
        found = inputs.current_runs(a)
        runs.update({one.id: one for one in found or []})
        for gone in [] if found is None else [link for link in a.parents if link.kind == "run" and link.id not in runs]:
            warn(f"{gone.path} is gone: {a.name} is reported without its training")
        return found is not None

    kinds = ("evaluation", "diagnosis")
    known = without_orphans(inputs, [a for kind in kinds for a in inputs.all(kind, fits)])
    kept = list(filter(current, known))
    evaluations, diagnoses = ([a for a in kept if a.kind == kind] for kind in kinds)
    return evaluations, diagnoses, runs


def _example_runs(inputs: Inputs, covered: Sequence[base.Artifact]) -> list[base.Artifact]:
    """The runs that examples come from: named ones and those of what is named, else of the named data, else all."""
    kinds = {a.kind for a in inputs.named}
    if kinds & {"run", "evaluation", "diagnosis"}:
        return list({a.id: a for a in [*inputs.named, *covered] if a.kind == "run"}.values())
    data = inputs.of_kind("translation" if "translation" in kinds else "dataset")
    return [a for a in inputs.workspace.artifacts("run") if not data or made_from(*data)(a)]


def _members(artifact: base.Artifact) -> set[str]:
    """The ids of the runs behind an artifact; several for an ensemble."""
    return {link.id for link in artifact.parents if link.kind == "run"}


def _facts(
    inputs: Inputs, runs: dict[str, base.Artifact], known: dict[str, str], evaluations: Sequence[base.Artifact]
) -> dict[str, comparable.RunFacts]:
    """Facts from the runs' configurations; variants of a method get different labels."""
    configs = {run_id: run.config(artifact) for run_id, artifact in runs.items()}
    named, defaults = {}, {}
    trained = {run_id: artifact.counts.get("steps", 1) > 0 for run_id, artifact in runs.items()}
    alone = {run_id: not (trained[run_id] and artifact.has_parent("translation")) for run_id, artifact in runs.items()}
    for run_id, config in configs.items():
        # without a translation the target language is the source, whose human captions may be used
        human = config.get("select") == HUMAN and runs[run_id].has_parent("translation")
        more = {"select": HUMAN if human else "", "mended": _mended(inputs, runs[run_id]), ALONE: alone[run_id]}
        try:
            named[run_id] = (method_label(config), config | more)
            defaults[run_id] = default_options(config)
        except UsageError:  # a method that is not installed here
            named[run_id] = (Label.parse(known.get(run_id, str(config["method"]))), config | more)
    labels = variant_labels(named, defaults)
    facts = {
        run_id: comparable.RunFacts(
            run=runs[run_id].name,
            label=str(labels[run_id]),
            lang="+".join(run.langs(config)),
            data=str(config.get("data") or ""),
            noise_kind=noise_kind(config.get("noise")),
            noise_seed=(config.get("noise") or {}).get("seed"),
            encoder=_encoder(inputs, runs[run_id], config),
            judge=str(config["options"]["judge"]),
            trained=trained[run_id],
            models=int(runs[run_id].counts.get("models", 0)),
            changed=_changed(config["options"], defaults.get(run_id) or {}, named[run_id][0]),
        )
        for run_id, config in configs.items()
    }
    ensembles = [e for e in evaluations if evaluation.run_id(e) == e.id and _members(e) & set(facts)]
    return facts | {artifact.id: _ensemble_facts(artifact, facts) for artifact in ensembles}


def _costs(
    inputs: Inputs, runs: Mapping[str, base.Artifact], evaluations: Sequence[base.Artifact]
) -> dict[str, SystemCost]:
    """Returns what each run costs, as recorded by training, evaluation and extraction outside of their identity."""
    rates: dict[str, list[float]] = {}
    for artifact in evaluations:
        if rate := artifact.environment.get("texts_per_second"):
            rates.setdefault(evaluation.run_id(artifact), []).append(rate)
    costs = {}
    for run_id, artifact in runs.items():
        config, environment = run.config(artifact), artifact.environment
        of_features: Mapping[str, Any] = {}
        langs = {*run.langs(config)}
        with suppress(ArtifactError):  # gone
            of_features = inputs.workspace.parent(artifact, "features").environment
            langs.add(inputs.workspace.parent(artifact, "dataset").toml("manifest.toml").get("source_lang", "en"))
        sizes = [f.bytes for f in artifact.files if f.path == "model.safetensors" or f.path.startswith("tokenizer/")]
        costs[run_id] = SystemCost(
            seconds=environment.get("seconds", math.nan),
            texts_per_second=float(np.median(rates.get(run_id, [math.nan]))),
            items_per_second=of_features.get("items_per_second", math.nan),
            run_bytes=float(sum(sizes)),
            encoder_bytes=of_features.get("weights_bytes") or math.nan,  # older features record 0 for some encoders
            langs=tuple(sorted(langs)) if artifact.counts.get("epochs") else (),
            devices=tuple({str(e["device"]) for e in (environment, of_features) if e.get("device")}),
        )
    return costs


def _changed(options: Mapping[str, Any], usual: Mapping[str, Any], label: Label) -> tuple[str, ...]:
    differing = [key for key in sorted(usual) if options.get(key, usual[key]) != usual[key]]
    return tuple(f"{key}={options[key]}" for key in differing if key != "judge" and key not in label.terms)


def _ensemble_facts(artifact: base.Artifact, facts: Mapping[str, comparable.RunFacts]) -> comparable.RunFacts:
    """Returns an ensemble's facts: its first run's, but label and encoders of all, and no language if several."""
    known = [facts[link.id] for link in artifact.parents if link.kind == "run" and link.id in facts]
    result = evaluation.results(artifact)[0]
    label = str(result["label"])
    if len(known) == len(_members(artifact)):
        label = str(Label.ensemble(Label.parse(fact.label) for fact in known))
    langs = {fact.lang for fact in known}
    encoders = " & ".join(dict.fromkeys(fact.encoder for fact in known if fact.encoder))
    lang = known[0].lang if len(langs) == 1 else ""
    models = sum(fact.models for fact in known)
    return replace(known[0], run=str(result["run"]), label=label, lang=lang, encoder=encoders, models=models)


def _mended(inputs: Inputs, artifact: base.Artifact) -> str:
    """Returns six hex digits of each list by which a run's translations were partly redone (`ccr translate --only`)."""
    with suppress(ArtifactError):
        translations = chain(*translations_of(inputs.workspace, artifact)[0].values())
        lists = [t.request["only"]["sha256"][:6] for t in translations if "only" in t.request]
        return "+".join(dict.fromkeys(lists))
    return ""


def _encoder(inputs: Inputs, artifact: base.Artifact, config: dict[str, Any]) -> str:
    """Names the visual and the text encoder; for imported features, the one named at their import."""
    visual = config.get("features")
    with suppress(ArtifactError):
        request = inputs.workspace.parent(artifact, "features").request
        if features.FROM in request and request.get("encoder", features.GIVEN) != features.GIVEN:
            visual = request["encoder"]
    parts = (visual, (config.get("options") or {}).get("text_encoder"))
    return " + ".join(str(part) for part in parts if part)


def _diagnosis(artifact: base.Artifact, facts: dict[str, Any], trained: base.Artifact | None) -> content.RunDiagnosis:
    usual = ("", "")
    if trained is not None:
        with suppress(UsageError, KeyError):  # a judge that is not installed here, or a run of an older version
            usual = usual_judge(trained)
    return content.RunDiagnosis(evaluation.run_id(artifact), facts, partial(diagnosis.read_pairs, artifact), usual)


def _history(run_id: str, artifact: base.Artifact) -> content.TrainingHistory:
    config = run.config(artifact)
    return content.TrainingHistory(
        run_id=run_id,
        noise=round(float((config.get("noise") or {}).get("ratio", 0.0)), 6),
        seed=int(config.get("seed") or 0),
        frame=run.history(artifact),
        select=str(config.get("select") or ""),
        criterion=str(config.get("criterion") or "SumR"),
        evidence=lambda lang: iter(run.evidence(artifact, lang)),
    )


def _ranks(artifact: base.Artifact, number: int) -> pd.DataFrame:
    frame = evaluation.read_ranks(artifact)
    return frame.loc[frame["result"] == number, [*NEEDED, "uncertainty"]]


def _outside(artifact: base.Artifact, number: int) -> pd.DataFrame:
    frame = evaluation.read_outside(artifact)
    assert frame is not None
    return frame[frame["result"] == number]


def _datasets(inputs: Inputs, artifacts: Iterable[base.Artifact]) -> list[content.ReportDataset]:
    """The data sets behind the results; one that is gone or was reimported is left out."""
    links = {p.id: (artifact, p) for artifact in artifacts for p in artifact.parents if p.kind == "dataset"}
    columns = ["caption_id", "item_id", "lang", "text"]
    datasets = []
    for artifact, link in links.values():
        try:
            data = inputs.workspace.linked(artifact, link)
            manifest = data.toml("manifest.toml")
        except ArtifactError as error:
            warn(f"no images and no licence of {link.path}: {error.message}")
            continue
        inputs.note(data)
        captions = partial(artifact_table, data, "captions.parquet", dataset.CAPTIONS, columns)
        datasets.append(content.ReportDataset(data.name, manifest, dataset.image_finder(data), captions))
    return datasets


def _translations(
    inputs: Inputs, runs: Iterable[base.Artifact]
) -> tuple[list[content.ReportTranslation], list[base.Artifact]]:
    """Reads the translations that are given or that runs used, and their artifacts; without inputs, the workspace's.

    Raises:
        ArtifactError: If a given translation no longer fits its data set.
    """
    chosen = {a.id: a for a in inputs.of_kind("translation")}
    explicit = set(chosen)
    data = inputs.of_kind("dataset")
    if data and {a.kind for a in inputs.named} <= {"dataset", "features", "noise"}:
        chosen |= {a.id: a for a in inputs.all("translation") if made_from(*data)(a)}
    if not inputs.named:
        chosen |= {a.id: a for a in inputs.all("translation")}
    for trained in runs:
        for link in trained.parents:
            if link.kind == "translation" and link.id not in chosen:
                try:
                    chosen[link.id] = inputs.workspace.linked(trained, link)
                except ArtifactError as error:
                    warn(f"{link.path} is left out: {error.message}")
    translations, artifacts = [], []
    for artifact in sorted(chosen.values(), key=lambda a: a.path):
        try:
            translations.append(_translation(inputs, artifact))
        except ArtifactError as error:
            if artifact.id in explicit:
                raise
            warn(f"{artifact.name} is left out: {error.message}")
        else:
            inputs.note(artifact)
            artifacts.append(artifact)
    names = [(t.data, t.lang, t.label) for t in translations]
    unique = [
        replace(t, label=f"{t.label} [{artifact.name}]") if names.count(name) > 1 else t
        for t, name, artifact in zip(translations, names, artifacts, strict=True)
    ]
    return sorted(unique, key=lambda t: (t.data, t.lang, t.label)), artifacts


def _translation(inputs: Inputs, artifact: base.Artifact) -> content.ReportTranslation:
    source = inputs.parent(artifact, "dataset")
    engine = str(artifact.request["engine"])
    environment = artifact.environment.get("engine.forward") or {}
    model = str(environment.get("model") or "")
    label = f"{model} (recorded)" if engine == "recorded" and model else f"{engine} {model}".strip()
    rounds = int(artifact.request.get("rounds", 1))
    label += f" ({rounds} rounds)" if rounds > 1 else ""
    label += " (of some captions)" if "only" in artifact.request else ""
    lang, quality = translation.language(artifact), translation.quality(artifact)
    load = partial(_translated_captions, artifact, source)
    return content.ReportTranslation(label, source.name, lang, quality, load, _text_hashes(artifact))


def _text_hashes(artifact: base.Artifact) -> dict[str, str]:
    columns = ["source_caption_id", "split", "direction", "text"]
    frame = artifact_table(artifact, "captions.parquet", translation.CAPTIONS, columns)
    rows = frame[frame["direction"] == "forward"].sort_values("source_caption_id")
    return {str(split): _text_hash(part[["source_caption_id", "text"]]) for split, part in rows.groupby("split")}


def _text_hash(rows: pd.DataFrame) -> str:
    """Hashes rows in blocks: as one JSON text, millions of captions would be in memory several times."""
    blocks = (rows.iloc[first : first + _BLOCK].to_numpy().tolist() for first in range(0, len(rows), _BLOCK))
    return base.sha256_text("".join(base.sha256_text(base.canonical_json(block)) for block in blocks))


def _translated_captions(artifact: base.Artifact, data: base.Artifact) -> pd.DataFrame:
    """The forward captions as `ReportTranslation.load` returns them."""
    source = dataset.read(data)
    columns = ["caption_id", "item_id", "split", "direction", "text", "source_caption_id", "score"]
    frame = artifact_table(artifact, "captions.parquet", translation.CAPTIONS, columns)
    back = frame[frame["direction"] == "back"].set_index("source_caption_id")["text"]
    quality = translation.read_quality(artifact, [name for name in translation.QUALITY.names if name != "caption_id"])
    rows = frame.join(quality)[frame["direction"] == "forward"].reset_index(drop=True)
    del frame, quality
    human, _ = references(source, source.source_lang, translation.language(artifact))
    reference_of = {caption: texts[0] for known in human for caption, texts in known.of.items()}
    text_of = source.captions.set_index("caption_id")["text"]
    known = {"back": rows["caption_id"].map(back), "human": rows["source_caption_id"].map(reference_of)}
    texts = {name: column.astype(object).where(column.notna(), None) for name, column in known.items()}
    rows = rows.assign(source=rows["source_caption_id"].map(text_of), **texts)
    return rows.drop(columns=["caption_id", "source_caption_id", "direction"])
