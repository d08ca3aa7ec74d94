"""Results of runs that were trained on other data than they are measured on: what may be compared."""

from __future__ import annotations

from typing import Any

import pytest

from ccr_cli.artifacts.signature import KEYS, Signature
from ccr_cli.report.tables import comparable


def transferred(seed: int, protocol: str, trained_on: str) -> tuple[str, dict[str, Any], comparable.RunFacts]:
    """A result on `d`, whose run is known to be trained on a data set of a name, or of which nothing is known."""
    run = f"uml-{seed}"
    fields = dict.fromkeys(KEYS, "x") | {"data": "d@0a1b2c3d", "noise": "none", "protocol": protocol}
    entry: dict[str, Any] = {
        "data": "d",
        "split": "test",
        "lang": "es",
        "role": "target",
        "fusion": "none",
        "label": "uml",
    }
    entry |= {"run": run, "seed": seed, "SumR": 10.0, "signature": str(Signature(**fields))}
    return (
        run,
        entry | {"zero_shot": protocol.startswith("zero-shot")},
        comparable.RunFacts(run, "uml", data=trained_on),
    )


@pytest.mark.parametrize(
    ("one", "two", "titles"),
    [
        (
            ("zero-shot-from:a@11111111", ""),
            ("zero-shot-from:b@22222222", ""),
            ["zero-shot from a", "zero-shot from b"],
        ),
        (
            ("zero-shot-from:a@11111111", ""),
            ("zero-shot-from:a@22222222", ""),
            ["zero-shot from a (trained on a@11111111)", "zero-shot from a (trained on a@22222222)"],
        ),
        (("full-from:a@11111111", ""), ("full", ""), ["", "trained on a"]),
        (("zero-shot", "a"), ("zero-shot", "b"), ["zero-shot from a", "zero-shot from b"]),
        (
            ("zero-shot-coco-5k-from:a@11111111", ""),
            ("zero-shot-coco-5k", ""),
            ["zero-shot from a, protocol coco-5k", "zero-shot, protocol coco-5k"],
        ),
        (
            ("zero-shot-from:a@11111111-partial", ""),
            ("zero-shot-from:a@22222222", ""),
            ["zero-shot from a", "zero-shot from a (partial)"],
        ),
    ],
)
def test_runs_trained_on_other_data_are_no_seeds_of_each_other(
    one: tuple[str, str], two: tuple[str, str], titles: list[str]
) -> None:
    rows = [transferred(0, *one), transferred(1, *two)]
    frame = comparable.results_frame([(run, entry) for run, entry, _ in rows], {run: facts for run, _, facts in rows})
    found = comparable.views(frame)
    assert [len(view.frame) for view in found] == [1, 1]
    assert sorted(view.title for view in found) == [f"d test, queries in es{', ' * bool(t)}{t}" for t in titles]


def test_seeds_on_the_same_training_data_share_a_view() -> None:
    rows = [transferred(seed, "zero-shot-from:a@11111111", "") for seed in (0, 1)]
    (view,) = comparable.views(comparable.results_frame([(run, entry) for run, entry, _ in rows]))
    assert (view.title, len(view.frame)) == ("d test, queries in es, zero-shot from a", 2)
