"""Google, DeepL, LibreTranslate and others on the web; captions are sent there.

DeepL, LibreTranslate, Microsoft Translator and Google Cloud Translation have documented protocols, implemented here.
The others (Google's public page, MyMemory and more) are reached through the classes of the package deep-translator.
`_http.py` sends the requests. Keys come from the environment only; no option, artifact or message holds one.
"""

import copy
import importlib.metadata
import importlib.util
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from ccr_cli.console import say
from ccr_cli.data.languages import code_of, primary
from ccr_cli.errors import UnavailableError, UsageError
from ccr_cli.translators._http import (
    Client,
    Connection,
    Failure,
    Limits,
    check_address,
    environment_key,
    masker,
    outage,
)
from ccr_cli.translators.base import Translation

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
    """A translation provider: its name, terms, keys and protocol."""

    title: str
    terms: str
    keys: Mapping[str, str] = field(default_factory=dict)
    """Environment variable by argument of the package's class; of a documented service, only that of `api_key`."""
    translator: str = ""
    """Module and class in the package deep-translator; "" for a documented service."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of each call of the class's `translate`."""
    url: str = ""
    """Address of a documented service."""
    free_url: str = ""
    """Its address for free keys."""
    codes: str = ""
    """The package's table of language codes; "" if the package's class or the service itself lists them."""
    ask: Callable[..., Any] | None = None
    """Sends one text to a documented service and returns the translation in the reply, unchecked."""

    @property
    def lists_languages(self) -> bool:
        """Whether setting up the provider takes a request for its languages."""
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
"""Providers that translate sentences. Of the package's others, linguee and pons are dictionaries of words, and chatgpt
calls functions that the package openai no longer has."""


class _Requests(threading.local):
    """Stands in for the module `requests` in a class of deep-translator; uses the connection of the calling thread."""

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


def _private(provider: Provider, keys: Mapping[str, str]) -> tuple[Any, _Requests]:
    """An instance of a provider's class in deep-translator, and the `_Requests` that sends its requests.

    The class calls `requests.get` and `requests.post` without a timeout, so it is taken from a private copy of its
    module in which these go through ccr's own client.
    """
    module, name = provider.translator.split(".")
    spec = importlib.util.find_spec(f"deep_translator.{module}")
    assert spec is not None and spec.loader is not None
    private: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(private)
    private.requests = _Requests()
    return getattr(private, name)(source="auto", target="auto", **keys), private.requests


_VARIABLES = [name for provider in PROVIDERS.values() for name in provider.keys.values()]


@dataclass(frozen=True)
class Config(Limits):
    """Options of the engine."""

    provider: str = "google"
    """google, deepl, libretranslate, mymemory, microsoft, baidu, yandex, papago, qcri or google-cloud."""

    url: str = ""
    """Address of your own LibreTranslate server, e.g. http://localhost:5000."""

    source_code: str = ""
    """The provider's code for the source language; by default derived from the BCP 47 tag."""

    target_code: str = ""
    """The provider's code for the target language; by default derived from the BCP 47 tag."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.provider not in PROVIDERS:
            raise ValueError(f"unknown provider {self.provider!r}; choose from {', '.join(PROVIDERS)}")
        if self.url:
            if self.provider != "libretranslate":
                raise ValueError(f"url is an option of libretranslate; {self.provider} has a fixed address")
            check_address(self.url, "http://localhost:5000", ", ".join(_VARIABLES))


def identity(config: Config) -> dict[str, Any]:
    """What a request records: the default limits, since limits change no translation."""
    return asdict(Limits())


def missing() -> tuple[str, str] | None:
    """Tells `ccr doctor` that this engine sends captions to a third party, and which key variables are set."""
    present = ", ".join(name for name in _VARIABLES if os.environ.get(name)) or "none (google needs none)"
    absent = ", ".join(name for name in _VARIABLES if not os.environ.get(name)) or "none"
    return f"available; sends captions to a third party; keys set: {present}; not set: {absent}", ""


def planned(source: str, target: str, config: Config) -> dict[str, str]:
    """Names the provider and its terms; sends no request, and a missing key is a warning."""
    provider = PROVIDERS[config.provider]
    unset = _unset_variables(config)
    facts = {"model": config.provider, "licence": provider.terms}
    if unset:
        facts["warning"] = f"{' and '.join(unset)} is not set"
    return {**facts, "here": "no" if unset or provider.lists_languages else "yes"}


class Translator:
    """A provider set up for one language pair.

    Raises:
        UnavailableError: If the environment lacks a key that the provider needs, or its languages cannot be listed.
        UsageError: If the provider does not know one of the languages.
    """

    def __init__(self, source: str, target: str, config: Config, *, dataset_dir: Path | None, device: str) -> None:
        self.config = config
        self._provider = PROVIDERS[config.provider]
        keys = self._keys()
        self._secrets = {self._provider.keys[argument]: key for argument, key in keys.items()}
        self._key = keys.get("api_key", "")
        address = self._provider.free_url if self._key.endswith(":fx") else ""
        self._url = config.url.rstrip("/") or address or self._provider.url
        if self._provider.translator:
            self._instance, self._requests = _private(self._provider, keys)
            self._url = self._instance._base_url
        self.host = urlsplit(self._url).netloc
        self._client = Client(config, masker(self._secrets))
        self._source, self._target = self._codes(source, target)
        self._languages = f"{source} -> {target}"
        self._announced = False
        self._translated = 0

    def translate(self, texts: list[str], known: Collection[int] = ()) -> Iterator[tuple[int, Translation]]:
        """Yields translations as they arrive, except those of `known`; text without a letter or digit stays as it is.

        Raises:
            UnavailableError: If the provider keeps failing; results yielded before that are valid.
        """
        todo = []
        for position, text in enumerate(texts):
            if position in known:
                continue
            if any(map(str.isalnum, text)):
                todo.append((position, text.strip()))
            else:
                yield position, Translation(text.strip())
        if todo and not self._announced:
            self._announced = True
            say(f"captions ({self._languages}) are sent to {self._provider.title}: {self.host}")
        for position, result in self._client.map(todo, self._ask, self._error):
            if isinstance(result, Failure):
                yield position, Translation(None, error=str(result))
            else:
                self._translated += 1
                yield position, Translation(result)

    def describe(self) -> dict[str, str]:
        """Names the provider, its server and its terms."""
        return {
            "engine": "deep-translator",
            "model": self.config.provider,
            "version": f"deep-translator {importlib.metadata.version('deep-translator')}",
            "command": f"{self.host}, {self._source} -> {self._target}",
            "licence": self._provider.terms,
        }

    def identity(self) -> dict[str, Any]:
        """What determines the translations: the provider, its server, and its codes for the languages."""
        return {
            "engine": "deep-translator",
            "provider": self.config.provider,
            "server": self.config.url.rstrip("/"),
            "codes": [self._source, self._target],
        }

    def _keys(self) -> dict[str, str]:
        if unset := _unset_variables(self.config):
            own = "; or your own server: --set url=http://localhost:5000" * (self.config.provider == "libretranslate")
            message = f"{self._provider.title} needs a key, and {' and '.join(unset)} is not set"
            raise UnavailableError(message, hint=f"export {unset[0]}=... in the shell{own}")
        keys = {argument: environment_key(variable) for argument, variable in self._provider.keys.items()}
        return {argument: key for argument, key in keys.items() if key}

    def _codes(self, source: str, target: str) -> tuple[str, str]:
        title, problem = self._provider.title, ""
        try:
            with closing(self._client.connect()) as connection:
                codes = self._listed(connection)
        except Exception as error:  # also a malformed reply, whose text may hold anything
            problem = str(error) if isinstance(error, Failure) else type(error).__name__
        if problem:
            raise UnavailableError(f"{title} does not list its languages: {problem}")
        pair = []
        for lang, option in ((source, "source_code"), (target, "target_code")):
            code = getattr(self.config, option) or code_of(lang, codes)
            if not code:
                same = [known for known in sorted(codes.values()) if primary(known) == primary(lang)]
                hint = f"its codes: {', '.join(same or sorted(codes.values()))}; --set {option}=CODE for a new one"
                raise UsageError(f"{title} does not translate {lang}", hint=hint)
            pair.append(code)
        if pair[0] == pair[1]:
            hint = "--set source_code=CODE or --set target_code=CODE, if it has others"
            raise UsageError(f"{title} has the same code for {source} and {target}: {pair[0]}", hint=hint)
        return pair[0], pair[1]

    def _listed(self, connection: Connection) -> Mapping[str, str]:
        """The provider's language codes, by English name."""
        import deep_translator.constants

        if self._provider.lists_languages:
            params = {"api-version": "3.0", "scope": "translation"}
            languages = connection.send("GET", f"{self._url}/languages", params=params).json()["translation"]
            return {language["name"].lower(): code.lower() for code, language in languages.items()}
        named = self._provider.codes
        codes: Mapping[str, str] = (
            getattr(deep_translator.constants, named) if named else self._instance.get_supported_languages(as_dict=True)
        )
        return {name: code for code, name in codes.items()} if "en" in codes else codes  # Papago's is inverted

    def _ask(self, connection: Connection, text: str) -> str:
        """Translates one text; Failure, with a safe message, if the reply holds no translation."""
        translation, failure = None, None
        try:
            translation = self._reply(connection, text)
        except Failure as error:
            failure = Failure(self._client.mask(str(error)), error.kind, error.retry_after)
        except Exception as error:  # a malformed reply; the package's exceptions hold keys and texts
            words = self._client.mask(str(getattr(error, "api_message", "")))
            failure = Failure(f"the reply holds no translation ({words or type(error).__name__})")
        if failure is not None:
            raise failure
        if not isinstance(translation, str) or not translation.strip():
            raise Failure("the reply holds no translation")
        if any(secret in translation for secret in self._secrets.values() if len(secret) > 7):
            raise Failure("the reply holds the key")
        return translation

    def _reply(self, connection: Connection, text: str) -> Any:
        """Sends one text and returns the translation in the reply, unchecked: it may be anything."""
        from deep_translator.exceptions import NotValidLength

        if self._provider.ask:
            return self._provider.ask(connection.send, self._url, self._key, text, self._source, self._target)
        self._requests.connection = connection
        instance = copy.deepcopy(self._instance)  # shared by threads, it would return translations of other texts
        instance.source, instance.target = self._source, self._target
        try:
            translation = instance.translate(text, **self._provider.options)
        except NotValidLength:
            raise Failure(f"{self._provider.title} takes no text of {len(text)} characters", "unsent") from None
        if isinstance(translation, str) and translation.startswith("MYMEMORY WARNING"):
            raise Failure(translation, "fatal")
        return "\n".join(map(str, translation)) if isinstance(translation, list) else translation  # a list: Yandex

    def _error(self, last: Failure) -> UnavailableError:
        """The error for when the provider keeps failing: what happened, what is kept, and what to type."""
        suspects = ["url"] * bool(self.config.url) + list(self._provider.keys.values())
        remedy = f"check {' and '.join(suspects)}" if suspects else "--set provider=NAME for another"
        provider = f"{self._provider.title} ({self.host})"
        return outage(last, provider, self._translated, self.config, self.config.url, remedy)


def _unset_variables(config: Config) -> list[str]:
    """Key variables that are needed but not set; a user's own server may need no key."""
    variables = [] if config.url else PROVIDERS[config.provider].keys.values()
    return [name for name in variables if not os.environ.get(name, "").strip()]
