"""`ccr translate --engine deep-translator` as a user runs it: keys stay secret, nothing lost, nothing sent unasked."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import deep_translator
import provider_server as server
import pytest
import toy
from provider_server import Fault, Providers
from toy import Outcome

from ccr_cli.artifacts import base, translation
from ccr_cli.translators.deep_translator import PROVIDERS

KEY = "s3cret-0123456789abcdef/+=:fx"
FORMS = {form.encode() for form in (KEY, quote(KEY), quote(KEY, safe=""))} | {b"s3cret-0123"}
VARIABLES = ("DEEPL_API_KEY", "LIBRE_API_KEY")
PATCHED = """
import json, sys
from dataclasses import replace
from deep_translator.constants import BASE_URLS
from ccr_cli.translators.deep_translator import PROVIDERS
patched, services = json.loads(sys.argv.pop(1))
BASE_URLS.update(patched)
PROVIDERS.update({name: replace(PROVIDERS[name], **addresses) for name, addresses in services.items()})
from ccr_cli.cli import main
main()
"""
"""ccr with all addresses leading to this machine."""
FAST = ("rate=1000000000", "backoff=0", "retries=2", "breaker=1000")


class User:
    """Runs commands in one workspace with one cache; keeps what they print, as files beside both."""

    def __init__(self, web: Providers, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.web, self.place, self.workspace = web, place, place / "workspace"
        self.environment = monkeypatch
        monkeypatch.setenv("CCR_CACHE", str(place / "cache"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        for variable in VARIABLES:
            monkeypatch.setenv(variable, KEY)
        for name, value in toy.environment(self.workspace).items():
            if name.startswith("HF_"):
                monkeypatch.setenv(name, value)
        for name, url in web.patched().items():
            monkeypatch.setitem(deep_translator.constants.BASE_URLS, name, url)
        for name, addresses in web.services().items():
            monkeypatch.setitem(PROVIDERS, name, replace(PROVIDERS[name], **addresses))

    def ccr(self, *words: str, workspace: Path | None = None) -> Outcome:
        """Runs a command in this process."""
        return self._kept(toy.ccr(*words, workspace=workspace or self.workspace))

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Starts a command in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-c", PATCHED, json.dumps([self.web.patched(), self.web.services()]), *words],
            env=toy.environment(self.workspace),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def end(self, process: subprocess.Popen[bytes]) -> Outcome:
        """Waits for it."""
        out, err = process.communicate(timeout=300)
        return self._kept(Outcome(process.returncode, out.decode(), err.decode()))

    def _kept(self, outcome: Outcome) -> Outcome:
        number = len(list(self.place.glob("output-*")))
        (self.place / f"output-{number}").write_text(outcome.out + outcome.err, encoding="utf-8")
        return outcome

    def leaks(self) -> list[str]:
        """Every file of the workspace, the cache and what was printed that holds the key in any form."""
        paths = [path for path in self.place.rglob("*") if path.is_file()]
        return [str(path) for path in paths if any(form in path.read_bytes() + str(path).encode() for form in FORMS)]


@pytest.fixture
def user(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    with server.serve(KEY) as web:
        user = User(web, tmp_path, monkeypatch)
        toy.ok("data", "import", folder, workspace=user.workspace)
        yield user


def asking(provider: str, *settings: str, lang: str = "es") -> list[str]:
    options = [word for setting in (f"provider={provider}", *FAST, *settings) for word in ("--set", setting)]
    return ["translate", "--lang", lang, "--engine", "deep-translator", *options]


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["deepl", "libretranslate"])
def test_the_key_is_in_nothing_that_is_written(provider: str, user: User) -> None:
    """A provider that repeats the key in every way it can, and a user who types it where it does not belong."""
    said = json.dumps({"message": f"{KEY}: see http://a.example/?k={quote(KEY, safe='')}", "error": f"not '{KEY}'"})
    given = json.dumps({"translations": [{"text": f"dear {KEY}"}], "translatedText": f"dear {KEY}"})
    bad = {
        "red circle": Fault(500, body=said),
        "red square": Fault(400, body=said),
        "red cross": Fault(429, {"Retry-After": "0"}, said),
        "red bar": Fault(200, body=given),
        "green ring": Fault(how="cut"),
        "green bar": Fault(how="reset"),
        "blue bar": Fault(200, body=said),
        "blue ring": Fault(200, body=f'"{KEY}'),
    }
    for text, fault in bad.items():
        user.web.fails(text, *[fault] * 3)
    done = user.end(user.start(*asking(provider), "-vv"))
    assert done.code == 3, done.err
    assert f"are sent to {'DeepL' if provider == 'deepl' else 'LibreTranslate'}: 127.0.0.1" in done.err
    records = [json.loads(line) for line in done.made.file(base.FAILURES).read_text("utf-8").splitlines()]
    assert len(records) == len(bad) and all(record["message"] for record in records)
    assert any("_API_KEY]" in record["message"] for record in records), "the provider's words, without the key"
    user.web.faults.clear()
    again = user.ccr(*asking(provider), "--retry-failed", "--json")
    assert again.code == 0, again.err
    assert set(Counter(user.web.texts()).values()) == {1, 2, 4}, "nothing was asked again without need"

    other = ("--name", "other", "--no-cache")
    for status in (403, 307, 404, 500):
        user.web.faults.clear()
        user.web.fails("*", Fault(status, {"Location": f"/{quote(KEY)}"}, said))
        refused = user.ccr(*asking(provider, "breaker=5"), *other)
        assert refused.code == 5 and f"HTTP {status}" in refused.err
    user.environment.setenv("DEEPL_API_KEY", f"{KEY}\nx")
    user.environment.setenv("LIBRE_API_KEY", f"{KEY} x")
    broken = user.ccr(*asking(provider), *other)
    assert broken.code == 5 and "_API_KEY holds characters that no key has" in broken.err
    assert user.leaks() == []


def test_a_key_on_the_command_line_is_refused_and_not_repeated(user: User) -> None:
    for name in ("api_key", "key", "token", "DEEPL_API_KEY"):
        done = user.ccr(*asking("deepl", f"{name}={KEY}"))
        assert done.code == 2 and "environment" in done.err
    for url in (f"{user.web.url}/?api_key={KEY}", f"http://me:{KEY}@127.0.0.1/", f"http://{quote(KEY)}@127.0.0.1/"):
        done = user.ccr(*asking("libretranslate", f"url={url}"))
        assert done.code == 2 and "keys come from the environment" in done.err
    assert user.leaks() == [] and user.web.seen == []


def test_the_search_for_the_key_would_find_it(user: User) -> None:
    (user.workspace / "datasets" / "a").write_text(f"x{quote(KEY, safe='')}y")
    (user.place / "output-9").write_text(f"x\n{KEY}y")
    assert len(user.leaks()) == 2


def test_doctor_names_keys_and_shows_none(user: User) -> None:
    for variables, said in (
        (VARIABLES, "keys set: DEEPL_API_KEY, LIBRE_API_KEY; not set: MICROSOFT_API_KEY, "),
        ((), "keys set: none (google needs none); not set: DEEPL_API_KEY, LIBRE_API_KEY, MICROSOFT_API_KEY, "),
    ):
        for variable in set(VARIABLES) - set(variables):
            user.environment.delenv(variable)
        rows = {row["what"]: row for row in json.loads(user.ccr("doctor", "--json").out)["checks"]}
        row = rows["engine deep-translator"]
        assert row["state"].startswith(f"available; sends captions to a third party; {said}") and row["mend"] == ""
    assert user.leaks() == []


@pytest.mark.slow
def test_given_up_and_gone_on_with(user: User) -> None:
    """What was translated is not asked for again, and the result is that of an undisturbed run."""
    user.web.fails("black bar", *[Fault(503)] * 3)
    first = user.ccr(*asking("google", "workers=1", "breaker=3"))
    assert (first.code, first.out) == (5, "")
    assert "failed 3 times in a row" in first.err and "HTTP 503" in first.err and "the same command" in first.err
    done = user.ccr(*asking("google", "workers=1"))
    assert done.code == 0, done.err
    counts = Counter(user.web.texts())
    assert len(counts) == 96 and {text for text, n in counts.items() if n != 1} == {"black bar"}
    assert counts["black bar"] == 4
    frame = translation.read(done.made)
    assert set(frame["text"]) == {server.translated(text, "es") for text in counts}
    user.environment.setenv("CCR_CACHE", str(user.place / "another-cache"))
    undisturbed = user.ccr(*asking("google"), "--name", "undisturbed")
    assert undisturbed.made.files == done.made.files and undisturbed.made.request == done.made.request
    assert done.made.about["environment"]["engine.forward"]["licence"].startswith("Google")


@pytest.mark.slow
def test_interrupted_while_the_provider_hangs(user: User) -> None:
    """Ctrl-C ends the command although all its threads wait for answers; what had come is kept."""
    stuck = ["gray ring", "a picture of one ring that is gray", "gray bar", "a picture of one bar that is gray"]
    for text in stuck:
        user.web.fails(text, Fault(how="hang"))
    process = user.start(*asking("google", "timeout=200"))
    while len(user.web.seen) < 96:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    done = user.end(process)
    assert done.code == 130
    done = user.ccr(*asking("google"))
    assert done.code == 0, done.err
    counts = Counter(user.web.texts())
    assert (
        len(counts) == 96 and set(counts.values()) == {1, 2} and {t for t, n in counts.items() if n > 1} >= set(stuck)
    )


def test_captions_go_to_a_provider_only_when_that_is_asked_for(user: User) -> None:
    done = user.ccr("translate", "--lang", "zh")
    assert done.code == 5 and "are sent to" not in done.err
    dry = user.ccr(*asking("google"), "--dry-run")
    assert dry.code == 0 and "are sent to" not in dry.err, dry.err
    assert user.web.seen == []


def test_a_dry_run_asks_nobody_and_needs_no_key(user: User) -> None:
    user.environment.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    user.environment.setenv("MICROSOFT_API_KEY", KEY)
    dry = user.ccr(*asking("microsoft"), "--dry-run", "--json")
    assert dry.code == 0, dry.err
    (plan,) = json.loads(dry.out)["made"]
    assert (plan["forward model"], plan["sentences"]) == ("microsoft", {"forward": 96})
    user.environment.delenv("DEEPL_API_KEY")
    dry = user.ccr(*asking("deepl"), "--dry-run", "--json")
    assert dry.code == 0, dry.err
    (plan,) = json.loads(dry.out)["made"]
    assert plan["forward warning"] == "DEEPL_API_KEY is not set" and plan["sentences"] == {"forward": 96}
    assert "DeepL" in plan["forward licence"] and user.web.seen == []


def test_a_key_that_is_missing_and_a_language_that_is_not_there(user: User) -> None:
    done = user.ccr(*asking("deepl", lang="zh-Hant"))
    assert done.code == 2 and "zh-Hant" in done.err and ": zh" in done.err
    user.environment.delenv("DEEPL_API_KEY")
    done = user.ccr(*asking("deepl"))
    assert (done.code, done.out) == (5, "") and "DEEPL_API_KEY is not set" in done.err
    assert "export DEEPL_API_KEY=" in done.err and user.web.seen == []
