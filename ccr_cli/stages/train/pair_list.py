"""Training on a list of pairs (`ccr train --verdicts`): which pairs are kept, corrected or weighted.

Shape suffixes: N triplets.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ccr_cli.console import counted, say, warn
from ccr_cli.data.pairs_file import WHERE_TO_CORRECT, PairsFile, comparable
from ccr_cli.errors import UsageError
from ccr_cli.judges.base import Belief, FloatArray
from ccr_cli.stages.shared.triplets import Triplets

_TEXTS = ("source_text", "translation", "item_id")


@dataclass(frozen=True)
class PairSelection:
    """A list of pairs, and how training uses it."""

    table: PairsFile
    weighted: bool
    """Whether its probabilities weight the pairs; otherwise the pairs that it calls noisy are dropped."""

    def request(self) -> dict[str, Any]:
        """The list's entry in a run's request: the checksum of its content, its use, and how many pairs it corrects."""
        corrected = int((self.table.correction != "").sum())
        known: dict[str, Any] = {"sha256": self.table.sha256, "as": "weights" if self.weighted else "verdicts"}
        return known | ({"corrected": corrected} if corrected else {})

    def apply(self, triplets: Triplets) -> tuple[Triplets, Belief[FloatArray] | None]:
        """The triplets to train on, and the belief in each if the list has probabilities.

        Triplets that the list does not contain are dropped, unless it holds reviewers' verdicts, which drop only what
        they call noisy. A corrected triplet gets the corrected translation, counts as intact, and is kept with full
        belief, whatever its verdict. A triplet whose texts have changed since they were judged (another translation,
        another synthetic mismatch) is kept as it is, with full belief.

        Raises:
            UsageError: If nothing is left, or the texts of all pairs have changed.
        """
        frame = self.table.frame
        row_N = self._rows(triplets)
        named_N = row_N >= 0
        correction_N = np.where(named_N, self.table.correction[row_N], "")
        done_N = named_N & (correction_N == np.array(triplets.target, dtype=object))
        changed_N = named_N & ~self._same(triplets, row_N) & ~done_N
        if changed_N.any() and changed_N[named_N].all():
            raise UsageError(
                f"no pair of {self.table.path} has the texts that were judged",
                hint=f"name the translation and the --noise of the run that was diagnosed; {WHERE_TO_CORRECT}",
            )
        if changed_N.any():
            changed = counted(int(changed_N.sum()), "pair")
            example = triplets.slot_ids[int(changed_N.argmax())]
            warn(
                f"{changed}, such as {example!r}, with other texts than in {self.table.path}: kept with full belief; "
                f"{WHERE_TO_CORRECT}"
            )
        corrected_N = (correction_N != "") & ~changed_N
        trusted_N = changed_N | corrected_N | (~named_N & self.table.reviewed)
        if corrected_N.any():
            say(f"corrected by hand: {counted(int(corrected_N.sum()), 'pair')}")
            triplets = triplets.correct(corrected_N & ~done_N, correction_N)
        keep_N = named_N | self.table.reviewed
        if not self.weighted and "verdict" in frame:
            keep_N &= trusted_N | (frame["verdict"].to_numpy()[row_N] != "noisy")
        kept = np.flatnonzero(keep_N)
        if len(kept) < 2:
            raise UsageError(f"{self.table.path} leaves {len(kept)} of {len(triplets)} pairs to train on")
        say(f"training on {len(kept):,} of {counted(len(triplets), 'pair')}, those of {self.table.path.name}")
        if not self.table.reviewed and 2 * (inside := int(named_N.sum())) < len(triplets):
            warn(
                f"{self.table.path} has {inside:,} of {len(triplets):,} training pairs: the other "
                f"{len(triplets) - inside:,} are left out; the file of ccr diagnose RUN --export FILE has all of them"
            )
        chosen = triplets.select(kept)
        return chosen, self._belief(row_N[kept], trusted_N[kept]) if "p_clean" in frame else None

    def _rows(self, triplets: Triplets) -> npt.NDArray[np.int64]:
        """The list's row of each triplet, -1 without one.

        A list without languages applies to all languages, one without `alternative` to all translations into one.
        """
        own = {"slot_id": triplets.slot_ids, "lang": [triplets.langs[number] for number in triplets.lang_N]}
        own |= {} if triplets.alternative_N is None else {"alternative": list(triplets.alternative_N)}
        columns = [name for name in own if name in self.table.frame]
        row_of = {key: row for row, key in enumerate(zip(*(self.table.frame[c] for c in columns), strict=True))}
        keys = zip(*(own[name] for name in columns), strict=True)
        return np.array([row_of.get(key, -1) for key in keys], dtype=np.int64)

    def _same(self, triplets: Triplets, row_N: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether each triplet has the texts and the item of its row, as far as the list contains them."""
        items = [triplets.item_ids[item] for item in triplets.item_N.tolist()]
        same_N = np.ones(len(triplets), dtype=bool)
        for name, values in zip(_TEXTS, (triplets.source, triplets.target, items), strict=True):
            if name in self.table.frame:
                listed = np.array(list(map(comparable, self.table.frame[name])), dtype=object)
                same_N &= listed[row_N] == np.array(list(map(comparable, values)), dtype=object)
        return same_N

    def _belief(self, row_N: npt.NDArray[np.int64], trusted_N: npt.NDArray[np.bool_]) -> Belief[FloatArray]:
        """Probability of each side; a list with P(clean) alone doubts the translation only."""
        frame = self.table.frame
        vt_N = np.where(trusted_N, 1.0, frame["p_clean"].to_numpy(float)[row_N])

        def side(name: str, otherwise: FloatArray) -> FloatArray:
            return np.where(trusted_N, 1.0, frame[name].to_numpy(float)[row_N]) if name in frame else otherwise

        return Belief(side("p_vs", np.ones(len(row_N))), vt_N, side("p_st", vt_N))
