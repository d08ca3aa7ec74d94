"""One seed, many independent named substreams; and orders that depend on a seed alone."""

import hashlib
from collections.abc import Iterable


def derive(seed: int, *names: str | int) -> int:
    """Derives a 63-bit seed for a named substream, the same on every machine, e.g. `derive(0, "order", 3)`."""
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def shuffled(names: Iterable[str], seed: int) -> list[str]:
    """Sorts names by a hash of seed and name: at random, but the same on every machine and for any order of them."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
