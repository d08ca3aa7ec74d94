"""Synthetic mismatch: a derangement over items of a share of the training triplets.

Styles (DATASETS.md of the field's reference codes disagree, so both exist): `caption` moves captions singly (NCR, UML),
`image` moves all captions of an item together (DECL). Targets: `translation` moves T alone and leaves V-S
intact (UML, DCOT), `pair` moves S and T together away from V (NCR, DECL).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.data.seeds import derive
from ccr_cli.errors import UsageError

STYLES = ("caption", "image")
TARGETS = ("translation", "pair")
_DRAWS = 100


def mismatch(captions: pd.DataFrame, ratio: float, style: str, target: str, seed: int) -> pd.DataFrame:
    """Draws a noise table: one row a source caption of the training split.

    Args:
        captions: Source captions with columns caption_id, item_id, k, in the data set's order.
        ratio: Nominal share of mismatched triplets (`caption`) or items (`image`), 0 to 1.
        style: `caption` or `image`.
        target: `translation` or `pair`.
        seed: Seed of the draw, independent of any training seed.

    Returns:
        The columns of `artifacts.noise.PAIRS`. No triplet called wrong keeps its own item; exactly
        floor(ratio * N) are wrong wherever a derangement of that many exists.

    Raises:
        UsageError: If an option is out of range.
    """
    if not 0.0 <= ratio <= 1.0:
        raise UsageError(f"a noise ratio lies between 0 and 1, not {ratio}")
    if style not in STYLES or target not in TARGETS:
        raise UsageError(f"want a noise style of {STYLES} and a target of {TARGETS}, got {style!r} and {target!r}")
    rng = np.random.default_rng(derive(seed, "noise", style, target))
    codes, _ = pd.factorize(captions["item_id"])
    given = _by_caption(codes, ratio, rng) if style == "caption" else _by_item(codes, ratio, rng)
    ids = captions["caption_id"].to_numpy(dtype=object)
    wrong = codes[given] != codes
    pair = target == "pair"
    return pd.DataFrame(
        {
            "slot_id": ids,
            "given_item_id": captions["item_id"].to_numpy(dtype=object),
            "given_source_id": ids[given] if pair else ids,
            "given_translation_of": ids[given],
            "vs_wrong": wrong & pair,
            "vt_wrong": wrong,
            "st_wrong": wrong & (not pair),
        }
    )


def _by_caption(codes: npt.NDArray[np.intp], ratio: float, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    given = np.arange(len(codes))
    chosen = _choose(codes, int(ratio * len(codes) + 1e-9), rng)
    given[chosen] = chosen[_derange(codes[chosen], rng)]
    return given


def _choose(codes: npt.NDArray[np.intp], count: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Draws `count` captions, again while more than half of them are of one item, since these cannot all move."""
    chosen = rng.permutation(len(codes))[:count]
    for _ in range(_DRAWS):
        if count == 0 or 2 * int(np.bincount(codes[chosen]).max()) <= count:
            break
        chosen = rng.permutation(len(codes))[:count]
    return chosen


def _by_item(codes: npt.NDArray[np.intp], ratio: float, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    n_items = int(codes.max(initial=-1)) + 1
    rows = [np.flatnonzero(codes == item) for item in range(n_items)] if n_items < 2 else _group(codes)
    chosen = rng.permutation(n_items)[: int(ratio * n_items + 1e-9)]
    givers = chosen[_derange(chosen, rng)]
    given = np.arange(len(codes))
    for item, giver in zip(chosen, givers, strict=True):
        given[rows[item]] = np.resize(rows[giver], len(rows[item]))
    return given


def _group(codes: npt.NDArray[np.intp]) -> list[npt.NDArray[np.intp]]:
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def _derange(items: npt.NDArray[np.intp], rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Permutes positions so that no position gets one of its own item, as far as that is possible.

    A random permutation, whose conflicts are then mended by swaps with random partners: (i, j) may swap when
    neither then holds its own item. Where one item has more than half of all places some stay as they are.
    """
    n = len(items)
    to = rng.permutation(n)
    for i in np.flatnonzero(items[to] == items):
        if items[to[i]] != items[i]:
            continue  # mended as the partner of an earlier swap
        partners = np.flatnonzero((items[to] != items[i]) & (items != items[to[i]]))
        if len(partners):
            j = int(rng.choice(partners))
            to[i], to[j] = to[j], to[i]
        else:
            own = np.flatnonzero(to == i)
            to[i], to[own[0]] = i, to[i]
    return to
