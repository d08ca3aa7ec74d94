"""Results of many evaluations side by side, where they are comparable; `retrieval.py` has their tables.

Two scores share a table only if their signatures agree in everything except the ratio and seed of the noise and the
candidate set of the uncertainty. Each such setting becomes a `View`. A run that was trained on no translations belongs
to every one that agrees with it in what was measured.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from ccr_cli.artifacts import evaluation, signature
from ccr_cli.artifacts.label import Label
from ccr_cli.metrics.bootstrap import DIRECTIONS
from ccr_cli.registry import BUNDLED
from ccr_cli.report.words import signature_words

RECALLS = ("R@1", "R@5", "R@10")
DIRECTION_METRICS = (*RECALLS, "MedR", "MeanR", "mAP", "MRR")
METRICS = ("SumR", "mAP", *(f"{d}.{m}" for d in DIRECTIONS for m in DIRECTION_METRICS))
"""Columns of a results frame that hold a figure; mAP is the mean of both directions."""
HEADLINES = {"SumR": ("SumR", "of 600"), "mAP": ("mAP@all", "of 100")}
"""The headline figures: the name and the scale of each."""

BASELINE = "infonce"
ORACLE = "infonce (oracle)"
PRETRAINED = "pretrained"
PLAIN = (PRETRAINED, "source-only", "basic", BASELINE)
"""Methods that ignore noise; the first is not trained, the second sees no translation."""
OF_TRAINING = ("mt", "select", "trained_lang")
"""What a setting says of translations, which does not matter for a run that was trained on none."""

REPLICATE = ("seed", "noise_seed")
"""What distinguishes repetitions of one setting: the seed of training, and that of the mismatch."""
ITSELF = "itself"
"""The data set that was trained on, if it is also the evaluated one."""
UNKNOWN = "not known"
"""The data set that was trained on, if the signature does not name it."""
NO_NOISE = -1
"""The seed of the mismatch where there is none."""


@dataclass(frozen=True)
class RunFacts:
    """What a comparison needs to know about a run besides its results."""

    run: str
    label: str
    lang: str = ""
    """Target language; several are joined by `+`."""
    data: str = ""
    noise_kind: str = "none"
    """`none`, or style and target, e.g. `caption-translation`."""
    noise_seed: int | None = None
    encoder: str = ""
    """Features and text encoder."""
    judge: str = ""
    """The judge of its training pairs."""
    trained: bool = True
    """Whether it was trained at all."""
    models: int = 0
    """Dual encoders that it trained; 0: not known."""
    changed: tuple[str, ...] = ()
    """Options other than the method's default that its label may lack, as `key=value`."""


@dataclass(frozen=True)
class View:
    """Comparable results: one data set, split, language, query set and way of scoring."""

    title: str
    data: str
    split: str
    lang: str
    role: str
    fusion: str
    zero_shot: bool
    noise_kind: str
    trained_lang: str
    frame: pd.DataFrame
    """Rows of a results frame."""
    figure: str = "SumR"
    """The headline figure: a key of `HEADLINES`."""
    queries: str = signature.HUMAN
    """The kind of the queries: human, mt or file."""
    chance: float | None = None
    """The SumR that a random ranking is expected to have, where it is known."""

    @property
    def named(self) -> str:
        """The name of the headline figure."""
        return HEADLINES[self.figure][0]

    @property
    def scale(self) -> str:
        """The maximum of the headline figure."""
        return HEADLINES[self.figure][1]

    @property
    def setting(self) -> "ViewSetting":
        """What all of its results have in common."""
        setting: ViewSetting = self.frame["key"].iloc[0]
        return setting

    @property
    def few_queries(self) -> int | None:
        """The number of queries, if it is below `evaluation.LEAST_QUERIES`."""
        least = self.frame["queries"].min()
        return int(least) if least < evaluation.LEAST_QUERIES else None

    @property
    def main_rank(self) -> tuple[Any, ...]:
        """Sorts the main view to the front: one of a few queries never leads those of machine translation."""
        foreign = bool(self.trained_lang) and self.role == "target" and self.lang != self.trained_lang
        kind = len(signature.KINDS) if self.few_queries else signature.KINDS.index(self.queries)
        other = (self.zero_shot, self.fusion != "none", self.role != "target", foreign, kind, self.split != "test")
        repaired = all(Label.parse(label).is_repaired for label in self.frame["label"])
        return (*other, repaired, -len(self.frame), self.noise_kind != signature.USUAL_NOISE, self.title)


@dataclass(frozen=True)
class ViewSetting:
    """Everything that two comparable scores have in common."""

    items: tuple[tuple[str, str], ...]

    @cached_property
    def fields(self) -> dict[str, str]:
        """The values by name: those of a signature, and what else separates results."""
        return dict(self.items)

    def without(self, keys: Collection[str]) -> "ViewSetting":
        """The setting without some of the values."""
        return ViewSetting(tuple((key, value) for key, value in self.items if key not in keys))

    def __str__(self) -> str:
        return "|".join(f"{key}:{value}" for key, value in self.items)

    def __lt__(self, other: "ViewSetting") -> bool:
        return str(self) < str(other)


def base_label(label: str) -> str:
    """The label without the options that tell its variants apart."""
    return Label.parse(label).base


def counterpart(frame: pd.DataFrame, label: str, base: str) -> str | None:
    """The variant of `base` to compare a method with: that with the same options, the default one, or the only one.

    None where there is none, or the choice is ambiguous.
    """
    variants = sorted({other for other in frame["label"] if base_label(other) == base})
    with_options = label.replace(base_label(label), base, 1)
    for variant in (with_options, base):
        if variant in variants:
            return variant
    return variants[0] if len(variants) == 1 else None


def results_frame(
    results: Iterable[tuple[str, Mapping[str, Any]]], facts: Mapping[str, RunFacts] | None = None
) -> pd.DataFrame:
    """Puts results in one frame, a row a result; one that occurs twice (same run, same signature) counts once.

    Args:
        results: The id of the run (any text that tells runs apart) and an entry of `metrics.json`.
        facts: Facts about the runs, by id.

    Returns:
        Columns run_id, run, data, split, lang, caption_set, role, fusion, method, label, noise, seed, noise_seed,
        zero_shot, signature (its text), signed (the signature, None if unreadable), queries, trained_lang (the language
        of the queries if the run was trained on it, otherwise all languages of the run), trained_on (the data set with
        its id, or `ITSELF`), translated (whether it was trained on translations), asked (the kind of the queries),
        encoder, judge, models, noise_kind, key, figure (the headline), low and high (its interval) and `METRICS`.
    """
    rows, results = [], list(results)
    engines_of: dict[tuple[object, object], set[str]] = defaultdict(set)
    for _, result in results:
        if signature.is_translate_test(str(result.get("fusion"))):
            engines_of[result.get("data"), result.get("lang")].add(_engine(result))
    for run_id, result in results:
        fact = (facts or {}).get(run_id)
        fact = fact or RunFacts(str(result.get("run")), _alone(result), trained=result.get("method") != PRETRAINED)
        figure, lang, signed = evaluation.headline(result), str(result.get("lang")), signature.signature_of(result)
        low, high = evaluation.interval(result, figure) or (None, None)
        trained_on = signed.rules.trained_on if signed else ""
        label, fusion = Label.parse(fact.label), str(result.get("fusion"))
        if signature.is_translate_test(fusion):  # a system beside the run, in the same table
            several = len(engines_of[result.get("data"), lang]) > 1
            label, fusion = label.translate_test(_engine(result) if several else ""), signature.NONE
        row = {
            "run_id": run_id,
            **{k: result.get(k) for k in ("run", "data", "split", "lang", "caption_set", "role", "method")},
            "fusion": fusion,
            "label": str(label),
            "noise": round(float(result.get("noise") or 0.0), 6),
            "seed": int(result.get("seed") or 0),
            "zero_shot": bool(result.get("zero_shot")),
            "signature": str(result.get("signature") or ""),
            "signed": signed,
            "queries": (result.get("t2v") or {}).get("queries"),
            "asked": signed.queries if signed else signature.HUMAN,
            "trained_lang": lang if lang in fact.lang.split("+") or not fact.trained else fact.lang,
            "translated": fact.trained and not (signed and signed.mt == signature.NONE),
            "trained_on": trained_on or (fact.data or UNKNOWN if result.get("zero_shot") else ITSELF),
            "encoder": fact.encoder,
            "judge": fact.judge,
            "models": fact.models,
            "SumR": result.get("SumR"),
            "mAP": evaluation.mean_ap(result),
            "figure": figure,
            "low": low,
            "high": high,
            **{f"{d}.{m}": (result.get(d) or {}).get(m) for d in DIRECTIONS for m in DIRECTION_METRICS},
        }
        row["noise_kind"], row["noise_seed"], row["key"] = _comparable(row, fact)
        rows.append(row)
    names = ["run_id", "run", "label", "noise", *REPLICATE, "noise_kind", "key", "signature", *METRICS]
    frame = pd.DataFrame(rows, columns=None if rows else names)
    for name in (*METRICS, "low", "high"):
        if name in frame:
            frame[name] = pd.to_numeric(frame[name], errors="coerce").astype(float)
    return frame.drop_duplicates(["run_id", "signature"], ignore_index=True)


def _engine(result: Mapping[str, Any]) -> str:
    """What translated the queries of a translate-test."""
    signed = signature.signature_of(result)
    return signature.read_fusion(signed.fusion)[1].replace(":", " ") if signed else ""


def _alone(result: Mapping[str, Any]) -> str:
    """The label of a result whose run is gone, with what its signature says about training."""
    signed = signature.signature_of(result)
    if signed is None:
        return str(result["label"])
    engine, others = signature.read_mt(signed.mt)
    parts = [f"lang={'+'.join(sorted([str(result['lang']), *others]))}"] * bool(others)
    parts += [f"captions={signature.HUMAN}"] * (f"{signature.HUMAN}:" in signed.mt)
    parts += [f"select={signature.HUMAN}"] * (signed.select == signature.HUMAN and engine != "none")
    label = Label.parse(str(result["label"]))
    return str(label.with_options(parts) if parts else label)


def _comparable(row: Mapping[str, Any], fact: RunFacts) -> tuple[str, int, ViewSetting]:
    """Kind and seed of the noise, and the setting."""
    own = ("data", "split", "lang", "caption_set", "fusion", "zero_shot", "trained_lang", "trained_on")
    kind, seed = fact.noise_kind, NO_NOISE if fact.noise_seed is None else fact.noise_seed
    signed: signature.Signature | None = row["signed"]
    if signed is None:
        return kind, seed, ViewSetting(tuple((key, str(row[key])) for key in own))
    if noise := signature.read_noise(signed.noise):
        kind, seed = (noise[0] if kind == "none" else kind), noise[1]
    fields = {key: value for key, value in signed.fields.items() if key not in ("noise", "unc")}
    fields["protocol"] = str(replace(signed.rules, trained_on=""))
    fields["mt"] = signature.read_mt(signed.mt)[0]
    if signature.is_translate_test(signed.fusion):
        fields["fusion"] = signature.NONE
    if signature.read_runs(signed.sim) > 1:  # an ensemble has a row of its own, beside its runs
        fields["sim"] = signature.sim_value()
    rest = {**fields, "trained_lang": str(row["trained_lang"]), "trained_on": str(row["trained_on"])}
    return kind, seed, ViewSetting(tuple(rest.items()))


def repeated(frame: pd.DataFrame) -> list[list[str]]:
    """Groups of runs that a report cannot distinguish, even by their seeds: each counts as one run."""
    by = ["key", "noise_kind", "noise", "label", *REPLICATE]
    groups = frame.groupby(by, sort=True, dropna=False)["run"].unique()
    return [list(group) for group in sorted({tuple(sorted(map(str, runs))) for runs in groups if len(runs) > 1})]


def views(frame: pd.DataFrame) -> list[View]:
    """Splits a results frame into comparable views, the main view first.

    Each kind of noise has its own view; results without noise belong to every one.
    """
    split = []
    for rows in _comparable_rows(frame):
        kinds = sorted(set(rows["noise_kind"]) - {"none"}) or ["none"]
        for kind in kinds:
            part = rows[rows["noise_kind"].isin([kind, "none"])].reset_index(drop=True)
            first = part.iloc[0]
            names = ("data", "split", "lang", "role", "fusion", "zero_shot", "trained_lang", "figure")
            known = {"noise_kind": kind, "frame": part, "queries": first["asked"], **{n: first[n] for n in names}}
            split.append(View(title=_title(first, kind), **known))
    split.sort(key=lambda view: view.main_rank)
    unique = []
    for view in split:  # titles that several views share are followed by what distinguishes them
        same = [other.setting.fields for other in split if other.title == view.title]
        extra = signature_words.distinction(same, view.setting.fields)
        unique.append(replace(view, title=f"{view.title} ({extra})") if extra else view)
    return unique


def _comparable_rows(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The rows of each setting, then those of runs without translations that agree with it in all but these."""
    measured = frame["key"].map(lambda setting: setting.without(OF_TRAINING)) if len(frame) else frame["key"]
    for _, rows in frame.groupby(measured, sort=True):
        translated = rows["translated"].astype(bool)
        settings = [part for _, part in rows[translated].groupby("key", sort=True)]
        yield from [pd.concat([part, rows[~translated]]) for part in settings] or [rows]


def same_but_language(views: Sequence[View]) -> list[View]:
    """The main view and those that differ from it in the language alone, one for each language, by language.

    Only queries in the target language of the run: others are another task.
    """
    if len(views) < 2 or views[0].role != "target":
        return []
    names = ("data", "split", "role", "fusion", "zero_shot", "noise_kind", "figure", "queries")

    def rules(view: View) -> list[object]:
        keys = ("gallery", "dir", "protocol", "pos", "ties", "sim", "select", "leak")
        return [*(getattr(view, name) for name in names), *(view.setting.fields.get(key) for key in keys)]

    by_lang: dict[str, View] = {}
    for view in views:
        if view.lang == view.trained_lang and rules(view) == rules(views[0]):
            by_lang.setdefault(view.lang, view)
    return [by_lang[lang] for lang in sorted(by_lang)]


def _title(row: "pd.Series[Any]", kind: str) -> str:
    signed: signature.Signature | None = row["signed"]
    partial = signed is not None and signature.is_partial(signed.data)
    parts = [
        f"{row['data']}{' (partial)' * partial} {row['split']}",
        f"{signature_words.queries(row['asked'])} in {row['lang']}",
    ]
    if row["trained_on"] == UNKNOWN:
        parts.append("zero-shot")
    elif row["trained_on"] != ITSELF:
        how = "zero-shot from" if row["zero_shot"] else "trained on"
        parts.append(f"{how} {signature.data_name(row['trained_on'])}")
    if row["fusion"] != "none":
        parts.append(f"fused with their translation ({signature_words.fusion(str(row['fusion']))})")
    rules = signed.rules.rules if signed else signature.FULL
    if rules not in (signature.FULL, signature.LABELLED):
        parts.append(f"protocol {rules}")
    return ", ".join(filter(None, [*parts, signature_words.unusual_noise(kind)]))


def aggregate(frame: pd.DataFrame, by: Sequence[str], figures: Sequence[str]) -> pd.DataFrame:
    """Mean, standard deviation and number over runs that differ in their seeds; rows of the same seeds count once.

    Returns a row a group of `by`, sorted (methods by `method_order`); columns (figure, mean|sd|n). `sd` (n - 1 in the
    denominator) is nan for n = 1.
    """
    runs = frame.groupby([*by, *_seed_columns(frame)], sort=False, dropna=False)[list(figures)].mean().reset_index()
    grouped = runs.groupby(list(by), sort=False, dropna=False)[list(figures)]
    table = pd.concat({"mean": grouped.mean(), "sd": grouped.std(ddof=1), "n": grouped.count()}, axis=1)

    def order(index: Any) -> tuple[Any, ...]:
        key = index if isinstance(index, tuple) else (index,)
        return tuple(method_order(k) if name == "label" else k for name, k in zip(by, key, strict=True))

    return table.swaplevel(axis=1).loc[sorted(table.index, key=order)]


def replicates(frame: pd.DataFrame, figure: str) -> "pd.Series[float]":
    """A figure of one method at one noise ratio, a value for each pair of seeds."""
    return frame.groupby(_seed_columns(frame))[figure].mean().dropna()


def _seed_columns(frame: pd.DataFrame) -> list[str]:
    return [name for name in REPLICATE if name in frame]


def is_oracle(label: str) -> bool:
    """Whether a method, or one of an ensemble, knows the truth: a ceiling, not a competitor."""
    return Label.parse(label).is_oracle


def is_plain(label: str) -> bool:
    """Whether a method ignores noise, whatever its options; a judge makes it noise-robust."""
    runs = Label.parse(label).runs
    return all(run.method in PLAIN and len(run.terms) == len(run.own_extras) for run in runs)


def is_robust(rows: pd.DataFrame, label: str) -> bool:
    """Whether a method is made for noise: one of ccr that does not ignore it, or a judge doubts pairs of its runs."""
    bundled = {name.replace("_", "-") for name in BUNDLED["methods"]}
    judges = set(rows.loc[rows["label"] == label, "judge"])
    known = {run.method for run in Label.parse(label).runs} <= bundled
    return not is_plain(label) if known else not judges & {"", "none"}


def method_order(label: str) -> tuple[int, str]:
    """Sorts the plain methods first, the ceilings last; repaired data next to the method as it was."""
    first, *others = Label.parse(label).runs
    repaired = Label.of(first.method, [extra for extra in first.extras if not extra.startswith("pairs ")])
    if is_plain(label) or (not others and is_plain(str(repaired))):
        return PLAIN.index(first.method), label
    return (9 if is_oracle(label) else 5), label


def methods(frame: pd.DataFrame) -> list[str]:
    """The methods of a frame, in the order of every table and figure."""
    return sorted(set(frame["label"]), key=method_order)
