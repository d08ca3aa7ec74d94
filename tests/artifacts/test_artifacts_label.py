"""Labels of runs: what each property says of one."""

from __future__ import annotations

from ccr_cli.artifacts.evaluation import Corruption
from ccr_cli.artifacts.label import Label, RunLabel


def test_a_label_is_taken_apart() -> None:
    label = Label.parse("uml (paper, oracle) x2 [beta=1] + infonce")
    assert label.runs[0] == RunLabel("uml", ("paper", "oracle"), ("beta=1",), 2)
    assert label.members == ["uml (paper, oracle) [beta=1]", "infonce"] and label.is_oracle and label.is_ensemble
    assert (
        str(Label.ensemble(map(Label.parse, ["uml [beta=1]", "infonce", "uml [beta=1]"])))
        == "uml x2 [beta=1] + infonce"
    )
    assert [Label.parse(text).base for text in ("uml x3 [beta=0.5]", "infonce [beta=0.5] + uml")] == [
        "uml x3",
        "infonce [beta=0.5] + uml",
    ]
    assert Label.parse("infonce [beta=1] + uml").method == "infonce + uml"


def test_a_repaired_label() -> None:
    label = Label.parse("uml (paper, pairs 1a2b3c) [beta=0.5]")
    assert label.method == "uml" and label.is_repaired and str(label.unrepaired) == "uml (paper) [beta=0.5]"


def test_corruptions_are_read_back() -> None:
    assert Corruption.parse("drop0.3-seed0") == Corruption("drop", 0.3, 0) and Corruption.parse("") is None
