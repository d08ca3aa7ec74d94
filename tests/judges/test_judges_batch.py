"""Judges that look at one batch: by hand, ties, masks, refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ccr_cli.judges import argmax, mutual, none, oracle, rank

BATCH = {"none": none, "argmax": argmax, "mutual": mutual, "rank": rank}


@pytest.mark.parametrize("name", BATCH)
def test_ties_and_lonely_pairs_are_clean(name: str) -> None:
    judge = BATCH[name].clean_probability
    for size in (0, 1, 2, 7):
        assert judge(torch.full((size, size), 0.3)).tolist() == [1.0] * size
        worst = 1 - torch.eye(size)  # each pair is the worst of its row, but no rival takes part
        assert judge(worst, torch.eye(size, dtype=torch.bool)).tolist() == [1.0] * size


@pytest.mark.parametrize("name", BATCH)
def test_no_gradient_and_no_half_precision(name: str) -> None:
    scores = torch.rand(4, 4, requires_grad=True)
    got = BATCH[name].clean_probability(scores)
    assert got.shape == (4,)
    assert not got.requires_grad
    assert BATCH[name].clean_probability(scores.to(torch.bfloat16)).dtype == torch.float32


@pytest.mark.parametrize("name", BATCH)
def test_wrong_input_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"\(3, 4\)"):
        BATCH[name].clean_probability(torch.rand(3, 4))
    with pytest.raises(ValueError, match=r"bool.* \(3, 3\).* \(2, 2\)"):
        BATCH[name].clean_probability(torch.rand(3, 3), torch.ones(2, 2, dtype=torch.bool))


def test_argmax_reads_the_sum_and_mutual_both_directions() -> None:
    # pair 0 loses its row (1 < 3), but its sum 2 beats 3 + (-2)
    scores = torch.tensor([[1.0, 3.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert argmax.clean_probability(scores).tolist() == [1, 1, 1]
    assert mutual.clean_probability(scores).tolist() == [0, 0, 1]
    scores[1, 0] = 0.0
    assert argmax.clean_probability(scores).tolist() == [0, 0, 1]


def test_a_masked_rival_does_not_win() -> None:
    scores = torch.tensor([[0.1, 0.9, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]])
    mask = torch.ones(3, 3, dtype=torch.bool)
    assert mutual.clean_probability(scores).tolist() == [0, 0, 1]
    mask[0, 1] = mask[1, 0] = False
    for judge in (argmax, mutual, rank):
        assert judge.clean_probability(scores, mask).tolist() == [1, 1, 1]


def test_rank_counts_the_share_of_better_rivals() -> None:
    scores = torch.zeros(21, 21)
    scores[0, 1:3] = 1.0  # two of twenty rivals are better: just within a tenth
    scores[3, 4:7] = 1.0  # three are not
    got = rank.clean_probability(scores)
    assert got[0] == 1
    assert got[3] == 0
    assert rank.clean_probability(scores.T)[3] == 0  # columns count as much as rows
    assert rank.clean_probability(scores, share=0.2)[3] == 1
    assert rank.clean_probability(scores, share=0.0).tolist() == mutual.clean_probability(scores).tolist()
    with pytest.raises(ValueError, match=r"share 1\.5"):
        rank.clean_probability(scores, share=1.5)


def test_the_oracle_knows() -> None:
    assert oracle.clean_probability(np.array([True, False])).tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="float64"):
        oracle.clean_probability(np.array([0.0, np.nan]))
