"""GSC's judge: the worked values, the average over epochs, and what it finds."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn.functional import normalize

from ccr_cli.judges.base import FloatArray
from ccr_cli.judges.gmm import clean_probability
from ccr_cli.judges.structure import JUDGE, PASSES, agreement, averaged, own_share
from ccr_cli.stages.shared.judging import TripletEmbeddings, TripletReadings
from ccr_cli.stages.shared.triplets import Triplets


def test_the_worked_values() -> None:
    one = torch.tensor([[1, 0.6, 0.2], [0.6, 1, 0.3], [0.2, 0.3, 1]], dtype=torch.float64)
    two = torch.tensor([[1, 0.5, 0.1], [0.5, 1, 0.9], [0.1, 0.9, 1]], dtype=torch.float64)
    for y, expected in (
        ((1, 1, 1), (0.993859, 0.908410, 0.899528)),
        ((1, 1, 0.2), (0.996922, 0.991245, 0.863059)),
    ):
        weight_B = torch.tensor(y, dtype=torch.float64)
        assert agreement(one, two, weight_B).tolist() == pytest.approx(expected, abs=1e-6)
    sim = torch.tensor([[0.9, 0.3], [0.4, 0.8]], dtype=torch.float64)
    every = torch.ones(2, 2, dtype=torch.bool)
    assert own_share(sim, every).tolist() == pytest.approx([0.999510, 0.997961], abs=1e-6)
    assert own_share(sim, torch.eye(2, dtype=torch.bool)).tolist() == [1.0, 1.0], "captions of one item do not compete"
    assert averaged(np.array([0.0, 1.0]), np.array([1.0, 0.5])).tolist() == pytest.approx([0.3, 0.85])


class Ends(TripletReadings):
    """Two sides of pairs in two batches, in place of triplets."""

    def __init__(self, one_ND: Tensor, two_ND: Tensor, memory: dict[str, Tensor] | None) -> None:
        item_N = torch.arange(len(one_ND))
        embedded = TripletEmbeddings(one_ND, two_ND, two_ND, item_N)
        none: Triplets = None  # type: ignore[assignment]
        super().__init__(none, 0, embedded, 64, lambda sim: sim, memory=memory)

    def ends(self, side: str) -> Iterator[tuple[npt.NDArray[np.int64], Tensor, Tensor, Tensor]]:
        v_ND, s_ND = self._embedded.v_VD, self._embedded.s_ND
        for rows in np.array_split(np.arange(len(v_ND)), 2):
            yield rows, v_ND[rows], s_ND[rows], torch.ones(len(rows), len(rows), dtype=torch.bool)


def pairs(size: int = 200) -> tuple[Tensor, Tensor, npt.NDArray[np.bool_]]:
    """Unit vectors of eight kinds; of a third of the pairs the second side is another pair's."""
    generator = torch.Generator().manual_seed(0)
    kind_8D = torch.randn(8, 16, generator=generator).double()
    one_ND = kind_8D[torch.arange(size) % 8] + 0.5 * torch.randn(size, 16, generator=generator)
    two_ND = one_ND + 0.3 * torch.randn(size, 16, generator=generator)
    moved = torch.randperm(size, generator=generator)[: size // 3]
    two_ND[moved] = two_ND[moved.roll(1)]
    return normalize(one_ND, dim=1), normalize(two_ND, dim=1), np.isin(np.arange(size), moved.numpy())


def oracle(one: FloatArray, two: FloatArray, y_2N: FloatArray) -> FloatArray:
    """One epoch by loops over rows; the mixture is the package's, tested with its own judge."""
    y, c, o = y_2N.min(axis=0), np.empty(len(one)), np.empty(len(one))
    for rows in np.array_split(np.arange(len(one)), 2):
        for i in rows:
            a = np.array([y[k] / (1 + np.exp(-one[i] @ one[k] / 0.07)) for k in rows])
            b = np.array([y[k] / (1 + np.exp(-two[i] @ two[k] / 0.07)) for k in rows])
            c[i] = a @ b / np.sqrt((a @ a) * (b @ b))
            row = sum(np.exp((one[i] @ two[k] - one[i] @ two[i]) / 0.07) for k in rows)
            column = sum(np.exp((one[k] @ two[i] - one[i] @ two[i]) / 0.07) for k in rows)
            o[i] = (1 / row + 1 / column) / 2
    c = (c - c.min()) / (c.max() - c.min())
    return np.stack([0.7 * clean_probability(c) + 0.3 * y_2N[0], 0.7 * o + 0.3 * y_2N[1]])


@pytest.mark.slow
def test_each_epoch_averages_with_the_one_before() -> None:
    one_ND, two_ND, _ = pairs()
    memory: dict[str, Tensor] = {}
    y_2N = np.ones((2, len(one_ND)))
    for _ in range(3):
        p = JUDGE.judge(Ends(one_ND, two_ND, memory), "cross_modal").p
        y_2N = oracle(one_ND.numpy(), two_ND.numpy(), y_2N)
        np.testing.assert_allclose(p.VT, y_2N.min(axis=0), rtol=0, atol=1e-9)
        assert memory["VT"].numpy() == pytest.approx(y_2N, abs=1e-9)
    assert set(memory) == {"VS", "VT"}


def test_without_a_memory_passes_stand_for_epochs_and_wrong_pairs_are_found() -> None:
    one_ND, two_ND, wrong_N = pairs()
    memory: dict[str, Tensor] = {}
    for _ in range(PASSES):
        remembered = JUDGE.judge(Ends(one_ND, two_ND, memory), "cross_modal").p
    alone = JUDGE.judge(Ends(one_ND, two_ND, None), "cross_modal").p
    assert np.array_equal(alone.VT, remembered.VT)
    assert roc_auc_score(~wrong_N, alone.VT) > 0.95 and alone.VT[wrong_N].max() < 0.5
