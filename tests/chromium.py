"""A real headless Chromium, and a page in it that is watched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import machine
import pytest

playwright = pytest.importorskip("playwright.sync_api")
needed = pytest.mark.needs("chromium")


@contextmanager
def chromium() -> Iterator[Any]:
    """Starts the browser."""
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=machine.CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


class Watched:
    """A page, its console messages and its requests."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page, self.address = self.context.new_page(), address
        self.page.set_default_timeout(30_000)
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)

    def shot(self, name: str) -> None:
        """Keeps a picture of the page, with the pictures in it, in the folder `$CCR_SHOTS`."""
        if folder := os.environ.get("CCR_SHOTS"):
            wait_until(self.page, "[...document.images].every(i => i.complete)")
            self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def wait_until(page: Any, true: str) -> None:
    """Waits for an expression, up to half a minute; it is evaluated from outside, which a page's policy lets pass."""
    for _ in range(600):
        if page.evaluate(true):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never {true}")
