"""Google, DeepL, LibreTranslate and others on the web; captions are sent there.

`_providers.py` knows how each provider is reached: documented services by their protocols, the others through the
package deep-translator. `_http.py` sends the requests. Keys come from the environment only; no option, artifact or
message holds one.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ccr_cli.console import say
from ccr_cli.errors import CcrError, UnavailableError, UsageError
from ccr_cli.translators._http import Client, Connection, Failure, Limits, masker
from ccr_cli.translators._providers import PROVIDERS, Service, code_of, near
from ccr_cli.translators.base import Translation

_RESUME = "the same command continues where it stopped"
_VARIABLES = [name for provider in PROVIDERS.values() for name in provider.keys.values()]


@dataclass(frozen=True)
class Config(Limits):
    """Options of the engine."""

    provider: str = "google"
    """google, deepl, libretranslate, mymemory, microsoft, baidu, yandex, papago, qcri or google-cloud."""

    url: str = ""
    """Address of your own LibreTranslate server, e.g. http://localhost:5000."""

    source_code: str = ""
    """The provider's code of the source language; made from the BCP 47 tag by default."""

    target_code: str = ""
    """The provider's code of the target language; made from the BCP 47 tag by default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.provider not in PROVIDERS:
            raise ValueError(f"unknown provider {self.provider!r}; choose from {', '.join(PROVIDERS)}")
        if self.url:
            if self.provider != "libretranslate":
                raise ValueError(f"url is an option of libretranslate; {self.provider} has a fixed address")
            if any(mark in self.url for mark in "@?#"):
                variables = ", ".join(_VARIABLES)
                raise ValueError(f"url has no user, password or query: keys come from the environment ({variables})")
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("url must be the address of a server, such as http://localhost:5000")


def identity(config: Config) -> dict[str, Any]:
    """What a request records: the limits by their defaults, since they change no translation."""
    return asdict(Limits())


def pairs(dataset_dir: Path | None) -> None:
    """Unknown without asking a provider."""


def missing() -> tuple[str, str] | None:
    """Tells `ccr doctor` that this engine sends captions away, and which key variables are set."""
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
    """A provider set up for one pair.

    Raises:
        UnavailableError: If the provider needs a key and the environment has none.
        UsageError: If the provider does not know one of the languages.
    """

    def __init__(self, source: str, target: str, config: Config, *, dataset_dir: Path | None, device: str) -> None:
        self.config = config
        self._provider = PROVIDERS[config.provider]
        keys = self._keys()
        self._secrets = {self._provider.keys[argument]: key for argument, key in keys.items()}
        self._service = Service(self._provider, keys, config.url.rstrip("/"))
        self.host = urlsplit(self._service.url).netloc
        self._client = Client(config, masker(self._secrets))
        self._source, self._target = self._codes(source, target)
        self._languages = f"{source} -> {target}"
        self._announced = False
        self._translated = 0

    def translate(self, texts: list[str], known: Collection[int] = ()) -> Iterator[tuple[int, Translation]]:
        """Yields translations as they come, none of `known`; a text without a letter or digit stays as it is.

        Raises:
            UnavailableError: If the provider keeps failing; what was yielded stands.
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
        end = None
        try:
            for position, result in self._client.map(todo, self._ask):
                if isinstance(result, Failure):
                    yield position, Translation(None, error=str(result))
                else:
                    self._translated += 1
                    yield position, Translation(result)
        except Failure as last:
            end = self._error(last)
        if end is not None:
            raise end

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
        """What decides the text: the provider, its server, and its codes of the languages."""
        return {
            "engine": "deep-translator",
            "provider": self.config.provider,
            "server": self.config.url.rstrip("/"),
            "codes": [self._source, self._target],
        }

    def _keys(self) -> dict[str, str]:
        """The keys that are set, by argument of the service."""
        if unset := _unset_variables(self.config):
            own = "; or your own server: --set url=http://localhost:5000" * (self.config.provider == "libretranslate")
            raise UnavailableError(
                f"{self._provider.title} needs a key, and {' and '.join(unset)} is not set",
                hint=f"export {unset[0]}=... in the shell{own}",
            )
        keys = {}
        for argument, variable in self._provider.keys.items():
            if key := os.environ.get(variable, "").strip():
                if not (key.isascii() and key.isprintable()) or " " in key:
                    raise UnavailableError(f"{variable} holds characters that no key has", f"export {variable}=...")
                keys[argument] = key
        return keys

    def _codes(self, source: str, target: str) -> tuple[str, str]:
        """The provider's codes of both languages."""
        title, problem = self._provider.title, ""
        try:
            with closing(self._client.connect()) as connection:
                codes = self._service.languages(connection)
        except Exception as error:  # also a reply of another form, whose words may hold anything
            problem = str(error) if isinstance(error, Failure) else type(error).__name__
        if problem:
            raise UnavailableError(f"{title} does not list its languages: {problem}")
        pair = []
        for lang, code, option in (
            (source, self.config.source_code, "source_code"),
            (target, self.config.target_code, "target_code"),
        ):
            code = code or code_of(lang, codes) or ""
            if not code:
                raise UsageError(
                    f"{title} does not translate {lang}",
                    hint=f"similar: {', '.join(near(lang, codes))}; "
                    f"--set {option}=CODE if the provider has added the language since",
                )
            pair.append(code)
        if pair[0] == pair[1]:
            raise UsageError(
                f"{title} has the same code for {source} and {target}: {pair[0]}",
                hint="--set source_code=CODE or --set target_code=CODE, if it has others",
            )
        return pair[0], pair[1]

    def _ask(self, connection: Connection, text: str) -> str:
        """One translation; a reply without one becomes a Failure in safe words."""
        translation, failure = None, None
        try:
            translation = self._service.translate(connection, text, self._source, self._target)
        except Failure as error:
            failure = Failure(self._client.mask(str(error)), error.kind, error.retry_after)
        except Exception as error:  # a reply of another form; the package's exceptions hold keys and texts
            words = self._client.mask(str(getattr(error, "api_message", "")))
            failure = Failure(f"the reply holds no translation ({words or type(error).__name__})")
        if failure is not None:
            raise failure
        if not isinstance(translation, str) or not translation.strip():
            raise Failure("the reply holds no translation")
        if any(secret in translation for secret in self._secrets.values() if len(secret) > 7):
            raise Failure("the reply holds the key")
        return translation

    def _error(self, last: Failure) -> CcrError:
        """What happened, what is kept, and what to type."""
        provider = f"{self._provider.title} ({self.host})"
        kept = f"{self._translated} translated captions are kept" if self._translated else "nothing is translated yet"
        if last.kind == "unreachable" and last.in_a_row == 1:
            url = self.config.url
            question = f"is the server running at {url}?" if url else "is there a network?"
            return UnavailableError(f"{provider} cannot be reached: {last}; {kept}", hint=f"{question} {_RESUME}")
        if last.kind == "fatal":
            suspects = ["url"] * bool(self.config.url) + list(self._provider.keys.values())
            hint = f"check {' and '.join(suspects)}" if suspects else "--set provider=NAME for another"
            return UnavailableError(f"{provider} refuses requests: {last}; {kept}", hint=f"{hint}; {_RESUME}")
        if (wait := last.retry_after or 0.0) > self.config.max_wait:
            hint = f"wait that long, then {_RESUME}; with --set max_wait=SECONDS ccr waits itself"
            return UnavailableError(f"{provider} asks to wait {wait:.0f} s ({last}); {kept}", hint=hint)
        return UnavailableError(
            f"{provider} failed {last.in_a_row} times in a row, the last time: {last}; {kept}",
            hint=f"wait a while, then {_RESUME}; --set rate=1 sends fewer requests",
        )


def _unset_variables(config: Config) -> list[str]:
    """Variables of keys that are needed and not set; the user's own server may need none."""
    variables = [] if config.url else PROVIDERS[config.provider].keys.values()
    return [name for name in variables if not os.environ.get(name, "").strip()]
