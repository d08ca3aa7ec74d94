"""Google, DeepL, LibreTranslate and others on the web; captions are sent there.

The package deep-translator knows how to ask each provider and how to read its answers. It asks for one text after
the other, with no timeout, no second try and no way to say what went wrong; one instance in two threads gives
answers to other texts. So every thread has an instance of its own, and `_web.py` and `_asking.py` do the rest.

Keys come from the environment alone. They are in no option, no artifact and no message.
"""

from __future__ import annotations

import copy
import importlib.metadata
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ccr_cli.console import say
from ccr_cli.errors import CcrError, UnavailableError, UsageError
from ccr_cli.translators import _providers as providers
from ccr_cli.translators._providers import PROVIDERS
from ccr_cli.translators._requests import Ask, Crowd, Failure, GaveUp, Patience
from ccr_cli.translators._web import Client, asking_with, masker
from ccr_cli.translators.base import Translation

_AGAIN = "the same command goes on where it stopped"


@dataclass(frozen=True)
class Config:
    """Options of the engine."""

    provider: str = "google"
    """google, deepl, libretranslate, mymemory, microsoft, baidu, yandex, papago or qcri."""

    url: str = ""
    """Address of your own LibreTranslate server, e.g. http://localhost:5000."""

    source_code: str = ""
    """The provider's own name of the source language; by default made from the BCP 47 tag."""

    target_code: str = ""
    """The provider's own name of the target language; by default made from the BCP 47 tag."""

    workers: int = 4
    """Requests under way at once."""

    rate: float = 5.0
    """Requests a second, at most."""

    timeout: float = 30.0
    """Seconds that a request may take."""

    retries: int = 5
    """Further tries of a caption."""

    backoff: float = 0.5
    """Seconds before the second try; doubled before each further one, and up to half of it left out by chance."""

    max_wait: float = 300.0
    """Longest wait in seconds that the provider may ask for; if it asks for more, the command ends."""

    breaker: int = 30
    """Failed requests in a row after which the command ends; captions that the provider refuses do not count."""

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: If one of them cannot be.
        """
        if self.provider not in PROVIDERS:
            raise ValueError(f"there is no provider {self.provider!r}; there are {', '.join(PROVIDERS)}")
        if self.url:
            if self.provider != "libretranslate":
                raise ValueError(f"url is for libretranslate; {self.provider} has one address")
            if any(mark in self.url for mark in "@?#"):
                variables = ", ".join(_variables())
                raise ValueError(f"url has no user, password or query: keys come from the environment ({variables})")
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("url is the address of a server, such as http://localhost:5000")
        if min(self.workers, self.breaker) < 1 or self.retries < 0:
            raise ValueError("workers and breaker are at least 1, retries at least 0")
        if min(self.rate, self.timeout) <= 0 or min(self.backoff, self.max_wait) < 0:
            raise ValueError("rate and timeout are greater than 0, backoff and max_wait not less")
        if self.breaker <= self.retries:
            raise ValueError("breaker is greater than retries, else one bad caption ends everything")


def identity(config: Config) -> dict[str, Any]:
    """What a request records: pace and patience by their defaults, since they decide no translation."""
    usual = Config()
    pace = ("workers", "rate", "timeout", "retries", "backoff", "max_wait", "breaker")
    return {name: getattr(usual, name) for name in pace}


def pairs(dataset_dir: Path | None) -> None:
    """Cannot be said without asking a provider."""


def missing() -> tuple[str, str] | None:
    """Says for `ccr doctor` what this engine does with captions, and which variables for keys are set."""
    names = _variables()
    here = ", ".join(name for name in names if os.environ.get(name)) or "none (google needs none)"
    others = ", ".join(name for name in names if not os.environ.get(name)) or "none"
    return f"available; sends captions to a third party; keys set: {here}; not set: {others}", ""


def planned(source: str, target: str, config: Config) -> dict[str, str]:
    """Says who would translate and under which terms; nobody is asked, and a key that is missing is a note."""
    provider = PROVIDERS[config.provider]
    lacking = _lacking(config)
    facts = {"model": config.provider, "licence": provider.terms}
    if lacking:
        facts["warning"] = f"{' and '.join(lacking)} is not set"
    return {**facts, "here": "no" if lacking or provider.asks_first else "yes"}


class Translator:
    """A provider set up for one pair.

    Args:
        source: Language of the texts, BCP 47.
        target: Language of the translations.
        config: Options.
        dataset_dir: Not used.
        device: Not used.

    Raises:
        UnavailableError: If the provider needs a key and the environment has none.
        UsageError: If the provider does not know one of the languages.
    """

    def __init__(self, source: str, target: str, config: Config, *, dataset_dir: Path | None, device: str) -> None:
        self.config = config
        self._provider = PROVIDERS[config.provider]
        keys = {name: os.environ.get(name, "").strip() for name in self._provider.keys.values()}
        self._secrets = {name: key for name, key in keys.items() if key}
        self._mask = masker(self._secrets)
        self._engine = self._made()
        self.host = urlsplit(self._engine._base_url).netloc
        self._engine.source, self._engine.target = self._codes(source, target)
        patience = Patience(
            config.workers, config.rate, config.retries, config.backoff, config.max_wait, config.breaker
        )
        self._crowd = Crowd(patience, self._connected)
        self._languages = f"{source} -> {target}"
        self._told = False
        self._kept = 0

    def translate(self, texts: list[str], known: Collection[int] = ()) -> Iterator[tuple[int, Translation]]:
        """Yields translations as they come, none of `known`; a text without a letter or digit is its own.

        Raises:
            UnavailableError: If the provider is given up; what was yielded stands.
        """
        todo = []
        for position, text in enumerate(texts):
            if position in known:
                continue
            if any(map(str.isalnum, text)):
                todo.append((position, text.strip()))
            else:
                yield position, Translation(text.strip())
        if todo and not self._told:
            self._told = True
            say(f"captions ({self._languages}) are sent to {self._provider.title}: {self.host}")
        end = None
        try:
            for position, found in self._crowd.ask(todo):
                if isinstance(found, Failure):
                    yield position, Translation(None, error=str(found))
                else:
                    self._kept += 1
                    yield position, Translation(found)
        except GaveUp as gave_up:
            end = self._error(gave_up)
        if end is not None:
            raise end

    def describe(self) -> dict[str, str]:
        """Says what translates."""
        return {
            "engine": "deep-translator",
            "model": self.config.provider,
            "version": f"deep-translator {importlib.metadata.version('deep-translator')}",
            "command": f"{self.host}, {self._engine.source} -> {self._engine.target}",
            "licence": self._provider.terms,
        }

    def identity(self) -> dict[str, Any]:
        """What decides the text: the provider, its server, and its names of the languages."""
        return {
            "engine": "deep-translator",
            "provider": self.config.provider,
            "server": self.config.url.rstrip("/"),
            "codes": [self._engine.source, self._engine.target],
        }

    def _made(self) -> Any:
        """An instance of the package's class; the languages are set later, since it knows but its own old list."""
        import deep_translator

        provider, name = self._provider, self.config.provider
        if lacking := _lacking(self.config):
            own = "; or your own server: --set url=http://localhost:5000" if name == "libretranslate" else ""
            raise UnavailableError(
                f"{provider.title} needs a key, and {' and '.join(lacking)} is not set",
                hint=f"export {lacking[0]}=... in the shell{own}",
            )
        for variable, key in self._secrets.items():
            if not (key.isascii() and key.isprintable()) or " " in key:
                raise UnavailableError(f"{variable} holds characters that no key has", hint=f"export {variable}=...")
        arguments: dict[str, Any] = {arg: self._secrets.get(v, "none") for arg, v in provider.keys.items()}
        if name == "deepl":
            arguments["use_free_api"] = arguments["api_key"].endswith(":fx")  # how DeepL marks free keys
        elif name == "libretranslate":
            arguments |= {"use_free_api": False, "custom_url": self.config.url and self.config.url.rstrip("/") + "/"}
        made: Any = getattr(deep_translator, provider.translator)
        engine: Any = None
        failure = ""
        try:
            with self._asking(made):  # Microsoft's class asks which languages there are
                engine = made(source="auto", target="auto", **arguments)
        except Failure as error:
            failure = str(error)
        except Exception as error:  # an answer in which nothing is where it should be
            failure = type(error).__name__
        if failure:
            raise UnavailableError(f"{provider.title} does not say which languages it knows: {failure}")
        if name == "libretranslate" and not self._secrets:
            engine.api_key = None  # the class insists on one; an own server may need none
        return engine

    def _asking(self, made: type) -> Any:
        return asking_with(Client(self.config.timeout, self._mask), sys.modules[made.__module__])

    @contextmanager
    def _connected(self) -> Iterator[Ask]:
        """An instance and connections for one thread."""
        engine = copy.deepcopy(self._engine)
        with self._asking(type(engine)):
            yield lambda text: self._asked(engine, text)

    def _asked(self, engine: Any, text: str) -> str:
        """One translation; every way in which there is none becomes a Failure of our own words."""
        from deep_translator.exceptions import NotValidLength, NotValidPayload

        found, failure = None, None
        try:
            found = engine.translate(text, **self._provider.options)
        except Failure as error:
            failure = error
        except (NotValidLength, NotValidPayload):
            failure = Failure(f"{len(text)} characters are more than {self._provider.title} takes", "unsent")
        except Exception as error:  # the package's, Python's: of answers in which nothing is where it should be
            words = self._mask(str(getattr(error, "api_message", "")))
            failure = Failure(f"the answer holds no translation ({words or type(error).__name__})")
        if failure is not None:
            raise failure
        if isinstance(found, list):  # of Yandex
            found = "\n".join(map(str, found))
        if not isinstance(found, str) or not found.strip():
            raise Failure("the answer holds no translation (nothing)")
        if found.startswith("MYMEMORY WARNING"):
            raise Failure(self._mask(found), "final")
        if any(secret in found for secret in self._secrets.values() if len(secret) > 7):
            raise Failure("the answer holds the key")
        return found

    def _error(self, gave_up: GaveUp) -> CcrError:
        """What happened, what is kept, and what to type."""
        last, who = gave_up.last, f"{self._provider.title} ({self.host})"
        kept = f"{self._kept} captions that it translated are kept" if self._kept else "nothing was translated yet"
        if last.kind == "unreachable" and gave_up.in_a_row == 1:
            url = self.config.url
            asked = f"is the server running at {url}?" if url else "is there a network?"
            return UnavailableError(f"{who} cannot be reached: {last}; {kept}", hint=f"{asked} {_AGAIN}")
        if last.kind == "final":
            suspects = ["url"] * bool(self.config.url) + list(self._provider.keys.values())
            hint = f"check {' and '.join(suspects)}" if suspects else "--set provider=NAME for another"
            return UnavailableError(f"{who} refuses: {last}; {kept}", hint=f"{hint}; {_AGAIN}")
        if (wait := last.retry_after or 0.0) > self.config.max_wait:
            hint = f"wait that long, then {_AGAIN}; --set max_wait=SECONDS waits by itself"
            return UnavailableError(f"{who} asks to wait {wait:.0f} s ({last}); {kept}", hint=hint)
        return UnavailableError(
            f"{who} failed {gave_up.in_a_row} times in a row, the last time: {last}; {kept}",
            hint=f"wait a while, then {_AGAIN}; --set rate=1 asks less often",
        )

    def _codes(self, source: str, target: str) -> tuple[str, str]:
        known = self._engine.get_supported_languages(as_dict=True)
        if "en" in known:  # Papago's table is the other way round
            known = {name: code for code, name in known.items()}
        found = []
        for lang, given, option in (
            (source, self.config.source_code, "source_code"),
            (target, self.config.target_code, "target_code"),
        ):
            code = given or providers.code_of(lang, known)
            if code is None:
                raise UsageError(
                    f"{self._provider.title} has no {lang}",
                    hint=f"near: {', '.join(providers.near(lang, known))}; "
                    f"--set {option}=CODE if it has learned the language since",
                )
            found.append(code)
        if found[0] == found[1]:
            raise UsageError(
                f"{self._provider.title} has one name for {source} and {target}: {found[0]}",
                hint="--set source_code=CODE or --set target_code=CODE, if it has others",
            )
        return found[0], found[1]


def _lacking(config: Config) -> list[str]:
    """Variables of keys that are needed and not set; a server of one's own may need none."""
    variables = [] if config.url else PROVIDERS[config.provider].keys.values()
    return [name for name in variables if not os.environ.get(name, "").strip()]


def _variables() -> list[str]:
    return [name for provider in PROVIDERS.values() for name in provider.keys.values()]
