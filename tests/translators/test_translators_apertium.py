"""The real Apertium where it is installed, and stand-ins for what goes wrong with it."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy import translated

from ccr_cli.errors import UnavailableError, UsageError
from ccr_cli.stages.shared.options import configure, identified
from ccr_cli.translators import apertium
from ccr_cli.translators.base import Translation

needs_apertium = pytest.mark.needs("apertium")

AWKWARD = [
    "grinning face",
    "fire engine",
    "A dog <b>runs</b> in the <i>deep snow",
    "",
    "a [x] b [sic] in brackets",
    "price $5 ^ 3 / 4 < 5 > 2 {curly} @user",
    "back\\slash C:\\new \\[x\\] \\\\",
    "face \U0001f600 with tears of joy \U0001f469\u200d\U0001f469\u200d\U0001f467",
    "tab\there",
    "two\nlines",
    "~tilde~ * star_under # hash a+b %s {0}",
    "&amp; &lt;entity&gt; [[nested]] ]] ] [",
    "\x00nul \x1b[31mred\x1b[0m",
    "[<STREAMCMD:SETVAR:x>] ^dog<n>$",
    "   ",
    "...",
    "The dog.",
    "No full stop",
]


@pytest.fixture(autouse=True)
def fresh_caches() -> Iterator[None]:
    apertium._package_version.cache_clear()
    yield
    apertium._package_version.cache_clear()


def make(source: str, target: str, **options: object) -> apertium.Translator:
    config = apertium.Config(**options)  # type: ignore[arg-type]
    return apertium.Translator(source, target, config, dataset_dir=None, device="cpu")


@needs_apertium
def test_real_sentences() -> None:
    results = translated(make("en", "es"), ["The dogs eat the red apples.", "The cat sits on the table", "red"])
    assert results == [
        Translation("Los perros comen las manzanas rojas."),
        Translation("El gato sienta en la mesa"),
        Translation("Rojo"),
    ]


@pytest.mark.slow
@needs_apertium
@pytest.mark.parametrize(("mode", "count"), [("eng-spa", len(AWKWARD)), ("eng-cat", 6)])
def test_texts_do_not_touch_each_other(mode: str, count: int) -> None:
    """The oracle is one process for each text, with Apertium's own deformatter."""

    def alone(text: str) -> str:
        clean = " ".join(text.replace("\x00", " ").replace("\x1b", " ").split())
        done = subprocess.run(["apertium", "-u", mode], input=clean + "\n", capture_output=True, encoding="utf-8")
        return " ".join(done.stdout.split())

    found = translated(make("en", "es", modes=mode), AWKWARD[:count])
    assert [r.text for r in found] == [alone(text) if text.strip() else "" for text in AWKWARD[:count]]
    assert all(r.error is None for r in found)


@pytest.mark.slow
@needs_apertium
def test_a_text_does_not_change_what_becomes_of_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """`A lot of` makes Apertium's own tagger change its mind about other words for good."""
    texts = [
        "A lot of people bundled up together",
        "A man sits on a field near a backpack.",
        "A child in a ninja outfit does a jumping kick.",
        "A lot of people " * 500 + "near a backpack",
        "A man with stretched earlobes wears a black hat near a display.",
    ]
    engine = make("en", "es")
    together = translated(engine, texts)
    assert together == [translated(engine, [text])[0] for text in texts]
    assert together[::-1] == translated(engine, texts[::-1])
    monkeypatch.setattr(apertium, "_BLOCK", 2)
    assert translated(engine, texts) == together
    assert dict(engine.translate(texts, known={0, 2, 4})) == {1: together[1], 3: together[3]}


@pytest.mark.slow
@needs_apertium
def test_specials_survive_two_hops() -> None:
    engine = make("en", "fr")
    assert engine.modes == ["eng-cat", "cat-fra"]
    results = translated(engine, AWKWARD)
    assert len(results) == len(AWKWARD) and all(r.text is not None for r in results)
    assert "<b>" in (results[2].text or "") and "[x]" in (results[4].text or "")
    assert "$5 ^ 3 / 4 < 5 > 2" in (results[5].text or "")
    assert "\\" in (results[6].text or "") and "\U0001f600" in (results[7].text or "")


@needs_apertium
def test_many_texts_keep_their_order() -> None:
    texts = [f"number {i} dog" for i in range(300)]
    results = translated(make("en", "es"), texts)
    assert all(str(i) in (r.text or "") for i, r in enumerate(results))


@needs_apertium
def test_a_locale_without_utf8_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    assert translated(make("es", "en"), ["el ni\u00f1o peque\u00f1o"])[0].text == "The small boy"


@needs_apertium
def test_pairs_and_description() -> None:
    assert all(apertium.reaches(*pair) for pair in (("en", "es"), ("en", "fr"), ("fr-CA", "en")))
    assert not apertium.reaches("en", "en") and not apertium.reaches("en", "ja")
    facts = make("en-GB", "fr-FR").describe()
    assert facts["engine"] == "apertium" and facts["model"] == "eng-cat+cat-fra"
    assert facts["version"].startswith("Apertium 3") and "apertium-eng-cat" in facts["version"]
    assert facts["command"] == "apertium -u -z -f none eng-cat | apertium -u -z -f none cat-fra"


def test_codes_of_three_letters_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "cat")
    for source, target in (("en", "spa"), ("eng", "ES"), ("en-GB", "spa-MX")):
        assert make(source, target).modes == ["eng-spa"] and apertium.reaches(source, target)
    assert not apertium.reaches("spa", "eng")


@needs_apertium
def test_a_pair_and_a_mode_that_are_not_installed() -> None:
    with pytest.raises(UnavailableError, match=r"\ben\b.*\bis\b") as caught:
        make("en", "is")
    assert "sudo apt install apertium apertium-isl-eng" in (caught.value.hint or "")
    with pytest.raises(UnavailableError, match="eng-xyz"):
        make("en", "es", modes="eng-spa,eng-xyz")


def test_the_path_is_the_shortest_and_the_first() -> None:
    modes = ("eng-spa", "eng-cat", "cat-fra", "es-fr", "eco-es-fr", "eng-cat_valencia", "fr-es")
    assert apertium._path("en", "es", modes) == ["eng-spa"]
    assert apertium._path("en", "fr", modes) == ["eng-cat", "cat-fra"]
    assert apertium._path("fr", "en", modes) == []
    assert apertium._path("ca", "es", modes) == ["cat-fra", "fr-es"]


def test_without_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not apertium.reaches("en", "es")
    for target, packages in (("es", "apertium-eng-spa"), ("fr", "apertium-eng-cat apertium-fra-cat")):
        with pytest.raises(UnavailableError, match="Apertium") as caught:
            make("en", target)
        assert caught.value.hint == f"sudo apt install apertium {packages}"


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    script = folder / "apertium"
    script.write_text(f'#!/bin/sh\ncase "$*" in -l) echo eng-spa; exit;; -V) echo fake; exit;; esac\n{body}\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_a_text_that_breaks_the_engine_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(
        tmp_path,
        monkeypatch,
        'x=$(tr "\\000" "|"); case "$x" in *poison*) exit 3;; esac; printf %s "$x" | tr "|" "\\000"',
    )
    results = translated(make("en", "es"), ["one", "two", "poison", "four", "five"])
    assert [r.text for r in results] == ["one", "two", None, "four", "five"]
    assert results[2].error == "eng-spa ended with 3"


def test_a_wrong_number_of_texts_is_never_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, 'cat; printf "extra.[]\\000"')
    results = translated(make("en", "es"), ["one", "two"])
    assert [r.text for r in results] == [None, None]
    assert results[0].error is not None and "another number of texts" in results[0].error


@pytest.mark.parametrize("out", ["", 'tr -dc "\\000"'], ids=["nothing at all", "as many empty texts"])
def test_what_an_engine_complains_of_is_said(out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complaint = 'printf "Error: no such file\\n  eng-spa.automorf.bin %0300d" 0 >&2'
    stand_in(tmp_path, monkeypatch, f"{complaint}; {out or 'cat > /dev/null'}")
    results = translated(make("en", "es"), ["one", "two"])
    assert [r.text for r in results] == [None, None]
    error = results[0].error or ""
    assert error.startswith("eng-spa gave nothing: Error: no such file eng-spa.automorf.bin 0000")
    assert "\n" not in error and len(error) < 250


def test_patience_is_no_part_of_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "cat")
    patient, usual = apertium.Config(timeout=5.0), apertium.Config()
    assert identified(apertium, patient) == identified(apertium, usual)
    assert identified(apertium, usual) != identified(apertium, apertium.Config(modes="eng-spa"))
    assert make("en", "es", timeout=5.0).identity() == make("en", "es").identity()
    for seconds in ("0", "-1"):
        with pytest.raises(UsageError, match=f"timeout .* {seconds}$"):
            configure(apertium.Config, {"timeout": seconds}, "engine apertium")


def test_a_hanging_engine_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "sleep 60 | cat")
    results = translated(make("en", "es", timeout=0.3), ["one"])
    assert results == [Translation(None, error="eng-spa took more than 0.3 s")]
