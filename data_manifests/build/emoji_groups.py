"""Which emoji draw one concept, and which split a concept falls into.

A *group* is what remains of an emoji's code points after everything that only varies a concept is taken
away: gender, skin, hair, the direction someone faces, and the colour of an animal or a plant. Items of one
group are never split, so a test picture has no sibling in the training set that differs in gender alone.
"""

from __future__ import annotations

import hashlib

JOINER = "200d"
#: Presentation selector, male and female sign, skin tones, hair, "facing right", black, lime, brown.
MODIFIERS = frozenset(
    [
        *("fe0f", "2642", "2640", "1f3fb", "1f3fc", "1f3fd", "1f3fe", "1f3ff"),
        *("1f9b0", "1f9b1", "1f9b2", "1f9b3", "27a1", "2b1b", "1f7e9", "1f7eb"),
    ]
)
ADULT = "1f9d1"
#: A man and a woman are an adult, a boy and a girl a child, the older ones an older adult.
AGES = {
    "1f468": ADULT,
    "1f469": ADULT,
    "1f466": "1f9d2",
    "1f467": "1f9d2",
    "1f474": "1f9d3",
    "1f475": "1f9d3",
}
FAMILY = "1f46a"
#: Concepts that Unicode drew with several code points; the first of a line names the group.
TWINS = (
    f"{ADULT} 1f471 1f9d4",  # adult: blond hair, beard
    "1f483 1f57a",  # woman, man dancing
    "1f934 1f478 1fac5",  # prince, princess, person with crown
    f"1f385 1f936 {ADULT}-1f384",  # Santa, Mrs. and Mx Claus
    "1f930 1fac3 1fac4",  # pregnant woman, man, person
    f"1f931 {ADULT}-1f37c",  # breast-feeding, feeding a baby
    f"{ADULT}-1f91d-{ADULT} 1f46b 1f46c 1f46d",  # people, woman and man, men, women holding hands
    f"1f48f {ADULT}-2764-1f48b-{ADULT} 1f491 {ADULT}-2764-{ADULT}",  # kiss, couple with heart
    "1f64d 1f64e",  # frowning, pouting: Twemoji draws both alike
    "1f6b9 1f6ba",  # men's room, women's room
    "1f508 1f509 1f50a 1f507",  # speaker at several volumes
    "2603 26c4",  # snowman with and without snow
    "2721 1f52f",  # star of David, dotted six-pointed star
    "1f47f 1f608",  # face with horns, angry and smiling
    "1f512 1f513 1f50f 1f510",  # locked, unlocked, with pen, with key
    "1f4f7 1f4f8",  # camera with and without flash
    "1f947 1f948 1f949 1f3c5",  # 1st, 2nd, 3rd place, sports medal
    "2639 1f641",  # frowning, slightly frowning face
    "1f520 1f521",  # latin letters, upper and lower case
    "1f501 1f502",  # repeat, repeat single
    "1f4e4 1f4e5",  # outbox and inbox tray
    "1f600 1f603 1f604",  # grinning face, with big eyes, with smiling eyes
    "1f617 1f619 1f61a",  # kissing face, with smiling and with closed eyes
    "1f626 1f627",  # frowning face with open mouth, anguished face
    "1f610 1f611",  # neutral, expressionless face
    "25ab 25fd 25fb 2b1c",  # white square in four sizes
    "25aa 25fe 25fc 2b1b",  # black square in four sizes
    "2755 2757",  # exclamation mark, white and red
    "2753 2754",  # question mark, red and white
    " ".join(f"{code:x}" for code in range(0x1F550, 0x1F568)),  # the clock faces
)
_NAMED = {member: line.split()[0] for line in TWINS for member in line.split()}

SALT = "ccr-emoji-split-1:"
TEST_SHARE, VAL_SHARE = 0.22, 0.12
#: Larger groups are training data: their members (families, haircuts, clock faces) look so alike that a
#: query for one of them would be a guess.
LARGEST_HELD_OUT = 8


def item_id(unified: str) -> str:
    """Write the code points as the data set does: lower-case hex, joined by ``-``."""
    return unified.lower()


def group_of(identifier: str) -> str:
    """Return the group of an item, e.g. ``1f9d1-1f692`` for every firefighter.

    Args:
        identifier: Lower-case hex code points joined by ``-``.

    Returns:
        The code points that name the group, written in the same way.
    """
    codes = identifier.split("-")
    kept = [AGES.get(code, code) for code in codes if code != JOINER and code not in MODIFIERS]
    if not kept:  # the modifier is itself the picture: a black square, the male sign
        kept = [code for code in codes if code != "fe0f"]
    people = {ADULT, "1f9d2"}
    name = FAMILY if len(kept) > 1 and set(kept) <= people else "-".join(kept)
    return _NAMED.get(name, name)


def split_of(group: str, size: int) -> str:
    """Choose the split of a group from its name alone, so that new emoji never move the old ones.

    Args:
        group: What `group_of` returned.
        size: How many items it has.
    """
    if size > LARGEST_HELD_OUT:
        return "train"
    share = int(hashlib.sha256((SALT + group).encode()).hexdigest()[:8], 16) / 2**32
    if share < TEST_SHARE:
        return "test"
    return "val" if share < TEST_SHARE + VAL_SHARE else "train"
