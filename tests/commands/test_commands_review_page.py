"""The page of `ccr review` in a real browser, by keyboard and by touch; and `kill -9` of its server."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import reviewed
from chromium import Watched, chromium, needed, wait_until
from served import Server

from ccr_cli.data import pairs_file

pytestmark = pytest.mark.slow
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reviewed.workspace(tmp_path_factory.mktemp("review"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


class Seen(Watched):
    """The page of a review."""

    def until(self, text: str) -> None:
        """Waits until the progress begins with a text."""
        self.page.locator("#status", has_text=text).wait_for()

    def when(self, true: str) -> None:
        """Waits; the page's policy lets it evaluate no text itself."""
        wait_until(self.page, true)


def rows(path: Path) -> list[tuple[str, str]]:
    """Verdict and correction of the pairs of a file, in the order of the verdicts."""
    frame = pairs_file.read(path).frame
    return list(zip(frame["verdict"], frame["correction"], strict=True))


@needed
@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (400, "light"),
        (1400, "dark"),
        pytest.param(400, "dark", marks=pytest.mark.soak),
        pytest.param(1400, "light", marks=pytest.mark.soak),
    ],
)
def test_keys(width: int, scheme: str, browser: Any, root: Path, tmp_path: Path) -> None:
    to = tmp_path / "a.csv"
    with Server(root, "--to", to, "--reviewer", "ana", "--worst", "5", name="review") as up:
        seen = Seen(browser, up.address, viewport={"width": width, "height": 800}, color_scheme=scheme)
        page = seen.page
        seen.until("0 of 5 done · pair 1")
        assert page.locator("#translation").inner_text() == reviewed.SHOWN and page.title() == "Review"
        assert (
            page.locator("#translation mark").first.inner_text() == "img" and page.locator("#pair script").count() == 0
        )
        assert page.evaluate("getComputedStyle(document.querySelector('#translation')).direction") == "rtl"
        assert page.evaluate("getComputedStyle(document.querySelector('#correction')).direction") == "rtl"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        seen.shot(f"review-{width}-{scheme}")
        page.keyboard.press("r")
        seen.until("1 of 5 done · pair 2")
        page.keyboard.press("Shift+W")
        page.keyboard.press("Control+Shift+W")
        page.keyboard.press("t")
        assert page.evaluate("document.activeElement.id") == "correction"
        seen.shot(f"review-{width}-{scheme}-edit")
        page.keyboard.press("Enter")
        seen.until("translation as it was")
        page.fill("#correction", "")
        page.keyboard.type("حلقة رمادية swr")  # letters that are keys elsewhere
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.id") == "retype"
        page.keyboard.press("Enter")
        assert page.input_value("#correction") == "حلقة رمادية swr", "what was typed is kept"
        page.keyboard.press("Enter")
        seen.until("2 of 5 done · pair 3")
        page.keyboard.press("w")
        seen.until("3 of 5 done · pair 4")
        page.keyboard.press("s")
        seen.until("4 of 5 done · pair 5")
        page.evaluate("dispatchEvent(new KeyboardEvent('keydown', {key: 'к', code: 'KeyR'}))")  # a Russian keyboard
        seen.until("5 of 5 done")
        assert page.locator("#undo").is_visible() and not page.locator("#retype").is_visible()
        figures = page.inner_text("#figures")
        assert "2 of 4 judged pairs are wrong: 50 % (95 % interval 15 % to 85 %)" in figures
        seen.shot(f"review-{width}-{scheme}-end")
        assert rows(to) == [
            ("clean", ""),
            ("noisy", "حلقة رمادية swr"),
            ("noisy", ""),
            ("not judged", ""),
            ("clean", ""),
        ]
        for done in (4, 3):
            page.keyboard.press("u")
            seen.until(f"{done} of 5 done · pair {done + 1}")
        assert len(rows(to)) == 3
        assert [text for text in seen.messages if "409" not in text] == [] and page.title() == "Review"
        assert [url for url in seen.requests if not url.startswith(up.address)] == []
        seen.context.close()


@needed
def test_touch_tab_order_and_a_server_that_is_gone(browser: Any, root: Path, tmp_path: Path) -> None:
    with Server(root, "--to", tmp_path / "a.csv", name="review") as up:
        seen = Seen(
            browser, up.address, viewport={"width": 400, "height": 800}, has_touch=True, reduced_motion="reduce"
        )
        page = seen.page
        seen.until("pair 1")
        assert page.evaluate("getComputedStyle(document.querySelector('#level')).transitionDuration") == "0s"
        order = []
        for _ in range(5):
            page.keyboard.press("Tab")
            order.append(page.evaluate("document.activeElement.textContent.trim()"))
        assert [text.split()[-1] for text in order] == ["Right", "Wrong", "Retype", "Skip", "Undo"]
        page.locator("[data-verdict=noisy]").tap()
        seen.until("1 of 96 done")
        page.locator("#undo").tap()
        seen.until("0 of 96 done · pair 1")
        page.locator("#retype").tap()
        page.fill("#correction", "نص")
        page.locator("#edit .go").tap()
        seen.until("1 of 96 done")
        up.stop(signal.SIGKILL)
        page.keyboard.press("r")
        seen.until("not saved")
        assert page.locator("#status.error").count() == 1
        seen.context.close()


@needed
def test_a_token_and_a_picture_that_cannot_be_read(browser: Any, root: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-some-length")
    token.chmod(0o600)
    picture = next((root / "source" / "media").glob("red-circle*"))  # of the first pair
    content = picture.read_bytes()
    picture.write_bytes(b"no picture")
    with Server(root, "--to", tmp_path / "a.csv", "--host", "0.0.0.0", "--token-file", token, name="review") as up:
        assert up.ask("/state").status == 401
        seen = Seen(browser, f"http://127.0.0.1:{up.port}/")
        seen.page.wait_for_selector("#key[open]")
        seen.page.fill("#token", "a-token-of-some-length")
        seen.page.keyboard.press("Enter")
        seen.until("0 of 96 done · pair 1")
        seen.page.keyboard.press("r")
        seen.until("1 of 96 done · pair 2")
        seen.when("document.querySelector('#frame img').naturalWidth === 32")
        seen.context.close()
    picture.write_bytes(content)


def test_nothing_is_lost_when_it_is_killed(root: Path, tmp_path: Path) -> None:
    to = tmp_path / "a.csv"
    for number in range(1, 4):
        with Server(root, "--to", to, name="review") as up:
            assert up.ask("/state").json["pair"]["place"] == 2 * number - 1
            for place in (2 * number - 1, 2 * number):
                body = json.dumps({"pair": place, "verdict": "noisy", "correction": f"نص {place}"}).encode()
                assert up.ask("/verdict", JSON, method="POST", body=body).status == 200
            up.stop(signal.SIGKILL)
        assert rows(to) == [("noisy", f"نص {place}") for place in range(1, 2 * number + 1)]
    with Server(root, "--to", to, name="review") as up:
        code, said = up.stop(signal.SIGINT)
    assert code == 130 and "6 pairs judged, 6 wrong" in said and f"ccr translate --only {to}" in said
