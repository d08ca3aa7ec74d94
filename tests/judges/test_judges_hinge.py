"""Judges of losses, of NCR, L2RM and CREAM: the losses by loops, and what they find."""

from collections.abc import Callable, Iterator
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest
import torch
import toy
from scipy.stats import beta as distribution
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn.functional import normalize

from ccr_cli.judges import beta, gmm, nce
from ccr_cli.judges.base import Judge
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

    def hinges(self, side: str) -> npt.NDArray[np.float64]:
        """By loops."""
        out = np.zeros(N)
        for rows in ROWS:
            sim = (self.of[side[0]][rows] @ self.of[side[1]][rows].T).numpy()
            for i in range(40):
                cost = [[max(0.0, 0.2 + x[i, j] - x[i, i]) for j in range(40) if j != i] for x in (sim, sim.T)]
                left_out = [max(0.0, 0.2 + sim[i, i - 1] - sim[i, i]), max(0.0, 0.2 + sim[i + 1 - 40, i] - sim[i, i])]
                out[rows[i]] = sum((sum(each) - less) / 39 for each, less in zip(cost, left_out, strict=True))
        return out

    def contrasts(self, side: str) -> npt.NDArray[np.float64]:
        """By loops."""
        out = np.zeros(N)
        for rows in ROWS:
            sim = (self.of[side[0]][rows] @ self.of[side[1]][rows].T).numpy() / 0.07
            for i in range(40):
                for x, less in ((sim, (i - 1) % 40), (sim.T, (i + 1) % 40)):
                    out[rows[i]] += np.logaddexp.reduce(np.delete(x[i], less)) - x[i, i]
        return out


def test_worked_values() -> None:
    sim = torch.tensor([[0.5, 0.4], [0.6, 0.3]], dtype=torch.float64)
    assert hinges(sim, torch.ones(2, 2, dtype=torch.bool)).tolist() == pytest.approx([0.2, 0.4])
    assert hinges(sim, torch.eye(2, dtype=torch.bool)).tolist() == [0.0, 0.0], "captions of one item do not compete"


@pytest.mark.parametrize(
    ("judge", "fit", "losses"),
    [(JUDGE, gmm, Sides.hinges), (beta.JUDGE, beta, Sides.hinges), (nce.JUDGE, gmm, Sides.contrasts)],
    ids=["hinge", "beta", "nce"],
)
def test_it_splits_the_losses_of_each_side_and_finds_what_is_wrong(
    judge: Judge, fit: ModuleType, losses: Callable[[Sides, str], npt.NDArray[np.float64]]
) -> None:
    readings = Sides()
    for side in ("cross_lingual", "cross_modal", "both"):
        p = judge.judge(readings, side).p
        read = {"cross_lingual": ("ST",), "cross_modal": ("VT",), "both": ("VS", "VT")}[side]
        own = fit.clean_probability(-sum(losses(readings, each) for each in read))
        if side == "both":
            own = own * p.ST
        np.testing.assert_allclose(p.VT, own, rtol=0, atol=1e-9)
        assert roc_auc_score(~readings.wrong_N, p.VT) > 0.99
        assert np.median(p.VT[~readings.wrong_N]) > 0.9
        if fit is gmm:  # moments of losses of which most are 0 make a wide clean distribution
            assert p.VT[readings.wrong_N].max() < 0.5
    assert (judge.judge(readings, "cross_lingual").p.VS == 1).all()


@pytest.mark.parametrize(("clean", "noisy"), [((2, 20), (8, 6)), ((1, 6), (10, 8))])
@pytest.mark.parametrize("share", toy.some_fast([0.1, 0.4, 0.6], 0.4))
def test_two_beta_distributions_are_told_apart(share: float, clean: tuple[int, int], noisy: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    wrong = rng.random(20_000) < share
    loss = np.where(wrong, rng.beta(*noisy, len(wrong)), rng.beta(*clean, len(wrong)))
    density = [distribution.pdf(loss, *each) for each in (clean, noisy)]
    best = (1 - share) * density[0] > share * density[1]
    got = beta.clean_probability(-loss) > 0.5
    assert (got == ~wrong).mean() > (best == ~wrong).mean() - 0.06
