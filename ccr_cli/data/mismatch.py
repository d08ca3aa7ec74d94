"""Synthetic mismatch: a derangement over items of a share of the training triplets.

Styles (DATASETS.md of the field's reference codes disagree, so both exist): `caption` moves captions singly (NCR, UML),
`image` moves all captions of an item together (DECL). Targets: `translation` moves T alone and leaves V-S
intact (UML, DCOT), `pair` moves S and T together away from V (NCR, DECL).

What is moved never lands on its own item, nor on an item that has a caption of the same text: that would be no
mismatch. Draws of one seed are nested: what is wrong at 20 % is wrong at 40 %, as far as all that is drawn can move.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.data.seeds import derive
from ccr_cli.errors import UsageError

STYLES = ("caption", "image")
TARGETS = ("translation", "pair")
_APART = 8
"""So many of the first to be chosen go with each other, so that the smallest shares can be deranged too."""
_TRIES = 64
_EXACT = 1024
"""Up to so many places the largest derangement is computed where swaps do not find one."""

Rows = npt.NDArray[np.intp]
Clash = Callable[[Rows, Rows], npt.NDArray[np.bool_]]
"""Whether a place may not get what another one gives, element by element."""


def mismatch(captions: pd.DataFrame, ratio: float, style: str, target: str, seed: int) -> pd.DataFrame:
    """Draws a noise table: one row a source caption of the training split.

    Args:
        captions: Source captions with columns caption_id, item_id, text, in the data set's order.
        ratio: Nominal share of mismatched triplets (`caption`) or items (`image`), 0 to 1.
        style: `caption` or `image`.
        target: `translation` or `pair`.
        seed: Seed of the draw, independent of any training seed.

    Returns:
        The columns of `artifacts.noise.PAIRS`. No triplet called wrong keeps its own item or gets a text that its item
        has; exactly floor(ratio * N) are wrong, or fewer where one item or text has so many of them that they cannot
        all move.

    Raises:
        UsageError: If an option is out of range.
    """
    if not 0.0 <= ratio <= 1.0:
        raise UsageError(f"a noise ratio lies between 0 and 1, not {ratio}")
    check(style, target)
    rng = np.random.default_rng(derive(seed, "noise", style, target))
    items, _ = pd.factorize(captions["item_id"])
    texts, _ = pd.factorize(captions["text"].str.strip())
    given = (_by_caption if style == "caption" else _by_item)(items, texts, ratio, rng)
    ids = captions["caption_id"].to_numpy(dtype=object)
    wrong = items[given] != items
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


def check(style: str, target: str) -> None:
    """Checks that there is such a mismatch.

    Raises:
        UsageError: If there is not.
    """
    for what, value, known in (("style", style, STYLES), ("target", target, TARGETS)):
        if value not in known:
            raise UsageError(f"there is no noise {what} {value!r}", hint=f"--noise-{what} {' or '.join(known)}")


def _by_caption(items: Rows, texts: Rows, ratio: float, rng: np.random.Generator) -> Rows:
    n_texts = int(texts.max(initial=-1)) + 1
    own = np.unique(items * n_texts + texts)

    def clash(place: Rows, giver: Rows) -> npt.NDArray[np.bool_]:
        key = items[place] * n_texts + texts[giver]  # the item's own captions have their own texts
        same_text = own[np.minimum(np.searchsorted(own, key), len(own) - 1)] == key
        clashes: npt.NDArray[np.bool_] = same_text | (items[place] == items[giver])
        return clashes

    given = np.arange(len(items))
    chosen = _order(items, clash, rng)[: int(ratio * len(items) + 1e-9)]
    given[chosen] = chosen[_derange(items[chosen], lambda i, j: clash(chosen[i], chosen[j]), rng)]
    return given


def _by_item(items: Rows, texts: Rows, ratio: float, rng: np.random.Generator) -> Rows:
    n_items = int(items.max(initial=-1)) + 1
    order = np.argsort(items, kind="stable")
    rows = np.split(order, np.flatnonzero(np.diff(items[order])) + 1) if n_items else []
    said = [set(texts[mine].tolist()) for mine in rows]

    def clash(place: Rows, giver: Rows) -> npt.NDArray[np.bool_]:
        pairs = zip(place.tolist(), giver.tolist(), strict=True)
        return np.array([a == b or not said[a].isdisjoint(said[b]) for a, b in pairs], dtype=bool)

    every = np.arange(n_items)
    chosen = _order(every, clash, rng)[: int(ratio * n_items + 1e-9)]
    givers = chosen[_derange(chosen, lambda i, j: clash(chosen[i], chosen[j]), rng)]
    given = np.arange(len(items))
    for item, giver in zip(chosen, givers, strict=True):
        if item != giver:
            given[rows[item]] = np.resize(rows[giver], len(rows[item]))
    return given


def _order(items: Rows, clash: Clash, rng: np.random.Generator) -> Rows:
    """In which order places are chosen, for every ratio: at random, but so that every share of two or more can move.

    No item has more than half of any share, as far as there are others; and the first few all go with each other.
    """
    later = rng.permutation(len(items)).tolist()
    most = int(np.bincount(items).max(initial=0))
    first: list[int] = []
    count: dict[int, int] = {}
    while later and len(first) < max(_APART, 2 * most):
        room = max(1, (len(first) + 1) // 2)
        ahead = np.array(first[:_APART], dtype=np.intp)

        def fits(place: int, room: int = room, ahead: Rows = ahead) -> bool:
            if count.get(int(items[place]), 0) >= room:
                return False
            if len(first) >= _APART:
                return True
            here = np.full(len(ahead), place, dtype=np.intp)
            return not (clash(here, ahead).any() or clash(ahead, here).any())

        found = next((index for index, place in enumerate(later) if fits(place)), None)
        if found is None:
            break
        first.append(later.pop(found))
        count[int(items[first[-1]])] = count.get(int(items[first[-1]]), 0) + 1
    return np.array(first + later, dtype=np.intp)


def _derange(items: Rows, clash: Clash, rng: np.random.Generator) -> Rows:
    """Permutes places so that none gets what clashes with it, as far as that is possible; what cannot move stays.

    A random permutation, mended by swaps with random partners: (i, j) may swap when neither clashes then. First items
    alone are looked at, where whole arrays are compared at once, then what else clashes.
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
    every = np.arange(n)
    for i in np.flatnonzero(clash(every, to)):
        if not clash(every[[i]], to[[i]])[0]:
            continue
        for few in (True, False):
            partners = rng.integers(n, size=_TRIES) if few else rng.permutation(n)
            fine = ~clash(np.full(len(partners), i), to[partners]) & ~clash(partners, np.full(len(partners), to[i]))
            if fine.any():
                j = int(partners[np.argmax(fine)])
                to[i], to[j] = to[j], to[i]
                break
    if not clash(every, to).any():
        return to
    return _largest(n, clash, rng) if n <= _EXACT else _kept(to, clash)


def _largest(n: int, clash: Clash, rng: np.random.Generator) -> Rows:
    """A derangement of as many places as can move at once; the others keep what is theirs.

    A matching of places and givers of the least cost, where it costs one to keep what is one's own.
    """
    from scipy.optimize import linear_sum_assignment

    shuffled = rng.permutation(n)
    cost = np.empty((n, n), dtype=np.float32)
    for row, place in enumerate(shuffled):
        cost[row] = np.where(clash(np.full(n, place), shuffled), np.float32(n + 1), np.float32(0))
    np.fill_diagonal(cost, np.float32(1))
    rows, columns = linear_sum_assignment(cost)
    to = np.empty(n, dtype=np.intp)
    to[shuffled[rows]] = shuffled[columns]
    return to


def _kept(to: Rows, clash: Clash) -> Rows:
    """Has every place that clashes keep what is its own, until none does."""
    every = np.arange(len(to))
    while len(bad := np.flatnonzero((to != every) & clash(every, to))):
        owner = int(np.flatnonzero(to == bad[0])[0])
        to[owner], to[bad[0]] = to[bad[0]], bad[0]
    return to
