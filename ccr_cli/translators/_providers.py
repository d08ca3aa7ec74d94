"""The providers of the package deep-translator, and their names of languages."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ccr_cli.translators._languages import iso3, primary, script, usually_written


@dataclass(frozen=True)
class Provider:
    """A provider of the package."""

    title: str
    translator: str
    """Name of its class."""
    terms: str
    keys: Mapping[str, str] = field(default_factory=dict)
    """Variable of the environment by the class's argument."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of each question."""
    asks_first: bool = False
    """Its class asks which languages there are as soon as it is made."""


PROVIDERS = {
    "google": Provider(
        "Google Translate", "GoogleTranslator", "Google's terms of service; this page of it is no documented interface"
    ),
    "deepl": Provider(
        "DeepL",
        "DeeplTranslator",
        "DeepL's terms for its API; texts sent with a free key may be kept and used by DeepL",
        {"api_key": "DEEPL_API_KEY"},
    ),
    "libretranslate": Provider(
        "LibreTranslate",
        "LibreTranslator",
        "the terms of whoever runs the server; LibreTranslate itself is AGPL-3.0",
        {"api_key": "LIBRE_API_KEY"},
    ),
    "mymemory": Provider("MyMemory", "MyMemoryTranslator", "MyMemory's terms; it keeps what it is sent"),
    "microsoft": Provider(
        "Microsoft Translator",
        "MicrosoftTranslator",
        "Microsoft's terms",
        {"api_key": "MICROSOFT_API_KEY"},
        asks_first=True,
    ),
    "baidu": Provider(
        "Baidu Translate", "BaiduTranslator", "Baidu's terms", {"appid": "BAIDU_APPID", "appkey": "BAIDU_APPKEY"}
    ),
    "yandex": Provider("Yandex Translate", "YandexTranslator", "Yandex's terms", {"api_key": "YANDEX_API_KEY"}),
    "papago": Provider(
        "Papago",
        "PapagoTranslator",
        "Naver's terms",
        {"client_id": "PAPAGO_CLIENT_ID", "secret_key": "PAPAGO_SECRET_KEY"},
    ),
    "qcri": Provider(
        "QCRI", "QcriTranslator", "QCRI's terms", {"api_key": "QCRI_API_KEY"}, options={"domain": "general"}
    ),
}
"""Those that translate sentences. The package's linguee and pons are dictionaries of words, and its chatgpt calls
what the package openai no longer has."""

# Names of a language that are neither BCP 47 nor ISO 639-3, tried last.
_OLD_CODES = {
    "he": ["iw"], "jv": ["jw"], "no": ["nb"], "nb": ["no"], "tl": ["fil"], "fil": ["tl"],
    "ja": ["jp"], "ro": ["rom"], "sl": ["slo"],
}  # fmt: skip
_CHINESE = {"Hans": ["zh-CN", "zh-Hans", "zh"], "Hant": ["zh-TW", "zh-Hant", "cht"]}


def code_of(lang: str, known: Mapping[str, str]) -> str | None:
    """Finds a provider's code of a language.

    A region that the provider does not tell apart is left out (`pt-BR` is `pt`), a script is not: traditional
    Chinese is never sent as simplified. Of several regions the one with the shortest English name is the usual one
    (`german` before `austrian german`).

    Args:
        lang: BCP 47.
        known: The provider's codes by English name.

    Returns:
        The code, or None where it has none.
    """
    by_code = {code.lower(): code for _, code in sorted(known.items(), key=lambda pair: -len(pair[0]))}
    plain, writing = primary(lang), script(lang)
    wanted = [lang]
    if plain == "zh":
        wanted += _CHINESE.get(writing or "", [])
    else:
        wanted.append(f"{plain}-{writing}")
        if usually_written(lang):
            wanted += [plain, iso3(lang), *_OLD_CODES.get(plain, [])]
    for code in wanted:
        if code.lower() in by_code:
            return by_code[code.lower()]
    for code in wanted[1:]:  # with a region, as all of MyMemory's are; the last one has the shortest name
        regional = [each for each in by_code if each.startswith(f"{code.lower()}-")]
        if regional and plain != "zh":
            return by_code[regional[-1]]
    return None


def near(lang: str, known: Mapping[str, str]) -> list[str]:
    """Lists codes that may have been meant: of the same language, else those spelt alike."""
    same = sorted(code for code in known.values() if primary(code) == primary(lang))
    alike = difflib.get_close_matches(primary(lang), sorted(set(known.values()) - set(same)), n=5, cutoff=0.4)
    return same + alike or sorted(known.values())[:5]
