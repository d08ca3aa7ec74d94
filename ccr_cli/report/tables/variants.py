"""Labels that distinguish runs of one method in a table: by languages, options and human captions."""

from collections.abc import Mapping, Sequence
from typing import Any

from ccr_cli.artifacts.label import Label
from ccr_cli.artifacts.signature import HUMAN

DTYPE = "float32"
"""Precision of the training of a run whose config does not name it."""
SOURCE = "source"
"""The version of somebody's own method or judge, which says nothing about runs of other methods."""
ALONE = "alone"
"""Key of the configuration of a run that was trained on no translations, and so belongs to the tables of all."""
Runs = Mapping[str, tuple[Label, Mapping[str, Any]]]
"""By id, the label and the run's config.json."""


def variant_labels(runs: Runs, defaults: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Label]:
    """Distinguishes runs with the same label, data set and language that were trained with other options.

    `defaults` are by id the options that a label stands for. The labels returned by id are followed by several
    languages and by the options that vary among the runs of that label, or of another one on the same data set and
    language, and are not the default: `uml [lang=de+fr, beta=0.5]`. They always name `captions=human` if human captions
    in the target language were trained on, `select=human` if they chose the epoch, and `mended=1a2b3c` if the captions
    on that list were translated again.
    """
    labels = {}
    usual = {run: {f"options.{k}": v for k, v in ((defaults or {}).get(run) or {}).items()} for run in runs}
    settings = {run: usual[run] | _settings(config) for run, (_, config) in runs.items()}
    groups = _one_table(runs)
    varying = [_varying([settings[run] for run in members]) for _, members in groups]
    for (label, members), keys in zip(groups, varying, strict=True):
        met = (other for (_, m), other in zip(groups, varying, strict=True) if _meet(runs, members, m))
        elsewhere = set[str]().union(*met) - {SOURCE}
        in_label = {key for key in elsewhere - keys if key == "preset" or _short(key) in label.terms}
        for run in members:
            config, values, known = runs[run][1], settings[run], usual[run] | {"dtype": DTYPE}
            candidates = sorted(keys | (elsewhere - in_label) & set(values))
            shown = [key for key in candidates if key not in known or values.get(key) != known[key]]
            parts = several(config) + _translations(config, [runs[other][1] for other in members])
            parts += [f"{_short(key)}={values.get(key)}" for key in shown]
            parts += [f"mended={config['mended']}"] if config.get("mended") else []
            parts += [f"captions={HUMAN}"] if config.get("human") else []
            parts += [f"select={HUMAN}"] if config.get("select") == HUMAN else []
            labels[run] = label.with_options(parts) if parts else label
    return labels


def _varying(settings: Sequence[Mapping[str, Any]]) -> set[str]:
    keys = {key for values in settings for key in values}
    return {key for key in keys if len({repr(values.get(key)) for values in settings}) > 1}


def _short(key: str) -> str:
    return key.rsplit(".", 1)[-1]


def _meet(runs: Runs, some: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two groups of runs may share a table: they have one data set, and a language in common."""
    configs = ([runs[run][1] for run in group] for group in (some, others))
    first, second = ({(config.get("data"), lang) for config in of for lang in _tables(config, runs)} for of in configs)
    return bool(first & second)


def _one_table(runs: Runs) -> list[tuple[Label, list[str]]]:
    """Groups runs with one label that may share a table: with one data set and language, or several that overlap."""
    groups: dict[tuple[Label, Any], list[tuple[set[str], list[str]]]] = {}
    for run, (label, config) in runs.items():
        of_label = groups.setdefault((label, config.get("data")), [])
        langs, members = _tables(config, runs), [run]
        for other in [group for group in of_label if group[0] & langs]:
            of_label.remove(other)
            langs, members = langs | other[0], other[1] + members
        of_label.append((langs, members))
    return [(label, members) for (label, _), of_label in groups.items() for _, members in of_label]


def _tables(config: Mapping[str, Any], runs: Runs) -> set[str]:
    """The target languages whose tables a run is in: without translations those of all."""
    return {lang for _, each in runs.values() for lang in _langs(each)} if config.get(ALONE) else set(_langs(config))


def _langs(config: Mapping[str, Any]) -> list[str]:
    lang = config.get("lang")
    return list(lang) if isinstance(lang, list | tuple) else [str(lang)]


def several(config: Mapping[str, Any]) -> list[str]:
    """The languages of a run in its label, and whether it chose among several translations of one.

    >>> several({"lang": "zh", "translations": {"zh": ["zh-ct2", "zh-apertium"]}, "translation_mix": "draw"})
    ['translations=2, drawn']
    """
    langs = _langs(config)
    drawn = ", drawn" if config.get("langs") == "draw" else ""
    parts = [f"lang={'+'.join(langs)}{drawn}"] if len(langs) > 1 else []
    if mix := config.get("translation_mix"):
        numbers = (len(names) if isinstance(names, list) else 1 for names in config["translations"].values())
        parts.append(f"translations={'+'.join(map(str, numbers))}, {'drawn' if mix == 'draw' else mix}")
    return parts


def _translations(config: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> list[str]:
    """The translations of a run in its label, where other runs have others into the same language."""
    own, *theirs = (
        {k: "+".join(v) if isinstance(v, list) else v for k, v in (each.get("translations") or {}).items()}
        for each in (config, *others)
    )
    return [f"{lang}={own[lang]}" for lang in own if len({other[lang] for other in theirs if lang in other}) > 1]


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    named = {"preset": config.get("preset"), "features": config.get("features"), "dtype": config.get("dtype") or DTYPE}
    named |= {SOURCE: config["source"]["sha256"][:6]} if config.get("source") else {}
    return named | {f"options.{key}": value for key, value in (config.get("options") or {}).items()}
