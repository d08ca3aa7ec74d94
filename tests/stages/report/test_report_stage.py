"""The report stage on a made-up workspace: what it takes, what it writes, what it refuses."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import fakes as fake
import pandas as pd
import pytest
import toy

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.commands.show import show_report
from ccr_cli.errors import ArtifactError
from ccr_cli.report.content import ExampleHit, ExampleSearch
from ccr_cli.report.page import compose
from ccr_cli.report.page.rendering import prose
from ccr_cli.report.tables.table import markdown_text
from ccr_cli.stages.report.stage import gather, write
from ccr_cli.stages.shared.inputs import Inputs

METHODS = ("infonce", "uml", "infonce (oracle)")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace: Workspace = fake.make(tmp_path_factory.mktemp("ws"), METHODS, (0.0, 0.4), (0, 1))
    return workspace


@pytest.fixture
def workspace(made: Workspace, tmp_path: Path) -> Workspace:
    shutil.copytree(made.root, tmp_path / "ws")
    return Workspace(tmp_path / "ws")


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccr_cli.report.figures.canvas.PNG_DPI", 40)


def searches(image: Path | None = None) -> list[ExampleSearch]:
    hits = [ExampleHit("i1", fake.HOSTILE, 0.7, image, True), ExampleHit("i2", "dog", 0.6)]
    return [ExampleSearch("雪地里的狗<script>", "zh", hits, "a dog & snow", "the-run", 0.2)]


class Page(HTMLParser):
    """Checks nesting, and gathers what a browser would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: dict[str, int] = {}
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)
        if tag not in ("img", "meta", "br", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attrs:
            if name in ("src", "srcset", "xlink:href") or (name == "href" and tag != "a"):
                self.addresses.append(str(value))
            if name == "id":
                self.ids.append(str(value))
            if name.startswith("on"):
                self.handlers.append(name)


def report(inputs: Inputs, *, name: str | None = None, force: bool = False, **shown: Any) -> base.Artifact:
    """Writes a report."""
    return write(inputs, gather(inputs, **shown), name=name, force=force)


@pytest.fixture(scope="module", params=[{"{}", "beliefs", "searches"}, pytest.param(None, marks=pytest.mark.slow)])
def complete(
    request: pytest.FixtureRequest, made: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Inputs, base.Artifact]:
    """A report with three figures, or with all, and what it read; read only."""
    workspace = Workspace(tmp_path_factory.mktemp("complete") / "ws")
    shutil.copytree(made.root, workspace.root)
    inputs = Inputs(workspace)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ccr_cli.report.figures.canvas.PNG_DPI", 40)
        if request.param:
            patch.setattr(compose, "FIGURES", [kind for kind in compose.FIGURES if kind.name in request.param])
        shown = searches(workspace.root / "datasets/toy-emoji/media/1.png")
        return inputs, report(inputs, title="<b>T</b>", searches=shown)


def test_the_report_is_complete_and_names_its_parents(complete: tuple[Inputs, base.Artifact]) -> None:
    inputs, done = complete
    assert done.kind == "report" and done.name.startswith("toy-emoji-es-")
    assert {p.kind for p in done.parents} == {"evaluation", "diagnosis", "run"}
    assert len(done.parents) == 12 + 8 + 12
    names = {f.path for f in done.files}
    for table in ("sumr", "retrieval", "recovery", "detection", "settings"):
        assert {f"tables/{table}.{end}" for end in ("csv", "md", "tex", "json")} <= names
    for figure in ("sumr", "beliefs", "searches"):
        assert {f"figures/{figure}.{end}" for end in ("svg", "pdf", "png")} <= names
    assert base.verify(done) == []
    assert {"dataset", "run", "evaluation", "diagnosis"} <= {a.kind for a in inputs.read}
    assert done.counts["methods"] == 3


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_progress_is_said_and_the_address_of_the_page_last(workspace: Workspace) -> None:
    done = toy.ok("report", "--name", "said", workspace=workspace.root)
    lines = [line for line in done.err.splitlines() if not line.startswith("warning")]  # of the missing translation
    assert lines[0].startswith("a report on ") and "evaluations" in lines[0]
    assert lines[-1] == f"the page: {done.made.path / 'report.html'}"


def test_the_page_needs_nothing_else_and_runs_only_its_own_script(complete: tuple[Inputs, base.Artifact]) -> None:
    inputs, done = complete
    text = done.file("report.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert not page.open and page.tags["script"] == 2 and not page.handlers
    assert page.addresses and all(a.startswith(("data:image/", "#")) for a in page.addresses)
    assert len(page.ids) == len(set(page.ids))
    assert "Content-Security-Policy" in text and "default-src 'none'" in text
    own = text.rpartition("<script>")[2].partition("</script>")[0]
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()}'" in text
    assert (
        text.count("<script") == 2
        and "&lt;script&gt;" in text
        and "<b>emoji</b>" not in text
        and "<b>T</b>" not in text
    )
    assert "At 40% switched translations, uml reaches SumR" in text
    assert "Drawn for the tests &lt;i&gt;by&lt;/i&gt; nobody" in text and "CC-BY-4.0" in text
    assert fake.signature("es", 0.4, 1, "none").replace("|", "|<wbr>") in text
    assert str(inputs.workspace.root) not in text


@pytest.mark.slow
def test_a_note_stands_under_the_first_table_that_has_it(
    complete: tuple[Inputs, base.Artifact], capsys: pytest.CaptureFixture[str]
) -> None:
    inputs, made = complete
    page = (made.path / "report.html").read_text(encoding="utf-8")
    tables = [json.loads(path.read_text(encoding="utf-8")) for path in (made.path / "tables").glob("*.json")]
    having = Counter(note for table in tables for note in table["notes"])
    (note, tables_with_it), *_ = having.most_common(1)
    assert tables_with_it > 3 and page.count(prose(note)) == 1
    show_report(compose.overview(gather(inputs)))
    assert capsys.readouterr().err.count(markdown_text(note)) == 1


@pytest.mark.slow
def test_the_same_inputs_give_the_same_files_and_no_work_twice(workspace: Workspace) -> None:
    first = report(Inputs(workspace), name="r", searches=searches())
    names = {f.path for f in first.files}
    assert {
        f"figures/{figure}.svg" for figure in ("sumr", "training", "beliefs", "judges", "risk", "searches")
    } <= names
    again = report(Inputs(workspace), name="r", searches=searches())
    assert again.about["created"] == first.about["created"]
    forced = report(Inputs(workspace), name="r", searches=searches(), force=True)
    assert forced.id == first.id and forced.files == first.files


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_other_results_make_another_report(workspace: Workspace) -> None:
    first = report(Inputs(workspace))
    data = base.load(workspace.place("dataset", "toy-emoji"))
    run = fake.make_run(workspace, data, "basic", 0.4, 0)
    fake.make_evaluation(workspace, data, run, "basic", 0.4, 0)
    assert report(Inputs(workspace)).name != first.name


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_a_data_set_stands_for_what_was_made_from_it(workspace: Workspace) -> None:
    whole = {parent.id for parent in report(Inputs(workspace)).parents}
    other = fake.make_dataset(workspace, name="other")
    run = fake.make_run(workspace, other, "basic", 0.0, 0, name="other-run")
    evaluation = fake.make_evaluation(workspace, other, run, "basic", 0.0, 0)
    of_it = report(Inputs.from_paths(workspace, ["datasets/toy-emoji"]), name="one")
    assert {parent.id for parent in of_it.parents} == whole
    of_other = report(Inputs.from_paths(workspace, ["datasets/other"]), name="two")
    assert {parent.id for parent in of_other.parents} == {run.id, evaluation.id}


@pytest.mark.usefixtures("unillustrated")
def test_only_what_was_given_is_reported_with_its_diagnoses(workspace: Workspace) -> None:
    name = "toy-emoji-es-uml-noise0.4-seed0"
    by_run = report(Inputs.from_paths(workspace, [f"runs/{name}"]), name="by-run")
    assert sorted(p.kind for p in by_run.parents) == ["diagnosis", "evaluation", "run"]
    by_evaluation = report(Inputs.from_paths(workspace, [f"evaluations/{name}-test"]), name="by-evaluation")
    assert sorted(p.id for p in by_evaluation.parents) == sorted(p.id for p in by_run.parents)
    assert "sd" not in by_run.file("tables/sumr.csv").read_text()


def test_without_an_evaluation_the_error_says_what_to_type(tmp_path: Path, workspace: Workspace) -> None:
    with pytest.raises(ArtifactError) as caught:
        report(Inputs(Workspace(tmp_path / "empty")))
    assert caught.value.exit_code == 4 and "ccr evaluate" in str(caught.value.hint)
    assert str(tmp_path / "empty") in caught.value.message
    shutil.rmtree(workspace.root / "evaluations")
    with pytest.raises(ArtifactError) as of_runs:
        report(Inputs.from_paths(workspace, ["runs/toy-emoji-es-uml-noise0.4-seed0"]))
    assert of_runs.value.exit_code == 4 and str(workspace.root) in of_runs.value.message


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_results_of_a_run_trained_anew_are_left_out(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    name = "toy-emoji-es-uml-noise0.4-seed0"
    shutil.rmtree(workspace.root / "runs" / name)
    data = base.load(workspace.place("dataset", "toy-emoji"))
    fake.make_run(workspace, data, "uml", 0.4, 0, name=name, extra=1)
    done = report(Inputs(workspace))
    assert len([p for p in done.parents if p.kind == "evaluation"]) == 11
    assert f"{name}-test is left out" in capsys.readouterr().err
    with pytest.raises(ArtifactError):
        report(Inputs.from_paths(workspace, [f"evaluations/{name}-test"]))


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_results_of_a_deleted_run_are_left_out_unless_named(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in ("uml-noise0.4-seed0", "uml-noise0.4-seed1"):
        shutil.rmtree(workspace.root / "runs" / f"toy-emoji-es-{run}")
    done = report(Inputs(workspace))
    assert [sum(p.kind == kind for p in done.parents) for kind in ("evaluation", "run")] == [10, 10]
    told = capsys.readouterr().err
    assert told.count("rm -r ") == 1 and "evaluations/toy-emoji-es-uml-noise0.4-seed1-test" in told
    named = ["evaluations/toy-emoji-es-uml-noise0.4-seed0-test"]
    assert [run_id for run_id, _ in gather(Inputs.from_paths(workspace, named)).results]
    assert "without its training" in capsys.readouterr().err


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_a_lost_data_set_costs_only_its_pictures(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(workspace.root / "datasets")
    done = report(Inputs(workspace))
    assert "no images and no licence" in capsys.readouterr().err
    page = done.file("report.html").read_text(encoding="utf-8")
    assert ">no image<" not in page and "<th>picture</th>" not in page, "no picture at all, no column of pictures"


def test_a_picture_outside_the_media_root_is_never_shown(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = base.load(workspace.place("dataset", "toy-emoji"))
    root = data.path / "media"
    (tmp_path / "secret.png").write_bytes((root / "1.png").read_bytes())
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    (root / "loop.png").symlink_to("loop.png")
    media = ["1.png", "../../../../secret.png", "link.png", "loop.png", None]
    items = pd.DataFrame({"item_id": list("abcde"), "media": media}, dtype=object)
    monkeypatch.setattr(dataset, "artifact_table", lambda *args: items)
    find = dataset.image_finder(data)
    assert [find(item) is not None for item in "abcdef"] == [True, False, False, False, False, False]
    shutil.rmtree(root)
    assert dataset.image_finder(data)("a") is None


@pytest.mark.slow
def test_runs_with_other_options_stand_apart(workspace: Workspace) -> None:
    data = base.load(workspace.place("dataset", "toy-emoji"))
    for seed in (0, 1):
        run = fake.make_run(workspace, data, "uml", 0.4, seed, name=f"other-{seed}", beta=0.9)
        fake.make_evaluation(workspace, data, run, "uml", 0.4, seed)
    seen = compose.overview(gather(Inputs(workspace)))
    labels = set(seen.views[0].frame["label"])
    assert labels == {"infonce", "infonce (oracle)", "uml", "uml [beta=0.9]"}, "0.3 is the default"
    assert seen.findings.noise == 0.4 and {"sumr", "retrieval", "recovery", "detection"} <= set(seen.tables)


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_a_repeated_run_is_named(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    data = base.load(workspace.place("dataset", "toy-emoji"))
    run = fake.make_run(workspace, data, "uml", 0.4, 1, name="once-more", triplets=39)
    fake.make_evaluation(workspace, data, run, "uml", 0.4, 1)
    done = report(Inputs(workspace))
    told = "once-more and toy-emoji-es-uml-noise0.4-seed1"
    assert f"{told} agree in method, options and seeds" in capsys.readouterr().err
    assert told in done.file("report.html").read_text(encoding="utf-8")


def test_runs_are_named_after_their_configuration(workspace: Workspace) -> None:
    data = base.load(workspace.place("dataset", "toy-emoji"))
    run = fake.make_run(workspace, data, "infonce", 0.4, 5, name="more", cross_lingual_weight=0.5)
    fake.make_evaluation(workspace, data, run, "infonce", 0.4, 5)
    frame = compose.overview(gather(Inputs(workspace))).views[0].frame
    assert set(frame.loc[frame["run"] == "more", "label"]) == {"infonce (cross_lingual_weight=0.5)"}
    assert set(frame.loc[frame["label"] == "infonce", "run"]) == {
        f"toy-emoji-es-infonce-noise{n}-seed{s}" for n in ("0", "0.4") for s in (0, 1)
    }
    assert set(frame.loc[frame["noise"] == 0.4, "noise_seed"]) == {0, 1, 5}
    assert set(frame.loc[frame["noise"] == 0, "noise_seed"]) == {-1}


def test_a_split_that_there_is_not_is_refused(workspace: Workspace) -> None:
    for asked in ((), ("--searches", "1")):
        done = toy.ccr("report", "--split", "nonsense", *asked, workspace=workspace.root)
        assert (done.code, done.out) == (2, "") and "'nonsense'" in done.err
        assert "splits: train, val, test, val-select, val-report" in done.err
    assert not (workspace.root / "reports").exists()


@pytest.mark.slow
def test_one_evaluation_alone_makes_a_page(tmp_path: Path) -> None:
    workspace = fake.make(tmp_path, ("basic",), (0.0,), (0,), langs=("en",), diagnosed=False)
    done = report(Inputs(workspace))
    assert "Without synthetic noise, basic reaches SumR" in done.file("report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_the_byline_counts_the_runs_that_it_speaks_of(workspace: Workspace) -> None:
    data = base.load(workspace.place("dataset", "toy-emoji"))
    run = fake.make_run(workspace, data, "uml", 0.4, 5, name="english")
    fake.make_evaluation(workspace, data, run, "uml", 0.4, 5, langs=("en",))
    page = report(Inputs(workspace)).file("report.html").read_text(encoding="utf-8")
    assert " · 12 runs · 2 seeds · " in page.replace("\u00a0", " "), "and one in English alone"
