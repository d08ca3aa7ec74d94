"""The options of an artifact in a few words, and what distinguishes several of one kind."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ccr_cli.artifacts.base import Artifact, canonical_json, sha256_text
from ccr_cli.artifacts.diagnosis import WITHOUT_SIDE

_PLUGINS = ("method", "engine", "encoder", "judge", "type")
"""Options that choose a plug-in, and with it the further options."""
_OWN = ("lang", "langs", "noise", "seed", "pairs", "preset", "select_on", "epochs", "split", "find", "only")
"""Options that do not depend on the plug-in, so they are named wherever they differ."""
_SHOWN = {
    "translation": "lang engine split back queries only",
    "noise": "ratio style target seed",
    "features": "encoder",
    "run": "method lang translation_mix noise seed epochs preset pairs select_on",
    "evaluation": "split langs zero_shot protocol task caption_set corrupt corruption ood ensemble",
    "diagnosis": "judge judge_side share",
    "report": "title",
    "index": "split find lang type",
}
"""The options that describe each kind, in this order."""
_USUAL = {"select_on": "mt", "protocol": "full", "task": "visual", "judge_side": "cross_lingual"}
"""Values that are left out, like unset flags and empty lists."""
_BARE = ("lang", "langs", "split", "protocol", "corruption", "style", "target", "title", "find", "judge_side")
"""Options whose value needs no name, like that of a plug-in."""
_BOTH = {"back": ("without back-translations", "with back-translations")}
"""Words for options that are named even if unset, where they differ: unset and set."""
_BY_NAME = ("dataset", "translation", "features", "run")


def short(artifact: Artifact) -> str:
    """Returns an artifact's main options, without usual values: `uml, es, noise 0.4, seed 0, epochs 12`."""
    parts = []
    for key in (key for key in _SHOWN.get(artifact.kind, "").split() if key in artifact.request):
        value = artifact.request[key]
        if key == "split" and artifact.kind != "index" and value == "all":
            continue
        if key == "judge_side" and artifact.request.get("judge") in WITHOUT_SIDE:
            continue
        if value is False or value == _USUAL.get(key, []) or (value is None and key != "split"):
            continue
        words = _value(key, artifact.request)
        parts.append(_name(key) if value is True else words if key in (*_PLUGINS, *_BARE) else f"{_name(key)} {words}")
    return ", ".join(parts)


def apart(artifacts: Sequence[Artifact]) -> list[str]:
    """Returns, for each of several artifacts of one kind, the options in which they differ: `method uml, noise 0.4`.

    Options that follow from the plug-in are left out.
    """
    requests = [artifact.request for artifact in artifacts]
    parts: list[list[str]] = [[] for _ in artifacts]
    plugin = next((key for key in _PLUGINS if all(key in request for request in requests)), "")
    for key in dict.fromkeys(key for request in requests for key in request if key != "alternatives"):
        values = [canonical_json(request.get(key)) for request in requests]
        pairs = {(str(request.get(plugin)), value) for request, value in zip(requests, values, strict=True)}
        follows = key not in (plugin, *_OWN) and 1 < len({name for name, _ in pairs}) == len(pairs)
        if len(set(values)) > 1 and not follows:
            for words, request in zip(parts, requests, strict=True):
                if key in request or key in ("pairs", "langs"):
                    both = _BOTH.get(key)
                    words.append(both[bool(request.get(key))] if both else f"{_name(key)} {_value(key, request)}")
    for kind in _BY_NAME:
        names = [[PurePosixPath(p.path).name for p in a.parents if p.kind == kind] for a in artifacts]
        in_name = all(parent in a.name for a, own in zip(artifacts, names, strict=True) for parent in own)
        if len({tuple(own) for own in names}) > 1 and not in_name:
            for words, own in zip(parts, names, strict=True):
                words += [f"{kind} {'+'.join(own)}"] if own else []
    if not any(parts):
        parts = [[f"made {artifact.about.get('created') or 'at an unknown time'}"] for artifact in artifacts]
    return [", ".join(words) for words in parts]


def _name(key: str) -> str:
    return key.removeprefix("set.").replace("_", " ")


def _value(key: str, request: Mapping[str, Any]) -> str:
    """Returns a value of a request as people would write it."""
    value = request.get(key)
    if value is None or value in ("", []):
        return "all" if key in ("pairs", "langs", "split") else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key == "noise" and isinstance(value, dict):
        usual = {"style": "caption", "target": "translation"}
        more = [str(value[k]) for k, v in usual.items() if value.get(k) != v]
        drawn = [f"noise seed {value['seed']}"] if value.get("seed") != request.get("seed") else []
        return " ".join([f"{value['ratio']:g}", *more, *drawn])
    if isinstance(value, dict):  # a list of pairs, or the files of a data set: by its content
        content = str(value.get("sha256") or sha256_text(canonical_json(value)))[:6]
        return " ".join([content, *(["as weights"] if value.get("as") == "weights" else [])])
    if isinstance(value, list):
        return "+".join(map(str, value)) if all(isinstance(x, str | int) for x in value) else str(len(value))
    return f"{value:g}" if isinstance(value, float) else str(value)
