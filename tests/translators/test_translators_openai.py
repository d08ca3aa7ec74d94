"""A chat model behind a server on this machine: its answers, right and wrong, and how the server fails."""
# ruff: noqa: RUF001

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import provider_server as server
import pytest
import toy
from provider_server import Fault, Providers, spanish

from ccr_cli.errors import CcrError, UnavailableError, UsageError
from ccr_cli.stages.shared.options import configure
from ccr_cli.translators import openai as engine
from ccr_cli.translators._http import Failure
from ccr_cli.translators.base import Translation
from ccr_cli.translators.openai import language_name, translation_in

KEY = "sk-0123456789/of+mine=="
DOG = "Un perro grande corre por la playa"
CAPTIONS = ["a dog", "two men on a bench", "a <b>cat</b> & “birds”", "a\nb", "50 % of it: {text} {source}?", "x" * 300]


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Providers]:
    """The server; a proxy that the environment names leads nowhere."""
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    for variable in ("NO_PROXY", "no_proxy", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    with server.serve(KEY) as providers:
        yield providers


def make(web: Providers, source: str = "en", target: str = "es", **options: str) -> engine.Translator:
    usual = {"url": f"{web.url}/v1", "model": "tiny", "rate": "1e9", "backoff": "0", "timeout": "30"}
    config = configure(engine.Config, {**usual, **options}, "engine openai")
    return engine.Translator(source, target, config, dataset_dir=None, device="cpu")


def texts(results: list[Translation]) -> list[str | None]:
    return [result.text for result in results]


def batch_of(*captions: str) -> str:
    """How the server sees a batch."""
    return json.dumps({str(number): caption for number, caption in enumerate(captions, 1)}, ensure_ascii=False)


@pytest.mark.parametrize("batch", ["1", "4", "50"])
def test_each_caption_gets_its_own_translation(batch: str, web: Providers) -> None:
    captions = [f"{caption} number {i}" for i, caption in enumerate(CAPTIONS * 3)]
    translator = make(web, batch=batch, workers="8")
    assert texts(toy.translated(translator, captions)) == [spanish(caption) for caption in captions]
    assert len(web.seen) == -(-len(captions) // int(batch))
    usage = translator.usage(toy.translated(translator, captions))
    seen = web.seen[len(web.seen) // 2 :]
    assert usage["sentences"] == len(captions)
    assert usage["prompt_tokens"] == sum(len(request.form["text"]) + 100 for request in seen), "shares add up"


def test_what_a_request_holds(web: Providers, tmp_path: Path) -> None:
    toy.translated(make(web), ["a dog"])
    sent = web.seen[0].form
    assert (sent["model"], sent["temperature"], sent["seed"], sent["max_tokens"]) == ("tiny", 0.0, 0, 1024)
    (message,) = json.loads(json.dumps(sent["messages"]))
    assert message["role"] == "user" and "from English into Spanish" in message["content"]
    assert "authorization" not in web.seen[0].headers
    mine = tmp_path / "mine.txt"
    mine.write_text("{source}->{target}\n\n{text}\n", encoding="utf-8")
    changed = {"temperature": "none", "seed": "7", "max_tokens": "none", "body": '{"reasoning_effort": "low"}'}
    toy.translated(make(web, target="pt-BR", prompt=str(mine), **changed), ["a {source}"])
    sent = web.seen[1].form
    assert sent["messages"][0]["content"] == "English->Portuguese (pt-BR)\n\na {source}"
    assert (sent["seed"], sent["reasoning_effort"]) == (7, "low") and not sent.keys() & {"temperature", "max_tokens"}


def test_identity_holds_what_decides_the_text(web: Providers, tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("Into {target}: {text}", encoding="utf-8")
    plain, usual = make(web).identity(), engine.Config()
    assert plain["prompt"].startswith("sha256:") and plain["server"] == f"{web.url}/v1"
    own = make(web, prompt=str(mine))
    moved = tmp_path / "moved.txt"
    mine.rename(moved)
    assert own.identity() == make(web, prompt=str(moved)).identity() != plain
    moved.write_text("To {target}: {text}", encoding="utf-8")
    assert make(web, prompt=str(moved)).identity() not in (own.identity(), plain)
    for name, value in (
        ("batch", "2"),
        ("seed", "1"),
        ("temperature", "0.5"),
        ("max_tokens", "9"),
        ("body", '{"k": 1}'),
    ):
        assert make(web, **{name: value}).identity() != plain, name
    for name, value in (("workers", "9"), ("input_price", "2"), ("retries", "1"), ("url", f"{web.url}/v1/")):
        assert make(web, **{name: value}).identity() == plain, name
    recorded = engine.identity(make(web, workers="9", input_price="2", timeout="3").config)
    assert recorded == {name: getattr(usual, name) for name in recorded} | {"url": f"{web.url}/v1"}
    assert engine.identity(make(web, url=f"{web.url}/v1/chat/completions").config) == recorded
    assert engine.identity(own.config.__class__(prompt=str(moved)))["prompt"].startswith("sha256:")


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (DOG, DOG),
        (f"<think>\nThe user wants Spanish.\n\nHere: ...\n</think>\n\n{DOG}", DOG),
        (f"The user wants...</think>{DOG}", DOG),
        (f"<THINKING>a</THINKING><think>b</think> {DOG}\n", DOG),
        (f"Here is the translation:\n\n{DOG}", DOG),
        (f"Here's the Spanish translation of your caption: {DOG}", DOG),
        (f"Sure! Here is the translation:\n\n“{DOG}”", DOG),
        (f"Certainly!\n{DOG}", DOG),
        (f"Translation: {DOG}", DOG),
        (f"**Translation:** {DOG}", DOG),
        (f"**Traducción:**\n{DOG}", DOG),
        (f"Spanish: {DOG}", DOG),
        (f'"{DOG}"', DOG),
        (f"«{DOG}»", DOG),
        (f"**{DOG}**", DOG),
        (f"```\n{DOG}\n```", DOG),
        (f"```text\n{DOG}\n```", DOG),
        (f"{DOG}\n\nNote: I kept the tone.", DOG),
        (f"{DOG}\n\n(Note: “playa” is a beach)\n\nLet me know!", DOG),
        (f"{DOG}: es marrón", f"{DOG}: es marrón"),
        ('"Uno" y "dos" perros corren por la playa', '"Uno" y "dos" perros corren por la playa'),
        ("Una mujer dice: «hola» a todos los niños", "Una mujer dice: «hola» a todos los niños"),
    ],
)
def test_what_surrounds_a_translation_is_removed(answer: str, found: str, web: Providers) -> None:
    web.answers["a big dog"] = answer
    (result,) = toy.translated(make(web), ["a big dog"])
    assert (result.text, result.error) == (found, None)


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("<think>only thoughts</think>", "empty"),
        ("<think>it never ends", "thinking"),
        ("…", "empty"),
        ("I'm sorry, but I can't translate this caption.", "refuses"),
        ("I cannot assist with that request.", "refuses"),
        ("As an AI language model, I do not describe people.", "refuses"),
        ("Lo siento, pero no puedo traducir este texto.", "refuses"),
        ("Desculpe, não posso ajudar", "refuses"),
        ("A big dog is running along the beach", "in en, not es"),
        ("Ein großer Hund läuft mit einem Ball am Strand entlang", "in de, not es"),
        ("一只大狗在沙滩上奔跑", "another script"),
        ("A big dog plays", "A big dog plays"),
        (f"1. {DOG}\n2. {DOG}", "several lines"),
        (f"Option A: {DOG}\n\nOption B: {DOG}", "several lines"),
    ],
)
def test_an_answer_that_is_no_translation_fails_its_caption_alone(answer: str, word: str, web: Providers) -> None:
    web.answers["a big dog plays"] = answer
    good, bad, fine = toy.translated(make(web), ["two men", "a big dog plays", "a tree"])
    assert bad.text is None and word in (bad.error or "")
    assert (good.text, fine.text) == (spanish("two men"), spanish("a tree"))
    assert web.texts().count("a big dog plays") == 1, "the same answer would come again"
    assert bad.tokens == (len("a big dog plays") + 100, len(answer)), "it was paid for"


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"message": {"content": None}}, "empty"),
        ({"message": {"content": None, "refusal": f"Not with {KEY}"}}, "refuses: 'Not with"),
        ({"finish_reason": "content_filter"}, "content filter"),
        ({"finish_reason": "length"}, "max_tokens"),
    ],
)
def test_what_the_server_says_of_an_answer(
    changed: dict[str, object], word: str, web: Providers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    web.chat["bad"] = changed
    bad, good = toy.translated(make(web, key_variable="MY_KEY"), ["bad", "two men"])
    assert bad.text is None and word in (bad.error or "") and KEY not in (bad.error or "")
    assert good.text == spanish("two men") and web.texts().count("bad") == 1


def test_an_answer_in_parts_and_one_without_a_count(web: Providers) -> None:
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": DOG}]
    web.chat |= {"parts": {"message": {"content": parts}}, "uncounted": {"usage": None}}
    translator = make(web, input_price="0.5", output_price="2")
    results = toy.translated(translator, ["parts", "uncounted"])
    assert texts(results) == [DOG, spanish("uncounted")] and results[1].tokens is None
    read, written = results[0].tokens or (0, 0)
    cost = round((0.5 * read + 2 * written) / 1e6, 6)
    assert translator.usage(results) == {
        "sentences": 1, "prompt_tokens": read, "completion_tokens": written, "cost": cost
    }  # fmt: skip
    assert cost > 0 and translator.usage(results[1:]) == {} and "cost" not in make(web).usage(results)


@pytest.mark.parametrize(
    "answer",
    [
        '{"1": "Un perro", "2": "Un gato"}',
        '{"1": "Un perro", "2": "Un gato", "3": "Un pato", "4": "Un oso"}',
        '{"1": "Un perro", "2": "Un gato", "4": "Un oso"}',
        '["Un perro", "Un gato"]',
        '{"1": "Un perro", "2": "Un ga',
        "Un perro, un gato y un pato",
        "I'm sorry, but I can't do that.",
        "",
    ],
)
def test_a_batch_that_is_not_whole_is_sent_one_by_one(
    answer: str, web: Providers, capsys: pytest.CaptureFixture[str]
) -> None:
    captions = ["a dog", "a cat", "a duck"]
    web.answers[batch_of(*captions)] = answer
    results = toy.translated(make(web, batch="3"), [*captions, "a tree"])
    assert texts(results) == [spanish(caption) for caption in [*captions, "a tree"]]
    assert web.texts()[2:] != [] and sorted(web.texts()) == sorted([batch_of(*captions), "a tree", *captions])
    spent = sum(result.tokens[1] for result in results if result.tokens)
    assert spent == len(answer) + sum(len(spanish(caption)) for caption in [*captions, "a tree"]), "both are counted"
    assert "3 captions without a translation in a batch" in capsys.readouterr().err


@pytest.mark.parametrize(
    "answer",
    [
        '{"1": "Un perro marrón", "2": "Un gato"}',
        '["Un perro marrón", "Un gato"]',
        '{"translations": ["Un perro marrón", "Un gato"]}',
        '{"captions": {"1": "Un perro marrón", "2": "Un gato"}}',
        '<think>{"1": "no"}</think>Here is the JSON:\n```json\n{"1": "Un perro marrón", "2": "Un gato"}\n```',
    ],
)
def test_forms_of_a_whole_batch(answer: str, web: Providers) -> None:
    web.answers[batch_of("a dog", "a cat")] = answer
    assert texts(toy.translated(make(web, batch="2"), ["a dog", "a cat"])) == ["Un perro marrón", "Un gato"]
    assert len(web.seen) == 1


def test_only_the_bad_captions_of_a_batch_are_sent_again(web: Providers) -> None:
    captions = ["a dog that runs", "a cat that sleeps", "a duck"]
    web.answers |= {captions[0]: "The dog is running with a cat", captions[2]: "I'm sorry, but I can't"}
    answer = {"1": captions[0], "2": "Un gato que duerme", "3": ""}
    web.answers[batch_of(*captions)] = json.dumps(answer)
    results = toy.translated(make(web, batch="3"), captions)
    assert texts(results) == [None, "Un gato que duerme", None]
    assert "in en" in (results[0].error or "") and "refuses" in (results[2].error or "")
    assert sorted(web.texts()) == sorted([batch_of(*captions), captions[0], captions[2]])


def test_known_captions_keep_their_place_in_a_batch(web: Providers) -> None:
    """A resumed run has the batches of an uninterrupted one; batches of known captions are not sent."""
    captions = ["a", "b", "!", "c", "d", "e"]
    found = dict(make(web, batch="2").translate(captions, known={0, 1, 2, 3}))
    assert found.keys() == {4, 5}
    assert sorted(web.texts()) == sorted([batch_of("c", "d"), "e"])
    assert list(make(web, batch="2").translate(captions, known={*range(6)})) == []


FAULTS = {
    "429": Fault(429, {"Retry-After": "0"}, '{"error": {"message": "Rate limit reached"}}'),
    "500": Fault(500, body='{"error": {"message": "CUDA error"}}'),
    "503": Fault(503, {"Retry-After": "0"}, '{"error": {"message": "Loading model"}}'),
    "reset": Fault(how="reset"),
    "cut": Fault(how="cut"),
    "chunked": Fault(how="chunked"),
    "no body": Fault(200),
    "no JSON": Fault(200, body="<html>502 Bad Gateway</html>"),
    "half of the JSON": Fault(200, body='{"choices": [{"message": {"content": "Un per'),
    "a list": Fault(200, body="[]"),
    "a null": Fault(200, body="null"),
    "no choices": Fault(200, body='{"choices": []}'),
    "no message": Fault(200, body='{"choices": [{"finish_reason": "stop"}]}'),
    "a number": Fault(200, body='{"choices": [{"message": {"content": 5}}]}'),
    "an error": Fault(200, body='{"error": {"message": "upstream is gone"}}'),
    "an error in the choice": Fault(200, body='{"choices": [{"finish_reason": "error", "message": {"content": "x"}}]}'),
}


@pytest.mark.parametrize("batch", ["1", "2"])
def test_a_request_that_fails_is_made_again(batch: str, web: Providers) -> None:
    """Each fails twice in its own way, and is right in the end; the others are sent once."""
    captions = [caption for fault in FAULTS for caption in (f"with {fault}", f"and {fault}")]
    keys = captions[::2] if batch == "1" else [batch_of(*captions[i : i + 2]) for i in range(0, len(captions), 2)]
    for key, fault in zip(keys, FAULTS.values(), strict=True):
        web.fails(key, fault, fault)
    results = toy.translated(make(web, batch=batch, breaker="999"), captions)
    assert texts(results) == [spanish(caption) for caption in captions]
    assert [web.texts().count(key) for key in keys] == [3] * len(FAULTS)
    assert len(web.seen) == 3 * len(FAULTS) + (len(FAULTS) if batch == "1" else 0)


def test_a_stall_fails_its_caption_alone(web: Providers) -> None:
    web.fails("slow", *[Fault(how="headers")] * 9)
    slow, quick = toy.translated(make(web, timeout="0.6", retries="0", workers="1"), ["slow", "quick"])
    assert slow == Translation(None, error="no reply within 0.6 s") and quick.text == spanish("quick")


def test_a_batch_that_stalls_is_sent_one_by_one(web: Providers) -> None:
    web.fails(batch_of("a dog", "a cat"), *[Fault(how="headers")] * 9)
    results = toy.translated(make(web, batch="2", timeout="0.6", retries="0"), ["a dog", "a cat"])
    assert texts(results) == [spanish("a dog"), spanish("a cat")]


def test_retries_used_up_and_a_caption_that_is_too_long(web: Providers) -> None:
    web.fails("bad", *[Fault(500, body=f'{{"error": {{"message": "no {KEY}"}}}}')] * 9)
    web.fails("long", Fault(400, body='{"error": {"message": "maximum context length is 2048 tokens"}}'))
    bad, long, good = toy.translated(make(web, retries="2"), ["bad", "long", "good"])
    assert (bad.error or "").startswith("HTTP 500") and "2048" in (long.error or "") and good.text
    assert [web.texts().count(text) for text in ("bad", "long")] == [3, 1]


def stopped(translator: engine.Translator, captions: list[str]) -> tuple[int, CcrError]:
    """How many results came before the engine gave up, and how it did; no other exception is in its chain."""
    came = 0
    with pytest.raises(UnavailableError) as caught:
        for _, result in translator.translate(captions):
            came += result.text is not None
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    return came, caught.value


def test_a_server_that_fails_and_fails_is_given_up(web: Providers) -> None:
    captions = [f"text {i}" for i in range(20)]
    for text in captions[12:]:
        web.fails(text, *[Fault(503)] * 9)
    came, error = stopped(make(web, workers="1", retries="4", breaker="5"), captions)
    assert came == 12 and "12 translated captions" in error.message and "HTTP 503" in error.message
    assert error.exit_code == 5 and "the same command" in (error.hint or "")


def test_a_model_that_only_gives_unusable_answers_is_given_up(web: Providers) -> None:
    """Before all captions are paid for; but not where others are known already."""
    captions = [f"the dog number {i}" for i in range(2000)]
    web.answers |= dict.fromkeys(captions, "I'm sorry, but I can't help with that.")
    came, error = stopped(make(web, workers="1", retries="0", breaker="7"), captions)
    assert came == 0 and "first 7 captions" in error.message and "refuses" in error.message
    assert len(web.seen) < 1000 and "--set model=NAME" in (error.hint or "")
    for text in captions:
        web.fails(text, Fault(400, body='{"detail": "no such model"}'))
    _, error = stopped(make(web, workers="1", retries="0", breaker="7", model="tiny:1b"), captions)
    assert "HTTP 400: no such model" in error.message and "the server has tiny, big/model:7b" in (error.hint or "")
    web.faults.clear()
    results = dict(make(web, retries="0", breaker="7").translate([*captions[:50], "known"], known={50}))
    assert len(results) == 50 and not any(result.text for result in results.values())


@pytest.mark.parametrize(
    ("options", "fault", "words"),
    [
        ({"model": "huge"}, None, ("model 'huge' not found", "tiny, big/model:7b", "check url and model")),
        ({"url": "/nothing"}, None, ("HTTP 404", "ends in /v1")),
        ({}, Fault(401, body='{"error": {"message": "no key"}}'), ("HTTP 401", "--set key_variable=NAME")),
        ({}, Fault(402, body='{"error": {"message": "no credit"}}'), ("HTTP 402: no credit",)),
        ({}, Fault(429, {"Retry-After": "86400"}), ("86400 s", "max_wait")),
        ({}, Fault(302, {"Location": "http://192.0.2.1/login"}), ("HTTP 302", "192.0.2.1")),
    ],
)
def test_what_no_further_try_would_mend_ends_it(
    options: dict[str, str], fault: Fault | None, words: tuple[str, ...], web: Providers
) -> None:
    if fault:
        web.fails("*", fault)
    url = {"url": web.url + options["url"]} if "url" in options else {}
    came, error = stopped(make(web, workers="1", **{**options, **url}), ["a", "b", "c"])
    assert came == 0 and error.exit_code == 5
    assert all(word in f"{error.message} {error.hint}" for word in words)
    assert [request.method for request in web.seen].count("POST") == 1


def test_a_server_that_is_not_there(web: Providers) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        came, error = stopped(make(web, url=url, backoff="60"), ["a", "b"])
    assert came == 0 and f"is the server running at {url}" in (error.hint or "") and "11434" in (error.hint or "")


def test_without_a_model_the_error_lists_those_of_the_server(web: Providers) -> None:
    with pytest.raises(UsageError) as caught:
        make(web, model="")
    assert "tiny, big/model:7b" in (caught.value.hint or "") and [r.method for r in web.seen] == ["GET"]
    with pytest.raises(UsageError) as caught:
        engine.planned("en", "es", engine.Config(url=web.url))
    assert "--set model=NAME" in (caught.value.hint or "") and len(web.seen) == 1


def test_keys_go_to_the_server_they_are_named_for(web: Providers, monkeypatch: pytest.MonkeyPatch) -> None:
    web.chat_needs_key = True
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    _, error = stopped(make(web), ["a dog"])
    assert "HTTP 401" in error.message and KEY not in error.message, "OpenAI's key is for no other server"
    monkeypatch.setenv("MY_KEY", KEY)
    assert texts(toy.translated(make(web, key_variable="MY_KEY"), ["a dog"])) == [spanish("a dog")]
    monkeypatch.setenv("MY_KEY", "sk-another-key-of-mine")
    _, error = stopped(make(web, key_variable="MY_KEY"), ["a dog"])
    assert "sk-another" not in error.message and "MY_KEY" in (error.hint or "")
    web.chat_needs_key = False
    web.answers["a cat"] = "Un gato con sk-another-key-of-mine"
    (result,) = toy.translated(make(web, key_variable="MY_KEY", retries="0"), ["a cat"])
    assert result == Translation(None, error="the answer holds the key")
    for value in ("", "two words"):
        monkeypatch.setenv("MY_KEY", value)
        with pytest.raises(UnavailableError, match="MY_KEY") as caught:
            make(web, key_variable="MY_KEY")
        assert "export MY_KEY=" in (caught.value.hint or "")
    facts = engine.planned("en", "es", engine.Config(url="https://api.openai.com/v1", model="m"))
    assert facts["here"] == "yes" and "warning" not in facts
    monkeypatch.delenv("OPENAI_API_KEY")
    facts = engine.planned("en", "es", engine.Config(url="https://api.openai.com/v1", model="m"))
    assert facts["here"] == "no" and facts["warning"] == "OPENAI_API_KEY is not set"


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("http://localhost:8000/v1", True),
        ("http://127.0.0.1:8000", True),
        ("http://127.1.2.3/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://0.0.0.0:8000/v1", False),
        ("http://10.0.0.5:8000/v1", False),
        ("http://localhost.example.org/v1", False),
        ("http://gpu-3:8000/v1", False),
        ("https://api.openai.com/v1", False),
    ],
)
def test_addresses_off_this_machine_are_third_parties(
    url: str, is_local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    translator = engine.Translator("en", "es", engine.Config(url=url, model="m"), dataset_dir=None, device="cpu")
    assert ("warning" in translator.describe()) is not is_local


def test_the_recipient_off_this_machine_is_named_before_anything_is_sent(
    web: Providers, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = make(web, url="http://models.invalid/v1", backoff="60")
    came, _ = stopped(translator, ["a dog"])
    shown = capsys.readouterr().err
    assert came == 0 and "captions (en -> es) are sent to models.invalid, unencrypted" in shown
    toy.translated(make(web), ["a dog"])
    assert "are sent to" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "localhost:8000"}, "such as http://localhost:11434/v1"),
        ({"url": f"http://me:{KEY}@localhost/v1"}, "keys come from the environment"),
        ({"url": f"http://localhost/v1?key={KEY}"}, "keys come from the environment"),
        ({"api_key": KEY}, "environment"),
        ({"key_variable": KEY}, "not the key itself"),
        ({"batch": "0"}, "batch"),
        ({"max_tokens": "0"}, "max_tokens"),
        ({"temperature": "-1"}, "temperature"),
        ({"input_price": "-1"}, "prices"),
        ({"body": "{"}, "JSON object, and is '{'"),
        ({"body": "[1]"}, "JSON object"),
        ({"body": '{"stream": true}'}, "must not have stream"),
        ({"tokens": "5"}, "options: backoff, batch"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        configure(engine.Config, options, "engine openai")
    shown = f"{caught.value.message} {caught.value.hint}"
    assert words in shown and KEY not in shown


def test_prompts_that_cannot_be(web: Providers, tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    with pytest.raises(UnavailableError, match=r"mine\.txt"):
        engine.identity(engine.Config(prompt=str(path)))
    for content, times in ((b"Translate!", 0), (b"{text} {text}", 2)):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=f"has it {times} times"):
            make(web, prompt=str(path))
    path.write_bytes(b"\xff{text}")
    with pytest.raises(UnavailableError, match="UTF-8"):
        make(web, prompt=str(path))


@pytest.mark.parametrize(
    ("lang", "name"),
    [
        ("es", "Spanish"),
        ("zh", "Chinese (Simplified)"),
        ("zh-TW", "Chinese (Traditional)"),
        ("pt-BR", "Portuguese (pt-BR)"),
        ("he", "Hebrew"),
        ("tlh", "the language tlh (BCP 47)"),
    ],
)
def test_names_of_languages(lang: str, name: str) -> None:
    assert language_name(lang) == name


def test_many_at_once(web: Providers) -> None:
    """Eight requests wait for each other; one caption is never given the answer of another."""
    web.gather = threading.Barrier(8)
    captions = [f"{i} men" for i in range(64)]
    assert texts(toy.translated(make(web, workers="8"), captions)) == [spanish(caption) for caption in captions]


def test_into_english_and_into_chinese() -> None:
    assert translation_in("A dog on a beach", "Un perro en la playa", "en") == "A dog on a beach"
    assert translation_in("译文：一只狗在跑", "a dog runs", "zh") == "一只狗在跑"
    assert translation_in("Taxi", "Taxi", "de") == "Taxi", "names and loan words stay"
    for answer in ("抱歉，我无法翻译这段文字。", "A dog runs fast", "Собака бежит"):
        with pytest.raises(Failure):
            translation_in(answer, "a dog runs", "zh")
    assert translation_in("抱歉，我们关门了", "sorry, we are closed", "zh") == "抱歉，我们关门了"
    assert translation_in("uno\ndos", "one\ntwo", "es") == "uno\ndos"
