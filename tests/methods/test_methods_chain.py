"""Every method from training to diagnosis, by the public commands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import toy
from toy import Chain

from ccr_cli import registry
from ccr_cli.artifacts import diagnosis, evaluation

CPU = ("--device", "cpu")
TRAIN = ("--noise", "0.4", "--epochs", "1", *toy.SMALL)
EVIDENCE: dict[str, tuple[float, tuple[str, ...]]] = {
    "uml": (0.05, ("--set", "tau=0.05")),
    "decl": (0.05, ("--set", "tau=0.05")),
    "disncl": (0.1, ("--set", "tau=0.05")),  # that of a softmax
}
TWO_MODELS = ("cream", "in2r", "ncr", "tcl", "trine")

TRAINED = [name for name in registry.names("methods") if registry.load("methods", name).Method.TRAINED]


@pytest.mark.parametrize("name", toy.some_fast(TRAINED, "infonce", "ncr", "uml"))
def test_from_training_to_diagnosis(name: str, workspace: Chain) -> None:
    tau, options = EVIDENCE.get(name, (0.1, ()))
    toy.teach(name, workspace.root)
    made = toy.ok("train", "--method", name, *TRAIN, *options, workspace=workspace.root).made
    assert made.counts["models"] == (2 if name in TWO_MODELS else 1)
    evaluated = toy.ok("evaluate", made.path, *CPU, workspace=workspace.root).made
    assert {"es", "en"} <= {result["lang"] for result in evaluation.results(evaluated)}
    check_calibration(evaluated, stated=name == "trine")
    pairs: Any = diagnosis.read_pairs(toy.ok("diagnose", made.path, *CPU, workspace=workspace.root).made)
    assert len(pairs) == 48 and pairs["p_clean"].between(0, 1).all()
    assert pairs["belief"].between(0, 1).all() and pairs["uncertainty"].between(0, 1).all()
    # UML's evidence, in the form of those that learn it
    sim = pairs["sim_vt"].astype(float)
    evidence = np.exp(sim / tau) if name == "tcl" else np.exp(np.tanh(sim) / tau)
    for direction in ("evidence_v2t", "evidence_t2v"):
        np.testing.assert_allclose(pairs[direction], evidence, rtol=1e-4)


def check_calibration(evaluated: Any, *, stated: bool) -> None:
    """Where an uncertainty is stated as a probability: its error, in ten groups of queries from the surest on."""
    ranks: Any = evaluation.read_ranks(evaluated)
    errors = {}
    for number, result in enumerate(evaluation.results(evaluated)):
        for direction, found in (result["calibration"] or {}).items():
            own = ranks[(ranks["result"] == number) & (ranks["direction"] == direction)]
            probable = stated or result["signature"].unc == "softmax"
            assert ("ece" in found) == probable and len(own) == found["queries"]
            if probable:
                confidence = 1 - own["uncertainty"].to_numpy(float)
                group = np.searchsorted(np.quantile(confidence, np.arange(1, 10) / 10), confidence, side="right")
                gap = (own["rank"].to_numpy(float) == 1) - confidence
                errors[number, direction] = found["ece"]
                expected = sum(abs(gap[group == g].sum()) for g in set(group)) / len(gap)
                assert found["ece"] == pytest.approx(expected, abs=1e-9)
    assert not stated or max(errors.values()) > 0.01


def test_what_has_no_cosines_cannot_be_diagnosed(workspace: Chain) -> None:
    options = ("--method", "fume", "--set", "credibility=evidential", *TRAIN)
    made = toy.ok("train", *options, workspace=workspace.root).made
    done = workspace.ccr("diagnose", made.path, *CPU)
    assert (done.code, done.out) == (2, "")
    assert "credibility=evidential" in done.err and "ccr train --method fume" in done.err
    assert not (workspace.root / "diagnoses").exists()
