"""The judge of words: probabilities where the truth is known, and a run that is weighted by it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import toy
from scipy.stats import norm
from toy import Chain

from ccr_cli.judges.lexical import clean_probability


@pytest.mark.parametrize("share", [0.0, 0.05, 0.4, 0.7])
def test_probabilities_are_those_of_the_mixture(share: float) -> None:
    rng = np.random.default_rng(0)
    wrong = rng.random(20_000) < share
    score = np.where(wrong, rng.normal(-2.4, 0.6, 20_000), -rng.gamma(2.0, 0.25, 20_000))
    p = clean_probability(score, rng.normal(-2.4, 0.6, 4_000))
    assert (1 - p).mean() == pytest.approx(share, abs=0.03)
    assert (p < 0.5).mean() == pytest.approx(share, abs=0.03)
    if share:
        true = norm.pdf(score, -2.4, 0.6) * share
        true /= true + (1 - share) * np.where(score < 0, -score * 16 * np.exp(4 * np.minimum(score, 0)), 0)
        assert np.abs((1 - p) - true).mean() < 0.03


def test_the_order_is_that_of_the_scores_and_equal_ones_are_equal() -> None:
    rng = np.random.default_rng(1)
    score = np.round(rng.normal(0, 1, 500), 1)
    p = clean_probability(score, rng.normal(-3, 1, 100))
    assert np.array_equal(pd.Series(p).rank(), pd.Series(score).rank())
    assert np.array_equal(clean_probability(score, []), np.ones(500)) and len(clean_probability([], [1.0])) == 0


def test_a_run_is_weighted_by_it_and_diagnosed_with_it(workspace: Chain) -> None:
    options = ("--method", "infonce", "--epochs", "2", "--noise", "0.4", "--set", "judge=lexical", *toy.SMALL)
    made = toy.ok("train", *options, workspace=workspace.root).made
    said = [pd.read_parquet(made.path / "evidence" / f"epoch-{e:03d}.parquet")["p_clean"] for e in (1, 2)]
    assert said[0].equals(said[1]) and said[0].nunique() > 10
    diagnosed = toy.ok("diagnose", made.path, "--device", "cpu", "--judge", "lexical", workspace=workspace.root).made
    pairs = pd.read_parquet(diagnosed.path / "pairs.parquet").sort_values("place")
    truth = pairs["truth"] == "noisy"
    assert truth.head(10).mean() > truth.mean()
    words = workspace.root / "words.tsv"
    words.write_text("\n".join(f"{b}\t{a}" for a, b in (toy.COLOURS | toy.SHAPES).items()), encoding="utf-8")
    how = ("diagnose", made.path, "--device", "cpu", "--judge", "lexical", "--set")
    named = toy.ok(*how, f"dictionary={words}", workspace=workspace.root).made
    assert named.name != diagnosed.name and named.request["dictionary"].startswith("sha256:")
    assert not pd.read_parquet(named.path / "pairs.parquet")["p_clean"].equals(pairs["p_clean"])
    for name, content in {"none": "zebra cebra", "broken": "a b c"}.items():
        (workspace.root / name).write_text(content)
    wrong = [f"dictionary={workspace.root / name}" for name in ("none", "broken", "absent")]
    outcomes = [workspace.ccr(*how, each) for each in (*wrong, "dictionary=words.tsv", "words=x")]
    assert [outcome.code for outcome in outcomes] == [2] * 5
    unread = workspace.ccr("train", *options[:-2], "--set", "judge=gmm", "--set", f"dictionary={words}")
    assert unread.code == 2 and "gmm" in unread.err
