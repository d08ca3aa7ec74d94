"""The options of `ccr evaluate`: every field is a flag, and marked fields are the request."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from ccr_cli.commands.evaluate import evaluate
from ccr_cli.errors import UsageError
from ccr_cli.metrics.ranks import TIES
from ccr_cli.stages.evaluate.options import CHOICES, EvaluationOptions
from ccr_cli.stages.shared.options import option, request_of

ALWAYS = {"split", "langs", "zero_shot", "caption_set", "beta", "fusion", "ties", "protocol"}


def test_every_field_is_a_flag_with_a_help_text() -> None:
    flags = inspect.signature(evaluate).parameters
    for field in dataclasses.fields(EvaluationOptions):
        shown = flags[field.name].annotation.__metadata__[0]
        assert shown.help == field.metadata["shown"]["help"] and shown.help.endswith("."), field.name
        assert flags[field.name].default == field.default, field.name


def test_a_new_flag_is_one_field() -> None:
    """The command and the request read the dataclass: beside the field, only the code that uses it changes."""

    @dataclasses.dataclass(frozen=True)
    class More(EvaluationOptions):
        rerank: int = option(0, "Rerank the first results.", request=lambda options: options.rerank > 0)

    assert set(request_of(More(protocol="full"))) == ALWAYS
    assert request_of(More(protocol="full", rerank=3))["rerank"] == 3


@pytest.mark.parametrize(
    ("changes", "more", "less"),
    [
        ({}, set(), set()),
        ({"zero_shot": True, "drop_leaks": True}, {"drop_leaks"}, set()),
        ({"task": "text"}, {"task"}, set()),
        ({"corrupt": 0.3}, {"corrupt", "corruption"}, set()),
        ({"ood": "half"}, {"ood"}, set()),
        ({"protocol": "coco-1k-5fold"}, set(), {"split", "caption_set"}),
    ],
)
def test_the_request_holds_what_can_change_the_result(changes: dict[str, Any], more: set[str], less: set[str]) -> None:
    request = EvaluationOptions(**({"protocol": "full"} | changes)).request()
    assert set(request) == (ALWAYS | more) - less
    assert request.get("corruption") in (None, "drop") and request.get("split") in (None, "test")


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        *(({name: "nothing"}, "'nothing'") for name in CHOICES),
        ({"beta": 1.5}, "1.5"),
        ({"corrupt": 30}, "30"),
        ({"corruption": "drop"}, "--corrupt 0.3"),
        ({"task": "text", "ood": "half"}, "--task text"),
        ({"drop_leaks": True}, "--zero-shot"),
        ({"queries": "q.csv", "caption_set": "main"}, "--caption-set main"),
        ({"queries": "q.csv", "zero_shot": True}, "ccr data import test=q.csv --lang"),
    ],
)
def test_wrong_options_are_refused(changes: dict[str, Any], value: str) -> None:
    with pytest.raises(UsageError) as error:
        EvaluationOptions(**changes).check()
    assert value in f"{error.value.message} {error.value.hint}" and CHOICES["ties"] == tuple(TIES)
