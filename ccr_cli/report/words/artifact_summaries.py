"""What a stage says about the artifact it made, and what `ccr show` repeats: lines of text, and a table of results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ccr_cli import registry
from ccr_cli.artifacts import diagnosis, evaluation, index, run, translation
from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.evaluation import Corruption
from ccr_cli.artifacts.signature import (
    HUMAN,
    MT,
    SOFTMAX,
    TRANSLATE_TEST,
    is_translate_test,
    read_galleries,
    signature_of,
)
from ccr_cli.console import counted, tally
from ccr_cli.metrics.bootstrap import DIRECTIONS
from ccr_cli.metrics.chance import even_sum_r
from ccr_cli.metrics.scripts import has_spaces
from ccr_cli.report.tables import chance
from ccr_cli.report.tables.comparable import BASELINE, PRETRAINED, base_label
from ccr_cli.report.tables.retrieval import METRICS
from ccr_cli.report.tables.table import Cell, Column, Row, Table
from ccr_cli.report.tables.translations import reference_words, score_signatures
from ccr_cli.report.words import signature_words
from ccr_cli.report.words.numbers import (
    decimal,
    duration,
    ends,
    metric,
    percent,
    probability,
    similarity,
    with_interval,
)

FEW, FEW_QUERIES = 50, 100
"""Fewer items in a gallery, or fewer queries, give wide intervals."""
SUSPICIOUS = 5
"""Number of least believed pairs shown for a diagnosis."""

MANY = 1 / 3
"""Share of doubted pairs above which a diagnosis without synthetic noise says more of the model than of the pairs."""

Result = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """A line for standard error."""

    text: str
    style: str | None = None
    level: int = 0
    """The verbosity from which it is shown."""
    warning: bool = False


def summary(artifact: Artifact, *, brief: bool = False, as_table: bool = False) -> Iterator[Line | Table]:
    """Summarises an artifact, if `brief` in one line; with `as_table` the results of an evaluation are a table."""
    if artifact.kind == "evaluation":
        yield from _evaluation(artifact, brief, as_table)
    elif artifact.kind in _SUMMARIES:
        yield from _SUMMARIES[artifact.kind](artifact, brief)
    else:
        yield Line(f"  {tally(artifact.counts)}")


def _translation(artifact: Artifact, brief: bool) -> Iterator[Line]:
    """Quality by direction and split, and the signatures of the scores."""
    quality = {name: part for name, part in translation.quality(artifact).items() if name in ("forward", "query")}
    if brief:
        splits = [split for part in quality.values() for split in part["splits"].values()]
        flagged, failed, captions = (sum(split[key] for split in splits) for key in ("flagged", "failed", "captions"))
        failures = f", {counted(failed, 'caption')} failed" if failed else ""
        yield Line(f"  {flagged} of {captions - failed} translations are flagged{failures}")
        return
    scored = []
    for direction, part in quality.items():
        for name, split in part["splits"].items():
            yield Line(f"  {part['source_lang']} -> {part['lang']}, {direction}, {name}: {_without_references(split)}")
            for human in split["references"]:
                known = human["scores"].items()
                scores = (f"{metric_name} {with_interval(s['score'], s['interval'])}" for metric_name, s in known)
                sets = dict.fromkeys([human["caption_set"], human["source_set"]])
                about = f"{' for '.join(sets)}; {counted(human['captions'], 'caption')}"
                yield Line(f"    {', '.join(scores)} against {reference_words(human)} ({about})")
                scored.append(human)
        for note in part["notes"]:
            yield Line(f"  no score: {note}")
        if usage := part.get("usage"):
            cost = f"; cost {usage['cost']:,.4f}" if "cost" in usage else ""
            read, written = usage["prompt_tokens"], usage["completion_tokens"]
            yield Line(f"  {direction}: {read:,} tokens read, {written:,} written{cost}")
    words = artifact.environment.get("word_flags") or {}
    if any(words.values()):
        flags = ", ".join(f"{name} {number}" for name, number in words.items() if number)
        yield Line(f"  flags of words: {flags} (ccr diagnose names them)")
    if any(split["flagged"] for part in quality.values() for split in part["splits"].values()):
        yield Line("  ccr report shows flagged captions of each kind")
    notes = [human["note"] for human in scored if human["note"]]
    for text in dict.fromkeys([*score_signatures(scored), *notes]):
        yield Line(f"  {text}", style="dim")


def _without_references(split: dict[str, Any]) -> str:
    """What is known of a split without human references."""
    flags = ", ".join(f"{flag} {n}" for flag, n in split["flags"].items() if n)
    failed = f", {split['failed']} failed" if split["failed"] else ""
    parts = [
        f"{counted(split['captions'], 'caption')}{failed}, {split['flagged']} flagged{f' ({flags})' if flags else ''}"
    ]
    if split["length_ratio"] is not None:
        parts.append(f"length ratio {decimal(split['length_ratio'], 2)}")
    if split["round_trip"]:
        parts.append(f"round-trip chrF2 {metric(split['round_trip']['chrF2']['score'])}")
    return "; ".join(parts)


def _training(artifact: Artifact, brief: bool) -> Iterator[Line]:
    """The epoch that was kept, and its validation."""
    counts, seconds = artifact.counts, float(artifact.environment.get("seconds", 0.0))
    best: Any = run.history(artifact).set_index("epoch").loc[counts["best_epoch"]]
    config = run.config(artifact)
    figure, reached = config.get("criterion", "SumR"), ""
    if f"val.{figure}" in best:
        values = {lang: best.get(f"val.langs.{lang}.{figure}") for lang in run.langs(config)}
        by_lang = ", ".join(f"{lang} {metric(value)}" for lang, value in values.items() if value is not None)
        reached = f", {figure} {metric(best[f'val.{figure}'])} on validation{': ' if by_lang else ''}{by_lang}"
        if config.get("validation"):
            queries, items = config["validation"]
            mt = artifact.request.get("select_on") == "mt" and artifact.has_parent("translation")
            kind = "machine-translated" if config["select"] == "mt" or (not counts["epochs"] and mt) else "human"
            level = ""
            if figure == "SumR":
                level = f"; chance: about {metric(even_sum_r(queries / len(run.langs(config)), items))}"
            half = f"half of it: {queries:,} {kind} queries, {counted(items, 'item')}"
            reached += f" ({half}; not comparable with test results{level})"
    kept = f"epoch {counts['best_epoch']} of {counts['epochs']} kept{reached}"
    if counts["epochs"] and not counts["best_epoch"]:
        kept = f"training did not improve on the pretrained model, which is kept{reached}; {counts['epochs']} epochs"
    words = f"  {kept}; trained for {duration(seconds)}" if counts["epochs"] else f"  nothing is trained{reached}"
    yield Line(words)
    if counts.get("stopped"):
        yield Line(run.stopped(artifact), warning=True)
    if own := artifact.request.get("source"):
        files = registry.own(registry.sources(("methods", config["method"]), ("judges", config["options"]["judge"])))
        with suppress(SyntaxError, ValueError):  # a file that does not load now
            if registry.source_sha256(files) != own["sha256"]:
                names = ", ".join(f"{path.parent.name}/{path.name}" for path in files) or "its method's file"
                yield Line(f"{names} changed since this run, or is gone: ccr train now makes another run", warning=True)


def _diagnosis(artifact: Artifact, brief: bool) -> Iterator[Line]:
    """How many pairs the judge calls mismatched or translated wrongly, by which rule, and how often it is right."""
    facts = diagnosis.summary(artifact)
    judge = diagnosis.judge(facts)
    of_run = "run" in facts
    rare = f"; {facts['called_noisy_rare']} of them contain rare words" if facts["judge"] != "oracle" and of_run else ""
    pairs = f"{counted(facts['pairs'], diagnosis.judged(facts))} ({percent(facts['share_noisy'], 1)})"
    yield Line(f"{judge} calls {facts['called_noisy']} of {pairs} {'mismatched' if of_run else 'wrong'}{rare}")
    split = facts["split"]
    if not of_run:
        if facts.get("not_judged"):
            yield Line(f"not judged, as too few other captions have their words: {facts['not_judged']}")
        if facts["judge"] == "translation":
            yield Line("where the two texts disagree, either may be wrong")
        yield Line(
            "the verdict finds translations of something else, not single wrong words: read the first by place "
            f"(ccr diagnose {artifact.parent('translation').path} --worst 100)"
        )
    elif "expected" in split:
        wrong = f"under the fitted mixture {percent(split['wrong'], 1)} of the pairs are mismatched"
        if facts["called_noisy"]:
            precision, recall = (similarity(split["expected"][name]) for name in ("precision", "recall"))
            wrong += f", and the calls have precision {precision}, recall {recall}"
        yield Line(f"threshold: {threshold(split)}; {wrong}")
    if facts["detection"]:
        found = {name: probability(facts["detection"][name]) for name in ("auroc", "recall", "false_alarms", "f1")}
        yield Line(
            f"against the synthetic truth: AUROC {found['auroc']}, recall of mismatched pairs {found['recall']}, false "
            f"alarms {found['false_alarms']}, F1 {found['f1']}, calibration error "
            f"{probability(facts['calibration']['ece'])}"
        )
    if of_run and not facts["noise"] and split["by"] != "share" and facts["share_noisy"] > MANY:
        yield Line(
            f"doubting {percent(facts['share_noisy'], 0)} of the pairs without synthetic noise usually means that the "
            "model has not learned to match, not that so many pairs are wrong: before any repair check its SumR (ccr "
            "evaluate), train longer or with another --method, and look at the pairs (--sheet worst.html)",
            warning=True,
        )
    for pair in [] if brief else facts["most_suspicious"][:SUSPICIOUS]:
        figure = similarity(pair["p_clean"]) if of_run else pair["place"]
        texts = dict.fromkeys([pair["source_text"], pair["translation"]])  # one if nothing was translated
        yield Line(f"  {figure}  {'  ->  '.join(texts)}")


def threshold(split: Mapping[str, Any]) -> str:
    """The rule by which a diagnosis calls a pair noisy, from the `split` of its summary."""
    if split["by"] == "share":
        return "the requested share"
    near = {name: split[name] for name in ("sim_st", "sim_vt") if split.get(name) is not None}
    rules = [f"P(clean) < {split['p_clean']:g} of the {split['by']}"]
    return ", ".join(rules + [f"{name} < {probability(value)}" for name, value in near.items()])


def _index(artifact: Artifact, brief: bool) -> Iterator[Line]:
    """How close the index comes to exact search, and the time it saves."""
    about, spent = index.about(artifact), artifact.environment
    recall, kind = about["recall"], about["type"].lower()
    work = "cell" if "ivf" in kind else "candidate" if "hnsw" in kind else ""
    work = f", {counted(about['effort'], work)} a query" if work else ""
    deep = f", {about['depth']} x its results compared exactly" if about.get("depth", 1) > 1 else ""
    size = f" ({about['bytes'] / 1e6:,.3g} MB)" if about.get("bytes") else ""
    yield Line(
        f"  {artifact.counts['entries']:,} entries, {about['type']}{size}{work}{deep}: "
        f"recall@{recall['at']} {probability(recall['value'])} of exact search "
        f"({recall['queries']} queries: {about['measured_on']})"
    )
    slower = "; the index saves no time" if spent["query_ms"] >= spent["exact_query_ms"] else ""
    yield Line(f"  {spent['query_ms']:.2g} ms a query; exact search: {spent['exact_query_ms']:.2g} ms{slower}")


_SUMMARIES: dict[str, Callable[[Artifact, bool], Iterator[Line]]] = {
    "translation": _translation,
    "run": _training,
    "diagnosis": _diagnosis,
    "index": _index,
}


def is_plain(result: Result) -> bool:
    """Whether a result is of the model as it is: without fusion, and of no reading alone."""
    return bool(result["fusion"] == "none" and not result.get("reading"))


def headlines(results: Sequence[Result]) -> tuple[str, list[float | None]]:
    """The headline figure of an evaluation, which has one protocol, and its value in each result."""
    name = evaluation.headline(results[0])
    return name, [evaluation.mean_ap(result) if name == "mAP" else result[name] for result in results]


def _evaluation(artifact: Artifact, brief: bool, as_table: bool) -> Iterator[Line | Table]:
    """The headline figures with intervals; with `-v` signatures and breakdowns."""
    results, expected = evaluation.results(artifact), chance.levels(artifact)
    name, values = headlines(results)
    names = [_queries(result) for result in results]
    by_chance = ["" if level is None else f" (chance: {metric(level)})" for level in expected]
    if brief:
        shown = zip(names, values, by_chance, strict=True)
        yield Line(f"  {name}: {', '.join(f'{n} {metric(v)}{level}' for n, v, level in shown)}")
        yield from _warnings(results, expected)
        return
    for sentence in _comparisons(results, name, values):
        yield Line(sentence, style="bold")
    rows: dict[str, list[Row]] = {}
    for queries, result, value, level in zip(names, results, values, by_chance, strict=True):
        head = f"{queries}: {name} {_with_margin(result, name, None, value)}{level}"
        figures = {d: [_with_margin(result, m, d) for m in METRICS] for d in DIRECTIONS}
        if not as_table:
            texts = ([f"{m} {text}" for m, text in zip(METRICS, figures[d], strict=True)] for d in DIRECTIONS)
            sides = (" ".join([_direction(result, d), *of]) for d, of in zip(DIRECTIONS, texts, strict=True))
            yield Line("; ".join([head, *sides]))
        for d in DIRECTIONS:
            cells = [Cell(head if d == DIRECTIONS[0] else ""), Cell(_direction(result, d))]
            cells += [Cell(shown=figure) for figure in figures[d]]
            rows.setdefault(result.get("queries", HUMAN), []).append(Row(cells, block=head))
    for kind, of_kind in rows.items() if as_table else ():
        columns = [Column("queries", signature_words.queries(kind), text=True), Column("direction", "", text=True)]
        yield Table("results", artifact.name, [*columns, *(Column(name, name) for name in METRICS)], of_kind)
    if any(result.get("queries") == MT for result in results):
        yield Line(f"{signature_words.ABOUT_MT} For your own queries: --queries FILE (columns text and item).")
    for queries, result in zip(names, results, strict=True):
        yield Line(f"{queries}: {result['signature']}", style="dim", level=1)
        yield from _breakdown(result)
        yield from _failure_detection(result)
        if uncertainty := result.get("uncertainty"):
            means = ", ".join(f"{_direction(result, d)} {probability(uncertainty[d])}" for d in DIRECTIONS)
            yield Line(f"{queries}: mean uncertainty {means}")
        of = (result.get("ood") or {}).get("of", "left out")
        for what, key in ((f"out of distribution ({of})", "ood"), ("corrupted from intact", "told_apart")):
            for direction in DIRECTIONS:
                if scores := (result.get(key) or {}).get(direction):
                    yield Line(f"{queries}: {direction.upper()} {what}, AUROC: {_auroc(scores)}")
    if (intervals := results[0].get("intervals")) and any(evaluation.interval(result, name) for result in results):
        interval = f"{percent(intervals['level'])} bootstrap interval over {intervals['drawn']}"
        yield Line(f"± half the {interval}; for MedR, its ends", style="dim")
    yield from _warnings(results, expected)


def _warnings(results: Sequence[Result], expected: Sequence[float | None]) -> Iterator[Line]:
    """A warning for each result of a run's own task that is of few queries or close to chance, with what to do."""
    with_targets = any(r["role"] == "target" for r in results)
    for result, level in zip(results, expected, strict=True):
        if not is_plain(result) or result.get("corrupt") or (with_targets and result["role"] != "target"):
            continue
        if few := evaluation.few_queries(result):
            more = "" if result.get("queries") else "; --queries mt measures with machine translations"
            text = f"{_queries(result)}: {counted(few, 'query', 'queries')}, too few to measure anything"
            yield Line(f"{text}\n  try: more queries{more}", warning=True)
        elif level is not None and chance.is_close(result["SumR"], evaluation.interval(result, "SumR"), level):
            trained = (result.get("ensemble") or [result["run"]])[0]
            signed, queries = signature_of(result), (result.get("t2v") or {}).get("queries") or FEW_QUERIES
            items = read_galleries(signed.gallery)[2] if signed else FEW
            steps = [f"more test items than {items}"] if items < FEW else []
            steps += [f"more queries than {queries}"] if queries < FEW_QUERIES else []
            if result["method"] == PRETRAINED:
                todo = ", ".join([*steps, "a model that knows the language, or translated queries (--translate-test)"])
            elif result.get("zero_shot"):
                known = f"a run that was trained for {result['lang']} on similar pictures"
                todo = ", ".join([*steps, known, "or translated queries (--translate-test)"])
            else:
                steps.append("more epochs (ccr train --epochs)")
                steps += ["--method infonce"] if base_label(result["label"]) != BASELINE else []
                todo = f"{', '.join(steps)}, or check the pairs: ccr diagnose runs/{trained}"
            text = f"{_queries(result)}: SumR {metric(result['SumR'])} is close to chance ({metric(level)})"
            yield Line(f"{text}\n  try: {todo}", warning=True)


def _comparisons(results: Sequence[Result], name: str, values: Sequence[float | None]) -> Iterator[str]:
    """A sentence for each language on what corruption changes and whether uncertainty detects strange queries.

    About queries in the target language; without any, about all.
    """
    plain = [(r, v) for r, v in zip(results, values, strict=True) if is_plain(r)]
    intact = {(r["data"], r["lang"]): (r, v) for r, v in plain if not r.get("corrupt")}
    with_targets = any(r["role"] == "target" for r in results)
    for result, value in plain:
        if with_targets and result["role"] != "target":
            continue
        before, before_value = intact.get((result["data"], result["lang"]), ({}, None))
        if result.get("corrupt") and before_value is not None and value is not None:
            old, new = before.get("uncertainty") or {}, result.get("uncertainty") or {}
            known = [d for d in DIRECTIONS if old.get(d) is not None and new.get(d) is not None]
            changes = ", ".join(f"{d.upper()} {_change(old[d], new[d], 3)}" for d in known)
            doubt = f", mean uncertainty {changes}" if changes else ""
            yield f"{_queries(result)}: {name} {_change(before_value, value, 1)}{doubt}"
        if result.get("ood"):
            yield f"{_queries(result)}: {_out_of_distribution(result['ood'])}"


def _change(before: float, after: float, digits: int) -> str:
    old, new = decimal(before, digits), decimal(after, digits)
    return f"stays at {old}" if old == new else f"{'rises' if after > before else 'falls'} from {old} to {new}"


def _out_of_distribution(ood: dict[str, Any]) -> str:
    """How often uncertainty ranks a query without a match above one with a match."""
    own = any("auroc" in (ood.get(d) or {}) for d in DIRECTIONS)
    shares = []
    for direction in DIRECTIONS:
        scores = ood.get(direction) or {}
        score = scores if "auroc" in scores else scores.get("trivial", {}).get("top similarity", {})
        if score.get("auroc") is not None:
            shares.append(f"{percent(score['auroc'], 0)} ({direction.upper()})")
    score_name = "uncertainty" if own else "this method has no uncertainty; similarity"
    queries, cases = "a query without a match in the gallery from one with a match", " and ".join(shares) or "no"
    return f"{score_name} distinguishes {queries} in {cases} of cases (chance: 50%)"


def _breakdown(result: Result) -> Iterator[Line]:
    """Figures of short and long queries, and by the quality of their translation."""
    groups = []
    if length := (result.get("breakdown") or {}).get("length"):
        groups += [(f"{g['low']:g} to {g['high']:g} {length['unit']}", g) for g in length["groups"]]
    if translated := (result.get("breakdown") or {}).get("translation"):
        groups += [(f"translated, {name.replace('_', ' ')}", translated[name]) for name in ("flagged", "not_flagged")]
        groups += [(f"translated with chrF {ends(g['low'], g['high'], 0)}", g) for g in translated["groups"]]
    for name, group in groups:
        figures = " ".join(f"{m} {metric(group[m])}" for m in METRICS)
        share = percent(group["share"], 0)
        yield Line(f"  {name}: {group['queries']} queries ({share}); T2V {figures}", level=1)


def _failure_detection(result: Result) -> Iterator[Line]:
    """Whether the uncertainty of text queries detects wrong first results better than similarities do."""
    scores = (result.get("calibration") or {}).get("t2v") or {}
    if scores.get("trivial"):
        signature = signature_of(result)
        softmax = signature is not None and signature.unc == SOFTMAX and "auroc" in scores
        temperature = ", ".join(map(probability, result["temperature"])) if softmax else ""
        own = f"softmax at temperature {temperature}" if softmax else "uncertainty"
        yield Line(f"  T2V, first result wrong, AUROC: {_auroc(scores, own)}", level=1)


def _auroc(scores: Result, name: str = "uncertainty") -> str:
    """How well uncertainty separates two kinds of queries, compared with what similarities do."""
    own = "no uncertainty"
    if "auroc" in scores:
        interval = f" [{', '.join(map(probability, scores['interval']))}]" if scores.get("interval") else ""
        own = f"{name} {probability(scores['auroc'])}{interval}"
    baselines = []
    for baseline, score in scores["trivial"].items():
        baselines.append(f"{baseline} {probability(score['auroc'])}")
        if gap := score.get("gap") or (score.get("gaps") or {}).get("auroc"):
            verdict = "beaten" if gap[0] > 0 else "better" if gap[1] < 0 else "not beaten"
            baselines[-1] += f" ({verdict}: {ends(gap[0], gap[1], 3, sign=True)})"
    return f"{own}; compare {', '.join(baselines)}"


def _queries(result: Result) -> str:
    """The queries of a result, such as `multi30k de (source), fused 0.8raw`."""
    parts = [f"{result['data']} {result['lang']}{' (source)' if result['role'] == 'source' else ''}"]
    if result.get("ensemble"):
        parts.append(f"mean of {len(result['ensemble'])} runs")
    if result.get("queries"):
        parts.append(signature_words.queries(result["queries"]))
    if result["fusion"] != "none":
        parts.append(TRANSLATE_TEST if is_translate_test(result["fusion"]) else f"fused {result['fusion']}")
    if result.get("reading"):
        parts.append(f"{result['reading']} alone")
    signature = signature_of(result)
    if result.get("task") and signature:
        parts.append(f"sentences by {signature.pos}")
    if result.get("corrupt"):
        parts.append(_corruption(result["corrupt"], result["lang"]))
    return ", ".join(parts)


def _corruption(text: str, lang: str) -> str:
    """A corruption in words; of characters, in languages without spaces between words."""
    corruption = Corruption.parse(text)
    if corruption is None:
        return f"corrupted {text}"
    words = signature_words.WORDS["corruption"][corruption.kind].replace(
        "words", "words" if has_spaces(lang) else "characters"
    )
    return f"{100 * corruption.share:g}% of {words}"


def _direction(result: Result, direction: str) -> str:
    """The name of a direction; in text retrieval source sentences take the place of pictures."""
    return (direction.replace("v", "s") if result.get("task") else direction).upper()


def _with_margin(result: Result, name: str, direction: str | None, value: float | None = None) -> str:
    """A figure with half the width of its interval; MedR, whose interval is skewed, with both ends."""
    value = result[direction][name] if direction else value
    interval = evaluation.interval(result, name, direction)
    if name == "MedR" and interval and value is not None:
        return f"{metric(value)} [{', '.join(map(metric, interval))}]"
    return with_interval(value, interval)
