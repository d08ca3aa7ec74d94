"""Many texts to one server: pace, retries, the circuit breaker; without a network, and without waiting."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import provider_server
import pytest
from provider_server import Fault

from ccr_cli.translators._http import Client, Connection, Failure, Limits, backoff, masker, seconds_of

Ask = Callable[[str], str]
NOW = datetime(2026, 11, 1, 12, 0, 0, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def limits(**changed: float) -> Limits:
    usual = {"workers": 1, "rate": 1e6, "retries": 2, "backoff": 0.0, "max_wait": 10.0, "breaker": 9}
    return Limits(**{**usual, **changed})  # type: ignore[arg-type]


class Sender:
    """A client whose requests are calls of a function."""

    def __init__(self, ask: Ask, **changed: float) -> None:
        self.client, self._ask = Client(limits(**changed)), ask

    def send(self, texts: list[tuple[int, str]]) -> Iterator[tuple[int, str | Failure]]:
        return self.client.map(texts, lambda connection, text: self._ask(text))


def numbered(count: int) -> list[tuple[int, str]]:
    return [(i, f"text {i}") for i in range(count)]


def failing(*failures: Failure | None) -> tuple[Ask, list[str]]:
    """Fails in turn, None is an answer; then answers. And what it was asked."""
    left, asked = list(failures), []

    def ask(text: str) -> str:
        asked.append(text)
        failure = left.pop(0) if left else None
        if failure is not None:
            raise failure
        return text.upper()

    return ask, asked


def test_turns_are_spread_evenly() -> None:
    clock = Clock()
    client = Client(limits(rate=4.0), clock=clock)
    assert client.take() == 0.0
    assert client.take() == pytest.approx(0.25), "a second one has to wait"
    assert client.take() == pytest.approx(0.25), "and asking takes nothing"
    clock.now += 0.25
    assert client.take() == 0.0
    clock.now += 60.0
    assert client.take() == 0.0 and client.take() > 0.0, "unused turns are not saved up"


def test_a_pause_is_never_shortened() -> None:
    clock = Clock()
    client = Client(limits(rate=4.0), clock=clock)
    client.pause(30.0)
    client.pause(1.0)
    assert client.take() == pytest.approx(30.0)
    clock.now += 30.0
    assert client.take() == 0.0


def test_the_time_limit_covers_the_look_up_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def look_up(*args: object, **options: object) -> None:
        answered.wait(30)
        raise OSError("no such host")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(Failure) as caught:
        Connection(0.2, str).send("GET", "http://nowhere.invalid/")
    answered.set()
    assert caught.value.kind == "temporary" and "0.2 s" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "statuses"),
    {
        "fatal": (401, 403, 404, 451, 456),
        "rejected": (400, 413, 422),
        "busy": (429, 503, 529),
        "temporary": (408, 500),
    }.items(),
)
def test_the_status_decides_whether_another_attempt_may_help(kind: str, statuses: tuple[int, ...]) -> None:
    """A quota that is used up is 403 or 456, which no further attempt would mend."""
    with provider_server.serve() as web:
        for status in statuses:
            web.fails(f"{status}", Fault(status, {"Retry-After": "7"}, '{"message": "no"}'))
            with pytest.raises(Failure) as caught:
                Connection(30.0, str).send("GET", f"{web.url}/m", params={"q": f"{status}", "tl": "es"})
            assert caught.value.kind == kind and f"{status}" in str(caught.value)
            assert (caught.value.retry_after == 7.0) == (kind in ("busy", "temporary"))


def test_backoff_doubles_up_to_a_minute_less_a_random_part() -> None:
    assert [backoff(n, 0.5, 0.0) for n in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 4.0]
    assert [backoff(n, 0.5, 0.0) for n in (8, 500)] == [60.0, 60.0]
    assert backoff(3, 0.5, 0.5) == 1.5 and backoff(3, 0.5, 0.999999) > 1.0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 1.5 ", 1.5),
        ("Sun, 01 Nov 2026 12:01:00 GMT", 60.0),
        ("Sun, 01 Nov 2026 11:00:00 GMT", 0.0),
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1e999", None),
        ("Sun, 1 Nov 99999999999 12:00:00 GMT", None),
    ],
)
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert seconds_of(header, NOW) == seconds


def test_keys_are_masked_however_they_are_written() -> None:
    secret = 'ab/c d+"é'
    mask = masker({"X_KEY": secret})
    for form in (secret, "ab/c%20d%2B%22%C3%A9", "ab%2Fc+d%2B%22%C3%A9", 'ab/c d+\\"\\u00e9'):
        assert mask(f"bad key {form}!") == "bad key [X_KEY]!"
    assert mask("see https://a.example/x?key=1  or\n2") == "see https://a.example/x or 2"
    assert len(mask("x" * 5000)) == 200


@pytest.mark.parametrize("kind", ["temporary", "busy"])
def test_a_text_is_tried_again(kind: str) -> None:
    ask, asked = failing(Failure("a", kind), Failure("b", kind, retry_after=0.0))  # type: ignore[arg-type]
    assert list(Sender(ask).send([(5, "x")])) == [(5, "X")]
    assert asked == ["x"] * 3


def test_a_text_that_keeps_failing_fails_alone() -> None:
    ask, asked = failing(*[Failure(f"no {i}") for i in range(3)])
    found = dict(Sender(ask).send(numbered(3)))
    assert [str(found[0]), found[1], found[2]] == ["no 2", "TEXT 1", "TEXT 2"] and isinstance(found[0], Failure)
    assert asked == ["text 0"] * 3 + ["text 1", "text 2"]


def test_a_refused_text_is_not_tried_again() -> None:
    ask, asked = failing(Failure("no", "rejected"), Failure("too long", "unsent"))
    found = dict(Sender(ask).send(numbered(3)))
    assert [str(found[0]), str(found[1]), found[2]] == ["no", "too long", "TEXT 2"] and len(asked) == 3


def gives_up(found: Iterator[tuple[int, str | Failure]]) -> tuple[list[int], Failure]:
    """The positions that came, and the end."""
    came = []
    with pytest.raises(Failure) as caught:
        for position, _ in found:
            came.append(position)
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    return came, caught.value


def test_so_many_failures_in_a_row_end_it() -> None:
    ask, asked = failing(None, None, *[Failure(f"no {i}") for i in range(20)])
    came, end = gives_up(Sender(ask, retries=2, breaker=7).send(numbered(9)))
    assert came == [0, 1, 2, 3], "two texts, and two whose tries were used up"
    assert (end.in_a_row, str(end)) == (7, "no 6") and len(asked) == 9


def test_an_answer_in_between_begins_a_new_row() -> None:
    ask, _ = failing(*[Failure("no"), Failure("no"), None] * 10)
    assert len(list(Sender(ask, breaker=3).send(numbered(10)))) == 10


@pytest.mark.parametrize("kind", ["unsent", "rejected"])
def test_what_lies_with_the_texts_does_not_count(kind: str) -> None:
    ask, _ = failing(*[Failure("no", kind, retry_after=5000.0)] * 50)  # type: ignore[arg-type]
    found = dict(Sender(ask, breaker=3).send(numbered(51)))
    assert len(found) == 51 and found[50] == "TEXT 50"


def test_a_provider_that_refused_a_text_has_answered() -> None:
    ask, _ = failing(Failure("no", "rejected"), Failure("nobody", "unreachable"))
    assert dict(Sender(ask).send(numbered(2)))[1] == "TEXT 1"


@pytest.mark.parametrize(
    "failure",
    [Failure("no", "fatal"), Failure("nobody", "unreachable"), Failure("wait", "busy", retry_after=11.0)],
    ids=["fatal", "unreachable", "an hour"],
)
def test_what_is_hopeless_ends_it_at_once(failure: Failure) -> None:
    ask, asked = failing(failure)
    came, end = gives_up(Sender(ask).send(numbered(5)))
    assert came == [] and end is failure and end.in_a_row == 1 and asked == ["text 0"]


def test_a_provider_that_has_answered_may_be_out_of_reach_for_a_while() -> None:
    ask, asked = failing(None, Failure("nobody", "unreachable"), Failure("nobody", "unreachable"))
    assert [found for _, found in Sender(ask).send(numbered(2))] == ["TEXT 0", "TEXT 1"] and len(asked) == 4


def test_threads_ask_at_once_and_what_is_under_way_still_comes() -> None:
    gather = threading.Barrier(4)
    ended = threading.Event()

    def ask(text: str) -> str:
        if text in ("text 0", "text 1", "text 2", "text 3"):
            gather.wait(30)
        if text == "text 0":
            ended.set()
            raise Failure("no", "fatal")
        assert ended.wait(30)
        return text.upper()

    came, _ = gives_up(Sender(ask, workers=4).send(numbered(50)))
    assert {1, 2, 3} <= set(came) and len(set(came)) == len(came) and 0 not in came


def test_a_busy_provider_is_left_alone_by_all_threads() -> None:
    begun, go_on, asked = threading.Barrier(2), threading.Event(), []

    def ask(text: str) -> str:
        asked.append(text)
        begun.wait(30)
        if text == "text 0":
            raise Failure("slow down", "busy", retry_after=5000.0)
        assert go_on.wait(30)
        return text.upper()

    asking = Sender(ask, workers=2, max_wait=9999.0)
    results = asking.send(numbered(40))
    first = threading.Thread(target=lambda: asked.append(str(next(results))))
    first.start()
    while not asking.client.take() > 4000.0:
        assert first.is_alive()
    go_on.set()
    first.join(30)
    assert sorted(asked) == ["(1, 'TEXT 1')", "text 0", "text 1"] and asking.client.take() > 4000.0
    results.close()  # type: ignore[attr-defined]


def test_a_busy_provider_is_left_alone_after_the_last_try_too() -> None:
    ask, asked = failing(Failure("slow down", "busy", retry_after=5000.0))
    asking = Sender(ask, retries=0, max_wait=9999.0)
    results = asking.send(numbered(2))
    position, found = next(results)
    assert position == 0 and isinstance(found, Failure) and asked == ["text 0"]
    assert asking.client.take() > 4000.0
    results.close()  # type: ignore[attr-defined]


def test_leaving_early_waits_for_nobody() -> None:
    begun, never = threading.Semaphore(0), threading.Event()

    def ask(text: str) -> str:
        begun.release()
        if text != "text 0":
            never.wait(60)
        return text

    results = Sender(ask, workers=3).send(numbered(9))
    assert next(results) == (0, "text 0")
    results.close()  # type: ignore[attr-defined]
    assert not never.is_set(), "and here we are, while two threads still wait"
    never.set()


def test_a_defect_is_raised_where_it_is_seen() -> None:
    def ask(text: str) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(Sender(ask, workers=2).send(numbered(3)))


def test_each_thread_has_its_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[Connection, set[int]] = {}
    closed: list[Connection] = []

    def ask(connection: Connection, text: str) -> str:
        threads.setdefault(connection, set()).add(threading.get_ident())
        gather.wait(30)
        return text

    class Closing(Connection):
        def close(self) -> None:
            closed.append(self)
            super().close()

    gather = threading.Barrier(3)
    client = Client(limits(workers=3))
    monkeypatch.setattr(client, "connect", lambda: Closing(1.0, str))
    assert len(list(client.map(numbered(30), ask))) == 30
    assert len(threads) == 3 and all(len(owners) == 1 for owners in threads.values())
    assert set(closed) == set(threads)
    assert list(client.map([], ask)) == [] and len(closed) == 3
