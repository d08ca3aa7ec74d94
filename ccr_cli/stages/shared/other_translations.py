"""Other translations of the same captions: witnesses for and against the one that is judged.

Another engine, or the same one at another date, does not make all the same mistakes; nor does back-translation.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pandas as pd

from ccr_cli.artifacts import base, translation
from ccr_cli.console import say, warn
from ccr_cli.data.parallel_text import read_parallel
from ccr_cli.errors import UsageError
from ccr_cli.metrics.lexical import MOST_PAIRS, Lexicon, words
from ccr_cli.stages.shared.inputs import Inputs, latest, made_from
from ccr_cli.stages.shared.references import find
from ccr_cli.stages.shared.triplets import Triplets, texts_by_source

NONE = "none"
SAME = 0.9
"""Fraction of equal texts from which two translations count as the same, such as one with a few corrections."""


def find_others(
    inputs: Inputs, data: base.Artifact, judged: Sequence[base.Artifact], names: Sequence[str] | None
) -> list[base.Artifact]:
    """Finds other translations of a data set into the languages of the judged ones, and prints their names.

    Args:
        inputs: Where to look; found translations are not noted as read, or a later stage in a pipe would train on them.
        data: The data set.
        judged: The translations that are judged.
        names: Names of translations; `none` for no translation, None for all in the workspace.

    Returns:
        The translations in the order of their ids.

    Raises:
        ArtifactError: If a name means no artifact.
        UsageError: If a named artifact is not another translation of these captions.
    """
    langs, own = {translation.language(a) for a in judged}, {a.id for a in judged}

    def fits(artifact: base.Artifact) -> bool:
        return made_from(data)(artifact) and translation.language(artifact) in langs and artifact.id not in own

    if names and list(names) != [NONE]:
        others = [base.load(find(inputs.workspace, name, ("translation",))) for name in names]
        for other in others:
            if other.kind != "translation" or not fits(other):
                problem = f"{other.name} is no other translation of {data.name} into {' or '.join(sorted(langs))}"
                raise UsageError(problem, hint=f"--witness NAME, or --witness {NONE}")
            if any(_same(other, own) for own in judged):
                warn(f"the witness {other.name} has nearly the same texts: where it agrees, it bears nothing out")
    else:
        others = [] if names else latest([a for a in inputs.workspace.artifacts("translation") if fits(a)])
        same = [a for a in others if any(_same(a, b) for b in judged)]
        others = [a for a in others if a not in same]
        if same and not others:
            names = ", ".join(inputs.workspace.relative(a.path) for a in same)
            say(f"no witness: {names} {'has' if len(same) == 1 else 'have'} nearly the same texts")
    others = sorted({other.id: other for other in others}.values(), key=lambda other: other.id)
    if others:
        say(f"witnesses: {', '.join(inputs.workspace.relative(other.path) for other in others)}")
    return others


def _same(one: base.Artifact, other: base.Artifact) -> bool:
    """Whether two translations have nearly the same texts."""
    a, b = (pd.Series(texts_by_source(translation.read(artifact))) for artifact in (one, other))
    return translation.language(one) == translation.language(other) and bool(
        (a.reindex(b.index) == b).mean() >= SAME if len(b) else False
    )


def with_others(
    triplets: Triplets, source_ids: Sequence[str], langs: Sequence[str], others: Sequence[base.Artifact]
) -> Triplets:
    """Adds other translations of each triplet's source caption (N) to its references."""
    more = texts_of(source_ids, langs, others)
    return replace(triplets, references=[a + b for a, b in zip(triplets.references, more, strict=True)])


def texts_of(source_ids: Iterable[str], langs: Iterable[str], others: Sequence[base.Artifact]) -> list[tuple[str, ...]]:
    """The texts of other translations of source captions (N), each in its language (N)."""
    known = [(translation.language(other), texts_by_source(translation.read(other))) for other in others]
    pairs = zip(source_ids, langs, strict=True)
    return [tuple(texts[i] for of, texts in known if of == lang and i in texts) for i, lang in pairs]


def witness_lexicon(
    source: Sequence[str], target: Sequence[str], back: Sequence[str | None], others: Sequence[tuple[str, ...]]
) -> Lexicon | None:
    """Learns a lexicon from other translations of captions (N) and from back-translations; None without any.

    They share one lexicon: a synonym that one of them uses is known, and no engine counts twice.
    """
    pairs = [(text, other) for text, of_text in zip(source, others, strict=True) for other in of_text]
    pairs += [(way_back, text) for way_back, text in zip(back, target, strict=True) if way_back is not None]
    return learned(*map(tuple, zip(*pairs, strict=True))) if pairs else None


def parallel_lexicon(path: Path, source: Sequence[str], target: Sequence[str]) -> Lexicon:
    """Learns a lexicon from parallel text (either language first), without the judged pairs of texts (N).

    Raises:
        UsageError: If the file is no parallel text, or has no word of the captions and their translations.
    """
    return _parallel_lexicon(path, base.known_sha256(path), tuple(source), tuple(target))


@lru_cache(maxsize=2)
def _parallel_lexicon(path: Path, sha256: str, source: tuple[str, ...], target: tuple[str, ...]) -> Lexicon:
    pairs = read_parallel(path)
    pairs = pairs[:: -(-len(pairs) // MOST_PAIRS)]
    judged = {(tuple(words(one)), tuple(words(two))) for one, two in zip(source, target, strict=True)}
    known = {word for caption, _ in judged for word in caption}
    left, right = (sum(word in known for pair in pairs for word in words(pair[side])) for side in (0, 1))
    pairs = pairs if left >= right else [(two, one) for one, two in pairs]
    others = [pair for pair in pairs if (tuple(words(pair[0])), tuple(words(pair[1]))) not in judged]
    lexicon = learned(*map(tuple, zip(*others, strict=True))) if others else None
    if lexicon is None or not all(shares := lexicon.known(source, target)):
        problem = f"{path} has no sentences in both languages besides the judged translations"
        raise UsageError(problem, hint="--set parallel=FILE needs other translations, by people")
    say(
        f"parallel text: {len(others):,} sentences, {len(pairs) - len(others):,} that are judged left out; "
        f"it has {shares[0]:.0%} of the words of the captions and {shares[1]:.0%} of those of the translations"
    )
    return lexicon


@lru_cache(maxsize=2)
def learned(source: tuple[str, ...], target: tuple[str, ...]) -> Lexicon:
    """Learns a lexicon; the last two are kept, because a command reads one several times."""
    return Lexicon(source, target)
