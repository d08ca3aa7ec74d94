"""The page in a real browser: sorting, filtering, comparing, keys, a phone, hostile captions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import fakes as fake
import numpy as np
import pandas as pd
import pytest
from chromium import Watched, chromium, needed
from PIL import Image

from ccr_cli.report.content import ReportDataset
from ccr_cli.report.page import compose, lists
from ccr_cli.stages.report.stage import gather
from ccr_cli.stages.shared.inputs import Inputs

pytestmark = needed
HOSTILE = (
    "</script><script>document.title='hacked'</script>",
    "<img src=x onerror=\"document.title='hacked'\">&amp;<!--",
    "\u202eabc\u2066def\u2028ghi",
    "x" * 10_000,
)
COUNT = 230


def judged(which: int, columns: list[str]) -> pd.DataFrame:
    """Pairs of which the first are the most suspicious and hostile; the second run doubts every third pair."""
    place = np.arange(COUNT)
    p = place / COUNT if which == 0 else np.where(place % 3 == 0, 0.25, 0.75)
    texts = [*HOSTILE, *(f"caption {i} rojo" if i % 2 else f"caption {i} azul" for i in range(4, COUNT))]
    frame = pd.DataFrame({"slot_id": [f"s{i}" for i in place], "item_id": [f"i{i % 40}" for i in place]})
    frame.loc[1, "item_id"] = '"><img src=x onerror="document.title=1">'
    frame = frame.assign(lang="es", source_text=[t[::-1] for t in texts], translation=texts, back=texts)
    frame = frame.assign(sim_vt=-p, sim_vs=p, sim_st=p, uncertainty=((place * 7) % COUNT) / COUNT, p_clean=p, p_st=p)
    frame = frame.assign(place=np.argsort(np.argsort(p, kind="stable")) + 1, support=np.where(place % 5, 9, 1))
    frame = frame.assign(verdict=np.where(p < 0.5, "noisy", "clean"), truth=np.where(place % 2, "noisy", "clean"))
    return frame[columns]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report on two runs, both of which judged the same hostile pairs."""
    return report(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same of translations from German."""
    known = [ReportDataset("toy-emoji", {"name": "toy-emoji", "source_lang": "de"})]
    return report(tmp_path_factory.mktemp("german"), datasets=known)


@pytest.fixture(scope="module")
def pictureless(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same where no picture is, of methods with long names."""
    return report(tmp_path_factory.mktemp("pictureless"), " (cross_lingual_weight=0.5)", datasets=())


def report(root: Path, more: str = "", **changes: Any) -> str:
    """Writes the report, with more in the names of methods; where its page is."""
    workspace = fake.make(root / "workspace", ("infonce", "uml"), (0.4,), (0,), langs=("es",))
    material = gather(Inputs(workspace))
    told = {str(d.summary["label"]): d for d in material.diagnoses}
    diagnoses = [
        replace(told[label], summary={**told[label].summary, "most_suspicious": []}, load_pairs=partial(judged, n))
        for n, label in enumerate(("uml", "infonce"))
    ]
    facts = {run: replace(fact, label=fact.label + more) for run, fact in material.facts.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ccr_cli.report.page.compose.FIGURES", ())
        compose.write(replace(material, diagnoses=diagnoses, facts=facts, **changes), root)
    return f"file://{root / compose.PAGE}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


class Seen(Watched):
    """The page of a report."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        super().__init__(browser, address, **options)
        self.page.wait_for_selector("#explorer tbody tr")

    def column(self, name: str) -> list[str]:
        """The first line of each cell."""
        cells = self.page.locator(f'#explorer td[data-name="{name}"]').all_inner_texts()
        return [cell.strip().splitlines()[0] for cell in cells]

    def shot(self, name: str) -> None:
        """Keeps a picture of the page where `$CCR_SHOTS` says."""
        if folder := os.environ.get("CCR_SHOTS"):
            self.page.evaluate("document.getElementById('pairs').scrollIntoView()")
            self.page.screenshot(path=Path(folder) / f"report-{name}.png")

    def close(self) -> None:
        """No message on the console, and no request but for the page."""
        assert self.messages == [] and [url for url in self.requests if not url.startswith("data:")] == [self.address]
        self.context.close()


@pytest.mark.slow
def test_texts_are_in_the_languages_of_the_data(browser: Any, german: str) -> None:
    seen = Seen(browser, german, viewport={"width": 1200, "height": 900})
    cells = "(cells) => [...new Set(cells.map((cell) => cell.lang))]"
    assert "source (de)" in seen.page.locator("#explorer thead th").all_text_contents()
    for name, lang in (("de", "de"), ("back", "de"), ("es", "es")):
        assert seen.page.locator(f'#explorer td[data-name="{name}"] bdi').evaluate_all(cells) == [lang]
    seen.page.fill("#pairs-words", judged(0, ["source_text"])["source_text"].iloc[9])
    assert seen.page.locator("#explorer tbody tr").count() == 1, "words are looked for in the source too"
    seen.shot("german")
    seen.close()


@pytest.mark.slow
def test_pairs_are_sorted_and_filtered(browser: Any, address: str) -> None:
    seen = Seen(browser, address, viewport={"width": 1200, "height": 900})
    page = seen.page
    assert page.input_value("#pairs-run") == "1", "the method that the headline speaks of"
    shown = [float(value) for value in seen.column("P(clean)")]
    assert len(shown) == 40 and shown == [round(i / COUNT, 3) for i in range(40)]
    page.click('#explorer th button[data-by="uncertainty"]')
    values = [float(value) for value in seen.column("uncertainty")]
    assert values == sorted(values, reverse=True) and values[0] > 0.9
    page.click('#explorer th button[data-by="uncertainty"]')
    values = [float(value) for value in seen.column("uncertainty")]
    assert values == sorted(values) and page.input_value("#pairs-sort") == "uncertainty"
    assert page.get_attribute("#explorer th:has(button[data-by=uncertainty])", "aria-sort") == "ascending"
    page.select_option("#pairs-sort", "p")
    page.select_option("#pairs-verdict", "clean")
    assert all(text.startswith("clean") for text in seen.column("verdict")) and float(seen.column("P(clean)")[0]) >= 0.5
    page.select_option("#pairs-verdict", "noisy")
    page.select_option("#pairs-truth", "clean")
    page.fill("#pairs-words", "ROJO")
    assert page.inner_text("#explorer [role=status]").startswith("0 of ")
    page.select_option("#pairs-truth", "noisy")
    assert all("rojo" in text for text in seen.column("es")) and page.locator("#explorer tbody tr").count() == 40
    page.click(".more-pairs")
    assert (
        page.locator("#explorer tbody tr").count() == len(range(5, COUNT // 2, 2))
        and not page.locator(".more-pairs").is_visible()
    )
    page.fill("#pairs-words", "")
    page.select_option("#pairs-verdict", "")
    page.select_option("#pairs-sort", "similarity")
    widths = "(bars) => bars.map((bar) => bar.firstChild.offsetWidth / bar.offsetWidth)"
    drawn = page.locator("#explorer .bar").evaluate_all(widths)
    assert drawn == pytest.approx([float(value) for value in seen.column("P(clean)")], abs=0.02), "and no doubt"
    seen.shot("light")
    seen.close()


@pytest.mark.slow
def test_wide_tables_stay_in_their_card(browser: Any, pictureless: str) -> None:
    sides = """() => {
      const edge = (e) => e.getBoundingClientRect().right, card = document.getElementById("detection");
      const scroll = card.querySelector("figure.table .scroll"), table = scroll.querySelector("table");
      const last = table.querySelector("tbody td:last-child"), before = edge(last);
      scroll.scrollLeft = 1e6;
      return { page: document.documentElement.scrollWidth, card: edge(card), scroll: edge(scroll), before,
        after: edge(last), columns: table.querySelectorAll("thead tr:last-child th").length };
    }"""
    for width in (1280, 390):
        seen = Seen(browser, pictureless, viewport={"width": width, "height": 900})
        found = seen.page.evaluate(sides)
        assert found["columns"] == 14 and found["page"] == width and found["scroll"] < found["card"]
        assert found["after"] <= found["scroll"] + 1, "its last column can be read"
        assert (found["before"] <= found["scroll"] + 1) == (width == 1280), "all of it is seen where there is room"
        seen.close()


@pytest.mark.slow
def test_without_any_picture_there_is_no_column_of_them(browser: Any, pictureless: str) -> None:
    for width in (1200, 390):
        seen = Seen(browser, pictureless, viewport={"width": width, "height": 900})
        assert seen.page.locator("#explorer td[data-name=picture], #explorer .thumb, .suspects .thumb").count() == 0
        assert seen.page.locator("#explorer thead th").first.text_content() == "source"
        start = "(e) => e.getBoundingClientRect().left"
        left, form = (seen.page.locator(s).first.evaluate(start) for s in ("#explorer td", "#explorer form"))
        assert left == pytest.approx(form, abs=1) and float(seen.column("P(clean)")[1]) > 0
        assert seen.page.evaluate("document.documentElement.scrollWidth") == width
        seen.shot(f"pictureless-{width}")
        seen.close()


@pytest.mark.slow
def test_runs_are_compared(browser: Any, address: str) -> None:
    seen = Seen(browser, address, viewport={"width": 1200, "height": 900}, color_scheme="dark")
    page = seen.page
    assert not page.locator("#pairs-differ").is_visible()
    page.select_option("#pairs-other", label="infonce")
    page.check("#pairs-differ")
    first = page.locator('#explorer td[data-name="verdict"]').first.inner_text()
    assert "noisy" in first and "clean" in first
    page.select_option("#pairs-sort", "difference")
    lines = [text.split() for text in page.locator('#explorer td[data-name="P(clean)"]').all_inner_texts()]
    gaps = [abs(float(words[0]) - float(words[2])) for words in lines]
    assert gaps == sorted(gaps, reverse=True) and {words[1] for words in lines} == {"uml"}
    seen.shot("dark")
    page.select_option("#pairs-other", "-1")
    assert page.input_value("#pairs-sort") == "p" and float(seen.column("P(clean)")[0]) == 0
    seen.close()


def test_a_hostile_caption_is_text(browser: Any, address: str) -> None:
    seen = Seen(browser, address, viewport={"width": 1200, "height": 900})
    page = seen.page
    texts = page.locator('#explorer td[data-name="es"] bdi').all_text_contents()[: len(HOSTILE)]
    assert [texts[0], texts[1], texts[3]] == [HOSTILE[0], HOSTILE[1], HOSTILE[3]]
    assert not {"\u202e", "\u2066", "\u2028"} & set(texts[2])
    assert page.title() == "toy-emoji: cross-lingual retrieval in es under noisy translation"
    assert page.locator("script").count() == 2 and page.locator("[onerror]").count() == 0
    assert page.locator("img[src=x]").count() == 0
    assert page.get_attribute("#explorer tbody tr:nth-child(2) .thumb", "title").startswith('"><img')
    box = page.locator("#explorer tbody tr:nth-child(4)").bounding_box()
    assert box["height"] < 160 and page.evaluate("document.documentElement.scrollWidth") <= 1200
    page.fill("#pairs-words", "</script>")
    assert page.locator("#explorer tbody tr").count() == 1
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'document.title = 1'}))")
    assert page.title() != "1", "the policy lets no other script run"
    assert len(seen.messages) == 1 and "Content Security Policy" in seen.messages.pop()
    seen.close()


@pytest.mark.slow
def test_a_phone(browser: Any, address: str) -> None:
    seen = Seen(browser, address, viewport={"width": 390, "height": 844})
    page = seen.page
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("[...document.querySelectorAll('.scroll')].some((e) => e.scrollWidth > e.clientWidth)")
    wide = "[...document.querySelectorAll('#explorer *')].filter((e) => e.getBoundingClientRect().right > 390).length"
    assert page.evaluate(wide) == 0 and not page.locator("#explorer thead").is_visible()
    page.select_option("#pairs-sort", "similarity")
    assert float(seen.column("P(clean)")[1]) > 0.9
    seen.shot("phone")
    seen.close()


@pytest.mark.parametrize("width", [390, pytest.param(1200, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_sheet_breaks_no_word(browser: Any, tmp_path: Path, width: int) -> None:
    word = "Geschwindigkeitsbegrenzung"
    Image.new("RGB", (30, 10), "red").save(tmp_path / "a.png")
    pair = {"item_id": "i", "source_text": word, "translation": f"una {word}", "back": word, "p_clean": 0.3}
    (tmp_path / "a.html").write_text(lists.sheet([pair], lambda item: tmp_path / "a.png", "es", "de", "title"))
    seen = Watched(browser, f"file://{tmp_path / 'a.html'}", viewport={"width": width, "height": 800})
    lines = """(texts) => texts.map((text) => { const range = document.createRange(); const node = text.firstChild;
      range.setStart(node, node.length - 26); range.setEnd(node, node.length);
      return range.getClientRects().length; })"""
    assert seen.page.locator("bdi").evaluate_all(lines) == [1, 1, 1]
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width
    assert seen.page.locator("thead").is_visible() == (width > 700)
    bar = "(bar) => bar.firstChild.offsetWidth / bar.offsetWidth"
    assert seen.page.locator(".bar").evaluate(bar) == pytest.approx(0.3, abs=0.02), "the bar is of P(clean)"
    assert seen.messages == []
    seen.context.close()


@pytest.mark.slow
def test_keys(browser: Any, address: str) -> None:
    seen = Seen(browser, address, viewport={"width": 1200, "height": 900})
    page = seen.page
    page.keyboard.down("/")
    page.keyboard.down("/")  # which a browser sends again while it is held
    page.keyboard.up("/")
    assert page.evaluate("document.activeElement.id") == "pairs-words" and page.input_value("#pairs-words") == ""
    page.keyboard.type("azul/")
    assert page.input_value("#pairs-words") == "azul/"
    page.keyboard.press("Escape")
    assert page.input_value("#pairs-words") == "" and page.locator("#explorer tbody tr").count() == 40
    for _ in range(20):
        if page.evaluate("document.activeElement.dataset.by") == "similarity":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.by") == "similarity"
    values = [float(value) for value in seen.column("similarity")]
    assert values == sorted(values) and page.input_value("#pairs-sort") == "similarity"
    seen.close()
