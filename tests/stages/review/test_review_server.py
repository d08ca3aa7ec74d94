"""`ccr review` over HTTP: what it shows, what it writes, what it refuses, and what other commands read of it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import reviewed
import toy
import uvicorn

from ccr_cli.artifacts import translation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data import pairs_file
from ccr_cli.errors import CcrError
from ccr_cli.stages.review.options import ReviewOptions
from ccr_cli.stages.review.server import MOST_BYTES, application
from ccr_cli.stages.review.stage import open_review
from ccr_cli.stages.search.options import ListenOptions
from ccr_cli.stages.search.server import access_rules
from ccr_cli.stages.shared.inputs import Inputs

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reviewed.workspace(tmp_path_factory.mktemp("review"))


class Client:
    """Asks a server on this machine."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, target: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """Status and body of an answer; a body that is not bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST" if body is not None else "GET", target, data, JSON if headers is None else headers)
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    def state(self) -> Any:
        return json.loads(self.ask("/state")[1])

    def judge(self, verdict: str, correction: str = "") -> Any:
        """Judges the pair that is shown; the next state."""
        place = self.state()["pair"]["place"]
        status, body = self.ask("/verdict", {"pair": place, "verdict": verdict, "correction": correction})
        assert status == 200, body
        return json.loads(body)


@contextmanager
def serving(root: Path, to: Path, reviewer: str = "ana", **options: Any) -> Iterator[Client]:
    """The server in a thread of this process."""
    with open_review(Inputs(Workspace(root)), ReviewOptions(to=to, reviewer=reviewer, **options)) as review:
        app = application(review, access_rules(ListenOptions(), MOST_BYTES))
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off", http="h11", ws="none"))
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
            yield Client(server.servers[0].sockets[0].getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()


def read(path: Path) -> dict[str, tuple[str, str]]:
    frame = pairs_file.read(path).frame
    return dict(zip(frame["slot_id"], zip(frame["verdict"], frame["correction"], strict=True), strict=True))


def test_verdicts_are_written_and_go_on_where_they_stopped(root: Path, tmp_path: Path) -> None:
    to = tmp_path / "mine.csv"
    with serving(root, to) as client:
        first = client.state()
        assert (first["done"], first["total"], first["share"], first["pair"]["place"]) == (0, 96, None, 1)
        second = client.judge("clean")
        assert second["pair"]["place"] == 2 and second["judged"] == 1 and second["share"][0] == 0
        third = client.judge("noisy", "  نص  جديد ")
        assert third["share"][0] == 0.5 and third["done"] == 2
        fourth = client.judge("not judged")
        assert fourth["done"] == 3 and fourth["judged"] == 2, "what is skipped is not judged"
        slots = [state["pair"]["id"] for state in (first, second, third)]
        assert read(to) == {
            slots[0]: ("clean", ""),
            slots[1]: ("noisy", "نص جديد"),
            slots[2]: ("not judged", ""),
        }
        undone = [json.loads(client.ask("/undo", {})[1]) for _ in range(2)]
        assert [state["pair"]["id"] for state in undone] == slots[:0:-1] and undone[-1]["done"] == 1
        assert client.judge("noisy")["pair"]["id"] == slots[2]
    with serving(root, to) as client:
        assert client.state()["done"] == 2 and client.state()["pair"]["id"] == slots[2]
        for _ in range(2):
            assert client.ask("/undo", {})[0] == 200
        assert client.ask("/undo", {})[0] == 409
    assert len(to.read_bytes().splitlines()) == 9, "nothing is ever removed"


def test_two_people_and_how_far_they_agree(root: Path, tmp_path: Path) -> None:
    to = tmp_path / "both.csv"
    with serving(root, to, worst=60) as client:
        for n in range(52):
            state = client.judge("clean" if n % 5 else "noisy")
        assert state["recent"] == 10 and state["expected"] == pytest.approx(20 * 10.5 / 51) and not state["agreement"]
    with serving(root, to, "ben", worst=60) as client:
        assert client.state()["pair"]["place"] == 53, "by default the work is shared"
    with serving(root, to, "ben", worst=60, second=True) as client:
        assert client.state()["total"] == 52 and client.state()["pair"]["place"] == 1
        for n in range(10):
            state = client.judge("noisy" if n in (0, 1) else "clean")
        (found,) = state["agreement"]
        assert (found["reviewers"], found["pairs"], found["equal"]) == (["ana", "ben"], 10, 0.8)
        assert found["kappa"] == pytest.approx((0.8 - 0.68) / (1 - 0.68))
        assert state["wrong"] == 11, "the latest verdict counts: one more is wrong, and one less"
        assert b'"ana"' in client.ask("/state")[1] and "verdict" not in state["pair"], "nobody sees the other's"


def test_there_is_nothing_to_judge_a_second_time(root: Path, tmp_path: Path) -> None:
    options = ReviewOptions(to=tmp_path / "new.csv", reviewer="ben", second=True)
    with pytest.raises(CcrError, match=r"new\.csv"), open_review(Inputs(Workspace(root)), options):
        pass


HOST = "127.0.0.1"


@pytest.mark.parametrize(
    ("target", "body", "headers", "status"),
    [
        ("/verdict", {"pair": 1, "verdict": "clean"}, JSON | {"Origin": "http://evil.example"}, 403),
        ("/verdict", {"pair": 1, "verdict": "clean"}, JSON | {"Sec-Fetch-Site": "cross-site"}, 403),
        ("/verdict", {"pair": 1, "verdict": "clean"}, JSON | {"Host": "evil.example"}, 421),
        ("/undo", {}, JSON | {"Origin": "null"}, 403),
        ("/verdict", {"pair": 1, "verdict": "clean"}, {"Content-Type": "text/plain"}, 415),
        ("/verdict", {"pair": 1, "verdict": "clean"}, {}, 415),
        ("/verdict", b"pair=1&verdict=clean", JSON, 400),
        ("/verdict", b"", JSON, 400),
        ("/verdict", b"[1]", JSON, 400),
        ("/verdict", b"\xff\xfe", JSON, 400),
        ("/verdict", b'{"pair": 1, "verdict": "noisy", "correction": "\\ud800"}', JSON, 400),
        ("/verdict", b'{"pair": 1e400, "verdict": "clean"}', JSON, 400),
        ("/verdict", {"pair": "1", "verdict": "clean"}, JSON, 400),
        ("/verdict", {"pair": True, "verdict": "clean"}, JSON, 400),
        ("/verdict", {"pair": 1, "verdict": "undone"}, JSON, 400),
        ("/verdict", {"pair": 1, "verdict": "clean", "reviewer": "ben"}, JSON, 400),
        ("/verdict", {"pair": 1, "verdict": "noisy", "correction": "x" * 2001}, JSON, 400),
        ("/verdict", {"pair": 1, "verdict": "noisy", "correction": "x" * MOST_BYTES}, JSON, 413),
        ("/verdict", {"pair": 1, "verdict": "clean", "correction": "x"}, JSON, 409),
        ("/verdict", {"pair": 1, "verdict": "noisy", "correction": "a\u202eb"}, JSON, 409),
        ("/verdict", {"pair": 0, "verdict": "clean"}, JSON, 404),
        ("/verdict", {"pair": 97, "verdict": "clean"}, JSON, 404),
        ("/verdict", None, JSON, 405),
        ("/media?pair=0", None, JSON, 404),
        ("/media?pair=../../etc/passwd", None, JSON, 400),
        ("/media", None, JSON, 400),
        ("/docs", None, JSON, 404),
    ],
)
def test_what_is_refused(
    target: str, body: Any, headers: dict[str, str], status: int, hostile: tuple[Client, Path]
) -> None:
    client, to = hostile
    before = to.read_bytes()
    found, text = client.ask(target, body, headers)
    assert found == status, text
    assert list(json.loads(text)) == ["error"] and b"/tmp" not in text and b"Traceback" not in text
    assert to.read_bytes() == before


@pytest.fixture(scope="module")
def hostile(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Path]]:
    to = tmp_path_factory.mktemp("hostile") / "a.csv"
    with serving(root, to) as client:
        yield client, to


def test_a_correction_that_corrects_nothing_is_refused(hostile: tuple[Client, Path]) -> None:
    client, _ = hostile
    pair = client.state()["pair"]
    body = {"pair": pair["place"], "verdict": "noisy", "correction": f" {pair['text']}\n"}
    assert client.ask("/verdict", body)[0] == 409


def test_the_page_and_its_pictures(hostile: tuple[Client, Path]) -> None:
    client, _ = hostile
    status, page = client.ask("/")
    assert status == 200 and b"<script>alert" not in page and client.ask("/health")[0] == 200
    assert client.ask("/media?pair=1")[1][:4] in (b"\x89PNG", b"\xff\xd8\xff\xe0")


def test_texts_arrive_as_parts(root: Path, tmp_path: Path) -> None:
    with serving(root, tmp_path / "a.csv") as client:
        pairs = [client.state()["pair"], *(client.judge("not judged")["pair"] for _ in range(20))]
    assert {pair["dir"] for pair in pairs} == {"rtl"} and {pair["lang"] for pair in pairs} == {"ar"}
    parts = {pair["id"]: pair["translation"] for pair in pairs}
    assert "".join(text for text, _ in parts["red-circle-en0"]) == reviewed.SHOWN
    doubted = [text for text, is_doubted in parts["red-circle-en0"] if is_doubted]
    assert doubted[:3] == ["img", "src", "onerror"] and "<" not in "".join(doubted)


def test_what_is_typed_becomes_a_translation(root: Path, tmp_path: Path) -> None:
    to = tmp_path / "a.csv"
    with serving(root, to) as client:
        shown = [client.state()["pair"]]
        shown += [client.judge(v, c)["pair"] for v, c in (("noisy", "=نص أول"), ("clean", ""), ("noisy", "نص ثان"))]
    done = toy.ok("translate", "--only", to, "--name", "mended", workspace=root)
    after = translation.read(done.made).set_index("source_caption_id")
    assert done.made.request["only"]["corrected"] == 2
    assert [after["text"][pair["id"]] for pair in (shown[0], shown[2])] == ["=نص أول", "نص ثان"]
    before = translation.read(Workspace(root).artifacts("translation")[0]).set_index("source_caption_id")
    assert (
        after["text"]
        .drop([shown[0]["id"], shown[2]["id"]])
        .equals(before["text"].drop([shown[0]["id"], shown[2]["id"]]))
    )
    assert toy.ccr("diagnose", "translations/toy/ar-recorded", "--export", to, workspace=root).code == 2


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (dict(lang="fr"), 2),
        (dict(reviewer=" "), 2),
        (dict(reviewer="x" * 61), 2),
        (dict(to=Path("a.xlsx")), 2),
        (dict(to=Path("none/a.csv")), 2),
    ],
)
def test_wrong_options(options: dict[str, Any], code: int, root: Path) -> None:
    with pytest.raises(CcrError) as caught, open_review(Inputs(Workspace(root)), ReviewOptions(**options)):
        pass
    assert caught.value.exit_code == code


def test_one_server_at_a_time_and_a_diagnosis_of_its_own(root: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(serving(root, tmp_path / "a.csv")).judge("clean")
        assert toy.ccr("review", "--to", tmp_path / "a.csv", workspace=root).code == 7
    assert toy.ccr("review", "--host", "0.0.0.0", workspace=root).code == 2
    assert toy.ccr("review", workspace=tmp_path).code == 4
    text = (tmp_path / "a.csv").read_text(encoding="utf-8").replace("-en", "-xx")
    (tmp_path / "b.csv").write_text(text, encoding="utf-8", newline="")
    assert toy.ccr("review", "--to", tmp_path / "b.csv", workspace=root).code == 2


def test_a_port_that_is_taken_leaves_no_file(root: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = toy.ccr("review", "--to", tmp_path / "a.csv", "--port", port, workspace=root)
    assert done.code == 2 and port in done.err and "review" not in done.err and not any(tmp_path.iterdir())
