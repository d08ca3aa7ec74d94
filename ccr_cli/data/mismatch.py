"""Synthetic mismatch: a derangement over items of a fraction of the training triplets.

A style decides which captions move; it is a function decorated with `noise_style`, or `givers` of an installed module
(group `ccr.noise`), which may define `TARGETS`. The field's reference codes disagree: `caption` moves captions singly
(NCR, UML), `image` moves all captions of an item (DECL). The others are noise that no judge was built for.

A target decides what moves: `translation` moves T alone and leaves V-S intact (UML, DCOT), `pair` moves S and T
together away from V (NCR, DECL), `any` moves T, V or S alone, a third each.

A caption never moves to its own item, nor to an item that has a caption of the same text: that would be no mismatch.
Draws of one seed are nested: what is wrong at 20 % is wrong at 40 %, as far as all chosen captions can move.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli import registry
from ccr_cli.data.seeds import derive
from ccr_cli.data.tokens import NgramTokenizer
from ccr_cli.errors import CcrError, UsageError, did_you_mean, no_share

TARGETS = ("translation", "pair", "any")
_APART = 8
"""Number of first chosen places that can all swap with each other, so that even tiny fractions can be deranged."""
_TRIES = 64
_EXACT = 1024
"""Most places for which the largest derangement is computed if swaps do not find a full one."""
NEAREST = 10
"""Number of nearest captions of other items from which `near` chooses."""
REUSE = 50
"""Average number of places in which `instance` puts one caption."""
_BLOCK = 256

Rows = npt.NDArray[np.intp]
Clash = Callable[[Rows, Rows], npt.NDArray[np.bool_]]
"""Whether a place (slot of a caption, or item of style `image`) cannot take what a giver has, element by element."""


@dataclass(frozen=True)
class Captions:
    """The N captions that can move."""

    items: Rows
    """Number of each caption's item."""
    texts: Rows
    """Number of each caption's text; equal texts share it."""
    words: list[str]
    """The text of each caption."""

    @cached_property
    def _own(self) -> tuple[int, Rows]:
        n_texts = int(self.texts.max(initial=-1)) + 1
        return n_texts, np.unique(self.items * n_texts + self.texts)

    def clash(self, place: Rows, giver: Rows) -> npt.NDArray[np.bool_]:
        """Whether a giver belongs to the place's item or has the text of one of its captions, element by element."""
        n_texts, own = self._own
        key = self.items[place] * n_texts + self.texts[giver]  # the item's own captions have their own texts
        same_text = own[np.minimum(np.searchsorted(own, key), len(own) - 1)] == key
        clashes: npt.NDArray[np.bool_] = same_text | (self.items[place] == self.items[giver])
        return clashes

    def exchangeable(self, one: Rows, other: Rows) -> npt.NDArray[np.bool_]:
        """Whether two captions, or their pictures, can change places, element by element."""
        return ~(self.clash(one, other) | self.clash(other, one))


Style = Callable[[Captions, float, np.random.Generator], Rows]
"""Function of captions, ratio and generator that returns the giver of each place: the caption that it gets (N,)."""
STYLES: dict[str, Style] = {}
"""Styles by name."""
TARGETS_OF: dict[str, tuple[str, ...]] = {}
"""What each style can move; the first is the default. Only styles that exchange captions in pairs can move `any`."""


def noise_style(name: str, targets: tuple[str, ...] = TARGETS[:2]) -> Callable[[Style], Style]:
    """Registers a function as a noise style; ValueError if its name has characters other than letters and digits."""
    if problem := registry.bad_name("noise", name):
        raise ValueError(problem)

    def register(function: Style) -> Style:
        STYLES[name], TARGETS_OF[name] = function, targets
        return function

    return register


def mismatch(captions: pd.DataFrame, ratio: float, style: str, target: str | None, seed: int) -> pd.DataFrame:
    """Draws a noise table: one row per source caption of the training split.

    Args:
        captions: Source captions with columns caption_id, item_id, text, in the data set's order.
        ratio: Nominal fraction of mismatched triplets, or items (`image`), 0 to 1.
        style: A name of `STYLES`.
        target: One of the style's targets; None for the first.
        seed: Seed of the draw, independent of any training seed.

    Returns:
        The columns of `artifacts.noise.PAIRS`, or for `words` of `artifacts.noise.PARTLY`. No wrong triplet keeps
        its own item or gets a text that its item has. Exactly floor(ratio * N) are wrong, or fewer if one item or text
        has so many captions that they cannot all move; if captions are exchanged in pairs, the number is even.
    """
    if not 0.0 <= ratio <= 1.0:
        raise no_share("--noise ", ratio)
    target = target_of(style, target)
    rng = np.random.default_rng(derive(seed, "noise", style, target))
    items, _ = pd.factorize(captions["item_id"])
    texts, _ = pd.factorize(captions["text"].str.strip())
    giver = _givers(style)(Captions(items, texts, list(captions["text"])), ratio, rng)
    ids, item_ids = (captions[name].to_numpy(dtype=object) for name in ("caption_id", "item_id"))
    wrong = items[giver] != items
    t, v, s = wrong, np.zeros_like(wrong), wrong & (target == "pair")
    if target == "any":
        kind = _kinds(giver, rng)
        t, v, s = (wrong & (kind == number) for number in range(3))
    drawn = pd.DataFrame(
        {
            "slot_id": ids,
            "given_item_id": np.where(v, item_ids[giver], item_ids),
            "given_source_id": np.where(s, ids[giver], ids),
            "given_translation_of": np.where(t & (style != "words"), ids[giver], ids),
            "vs_wrong": v | s,
            "vt_wrong": v | t,
            "st_wrong": s ^ t,
        }
    )
    if style == "words":
        drawn["words_of"] = [caption if moved else None for caption, moved in zip(ids[giver], wrong, strict=True)]
    return drawn


def _givers(style: str) -> Style:
    """Returns the function of a style; what that of an installed module returns is checked."""
    if style in STYLES:
        return STYLES[style]
    draw: Style = registry.load("noise", style).givers

    def givers(captions: Captions, ratio: float, rng: np.random.Generator) -> Rows:
        size = len(captions.items)
        giver_of = np.asarray(draw(captions, ratio, rng))
        whole = giver_of.shape == (size,) and np.issubdtype(giver_of.dtype, np.integer)
        if not whole or (size and not 0 <= giver_of.min() <= giver_of.max() < size):
            got = f"{giver_of.dtype} of shape {giver_of.shape}"
            problem = f"givers() returned {got}, not the number of a caption (0 to {size - 1}) for each of {size}"
            raise CcrError(f"noise style {style}, {registry.find('noise', style).path}: {problem}")
        return giver_of

    return givers


def _targets(style: str) -> tuple[str, ...]:
    """Returns the targets of an installed module's style."""
    own = tuple(getattr(registry.load("noise", style), "TARGETS", TARGETS[:2]))
    if not own or {*own} - {*TARGETS}:
        raise registry.BrokenError(registry.find("noise", style), f"TARGETS is {own}, expected some of {TARGETS}")
    return own


def target_of(style: str, target: str | None) -> str:
    """Returns the target, by default the style's first; UsageError if either is unknown or they do not fit together."""
    if style not in STYLES and style not in (others := registry.names("noise")):
        styles = [*STYLES, *others]
        hint = f"{did_you_mean(style, styles)}--noise-style {' or '.join(styles)}"
        raise UsageError(f"unknown noise style {style!r}", hint)
    if target is not None and target not in TARGETS:
        raise UsageError(f"unknown noise target {target!r}", hint=f"--noise-target {' or '.join(TARGETS)}")
    known = TARGETS_OF[style] if style in STYLES else _targets(style)
    if target is not None and target not in known:
        problem = f"the noise style {style} moves {' or '.join(known)}, not {target}"
        raise UsageError(problem, hint=f"--noise-target {' or '.join(known)}")
    return target or known[0]


def _kinds(giver: Rows, rng: np.random.Generator) -> Rows:
    """What each place's pair exchanges (N,): 0 translations, 1 pictures, 2 source captions; a third each."""
    place = np.arange(len(giver))
    first = rng.permutation(np.flatnonzero(place < giver))
    kind = np.zeros(len(giver), dtype=np.intp)
    kind[first] = np.arange(len(first)) % 3
    kind[giver[first]] = kind[first]
    return kind


@noise_style("caption")
def _by_caption(captions: Captions, ratio: float, rng: np.random.Generator) -> Rows:
    """Moves captions singly."""
    giver_of = np.arange(len(captions.items))
    chosen, givers = _moved(captions.items, captions.clash, ratio, rng)
    giver_of[chosen] = givers
    return giver_of


@noise_style("image")
def _by_item(captions: Captions, ratio: float, rng: np.random.Generator) -> Rows:
    """Moves all captions of an item together."""
    items, texts = captions.items, captions.texts
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


@noise_style("mixed", targets=("any",))
def _mixed(captions: Captions, ratio: float, rng: np.random.Generator) -> Rows:
    """Exchanges the translations, pictures or captions of random pairs."""
    size = len(captions.items)
    return _exchanged(captions, ratio, rng, lambda places: [rng.integers(size, size=_TRIES) for _ in places])


@noise_style("near", targets=TARGETS)
def _near(captions: Captions, ratio: float, rng: np.random.Generator) -> Rows:
    """Exchanges a caption with one of the nearest (cosine of TF-IDF vectors of words)."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not captions.words:
        return np.arange(0)
    tfidf_NW = TfidfVectorizer(analyzer=NgramTokenizer().words, dtype=np.float32).fit_transform(captions.words)

    def nearest(places: Rows) -> list[Rows]:
        sim_BN = (tfidf_NW[places] @ tfidf_NW.T).toarray()
        return [rng.permutation(fitting(place, sim_N)) for place, sim_N in zip(places, sim_BN, strict=True)]

    def fitting(place: int, sim_N: npt.NDArray[np.float32]) -> Rows:
        for most in (min(_TRIES, len(sim_N)), len(sim_N)):
            least = np.partition(sim_N, -most)[-most]
            order = rng.permutation(np.flatnonzero((sim_N >= least) & (sim_N > 0)))  # ties in random order
            order = order[np.argsort(-sim_N[order], kind="stable")]
            fit = order[captions.exchangeable(np.full(len(order), place), order)]
            if len(fit) >= NEAREST:
                break
        return fit[:NEAREST]

    return _exchanged(captions, ratio, rng, nearest)


@noise_style("words", targets=("translation",))
def _words(captions: Captions, ratio: float, rng: np.random.Generator) -> Rows:
    """Replaces half of a translation's words.

    Returns, for each caption, the one whose translation lends the words.
    """
    return _given(captions, ratio, rng, np.arange(len(captions.items)))


@noise_style("instance")
def _instance(captions: Captions, ratio: float, rng: np.random.Generator) -> Rows:
    """Puts a few captions in many other places too."""
    few = -(-int(ratio * len(captions.items) + 1e-9) // REUSE)
    return _given(captions, ratio, rng, rng.permutation(len(captions.items))[:few])


def _exchanged(
    captions: Captions, ratio: float, rng: np.random.Generator, candidates: Callable[[Rows], list[Rows]]
) -> Rows:
    """Exchanges captions in pairs, in random order, each with its first candidate that has not moved yet."""
    giver_of = np.arange(len(captions.items))
    free = np.ones(len(giver_of), dtype=bool)
    left = int(ratio * len(giver_of) + 1e-9) // 2
    order = rng.permutation(len(giver_of))
    for start in range(0, len(order), _BLOCK):
        places = order[start : start + _BLOCK]
        places = places[free[places]]
        for place, partners in zip(places, candidates(places), strict=True):
            if not left:
                return giver_of
            partners = partners[free[partners] & free[place]]
            partners = partners[captions.exchangeable(np.full(len(partners), place), partners)]
            if len(partners):
                partner = partners[0]
                giver_of[place], giver_of[partner] = partner, place
                free[[place, partner]] = False
                left -= 1
    return giver_of


def _given(captions: Captions, ratio: float, rng: np.random.Generator, sources: Rows) -> Rows:
    """Gives each of some random places a source at random, or any caption that fits if no source does."""
    chosen = rng.permutation(len(captions.items))[: int(ratio * len(captions.items) + 1e-9)]
    givers = chosen.copy()
    for pool in (sources, np.arange(len(captions.items))):
        for _ in range(_TRIES):
            bad = np.flatnonzero(captions.clash(chosen, givers))
            if not len(bad):
                break
            givers[bad] = pool[rng.integers(len(pool), size=len(bad))]
    giver_of = np.arange(len(captions.items))
    giver_of[chosen] = np.where(captions.clash(chosen, givers), chosen, givers)
    return giver_of


def _moved(items: Rows, clash: Clash, ratio: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Returns the chosen places and the giver of each."""
    chosen = _order(items, clash, rng)[: int(ratio * len(items) + 1e-9)]
    return chosen, chosen[_derange(items[chosen], lambda i, j: clash(chosen[i], chosen[j]), rng)]


def _order(items: Rows, clash: Clash, rng: np.random.Generator) -> Rows:
    """Returns the random order in which places are chosen at any ratio, so that the first k can move for any k > 1.

    No item has more than half of the chosen places while others are left, and the first few can all swap.
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
    """Returns the derangement that moves the most places, as a minimum-cost matching in which staying costs one."""
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
