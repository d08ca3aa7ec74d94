"""`ccr translate --engine openai` as a user runs it: nothing lost, nothing paid for twice, nothing sent unasked."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import provider_server as server
import pytest
import toy
from provider_server import Fault, Providers
from toy import Outcome

from ccr_cli.artifacts import base, translation

KEY = "sk-s3cret-0123456789"
CCR = "from ccr_cli.cli import main; main()"
FAST = ("rate=1000000000", "backoff=0", "retries=2", "breaker=1000")
REFUSAL = "I'm sorry, but I can't translate that."


@dataclass
class User:
    """Runs commands in one workspace, whose captions the model knows in Spanish."""

    web: Providers
    workspace: Path

    def options(self, *settings: str) -> list[str]:
        usual = (f"url={self.web.url}/v1", "model=tiny", *FAST)
        words = [word for setting in (*usual, *settings) for word in ("--set", setting)]
        return ["translate", "--lang", "es", "--engine", "openai", *words]

    def ccr(self, *settings: str, options: tuple[str, ...] = ()) -> Outcome:
        return toy.ccr(*self.options(*settings), *options, workspace=self.workspace)

    def captions(self) -> Counter[str]:
        """How often each caption was sent, alone or in a batch."""
        texts = [text for text in self.web.texts() if text]
        return Counter(c for text in texts for c in (json.loads(text).values() if text[0] == "{" else [text]))


@pytest.fixture
def user(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    toy.ok("data", "import", folder, workspace=tmp_path / "workspace")
    with server.serve(KEY) as web:
        tables = toy.toy().tables
        web.answers = tables["en-es"] | tables["es-en"]
        yield User(web, tmp_path / "workspace")


def usage(made: base.Artifact) -> dict[str, float]:
    found: dict[str, float] = translation.quality(made)["forward"]["usage"]
    return found


@pytest.mark.parametrize("batch", ["batch=1", "batch=7"])
def test_the_artifact_has_texts_failures_tokens_and_cost(batch: str, user: User) -> None:
    bad = "a picture of one square that is red"
    user.web.answers |= {bad: REFUSAL, "red cross": "<think>hm</think>Here is the translation: cruz roja"}
    done = user.ccr(batch, "input_price=1.5", "output_price=4")
    assert done.code == 3, done.err
    frame = translation.read(done.made).set_index("source_caption_id")
    assert set(frame["engine"]) == {"openai"} and set(frame["model"]) == {"tiny"}
    (failed,) = [json.loads(line) for line in done.made.file(base.FAILURES).read_text("utf-8").splitlines()]
    assert "refuses" in failed["message"] and failed["attempt"] == 1
    assert "cruz roja" in set(frame["text"]) and REFUSAL not in set(frame["text"])
    posts = [request for request in user.web.seen if request.method == "POST"]
    counted = usage(done.made)
    assert counted["sentences"] == 96
    assert counted["prompt_tokens"] == sum(len(request.form["text"]) + 100 for request in posts)
    cost = (1.5 * counted["prompt_tokens"] + 4 * counted["completion_tokens"]) / 1e6
    assert counted["cost"] == pytest.approx(cost, abs=1e-6)
    assert f"{counted['prompt_tokens']:,} tokens read" in toy.ok("show", done.made.path, workspace=user.workspace).err
    assert base.verify(done.made) == []

    before = len(user.web.seen)
    assert user.ccr(batch, "workers=2", "input_price=9").made.id == done.made.id, "neither changes a translation"
    assert len(user.web.seen) == before
    del user.web.answers[bad]
    user.web.answers[bad] = toy.toy().tables["en-es"][bad]
    again = user.ccr(batch, options=("--retry-failed",))
    assert again.code == 0, again.err
    assert len(user.web.seen) == before + 1 and usage(again.made)["sentences"] == 96
    assert "cost" not in usage(again.made) and usage(again.made)["completion_tokens"] > 0


def test_a_run_without_disturbance_and_one_with_many_have_the_same_bytes(
    user: User, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Given up twice on the way; then the tokens too are those of the undisturbed run."""
    for text in ("black bar", "gray ring"):
        user.web.fails(text, Fault(503), Fault(503), Fault(how="cut"))
        first = user.ccr("workers=1", "breaker=3")
        assert (first.code, first.out) == (5, "") and "the same command" in first.err
    done = user.ccr("workers=3")
    assert done.code == 0, done.err
    assert {n for text, n in user.captions().items() if text not in ("black bar", "gray ring")} == {1}
    monkeypatch.setenv("CCR_CACHE", str(tmp_path / "another-cache"))
    undisturbed = user.ccr(options=("--name", "undisturbed"))
    assert undisturbed.made.files == done.made.files and undisturbed.made.request == done.made.request


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 5])
def test_killed_while_requests_are_in_flight(
    batch: int, user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers that had come are kept; only what was in flight is sent again, and the bytes are the same."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("CCR_CACHE", str(cache))
    captions = list(toy.toy().tables["en-es"])
    keys = [
        json.dumps(dict(zip("12345", captions[i : i + batch], strict=False)), ensure_ascii=False)
        for i in range(0, len(captions), batch)
    ]
    for text in (captions if batch == 1 else keys)[2 :: 16 if batch == 1 else 5]:
        user.web.fails(text, Fault(how="hang"))

    def hanging() -> int:
        return sum(map(len, user.web.faults.values()))

    def lines() -> int:
        return sum(path.read_bytes().count(b"\n") for path in cache.rglob("*.jsonl"))

    kept = 0
    while left := hanging():
        process = toy.python(CCR, *user.options(f"batch={batch}", "workers=2", "timeout=200"), workspace=user.workspace)
        while hanging() > max(0, left - 2) or lines() < max(kept + 1, len(user.captions()) - 2 * batch):
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        assert lines() >= kept, "nothing is lost"
        kept = lines()
    assert kept > 10
    before = user.captions().total()
    done = user.ccr(f"batch={batch}")
    assert done.code == 0, done.err
    assert user.captions().total() - before < 96 - kept + 2 * batch, "what was kept is not sent again"
    monkeypatch.setenv("CCR_CACHE", str(tmp_path / "another"))
    undisturbed = user.ccr(f"batch={batch}", options=("--name", "undisturbed"))
    assert undisturbed.made.files == done.made.files


@pytest.mark.slow
def test_parts_of_an_array_of_jobs_count_tokens_too(user: User) -> None:
    for number in (1, 2):
        part = user.ccr(options=("--shard", f"{number}/2"))
        assert part.code == 0, part.err
    seen = len(user.web.seen)
    done = user.ccr()
    assert done.code == 0 and len(user.web.seen) == seen and usage(done.made)["sentences"] == 96


@pytest.mark.slow
def test_back_again(user: User) -> None:
    done = user.ccr(options=("--back",))
    assert done.code == 0, done.err
    quality = translation.quality(done.made)
    assert quality["back"]["usage"]["sentences"] == quality["forward"]["usage"]["sentences"] == 96
    contents = [request.form["messages"][0]["content"] for request in user.web.seen]
    assert any("from English into Spanish" in c for c in contents)
    assert any("from Spanish into English" in c for c in contents)


@pytest.mark.slow
def test_an_old_cache_without_tokens_is_read(user: User, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("CCR_CACHE", str(cache))
    assert user.ccr().code == 0
    (path,) = cache.rglob("*.jsonl")
    lines = [line.split(b" ", 1) for line in path.read_bytes().splitlines()]
    old = [key + b" " + json.dumps(json.loads(answer)[:2]).encode() + b"\n" for key, answer in lines]
    path.write_bytes(b"".join(old))
    seen = len(user.web.seen)
    again = user.ccr(options=("--name", "again"))
    assert again.code == 0 and len(user.web.seen) == seen
    assert "usage" not in translation.quality(again.made)["forward"]


def test_the_key_is_in_nothing_that_is_written(user: User, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CCR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MY_KEY", KEY)
    user.web.chat_needs_key = True
    user.web.answers |= {"red circle": f"un círculo {KEY}", "red bar": f"I'm sorry, {KEY} is no caption"}
    user.web.fails("red cross", *[Fault(500, body=json.dumps({"error": {"message": f"key {KEY}"}}))] * 9)
    done = user.ccr("key_variable=MY_KEY", options=("-vv",))
    assert done.code == 3, done.err
    records = done.made.file(base.FAILURES).read_text("utf-8")
    assert records.count("\n") == 3 and "[MY_KEY]" in records
    refused = user.ccr("key_variable=MY_KEY", f"api_key={KEY}")
    assert refused.code == 2 and "environment" in refused.err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    held = [path for path in files if KEY.encode() in path.read_bytes()]
    assert held == [] and KEY not in done.err + done.out + refused.err


def test_a_dry_run_sends_nothing(user: User) -> None:
    dry = user.ccr(options=("--dry-run", "--json"))
    assert dry.code == 0, dry.err
    (plan,) = json.loads(dry.out)["made"]
    assert (plan["forward model"], plan["sentences"], plan["cached"]) == ("tiny", {"forward": 96}, {"forward": 0})
    assert "forward warning" not in plan
    elsewhere = user.ccr("url=http://gpu-3:8000/v1", options=("--dry-run", "--json"))
    assert json.loads(elsewhere.out)["made"][0]["forward warning"] == "captions are sent to gpu-3:8000"
    words = ("translate", "--lang", "es", "--engine", "openai", "--set", "url=https://api.openai.com/v1")
    dry = toy.ccr(*words, "--set", "model=m", "--dry-run", "--json", workspace=user.workspace)
    (plan,) = json.loads(dry.out)["made"]
    assert plan["forward warning"] == "OPENAI_API_KEY is not set"
    real = toy.ccr(*words, "--set", "model=m", workspace=user.workspace)
    assert real.code == 5 and "export OPENAI_API_KEY=" in real.err
    assert user.web.seen == []


def test_without_the_package_that_tells_languages_apart(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    from ccr_cli.translators import openai

    assert (openai.missing() or ("",))[0].startswith("available")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert openai.missing() == ("py3langid is not installed", "pip install 'ccr-cli[language]'")
    done = user.ccr()
    assert done.code == 5 and "pip install 'ccr-cli[language]'" in done.err and user.web.seen == []


def test_too_many_failures_and_what_to_do(user: User) -> None:
    user.web.answers |= {text: REFUSAL for text in toy.toy().tables["en-es"] if " " in text and "of" in text}
    done = user.ccr("breaker=99")
    assert done.code == 1 and "refuses" in done.err and done.out == ""
    assert user.ccr("model=none", "retries=0").code == 5
    assert "tiny" in user.ccr("model=").err and user.ccr("model=").code == 2
