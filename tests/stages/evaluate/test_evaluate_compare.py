"""ccr compare: systems held against each other on the same queries, from the ranks that evaluations keep."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import base, evaluation, translation

CPU = ("--device", "cpu")


def table(out: str) -> Any:
    """The table of standard output."""
    head, *rows = [line.split("\t") for line in out.splitlines()]
    return pd.DataFrame(rows, columns=head)


def hits(made: base.Artifact, number: int = 0) -> tuple[Any, list[str]]:
    """What each item adds to SumR, by query: columns item, direction, part."""
    ranks: Any = evaluation.read_ranks(made)
    ranks = ranks[ranks["result"] == number]
    counts = ranks["direction"].value_counts()
    part = sum((ranks["rank"] <= k).astype(float) for k in (1, 5, 10)) * 100 / ranks["direction"].map(counts)
    return ranks.assign(part=part), sorted(set(ranks["item_id"]))


@pytest.fixture(scope="module")
def trained(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs and evaluations by name: two seeds of infonce, one of basic, and one of infonce with noise, on test.

    That of basic is evaluated on val too.
    """
    root = tmp_path_factory.mktemp("compared") / "workspace"
    shutil.copytree(chain.root, root)
    made = {"root": root}
    for method, seed in (("infonce", "1"), ("basic", "0"), ("infonce", "2")):
        options = ("--method", method, "--seed", seed, "--epochs", "2", *toy.SMALL)
        run = toy.ok("train", *options, workspace=root).made.path
        made[f"{method}{seed}"] = run
        made[f"{method}{seed} test"] = toy.ok("evaluate", run, *CPU, workspace=root).made.path
    options = ("--method", "infonce", "--noise", "0.4", "--epochs", "2", *toy.SMALL)
    made["noisy"] = toy.ok(
        "evaluate", toy.ok("train", *options, workspace=root).made.path, *CPU, workspace=root
    ).made.path
    made["val"] = toy.ok("evaluate", made["basic0"], "--split", "val", *CPU, workspace=root).made.path
    return made


def test_two_runs_against_a_loop_over_items(chain: Chain) -> None:
    first, second = chain.find("evaluation", "infonce"), chain.find("evaluation", "uml")
    given = ("compare", chain.find("run", "infonce").path, second.path, "--by", "none")
    narrow = toy.ok(*given, workspace=chain.root)
    assert max(map(len, narrow.out.splitlines())) < 100 and "|" not in narrow.out + narrow.err
    by_figure = table(narrow.out).set_index("figure")
    assert by_figure.loc["t2v.MedR", "p_holm"] == "-"
    done = toy.ok(*given, "-v", workspace=chain.root)
    rows = table(done.out).set_index("figure")
    assert list(rows["verdict"]) == list(by_figure["verdict"])
    assert list(rows.index[:3]) == ["SumR", "mAP", "t2v.R@1"] and set(rows["data"]) == {"toy test, queries in es"}
    a, b = (evaluation.results(made)[0] for made in (first, second))
    for figure in rows.index:
        side, _, name = figure.rpartition(".")
        shown: Any = [r[side][name] if side else r["SumR"] if name == "SumR" else evaluation.mean_ap(r) for r in (a, b)]
        one, two = shown
        told = [float(rows.loc[figure, key]) for key in ("first_mean", "second_mean", "difference")]
        assert told == pytest.approx([one, two, two - one], rel=1e-5)
    assert rows.loc["SumR", ["first_signature", "second_signature"]].tolist() == [
        str(a["signature"]),
        str(b["signature"]),
    ]

    parts, items = hits(first)
    others, same = hits(second)
    assert items == same
    gap = {i: 0.0 for i in items}
    for frame, sign in ((parts, -1.0), (others, 1.0)):
        for row in frame.itertuples():
            gap[row.item_id] += sign * row.part
    # every Spanish item has one caption, so that a resample leaves the number of queries as it is
    rng = np.random.default_rng(0)
    drawn = [sum(gap[items[i]] for i in rng.integers(0, len(items), len(items))) for _ in range(2000)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    assert [float(rows.loc["SumR", key]) for key in ("low", "high")] == pytest.approx([low, high], rel=1e-5)
    values = np.array([gap[i] for i in items])
    signs = np.array(np.meshgrid(*[[1, -1]] * len(items))).reshape(len(items), -1)  # all 4,096
    exact = np.mean(np.abs(values @ signs) >= abs(values.sum()) - 1e-9)
    assert float(rows.loc["SumR", "p"]) == pytest.approx(exact, abs=0.02)


@pytest.mark.slow
def test_seeds_of_one_configuration_count_as_their_mean(trained: dict[str, Path]) -> None:
    given = [trained[k] for k in ("basic0 test", "infonce1 test", "infonce2")]
    done = toy.ok("compare", *given, "-v", workspace=trained["root"])
    rows = table(done.out).set_index("figure")
    assert rows.loc["SumR", ["first", "second"]].tolist() == ["basic", "infonce"]
    assert rows.loc["SumR", ["first_seeds", "second_seeds", "first_sd"]].tolist() == ["1", "2", ""]
    both = [evaluation.results(base.load(trained[f"infonce{n} test"]))[0]["SumR"] for n in (1, 2)]
    assert float(rows.loc["SumR", "second_mean"]) == pytest.approx(np.mean(both), rel=1e-5)
    assert float(rows.loc["SumR", "second_sd"]) == pytest.approx(np.std(both, ddof=1), rel=1e-5)
    assert "another seed may move" in done.err


def test_seeds_alone_are_compared_one_by_one(trained: dict[str, Path]) -> None:
    latex = toy.ok("compare", trained["infonce1"], trained["infonce2"], "--latex", workspace=trained["root"]).out
    assert latex.count(r"\begin{table}") == latex.count(r"\label{tab:comparison-") == 1 and "& SumR &" in latex
    done = toy.ok("compare", trained["infonce1"], trained["infonce2"], workspace=trained["root"])
    rows = table(done.out)
    assert "differ only in their seeds" in done.err
    assert (rows["first"][0], rows["second"][0]) == (trained["infonce1"].name, trained["infonce2"].name)


def test_three_systems_are_corrected_and_the_words_agree(trained: dict[str, Path], chain: Chain) -> None:
    given = (trained["basic0 test"], trained["infonce1"], chain.find("evaluation", "uml").path)
    told = json.loads(toy.ok("compare", *given, "--by", "none", "--json", workspace=trained["root"]).out)["comparisons"]
    assert [(c["first"], c["what"]) for c in told] == 2 * [("basic", "toy test, queries in es")]
    assert {c["second"].split(",")[0] for c in told} == {"infonce", "uml"}
    for n, name in enumerate(line["figure"] for line in told[0]["lines"]):
        lines = [c["lines"][n] for c in told]
        p = [line["difference"]["p"] for line in lines]
        if name.endswith("MedR"):
            assert p == [None, None]
            continue
        least, most = min(p), max(p)
        wanted = {least: min(1, 2 * least), most: min(1, max(most, 2 * least))}
        assert [line["p_holm"] for line in lines] == pytest.approx([wanted[x] for x in p])
        for line in lines:
            d = line["difference"]
            sure = (d["low"] > 0 or d["high"] < 0) and line["p_holm"] < 0.05
            assert line["verdict"] == (("better" if d["estimate"] > 0 else "worse") if sure else "undecided")
    assert told[0]["how"] == {"level": 0.95, "resamples": 2000, "flips": 10000, "drawn": "items", "seed": 0}


def test_a_grid_is_compared_within_equal_noise(trained: dict[str, Path], chain: Chain) -> None:
    root, uml = trained["root"], chain.find("evaluation", "uml").path
    given = (uml, *(trained[name] for name in ("infonce1", "noisy", "basic0 test", "infonce2")))
    done = toy.ok("compare", *given, "--json", workspace=root)
    told = json.loads(done.out)["comparisons"]
    assert [(c["condition"], c["first"], c["second"], c["lines"][0]["first"]["seeds"]) for c in told] == [
        ("40% noise", "uml", "infonce", 1),
        ("no noise", "infonce", "basic", 2),
    ]
    assert told[0]["what"] == "toy test, queries in es, 40% noise"
    lone = toy.ok("compare", uml, trained["noisy"], trained["basic0"], workspace=root)
    assert "under the same condition: basic (no noise)" in lone.err and len(table(lone.out)["data"].unique()) == 1
    by_engine = toy.ok("compare", uml, trained["basic0 test"], "--by", "mt", "--json", workspace=root)
    assert json.loads(by_engine.out)["comparisons"][0]["condition"].startswith("mt recorded:")


def test_only_runs_and_evaluations_are_compared(chain: Chain) -> None:
    done = chain.ccr("compare", chain.find("dataset").path, chain.find("features").path)
    assert done.code == 2 and "not datasets/toy (dataset) and features/toy/" in done.err


def test_a_grid_in_latex(trained: dict[str, Path], chain: Chain) -> None:
    given = (trained["infonce1"], trained["infonce2"], trained["basic0 test"], chain.find("evaluation", "uml").path)
    named = toy.ok("compare", *given, "--by", "none", "--json", workspace=trained["root"]).out
    latex = toy.ok("compare", *given, "--by", "none", "--latex", workspace=trained["root"]).out
    assert latex.count(r"\begin{table}") == latex.count("booktabs") == 1
    rows = [line.removesuffix(r" \\").split(" & ") for line in latex.splitlines() if line.count(" & ") == 11][1:]
    assert [(row[0], row[1]) for row in rows] == [("infonce", "2"), ("basic", "1"), ("uml", "1")]
    for row, told in zip(rows[1:], json.loads(named)["comparisons"], strict=True):
        line = told["lines"][0]
        assert f"{line['second']['mean']:.1f}" in row[8]
        assert float(row[9].replace("$-$", "-")) == pytest.approx(line["difference"]["estimate"], abs=0.051)


def test_infonce_is_the_first_and_evaluations_of_deleted_runs_are_left_out(
    trained: dict[str, Path], tmp_path: Path
) -> None:
    root = tmp_path / "workspace"
    shutil.copytree(trained["root"], root)
    gone = trained["infonce2"].name
    shutil.rmtree(root / "runs" / gone)
    orphan = f"evaluations/{trained['infonce2 test'].name}"
    done = toy.ok("compare", "--json", workspace=root)
    assert {c["first"].split()[0] for c in json.loads(done.out)["comparisons"]} == {"infonce"}
    assert done.err.count("rm -r ") == 1 and f"rm -r {orphan}" in done.err
    listed = table(toy.ok("show", workspace=root).out).set_index("artifact")["found"]
    assert [name for name, found in listed.items() if f"runs/{gone} is gone" in found] == [orphan]


def test_one_method_is_compared_across_noise(trained: dict[str, Path]) -> None:
    rows = table(toy.ok("compare", trained["infonce1"], trained["noisy"], workspace=trained["root"]).out)
    assert (rows["first"][0], rows["second"][0]) == ("infonce, no noise", "infonce, 40% noise")


@pytest.mark.parametrize(
    ("by", "told"),
    [((), ("infonce (no noise)", "uml (40% noise)", "--by none")), (("--by", "method"), ("method", "mt"))],
)
def test_different_conditions_are_refused(by: tuple[str, ...], told: tuple[str, ...], chain: Chain) -> None:
    given = [chain.find("evaluation", method).path for method in ("infonce", "uml")]
    done = toy.ccr("compare", *given, *by, workspace=chain.root)
    assert (done.code, done.out) == (2, "") and all(each in done.err.replace("\n", " ") for each in told)


def test_all_that_every_system_answered(chain: Chain) -> None:
    both = (chain.find("evaluation", "infonce").path, chain.find("evaluation", "uml").path)
    told = json.loads(toy.ok("compare", *both, "--by", "none", "--all", "--json", workspace=chain.root).out)[
        "comparisons"
    ]
    assert [(c["lang"], c["fusion"]) for c in told] == [("es", "none"), ("es", "0.8raw"), ("en", "none")]


@pytest.mark.slow
def test_comparisons_are_called_by_what_tells_them_apart(trained: dict[str, Path]) -> None:
    root, runs = trained["root"], (trained["basic0"], trained["infonce1"])
    for run in runs:
        for options in (("--task", "text"), ("--corrupt", "0.5"), ("--ties", "optimistic")):
            toy.ok("evaluate", run, *options, *CPU, workspace=root)
    told = json.loads(toy.ok("compare", *runs, "--json", workspace=root).out)["comparisons"]
    text = "toy test, text-query-mt, queries in es, pos"
    assert sorted(c["what"] for c in told) == [
        "toy test, full-corrupt-drop0.5-seed0, queries in es",
        "toy test, queries in es, ties mid",
        "toy test, queries in es, ties optimistic",
        f"{text} caption",
        f"{text} item",
    ]


def test_what_was_not_asked_the_same_is_refused(trained: dict[str, Path], chain: Chain) -> None:
    root = trained["root"]
    done = toy.ccr("compare", trained["infonce1 test"], trained["val"], workspace=root)
    assert (done.code, done.out) == (4, "") and "split is test and val" in done.err
    strict = toy.ok("evaluate", trained["infonce1"], "--ties", "pessimistic", *CPU, workspace=root).made.path
    done = toy.ccr("compare", trained["basic0 test"], strict, workspace=root)
    assert (done.code, done.out) == (4, "") and "ties is mid and pessimistic" in done.err
    # a run that was evaluated in both ways is compared where the other was
    done = toy.ok("compare", trained["val"], trained["basic0 test"], trained["infonce1 test"], workspace=root)
    assert "-val is left out" in done.err and set(table(done.out)["data"]) == {"toy test, queries in es"}


def test_a_corrected_translation_is_compared_on_its_own_queries(workspace: Chain, tmp_path: Path) -> None:
    """Where test captions were corrected, the machine-translated queries differ: the hint's commands compare."""
    root, original = workspace.root, workspace.find("translation")
    captions = translation.translated(translation.read(original))
    wrong = captions[captions["split"] == "test"].head(2)[["source_caption_id"]]
    wrong.assign(correction=["uno", "dos"]).to_csv(tmp_path / "list.csv", index=False)
    mended = toy.ok("translate", original.path, "--only", tmp_path / "list.csv", workspace=root).made
    runs = []
    for made in (original, mended):
        options = ("--method", "infonce", "--epochs", "1", *toy.SMALL)
        runs.append(toy.ok("train", made.path, *options, workspace=root).made.path)
        toy.ok("evaluate", runs[-1], "--queries", "mt", *CPU, workspace=root)
    for words in (runs, ()):
        done = toy.ccr("compare", *words, workspace=root)
        assert (done.code, done.out) == (4, "")
        commands = done.err[done.err.index("ccr evaluate ") :].split("&&")
        assert str(mended.file("captions.parquet")) in commands[0] and all(run.name in commands[0] for run in runs)
    toy.ok(*shlex.split(commands[0])[1:], *CPU, workspace=root)
    told = json.loads(toy.ok(*shlex.split(commands[1])[1:], "--by", "none", "--json", workspace=root).out)
    assert all("|q:file-24-" in signature for signature in told["comparisons"][0]["signatures"])


@pytest.mark.parametrize(
    ("words", "code", "message"), [(("one",), 2, "ccr compare RUN RUN"), (("one", "one"), 2, "ccr compare RUN RUN")]
)
def test_one_is_not_two(words: tuple[str, ...], code: int, message: str, chain: Chain) -> None:
    given = [chain.find("evaluation", "uml").path for _ in words]
    done = toy.ccr("compare", *given, workspace=chain.root)
    assert (done.code, done.out) == (code, "") and message in done.err


def test_two_forms_of_one_output(chain: Chain) -> None:
    done = toy.ccr("compare", "--by", "none", "--json", "--latex", workspace=chain.root)
    assert (done.code, done.out) == (2, "") and "--json and --latex" in done.err


def test_without_words_it_compares_what_fits(chain: Chain) -> None:
    done = toy.ok("compare", "--by", "none", "--json", workspace=chain.root)
    found = json.loads(done.out)["comparisons"]
    assert found[0]["first"] == "infonce" and "uml" in {each["second"] for each in found}


def test_a_run_that_was_not_evaluated_says_what_to_type(workspace: Chain) -> None:
    run = toy.ok("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=workspace.root).made
    done = toy.ccr("compare", run.path, workspace=workspace.root)
    assert (done.code, done.out) == (4, "") and f"ccr evaluate runs/{run.name}" in done.err
