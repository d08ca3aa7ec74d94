"""NCR's judge: the losses by loops, and what it finds."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn.functional import normalize

from ccr_cli.judges.gmm import clean_probability
from ccr_cli.judges.hinge import JUDGE, hinges
from ccr_cli.stages.shared.judging import TripletEmbeddings, TripletReadings
from ccr_cli.stages.shared.triplets import Triplets

N = 120
ROWS = np.split(np.arange(N), 3)
MASK = ~torch.eye(40, dtype=torch.bool).roll(1, 0)
"""One rival of every row does not take part."""


class Sides(TripletReadings):
    """Triplets of which T is another's in a third of them, in three batches."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        v_ND = torch.randn(N, 16, generator=generator).double()
        s_ND, t_ND = (v_ND + 0.4 * torch.randn(N, 16, generator=generator) for _ in range(2))
        self.wrong_N = np.arange(N) % 3 == 0
        t_ND[self.wrong_N] = t_ND[self.wrong_N].roll(1, 0)
        self.of = {"V": normalize(v_ND, dim=1), "S": normalize(s_ND, dim=1), "T": normalize(t_ND, dim=1)}
        none: Triplets = None  # type: ignore[assignment]
        super().__init__(none, 0, TripletEmbeddings(self.of["V"], s_ND, t_ND, torch.arange(N)), 40, lambda sim: sim)

    def ends(self, side: str) -> Iterator[tuple[npt.NDArray[np.int64], Tensor, Tensor, Tensor]]:
        for rows in ROWS:
            yield rows, self.of[side[0]][rows], self.of[side[1]][rows], MASK

    def losses(self, side: str) -> npt.NDArray[np.float64]:
        """By loops."""
        out = np.zeros(N)
        for rows in ROWS:
            sim = (self.of[side[0]][rows] @ self.of[side[1]][rows].T).numpy()
            for i in range(40):
                cost = [[max(0.0, 0.2 + x[i, j] - x[i, i]) for j in range(40) if j != i] for x in (sim, sim.T)]
                left_out = [max(0.0, 0.2 + sim[i, i - 1] - sim[i, i]), max(0.0, 0.2 + sim[i + 1 - 40, i] - sim[i, i])]
                out[rows[i]] = sum((sum(each) - less) / 39 for each, less in zip(cost, left_out, strict=True))
        return out


def test_worked_values() -> None:
    sim = torch.tensor([[0.5, 0.4], [0.6, 0.3]], dtype=torch.float64)
    assert hinges(sim, torch.ones(2, 2, dtype=torch.bool)).tolist() == pytest.approx([0.2, 0.4])
    assert hinges(sim, torch.eye(2, dtype=torch.bool)).tolist() == [0.0, 0.0], "captions of one item do not compete"


def test_it_splits_the_losses_of_each_side_and_finds_what_is_wrong() -> None:
    readings = Sides()
    for side in ("cross_lingual", "cross_modal", "both"):
        p = JUDGE.judge(readings, side).p
        read = {"cross_lingual": ("ST",), "cross_modal": ("VT",), "both": ("VS", "VT")}[side]
        own = clean_probability(-sum(readings.losses(each) for each in read))
        if side == "both":
            own = own * p.ST
        np.testing.assert_allclose(p.VT, own, rtol=0, atol=1e-9)
        assert roc_auc_score(~readings.wrong_N, p.VT) > 0.99
        assert p.VT[readings.wrong_N].max() < 0.5 < np.median(p.VT[~readings.wrong_N])
    assert (JUDGE.judge(readings, "cross_lingual").p.VS == 1).all()
