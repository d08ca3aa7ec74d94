"""The steps of a translation, sentence by sentence: what is to be translated, by whom, and what came of it.

A step takes sentences from one language into another. It begins with the sentences of the data set, each once, cut in
groups of a fixed size in the data set's order; a step that follows on another takes what came of each group. So a group
does not depend on how many workers there are, nor on how often they were stopped: engines form their batches inside it,
and get all of it each time, with what is known already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccr_cli.console import progress, say
from ccr_cli.stages.translate.sentence_cache import TranslationCache, normal
from ccr_cli.translators.base import Translation, Translator, way_back

GROUP_SENTENCES = 4096

_HALF = re.compile("[\ud800-\udfff]")
"""JSON can say it, and no file can hold it."""

Groups = list[list[str]]
Results = dict[str, Translation]
"""By sentence; one that failed has no text and an error."""


@dataclass(frozen=True)
class Step:
    """One way through a pair of languages."""

    direction: str
    """What the results are called: forward, back, query, or a round before the last."""
    source: str
    target: str


@dataclass
class Engines:
    """Makes the engine of each step; holds no more than one, since models are large."""

    module: Any
    config: Any
    home: str
    """The data set's source language: into it lead the ways back."""
    dataset_dir: Path
    device: str
    cache: Path
    """Where results are kept."""
    silent: bool = False
    """Says nothing of progress: look-ups beforehand."""
    _pair: tuple[str, str] | None = None
    _engine: Any = None

    def of(self, step: Step) -> Translator:
        """The engine of a step.

        Raises:
            UnavailableError: If the engine, its model or the pair is not to be had.
        """
        pair = (step.source, step.target)
        if self._pair != pair:
            self._pair = self._engine = None  # before the next one takes its place in memory
            where = {"dataset_dir": self.dataset_dir, "device": self.device}
            self._engine = self.module.Translator(*pair, self.config_of(step), **where)
            self._pair = pair
        engine: Translator = self._engine
        return engine

    def config_of(self, step: Step) -> Any:
        """The engine's options for a step."""
        return way_back(self.config) if step.target == self.home else self.config

    def kept(self, step: Step) -> TranslationCache | None:
        """Where the results of a step are kept; None for an engine that need not keep any."""
        identity = self.of(step).identity()
        return TranslationCache(self.cache, identity, step.source, step.target) if identity else None


def begin(texts: Iterable[str]) -> Groups:
    """Cuts sentences into groups: each once, in the order in which they first come."""
    unique = list(dict.fromkeys(texts))
    return [unique[first : first + GROUP_SENTENCES] for first in range(0, len(unique), GROUP_SENTENCES)]


def follow(groups: Groups, results: Results) -> Groups:
    """What came of each group; sentences on which the step failed are gone, as are those that are not yet known."""
    return [
        list(dict.fromkeys(found.text for text in group if (found := results.get(text)) and found.text))
        for group in groups
    ]


def run(engines: Engines, step: Step, groups: Groups, seed: Results) -> Results:
    """Takes a step, and keeps every result as it comes.

    Args:
        engines: Who translates.
        step: From where to where.
        groups: The sentences.
        seed: Results that are known apart from what was kept.

    Returns:
        The result of each sentence.
    """
    engine, kept = engines.of(step), engines.kept(step)
    if engines.silent:
        return {text: result for group in groups for text, result in _ask(engine, group, {})}
    results = known(groups, kept, seed)
    total = len({text for group in groups for text in group})
    label = f"translate {step.source} -> {step.target} ({step.direction})"
    if results:
        say(f"{label}: {len(results)} of {total} captions are known already")
    try:
        with progress(total - len(results), label, "captions") as advance:
            for group in groups:
                for text, result in _ask(engine, group, results):
                    results[text] = result
                    if kept is not None and result.text:
                        kept.write(text, result)
                    advance()
    finally:
        if kept is not None:
            kept.close()
    return results


def known(groups: Groups, kept: TranslationCache | None, seed: Results) -> Results:
    """What need not be asked of an engine."""
    texts = [text for group in groups for text in group]
    results = {text: seed[text] for text in texts if text in seed}
    if kept is not None:
        results = kept.read(text for text in texts if text not in results) | results
    return results


def _ask(engine: Translator, group: list[str], results: Mapping[str, Translation]) -> Iterator[tuple[str, Translation]]:
    """Asks for what is not known of a group."""
    have = {position for position, text in enumerate(group) if text in results}
    if len(have) == len(group):
        return
    for position, result in engine.translate(group, have):
        text = normal(result.text.strip()) if result.text else ""
        if not text:
            yield group[position], Translation(None, error=result.error or "empty translation")
        elif _HALF.search(text):
            yield group[position], Translation(None, error="half of a character of UTF-16: no text")
        else:
            yield group[position], Translation(text, result.score)
