"""Captions of several sets are not measured as one without a word where a protocol is of one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import evaluation

CPU = ("--device", "cpu")


def imported(chain: Chain, path: Path, name: str, langs: str) -> Path:
    folder = toy.toy(name)
    folder.extra = f'[[protocols]]\nname = "of-one"\ncaption_set = "more"\nlangs = ["{langs}"]'
    human = [caption for caption in folder.captions if caption[2] == "es"]
    for caption in human:
        folder.captions.append([f"{caption[1]}-more", caption[1], "es", "1", f"{caption[4]}, otra vez", "more"])
        caption[5] = "human"
    made = toy.ok("data", "import", folder.write(path / name), workspace=chain.root).made
    toy.ok("extract", made.path, *toy.ENCODER, workspace=chain.root)
    return made.path


@pytest.mark.slow
def test_a_mixture_is_warned_about_unless_it_was_asked_for(finished: Chain, tmp_path: Path) -> None:
    made = imported(finished, tmp_path, "mixed", "es")

    def warned(*options: str) -> bool:
        run = finished.find("run", "uml").path
        done = toy.ok("evaluate", run, made, "--zero-shot", "--lang", "es", *options, *CPU, workspace=finished.root)
        spanish = [result for result in evaluation.results(done.made) if result["lang"] == "es"]
        assert {result["caption_set"] for result in spanish} == {"more" if options else "human+more"}
        assert "the en captions" not in done.err
        return "--protocol of-one, or --caption-set" in done.err

    assert warned()
    assert not warned("--caption-set", "more") and not warned("--protocol", "of-one")


@pytest.mark.slow
def test_a_protocol_in_another_language_says_nothing_of_this_one(finished: Chain, tmp_path: Path) -> None:
    made = imported(finished, tmp_path, "mixed", "en")
    done = toy.ok(
        "evaluate", finished.find("run", "uml").path, made, "--zero-shot", "--lang", "es", *CPU, workspace=finished.root
    )
    assert "of several sets" not in done.err
