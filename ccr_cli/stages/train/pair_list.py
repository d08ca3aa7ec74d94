"""Training on a list of pairs: which of them, and how far each is believed (`ccr train --pairs`).

Shape suffixes: N triplets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.console import say, warn
from ccr_cli.data.pairs_file import Listed
from ccr_cli.data.splits import items_of
from ccr_cli.errors import UsageError
from ccr_cli.judges.base import Belief, FloatArray
from ccr_cli.stages.shared.triplets import Triplets

_TEXTS = ("source_text", "translation", "item_id")


@dataclass(frozen=True)
class Chosen:
    """A list of pairs, and what it is to decide."""

    listed: Listed
    weighted: bool
    """Whether its probabilities weight the pairs; else those that it calls noisy are left out."""

    def request(self) -> dict[str, str]:
        """What a run's request says of it: its content, wherever it lies."""
        return {"sha256": self.listed.sha256, "as": "weights" if self.weighted else "verdicts"}

    def check(self, data: Dataset, langs: Sequence[str]) -> None:
        """Refuses a list that is not of what shall be trained on.

        Raises:
            UsageError: If it lacks a column, names what is no training caption, or is of other languages.
        """
        self.listed.require("slot_id", *(["p_clean"] if self.weighted else []))
        train = set(items_of(data.items, "train")["item_id"])
        captions = data.captions[(data.captions["lang"] == data.source_lang) & data.captions["item_id"].isin(train)]
        self.listed.refuse_unknown("slot_id", set(captions["caption_id"]), data.name)
        missing = sorted(set(langs) - self._langs) if self._langs else []
        if missing:
            raise UsageError(
                f"{self.listed.path} is of {' and '.join(sorted(self._langs))}, and has no pair in {missing[0]}"
            )

    def apply(self, triplets: Triplets) -> tuple[Triplets, Belief[FloatArray] | None]:
        """The triplets to train on, and what is believed of each where the list weights them.

        A triplet that the list does not name is left out. One that is not what was judged (another translation by now,
        or another synthetic mismatch) counts as if it had never been doubted.

        Raises:
            UsageError: If nothing is left, or none of the pairs is what was judged.
        """
        frame = self.listed.frame
        row_N, named_N = self._rows(triplets)
        changed_N = named_N & ~self._same(triplets, row_N)
        if changed_N.any() and changed_N[named_N].all():
            raise UsageError(
                f"{self.listed.path} is of other pairs: none has the texts that were judged",
                hint="name the translation and the --noise of the run that was diagnosed",
            )
        if changed_N.any():
            warn(f"{changed_N.sum()} pairs are not those that were judged: they are trained on as if never doubted")
        keep_N = named_N
        if not self.weighted and "verdict" in frame:
            keep_N = named_N & (changed_N | (frame["verdict"].to_numpy()[row_N] != "noisy"))
        kept = np.flatnonzero(keep_N)
        if len(kept) < 2:
            raise UsageError(f"{self.listed.path} leaves {len(kept)} of {len(triplets)} pairs to train on")
        say(f"{len(kept)} of {len(triplets)} pairs are trained on, by {self.listed.path.name}")
        chosen = triplets.select(kept)
        return chosen, self._belief(row_N[kept], changed_N[kept]) if self.weighted else None

    @cached_property
    def _langs(self) -> set[str]:
        return set(self.listed.frame["lang"]) if "lang" in self.listed.frame else set()

    def _rows(self, triplets: Triplets) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The row of the list that names each triplet, and whether one does; without languages it names them in all."""
        frame = self.listed.frame
        langs = frame["lang"] if self._langs else [""] * len(frame)
        row_of = {key: row for row, key in enumerate(zip(frame["slot_id"], langs, strict=True))}
        said = [triplets.langs[number] if self._langs else "" for number in triplets.lang_N]
        row_N = np.array([row_of.get(key, -1) for key in zip(triplets.slot_ids, said, strict=True)], dtype=np.int64)
        return row_N, row_N >= 0

    def _same(self, triplets: Triplets, row_N: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether each triplet has the texts and the item that its row has, where the list says them."""
        items = [triplets.item_ids[item] for item in triplets.item_N.tolist()]
        same_N = np.ones(len(triplets), dtype=bool)
        for name, own in zip(_TEXTS, (triplets.source, triplets.target, items), strict=True):
            if name in self.listed.frame:
                same_N &= self.listed.frame[name].to_numpy()[row_N] == np.array(own, dtype=object)
        return same_N

    def _belief(self, row_N: npt.NDArray[np.int64], changed_N: npt.NDArray[np.bool_]) -> Belief[FloatArray]:
        """P of each side; a list that has P(clean) alone doubts the translation and nothing else."""
        frame = self.listed.frame
        vt_N = np.where(changed_N, 1.0, frame["p_clean"].to_numpy(float)[row_N])

        def side(name: str, otherwise: FloatArray) -> FloatArray:
            return np.where(changed_N, 1.0, frame[name].to_numpy(float)[row_N]) if name in frame else otherwise

        return Belief(side("p_vs", np.ones(len(row_N))), vt_N, side("p_st", vt_N))
