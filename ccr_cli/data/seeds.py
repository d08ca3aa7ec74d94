"""One seed, many independent named substreams."""

import hashlib


def derive(seed: int, *names: str | int) -> int:
    """Derives a 63-bit seed for a named substream, the same on every machine, e.g. `derive(0, "order", 3)`."""
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
