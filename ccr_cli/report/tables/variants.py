"""What tells runs of one method apart in a table: their languages, their options, and whether people wrote for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ccr_cli.artifacts.label import Label
from ccr_cli.artifacts.signature import HUMAN

DTYPE = "float32"
"""What a run was trained in where its config does not say."""


def variant_labels(
    runs: Mapping[str, tuple[Label, Mapping[str, Any]]], defaults: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Label]:
    """Tells runs apart that bear one label, on one data set and language, but were trained with other options.

    Args:
        runs: By id, the label and the run's config.json.
        defaults: By id, the options that the label stands for.

    Returns:
        By id, the label, followed by the languages where they are several, and the options that vary among the runs of
        one label and are not the default, e.g. `uml [lang=de+fr, beta=0.5]`: of that label, or of another one on the
        same data set and language, so that what one label says no other leaves out; and always by `captions=human`
        where people wrote what was trained on in the target language, `select=human` where that chose the epoch, and
        `mended=1a2b3c` where captions on that list were translated again.
    """
    out = {}
    usual = {run: {f"options.{k}": v for k, v in ((defaults or {}).get(run) or {}).items()} for run in runs}
    settings = {run: usual[run] | _settings(config) for run, (_, config) in runs.items()}
    groups = _one_table(runs)
    varying = [_varying([settings[run] for run in members]) for _, members in groups]
    for (label, members), own_keys in zip(groups, varying, strict=True):
        others = {key for (_, m), keys in zip(groups, varying, strict=True) if _meet(runs, members, m) for key in keys}
        borne = {key for key in others - own_keys if key == "preset" or _short(key) in label.terms}
        for run in members:
            own, known = settings[run], usual[run] | {"dtype": DTYPE}
            there = sorted(own_keys | (others - borne) & set(own))
            told = [k for k in there if k not in known or own.get(k) != known[k]]
            parts = several(runs[run][1]) + _translations(runs[run][1], [runs[other][1] for other in members])
            parts += [f"{_short(key)}={own.get(key)}" for key in told]
            parts += [f"mended={runs[run][1].get('mended')}"] * bool(runs[run][1].get("mended"))
            parts += [f"captions={HUMAN}"] * bool(runs[run][1].get("human"))
            parts += [f"select={HUMAN}"] * (runs[run][1].get("select") == HUMAN)
            out[run] = label.with_options(parts) if parts else label
    return out


def _varying(settings: Sequence[Mapping[str, Any]]) -> set[str]:
    """The options in which runs differ."""
    keys = {key for each in settings for key in each}
    return {key for key in keys if len({repr(each.get(key)) for each in settings}) > 1}


def _short(key: str) -> str:
    return key.rsplit(".", 1)[-1]


def _meet(runs: Mapping[str, tuple[Label, Mapping[str, Any]]], some: Sequence[str], others: Sequence[str]) -> bool:
    """Says whether two groups of runs may stand in one table: of one data set, and a language of both."""
    (data, langs), (other_data, other_langs) = (
        (runs[group[0]][1].get("data"), {lang for run in group for lang in _langs(runs[run][1])})
        for group in (some, others)
    )
    return bool(data == other_data and langs & other_langs)


def _one_table(runs: Mapping[str, tuple[Label, Mapping[str, Any]]]) -> list[tuple[Label, list[str]]]:
    """Groups runs of one label that may stand in one table: of one data set and language, or several with it."""
    groups: dict[tuple[Label, Any], list[tuple[set[str], list[str]]]] = {}
    for run, (label, config) in runs.items():
        found = groups.setdefault((label, config.get("data")), [])
        own, members = set(_langs(config)), [run]
        for other in [each for each in found if each[0] & own]:
            found.remove(other)
            own, members = own | other[0], other[1] + members
        found.append((own, members))
    return [(label, members) for (label, _), found in groups.items() for _, members in found]


def _langs(config: Mapping[str, Any]) -> list[str]:
    lang = config.get("lang")
    return list(lang) if isinstance(lang, list | tuple) else [str(lang)]


def several(config: Mapping[str, Any]) -> list[str]:
    """What a label says of the languages of a run; nothing of one alone."""
    langs = _langs(config)
    drawn = ", drawn" if config.get("langs") == "draw" else ""
    return [f"lang={'+'.join(langs)}{drawn}"] if len(langs) > 1 else []


def _translations(config: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a label says of the translations into several languages, where others are of other ones into the same."""
    known = {lang: {str((other.get("translations") or {}).get(lang)) for other in others} for lang in _langs(config)}
    made = config.get("translations") or {}
    return [f"{lang}={made[lang]}" for lang in made if len(known[lang] - {"None"}) > 1]


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    named = {"preset": config.get("preset"), "features": config.get("features"), "dtype": config.get("dtype") or DTYPE}
    return named | {f"options.{key}": value for key, value in (config.get("options") or {}).items()}
