"""What a run is called: from what was asked for, and from what its sources were asked for."""

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
    """Names a run, by requests alone: what else lies in the workspace and what the sources are called is no matter.

    `DATA-LANG-METHOD-seedN`, with preset and noise ratio behind the method; behind the data set the encoder, and
    behind each language the engine, where `ccr extract` and `ccr translate --lang LANG` take another by themselves.
    Six hex digits stand for all else that differs from the defaults: options of the run, of its translations and of
    its features, and a second translation.

    Args:
        sources: What it is trained from.
        data: Its data set.
        request: The run's own options.
        defaults: The same with their default values.
    """
    encoder, of_features = _features(sources.features, data)
    translated = [_translation(artifact, data) for artifact in sources.translated]
    engines = [engine for engine, _ in translated] or [""]
    langs = [part for each in zip(sources.langs, engines, strict=True) for part in each]
    noise = f"noise{request['noise']['ratio']:g}" if request["noise"] else ""
    parts = [data.name, encoder, *langs, request["method"], request["preset"], noise]
    readable = "-".join([*(part for part in parts if part), f"seed{request['seed']}"])
    second = sources.second.request if sources.second else None
    differing = [options for _, options in translated]
    of_translations = (differing[0] if len(differing) == 1 else differing) if any(differing) else {}
    own = {"features": of_features, "translation": of_translations, "second": second}
    return stem(readable, {**request, **own}, {**defaults, "features": {}, "translation": {}, "second": None})


def _features(artifact: base.Artifact, data: dataset.Dataset) -> tuple[str, dict[str, Any]]:
    """The encoder if it is not the usual one, and the options that are not its defaults; of each, where joined."""
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
    """The engine if it is not the usual one, and the options that are not its defaults."""
    lang, engine = str(artifact.request["lang"]), str(artifact.request["engine"])
    usual = translate.usual_request(lang, engine) if engine in registry.names("translators") else {}
    return "" if engine == translate.usual_engine(data, lang) else engine, _differing(artifact.request, usual)


def _differing(request: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in request.items() if key not in usual or usual[key] != value}
