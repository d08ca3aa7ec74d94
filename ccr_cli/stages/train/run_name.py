"""The name of a run, from its request and the requests of its sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, features
from ccr_cli.artifacts.workspace import stem
from ccr_cli.stages.extract import stage as extract
from ccr_cli.stages.train.sources import Sources
from ccr_cli.stages.translate import job as translate


def run_name(sources: Sources, data: dataset.Dataset, request: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Names a run by requests alone, whatever else the workspace holds and whatever its sources are called.

    `DATA-LANG-METHOD-seedN`; preset and noise ratio follow the method. The encoder follows the data set, and the engine
    its language, if they differ from what `ccr extract` and `ccr translate --lang LANG` choose. Six hex digits encode
    everything else that differs from the defaults: options of the run, of its translations and of its features, and a
    second translation.
    """
    translated = [_translation(artifact, data) for artifact in sources.translated]
    encoder, of_features = _features(sources.features, data)
    engines = [engine for engine, _ in translated] or [""]
    langs = [part for pair in zip(sources.langs, engines, strict=True) for part in pair]
    noise = f"noise{request['noise']['ratio']:g}" if request["noise"] else ""
    parts = [data.name, encoder, *langs, request["method"], request["preset"], noise]
    readable = "-".join([*(part for part in parts if part), f"seed{request['seed']}"])
    second = sources.second.request if sources.second else None
    differing = [options for _, options in translated]
    of_translations = (differing[0] if len(differing) == 1 else differing) if any(differing) else {}
    of_sources = {"features": of_features, "translation": of_translations, "second": second}
    return stem(readable, {**request, **of_sources}, {**defaults, "features": {}, "translation": {}, "second": None})


def _features(artifact: base.Artifact, data: dataset.Dataset) -> tuple[str, dict[str, Any]]:
    """The encoder, empty if it is the usual one, and the options that differ from its defaults; of all joined parts."""
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
    usual = extract.default_request(encoder) if encoder in registry.names("encoders") else {}
    return "" if encoder == extract.default_encoder(data) else encoder, _differing(request, usual)


def _translation(artifact: base.Artifact, data: dataset.Dataset) -> tuple[str, dict[str, Any]]:
    """The engine, empty if it is the usual one, and the options that differ from its defaults."""
    lang, engine = str(artifact.request["lang"]), str(artifact.request["engine"])
    usual = translate.usual_request(lang, engine) if engine in registry.names("translators") else {}
    return "" if engine == translate.usual_engine(data, lang) else engine, _differing(artifact.request, usual)


def _differing(request: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in request.items() if key not in usual or usual[key] != value}
