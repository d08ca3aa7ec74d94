"""Recognises the columns of a table by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ccr_cli.data.formats.captions_csv import COLUMNS
from ccr_cli.data.languages import usual
from ccr_cli.errors import UsageError

ALIASES = {
    "media": ("image", "file", "path", "filename", "image_path", "file_name", "img", "photo"),
    "text": ("caption", "description", "title", "sentence", "query"),
    "lang": ("language",),
    "split": ("set", "subset"),
    "item_id": ("id", "item", "sku", "product_id"),
}
"""Other names of columns, the preferred ones first; a column's own name comes before them."""
_KNOWN = {name for ours in COLUMNS for name in (ours, *ALIASES.get(ours, ()))}
_LANGS = (
    "aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo "
    "es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka "
    "kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng "
    "nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su "
    "sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
"""The language codes of ISO 639-1."""
_CODES = {*_LANGS.split()}
_NAMES = {
    name: lang
    for lang, names in {
        "ar": "arabic", "cs": "czech", "de": "german deutsch", "en": "english englisch", "es": "spanish español",
        "fr": "french français französisch", "hi": "hindi", "it": "italian italiano", "ja": "japanese", "ko": "korean",
        "nl": "dutch", "pl": "polish", "pt": "portuguese", "ru": "russian", "tr": "turkish", "uk": "ukrainian",
        "vi": "vietnamese", "zh": "chinese 中文 chinesisch",
    }.items()
    for name in names.split()
}  # fmt: skip
"""Names of languages that headers of spreadsheets have."""
LANG = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*")
"""A language tag."""
MACHINE = "mt"
"""The role of a column of machine translations is `mt.LANG`."""
_MACHINE = {
    MACHINE,
    *["machine", "translated", "translation", "übersetzung", "traducción", "traduction", "翻译", "译文"],
}
"""Words that mark the name of such a column."""
_AUTOMATIC = {"auto", "automatic", "automatique", "automatisch", "automatische", "automática"}
"""Further words of such names; alone, they mark nothing: `auto` may be a car."""
_LANGUAGE = re.compile(
    rf"(?:({'|'.join(['text', *ALIASES['text']])})[ _.-])?"
    rf"(({'|'.join(_NAMES)}|[a-z]{{2}})(?:[_-][a-z0-9]{{2,4}})?)",
    re.IGNORECASE,
)
"""The name of a column of texts in a language: `caption_de`, `title-pt-BR`, `de`, `German`."""


def candidates(names: Sequence[str], chosen: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns the columns that may hold each of `COLUMNS`, the preferred first; only the `chosen` one, if any."""
    free = [name for name in names if name and name not in chosen.values()]
    found = {}
    for ours in COLUMNS:
        known = (ours, *ALIASES.get(ours, ()))
        fitting = [name for alias in known for name in free if name.strip().lower() == alias]
        found[ours] = [chosen[ours]] if ours in chosen else fitting
    return found


def text_columns(names: Sequence[str], chosen: Mapping[str, str]) -> dict[str, str]:
    """Returns the columns of texts with their languages, empty where the name of the column has none.

    In the user's `chosen`, `text` or `text.LANG` may name several columns, separated by commas. Otherwise they are the
    first known column and all named like `caption_de`; if there are none, those whose name is only a language.
    """
    own = [(ours[5:], theirs) for ours, theirs in chosen.items() if ours.partition(".")[0] == "text"]
    if own:
        columns = [(lang, [theirs] if theirs in names else theirs.split(",")) for lang, theirs in own if theirs]
        return {column: lang for lang, several in columns for column in several}
    found = dict.fromkeys(candidates(names, chosen)["text"][:1], "")
    bare: dict[str, str] = {}
    machine = machine_columns(names, chosen)
    for name in (name for name in names if name not in machine):
        match_ = _LANGUAGE.fullmatch(name.strip())
        if match_ and name.strip().lower() not in _KNOWN | {*chosen.values()} and (lang := tag_of(match_[2])):
            (found if match_[1] else bare)[name] = lang
    return found or bare


def machine_columns(names: Sequence[str], chosen: Mapping[str, str]) -> dict[str, str]:
    """Returns the columns of machine translations with their languages: `mt_es`, `Chinese (MT)`, `translation-de`."""
    own = {theirs: ours.partition(".")[2] for ours, theirs in chosen.items() if ours.startswith(f"{MACHINE}.")}
    if own:
        return {theirs: lang for theirs, lang in own.items() if theirs}
    found: dict[str, str] = {}
    for name in names:
        words = re.findall(r"[^\W_]+", name)
        left = [word for word in words if word.lower() not in _MACHINE | _AUTOMATIC | {"text", *ALIASES["text"]}]
        machine = is_machine(name) and name not in chosen.values()
        if machine and (lang := tag_of("-".join(left))) and lang not in found.values():
            found[name] = lang
    return found


def is_machine(name: str) -> bool:
    """Whether the name of a column marks machine translations, whatever their language."""
    return not _MACHINE.isdisjoint(re.findall(r"[^\W_]+", name.lower()))


def tag_of(text: str) -> str:
    """Returns the usual tag of a language, given its code (perhaps with a region) or its name; empty if unknown."""
    first, dash, region = text.replace("_", "-").partition("-")
    lang = _NAMES.get(first.lower(), first.lower() if first.lower() in _CODES else "")
    return usual(lang + dash + region) if lang and LANG.fullmatch(lang + dash + region) else ""


def match(names: Sequence[str], chosen: Mapping[str, str]) -> dict[str, str]:
    """Returns the column of each of `COLUMNS` that a table with these names has; of several texts the first."""
    found = {ours: fitting[0] for ours, fitting in candidates(names, chosen).items() if fitting and fitting[0]}
    texts = list(text_columns(names, chosen))
    return {**found, "text": texts[0]} if texts else found


def role(name: str) -> str:
    """Returns the name in `COLUMNS` of a column, which a user may call by an alias; UsageError if it is unknown.

    A column of texts may name its language (`text.de`); one of machine translations must (`mt.de`).
    """
    name, dot, lang = name.partition(".")
    if name.lower() == MACHINE and LANG.fullmatch(lang):
        return MACHINE + dot + usual(lang)
    for ours in COLUMNS:
        if name.lower() in (ours, *ALIASES.get(ours, ())) and (not dot or (ours == "text" and LANG.fullmatch(lang))):
            return ours + dot + usual(lang)
    hint = f"columns: {', '.join(COLUMNS)}; texts in a language: text.de=YOURS; their translations: mt.de=YOURS"
    raise UsageError(f"--columns {name}{dot}{lang}=…: there is no column {name + dot + lang!r}", hint)


def known(name: str) -> bool:
    """Whether `role` knows a name."""
    return name.partition(".")[0].strip().lower() in _KNOWN | {MACHINE}
