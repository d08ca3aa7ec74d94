"""Synthetic mismatch: a derangement over items of a fraction of the training triplets.

A style decides which captions move; it is a function decorated with `noise_style`. The field's reference codes
disagree, so there are two: `caption` moves captions singly (NCR, UML), `image` moves all captions of an item (DECL). A
target decides what moves: `translation` moves T alone and leaves V-S intact (UML, DCOT), `pair` moves S and T together
away from V (NCR, DECL).

A caption never moves to its own item, nor to an item that has a caption of the same text: that would be no mismatch.
Draws of one seed are nested: what is wrong at 20 % is wrong at 40 %, as far as all chosen captions can move.
"""

from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.data.seeds import derive
from ccr_cli.errors import UsageError, no_share

TARGETS = ("translation", "pair")
_APART = 8
"""This many of the first chosen places can swap with each other, so that the smallest fractions can be deranged too."""
_TRIES = 64
_EXACT = 1024
"""Most places for which the largest derangement is computed where swaps find none."""

Rows = npt.NDArray[np.intp]
Clash = Callable[[Rows, Rows], npt.NDArray[np.bool_]]
"""Whether a place cannot take a giver's caption, element by element."""
Style = Callable[[Rows, Rows, float, np.random.Generator], Rows]
"""From the item (N,) and text (N,) of each caption, the ratio and a generator: which caption each place gets (N,)."""
STYLES: dict[str, Style] = {}
"""Styles by name."""


def noise_style(name: str) -> Callable[[Style], Style]:
    """Registers a function as the noise style of that name."""

    def register(function: Style) -> Style:
        STYLES[name] = function
        return function

    return register


def mismatch(captions: pd.DataFrame, ratio: float, style: str, target: str, seed: int) -> pd.DataFrame:
    """Draws a noise table: one row a source caption of the training split.

    Args:
        captions: Source captions with columns caption_id, item_id, text, in the data set's order.
        ratio: Nominal fraction of mismatched triplets (`caption`) or items (`image`), 0 to 1.
        style: A name of `STYLES`.
        target: `translation` or `pair`.
        seed: Seed of the draw, independent of any training seed.

    Returns:
        The columns of `artifacts.noise.PAIRS`. No wrong triplet keeps its own item or gets a text that its item has;
        exactly floor(ratio * N) are wrong, or fewer where one item or text has so many that they cannot all move.
    """
    if not 0.0 <= ratio <= 1.0:
        raise no_share("--noise ", ratio)
    check(style, target)
    rng = np.random.default_rng(derive(seed, "noise", style, target))
    items, _ = pd.factorize(captions["item_id"])
    texts, _ = pd.factorize(captions["text"].str.strip())
    giver = STYLES[style](items, texts, ratio, rng)
    ids = captions["caption_id"].to_numpy(dtype=object)
    wrong = items[giver] != items
    pair = target == "pair"
    return pd.DataFrame(
        {
            "slot_id": ids,
            "given_item_id": captions["item_id"].to_numpy(dtype=object),
            "given_source_id": ids[giver] if pair else ids,
            "given_translation_of": ids[giver],
            "vs_wrong": wrong & pair,
            "vt_wrong": wrong,
            "st_wrong": wrong & (not pair),
        }
    )


def check(style: str, target: str) -> None:
    """Refuses an unknown style or target."""
    for what, value, known in (("style", style, STYLES), ("target", target, TARGETS)):
        if value not in known:
            raise UsageError(f"unknown noise {what} {value!r}", hint=f"--noise-{what} {' or '.join(known)}")


@noise_style("caption")
def _by_caption(items: Rows, texts: Rows, ratio: float, rng: np.random.Generator) -> Rows:
    """Moves captions singly."""
    n_texts = int(texts.max(initial=-1)) + 1
    own = np.unique(items * n_texts + texts)

    def clash(place: Rows, giver: Rows) -> npt.NDArray[np.bool_]:
        key = items[place] * n_texts + texts[giver]  # the item's own captions have their own texts
        same_text = own[np.minimum(np.searchsorted(own, key), len(own) - 1)] == key
        clashes: npt.NDArray[np.bool_] = same_text | (items[place] == items[giver])
        return clashes

    giver_of = np.arange(len(items))
    chosen, givers = _moved(items, clash, ratio, rng)
    giver_of[chosen] = givers
    return giver_of


@noise_style("image")
def _by_item(items: Rows, texts: Rows, ratio: float, rng: np.random.Generator) -> Rows:
    """Moves all captions of an item together."""
    n_items = int(items.max(initial=-1)) + 1
    order = np.argsort(items, kind="stable")
    rows = np.split(order, np.flatnonzero(np.diff(items[order])) + 1) if n_items else []
    texts_of = [set(texts[captions].tolist()) for captions in rows]

    def clash(place: Rows, giver: Rows) -> npt.NDArray[np.bool_]:
        pairs = zip(place.tolist(), giver.tolist(), strict=True)
        return np.array([a == b or not texts_of[a].isdisjoint(texts_of[b]) for a, b in pairs], dtype=bool)

    giver_of = np.arange(len(items))
    for item, giver in zip(*_moved(np.arange(n_items), clash, ratio, rng), strict=True):
        if item != giver:
            giver_of[rows[item]] = np.resize(rows[giver], len(rows[item]))
    return giver_of


def _moved(items: Rows, clash: Clash, ratio: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """The chosen places and the giver of each."""
    chosen = _order(items, clash, rng)[: int(ratio * len(items) + 1e-9)]
    return chosen, chosen[_derange(items[chosen], lambda i, j: clash(chosen[i], chosen[j]), rng)]


def _order(items: Rows, clash: Clash, rng: np.random.Generator) -> Rows:
    """The random order in which places are chosen, at any ratio, such that every choice of two or more can move.

    No item has more than half of any choice, as far as there are others; and the first few can swap with each other.
    """
    later = rng.permutation(len(items)).tolist()
    most = int(np.bincount(items).max(initial=0))
    first: list[int] = []
    count: Counter[int] = Counter()
    while later and len(first) < max(_APART, 2 * most):
        ahead = np.array(first[:_APART], dtype=np.intp)
        for place in later:
            if count[int(items[place])] >= max(1, (len(first) + 1) // 2):
                continue
            here = np.full(len(ahead), place, dtype=np.intp)
            if len(first) >= _APART or not (clash(here, ahead).any() or clash(ahead, here).any()):
                break
        else:
            break
        later.remove(place)
        first.append(place)
        count[int(items[place])] += 1
    return np.array(first + later, dtype=np.intp)


def _derange(items: Rows, clash: Clash, rng: np.random.Generator) -> Rows:
    """Permutes places so that none clashes with its giver, as far as possible; a place that cannot move stays.

    A random permutation, repaired by swaps with random partners: (i, j) can swap when neither clashes afterwards. Equal
    items are repaired first, comparing whole arrays at once, then all other clashes.
    """
    n = len(items)
    to = rng.permutation(n)
    for i in np.flatnonzero(items[to] == items):
        if items[to[i]] != items[i]:
            continue  # repaired as the partner of an earlier swap
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
    if n <= _EXACT:
        return _largest(n, clash, rng)
    while len(bad := np.flatnonzero((to != every) & clash(every, to))):  # places that clash stay, until none clashes
        owner = int(np.flatnonzero(to == bad[0])[0])
        to[owner], to[bad[0]] = to[bad[0]], bad[0]
    return to


def _largest(n: int, clash: Clash, rng: np.random.Generator) -> Rows:
    """The derangement of most places, the others staying: a matching with the least cost, where staying costs one."""
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
