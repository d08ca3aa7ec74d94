"""A command's options are declared once: a field of its dataclass is a flag, and an entry of the request if marked."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import toy
import typer
from toy import Chain
from typer.testing import CliRunner

from ccr_cli import registry
from ccr_cli.cli import app
from ccr_cli.commands import common
from ccr_cli.data import mismatch
from ccr_cli.judges.config import JudgeConfig
from ccr_cli.methods.infonce import Config
from ccr_cli.stages.evaluate.options import EvaluationOptions
from ccr_cli.stages.shared.options import SHARED, default_request, option, request_of
from ccr_cli.stages.train.options import TrainingOptions


@dataclass(frozen=True)
class Options:
    size: int = option(3, "Size.", min=1, request=True)
    words: str | None = option(
        None,
        "Words.",
        "--word",
        "-w",
        request=True,
        command_line=(list[str] | None, lambda words: "+".join(words) or None),
    )
    quietly: bool = option(False, "Hush.", was="--hush")
    seed: int = 0


def run(*arguments: str) -> tuple[int, Any]:
    program, caught = typer.Typer(), []

    @program.command(cls=common.Command)
    @common.guarded
    def command(
        *, options: Options, other: str = "", top: int = option(5, "Results.", min=1), name: str | None = None
    ) -> None:
        caught.append((options, other, top, name))

    outcome = CliRunner().invoke(program, list(arguments))
    return outcome.exit_code, caught[0] if caught else outcome.output


@pytest.mark.parametrize(
    ("arguments", "options", "others"),
    [
        ((), Options(), ("", 5, None)),
        (("--size", "5", "-w", "a", "--word", "b", "--quietly"), Options(5, "a+b", True), ("", 5, None)),
        (("--seed", "7", "--other", "x"), Options(seed=7), ("x", 5, None)),
        (("--top", "2", "--name", "n"), Options(), ("", 2, "n")),
    ],
)
def test_a_field_or_parameter_is_a_flag(arguments: tuple[str, ...], options: Options, others: tuple[object]) -> None:
    assert run(*arguments) == (0, (options, *others))


@pytest.mark.parametrize("arguments", [("--hush",), ("--hush", "--name=--hush")])
def test_the_old_name_of_a_flag_still_works(arguments: tuple[str, ...]) -> None:
    code, caught = run(*arguments)
    assert code == 0 and caught[0] == Options(quietly=True)
    assert "--hush" not in run("--help")[1] and "--quietly" in run("--help")[1]


def test_an_old_name_is_answered_with_the_new_one(sources: Chain) -> None:
    done = toy.ccr("search", "--queries=none.txt", workspace=sources.root)
    assert done.code == 2 and "--queries" in done.err and "--query-file" in done.err and "none.txt" in done.err
    described = toy.ok("data", "show", "toy", workspace=sources.root)
    assert described.out == toy.ok("data", "describe", "toy", workspace=sources.root).out
    assert "ccr data describe" in described.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("train --beta 0.4", "--set beta=0.4"),
        ("train --method infonce --beta 0.4", "ccr train --help"),
        ("train --methd=uml", "--method"),
        ("translate --lang es --modle=x", "--set model=x"),
        ("show --jsn", "--json"),
        ("train --set batc_size=3", "'batch_size'"),
        ("train --preset papr", "'paper'"),
        ("extract --encoder efficientnet-lite", "'efficientnet-lite0' or 'efficientnet-lite1'"),
        ("train --sweep languag-mix=all,draw", "'language-mix'"),
        ("data describe noto-emjoi", "'noto-emoji'"),
        ("data import mulit30k", "'multi30k'"),
        ("trian --method uml", "'train'"),
        ("tra", "'train' or 'translate'"),
        ("data improt x", "'import'"),
        ("nosuch", "ccr --help"),
        ("--nosuch train", "ccr --help"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_nearest(words: str, hint: str, sources: Chain) -> None:
    done = CliRunner().invoke(app, words.split(), env={"CCR_WORKSPACE": str(sources.root)}, prog_name="ccr")
    assert (done.exit_code, done.stdout) in ((2, ""), (4, "")) and hint in done.stderr.split("try: ")[1]


def test_a_flag_is_checked() -> None:
    for words, problem in (
        ("--size 0", "--size 0"),
        ("--top=0", "--top 0"),
        ("--top x", "--top x"),
        ("--top", "--top"),
    ):
        code, output = run(*words.split())
        assert code == 2 and output.startswith("error: ") and problem in output and "\n  try: " in output, words


def test_marked_fields_are_the_request() -> None:
    assert request_of(Options(words="a"), size="five") == {"size": "five", "words": "a"}
    assert default_request(Options) == {"size": 3, "words": None}


@pytest.mark.parametrize(("name", "options"), [("train", TrainingOptions), ("evaluate", EvaluationOptions)])
def test_help_of_a_command_has_a_flag_for_every_field(name: str, options: Any) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    helps = {param.name: param.help for param in command.params}
    assert all(helps.get(field.name) for field in fields(options))


@dataclass(frozen=True)
class Extended(EvaluationOptions):
    margin: float = option(0.0, "Margin.", request=lambda o: o.margin)


def test_a_new_field_of_evaluate_is_a_flag_and_its_default_changes_no_request() -> None:
    program, caught = typer.Typer(), []

    @program.command(cls=common.Command)
    @common.guarded
    def evaluate(*, options: Extended) -> None:
        caught.append(options)

    assert CliRunner().invoke(program, ["--margin", "0.5"]).exit_code == 0
    assert caught == [Extended(margin=0.5)]
    usual = EvaluationOptions().request()
    assert Extended().request() == usual and caught[0].request() == {**usual, "margin": 0.5}


def test_a_run_s_request_is_what_is_marked_and_the_method_s_options(chain: Chain) -> None:
    marked, config = set(default_request(TrainingOptions)), {field.name for field in fields(Config)}
    assert set(chain.find("run", "infonce").request) == (marked | config) - {
        "drop_below",
        "head",
        "langs",
        "pairs",
        "text_vectors",
        "translation_mix",
        *(witness.name for witness in fields(JudgeConfig)),
    }


def test_the_help_names_every_noise_style_and_target() -> None:
    assert [text.split(": ")[0] for text in registry.noise_styles().split("; ")] == list(mismatch.STYLES)
    assert registry.noise_styles() in registry.with_summaries(SHARED["noise_style"].metadata["shown"]["help"])
    assert all(f"{target} (" in SHARED["noise_target"].metadata["shown"]["help"] for target in mismatch.TARGETS)


def test_a_percentage_is_no_fraction(tmp_path: Path) -> None:
    done = toy.ccr("train", "--method", "infonce", "--noise", "40%", workspace=tmp_path)
    assert done.code == 2 and "40%" in done.err and "try: --noise 0.4" in done.err
