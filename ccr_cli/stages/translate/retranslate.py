"""Some captions translated again, the others taken over from a translation that is there (`ccr translate --only`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ccr_cli.artifacts import base, translation
from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.console import say, warn
from ccr_cli.data import pairs_file
from ccr_cli.data.splits import items_of
from ccr_cli.errors import UsageError
from ccr_cli.stages.shared.inputs import Inputs, made_from


@dataclass(frozen=True)
class Mending:
    """Which captions are translated again, and what has the others."""

    first: base.Artifact
    """The translation that is mended."""
    captions: frozenset[str]
    sha256: str
    """Of the list that names them."""

    @property
    def asked(self) -> dict[str, Any]:
        """What the first one was asked for and this one has too; and which captions are made anew."""
        of = {key: self.first.request[key] for key in ("split", "back", "queries")}
        return of | {"only": {"sha256": self.sha256, "of": self.first.request}}

    def refuse_same(self, request: Mapping[str, Any]) -> None:
        """Refuses to ask again who was asked before.

        Args:
            request: Of the new translation.

        Raises:
            UsageError: If engine and options are those of the first one.
        """

        def who(of: Mapping[str, Any]) -> dict[str, Any]:
            return {key: value for key, value in of.items() if key == "engine" or key.startswith("set.")}

        if who(request) == who(self.first.request):
            raise UsageError(
                f"{self.first.name} is by the same engine: the captions would come out the same",
                hint="another --engine, or another model or table of it with --set",
            )

    def ids(self, lang: str, home: str) -> set[str]:
        """The names of all that a translation has of these captions, whatever the number of rounds."""
        rounds = int(self.first.request.get("rounds", 1))
        suffixes = [f"@{lang}@{home}" * number + f"@{lang}" for number in range(rounds)]
        return {
            f"{caption}{suffix}{end}" for caption in self.captions for suffix in suffixes for end in ("", f"@{home}")
        }

    def merge(self, made: pd.DataFrame, lang: str, home: str) -> pd.DataFrame:
        """The whole translation, in the order of the first one.

        Args:
            made: What was translated anew, as a translation artifact has it.
            lang: Its language.
            home: The source language.
        """
        before = translation.read(self.first)
        kept = before[~before["caption_id"].isin(self.ids(lang, home))]
        kept = kept.assign(status=kept["status"].where(kept["status"] == "ok", f"not translated in {self.first.name}"))
        place_of = {caption: place for place, caption in enumerate(before["caption_id"])}
        frame = pd.concat([kept, made[translation.CAPTIONS.names]], ignore_index=True)
        places = [place_of.get(caption, len(place_of)) for caption in frame["caption_id"]]
        ordered: pd.DataFrame = frame.iloc[np.argsort(places, kind="stable")].reset_index(drop=True)
        self._compare(before, ordered)
        return ordered

    def _compare(self, before: pd.DataFrame, after: pd.DataFrame) -> None:
        """Says how many captions have another translation now."""

        def texts(frame: pd.DataFrame) -> set[tuple[str, str]]:
            rows = frame[(frame["direction"] == "forward") & (frame["status"] == "ok")]
            rows = rows[rows["source_caption_id"].isin(self.captions)]
            return set(zip(rows["source_caption_id"], rows["text"], strict=True))

        different = len(texts(after) - texts(before))
        if different:
            say(f"{different} of {len(self.captions)} captions have another translation now")
        else:
            warn(f"none of {len(self.captions)} captions has another translation now: ask another engine, or model")


def find(inputs: Inputs, data: Dataset, lang: str, only: Path) -> Mending:
    """Reads which captions are named, and finds the translation to mend.

    Of a list with verdicts those captions are meant that it calls noisy, else all. One whose translation is not that
    which was judged is passed over: it was translated again since, or was switched by synthetic noise.

    Args:
        inputs: What was given, and where to look.
        data: The data set.
        lang: Target language.
        only: The list.

    Raises:
        ArtifactError: If there is no such translation, or several are.
        UsageError: If the list names what is no training caption, or nothing that could be translated again.
    """
    listed = pairs_file.read(only)
    listed.require("source_caption_id")
    train = set(items_of(data.items, "train")["item_id"])
    captions = data.captions[(data.captions["lang"] == data.source_lang) & data.captions["item_id"].isin(train)]
    listed.refuse_unknown("source_caption_id", set(captions["caption_id"]), data.name)

    def fits(artifact: base.Artifact) -> bool:
        whole = "only" not in artifact.request or artifact in inputs.given
        return whole and made_from(data.artifact)(artifact) and translation.language(artifact) == lang

    first = inputs.one("translation", f"of {data.name} into {lang}", fits, hint=f"ccr translate --lang {lang}")
    rows = listed.frame
    rows = rows[rows["lang"] == lang] if "lang" in rows else rows
    rows = rows[rows["verdict"] == "noisy"] if "verdict" in rows else rows
    if rows.empty:
        raise UsageError(f"{only} calls no pair in {lang} noisy: there is nothing to translate again")
    named = set(rows["source_caption_id"])
    if "translation" in rows:
        frame = translation.read(first)
        forward = frame[frame["direction"] == "forward"]
        text_of = dict(zip(forward["source_caption_id"], forward["text"], strict=True))
        judged = zip(rows["source_caption_id"], rows["translation"], strict=True)
        named = {caption for caption, text in judged if text_of.get(caption) == text}
        if not named:
            raise UsageError(
                f"{only} is of other translations than {first.name}: none that it calls noisy is there",
                hint="name the translation that the run was trained on",
            )
        if passed := rows["source_caption_id"].nunique() - len(named):
            warn(f"{passed} captions have another translation than the one that was judged, and are passed over")
    return Mending(first, frozenset(named), listed.sha256)


def languages(inputs: Inputs, only: Path | None) -> list[str]:
    """The languages of the translations that were given to be mended."""
    return sorted({translation.language(a) for a in inputs.given if a.kind == "translation"}) if only else []
