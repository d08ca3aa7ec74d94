"""`ccr serve` over loopback: what it answers, and what it refuses to those who mean harm."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import toy
from fastapi import HTTPException
from PIL import Image
from rows import in_npz
from served import Reply, Server
from toy import Chain

from ccr_cli.artifacts import dataset
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.stages.search.options import SearchOptions
from ccr_cli.stages.search.server import MOST_PIXELS, Service
from ccr_cli.stages.search.stage import open_searcher
from ccr_cli.stages.shared.inputs import Inputs

pytestmark = pytest.mark.slow
CPU = ("--device", "cpu")
SHAPES = ("círculo", "barra", "anillo", "cruz")
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \u202e'\"&"
ODD = "red-circle/../&x=1 <i>%2e#?"
"""An item's name, which must come back from the address of its picture."""


@dataclass(frozen=True)
class Harm:
    """A workspace whose second data set was made to do harm."""

    chain: Chain
    root: Path
    media: Path
    run: Path
    data: Path


@pytest.fixture(scope="module")
def harm(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> Harm:
    place = tmp_path_factory.mktemp("harm")
    root = place / "workspace"
    shutil.copytree(chain.root, root)
    folder = toy.toy("harm")
    for item in folder.items:
        item[1] = "test"
    for caption in folder.captions:
        caption[4] = HOSTILE if caption[2:4] == ["en", "0"] else caption[4]
    first = folder.items[0]
    for row in folder.captions:
        row[1] = ODD if row[1] == first[0] else row[1]
    name, first[0], first[5] = first[0], ODD, ODD
    source = folder.write(place / "harm", pictures=False)
    for row in folder.items:
        toy.draw(name if row is first else row[0]).save(source / "media" / row[3])
    data = toy.ok("data", "import", source, workspace=root).made
    toy.ok("extract", data.path, *toy.ENCODER, workspace=root)
    return Harm(chain, root, source / "media", chain.find("run", "uml").path, data.path)


@pytest.fixture(scope="module")
def server(harm: Harm) -> Iterator[Server]:
    """Ours alone, without a token."""
    run = harm.root / "runs" / harm.run.name
    with Server(harm.root, run, harm.data) as up:
        yield up


@pytest.fixture(scope="module")
def guarded(harm: Harm) -> Iterator[Server]:
    """Open to others, with a token, small limits and a name."""
    token = harm.root / "token"
    token.write_text("a-token-of-some-length\n")
    token.chmod(0o600)
    options = ("--host", "0.0.0.0", "--token-file", token, "--allow-host", "Search.Example", "--max-upload", "1")
    with Server(harm.root, harm.root / "runs" / harm.run.name, *options, "--max-requests", "1") as up:
        yield up


def picture(item: str = "red-ring", kind: str = "png") -> bytes:
    out = io.BytesIO()
    toy.draw(item).save(out, kind)
    return out.getvalue()


PNG = {"Content-Type": "image/png"}


def refused(reply: Reply, status: int, harm: Harm | None = None) -> str:
    """A refusal is JSON and names nothing of this machine."""
    assert reply.status == status, reply.body
    assert reply.headers["content-type"] == "application/json" and list(reply.json) == ["error"]
    assert b"/tmp" not in reply.body and b"Traceback" not in reply.body and b"ccr_cli" not in reply.body
    assert not [name for name in reply.headers if name.startswith("access-control")]
    return str(reply.json["error"])


def test_it_finds_what_the_command_finds(server: Server, harm: Harm) -> None:
    run = harm.root / "runs" / harm.run.name
    for query in ("círculo rojo", "<b>&amp;</b> 一只狗", "xyzzy"):
        found = server.ask(f"/search?q={quote(query)}&top=7").json
        done = toy.ok("search", query, run, harm.data, "--top", "7", "--json", *CPU, workspace=harm.root)
        wanted = json.loads(done.out)
        assert found["known"] == wanted["known"] == (query != "xyzzy")
        assert found["query"] == query and found["uncertainty"] == pytest.approx(wanted["uncertainty"], abs=1e-5)
        assert [hit["item"] for hit in found["hits"]] == [hit["item_id"] for hit in wanted["hits"]]
        assert [hit["caption"] for hit in found["hits"]] == [hit["caption"] for hit in wanted["hits"]]
    about = server.ask("/about").json
    assert (about["data"], about["entries"], about["languages"], about["pictures"]) == ("harm", 48, ["es", "en"], True)
    assert server.ask("/health").json == {"status": "ok"}


def test_what_every_answer_carries(server: Server) -> None:
    page = server.ask("/")
    assert page.status == 200 and page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    for reply in (page, server.ask("/about"), server.ask("/none"), server.ask("/", {"Host": "evil.example"})):
        assert reply.headers["x-content-type-options"] == "nosniff" and reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["cache-control"] == "no-store" and "server" not in reply.headers


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/search", 400),
        ("/search?q=%20", 400),
        ("/search?q=" + "x" * 1001, 400),
        ("/search?q=a&top=0", 400),
        ("/search?q=a&top=101", 400),
        ("/search?q=a&top=1e9", 400),
        ("/search?q=a&lang=fr", 400),
        ("/docs", 404),
        ("/openapi.json", 404),
        ("/../../etc/passwd", 404),
        ("/%2e%2e/%2e%2e/etc/passwd", 404),
        ("/media", 400),
        ("/media?item=none", 404),
        ("/media?item=../../../../etc/passwd", 404),
        ("/media?item=%2fetc%2fpasswd", 404),
        ("/media?item=red-circle.png", 404),
        ("/media?item=%00", 404),
    ],
)
def test_what_there_is_not(target: str, status: int, server: Server) -> None:
    refused(server.ask(target), status)


def test_other_methods(server: Server) -> None:
    for method, target in (("DELETE", "/search"), ("PUT", "/"), ("POST", "/media?item=red-ring"), ("TRACE", "/")):
        refused(server.ask(target, method=method), 405)


def test_words_that_are_no_text(server: Server) -> None:
    assert server.ask("/search?q=%ff%fe&top=1").status == 200
    assert server.ask("/search?q=%ED%A0%80&top=1").status in (200, 400)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.168.0.1",
        "",
        "[",
        "a@b",
    ],
)
def test_a_name_that_is_not_ours_is_refused(host: str, server: Server) -> None:
    """DNS rebinding: a page of that name would be let in by the browser."""
    for target in ("/", "/search?q=a", "/media?item=red-ring", "/health"):
        refused(server.ask(target, {"Host": host.format(port=server.port)}), 421)


def test_names_that_are_ours(server: Server) -> None:
    for host in ("localhost", "LOCALHOST:9", f"127.0.0.1:{server.port}", "[::1]:8000", "localhost."):
        assert server.ask("/about", {"Host": host}).status == 200, host
    twice = server.ask("/about", [("Host", "localhost"), ("Host", "evil.example")])
    assert twice.status == 400


def test_other_sites_may_not_ask(server: Server) -> None:
    host = f"127.0.0.1:{server.port}"
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://localhost:{server.port}"},
    ):
        refused(server.ask("/search?q=a", {"Host": host, **headers}), 403)
        refused(server.ask("/search", {"Host": host, **PNG, **headers}, method="POST", body=picture()), 403)
    for site in ("cross-site", "same-site"):
        refused(server.ask("/search?q=a", {"Sec-Fetch-Site": site}), 403)
        assert server.ask("/", {"Sec-Fetch-Site": site}).status == 200, "a link may lead here"
    own = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    assert server.ask("/search?q=a", own).status == 200
    asked = {"Host": host, "Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    refused(server.ask("/search", asked, method="OPTIONS"), 403)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        refused(server.ask("/search", {"Content-Type": kind}, method="POST", body=picture()), 415)


def test_a_picture_is_searched_with(server: Server) -> None:
    for kind in ("png", "bmp", "webp", "gif"):
        reply = server.ask("/search?top=3", {"Content-Type": f"image/{kind}"}, method="POST", body=picture(kind=kind))
        assert reply.status == 200 and reply.json["uncertainty"] is None
        assert reply.json["hits"][0]["item"] == "red-ring"


def bomb(side: int) -> bytes:
    """Few bytes, many pixels."""
    out = io.BytesIO()
    Image.new("1", (side, side)).save(out, "png")
    return out.getvalue()


def test_pictures_that_are_none(server: Server) -> None:
    for side in (6_000, 14_000):  # one that Pillow would open, and one that it would not
        large = bomb(side)
        assert len(large) < 1 << 18 and side**2 > MOST_PIXELS
        refused(server.ask("/search", PNG, method="POST", body=large), 413)
    tiff = picture(kind="tiff")
    for body in (b"", b"<svg onload=alert(1)>", b"%!PS-Adobe", picture()[:90], tiff, os.urandom(5000)):
        assert "JPEG" in refused(server.ask("/search", PNG, method="POST", body=body), 400)


def test_a_body_that_is_too_long(server: Server) -> None:
    most = 10 << 20
    assert str(most) in refused(server.ask("/search", {**PNG, "Content-Length": str(most + 1)}, method="POST"), 413)
    endless = (b"x" * (1 << 16) for _ in range(1 << 12))
    with contextlib.suppress(ConnectionResetError):  # what was not read may take the answer with it
        assert str(most) in refused(server.ask("/search", PNG, method="POST", body=endless), 413)
    assert sum(1 for _ in endless) > 1 << 11, "most of it was never taken"
    assert server.ask("/health").status == 200


def test_a_name_comes_back_from_the_address_of_its_picture(server: Server, harm: Harm) -> None:
    hits = server.ask(f"/search?q={quote('círculo rojo')}&top=100").json["hits"]
    assert {hit["caption"] for hit in hits} == {HOSTILE}, "text goes as it is; the page makes no markup of it"
    (odd,) = [hit for hit in hits if hit["item"] == ODD]
    shown = server.ask(odd["picture"])
    assert shown.status == 200 and shown.headers["content-type"] == "image/png"
    with Image.open(io.BytesIO(shown.body)) as image, Image.open(harm.media / "red-circle.png") as own:
        assert image.tobytes() == own.convert("RGB").tobytes()


def test_media_that_lead_elsewhere_or_are_no_pictures(server: Server, harm: Harm) -> None:
    def replaced(item: str) -> Path:
        path = harm.media / f"{item}.png"
        path.unlink()
        return path

    secret = harm.root / "secret.png"
    secret.write_bytes(picture())
    replaced("red-square").symlink_to(secret)
    os.mkfifo(replaced("red-bar"))
    replaced("red-cross").write_text("root:x:0:0")
    replaced("red-triangle").write_bytes(bomb(6_000))
    for item in ("red-square", "red-bar", "red-cross", "red-triangle"):
        refused(server.ask(f"/media?item={item}"), 404)
        refused(server.ask(f"/media?item={item}&large=1"), 404)
    Image.new("RGB", (3000, 1500), "red").save(harm.media / "blue-bar.png")
    for large, side in (("0", 320), ("1", 1024)):
        shown = server.ask(f"/media?item=blue-bar&large={large}")
        with Image.open(io.BytesIO(shown.body)) as image:
            assert image.size == (side, side // 2)


def test_a_token(guarded: Server) -> None:
    own = {"Authorization": "Bearer a-token-of-some-length"}
    for path in ("/", "/health"):
        assert guarded.ask(path).status == 200
    for path in ("/about", "/search?q=a", "/media?item=red-ring", "/none"):
        for given in ("", "Bearer", "Bearer a-token-of-some-lengtH", "Basic a-token-of-some-length", "Bearer \xe9"):
            reply = guarded.ask(path, {"Authorization": given} if given else {})
            refused(reply, 401)
            assert reply.headers["www-authenticate"] == "Bearer"
    refused(guarded.ask("/about", [*own.items(), *own.items()]), 401)
    assert guarded.ask("/about", own).status == 200 and guarded.ask("/search?q=a", own).status == 200
    for host in ("search.example", "192.0.2.7:80", "[2001:db8::1]", socket.gethostname()):
        assert guarded.ask("/about", {**own, "Host": host}).status == 200, host
    refused(guarded.ask("/about", {**own, "Host": "evil.example"}), 421)
    refused(guarded.ask("/search", {**own, **PNG}, method="POST", body=b"x" * ((1 << 20) + 1)), 413)


def test_too_many_at_once(guarded: Server) -> None:
    """One who is slow to send holds the only place, and gives it back when he goes."""
    head = "POST /search HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-token-of-some-length\r\n"
    head += "Content-Type: image/png\r\nContent-Length: 1000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", guarded.port)) as slow:
        slow.sendall(head.encode() + b"x")
        replies = [guarded.ask("/health") for _ in range(20)]
        crowded = [reply for reply in replies if reply.status == 503]
        assert crowded
        refused(crowded[0], 503)
        assert crowded[0].headers["retry-after"] == "1"
    for _ in range(1000):
        if guarded.ask("/health").status == 200:
            break
    else:
        pytest.fail("the place was not given back")


@pytest.mark.parametrize(
    ("token", "mode", "options", "said"),
    [
        (None, 0, ("--host", "0.0.0.0"), "--token-file"),
        (None, 0, ("--host", "192.0.2.1"), "--token-file"),
        (None, 0, ("--host", "::"), "--token-file"),
        ("a-token-of-some-length", 0o644, (), "chmod 600"),
        ("short", 0o600, (), "/token"),
        ("two words of some length", 0o600, (), "/token"),
        ("", 0o600, (), "/token"),
        ("ä" * 20, 0o600, (), "/token"),
    ],
)
def test_what_it_does_not_start_with(
    token: str | None, mode: int, options: tuple[str, ...], said: str, chain: Chain, tmp_path: Path
) -> None:
    given: list[str | Path] = [chain.find("run", "uml").path, *options]
    if token is not None:
        (tmp_path / "token").write_text(token)
        (tmp_path / "token").chmod(mode)
        given += ["--token-file", tmp_path / "token"]
    done = chain.ccr("serve", *given, *CPU)
    assert (done.code, done.out) == (2, "") and said in done.err


def test_a_port_that_is_taken(chain: Chain) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = chain.ccr("serve", chain.find("run", "uml").path, "--port", port, *CPU)
    assert (done.code, done.out) == (2, "") and "127.0.0.1" in done.err and port in done.err


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_without_the_packages(package: str, chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    done = chain.ccr("serve", chain.find("run", "uml").path, *CPU)
    assert done.code == 5 and "pip install 'ccr-cli[serve]'" in done.err


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_stops_when_told(how: signal.Signals, code: int, chain: Chain) -> None:
    with Server(chain.root, chain.find("run", "infonce").path, "-v") as up:
        assert up.ask("/search?q=secret-words").json["uncertainty"] is None
        found, said = up.stop(how)
    assert found == code and "Traceback" not in said
    assert "GET /search 200" in said and "secret-words" not in said


def metric(server: Server, name: str) -> float:
    reply = server.ask("/metrics")
    assert reply.status == 200 and reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return sum(float(line.rpartition(" ")[2]) for line in reply.body.decode().splitlines() if line.startswith(name))


def test_queries_at_once_are_answered_as_if_alone(server: Server) -> None:
    queries = [
        f"/search?q={quote(f'{color} {shape}')}&top=5" for color in ("rojo", "azul", "verde") for shape in SHAPES
    ]
    single = [server.ask(query).json for query in queries]
    before = metric(server, "ccr_batch_queries_sum")
    with ThreadPoolExecutor(len(queries)) as pool:
        replies = [reply.json for reply in pool.map(server.ask, queries * 3)]
    for reply, wanted in zip(replies, single * 3, strict=True):
        assert [hit["item"] for hit in reply["hits"]] == [hit["item"] for hit in wanted["hits"]]
        assert [hit["similarity"] for hit in reply["hits"]] == pytest.approx(
            [hit["similarity"] for hit in wanted["hits"]], abs=2e-6
        )
        assert reply["query"] == wanted["query"] and reply["uncertainty"] == pytest.approx(
            wanted["uncertainty"], abs=1e-5
        )
    assert metric(server, "ccr_batch_queries_sum") == before + len(replies)
    assert metric(server, "ccr_batch_queries_count") < before + len(replies), "some were together"
    assert metric(server, "ccr_entries") == 48
    refused(server.ask("/metrics", {"Host": "evil.example"}), 421)
    assert metric(server, 'ccr_requests_total{method="GET",path="/metrics",status="421"}') >= 1


def test_metrics_need_the_token(guarded: Server) -> None:
    refused(guarded.ask("/metrics"), 401)
    assert guarded.ask("/metrics", {"Authorization": "Bearer a-token-of-some-length"}).status == 200


def test_a_run_made_anew_is_served_without_a_break(finished: Chain) -> None:
    run = finished.find("run", "uml")

    def until(name: str, count: int) -> None:
        for _ in range(600):
            if metric(up, name) >= count:
                return
            time.sleep(0.1)
        pytest.fail(up.stop(signal.SIGTERM)[1])

    with Server(finished.root, run.path, "--reload") as up, ThreadPoolExecutor(4) as pool:
        first = up.ask("/search?q=rojo&top=3").json["hits"]
        over = threading.Event()

        def ask() -> set[int]:
            found: set[int] = set()
            while not over.wait(0.02):
                found.add(up.ask("/search?q=rojo").status)
            return found

        clients = [pool.submit(ask) for _ in range(4)]
        again = ("train", "--method", "uml", "--name", run.name, "--force", "--epochs", "1", "--seed", "7", *toy.SMALL)
        toy.ok(*again, workspace=finished.root)
        until('ccr_reloads_total{outcome="loaded"}', 1)
        second = up.ask("/search?q=rojo&top=3").json["hits"]
        assert [hit["similarity"] for hit in first] != [hit["similarity"] for hit in second]
        model = run.path / "model.safetensors"
        model.write_bytes(model.read_bytes()[:-4])
        os.utime(run.path / "artifact.json")
        until('ccr_reloads_total{outcome="failed"}', 1)
        assert up.ask("/search?q=rojo&top=3").json["hits"] == second
        over.set()
        assert set().union(*(client.result() for client in clients)) == {200}
        code, said = up.stop(signal.SIGTERM)
        assert code == 143 and str(model) in said and f"loaded {run.name}" in said
    assert finished.ccr("serve", "-", "--reload", *CPU).code == 2


def test_features_of_others_leave_words_alone(workspace: Chain, tmp_path: Path) -> None:
    data = dataset.read(workspace.find("dataset"))
    rng = np.random.default_rng(0)
    rows = {item: rng.normal(size=(1, 8)).astype(np.float32) for item in data.items["item_id"]}
    source = in_npz(tmp_path / "mine", rows)
    feats = toy.ok("extract", data.artifact.path, "--from", source, workspace=workspace.root).made
    toy.ok("train", feats.path, "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=workspace.root)
    service = Service(open_searcher(Inputs(Workspace(workspace.root)), SearchOptions(device="cpu")))
    assert service.pictures is False
    assert len(asyncio.run(service.text("rojo", "es", 3))["hits"]) == 3
    with pytest.raises(HTTPException) as refusal:
        asyncio.run(service.picture(picture(), 3))
    assert refusal.value.status_code == 501 and str(tmp_path) not in refusal.value.detail
