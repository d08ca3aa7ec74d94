"""The headline speaks of methods: no repaired run is one, and other encoders are said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fakes as fake
import pandas as pd
import pytest
from fakes import variant_labels

from ccr_cli.artifacts.label import Label
from ccr_cli.report.tables import comparable, diagnoses
from ccr_cli.report.words.findings import Findings, findings

NONE = diagnoses.diagnoses_frame([])


def view(
    *runs: tuple[str, float, float],
    encoders: dict[str, str] | None = None,
    models: dict[str, int] | None = None,
    mt: str = "apertium",
) -> comparable.View:
    """A view of runs: label, noise, SumR; two seeds each, the second with one SumR more."""
    rows, facts = [], {}
    for label, noise, total in runs:
        for seed in (0, 1):
            name = f"{label} {noise} {seed}"
            facts[name] = comparable.RunFacts(
                name,
                label,
                "es",
                encoder=(encoders or {}).get(label, "e + ngram"),
                models=(models or {}).get(label, 0),
            )
            told: dict[str, Any] = {
                "run": name,
                "data": "toy-emoji",
                "split": "test",
                "lang": "es",
                "caption_set": "names",
            }
            told |= {"role": "target", "fusion": "none", "method": "m", "label": label, "noise": noise, "seed": seed}
            signature = fake.signature("es", noise, seed, "none", mt=mt)
            rows.append((name, told | {"SumR": total + seed, "signature": signature, "zero_shot": False}))
    (found,) = comparable.views(comparable.results_frame(rows, facts))
    return found


def say(
    *runs: tuple[str, float, float], encoders: dict[str, str] | None = None, models: dict[str, int] | None = None
) -> Findings:
    return findings(view(*runs, encoders=encoders, models=models), NONE)


REPAIRED = "infonce (pairs 1a2b3c)"


def test_a_repaired_run_is_no_method() -> None:
    said = say(("infonce", 0.4, 100), ("uml", 0.4, 120), ("tcl", 0.4, 110), (REPAIRED, 0.4, 150))
    assert said.method == "uml" and "uml (the best of 2 noise-robust methods) reaches SumR 120.5" in said.headline
    assert REPAIRED not in said.headline
    assert f"Repaired, {REPAIRED} reaches 150.5 ± 0.7 (2 seeds), 50.0 ± 0.0 above infonce." in said.more
    mended = "uml (paper, weights 1a2b3c) [beta=0.5, mended=1a2b3c]"
    again = say(("infonce", 0.4, 100), ("uml (paper) [beta=0.5]", 0.4, 120), (mended, 0.4, 118))
    assert again.method == "uml (paper) [beta=0.5]" and "best of" not in again.headline
    assert again.headline.endswith(
        f"Repaired, {mended} reaches 118.5 ± 0.7 (2 seeds), 2.0 ± 0.0 below uml (paper) [beta=0.5]."
    )


def test_the_ratio_of_the_headline_is_one_at_which_a_method_was_run() -> None:
    runs = [("infonce", 0.4, 100.0), ("infonce", 0.2, 130.0), ("uml", 0.2, 140.0), (REPAIRED, 0.4, 150.0)]
    said = say(*runs)
    assert said.noise == 0.2 and said.method == "uml" and "10.0 ± 0.0 above infonce" in said.headline


def test_where_all_were_repaired_the_best_is_said() -> None:
    assert say((REPAIRED, 0.4, 150)).method == REPAIRED


def test_variants_of_one_method_are_no_methods() -> None:
    said = say(("infonce", 0.4, 100), ("uml", 0.4, 120), ("uml [beta=0.9]", 0.4, 110))
    assert "uml (the best of 2 variants) reaches" in said.headline


@pytest.mark.parametrize(
    ("encoders", "wanted"),
    [
        ({}, "above infonce, which ignores noise."),
        ({"uml": ""}, "above infonce, which ignores noise."),
        ({"uml": "e + LaBSE"}, "ignores noise and has other encoders (e + ngram, not e + LaBSE)."),
        ({"tcl": "e + LaBSE"}, "(the best of 2 noise-robust methods, not all with the same encoders) reaches"),
    ],
)
def test_other_encoders_are_said(encoders: dict[str, str], wanted: str) -> None:
    said = say(("infonce", 0.4, 100), ("uml", 0.4, 120), ("tcl", 0.4, 110), encoders=encoders)
    assert wanted in said.headline, said.headline
    others = "has other encoders" in wanted
    assert ("other encoders" in said.headline) == others == ("other encoders" in said.tiles[1].detail)


@pytest.mark.parametrize(
    ("models", "wanted"),
    [
        ({}, "above infonce, which ignores noise."),
        ({"trine": 2}, "above infonce, which ignores noise."),
        ({"infonce": 1, "trine": 1}, "above infonce, which ignores noise."),
        ({"infonce": 1, "trine": 2}, "above infonce, which ignores noise and has 1 model, not 2."),
    ],
)
def test_another_number_of_models_is_said(models: dict[str, int], wanted: str) -> None:
    assert wanted in say(("infonce", 0.4, 100), ("trine", 0.4, 120), models=models).headline


def test_other_encoders_and_models_are_one_sentence() -> None:
    runs, encoders = [("infonce", 0.4, 100.0), ("trine", 0.4, 120.0)], {"trine": "e + LaBSE"}
    said = say(*runs, encoders=encoders, models={"infonce": 1, "trine": 2})
    assert "ignores noise and has other encoders (e + ngram, not e + LaBSE) and 1 model, not 2." in said.headline


def test_a_view_of_repaired_runs_alone_is_not_the_main_one() -> None:
    """Captions translated again have another signature; its view has more runs, and comes first by name."""

    def main(labels: Sequence[tuple[str, str]]) -> str:
        frames = [view((label, 0.4, 120.0), mt=mt).frame for label, mt in labels]
        return str(comparable.views(pd.concat(frames, ignore_index=True))[0].frame["label"].iloc[0])

    assert main([("uml", "b"), ("uml [mended=1a2b3c]", "a"), ("tcl [mended=1a2b3c]", "a")]) == "uml"
    assert main([("uml", "b"), ("tcl", "a"), ("trine", "a")]) in ("tcl", "trine"), "as it is otherwise"


def test_runs_on_mended_translations_are_named_by_the_list() -> None:
    config = {"data": "d", "lang": "es", "options": {"beta": 0.5}}
    runs = {"plain": ("uml", {**config, "mended": ""}), "mended": ("uml", {**config, "mended": "1a2b3c"})}
    assert variant_labels(runs) == {"plain": "uml", "mended": "uml [mended=1a2b3c]"}
    labels = [
        "uml (1a2b3c)",
        "uml [beta=0.5]",
        "uml (pairs 1a2b3c)",
        "uml (weights 1a2b3c)",
        "uml [mended=1a2b3c+4d5e6f]",
    ]
    assert [Label.parse(label).is_repaired for label in labels] == [False, False, True, True, True]
    assert [str(Label.parse(label).unrepaired) for label in labels] == [*labels[:2], "uml", "uml", "uml"]
