"""The page of `ccr serve` in a real browser: words, pictures, keys, a phone, a token, hostile texts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toy
from chromium import Watched, chromium, needed, wait_until
from served import Server
from toy import Chain

pytestmark = [pytest.mark.slow, needed]
CPU = ("--device", "cpu")
HOSTILE = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script> \u202e&amp;"
SHOWN = HOSTILE.replace("\u202e", "\ufffd")
TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def root(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which every caption that is shown is hostile."""
    place = tmp_path_factory.mktemp("page")
    root = place / "workspace"
    shutil.copytree(chain.root, root)
    folder = toy.toy("hostile")
    for item in folder.items:
        item[1] = "test"
    for caption in folder.captions:
        caption[4] = HOSTILE
    data = toy.ok("data", "import", folder.write(place / "hostile"), workspace=root).made
    toy.ok("extract", data.path, *toy.ENCODER, workspace=root)
    (place / "token").write_text(TOKEN)
    (place / "token").chmod(0o600)
    return root


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


class Seen(Watched):
    """The page of a server."""

    def found(self) -> list[str]:
        """Place and similarity of each result, once they are there."""
        self.page.wait_for_selector("#hits button")
        return list(self.page.locator("#hits b").all_text_contents())

    def until(self, true: str) -> None:
        """Waits; the page's policy lets no text be evaluated inside of it, so it is asked from outside."""
        wait_until(self.page, true)

    def close(self, address: str) -> None:
        """Nothing went wrong, and nobody else was asked."""
        assert self.messages == []
        assert [url for url in self.requests if not url.startswith((address, "blob:", "data:"))] == []
        self.context.close()


def test_words_keys_and_pictures(browser: Any, chain: Chain) -> None:
    with Server(chain.root, chain.find("run", "uml").path, "--split", "all") as up:
        seen = Seen(browser, up.address, viewport={"width": 1100, "height": 800})
        page = seen.page
        seen.until("document.title === 'Search toy'")
        examples = page.locator("#examples button")
        assert examples.count() == 6 and examples.first.inner_text().startswith("aquí hay un ")
        query = examples.last.inner_text()
        examples.last.click()
        assert seen.found() and page.input_value("#q") == query and not examples.first.is_visible()
        page.fill("#q", "")
        page.focus("#q")
        page.keyboard.type("círculo rojo")
        page.keyboard.press("Enter")
        first = up.ask("/search?q=c%C3%ADrculo%20rojo&top=20").json["hits"]
        assert seen.found() == [f"{hit['place']} · {hit['similarity']:.3f}" for hit in first]
        assert page.inner_text("#status").startswith("20 results") and "mean" not in page.inner_text("#status")
        seen.until("[...document.images].filter(i => i.naturalWidth === 32).length >= 10")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowLeft")
        assert page.evaluate("document.activeElement.querySelector('b').textContent").startswith("2 · ")
        page.keyboard.press("Enter")
        assert first[1]["item"] in page.inner_text("#large")
        seen.shot("large")
        page.keyboard.press("Escape")
        assert not page.locator("#large").is_visible()
        focused = "document.activeElement.id + ' ' + document.activeElement.value"
        page.keyboard.down("/")
        page.keyboard.down("/")  # which a browser sends again while it is held
        page.keyboard.up("/")
        assert page.evaluate(focused) == "q círculo rojo", "the key goes to the box, and is not written into it"
        page.keyboard.type("a/b/")
        assert page.evaluate(focused) == "q a/b/", "in the box it is a letter"
        page.focus("#top")
        page.keyboard.press("/")
        assert page.evaluate(focused) == "top 20", "from what else takes keys it steals none"
        page.fill("#q", "")
        page.keyboard.type("barra negra")
        page.select_option("#top", "10")
        seen.until("document.querySelectorAll('#hits button').length === 10")
        assert page.url == f"{up.address}?q=barra+negra&top=10"
        page.go_back()
        seen.until("document.querySelectorAll('#hits button').length === 20")
        assert page.input_value("#q") == "círculo rojo"
        page.fill("#q", "xyzzy")
        page.keyboard.press("Enter")
        seen.until("document.querySelector('#status').textContent.endsWith('so the results mean little')")
        seen.shot("unknown")
        page.set_input_files("#file", chain.folder / "media" / "blue-ring.png")
        seen.until("document.querySelector('#hits b').textContent === '1 · 1.000'")
        assert (
            page.locator("#hits bdi").first.text_content() == "blue ring" and page.locator("#status img").count() == 1
        )
        seen.shot("picture")
        page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": b"no picture"})
        page.wait_for_selector("#status.error")
        assert "JPEG" in page.inner_text("#status")
        assert [text for text in seen.messages if "400" not in text] == [], (
            "a refusal is on the console, and nothing else"
        )
        seen.messages.clear()
        seen.close(up.address)


def test_a_hostile_caption_is_text(browser: Any, root: Path, chain: Chain) -> None:
    run = root / "runs" / chain.find("run", "uml").name
    with Server(root, run, root / "datasets" / "hostile") as up:
        seen = Seen(browser, f"{up.address}?q=%3Cimg%20src%3Dx%20onerror%3D1%3E&top=10", color_scheme="dark")
        assert len(seen.found()) == 10
        assert seen.page.locator("#hits bdi").first.text_content() == SHOWN
        assert seen.page.title() == "Search hostile" and seen.page.locator("#hits script").count() == 0
        assert seen.page.locator("#hits [onerror]").count() == 0 and seen.page.locator("img[src=x]").count() == 0
        seen.page.locator("#hits button").first.click()
        assert seen.page.locator("#large bdi").text_content() == SHOWN
        assert seen.page.title() == "Search hostile"
        seen.shot("hostile")
        seen.close(up.address)


def test_a_phone(browser: Any, chain: Chain) -> None:
    with Server(chain.root, chain.find("run", "uml").path) as up:
        seen = Seen(browser, f"{up.address}?q=rojo", viewport={"width": 360, "height": 740}, color_scheme="light")
        seen.found()
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 360
        seen.shot("phone")
        seen.page.locator("#hits button").first.click()
        assert seen.page.evaluate("document.querySelector('dialog[open]').getBoundingClientRect().right") <= 360
        seen.close(up.address)


def test_a_token_is_asked_for(browser: Any, root: Path, chain: Chain) -> None:
    run = root / "runs" / chain.find("run", "uml").name
    with Server(root, run, "--host", "0.0.0.0", "--token-file", root.parent / "token") as up:
        address = f"http://127.0.0.1:{up.port}/"
        seen = Seen(browser, f"{address}?q=rojo&top=10")
        seen.page.wait_for_selector("#key[open]")
        seen.shot("token")
        seen.page.fill("#token", "wrong")
        seen.page.keyboard.press("Enter")
        seen.until("document.getElementById('token').value === ''")
        seen.page.wait_for_selector("#key[open]")
        seen.page.fill("#token", TOKEN)
        seen.page.keyboard.press("Enter")
        assert len(seen.found()) == 10
        seen.until("[...document.images].filter(i => i.naturalWidth === 32).length >= 4")
        assert TOKEN not in seen.page.content() and TOKEN not in "".join(seen.requests)
        assert all("401" in text for text in seen.messages)
        seen.messages.clear()
        seen.close(address)
