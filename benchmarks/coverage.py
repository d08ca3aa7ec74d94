"""How often do intervals over seeds and photographs hold the truth?

The difference of two methods is modelled as crossed random effects, one of each seed, one of each photograph, and a
rest, with the variances that pairs of the best methods have at 40 % (five seeds, `results/noise_robustness`). Normal
differences with a true mean of 0 are drawn from it; the bootstrap of the tables and a paired t over seeds give an
interval of each.

    python benchmarks/coverage.py
"""

from __future__ import annotations

import itertools
import json

import numpy as np
from noise_robustness import RESULTS
from robustness import grid, runs
from robustness.recovery import Array, difference
from robustness.tables import Results
from scipy import stats

DRAWS = 400
"""Simulated differences of each pair of methods."""


def variances(gain_SI: Array) -> tuple[float, float, float]:
    """Variance of seeds, photographs and rest: the method of moments for two crossed factors, none below 0."""
    seeds, items = gain_SI.shape
    of_seed_S, of_item_I = gain_SI.mean(axis=1), gain_SI.mean(axis=0)
    rest_SI = gain_SI - of_seed_S[:, None] - of_item_I + gain_SI.mean()
    rest = float((rest_SI**2).sum()) / ((seeds - 1) * (items - 1))
    seed, item = of_seed_S.var(ddof=1) - rest / items, of_item_I.var(ddof=1) - rest / seeds
    return max(0.0, float(seed)), max(0.0, float(item)), rest


def held(seeds: int, items: int, variance: tuple[float, float, float], rng: np.random.Generator) -> tuple[float, float]:
    """Fraction of simulated differences whose interval holds 0: of the bootstrap, and of a paired t over seeds."""
    bootstrap, paired = 0, 0
    for _ in range(DRAWS):
        shapes = ((seeds, 1), (1, items), (seeds, items))
        effects = [each**0.5 * rng.standard_normal(shape) for each, shape in zip(variance, shapes, strict=True)]
        gain_SI = effects[0] + effects[1] + effects[2]
        found = difference(gain_SI, np.zeros_like(gain_SI))
        bootstrap += found.low <= 0 <= found.high
        if seeds > 1:
            paired += stats.ttest_1samp(gain_SI.mean(axis=1), 0).pvalue >= 0.05
    return bootstrap / DRAWS, paired / DRAWS if seeds > 1 else float("nan")


def main() -> None:
    """Prints, by target and number of seeds, the mean and the worst coverage of the pairs of methods."""
    results, rng = Results(runs.read(RESULTS)), np.random.default_rng(0)
    cells = [cell for cell in grid.main_part(grid.BEST) if cell.noise == 0.4 and not cell.seed]
    for target in grid.TARGETS:
        pairs = itertools.combinations([cell for cell in cells if cell.target == target], 2)
        known = [found[0] for pair in pairs if (found := results.paired(*pair)) and len(found[0][0]) > 2]
        spread = [(one_SI.shape[1], variances(one_SI - two_SI)) for one_SI, two_SI in known]
        for seeds in (1, 3, 5):
            by_pair_P2 = np.array([held(seeds, items, each, rng) for items, each in spread])
            row: dict[str, str | float] = {"target": target, "seeds": seeds, "pairs": len(spread)}
            for name, part_P in zip(("bootstrap", "paired t"), by_pair_P2.T, strict=True):
                if not np.isnan(part_P).any():
                    row |= {name: round(float(part_P.mean()), 3), f"{name}, worst": round(float(part_P.min()), 3)}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
