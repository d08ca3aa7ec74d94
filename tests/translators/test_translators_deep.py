"""Providers on the web, spoken to over HTTP on this machine: right answers, wrong ones, none, and keys."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import deep_translator
import provider_server as server
import pytest
import toy
from provider_server import Fault, Providers

from ccr_cli.errors import UnavailableError, UsageError
from ccr_cli.stages.shared.options import configure
from ccr_cli.translators import deep_translator as engine
from ccr_cli.translators.base import Translation
from ccr_cli.translators.deep_translator import PROVIDERS

KEY = "1234abcd-key/of+mine==:fx"
ODD = ["a <b>dog</b> & a cat", "50 % of “it”?", "naïve café 你好", "a\nb", "x" * 400, "?q=1&sl=xx#", "😀 face"]
TESTED = ("google", "deepl", "libretranslate")
"""One of the package, and two documented services."""
FAST = {"rate": "1e9", "backoff": "0", "timeout": "30"}


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Providers]:
    """Providers that all keys of the environment open; no other address is left in the package."""
    with server.serve(KEY) as providers:
        assert set(providers.patched()) < set(deep_translator.constants.BASE_URLS)
        for name in deep_translator.constants.BASE_URLS:
            monkeypatch.setitem(
                deep_translator.constants.BASE_URLS, name, providers.patched().get(name, "http://127.0.0.1:9/")
            )
        for name, addresses in providers.services().items():
            monkeypatch.setitem(PROVIDERS, name, replace(PROVIDERS[name], **addresses))
        for provider in PROVIDERS.values():
            for variable in provider.keys.values():
                monkeypatch.setenv(variable, KEY)
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.delenv(variable, raising=False)
        yield providers


def make(provider: str, source: str = "en", target: str = "es", **options: str) -> engine.Translator:
    config = configure(engine.Config, {"provider": provider, **FAST, **options}, "engine deep-translator")
    return engine.Translator(source, target, config, dataset_dir=None, device="cpu")


def stopped(translator: engine.Translator, texts: list[str]) -> tuple[dict[int, Translation], UnavailableError]:
    """What came before the engine gave up, and how it did; nothing of another exception is in its chain."""
    came = {}
    with pytest.raises(UnavailableError) as caught:
        for position, result in translator.translate(texts):
            came[position] = result
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    return came, caught.value


@pytest.mark.parametrize("provider", PROVIDERS)
def test_answers_are_those_of_the_provider(provider: str, web: Providers) -> None:
    translator = make(provider)
    code = translator.identity()["codes"][1]
    assert toy.translated(translator, ODD) == [Translation(server.translated(text, code)) for text in ODD]
    assert web.texts().count(ODD[0]) == 1 and len(web.seen) == len(ODD) + PROVIDERS[provider].lists_languages
    assert translator.host == web.url.removeprefix("http://")


def test_what_the_engine_says_of_itself(web: Providers) -> None:
    facts = make("deepl", "en", "zh").describe()
    assert (facts["engine"], facts["model"]) == ("deep-translator", "deepl") and "DeepL" in facts["licence"]
    assert facts["version"] == "deep-translator 1.11.4" and facts["command"].endswith("en -> zh")
    assert make("google", "en", "zh").identity() == {
        "engine": "deep-translator",
        "provider": "google",
        "server": "",
        "codes": ["en", "zh-CN"],
    }
    fast, slow = make("google", rate="3", workers="9"), make("google")
    assert fast.identity() == slow.identity() and engine.identity(fast.config) == engine.identity(slow.config)
    assert make("libretranslate", url=f"{web.url}/").identity() == make("libretranslate", url=web.url).identity()
    assert web.seen == [], "nobody was asked"


@pytest.fixture
def busy_threads() -> Iterator[None]:
    """Threads take turns as often as they can: an instance that two of them share asks for the text of the other."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_many_at_once_each_gets_its_own_answer(web: Providers, busy_threads: None) -> None:
    """Eight requests always wait for each other, then all are answered at once."""
    web.gather = threading.Barrier(8)
    texts = [f"text number {i}" for i in range(160)]
    found = toy.translated(make("google", workers="8"), texts)
    assert found == [Translation(server.translated(text, "es")) for text in texts]
    assert web.texts().count(texts[7]) == 1


FAULTS = {
    "429": Fault(429),
    "429, at once": Fault(429, {"Retry-After": "0"}, '{"error": "Slowdown: 5 per 1 minute"}'),
    "429, since long": Fault(429, {"Retry-After": "Sun, 01 Nov 2015 12:00:00 GMT"}),
    "500": Fault(500, body="<html><title>Error 500 (Server Error)!!1</title></html>"),
    "503": Fault(503, {"Retry-After": "0"}),
    "529": Fault(529),
    "reset": Fault(how="reset"),
    "cut": Fault(how="cut"),
    "chunked": Fault(how="chunked"),
    "half": Fault(how="half"),
    "empty": Fault(200),
    "blank": Fault(200, body=" \n "),
    "another page": Fault(200, body="<html><body>Our systems have detected unusual traffic</body></html>"),
    "another object": Fault(200, body='{"status": "ok"}'),
    "a list": Fault(200, body="[1, 2]"),
    "null": Fault(200, body='{"translations": [{"text": null}], "translatedText": null}'),
    "no text": Fault(200, body='{"translations": [{"text": " "}], "translatedText": ""}'),
    "a number": Fault(200, body='{"translations": [{"text": 5}], "translatedText": 5}'),
    "nothing found": Fault(200, body='{"translations": [], "translatedText": []}'),
    "not UTF-8": Fault(200, {"Content-Type": "application/json; charset=nonsense"}, "\udcff"),
}


@pytest.mark.parametrize("provider", TESTED)
def test_a_request_that_fails_is_made_again(provider: str, web: Providers) -> None:
    """Each text fails in its own way, twice, and is right in the end; the others are asked for once."""
    texts = [name for fault in FAULTS for name in (fault, f"no {fault}")]
    for name, fault in FAULTS.items():
        web.fails(name, fault, fault)
    found = toy.translated(make(provider, breaker="999"), texts)
    assert found == [Translation(server.translated(text, "es")) for text in texts]
    counts = {text: web.texts().count(text) for text in texts}
    assert counts == {text: 3 if text in FAULTS else 1 for text in texts}


@pytest.mark.slow
@pytest.mark.parametrize("provider", TESTED)
@pytest.mark.parametrize("how", ["hang", "drip", "headers"])
def test_a_provider_that_hangs_is_left(provider: str, how: str, web: Providers) -> None:
    web.fails("slow", Fault(how=how))
    found = toy.translated(make(provider, timeout="0.6", retries="20", breaker="99"), ["slow", "quick"])
    assert found == [Translation(server.translated(text, "es")) for text in ("slow", "quick")]
    assert web.texts().count("slow") > 1, "it was asked again"
    assert how != "headers" or web.left.wait(30), "and nothing is left open"


def test_a_caption_on_which_a_provider_hangs_fails_alone(web: Providers) -> None:
    web.fails("slow", *[Fault(how="headers")] * 9)
    found = toy.translated(make("google", timeout="0.6", retries="0", workers="1"), ["slow", "quick"])
    assert found == [
        Translation(None, error="no reply within 0.6 s"),
        Translation(server.translated("quick", "es")),
    ]


@pytest.mark.parametrize("provider", TESTED)
def test_a_caption_that_fails_fails_alone(provider: str, web: Providers) -> None:
    web.fails("bad", *[Fault(500)] * 9)
    web.fails("odd", Fault(400, body=f'{{"message": "not {KEY}", "error": "not {KEY}"}}'))
    web.fails("cut", *[Fault(how="half")] * 9)
    found = toy.translated(make(provider, retries="2"), ["good", "bad", "odd", "cut", "fine"])
    variable = next(iter(PROVIDERS[provider].keys.values()), None)
    assert [result.text for result in found] == [
        server.translated("good", "es"), None, None, None, server.translated("fine", "es")
    ]  # fmt: skip
    assert found[1].error == "HTTP 500" and (found[3].error or "").startswith("the reply ")
    if variable:
        assert found[2].error == f"HTTP 400: not [{variable}]"
    assert [web.texts().count(text) for text in ("bad", "odd", "cut")] == [3, 1, 3]


def test_a_reason_that_comes_as_a_success_is_kept(web: Providers) -> None:
    web.fails("bad", Fault(200, body=f'{{"error_code": "54001", "error_msg": "Invalid Sign of {KEY}"}}'))
    bad, fine = toy.translated(make("baidu", retries="0"), ["bad", "fine"])
    assert bad.error is not None and "Invalid Sign of [" in bad.error and KEY not in bad.error
    assert fine.text == server.translated("fine", make("baidu").identity()["codes"][1])


@pytest.mark.parametrize("status", [400, 413])
def test_captions_that_a_provider_refuses_keep_it_from_none_of_the_others(status: int, web: Providers) -> None:
    bad = [f"bad {i}" for i in range(40)]
    for text in bad:
        web.fails(text, Fault(status))
    found = toy.translated(make("google", workers="1"), [*bad, "good"])
    assert [result.error for result in found[:40]] == [f"HTTP {status}"] * 40
    assert found[40] == Translation(server.translated("good", "es")) and len(web.seen) == 41


def test_a_caption_that_is_too_long_is_sent_to_nobody(web: Providers) -> None:
    found = toy.translated(make("google", breaker="6"), ["a dog", *["y" * 5000] * 9, "z" * 4999])
    assert {result.error for result in found[1:10]} == {"Google Translate takes no text of 5000 characters"}
    assert found[0].text and found[10].text and set(web.texts()) == {"a dog", "z" * 4999}


def test_what_needs_no_translation_is_sent_to_nobody(web: Providers) -> None:
    texts = ["", "  ", "!!!", "…", "😀", " ? "]
    assert toy.translated(make("google"), texts) == [Translation(text.strip()) for text in texts]
    assert list(make("google").translate(["a dog", "!", "a cat"], known={0, 1, 2})) == []
    assert web.seen == []
    assert [position for position, _ in make("google").translate(["a dog", "a cat", "a bird"], known={0, 2})] == [1]
    assert web.texts() == ["a cat"]


@pytest.mark.parametrize("provider", TESTED)
def test_a_provider_that_fails_and_fails_is_given_up_and_gone_on_with(
    provider: str, web: Providers, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [f"text {i}" for i in range(30)]
    for text in texts[12:]:
        web.fails(text, *[Fault(503)] * 9)
    translator = make(provider, workers="1", retries="4", breaker="5")
    came, error = stopped(translator, texts)
    assert [came[i].text for i in range(12)] == [server.translated(text, "es") for text in texts[:12]]
    title = PROVIDERS[provider].title
    assert f"{title} ({translator.host}) failed 5 times in a row" in error.message and "HTTP 503" in error.message
    assert "12 translated captions" in error.message and "the same command" in (error.hint or "")
    assert len(web.seen) == 17
    web.faults.clear()
    rest = toy.translated(translator, texts[12:])
    assert [result.text for result in rest] == [server.translated(text, "es") for text in texts[12:]]
    assert capsys.readouterr().err.count(f"captions (en -> es) are sent to {title}: {translator.host}") == 1


@pytest.mark.parametrize(
    ("provider", "fault", "words"),
    [
        ("deepl", Fault(403, body='{"message": "Forbidden"}'), ("HTTP 403: Forbidden", "check DEEPL_API_KEY")),
        ("deepl", Fault(456, body='{"message": "Quota Exceeded"}'), ("HTTP 456: Quota Exceeded",)),
        ("libretranslate", Fault(403, body='{"error": "Invalid API key"}'), ("Invalid API key", "check LIBRE_API_KEY")),
        ("libretranslate", Fault(404), ("HTTP 404",)),
        ("deepl", Fault(401, body='{"error": {"code": 9, "message": "gone"}}'), ("HTTP 401: gone",)),
        ("google", Fault(403, body="[1]"), ("HTTP 403", "--set provider=NAME")),
        ("google", Fault(429, {"Retry-After": "86400"}), ("86400 s", "HTTP 429", "max_wait")),
        ("google", Fault(503, {"Retry-After": "Fri, 01 Nov 2999 12:00:00 GMT"}), ("HTTP 503", "max_wait")),
        ("google", Fault(302, {"Location": "https://www.google.com/sorry/index?q=x"}), ("www.google.com",)),
        ("mymemory", Fault(200, body='{"responseData": {"translatedText": "MYMEMORY WARNING: ALL USED"}}'), ("ALL U",)),
    ],
)
def test_what_no_further_try_would_mend_ends_it(
    provider: str, fault: Fault, words: tuple[str, ...], web: Providers
) -> None:
    web.fails("*", fault)
    came, error = stopped(make(provider, workers="1"), ["a", "b", "c"])
    assert came == {} and len(web.seen) == 1 and "kept" not in error.message
    for word in words:
        assert word in f"{error.message} {error.hint}"


def test_a_server_that_is_not_there_is_said_at_once(web: Providers) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        came, error = stopped(make("libretranslate", url=url, backoff="60"), ["a", "b"])
    assert came == {} and "NewConnectionError" in error.message
    assert f"{url}?" in (error.hint or "")


def test_a_provider_out_of_reach(web: Providers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(deep_translator.constants.BASE_URLS, "GOOGLE_TRANSLATE", "http://127.0.0.1:9/m")
    came, error = stopped(make("google", backoff="60"), ["a", "b"])
    assert came == {} and "network" in (error.hint or "")


@pytest.mark.parametrize("url", ["http://localhost:99999", "http://localhost:port", "http://a b"])
def test_an_address_that_is_none_is_asked_once(url: str, web: Providers) -> None:
    came, error = stopped(make("libretranslate", url=url, backoff="60"), ["a", "b"])
    assert came == {} and "address" in error.message and "check url" in (error.hint or "")


def test_a_provider_that_is_asked_for_its_languages_first(web: Providers, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make("microsoft", "en", "zh").identity()["codes"] == ["en", "zh-hans"]
    address = replace(PROVIDERS["microsoft"], url="https://provider.invalid")
    monkeypatch.setitem(PROVIDERS, "microsoft", address)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    with pytest.raises(UnavailableError) as caught:
        make("microsoft")
    assert "Microsoft Translator" in caught.value.message and "ProxyError" in caught.value.message


def test_texts_and_keys_go_nowhere_else(web: Providers) -> None:
    with server.serve(KEY) as elsewhere:
        for status in (301, 302, 307, 308):
            web.faults = {}
            web.fails("*", Fault(status, {"Location": f"{elsewhere.url}/translate?api_key={KEY}"}))
            _, error = stopped(make("libretranslate", workers="1"), ["a"])
            assert elsewhere.url.removeprefix("http://") in error.message and KEY not in error.message
        assert elsewhere.seen == []


def test_keys_are_sent_as_the_providers_want_them(
    web: Providers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepL's in a header, LibreTranslate's in the body; none in a URL; and no password of ~/.netrc anywhere."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password netrc-password\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for provider in TESTED:
        assert toy.translated(make(provider), ["a dog"]) == [Translation(server.translated("a dog", "es"))]
    google, deepl, libre = web.seen
    assert (deepl.headers["authorization"], deepl.url) == (f"DeepL-Auth-Key {KEY}", "/deepl-free/v2/translate")
    assert (libre.form["api_key"], libre.url) == (KEY, "/translate")
    assert "authorization" not in google.headers | libre.headers and "cookie" not in google.headers
    web.key = KEY.removesuffix(":fx")
    monkeypatch.setenv("DEEPL_API_KEY", web.key)
    assert toy.translated(make("deepl"), ["a dog"]) == [Translation(server.translated("a dog", "es"))]
    assert web.seen[-1].url == "/deepl-pro/v2/translate", "a key that is not free has another address"


def test_a_server_of_ones_own_needs_no_key(web: Providers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIBRE_API_KEY")
    translator = make("libretranslate", url=web.url, target="nl", target_code="nl")
    assert toy.translated(translator, ["a dog"]) == [Translation(server.translated("a dog", "nl"))]
    assert "api_key" not in web.seen[0].form
    web.libre_needs_key = True
    came, error = stopped(make("libretranslate", url=web.url), ["a", "b", "c"])
    assert came == {} and "to get an API key" in error.message and "LIBRE_API_KEY" in (error.hint or "")
    web.libre_needs_key = False
    came, error = stopped(make("libretranslate", url=web.url, target="nl", target_code="xx"), ["a", "b"])
    assert came == {} and "HTTP 400: xx is not supported" in error.message


@pytest.mark.parametrize("provider", [name for name, provider in PROVIDERS.items() if provider.keys])
def test_a_key_that_is_missing_is_named(provider: str, web: Providers, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = next(iter(PROVIDERS[provider].keys.values()))
    monkeypatch.delenv(variable)
    with pytest.raises(UnavailableError, match=variable) as caught:
        make(provider)
    assert f"export {variable}=" in (caught.value.hint or "") and web.seen == []


@pytest.mark.parametrize("key", ["two\nlines-of-a-key", "ключ-secret-part", "a key with spaces"])
def test_a_key_that_is_none_is_not_repeated(key: str, web: Providers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPL_API_KEY", key)
    with pytest.raises(UnavailableError) as caught:
        make("deepl")
    assert caught.value.message == "DEEPL_API_KEY holds characters that no key has" and web.seen == []


def test_an_answer_that_holds_the_key_is_no_translation(web: Providers) -> None:
    for text in ("a", "b"):
        web.fails(text, *[Fault(200, body=f'{{"translatedText": "dear {KEY}"}}')] * 9)
    found = toy.translated(make("libretranslate", retries="1"), ["a", "b"])
    assert [result.error for result in found] == ["the reply holds the key"] * 2


@pytest.mark.parametrize(
    ("provider", "source", "target", "words"),
    [
        ("deepl", "en", "zh-Hant", ("DeepL", "zh-Hant", ": zh", "target_code=CODE")),
        ("google", "tlh", "es", ("Google Translate", "tlh", "source_code=CODE")),
        ("google", "pt-BR", "pt-PT", ("pt-BR and pt-PT: pt",)),
    ],
)
def test_a_language_that_the_provider_has_not(
    provider: str, source: str, target: str, words: tuple[str, ...], web: Providers
) -> None:
    with pytest.raises(UsageError) as caught:
        make(provider, source, target)
    for word in words:
        assert word in f"{caught.value.message} {caught.value.hint}"
