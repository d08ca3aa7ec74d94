"""`--set help`: every plug-in's options, each with its meaning."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import toy

from ccr_cli import registry
from ccr_cli.stages.shared.options import described
from ccr_cli.stages.shared.witnesses import recorded


@pytest.mark.parametrize("group", ["encoders", "methods", "translators"])
def test_every_option_says_what_it_is(group: str) -> None:
    for name in registry.names(group):
        for option, _, meaning in described(registry.load(group, name).Config):
            assert meaning.endswith((".", ".)")) and "\n" not in meaning, f"{name}: {option}"


@pytest.mark.parametrize(
    ("call", "option"),
    [
        (("translate", "--lang", "es", "--engine", "apertium"), "modes"),
        (("translate",), "num_beams"),
        (("extract", "--encoder", "clip"), "model"),
        (("extract",), "model"),
        (("train", "--method", "uml"), "anchor_weight"),
        (("data", "import", "--format", "karpathy"), "item"),
    ],
)
def test_options_are_listed_without_inputs(call: tuple[str, ...], option: str, tmp_path: Path) -> None:
    listed = toy.ok(*call, "--set", "help", workspace=tmp_path)
    assert f"\n{option}\t" in listed.out and not listed.err and not list(tmp_path.iterdir())


@pytest.mark.parametrize("setting", ["neighbours=-1", "neighbours=few"])
def test_a_wrong_value_is_named(setting: str, sources: toy.Chain) -> None:
    done = sources.ccr("train", "--method", "in2r", "--set", setting)
    assert done.code == 2 and "neighbours" in done.err and setting.partition("=")[2] in done.err
    assert "try: --set help" in done.err


def test_without_a_name_the_options_are_those_of_what_the_data_set_takes(sources: toy.Chain) -> None:
    before = sorted(sources.root.rglob("*"))
    for call, option in ((("translate", "--lang", "es"), "table"), (("extract",), "image_size")):
        listed = sources.ccr(*call, "--set", "help")
        assert listed.code == 0 and f"\n{option}\t" in listed.out
    assert sorted(sources.root.rglob("*")) == before


def test_presets_are_listed_with_what_they_set(tmp_path: Path) -> None:
    listed = toy.ok("train", "--method", "uml", "--preset", "help", workspace=tmp_path).out.splitlines()
    rows = dict(line.split("\t") for line in listed)
    assert list(rows)[1:] == ["paper", "paper-video"]
    assert "gamma=0.25" in rows["paper-video"] and "warmup_epochs=0" in rows["paper-video"]
    options = toy.ok("train", "--method", "uml", "--set", "help", workspace=tmp_path).out.splitlines()
    assert options[-1].startswith("--preset\t") and "paper, paper-video" in options[-1]
    none = toy.ccr("train", "--method", "infonce", "--preset", "help", workspace=tmp_path)
    assert none.code == 2 and "infonce has no presets" in none.err


@pytest.mark.parametrize(
    ("method", "later", "given"),
    [
        ("infonce", {"head", "drop_below"}, {"drop_below": 0.5}),
        ("disncl", {"head", "drop_below"}, {"drop_below": 0.0}),
        ("in2r", {"head", "drop_below", "prototype"}, {"prototype": "attention"}),
    ],
)
def test_a_request_leaves_out_defaults_that_earlier_versions_lack(
    method: str, later: set[str], given: dict[str, object]
) -> None:
    config = registry.load("methods", method).Config
    assert later <= {field.name for field in fields(config)} and not later & recorded(config()).keys()
    assert recorded(config(**given)) == recorded(config()) | given
