"""The name of a run, from its request and those of its sources."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, features
from ccr_cli.artifacts.signature import USUAL_NOISE, noise_kind
from ccr_cli.artifacts.workspace import stem
from ccr_cli.stages.extract import stage as extract
from ccr_cli.stages.shared.options import configure, default_request
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.sources import Sources
from ccr_cli.stages.train.teacher import USUAL
from ccr_cli.stages.translate import job as translate


def run_name(
    sources: Sources,
    teacher: base.Artifact | None,
    data: dataset.Dataset,
    request: Mapping[str, Any],
    usual: dict[str, Any],
) -> str:
    """Names a run; the name depends on requests alone, not on the workspace or the names of its sources.

    It is `DATA-LANG-METHOD-seedN`, with preset and noise ratio after the method, and the kind of noise unless it is
    the usual one. The encoder follows the data set, and the engine its language, if they differ from what `ccr extract`
    and `ccr translate --lang LANG` choose. Six hex digits encode everything else that differs from the defaults (for
    the method and preset: `usual`): options of the run, of its translations, features and teacher, and further
    translations.
    """
    spelled_out = {k: request[k] for k in ("method", "lang", "seed", "preset", "alternatives") if k in request}
    defaults = default_request(TrainingOptions) | usual | spelled_out
    drawn = request["noise"] or {}
    if drawn.get("seed") == request["seed"]:
        defaults["noise"] = drawn
    first = [artifacts[0] for artifacts in sources.by_language.values()]
    translated = [_translation(artifact, data) for artifact in first]
    of_sources: dict[str, Any] = {"teacher_run": of_teacher(teacher, request) if teacher else {}}
    encoder, of_features = _features(sources.features, data)
    engines = [engine for engine, _ in translated] or [""]
    langs = [part for pair in zip(sources.langs, engines, strict=True) for part in pair]
    kind = noise_kind(drawn)
    noise = [f"noise{drawn['ratio']:g}", *([] if kind == USUAL_NOISE else [kind])] if drawn else []
    parts = [data.name, encoder, *langs, request["method"], request["preset"], *noise]
    readable = "-".join([*(part for part in parts if part), f"seed{request['seed']}"])
    second: Any = sources.second.request if sources.second else None
    if sources.alternatives:
        second = [artifact.request for artifact in sources.translated if artifact not in first]
    differing = [options for _, options in translated]
    of_translations = (differing[0] if len(differing) == 1 else differing) if any(differing) else {}
    of_sources |= {"features": of_features, "translation": of_translations, "second": second}
    unchanged: dict[str, Any] = {"features": {}, "translation": {}, "second": None, "teacher_run": {}}
    return stem(readable, {**request, **of_sources}, {**defaults, **unchanged})


def _features(artifact: base.Artifact, data: dataset.Dataset) -> tuple[str, dict[str, Any]]:
    """The encoder (empty if it is the default) and the options that differ from its defaults; by part if joined."""
    parts = [_encoder(part.request, data) for part in features.parts(artifact)]
    if len(parts) == 1:
        return parts[0]
    differing = [options for _, options in parts]
    return str(artifact.request["encoder"]), {features.PARTS: differing} if any(differing) else {}


def _encoder(request: Mapping[str, Any], data: dataset.Dataset) -> tuple[str, dict[str, Any]]:
    encoder = str(request["encoder"])
    if features.FROM in request:
        return encoder, _differing(request, {})
    if encoder == features.GIVEN:
        return "", {}
    usual = extract.default_request(encoder) if registry.has("encoders", encoder) else {}
    return "" if encoder == extract.default_encoder(data) else encoder, _differing(request, usual)


def _translation(artifact: base.Artifact, data: dataset.Dataset) -> tuple[str, dict[str, Any]]:
    """The engine (empty if it is the default) and the options that differ from its defaults."""
    lang, engine = str(artifact.request["lang"]), str(artifact.request["engine"])
    usual = translate.usual_request(lang, engine) if registry.has("translators", engine) else {}
    return "" if engine == translate.usual_engine(data, lang) else engine, _differing(artifact.request, usual)


def _differing(request: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in request.items() if key not in usual or usual[key] != value}


def of_teacher(teacher: base.Artifact, request: Mapping[str, Any]) -> dict[str, Any]:
    """The options in which a teacher differs from the default teacher of a run."""
    config = registry.load("methods", USUAL).Config
    usual = default_request(TrainingOptions) | asdict(configure(config, {}, USUAL))
    usual |= {"method": USUAL, "seed": request["seed"], "lang": teacher.request["lang"]}
    if teacher.request["noise"] == request["noise"]:
        usual["noise"] = request["noise"]
    return _differing(teacher.request, usual)
