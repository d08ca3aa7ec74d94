"""Whether a run was trained on the words of a query; training texts are read only as far as needed."""

from collections.abc import Iterable, Iterator
from itertools import islice

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.tokens import HFTokenizer, NgramTokenizer, Tokenizer
from ccr_cli.stages.shared.load_run import translated_captions
from ccr_cli.stages.shared.splits import Split

_CHUNK = 4096


class Vocabulary:
    """The words of some texts, as the n-gram tokenizer sees them.

    Hashing gives every n-gram a row of the table, trained or not, so only the texts show what was trained. A word is
    known if they contain it, or at least half of its n-grams: `gatitos` if they contain `gatos`.
    """

    def __init__(self, tokenizer: NgramTokenizer, texts: Iterable[str]) -> None:
        """Stores the texts; none is read before the first query."""
        self._tokenizer, self._texts = tokenizer, iter(texts)
        self._pieces: set[str] = set()
        self._words = ""

    def knows(self, text: str) -> bool:
        """Whether at least one word of a text is known."""
        words = [set(self._tokenizer.features(word)) for word in self._tokenizer.words(text)]
        while True:
            if any(each and 2 * sum(feature in self._words for feature in each) >= len(each) for each in words):
                return True
            if not self._read_more():
                return False

    def _read_more(self) -> bool:
        chunk = list(islice(self._texts, _CHUNK))
        pieces = {piece for text in chunk for piece in text.split()} - self._pieces
        self._pieces |= pieces
        words = dict.fromkeys(word for piece in sorted(pieces) for word in self._tokenizer.words(piece))
        self._words += "".join(f"<{word}>" for word in words)
        return bool(chunk)


def vocabulary_of(workspace: Workspace, run: base.Artifact, tokenizer: Tokenizer) -> Vocabulary | HFTokenizer | None:
    """Returns the object whose `knows` tells if a run was trained on a query's words; None if it reads text features.

    The tokenizer of a transformers model knows the words of its vocabulary.
    """
    if isinstance(tokenizer, NgramTokenizer):
        return Vocabulary(tokenizer, _trained_on(workspace, run))
    return tokenizer if isinstance(tokenizer, HFTokenizer) else None


def _trained_on(workspace: Workspace, trained: base.Artifact) -> Iterator[str]:
    """The translations that a run was trained on, then their source captions."""
    for table in translated_captions(workspace, trained):
        yield from table.loc[table["split"] == "train", "text"]
    data = dataset.read(workspace.parent(trained, "dataset"))
    yield from Split.of(data, "train").captions_in(data.source_lang)["text"]
