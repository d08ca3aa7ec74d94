"""The signature: complete, in order, one line, and read back as written."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccr_cli.artifacts import signature
from ccr_cli.artifacts.signature import (
    KEYS,
    ScoreProtocol,
    Signature,
    data_name,
    data_value,
    galleries,
    is_partial,
    read_galleries,
    read_runs,
    signature_of,
    sim_value,
)

# The order that the artifact contract fixes.
ORDER = "data|split|lang|caption_set|q|gallery|dir|protocol|pos|ties|sim|fusion|mt|noise|unc|select|leak|ccr"


def fields(**changed: str) -> dict[str, str]:
    return {**{key: f"v{i}" for i, key in enumerate(reversed(KEYS))}, **changed}


def test_keys_come_in_the_fixed_order_whatever_the_order_given() -> None:
    assert "|".join(KEYS) == ORDER
    text = str(Signature(**fields()))
    assert [part.split(":")[0] for part in text.split("|")] == ORDER.split("|")
    assert str(Signature(**dict(reversed(fields().items())))) == text


def test_round_trip_with_colons_bars_and_line_ends() -> None:
    values = fields(noise="caption:0.4|seed:1", mt="opus\nmt", data="a%7Cb", lang="zh-Hant", leak="x\u2028y")
    signed = Signature(**values)
    text = str(signed)
    assert "\n" not in text and text.count("|") == len(KEYS) - 1 and len(text.splitlines()) == 1
    assert Signature.parse(text) == signed and signed.fields == {key: values[key] for key in KEYS}


@settings(database=None, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda value: bool(value.strip())))
def test_any_text_comes_back_but_for_surrounding_space(value: str) -> None:
    text = str(Signature(**fields(sim=value)))
    assert len(text.splitlines()) == 1
    assert Signature.parse(text).sim == value.strip()


def test_missing_unknown_and_empty_are_errors() -> None:
    incomplete = fields()
    del incomplete["unc"]
    with pytest.raises(TypeError, match="unc"):
        Signature(**incomplete)
    with pytest.raises(TypeError, match="fold"):
        Signature(**fields(fold="1"))
    with pytest.raises(ValueError, match=r"\bmt\b"):
        Signature(**fields(mt=" "))


def test_what_is_not_a_signature_is_refused() -> None:
    text = str(Signature(**fields()))
    parts = text.split("|")
    for bad, value in (
        ("", "''"),
        ("|".join(parts[1:]), "'data'"),
        ("|".join([parts[1], parts[0], *parts[2:]]), r"split\|data"),
        (text + "|ccr:2", "'ccr'"),
        (text + "|fold:2", "'fold'"),
        (text.replace("unc:", "unc"), "unc"),
    ):
        with pytest.raises(ValueError, match=value):
            Signature.parse(bad)
        assert signature_of({"signature": bad}) is None
    assert signature_of({"signature": text}) == Signature(**fields()) and signature_of({}) is None


@pytest.mark.parametrize(
    ("sizes", "text"), [([352], "352"), ([1000] * 5, "5x1000"), ([1000, 998, 999], "3x998-1000"), ([1], "1")]
)
def test_sizes_of_galleries_are_read_back(sizes: list[int], text: str) -> None:
    assert galleries(sizes) == text
    assert read_galleries(text) == (len(sizes), min(sizes), max(sizes))


def test_similarities_say_of_how_many_runs() -> None:
    assert [sim_value(), sim_value("exclusive"), sim_value(runs=12)] == ["cosine", "cosine-exclusive", "cosine-mean12"]
    assert [read_runs(each) for each in ("cosine", "cosine-exclusive", "cosine-mean12")] == [1, 1, 12]


@pytest.mark.parametrize("text", ["", "x5", "5x", "5x1000x2", "many", "1-"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        read_galleries(text)


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("name", ["a", "x-from-y", "a@b-partial", "zero-shot-from-z"])
@pytest.mark.parametrize("protocol", ["full", "zero-shot", "zero-shot-coco-5k", "labelled-without-3,8", "a-from-b"])
def test_what_was_trained_on_is_read_back(name: str, protocol: str, partial: bool) -> None:
    trained_on = data_value(name, "0a1b2c3d4e5f", partial)
    assert trained_on == f"{name}@0a1b2c3d" + "-partial" * partial
    assert (data_name(trained_on), is_partial(trained_on)) == (name + " (partial)" * partial, partial)
    for on in (trained_on, ""):
        rules = replace(ScoreProtocol.parse(protocol), trained_on=on)
        assert Signature.parse(str(Signature(**fields(protocol=str(rules))))).rules == rules
        assert str(replace(rules, trained_on="")) == protocol


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("full", ScoreProtocol("full")),
        ("zero-shot", ScoreProtocol("full", zero_shot=True)),
        ("zero-shot-labelled", ScoreProtocol("labelled", zero_shot=True)),
        ("text-query-mt", ScoreProtocol("text-query-mt")),
        (
            "coco-1k-5fold-corrupt-shuffle1e-05-seed0",
            ScoreProtocol("coco-1k-5fold", change="corrupt-shuffle1e-05-seed0"),
        ),
        ("zero-shot-full-corrupt-drop0.3-seed0", ScoreProtocol("full", True, "corrupt-drop0.3-seed0")),
        ("full-ood-other@0a1b2c3d-partial", ScoreProtocol("full", change="ood-other@0a1b2c3d-partial")),
        (
            "labelled-corrupt-both0.3-seed0-without-3,8",
            ScoreProtocol("labelled", False, "corrupt-both0.3-seed0", "3,8"),
        ),
    ],
)
def test_a_protocol_comes_back_with_all_that_it_says(text: str, rules: ScoreProtocol) -> None:
    assert ScoreProtocol.parse(text) == rules and str(rules) == text


def test_values_are_written_and_read_back() -> None:
    assert data_value("multi30k", "0a1b2c3d4e5f", partial=True) == "multi30k@0a1b2c3d-partial"
    assert signature.read_data("my-partial@0a1b2c3d-partial") == ("my-partial", "0a1b2c3d", True)
    assert signature.read_data("itself") == ("itself", "itself", False)
    mismatch = {"style": "caption", "target": "translation", "ratio": 0.4, "seed": 1}
    assert signature.noise_value(mismatch) == "caption-translation-0.4-seed1"
    plugin = mismatch | {"source": {"sha256": "67914b00"}}
    assert signature.noise_value(plugin) == "caption.67914b-translation-0.4-seed1"
    assert signature.read_noise(signature.noise_value(plugin)) == ("caption.67914b-translation", 1)
    assert signature.read_noise("caption-translation-0.4-seed1") == ("caption-translation", 1)
    assert signature.read_noise("none") is None
    assert signature.fusion_value(0.8, "raw") == "0.8raw" and signature.read_fusion("0.8raw") == ("0.8", "raw", 0)
    assert signature.fusion_value(0.5, "minmax", alone=3) == "0.5minmax-3alone"
    assert signature.read_fusion("0.5minmax-3alone") == ("0.5", "minmax", 3)
    assert signature.read_fusion("none") == ("", "", 0)
    assert [signature.read_reading(value) for value in ("cosine-exclusive", "cosine")] == ["exclusive", ""]
    for shared, leak in ((0, "own-split"), (3, "own-split-3trained")):
        assert signature.own_split_value(shared) == leak and signature.read_own_split(leak) == shared
    assert signature.read_own_split("unchecked") == 0


def test_engines_of_several_languages() -> None:
    one, engines = {"de": "recorded:ct2"}, {"de": "recorded:ct2", "fr": "hf:opus"}
    assert [signature.mt_value(one, lang) for lang in ("de", "en")] == ["recorded:ct2"] * 2
    assert signature.mt_value({}, "en") == "none"
    assert signature.mt_value(engines, "fr") == "hf:opus+de=recorded:ct2"
    assert signature.read_mt("hf:opus+de=recorded:ct2") == ("hf:opus", ("de",))
    assert signature.mt_value(engines, "en") == "de=recorded:ct2+fr=hf:opus"
    assert signature.read_mt("de=recorded:ct2+fr=hf:opus") == ("de=recorded:ct2+fr=hf:opus", ())
    assert signature.read_mt("recorded:ct2") == ("recorded:ct2", ())
