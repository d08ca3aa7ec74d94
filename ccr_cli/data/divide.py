"""Random splits of the user's own data; items that are alike stay together.

Items are alike if they share a caption (ignoring case and spaces) or if their pictures are near-duplicates.

Shape suffixes: N items, H items with a hash, T captions.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.console import counted
from ccr_cli.data.assemble import SPLITS_OTHERWISE
from ccr_cli.data.near_duplicates import Labels, first_of_group, linked, near_groups
from ccr_cli.data.seeds import shuffled
from ccr_cli.errors import ArtifactError

_APART = "this alone does not keep them in one split"
SHARES = {"val": 0.1, "test": 0.1}
"""Shares of the held-out splits; the rest is training data."""
LARGEST = 10
LARGEST_SHARE = 0.02
"""Groups of more than `LARGEST` items and more than this share are not kept together: a caption such as "a product
photo" or a plain white picture says nothing about an item."""


def divided(
    items: pd.DataFrame,
    captions: pd.DataFrame,
    hashes: Sequence[int | None],
    seed: int,
    shares: Mapping[str, float] = SHARES,
) -> tuple[pd.DataFrame, list[str]]:
    """Returns items with `split` and `group` (the first id of the group), and notes about items left apart.

    A hash of seed and group decides, so the order of the items does not matter. Every split gets an item. `captions`
    has `item_id`, `lang` and `text`, and may include other items; `hashes` are those of the items' pictures (None: no
    picture); `shares` are the fractions of the held-out splits.

    Raises:
        ArtifactError: If there are fewer items than splits.
    """
    ids = items["item_id"].to_numpy(dtype=object)
    if len(ids) <= len(shares):
        splits = f"train, {' and '.join(shares)}"
        raise ArtifactError(
            f"{counted(len(ids), 'item')} cannot be divided into {splits}",
            hint=f"name the splits: {SPLITS_OTHERWISE}",
        )
    order_N = np.argsort(ids)  # a group is named after its first item by id, not by row
    first_N, notes = _alike(ids[order_N], captions, [hashes[row] for row in order_N])
    groups = np.empty_like(ids)
    groups[order_N] = ids[order_N][first_N]
    split_of = _fill(groups, seed, shares)
    if len({*split_of.values()}) <= len(shares):
        groups = ids
        notes = [*notes, "the items are too much alike for every split to get whole groups of them, so none are kept"]
        split_of = _fill(groups, seed, shares)
    return items.assign(split=[split_of[group] for group in groups], group=groups), notes


def _fill(groups: npt.NDArray[np.object_], seed: int, shares: Mapping[str, float]) -> dict[str, str]:
    """Returns the split of each group: the held-out splits take what fits into their shares, training the rest."""
    size = pd.Series(groups).value_counts()
    names = shuffled(size.index, seed)
    split_of = dict.fromkeys(names, "train")
    for split, share in shares.items():
        room = max(1, round(share * len(groups)))
        free = [name for name in names if split_of[name] == "train"]
        for name in free:
            if size[name] <= room:
                split_of[name] = split
                room -= size[name]
        if split not in split_of.values() and len(free) > 1:
            split_of[min(free, key=lambda name: size[name])] = split
    return split_of


def _alike(
    ids: npt.NDArray[np.object_], captions: pd.DataFrame, hashes: Sequence[int | None]
) -> tuple[Labels, list[str]]:
    """Returns the first item of the group of each item, (N,), and notes about items that are left apart."""
    number, notes = len(ids), []
    largest = max(LARGEST, int(LARGEST_SHARE * number))
    picture_N, crowded = _pictures(hashes, largest)
    if len(crowded):
        notes.append(f"{len(crowded):,} pictures look alike, such as that of {ids[crowded[0]]!r}; {_APART}")
    row_of = {item: row for row, item in enumerate(ids)}
    row_T = captions["item_id"].map(row_of)
    text_T = captions["lang"] + "\n" + captions["text"].str.casefold().str.split().str.join(" ")
    shared = pd.DataFrame({"row": row_T, "text": text_T}).dropna().drop_duplicates()
    times_T = shared.groupby("text")["row"].transform("size")
    for text, times in shared["text"][times_T > largest].value_counts().items():
        notes.append(f"{times:,} items share the caption {str(text).partition(chr(10))[2][:60]!r}; {_APART}")
    shared = shared[times_T <= largest]
    caption_T, _ = pd.factorize(shared["text"])
    picture = np.arange(number), picture_N
    caption = shared["row"].to_numpy(dtype=np.int64), number + caption_T
    group_N = linked(number + len(caption_T), [picture, caption])[:number]
    chained_N = np.bincount(group_N)[group_N] > largest
    if chained_N.any():
        notes.append(f"{int(chained_N.sum()):,} items share captions or pictures in chains; {_APART}")
    return first_of_group(np.where(chained_N, group_N.max() + 1 + picture_N, group_N)), notes


def _pictures(hashes: Sequence[int | None], largest: int) -> tuple[Labels, Labels]:
    """Returns the first item of each item's group of near-duplicate pictures, (N,), and the items of too large groups.

    Where near-duplicates form a chain of more than `largest` pictures, only equal hashes are grouped.
    """
    first_N = np.arange(len(hashes))
    row_H = np.array([row for row, value in enumerate(hashes) if value is not None], dtype=np.int64)
    if not len(row_H):
        return first_N, row_H
    hash_H = np.array([hashes[row] for row in row_H], dtype=np.uint64)
    _, equal_H = np.unique(hash_H, return_inverse=True)
    group_H = near_groups(hash_H)
    group_H = np.where(np.bincount(group_H)[group_H] > largest, group_H.max() + 1 + equal_H, group_H)
    crowded_H = np.bincount(group_H)[group_H] > largest
    first_N[row_H] = np.where(crowded_H, row_H, row_H[first_of_group(group_H)])
    return first_N, row_H[crowded_H]
