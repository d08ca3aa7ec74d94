"""The signature: complete, in order, one line, and read back as written."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccr_cli.metrics.signature import (
    KEYS,
    build,
    data_name,
    data_value,
    differences,
    galleries,
    is_partial,
    parse,
    protocol_value,
    read_galleries,
    read_protocol,
    read_runs,
    sim_value,
)

# The order that the artifact contract fixes.
ORDER = "data|split|lang|caption_set|q|gallery|dir|protocol|pos|ties|sim|fusion|mt|noise|unc|select|leak|ccr"


def fields(**changed: object) -> dict[str, object]:
    return {**{key: f"v{i}" for i, key in enumerate(reversed(KEYS))}, **changed}


def test_keys_come_in_the_fixed_order_whatever_the_order_given() -> None:
    assert "|".join(KEYS) == ORDER
    text = build(fields())
    assert [part.split(":")[0] for part in text.split("|")] == ORDER.split("|")
    assert build(dict(reversed(fields().items()))) == text


def test_round_trip_with_colons_bars_and_line_ends() -> None:
    given_fields = fields(
        noise="caption:0.4|seed:1", mt="opus\nmt", data="a%7Cb", q=15000, lang="zh-Hant", leak="\u2028"
    )
    text = build({**given_fields, "leak": "x\u2028y"})
    assert "\n" not in text and text.count("|") == len(KEYS) - 1 and len(text.splitlines()) == 1
    assert parse(text) == {key: str({**given_fields, "leak": "x\u2028y"}[key]) for key in KEYS}


@settings(database=None, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda value: bool(value.strip())))
def test_any_text_comes_back_but_for_surrounding_space(value: str) -> None:
    text = build(fields(sim=value))
    assert len(text.splitlines()) == 1
    assert parse(text)["sim"] == value.strip()


def test_missing_unknown_and_empty_are_errors() -> None:
    incomplete = fields()
    del incomplete["unc"]
    with pytest.raises(ValueError, match="missing unc"):
        build(incomplete)
    with pytest.raises(ValueError, match="unknown fold"):
        build(fields(fold=1))
    with pytest.raises(ValueError, match="empty value in a signature for mt"):
        build(fields(mt=" "))


def test_what_is_not_a_signature_is_refused() -> None:
    text = build(fields())
    parts = text.split("|")
    for bad, message in (
        ("", "not a field"),
        ("|".join(parts[1:]), "missing data"),
        ("|".join([parts[1], parts[0], *parts[2:]]), "order"),
        (text + "|ccr:2", "twice"),
        (text + "|fold:2", "unknown fold"),
        (text.replace("unc:", "unc"), "not a field"),
    ):
        with pytest.raises(ValueError, match=message):
            parse(bad)


def test_differences_name_the_fields() -> None:
    one, two = build(fields()), build(fields(noise="0.4", lang="de"))
    assert differences(one, one) == {}
    assert differences(one, two) == {
        "lang": (parse(one)["lang"], "de"),
        "noise": (parse(one)["noise"], "0.4"),
    }


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
    with pytest.raises(ValueError, match="no gallery"):
        read_galleries(text)


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("name", ["a", "x-from-y", "a@b-partial", "zero-shot-from-z"])
@pytest.mark.parametrize("protocol", ["full", "zero-shot", "zero-shot-coco-5k", "labelled-without-3,8", "a-from-b"])
def test_what_was_trained_on_is_read_back(name: str, protocol: str, partial: bool) -> None:
    trained_on = data_value(name, "0a1b2c3d4e5f", partial)
    assert trained_on == f"{name}@0a1b2c3d" + "-partial" * partial
    assert (data_name(trained_on), is_partial(trained_on)) == (name + " (partial)" * partial, partial)
    text = build(fields(protocol=protocol_value(protocol, trained_on)))
    assert read_protocol(parse(text)["protocol"]) == (protocol, trained_on)
    assert read_protocol(protocol_value(protocol)) == (protocol, "")
