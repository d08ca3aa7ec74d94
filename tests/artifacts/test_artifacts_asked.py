"""What was asked of artifacts, in words, and what tells several of them apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ccr_cli.artifacts.base import Artifact, Parent
from ccr_cli.artifacts.description import apart, short

RUN: dict[str, Any] = {"method": "uml", "lang": "es", "seed": 0, "noise": None, "preset": None, "select_on": "mt"}
RUN |= {"epochs": 12, "judge": "triangle", "beta": 0.3}
NOISE = {"ratio": 0.4, "style": "caption", "target": "translation", "seed": 0}
PLAIN = {"method": "infonce", "judge": "none", "temperature": 0.07}


def made(kind: str, request: dict[str, Any], name: str = "x", **parents: str) -> Artifact:
    links = tuple(Parent(kind, name, f"{kind}s/{name}") for kind, name in parents.items())
    about = {"created": f"2026-01-0{len(name)}"}
    return Artifact(Path(name), kind, 1, name, name, request, links, (), {}, about)


def without(request: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in request.items() if key not in keys}


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (RUN, RUN | {"epochs": 3}, ["epochs 12", "epochs 3"]),
        (RUN, RUN | {"noise": NOISE}, ["noise none", "noise 0.4"]),
        (RUN, RUN | {"noise": NOISE | {"target": "pair", "seed": 7}}, ["noise none", "noise 0.4 pair noise seed 7"]),
        (RUN, RUN | {"beta": 0.1}, ["beta 0.3", "beta 0.1"]),
        (RUN, without(RUN, "beta") | PLAIN, ["method uml", "method infonce"]),
        (RUN, RUN | {"pairs": {"sha256": "0a1b2c3d", "as": "weights"}}, ["pairs all", "pairs 0a1b2c as weights"]),
        (RUN, RUN | {"lang": ["es", "fr"]}, ["lang es", "lang es+fr"]),
        ({"engine": "recorded"}, {"engine": "apertium", "only": {"sha256": "0a1b2c3d"}},
         ["engine recorded", "engine apertium, only 0a1b2c"]),
        ({"name": "a", "sources": {"items.tsv": "1"}}, {"name": "a", "sources": {"items.tsv": "2"}},
         ["sources 1cc90e", "sources e95571"]),
    ],
)  # fmt: skip
def test_only_what_differs_is_said(first: dict[str, Any], second: dict[str, Any], told: list[str]) -> None:
    assert apart([made("run", first), made("run", second)]) == told


def test_an_option_is_said_where_the_method_does_not_decide_it() -> None:
    several = [RUN, RUN | {"beta": 0.1}, without(RUN, "beta") | PLAIN]
    told = apart([made("run", each) for each in several])
    assert told == ["method uml, beta 0.3", "method uml, beta 0.1", "method infonce"]


def test_what_they_were_made_from_is_said_where_names_do_not() -> None:
    told = apart([made("run", RUN, "a", translation="one"), made("run", RUN, "b", translation="two")])
    assert told == ["translation one", "translation two"]
    told = apart([made("evaluation", {}, "one-test", run="one"), made("evaluation", {}, "two-test-x", run="two")])
    assert told == ["made 2026-01-08", "made 2026-01-010"], "their names say the run"


@pytest.mark.parametrize(
    ("kind", "request_", "said"),
    [
        ("run", RUN | {"noise": NOISE, "select_on": "human"},
         "uml, es, noise 0.4, seed 0, epochs 12, select on human"),
        ("translation", {"lang": "es", "engine": "recorded", "split": "all", "back": True, "queries": False},
         "es, recorded, back"),
        ("translation", {"lang": "es", "engine": "recorded", "split": "val"}, "es, recorded, val"),
        ("evaluation", {"split": "test", "langs": [], "protocol": "full", "corrupt": 0.3, "corruption": "drop"},
         "test, corrupt 0.3, drop"),
        ("evaluation", {"langs": ["fr"], "protocol": "coco-5k", "zero_shot": True},
         "fr, zero shot, coco-5k"),
        ("diagnosis", {"judge": "gmm", "judge_side": "both"}, "gmm, both"),
        ("diagnosis", {"judge": "gmm", "judge_side": "cross_lingual", "share": 0.05}, "gmm, share 0.05"),
        ("diagnosis", {"judge": "triangle", "judge_side": "both"}, "triangle"),
        ("index", {"split": None, "find": "items", "lang": None, "type": "ivf"}, "all, items, ivf"),
        ("dataset", {"name": "toy"}, ""),
    ],
)  # fmt: skip
def test_in_short(kind: str, request_: dict[str, Any], said: str) -> None:
    assert short(made(kind, request_)) == said
