"""The server's batches of queries, its metrics, and what it does when the workspace changes."""

from __future__ import annotations

import asyncio
import io
import os
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from fastapi import HTTPException
from toy import Chain

from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.errors import ArtifactError
from ccr_cli.stages.search import server
from ccr_cli.stages.search.options import SearchOptions
from ccr_cli.stages.search.server import Service, application, watch
from ccr_cli.stages.search.server_guard import AccessRules
from ccr_cli.stages.search.server_metrics import Metrics
from ccr_cli.stages.search.stage import Searcher, open_searcher
from ccr_cli.stages.shared.inputs import Inputs

TEXTS = ("círculo rojo", "a blue bar", "estrella verde", "un anillo", "yellow", "cruz", "xyzzy")


def samples(text: str) -> dict[str, float]:
    """Samples of the text format, read by its grammar: every line is a comment or `name{labels} value`."""
    found, kinds = {}, {}
    for line in text.splitlines():
        if line.startswith("#"):
            _, word, name, rest = line.split(" ", 3)
            kinds[name] = rest if word == "TYPE" else ""
            continue
        match = re.fullmatch(r'([a-z_]+)(\{[a-z]+="(?:[^"\\]|\\.)*"(?:,[a-z]+="(?:[^"\\]|\\.)*")*\})? (\S+)', line)
        assert match, line
        assert kinds[re.sub("_(bucket|sum|count)$", "", match[1])] or kinds[match[1]], "its type comes first"
        assert match[1] + (match[2] or "") not in found
        found[match[1] + (match[2] or "")] = float(match[3])
    return found


@pytest.fixture(scope="module")
def searcher(chain: Chain) -> Searcher:
    inputs = Inputs.from_paths(Workspace(chain.root), [str(chain.find("run", "uml").path)])
    return open_searcher(inputs, SearchOptions(device="cpu"))


def together(service: Service, queries: Sequence[tuple[str, int]]) -> list[Any]:
    """Answers or errors of queries that arrive while a search goes on."""

    async def ask() -> Any:
        busy = threading.Event()
        service._search_pool.submit(busy.wait)
        tasks = [asyncio.create_task(service.text(q, None, top)) for q, top in queries]
        await asyncio.sleep(0)
        busy.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    return list(asyncio.run(ask()))


def test_queries_that_wait_are_one_batch_and_answered_as_if_alone(searcher: Searcher) -> None:
    service = Service(searcher)
    queries = [*((q, 5) for q in TEXTS), ("cruz", 3), *((q, 5) for q in TEXTS[:2])]
    answers = together(service, queries)
    batches = samples(service.metrics.text(1, {"version": "1"}))
    assert batches["ccr_batch_queries_count"] == 2, "one for each number of results"
    assert batches["ccr_batch_queries_sum"] == len(queries)
    assert batches['ccr_batch_queries_bucket{le="1"}'] == 1 and batches['ccr_batch_queries_bucket{le="16"}'] == 2
    for (q, top), answer in zip(queries, answers, strict=True):
        single = asyncio.run(service.text(q, None, top))
        assert answer["query"] == q and [hit["item"] for hit in answer["hits"]] == [h["item"] for h in single["hits"]]
        assert [hit["similarity"] for hit in answer["hits"]] == pytest.approx(
            [hit["similarity"] for hit in single["hits"]], abs=2e-6
        )
        assert answer["uncertainty"] == pytest.approx(single["uncertainty"], abs=1e-5)
        assert answer["known"] == single["known"] and len(answer["hits"]) == top


def test_a_query_without_a_vector_leaves_its_batch_alone(searcher: Searcher, monkeypatch: pytest.MonkeyPatch) -> None:
    service, texts = Service(searcher), searcher.texts

    def refusing(queries: Sequence[str], top: int) -> Any:
        if "unread" in queries:
            raise ArtifactError("no vector")
        return texts(queries, top)

    monkeypatch.setattr(searcher, "texts", refusing)
    first, refused, last = together(service, [("cruz", 2), ("unread", 2), ("rojo", 2)])
    assert len(first["hits"]) == len(last["hits"]) == 2
    assert isinstance(refused, HTTPException) and refused.status_code == 422
    monkeypatch.setattr(searcher, "texts", lambda *_: 1 / 0)
    assert [type(each) for each in together(service, [("a", 1), ("b", 1)])] == [ZeroDivisionError] * 2
    monkeypatch.setattr(searcher, "texts", texts)
    assert len(asyncio.run(service.text("cruz", None, 1))["hits"]) == 1, "it goes on"


def test_who_has_gone_is_not_searched_for(searcher: Searcher) -> None:
    service = Service(searcher)

    async def ask() -> Any:
        busy = threading.Event()
        service._search_pool.submit(busy.wait)
        gone, other = (asyncio.create_task(service.text(q, None, 2)) for q in ("gone", "cruz"))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        busy.set()
        return await other

    assert asyncio.run(ask())["query"] == "cruz"
    assert samples(service.metrics.text(1, {"version": "1"}))["ccr_batch_queries_sum"] == 1


def test_metrics_of_requests() -> None:
    metrics = Metrics()
    for path, status, seconds in (("/search", 200, 0.0009), ("/search", 200, 0.001), ("/search", 400, 99.0)):
        metrics.request("GET", path, status, seconds)
    for number in range(50):
        metrics.request(f"M{number}", f"/x{number}", 404, 0.3)
    found = samples(metrics.text(48, {"run": 'a "b"\\c\nd', "version": "1"}))
    assert found['ccr_requests_total{method="GET",path="/search",status="200"}'] == 2
    assert found['ccr_requests_total{method="other",path="other",status="404"}'] == 50
    buckets = {float(k.split('"')[1]): n for k, n in found.items() if k.startswith("ccr_request_seconds_bucket")}
    assert buckets[0.001] == 2 == buckets[0.25] and buckets[0.5] == 52 == buckets[10.0] and buckets[float("inf")] == 53
    assert list(buckets.values()) == sorted(buckets.values()) and found["ccr_request_seconds_count"] == 53
    assert found["ccr_request_seconds_sum"] == pytest.approx(0.0019 + 99 + 50 * 0.3)
    assert found["ccr_entries"] == 48 and found[r'ccr_info{run="a \"b\"\\c\nd",version="1"}'] == 1


def test_an_internal_error_is_counted(searcher: Searcher, monkeypatch: pytest.MonkeyPatch) -> None:
    service, sent = Service(searcher), list[Any]()
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/search",
        "query_string": b"q=a",
        "headers": [(b"host", b"[::1]")],
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    monkeypatch.setattr(searcher, "texts", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # uvicorn writes it down
        asyncio.run(application(service, AccessRules())(scope, receive, send))
    assert sent[0]["status"] == 500 and b"division" not in sent[1]["body"]
    found = samples(service.metrics.text(1, {"version": "1"}))
    assert (
        found['ccr_requests_total{method="GET",path="/search",status="500"}'] == 1 == found["ccr_request_seconds_count"]
    )


def test_a_language_that_is_not_searched_is_refused(chain: Chain) -> None:
    inputs = Inputs.from_paths(Workspace(chain.root), [str(chain.find("run", "uml").path)])

    def found(own: str | None, asked: str | None) -> set[str] | str:
        service = Service(open_searcher(inputs, SearchOptions("captions", own, device="cpu")))
        try:
            return {hit["lang"] for hit in asyncio.run(service.text("rojo", asked, 100))["hits"]}
        except HTTPException as error:
            assert error.status_code == 400
            return str(error.detail)

    assert found(None, None) == {"es", "en"}
    assert found("es", "es") == found("es", None) == {"es"}
    assert found(None, "es") == "captions in all languages are searched: ccr serve --find captions --lang es"
    assert "captions in es are searched" in found("es", "en")
    assert "languages: es, en" in found(None, "fr")


@pytest.mark.parametrize(("kind", "status"), [("IMAGE/PNG", 200), ("image/png", 200), ("text/plain", 415)])
def test_a_media_type_in_any_case(kind: str, status: int, searcher: Searcher) -> None:
    picture, sent = io.BytesIO(), list[Any]()
    toy.draw("red-ring").save(picture, "png")
    headers = [(b"host", b"localhost"), (b"content-type", kind.encode())]
    scope = {"type": "http", "method": "POST", "path": "/search", "query_string": b"", "headers": headers}

    async def receive() -> Any:
        return {"type": "http.request", "body": picture.getvalue()}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(application(Service(searcher), AccessRules())(scope, receive, send))
    assert sent[0]["status"] == status


class Replaced:
    """A searcher of other artifacts; what is not stated is the real one's."""

    def __init__(self, searcher: Searcher, identity: str) -> None:
        self._searcher, self.identity = searcher, (identity,)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._searcher, name)


def test_changes_of_the_workspace_are_served_and_broken_ones_are_not(
    searcher: Searcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Over(BaseException):
        """Ends the watch."""

    def change(number: int) -> None:
        path = tmp_path / "runs" / "a" / "artifact.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, ns=(number, number))

    def fail() -> Any:
        raise ArtifactError("it is damaged")

    service, opened = Service(searcher), []
    openers: list[Callable[[], Any]] = [
        lambda: searcher,
        fail,
        lambda: 1 / 0,
        lambda: Replaced(searcher, "second"),
        lambda: Replaced(searcher, "third"),
    ]

    def reopen() -> Any:
        opened.append(service.searcher.identity)
        return openers[len(opened) - 1]()

    steps = iter("1..2..3..45..6..")  # a digit is a change

    def sleep(_: float) -> None:
        step = next(steps, None)
        if step is None:
            raise Over
        if step != ".":
            change(int(step))

    monkeypatch.setattr(server, "time", type("Clock", (), {"sleep": sleep}))
    change(searcher.opened_ns)
    with pytest.raises(Over):
        watch(service, tmp_path, reopen)
    mine = searcher.identity
    last: tuple[Any, ...] = service.searcher.identity
    assert opened == [mine, mine, mine, mine, ("second",)] and last == ("third",)
    assert service.metrics.reloads == {"loaded": 2, "failed": 2}
    told = capsys.readouterr().err
    assert "it is damaged" in told and "ZeroDivisionError" in told


def test_what_changes_while_the_searcher_is_opened_is_served(
    searcher: Searcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Over(BaseException):
        """Ends the watch."""

    path = tmp_path / "runs" / "a" / "artifact.json"
    path.parent.mkdir(parents=True)
    path.touch()
    os.utime(path, ns=(searcher.opened_ns + 1000,) * 2)
    service, steps = Service(searcher), iter(range(5))

    def sleep(_: float) -> None:
        if next(steps, None) is None:
            raise Over

    monkeypatch.setattr(server, "time", type("Clock", (), {"sleep": sleep}))
    with pytest.raises(Over):
        watch(service, tmp_path, lambda: Replaced(searcher, "second"))  # type: ignore[arg-type, return-value]
    last: tuple[Any, ...] = service.searcher.identity
    assert last == ("second",) and service.metrics.reloads == {"loaded": 1, "failed": 0}


def test_a_picture_whose_name_is_too_long_for_a_file_is_missing(tmp_path: Path) -> None:
    folder, rng, root = toy.toy("long"), np.random.default_rng(0), tmp_path / "workspace"
    long = [item for item in folder.items if item[0].startswith("b")]
    for item in long:
        item[3] = f"{'x' * 300}.png"
    toy.ok("data", "import", folder.write(tmp_path / "long", pictures=False), workspace=root)
    rows: Any = {item[0]: rng.normal(size=(1, 16)).astype("float32") for item in folder.items}
    np.savez(tmp_path / "f.npz", **rows)
    toy.ok("extract", "--from", tmp_path / "f.npz", workspace=root)
    toy.ok("translate", "--lang", "es", workspace=root)
    run = toy.ok("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=root).made
    assert "48 items of 48 without a picture" in toy.ok("export", root / "datasets" / "long", workspace=root).err
    toy.ok("export", run.path, workspace=root)
    opened = open_searcher(Inputs.from_paths(Workspace(root), [str(run.path)]), SearchOptions(split="all"))
    service = Service(opened)
    hits = asyncio.run(service.text("rojo", None, 48))["hits"]
    assert len(hits) == 48 and not any(hit["picture"] for hit in hits)
    with pytest.raises(HTTPException) as refused:
        asyncio.run(service.media(long[0][0]))
    assert refused.value.status_code == 404
