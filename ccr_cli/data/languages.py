"""Language codes: BCP 47 (ccr), ISO 639-3 (Apertium, OPUS-MT), language_Script (NLLB), and those of providers."""

from collections.abc import Mapping

# One entry per language: BCP 47 primary subtag, ISO 639-3 code, script.
_TABLE = """
af afr Latn, am amh Ethi, an arg Latn, ar ara Arab, as asm Beng, ast ast Latn, az aze Latn, ba bak Cyrl,
be bel Cyrl, bg bul Cyrl, bn ben Beng, bo bod Tibt, br bre Latn, bs bos Latn, ca cat Latn, ceb ceb Latn,
cs ces Latn, cy cym Latn, da dan Latn, de deu Latn, el ell Grek, en eng Latn, eo epo Latn, es spa Latn,
et est Latn, eu eus Latn, fa fas Arab, fi fin Latn, fo fao Latn, fr fra Latn, frp frp Latn, fur fur Latn,
ga gle Latn, gd gla Latn, gl glg Latn, gu guj Gujr, ha hau Latn, he heb Hebr, hi hin Deva, hr hrv Latn,
ht hat Latn, hu hun Latn, hy hye Armn, id ind Latn, ig ibo Latn, ilo ilo Latn, is isl Latn, it ita Latn,
ja jpn Jpan, jv jav Latn, ka kat Geor, kk kaz Cyrl, km khm Khmr, kn kan Knda, ko kor Hang, ku kmr Latn,
ky kir Cyrl, lb ltz Latn, lo lao Laoo, lt lit Latn, lv lav Latn, mg mlg Latn, mi mri Latn, mk mkd Cyrl,
ml mal Mlym, mn mon Cyrl, mr mar Deva, ms msa Latn, mt mlt Latn, my mya Mymr, nb nob Latn, ne nep Deva,
nl nld Latn, nn nno Latn, no nor Latn, ny nya Latn, oc oci Latn, or ori Orya, pa pan Guru, pl pol Latn,
ps pus Arab, pt por Latn, ro ron Latn, ru rus Cyrl, sa san Deva, sc srd Latn, scn scn Latn, sd snd Arab,
se sme Latn, sh hbs Latn, si sin Sinh, sk slk Latn, sl slv Latn, sn sna Latn, so som Latn, sq sqi Latn,
sr srp Cyrl, st sot Latn, su sun Latn, sv swe Latn, sw swa Latn, szl szl Latn, ta tam Taml, te tel Telu,
tg tgk Cyrl, th tha Thai, tk tuk Latn, tl tgl Latn, tr tur Latn, tt tat Cyrl, ug uig Arab, uk ukr Cyrl,
ur urd Arab, uz uzb Latn, vi vie Latn, wo wol Latn, xh xho Latn, yi yid Hebr, yo yor Latn, yue yue Hant,
zh zho Hans, zu zul Latn
"""
_ROWS = [tuple(entry.split()) for entry in _TABLE.replace("\n", " ").split(",")]
_ISO3 = {bcp47: iso3 for bcp47, iso3, _ in _ROWS}
_SHORT = {iso3: bcp47 for bcp47, iso3, _ in _ROWS}
_BCP47 = _SHORT | {"zlm": "ms"}
_SCRIPT = {bcp47: script for bcp47, _, script in _ROWS}
# NLLB uses one member of a macrolanguage (arb for Arabic).
_NLLB = {
    "ar": "arb", "az": "azj", "fa": "pes", "lv": "lvs", "mg": "plt", "mn": "khk", "ms": "zsm", "ne": "npi",
    "no": "nob", "or": "ory", "ps": "pbt", "sq": "als", "sw": "swh", "uz": "uzn", "yi": "ydd",
}  # fmt: skip
_TRADITIONAL = {"hant", "tw", "hk", "mo"}


def primary(lang: str) -> str:
    """Returns the primary subtag of BCP 47, in lower case: `pt` for `pt-BR` and `por`."""
    subtag = lang.split("-")[0].lower()
    return _SHORT.get(subtag, subtag)


def usual(tag: str) -> str:
    """Returns a BCP 47 tag in its usual spelling: `es` for `ES` and `spa`, `zh-Hant-TW` for `zh_hant_tw`."""
    first, *others = tag.replace("_", "-").split("-")
    written = [part.title() if len(part) == 4 else part.upper() if len(part) == 2 else part for part in others]
    return "-".join([primary(first), *written])


def iso3(lang: str) -> str:
    """Returns the ISO 639-3 code of a BCP 47 tag; an unknown code is unchanged."""
    return _ISO3.get(primary(lang), primary(lang))


def has_code(code: str) -> bool:
    """Whether a code stands for a known language, not for a family (`roa`, `mul`)."""
    return primary(code) in _ISO3


def bcp47(code: str) -> str:
    """Returns the BCP 47 primary subtag of an ISO 639-3 (or 639-1) code; an unknown code is unchanged."""
    return _BCP47.get(code, code)


def script(lang: str) -> str | None:
    """Returns the script of a tag: from the tag (`zh-Hant`), its region (`zh-TW`), or the usual one."""
    subtags = lang.split("-")[1:]
    named = [tag.title() for tag in subtags if len(tag) == 4 and tag.isalpha()]
    if named:
        return named[0]
    if primary(lang) == "zh" and _TRADITIONAL & {tag.lower() for tag in subtags}:
        return "Hant"
    return _SCRIPT.get(primary(lang))


def usually_written(lang: str) -> bool:
    """Whether a tag has the usual script of its language."""
    return script(lang) == script(primary(lang))


def nllb(lang: str) -> str:
    """Returns the NLLB-200 and FLORES-200 code of a tag, e.g. `deu_Latn`; an unknown language is unchanged."""
    writing = script(lang)
    return f"{_NLLB.get(primary(lang), iso3(lang))}_{writing}" if writing else lang


# Outdated, related or unofficial codes that providers use, tried last.
_OLD_CODES = {
    "he": ["iw"], "jv": ["jw"], "no": ["nb"], "nb": ["no"], "tl": ["fil"], "fil": ["tl"],
    "ja": ["jp"], "ro": ["rom"], "sl": ["slo"],
}  # fmt: skip
_CHINESE = {"Hans": ["zh-CN", "zh-Hans", "zh"], "Hant": ["zh-TW", "zh-Hant", "cht"]}


def code_of(lang: str, codes: Mapping[str, str]) -> str | None:
    """Finds a provider's code for a language; None if it has none.

    A region that the provider does not distinguish is dropped (`pt-BR` becomes `pt`), but a script never is:
    traditional Chinese is not sent as simplified. Among several regions, the one with the shortest English name wins
    (`german` before `austrian german`). `codes` maps English names to codes.
    """
    by_code = {code.lower(): code for _, code in sorted(codes.items(), key=lambda pair: -len(pair[0]))}
    plain, writing = primary(lang), script(lang)
    candidates = [lang]
    if plain == "zh":
        candidates += _CHINESE.get(writing or "", [])
    else:
        candidates.append(f"{plain}-{writing}")
        if usually_written(lang):
            candidates += [plain, iso3(lang), *_OLD_CODES.get(plain, [])]
    for code in candidates:
        if code.lower() in by_code:
            return by_code[code.lower()]
    for code in candidates[1:]:  # with a region, as all of MyMemory's are; the last one has the shortest name
        regional = [name for name in by_code if name.startswith(f"{code.lower()}-")]
        if regional and plain != "zh":
            return by_code[regional[-1]]
    return None
