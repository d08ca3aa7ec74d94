"""What a judge on one side says of all three."""

from __future__ import annotations

import pytest
import torch

from ccr_cli.judges.base import believe

SAID = {"VS": 0.2, "VT": 0.6, "ST": 0.7, "both": 0.9}


@pytest.mark.parametrize(
    ("side", "asked", "vs", "vt", "st"),
    [
        ("cross_lingual", {"ST"}, 1.0, 0.7, 0.7),
        ("cross_modal", {"VS", "VT"}, 0.2, 0.6, 0.2 * 0.6 + 0.8 * 0.4),
        ("both", {"VS", "ST", "both"}, 0.2, 0.7 * 0.9, 0.7),
    ],
)
def test_every_side_says_its_own_of_all_three(side: str, asked: set[str], vs: float, vt: float, st: float) -> None:
    heard = set()

    def ask(name: str) -> torch.Tensor:
        heard.add(name)
        return torch.tensor([SAID[name]])

    p = believe(side, ask, torch.ones(1))
    assert heard == asked
    assert (p.VS.item(), p.VT.item(), p.ST.item()) == pytest.approx((vs, vt, st))
