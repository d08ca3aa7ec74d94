"""Whether a run has seen the words of a text: what it was trained on, read only as far as the answer needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from ccr_cli.artifacts import base, dataset, translation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.tokens import HFTokenizer, NgramTokenizer, Tokenizer
from ccr_cli.stages.shared.load_run import translations_of

_CHUNK = 4096


class Vocabulary:
    """The words of some texts, as the n-gram tokenizer sees them.

    Hashing gives every n-gram a row of the table, also those that training never saw, and a row does not tell whether
    it was trained; so the texts are asked. A word is known if they have it, or at least half of its n-grams: `gatitos`
    where there is `gatos`.
    """

    def __init__(self, tokenizer: NgramTokenizer, texts: Iterable[str]) -> None:
        """Keep the texts; none is read before something is asked."""
        self._tokenizer, self._texts = tokenizer, iter(texts)
        self._pieces: set[str] = set()
        self._words = ""

    def knows(self, text: str) -> bool:
        """Says whether one word of a text is known."""
        words = [set(self._tokenizer.features(word)) for word in self._tokenizer.words(text)]
        while True:
            if any(features and 2 * self._seen(features) >= len(features) for features in words):
                return True
            if not self._read_more():
                return False

    def _seen(self, features: Iterable[str]) -> int:
        return sum(feature in self._words for feature in features)

    def _read_more(self) -> bool:
        chunk = list(islice(self._texts, _CHUNK))
        pieces = {piece for text in chunk for piece in text.split()} - self._pieces
        self._pieces |= pieces
        words = dict.fromkeys(word for piece in sorted(pieces) for word in self._tokenizer.words(piece))
        self._words += "".join(f"<{word}>" for word in words)
        return bool(chunk)


def known_to(workspace: Workspace, trained: base.Artifact, tokenizer: Tokenizer) -> Vocabulary | HFTokenizer | None:
    """What can say of a text whether a run's text encoder `knows` a word of it.

    Args:
        workspace: Where the run's parents are.
        trained: The run.
        tokenizer: Its tokenizer: one of a transformers model knows what is in its vocabulary.

    Returns:
        None where texts are features that were given, and there are no words.
    """
    if isinstance(tokenizer, NgramTokenizer):
        return Vocabulary(tokenizer, _trained_on(workspace, trained))
    return tokenizer if isinstance(tokenizer, HFTokenizer) else None


def _trained_on(workspace: Workspace, trained: base.Artifact) -> Iterator[str]:
    """The translations that a run was trained on, then the captions that these were made of."""
    for each in translations_of(workspace, trained)[0].values():
        table = translation.read(each)
        there = (table["direction"] == "forward") & (table["split"] == "train") & (table["status"] == "ok")
        yield from table["text"][there]
    data = dataset.read(workspace.parent(trained, "dataset"))
    items = set(data.items["item_id"][data.items["split"] == "train"])
    captions = data.captions
    yield from captions["text"][(captions["lang"] == data.source_lang) & captions["item_id"].isin(items)]
