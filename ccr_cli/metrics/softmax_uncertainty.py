"""How likely the first result is wrong, from similarities alone: a softmax over the gallery with a fitted temperature.

The probability that entry g is the right one is p_g = softmax(sim / T)_g. A temperature fitted to a model calibrates
its softmax (Guo et al., ICML 2017); the probabilities of several models are averaged (deep ensembles,
Lakshminarayanan et al., NeurIPS 2017).

Shape legend: M models, Q queries, G gallery entries; lower case: a block of them.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

COLDEST, HOTTEST = 0.005, 10.0
"""Range of the temperature: a model that separates its validation queries perfectly would have no best one."""
BLOCK = 2**22
"""Maximum number of entries held at once in float64."""


def fit_temperature(sim_QG: Tensor, right_Q: Tensor) -> float:
    """Fits the temperature at which the right entries are likeliest: the lowest mean of -log p, in float64.

    With one right entry per query there is one minimum, since the mean is convex in 1/T. Raises ValueError without
    queries.
    """
    from scipy.optimize import minimize_scalar  # takes a second, and only this needs it

    if not len(sim_QG):
        raise ValueError("0 queries: there is nothing to fit a temperature to")
    rows = max(1, BLOCK // sim_QG.shape[1])
    blocks = list(zip(torch.split(sim_QG, rows), torch.split(right_Q, rows), strict=True))

    def cost(log_t: float) -> float:
        total = 0.0
        for sim_qG, right_q in blocks:
            logit_qG = sim_qG.double() / math.exp(log_t)
            right = logit_qG.gather(1, right_q[:, None])[:, 0]
            total += float((logit_qG.logsumexp(dim=1) - right).sum())
        return total / len(sim_QG)

    bounds = math.log(COLDEST), math.log(HOTTEST)
    return math.exp(minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-4}).x)


def wrong_probability(sim_QG: Tensor, temperature: float, first_Q: Tensor) -> Tensor:
    """1 - p of the first result of each query (Q,), float64.

    It is computed as the share of all other entries, so that small values are not rounded to 0.
    """
    first_Q1 = first_Q[:, None]
    logit_QG = sim_QG / temperature
    own_Q = logit_QG.gather(1, first_Q1)[:, 0]
    others_Q = logit_QG.scatter(1, first_Q1, -math.inf).logsumexp(dim=1)
    return torch.sigmoid((others_Q - own_Q).double())


def disagreement(sims: Iterable[Tensor], temperatures: Iterable[float]) -> Tensor:
    """Disagreement of models on each query (Q,): 0 if they agree, 1 if each is sure of a different entry.

    The entropy of the models' mean probabilities minus the mean of their entropies, divided by its maximum, log M. The
    difference is the mutual information of entry and model, or the mean KL divergence of each model from the mean. It
    is computed in float64, since for models that agree two nearly equal numbers are subtracted. Each model has its
    similarities (Q, G) and temperature.
    """
    mean_QG, entropy_Q, number = torch.zeros(()), torch.zeros(()), 0
    for sim_QG, temperature in zip(sims, temperatures, strict=True):
        p_QG = (sim_QG.double() / temperature).softmax(dim=1)
        entropy_Q = entropy_Q.to(p_QG) + torch.special.entr(p_QG).sum(dim=1)
        mean_QG, number = mean_QG.to(p_QG) + p_QG, number + 1
    whole_Q = torch.special.entr(mean_QG / number).sum(dim=1)
    share_Q: Tensor = (whole_Q - entropy_Q / number) / math.log(number)
    return share_Q.clamp(0.0, 1.0)
