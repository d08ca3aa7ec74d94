"""review: pairs of a diagnosis, the most suspicious first, for a person's verdicts."""

import getpass
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ccr_cli.artifacts import dataset, diagnosis
from ccr_cli.console import HIDDEN, plain
from ccr_cli.data import review_file
from ccr_cli.data.pairs_file import NOISY, NOT_JUDGED, UNDONE, Key, comparable, last_verdicts, one_line
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.metrics import review as figures
from ccr_cli.metrics.scripts import expected_scripts
from ccr_cli.stages.diagnose import suspects
from ccr_cli.stages.review.options import ReviewOptions
from ccr_cli.stages.shared.inputs import Inputs

FOLDER = "reviews"
"""Folder of the workspace that holds the logs."""
LONGEST_NAME = 60
_RIGHT_TO_LEFT = {"ARABIC", "HEBREW"}
_Latest = Mapping[Key, Mapping[str, int]]


class Review:
    """Pairs and their log, as one reviewer sees them."""

    def __init__(self, pairs: Sequence[dict[str, Any]], log: review_file.ReviewFile, reviewer: str, second: bool):
        self.pairs = {int(pair["place"]): pair for pair in pairs}
        """Pairs by place, in order."""
        self._keys = {place: log.key(pair) for place, pair in self.pairs.items()}
        self.log, self.reviewer, self.second = log, reviewer, second

    def judge(self, place: int, verdict: str, correction: str = "") -> None:
        """Writes a verdict; errors as for `ReviewFile.add`, and ValueError for an invalid or unchanged correction."""
        correction = one_line(correction)
        if correction and (verdict != NOISY or HIDDEN.search(correction)):
            raise ValueError("a correction has control characters, or a verdict other than noisy")
        if correction and correction == comparable(self.pairs[place]["translation"]):
            raise ValueError("the text is the translation as it was")
        self.log.add(self.pairs[place], self.reviewer, verdict, correction)

    def undo(self) -> int:
        """Undoes the reviewer's last verdict on these pairs and returns its place; ValueError if there is none."""
        latest = self._latest()
        own = {by[self.reviewer]: p for p, k in self._keys.items() if self.reviewer in (by := latest.get(k, {}))}
        if not own:
            raise ValueError("there is nothing to undo")
        place = own[max(own)]
        self.log.add(self.pairs[place], self.reviewer, UNDONE)
        return place

    def state(self, place: int | None = None) -> dict[str, Any]:
        """Returns the pair at a place, else the next one to judge, and the figures so far."""
        latest, verdicts = self._latest(), self.log.verdicts
        rows = {p: latest.get(key, {}) for p, key in self._keys.items()}
        judged = {p: {r: n for r, n in by.items() if verdicts[n].verdict != NOT_JUDGED} for p, by in rows.items()}
        others = {p: any(r != self.reviewer for r in by) for p, by in judged.items()}
        open_ = [p for p, by in rows.items() if self.reviewer not in by and others[p] == self.second]
        wrong = [verdicts[max(by.values())].verdict == NOISY for by in judged.values() if by]
        total = sum(others.values()) if self.second else len(self.pairs)
        place = place if place is not None else next(iter(open_), None)
        return {
            "reviewer": plain(self.reviewer),
            "pair": None if place is None else self._shown(place),
            "done": total - len(open_),
            "total": total,
            "judged": len(wrong),
            "wrong": sum(wrong),
            "share": figures.share(sum(wrong), len(wrong)),
            "recent": sum(wrong[-figures.WINDOW :]),
            "expected": figures.expected(wrong),
            "agreement": list(self._agreement(judged)),
        }

    def _latest(self) -> _Latest:
        return last_verdicts((row.pair, row.reviewer, row.verdict) for row in self.log.verdicts)

    def _agreement(self, judged: Mapping[int, Mapping[str, int]]) -> Iterator[dict[str, Any]]:
        """Yields the agreement of every two reviewers on the pairs that both have judged."""
        names = sorted({name for by in judged.values() for name in by})
        for one, other in itertools.combinations(names, 2):
            both = [(by[one], by[other]) for by in judged.values() if one in by and other in by]
            if both:
                texts = [[self.log.verdicts[n].verdict for n in side] for side in zip(*both, strict=True)]
                equal, kappa = figures.agreement(*texts)
                yield {"reviewers": [one, other], "pairs": len(both), "equal": equal, "kappa": kappa}

    def _shown(self, place: int) -> dict[str, Any]:
        """Returns a pair for the page, its texts split into parts that are marked as doubted or not."""
        pair = self.pairs[place]
        scripts = expected_scripts(pair["lang"]) or frozenset()
        return {
            "place": place,
            "id": plain(pair["slot_id"]),
            "source": _parts(pair["source_text"], pair["spans_source"]),
            "translation": _parts(pair["translation"], pair["spans_translation"]),
            "text": comparable(pair["translation"]),
            "back": plain(pair["back"] or ""),
            "witness": plain(pair.get("witness") or ""),
            "flags": pair["flags"],
            "lang": pair["lang"],
            "dir": "rtl" if scripts & _RIGHT_TO_LEFT else "ltr",
            "picture": pair["image"] is not None,
        }


def _parts(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[str, bool]]:
    """Splits a text at spans (in ascending order); each part comes with whether it is a span."""
    cuts = [0, *itertools.chain.from_iterable(spans), len(text)]
    return [(plain(text[a:b]), bool(n % 2)) for n, (a, b) in enumerate(itertools.pairwise(cuts)) if a < b]


@contextmanager
def open_review(inputs: Inputs, options: ReviewOptions) -> Iterator[Review]:
    """Opens the review of a diagnosis, exclusively for this process.

    Raises:
        ArtifactError: If there is no diagnosis, or it has no translations to review.
        UsageError: If an option is invalid; or the file is no log, judges only other pairs, or has none for `second`.
        LockedError: If another process has the file open.
    """
    reviewer = reviewer_name(options.reviewer)
    made = inputs.one("diagnosis", "", hint="ccr diagnose")
    everything = diagnosis.read_pairs(made).sort_values("place")
    langs = sorted(set(everything["lang"]))
    if options.lang not in (None, *langs):
        raise UsageError(f"{made.name} has no pairs in {options.lang}", hint=f"--lang {langs[0]}")
    chosen = everything if options.lang is None else everything[everything["lang"] == options.lang]
    last = int(chosen["place"].iloc[: options.worst].max())
    pairs, data = suspects.judged_pairs(inputs.workspace, made, last, str(options.parallel or ""))
    pairs = pairs[pairs["lang"].isin(set(chosen["lang"]) - {dataset.read(data).source_lang})]
    if pairs.empty:
        raise ArtifactError(f"{made.name} has no translations to review", hint="a diagnosis of a translation")
    path = options.to or inputs.workspace.root / FOLDER / f"{made.name}.csv"
    if options.to is None:
        path.parent.mkdir(exist_ok=True)
    with review_file.opened(path, review_file.columns_of(pairs)) as log:
        review = Review(suspects.most_suspicious(pairs, data, options.worst), log, reviewer, options.second)
        known = {row.pair for row in log.verdicts}
        if known and not any(log.key(pair) in known for pair in everything.to_dict("records")):
            raise UsageError(f"{path} has only verdicts on other pairs than {made.name}", hint="--to ANOTHER.csv")
        if options.second and not review.state()["total"]:
            raise UsageError(f"{path} has no verdicts of others to judge again", hint="leave --second out")
        yield review


def reviewer_name(name: str | None) -> str:
    """The reviewer's name, by default the user's; UsageError if it is empty or too long."""
    if name is None:
        try:
            return getpass.getuser()
        except (OSError, KeyError, ImportError):  # a container's user may have no name
            return "reviewer"
    text = comparable(name)
    if not text or len(text) > LONGEST_NAME:
        raise UsageError(f"--reviewer {name!r}: a name has 1 to {LONGEST_NAME} characters", hint="--reviewer ana")
    return text
