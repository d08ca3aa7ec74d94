"""The providers on the web: how each is reached and what it calls the languages.

DeepL, LibreTranslate, Microsoft Translator and Google Cloud Translation have documented protocols, spoken here. The
others (Google's public page, MyMemory and more) are reached through the classes of the package deep-translator.
"""

from __future__ import annotations

import copy
import difflib
import importlib.util
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import requests

from ccr_cli.translators._http import Connection, Failure
from ccr_cli.translators._languages import iso3, primary, script, usually_written

_GOOGLE_RESULT = re.compile(r'class="(?:t0|result-container)"')
Send = Callable[..., requests.Response]
"""`Connection.send`."""


def _deepl(send: Send, url: str, key: str, text: str, source: str, target: str) -> Any:
    form = {"source_lang": source, "target_lang": target, "text": text}
    reply = send("POST", f"{url}/v2/translate", headers={"Authorization": f"DeepL-Auth-Key {key}"}, data=form)
    return reply.json()["translations"][0]["text"]


def _libretranslate(send: Send, url: str, key: str, text: str, source: str, target: str) -> Any:
    form = {"q": text, "source": source, "target": target, "format": "text", "api_key": key or None}
    return send("POST", f"{url}/translate", data=form).json()["translatedText"]


def _microsoft(send: Send, url: str, key: str, text: str, source: str, target: str) -> Any:
    params = {"api-version": "3.0", "from": source, "to": target}
    headers = {"Ocp-Apim-Subscription-Key": key}
    reply = send("POST", f"{url}/translate", params=params, headers=headers, json=[{"text": text}])
    return reply.json()[0]["translations"][0]["text"]


def _google_cloud(send: Send, url: str, key: str, text: str, source: str, target: str) -> Any:
    body = {"q": text, "source": source, "target": target, "format": "text"}
    reply = send("POST", f"{url}/language/translate/v2", headers={"X-Goog-Api-Key": key}, json=body)
    return reply.json()["data"]["translations"][0]["translatedText"]


@dataclass(frozen=True)
class Provider:
    """A provider and what a user should know of it."""

    title: str
    terms: str
    keys: Mapping[str, str] = field(default_factory=dict)
    """Environment variable by argument of the package's class; one, `api_key`, of a documented service."""
    translator: str = ""
    """Module and class of the package; "" of a documented service."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of each call of the class."""
    url: str = ""
    """Address of a documented service."""
    free_url: str = ""
    """Its address for free keys."""
    codes: str = ""
    """The package's table of its language codes; "" where the service lists its languages itself."""
    ask: Callable[..., Any] | None = None
    """Sends one text to a documented service and returns what the reply holds as its translation."""

    @property
    def lists_languages(self) -> bool:
        """Whether setting the provider up takes a request for its languages."""
        return not self.translator and not self.codes


_GOOGLE = "Google's terms of service; this page of it is no documented interface"
_DEEPL = "DeepL's terms for its API; texts sent with a free key may be kept and used by DeepL"
_LIBRE = "the terms of whoever runs the server; LibreTranslate itself is AGPL-3.0"
_PAPAGO_KEYS = {"client_id": "PAPAGO_CLIENT_ID", "secret_key": "PAPAGO_SECRET_KEY"}
PROVIDERS = {
    "google": Provider("Google Translate", _GOOGLE, translator="google.GoogleTranslator"),
    "deepl": Provider(
        "DeepL",
        _DEEPL,
        {"api_key": "DEEPL_API_KEY"},
        codes="DEEPL_LANGUAGE_TO_CODE",
        ask=_deepl,
        url="https://api.deepl.com",
        free_url="https://api-free.deepl.com",
    ),
    "libretranslate": Provider(
        "LibreTranslate",
        _LIBRE,
        {"api_key": "LIBRE_API_KEY"},
        codes="LIBRE_LANGUAGES_TO_CODES",
        ask=_libretranslate,
        url="https://libretranslate.com",
    ),
    "mymemory": Provider(
        "MyMemory", "MyMemory's terms; it keeps what it is sent", translator="mymemory.MyMemoryTranslator"
    ),
    "microsoft": Provider(
        "Microsoft Translator",
        "Microsoft's terms",
        {"api_key": "MICROSOFT_API_KEY"},
        ask=_microsoft,
        url="https://api.cognitive.microsofttranslator.com",
    ),
    "baidu": Provider(
        "Baidu Translate", "Baidu's terms", {"appid": "BAIDU_APPID", "appkey": "BAIDU_APPKEY"}, "baidu.BaiduTranslator"
    ),
    "yandex": Provider("Yandex Translate", "Yandex's terms", {"api_key": "YANDEX_API_KEY"}, "yandex.YandexTranslator"),
    "papago": Provider("Papago", "Naver's terms", _PAPAGO_KEYS, "papago.PapagoTranslator"),
    "qcri": Provider("QCRI", "QCRI's terms", {"api_key": "QCRI_API_KEY"}, "qcri.QcriTranslator", {"domain": "general"}),
    "google-cloud": Provider(
        "Google Cloud Translation",
        "Google Cloud's terms of service",
        {"api_key": "GOOGLE_CLOUD_API_KEY"},
        url="https://translation.googleapis.com",
        codes="GOOGLE_LANGUAGES_TO_CODES",
        ask=_google_cloud,
    ),
}
"""Those that translate sentences: the package's linguee and pons are dictionaries of words, and its chatgpt calls
what the package openai no longer has."""


class _Requests(threading.local):
    """What a class of deep-translator calls in place of the module `requests`: the connection of the calling thread."""

    connection: Connection

    def get(self, url: str, proxies: None = None, **request: Any) -> requests.Response:
        reply = self.connection.send("GET", url, **request)
        result = _GOOGLE_RESULT.search(reply.text)
        if result and "</div>" not in reply.text[result.start() :]:
            raise Failure("the reply breaks off")  # else half a translation would pass for a whole one
        return reply

    def post(self, url: str, params: Any = None, data: Any = None, proxies: None = None, **request: Any) -> Any:
        # In the body: proxies and servers log URLs.
        return self.connection.send("POST", url, data={**(params or {}), **(data or {})}, **request)


class Service:
    """A provider with its keys, by argument, and the address of the user's own server, if any.

    Its methods may be called from several threads. A class of deep-translator calls `requests.get` and `requests.post`
    without a timeout: it comes from a private copy of its module, in which these send through our client. Its instances
    return translations of other texts when threads share them, so each request has a copy.
    """

    def __init__(self, provider: Provider, keys: Mapping[str, str], url: str) -> None:
        self._provider = provider
        self._key = keys.get("api_key", "")
        self.url = url or (provider.free_url if provider.free_url and self._key.endswith(":fx") else provider.url)
        if provider.translator:
            module, name = provider.translator.split(".")
            spec = importlib.util.find_spec(f"deep_translator.{module}")
            assert spec is not None and spec.loader is not None
            private: Any = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(private)
            self._requests = private.requests = _Requests()
            self._instance = getattr(private, name)(source="auto", target="auto", **keys)
            self.url = self._instance._base_url

    def languages(self, connection: Connection) -> Mapping[str, str]:
        """Returns the codes of languages by English name."""
        import deep_translator.constants

        if self._provider.lists_languages:
            params = {"api-version": "3.0", "scope": "translation"}
            languages = connection.send("GET", f"{self.url}/languages", params=params).json()["translation"]
            return {language["name"].lower(): code.lower() for code, language in languages.items()}
        named = self._provider.codes
        codes: Mapping[str, str] = (
            getattr(deep_translator.constants, named) if named else self._instance.get_supported_languages(as_dict=True)
        )
        return {name: code for code, name in codes.items()} if "en" in codes else codes  # Papago's is inverted

    def translate(self, connection: Connection, text: str, source: str, target: str) -> Any:
        """Sends one text; returns what the reply holds as its translation, which may be anything."""
        from deep_translator.exceptions import NotValidLength

        if self._provider.ask:
            return self._provider.ask(connection.send, self.url, self._key, text, source, target)
        self._requests.connection = connection
        instance = copy.deepcopy(self._instance)
        instance.source, instance.target = source, target
        try:
            translation = instance.translate(text, **self._provider.options)
        except NotValidLength:
            raise Failure(f"{self._provider.title} takes no text of {len(text)} characters", "unsent") from None
        if isinstance(translation, str) and translation.startswith("MYMEMORY WARNING"):
            raise Failure(translation, "fatal")
        return "\n".join(map(str, translation)) if isinstance(translation, list) else translation  # a list: Yandex


# Names of a language that are neither BCP 47 nor ISO 639-3, tried last.
_OLD_CODES = {
    "he": ["iw"], "jv": ["jw"], "no": ["nb"], "nb": ["no"], "tl": ["fil"], "fil": ["tl"],
    "ja": ["jp"], "ro": ["rom"], "sl": ["slo"],
}  # fmt: skip
_CHINESE = {"Hans": ["zh-CN", "zh-Hans", "zh"], "Hant": ["zh-TW", "zh-Hant", "cht"]}


def code_of(lang: str, codes: Mapping[str, str]) -> str | None:
    """Finds a provider's code of a language.

    A region that the provider does not tell apart is left out (`pt-BR` is `pt`), a script is not: traditional
    Chinese is never sent as simplified. Of several regions the one with the shortest English name is the usual one
    (`german` before `austrian german`). `codes` are by English name.
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


def near(lang: str, codes: Mapping[str, str]) -> list[str]:
    """Lists codes that may have been meant: of the same language, else those spelt alike."""
    same = sorted(code for code in codes.values() if primary(code) == primary(lang))
    alike = difflib.get_close_matches(primary(lang), sorted(set(codes.values()) - set(same)), n=5, cutoff=0.4)
    return same + alike or sorted(codes.values())[:5]
