"""A workspace with a diagnosis to review: an Arabic translation with a hostile caption, and a witness."""

from __future__ import annotations

from pathlib import Path

import toy

HOSTILE = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script> \u202e&amp;"
SHOWN = HOSTILE.replace("\u202e", "\ufffd")
ARABIC = dict(red="أحمر", green="أخضر", blue="أزرق", yellow="أصفر", black="أسود", orange="برتقالي")
ARABIC |= dict(purple="بنفسجي", gray="رمادي", circle="دائرة", square="مربع", triangle="مثلث")
ARABIC |= dict(cross="صليب", ring="حلقة", bar="شريط")


def workspace(root: Path) -> Path:
    """Makes the workspace, with a diagnosis of the translation `ar-recorded`; `witness` is another translation."""
    folder = toy.toy()
    table = {}
    for _, item, lang, k, text, _ in folder.captions:
        colour, shape = item.split("-")
        if lang == "en":
            table[text] = (
                f"{ARABIC[shape]} {ARABIC[colour]}" if k == "0" else f"صورة {ARABIC[shape]} لونه {ARABIC[colour]}"
            )
    folder.captions[0][4] = HOSTILE
    table["a picture of one ring that is red"] = (
        f"Foto {ARABIC['bar']} لونه {ARABIC['gray']}"  # begins in Latin, is wrong
    )
    folder.tables["en-ar"] = table | {HOSTILE: HOSTILE}
    toy.ok("data", "import", folder.write(root / "source"), workspace=root)
    toy.ok("translate", "--lang", "ar", workspace=root)
    toy.ok("diagnose", workspace=root)
    return root
