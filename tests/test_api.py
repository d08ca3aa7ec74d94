"""The Python API: what the commands do, from a notebook."""

from __future__ import annotations

import ast
import html
import importlib
import inspect
import json
import os
import re
import shlex
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pytest
import toy
import typer

import ccr_cli.api as ccr
from ccr_cli import console
from ccr_cli.artifacts.base import Artifact
from ccr_cli.errors import ArtifactError, CcrError, ResourceError, UsageError
from ccr_cli.results import DiagnosisResult, EvaluationResult, Result, TrainingResult

CHECKOUT = Path(__file__).resolve().parents[1]
SMALL: Any = {"set": {"buckets": 512, "dim": 32}, "batch_size": 16, "device": "cpu", "epochs": 2}
ENCODER: Any = {"encoder": "efficientnet-lite0", "set": {"image_size": 32}, "device": "cpu"}
OTHERWISE = {
    "": {"dry_run", "json", "quiet"},  # nothing is printed
    "translate": {"shard", "executor", "parts", "cache", "noise", "noise_style", "noise_target", "noise_seed", "seed"},
    "extract": {"shard", "executor", "parts"},
    "train": {"shard", "sweep", "config"},  # a loop, a dictionary
    "diagnose": {"worst", "sheet", "export"},  # methods of the result
    "search": {"query_file", "sheet", "open"},
    "compare": {"latex"},
}
"""Flags without a keyword: a mismatch is made by `train`, work is divided among processes by commands."""
WIDER = {
    ("translate", "lang"): "str | None",  # one, since a call makes one artifact
    ("translate", "engine"): "str",
    ("extract", "batch_size"): "int | str",
    ("train", "noise"): "float | None",
}
TYPES = {Path: "PathLike", list[str]: "Texts", list[Path]: "Paths"}


@pytest.fixture(scope="module")
def made(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The chain by the API, and what was printed meanwhile."""
    root, place = tmp_path_factory.mktemp("api"), os.getcwd()
    os.chdir(root)  # a relative workspace
    try:
        data = ccr.import_data(folder, workspace="work")
        translated = ccr.translate(data, lang="es", back=True, with_queries=True)
        features = ccr.extract(data, **ENCODER)
        run = ccr.train([translated, features], method="infonce", noise=0.4, seed=1, **SMALL)
        evaluation = ccr.evaluate(run, device="cpu")
        diagnosis = ccr.diagnose(run.name, workspace="work", device="cpu")
    finally:
        os.chdir(place)
    named: dict[str, Any] = {"data": data, "translated": translated, "features": features, "run": run}
    return named | {"evaluation": evaluation, "diagnosis": diagnosis}


def keywords(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(function).parameters
    return {name: p for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}


@pytest.mark.parametrize("name", [name for name, (_, options) in ccr.COMMANDS.items() if options])
def test_keywords_are_the_flags_of_the_command(name: str) -> None:
    """Names, types and defaults, so that neither can change alone."""
    module = importlib.import_module(f"ccr_cli.commands.{'data' if name == 'import_data' else name}")
    function = getattr(module, "import_" if name == "import_data" else name)
    flags = {}
    for parameter in inspect.signature(function).parameters.values():
        if typing.get_origin(parameter.annotation) is not Annotated:
            continue
        kind, info = typing.get_args(parameter.annotation)[:2]
        if not isinstance(info, typer.models.OptionInfo):
            continue
        names = [each for each in (info.default, *(info.param_decls or ())) if str(each).startswith("--")]
        word = str([*names, f"--{parameter.name}"][0]).removeprefix("--").replace("-", "_")
        flags[f"{word}_" if word == "from" else word] = (kind, info, parameter.default)
    expected = {}
    for word, (kind, info, default) in flags.items():
        if word in OTHERWISE[""] | OTHERWISE.get(name, set()):
            continue
        none, default = type(None) in typing.get_args(kind), default[0] if default and kind == list[str] else default
        kind = next((each for each in typing.get_args(kind) if each is not type(None)), kind) if none else kind
        several, default = typing.get_origin(kind) is list, None if default in ((), []) else default
        shown = "Pairs" if several and "=" in (info.metavar or "") else TYPES.get(kind, kind.__name__)
        shown = WIDER.get((name, word), f"{shown} | None" if default is None else shown)
        expected[word] = (shown, default)
    own = {word: (p.annotation, p.default) for word, p in keywords(getattr(ccr, name)).items()}
    assert own == expected


def test_there_are_a_dozen_documented_functions() -> None:
    assert len(ccr.__all__) == 12
    for name in ccr.__all__:
        text = getattr(ccr, name).__doc__
        assert text and text.split("\n")[0].endswith(".")
        assert all(f"    {word}: " in text for word in keywords(getattr(ccr, name)))


def test_artifacts_are_those_of_the_commands(made: dict[str, Any], workspace: toy.Chain) -> None:
    for kind in ("dataset", "translation", "features"):
        own = next(each for each in made.values() if each.kind == kind)
        assert own.id == workspace.find(kind).id
    flags = ("--method", "infonce", "--noise", "0.4", "--seed", "1", "--epochs", "2", *toy.SMALL)
    parts = (workspace.find(kind).path for kind in ("translation", "features"))
    by_command = toy.ok("train", *parts, *flags, workspace=workspace.root).made
    assert (by_command.name, by_command.request) == (made["run"].name, made["run"].artifact.request)
    assert toy.ok("verify", by_command.path, workspace=workspace.root).code == 0


def test_an_artifact_records_the_command_that_makes_it_again(made: dict[str, Any]) -> None:
    before = {name: each.id for name, each in made.items()}
    for name in ("data", "evaluation", "diagnosis"):
        artifact = made[name].artifact
        program, *words = artifact.rebuild_command()
        assert program == "ccr" and words[-1] == "--force"
        assert toy.ok(*words, workspace=made[name].workspace).made.id == before[name]
    command = shlex.split(str(made["run"].artifact.about["command"]))
    assert {"--noise", "0.4", "--set", "dim=32", "--batch-size", "16"} <= {*command} and "--workspace" not in command


def test_results_have_paths_ids_and_tables(made: dict[str, Any]) -> None:
    data, run, evaluation, diagnosis = (made[name] for name in ("data", "run", "evaluation", "diagnosis"))
    assert [data.kind, run.kind, evaluation.kind] == ["dataset", "run", "evaluation"]
    assert os.fspath(run) == str(run.path) and run.workspace.name == "work" and len(run.id) == 64
    assert len(data.items) == 48 and set(data.captions["lang"]) == {"en", "es"} and data.failures.empty
    assert {*made["translated"].captions["direction"]} == {"forward", "back", "query"} == {*made["translated"].quality}
    assert list(run.history["epoch"]) == [1, 2] and run.config["options"]["dim"] == 32
    first = evaluation.scores.iloc[0]
    recalls = sum(first[f"{direction}.R@{k}"] for direction in ("t2v", "v2t") for k in (1, 5, 10))
    assert first["SumR"] == pytest.approx(recalls) and first["lang"] == "es" and "lang:es" in first["signature"]
    assert len(evaluation.table) == 2 * len(evaluation.scores)  # a row for each direction
    assert evaluation.table["R@1"].str.startswith(f"{first['t2v.R@1']:.1f}").iloc[0], "the figures are there"
    assert not any(isinstance(value, dict | list) for value in evaluation.scores.to_numpy().ravel())
    assert {"rank", "query_id"} <= {*evaluation.ranks.columns}
    assert len(diagnosis.pairs) == 48 and diagnosis.summary["pairs"] == 48


def test_nothing_is_printed_unless_asked(
    folder: Path, tmp_path: Path, made: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    data = ccr.import_data(folder, workspace=tmp_path)
    parts = (made["translated"].path, str(made["features"].path))
    run = ccr.train(*parts, method="basic", **SMALL)
    with pytest.raises(CcrError):
        ccr.evaluate(data)
    assert ccr.diagnose(run, device="cpu").worst(3) and ccr.search("rojo", run)
    assert capfd.readouterr() == ("", "")
    ccr.train(parts, method="basic", force=True, verbose=True, **SMALL)
    out, err = capfd.readouterr()
    assert out == "" and "epoch" in err
    assert console.verbosity == 0 and console.warnings is None


@pytest.mark.parametrize(
    ("call", "error", "words", "hint"),
    [
        (lambda ws: ccr.train(method="um1", workspace=ws), UsageError, ("'um1'",), "uml"),
        (lambda ws: ccr.train("runs/none", workspace=ws), ArtifactError, ("runs/none",), ""),
        (lambda ws: ccr.train(set={"no_option": 1}, workspace=ws), UsageError, ("'no_option'",), "options"),
        (lambda ws: ccr.train(set={"lr": [0.1, 0.2]}, workspace=ws), UsageError, ("'lr'", "one value"), None),
        (lambda ws: ccr.train(epochs=-1, workspace=ws), UsageError, ("epochs=-1", "0"), None),
        (lambda ws: ccr.train(seed="x", workspace=ws), UsageError, ("seed='x'",), None),  # type: ignore[arg-type]
        (lambda ws: ccr.train(noise=40, workspace=ws), UsageError, ("40",), "0.4"),
        (lambda ws: ccr.train(compile=1, workspace=ws), UsageError, ("compile=1",), None),  # type: ignore[arg-type]
        (lambda ws: ccr.train(set="help", workspace=ws), UsageError, ("batch_size",), None),
        (lambda ws: ccr.train(3, workspace=ws), UsageError, ("3",), None),  # type: ignore[arg-type]
        (lambda ws: ccr.translate(workspace=ws), UsageError, ("language",), "--lang"),
        (lambda ws: ccr.translate(engine="none", lang="es", workspace=ws), UsageError, ("'none'",), ""),
        (lambda ws: ccr.translate(lang=["es", "fr"], workspace=ws), UsageError, ("2",), ""),  # type: ignore[arg-type]
        (lambda ws: ccr.translate(lang="es", max_failed=2, workspace=ws), UsageError, ("max_failed=2",), None),
        (lambda ws: ccr.extract(from_="x.npy", pool="mean", workspace=ws), UsageError, ("pool", "from"), None),
        (lambda ws: ccr.evaluate(ensemble=True, workspace=ws), UsageError, ("ensemble",), ""),
        (
            lambda ws: ccr.diagnose("translations/toy/es", judge="none-such", workspace=ws),
            UsageError,
            ("'none-such'",),
            "",
        ),
        (lambda ws: ccr.search(workspace=ws), UsageError, ("image=",), "search"),
        (lambda ws: ccr.search(image="none.png", workspace=ws), UsageError, ("none.png",), None),
        (lambda ws: ccr.search("rojo", top=0, workspace=ws), UsageError, ("top=0",), None),
        (lambda ws: ccr.search([], workspace=ws), UsageError, ("image=",), "search"),
        (lambda ws: ccr.search(["gato", None], workspace=ws), UsageError, ("None", "no text"), "search"),  # type: ignore[list-item]
        (lambda ws: ccr.search(5, workspace=ws), UsageError, ("5", "no text"), "search"),  # type: ignore[arg-type]
        (lambda ws: ccr.search(ws / "runs", workspace=ws), UsageError, ("no text",), "search"),
        (lambda ws: ccr.train(noise_style=[], workspace=ws), UsageError, ("noise_style=[]",), None),  # type: ignore[arg-type]
        (lambda ws: ccr.train(verbose="x", workspace=ws), UsageError, ("verbose='x'",), None),  # type: ignore[arg-type]
        (lambda ws: ccr.open_artifact([], workspace=ws), UsageError, ("0",), None),  # type: ignore[arg-type]
        (lambda ws: ccr.compare(workspace=ws), UsageError, (), "ccr compare"),
        (lambda ws: ccr.open_artifact("nothing", workspace=ws), ArtifactError, ("nothing",), ""),
        (lambda ws: ccr.open_artifact("latest", workspace=ws / "none"), ArtifactError, ("none",), ""),
        (lambda ws: ccr.import_data("noto-emjoi", workspace=ws), UsageError, ("noto-emjoi",), "noto-emoji"),
    ],
)
def test_errors_say_what_to_do(
    call: Callable[[Path], object],
    error: type[CcrError],
    words: tuple[str, ...],
    hint: str | None,
    made: dict[str, Any],
) -> None:
    with pytest.raises(error) as caught:
        call(made["run"].workspace)
    assert all(word in caught.value.message for word in words)
    notes = "".join(getattr(caught.value, "__notes__", ()))
    assert notes == (f"try: {caught.value.hint}" if caught.value.hint else "") and (hint is None or hint in notes)
    assert console.verbosity == 0 and console.warnings is None


def test_a_full_disk_is_a_users_error(made: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ccr_cli.stages.train.stage.train", full)
    with pytest.raises(ResourceError):
        ccr.train(made["run"], workspace=made["run"].workspace)


def test_the_workspace_is_that_of_the_variable(made: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCR_WORKSPACE", str(made["run"].workspace))
    assert ccr.open_artifact(f"runs/{made['run'].name}").id == made["run"].id
    monkeypatch.setenv("CCR_DEVICE", "none-such")
    with pytest.raises(UsageError) as caught:
        ccr.evaluate(made["run"], force=True)
    assert "none-such" in caught.value.message


def test_a_run_has_one_mismatch(made: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="noise is given 2 times") as caught:
        ccr.train(made["translated"], noise=[0.0, 0.4])  # type: ignore[arg-type]
    assert "noise=0.0,0.4" in str(caught.value.hint)


def test_a_result_warns_as_the_command_does(made: dict[str, Any]) -> None:
    assert any("too few to measure anything" in text for text in made["evaluation"].warnings)


def test_artifacts_are_opened_with_what_their_kind_has(made: dict[str, Any]) -> None:
    workspace = made["run"].workspace
    assert isinstance(ccr.open_artifact("best:SumR", workspace=workspace), TrainingResult)
    opened = {name: ccr.open_artifact(each.path) for name, each in made.items()}
    assert {name: type(each) for name, each in opened.items()} == {name: type(each) for name, each in made.items()}
    assert isinstance(opened["evaluation"], EvaluationResult) and isinstance(opened["diagnosis"], DiagnosisResult)
    pd.testing.assert_frame_equal(opened["diagnosis"].worst(4).table, made["diagnosis"].worst(4).table)


def test_a_notebook_shows_tables_and_pictures(made: dict[str, Any]) -> None:
    shown = {name: each._repr_html_() for name, each in made.items()}
    assert all(str(made[name].path) in text for name, text in shown.items())
    assert "<table" in shown["evaluation"] and "R@1" in shown["evaluation"] and "lang:es" not in shown["evaluation"]
    worst = made["diagnosis"].worst(5)
    assert len(worst.table) == 5 and list(worst.table["place"]) == [1, 2, 3, 4, 5]
    inside = html.unescape(worst._repr_html_().split('srcdoc="')[1].split('"')[0])
    assert inside.count("data:image/") == 5
    found = ccr.search(["círculo rojo", "nada <b>"], made["run"], top=3, device="cpu")
    assert list(found.table["place"]) == [1, 2, 3] * 2
    again = ccr.search((text for text in ["círculo rojo", "nada <b>"]), made["run"], top=3, device="cpu")
    assert list(again.table["place"]) == [1, 2, 3] * 2, "an iterator is read once"
    inside = html.unescape(found._repr_html_().split('srcdoc="')[1].split('"')[0])
    assert inside.count("data:image/") == 6 and "<b>\n" not in inside and "nada &lt;b&gt;" in inside


def test_own_tables_are_imported_corrected_and_translated_again(tmp_path: Path) -> None:
    rows = [
        f"{place}.png,{text},{spanish}"
        for place, (text, spanish) in enumerate(zip("abcdefgh", "stuvwxyz", strict=True))
    ]
    (tmp_path / "own.csv").write_text("\n".join(["photo,words,machine", *rows]) + "\n")
    names: dict[str, object] = {"text": "words", "media": "photo", "mt.es": "machine"}
    own: Any = {"columns": names, "split": "auto:3", "name": "mine", "workspace": tmp_path / "work"}
    data = ccr.import_data(tmp_path / "own.csv", **own)
    assert data.counts["failed"] == 0 and data.warnings and {"train", "val", "test"} == {*data.items["split"]}
    again = [f"{ours}={theirs}" for ours, theirs in names.items()]
    assert ccr.import_data(tmp_path / "own.csv", **own | {"columns": again}).id == data.id
    flags = ("--columns", ",".join(again), "--split", "auto:3", "--name", "mine")
    made = toy.ok("data", "import", tmp_path / "own.csv", *flags, workspace=tmp_path / "other").made
    assert made.id == data.id
    translated = ccr.translate(data, lang="es")
    file = ccr.diagnose(translated).export(tmp_path / "pairs.csv")
    pairs = pd.read_csv(file, dtype={"correction": str})
    pairs.loc[pairs["source_text"] == "a", "correction"] = "corregido"
    pairs.to_csv(file, index=False)
    mended = ccr.translate(translated, only=file, name="mended").captions.set_index("source_caption_id")
    assert (mended["text"] == "corregido").sum() == 1 and len(mended) == 8


def test_ready_made_features_and_vectors_are_read(made: dict[str, Any], tmp_path: Path) -> None:
    data, rng = made["data"], np.random.default_rng(0)
    halves = [list(data.items["item_id"])[:20], list(data.items["item_id"])[20:]]
    for n, ids in enumerate(halves):
        np.save(tmp_path / f"{n}.npy", rng.normal(size=(len(ids), 6)).astype(np.float32))
        (tmp_path / f"{n}.ids").write_text("".join(f"{item}\n" for item in ids))
    files, lists = ([tmp_path / f"{n}.{suffix}" for n in (0, 1)] for suffix in ("npy", "ids"))
    features = ccr.extract(data, from_=files, ids=lists, encoder_name="random")
    assert features.counts["items"] == 48 and features.artifact.about["command"].count("--from") == 2
    sides = {"texts": data.captions["caption_id"], "pictures": data.items["item_id"]}
    for side, ids in sides.items():
        rows: dict[str, Any] = {item: rng.normal(size=4).astype(np.float32) for item in ids}
        np.savez(tmp_path / f"{side}.npz", **rows)
    vectors: Any = {"text_vectors": tmp_path / "texts.npz", "visual_vectors": tmp_path / "pictures.npz"}
    by_vectors = ccr.evaluate(data, zero_shot=True, device="cpu", **vectors)
    assert {*by_vectors.scores["lang"]} == {"en", "es"} and by_vectors.scores["t2v.queries"].min() > 0
    with pytest.raises(UsageError):
        ccr.evaluate(made["run"], zero_shot=True, **vectors)


def test_captions_are_text_in_a_notebook(tmp_path: Path) -> None:
    hostile = '<script>alert("x")</script>'
    data = toy.toy()
    old = data.captions[0][4]
    data.captions[0][4] = f"{hostile} red circle"
    for table in data.tables.values():
        table.update({data.captions[0][4]: f"{hostile} rojo"} if old in table else {})
    read = ccr.import_data(data.write(tmp_path / "toy"), workspace=tmp_path / "work")
    translated = ccr.translate(read, lang="es", max_failed=1.0)
    diagnosis = ccr.diagnose(translated)
    worst = diagnosis.worst(96)
    assert worst.table["translation"].str.contains(hostile, regex=False).any()
    shown = worst._repr_html_()
    assert "<script" not in shown and "<script" not in html.unescape(shown)
    assert "&lt;script&gt;" in re.sub("</?mark>", "", html.unescape(shown)) and " sandbox " in shown
    result = Result(Artifact(Path(f"/{hostile}"), "features", 1, hostile, "0", {}, (), (), {}), [hostile])
    assert "<script" not in result._repr_html_() and result._repr_html_().count("&lt;script&gt;") == 2


@pytest.mark.parametrize("count", ["a", -1, 0, 1.5, True])
def test_a_count_of_pairs_that_is_none(made: dict[str, Any], count: Any) -> None:
    with pytest.raises(UsageError, match=re.escape(repr(count))):
        made["diagnosis"].worst(count)


def test_commands_and_errors_are_those_of_where_they_are_typed(made: dict[str, Any]) -> None:
    command = made["diagnosis"].artifact.about["command"], made["features"].artifact.about["command"]
    assert command[0].split()[:3] == ["ccr", "diagnose", f"runs/{made['run'].name}"]
    assert "datasets/toy" in command[1].split()
    assert not any(word.startswith("/") for each in command for word in each.split())
    with pytest.raises(UsageError) as caught:
        ccr.train(made["translated"], noise=40)
    assert "--" not in str(caught.value) and "noise" in str(caught.value)


def test_pairs_and_sheets_are_written(made: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    diagnosis = made["diagnosis"]
    table = pd.read_csv(diagnosis.export(tmp_path / "pairs.csv"))
    assert len(table) == len(diagnosis.pairs) and "correction" in table
    assert b"data:image/" in diagnosis.worst(3).save(tmp_path / "worst.html").read_bytes()
    picture = folder / "media" / "red-circle.png"
    found = ccr.search(made["run"], image=picture, top=2, device="cpu")
    assert found.answers[0].picture and len(found.table) == 2
    assert found.save(tmp_path / "found.html").read_bytes().count(b"data:image/") == 3
    for named in (made["run"].path, str(made["run"].path), [made["run"]]):
        again = ccr.search(named, image=picture, top=2, device="cpu")
        assert again.table.equals(found.table), named
    with pytest.raises(UsageError):
        diagnosis.worst(3).save(tmp_path / "worst.pdf")
    with pytest.raises(UsageError, match="UTF-8"):
        ccr.search(["rojo", "caf\udce9"], made["run"], device="cpu")
    with pytest.raises(UsageError, match=r"\.html or \.png file, not 'found\.txt'"):
        found.save(tmp_path / "found.txt")


def test_runs_are_compared_exported_and_reported(made: dict[str, Any], unillustrated: None) -> None:
    workspace = made["run"].workspace
    other = ccr.train(made["translated"], made["features"], method="uml", noise=0.4, seed=1, **SMALL)
    compared = ccr.compare(made["evaluation"], ccr.evaluate(other, device="cpu"))
    facts = json.loads(toy.ok("compare", made["run"].path, other.path, "--json", workspace=workspace).out)
    line, row = facts["comparisons"][0]["lines"][0], compared.table.iloc[0]
    assert row["difference"] == line["difference"]["estimate"] and row["p_holm"] == line["p_holm"]
    assert compared.words == [f"{each['what']}: {each['words']}" for each in facts["comparisons"]]
    assert compared.latex().count(r"\begin{table}") == 1 and "<table" in compared._repr_html_()
    exported = ccr.export(other, name="given")
    assert exported.kind == "export" and exported.path == workspace / "exports" / "given"
    reported = ccr.report(workspace=workspace, title="<i>")
    assert reported.page.is_file() and {"infonce", "uml"} <= {*reported.tables["retrieval"]["method"]}
    assert reported.figures == {}


def test_plugins_are_a_table() -> None:
    table = ccr.list_plugins()
    assert list(table.columns) == ["kind", "name", "from", "state", "mend"]
    assert {"uml", "clip", "apertium"} <= {*table["name"]}


def test_the_page_is_what_the_docstrings_say() -> None:
    scope: dict[str, Any] = {"__file__": str(CHECKOUT / "docs" / "api_page.py"), "__name__": "api_page"}
    exec((CHECKOUT / "docs" / "api_page.py").read_text(encoding="utf-8"), scope)
    assert (CHECKOUT / "docs" / "api.md").read_text(encoding="utf-8") == scope["page"](), "python docs/api_page.py"


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells in order, in a fresh namespace, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CCR_DEVICE", "cpu")
    cells = json.loads((CHECKOUT / "examples" / "quickstart.ipynb").read_text(encoding="utf-8"))["cells"]
    scope: dict[str, Any] = {}
    shown = 0
    for cell in (each for each in cells if each["cell_type"] == "code"):
        assert not cell["outputs"] and cell["execution_count"] is None
        *before, last = ast.parse("".join(cell["source"])).body
        exec(compile(ast.Module(before, []), "cell", "exec"), scope)
        if isinstance(last, ast.Expr):
            shown += "<table" in (
                text := eval(compile(ast.Expression(last.value), "cell", "eval"), scope)._repr_html_()
            )
            assert "<" in text
        else:
            exec(compile(ast.Module([last], []), "cell", "exec"), scope)
    assert shown > 3
    kinds = {path.parent.name for path in (tmp_path / "work").glob("*/*") if path.is_dir()}
    assert {"datasets", "runs", "evaluations", "diagnoses"} <= kinds
