"""Judged pairs for Label Studio, FiftyOne and cleanlab: the schemas of their documentation; verdicts come back."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest

from ccr_cli.data import pairs_file
from ccr_cli.errors import UsageError

DOCS = Path(__file__).parents[2] / "docs" / "diagnose.md"


@pytest.fixture
def frame() -> pd.DataFrame:
    """Four pairs of three items, one of which has no picture."""
    return pd.DataFrame(
        {
            "slot_id": ["a#0", "b#0", "c#0", "a#1"],
            "source_caption_id": ["a#0", "b#0", "c#0", "a#1"],
            "item_id": ["a", "b", "c", "a"],
            "split": ["train", "test", "val", "train"],
            "lang": "es",
            "source_text": ["one dog", "=1+1", "a “cat”", "two\ndogs"],
            "translation": ["un perro", "dos", "un gato", "dos perros"],
            "place": np.array([2, 1, 4, 3], dtype=np.int32),
            "verdict": ["clean", "noisy", "not judged", "clean"],
            "p_vs": np.float32(1),
            "p_clean": np.array([0.7, 0.1, 1, 0.9], dtype=np.float32),
            "p_st": np.float32(0.5),
            "flags": ["", "numbers (1)", "", ""],
        }
    )


@pytest.fixture
def media(tmp_path: Path) -> Path:
    (tmp_path / "data" / "media" / "x y").mkdir(parents=True)
    return tmp_path / "data" / "media"


def write(path: Path, frame: pd.DataFrame, media: Path) -> Path:
    pairs_file.write(path, frame, lambda item: media / "x y" / f"{item}.png" if item != "c" else None, media)
    return path


def configuration() -> ElementTree.Element:
    """The labelling configuration of the documentation."""
    (text,) = re.findall(r"```xml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    return ElementTree.fromstring(text)


def test_tasks_of_label_studio(frame: pd.DataFrame, media: Path, tmp_path: Path) -> None:
    """https://labelstud.io/guide/predictions: `data` with the variables of the configuration, `predictions` whose
    results name its tags and choices; and https://labelstud.io/guide/storage for files of this machine.
    """
    tasks = json.loads(write(tmp_path / "p.labelstudio.json", frame, media).read_text(encoding="utf-8"))
    tags = {tag.get("name"): tag for tag in configuration().iter() if tag.get("name")}
    used = {value[1:] for tag in tags.values() if (value := tag.get("value", "")).startswith("$")}
    assert [task["data"]["place"] for task in tasks] == [1, 2, 3, 4]
    assert all(used <= task["data"].keys() and set(task) == {"data", "predictions"} for task in tasks)
    names = [unquote(task["data"]["image"]) for task in tasks]
    assert names[:2] == ["/data/local-files/?d=media/x y/b.png", "/data/local-files/?d=media/x y/a.png"]
    assert names[3] == "" and " " not in tasks[0]["data"]["image"]
    choices = {choice.get("value") for choice in tags["verdict"].iter("Choice")}
    assert tags["verdict"].get("toName") == tags["correction"].get("toName") and tasks[3]["predictions"] == []
    for task, choice, score in zip(tasks, ("noisy", "clean", "clean"), (0.9, 0.7, 0.9), strict=False):
        (prediction,) = task["predictions"]
        (result,) = prediction["result"]
        assert isinstance(prediction["model_version"], str) and prediction["score"] == pytest.approx(score, abs=1e-6)
        assert tags[result["from_name"]].get("toName") == result["to_name"] and result["type"] == "choices"
        assert result["value"] == {"choices": [choice]} and {choice} <= choices


def test_annotations_of_label_studio_come_back(frame: pd.DataFrame, media: Path, tmp_path: Path) -> None:
    """https://labelstud.io/guide/task_format: its JSON export, with a skipped annotation and two of one task."""
    tasks = json.loads(write(tmp_path / "p.labelstudio.json", frame, media).read_text(encoding="utf-8"))

    def annotation(at: str, skipped: bool = False, **value: Any) -> dict[str, Any]:
        result = [
            {"from_name": name, "to_name": "translated", "value": {kind: [text]}, "type": kind, "origin": "manual"}
            for name, kind, text in (("verdict", "choices", value.get("v")), ("correction", "text", value.get("c")))
            if text
        ]
        return {"id": 1, "completed_by": 1, "result": result, "was_cancelled": skipped, "updated_at": f"2026-01-{at}"}

    for number, task in enumerate(tasks):
        task |= {"id": number + 10, "annotations": [], "drafts": [], "project": 1}
    tasks[0]["annotations"] = [annotation("02", v="clean"), annotation("01", v="noisy")]
    tasks[1]["annotations"] = [annotation("01", v="noisy", c="el perro"), annotation("03", skipped=True, v="clean")]
    (tmp_path / "project-1.json").write_text(json.dumps(tasks), encoding="utf-8")
    read = pairs_file.read(tmp_path / "project-1.json")
    assert list(read.frame["verdict"]) == ["clean", "noisy", "clean", "not judged"]
    assert list(read.correction) == ["", "el perro", "", ""] and read.unread == ()
    assert list(read.frame["source_text"])[:2] == ["=1+1", "one dog"]
    (tmp_path / "p.labelstudio.json").write_text(json.dumps(tasks), encoding="utf-8")
    with pytest.raises(UsageError, match="1 correction"):
        pairs_file.check(tmp_path / "p.labelstudio.json")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "[1]", '[{"data": 1}]', '[{"data": {"a": 1}, "annotations": [{}]}]', "[["]
)
def test_other_json_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError, match=r"x\.json"):
        pairs_file.read(tmp_path / "x.json")


def test_samples_of_fiftyone(frame: pd.DataFrame, media: Path, tmp_path: Path) -> None:
    """What `Dataset.write_json` writes and `Dataset.from_json` reads: a field of each kind, a sample of each picture.

    https://docs.voxel51.com/api/fiftyone.core.dataset.html, and of labels https://docs.voxel51.com/user_guide/using_datasets.html
    """
    about = json.loads(write(tmp_path / "p.fiftyone.json", frame, media).read_text(encoding="utf-8"))
    assert about["media_type"] == "image" and isinstance(about["name"], str)
    kinds = {"StringField": str, "IntField": int, "FloatField": float}
    fields = {name: kind.removeprefix("fiftyone.core.fields.") for name, kind in about["sample_fields"].items()}
    assert fields.pop("verdict") == "EmbeddedDocumentField(fiftyone.core.labels.Classification)"
    assert [sample["slot_id"] for sample in about["samples"]] == ["b#0", "a#0", "a#1"]
    for sample in about["samples"]:
        assert all(isinstance(sample[name], kinds[kind]) for name, kind in fields.items())
        assert set(sample) == {"filepath", "tags", "verdict", *fields} and Path(sample["filepath"]).is_absolute()
    assert about["samples"][0]["tags"] == ["test"] and about["samples"][0]["verdict"] == {
        "_cls": "Classification",
        "label": "noisy",
        "confidence": pytest.approx(0.9, abs=1e-6),
    }
    with pytest.raises(UsageError):
        pairs_file.write(tmp_path / "q.fiftyone.json", frame)


def test_label_issues_of_cleanlab(frame: pd.DataFrame, media: Path, tmp_path: Path) -> None:
    """The columns of `Datalab.get_issues("label")`, scores from 0 to 1, low for bad: P(given label), self-confidence.

    https://docs.cleanlab.ai/stable/cleanlab/datalab/guide/issue_type_description.html
    """
    table = pd.read_csv(write(tmp_path / "p.cleanlab.csv", frame, media))
    assert {"is_label_issue", "label_score", "given_label", "predicted_label"} <= {*table}
    assert table["is_label_issue"].dtype == bool and list(table["is_label_issue"]) == [True, False, False, False]
    assert list(table["label_score"]) == pytest.approx([0.1, 0.7, 0.9, 1]) and set(table["given_label"]) == {"clean"}
    assert list(table["predicted_label"]) == ["noisy", "clean", "clean", "clean"]
    pairs_file.check(tmp_path / "p.cleanlab.csv")


def test_label_studio_reads_the_tasks(frame: pd.DataFrame, media: Path, tmp_path: Path) -> None:
    sdk = pytest.importorskip("label_studio_sdk.label_interface", reason="label-studio-sdk is not installed")
    interface = sdk.LabelInterface(ElementTree.tostring(configuration(), encoding="unicode"))
    tasks = json.loads(write(tmp_path / "p.labelstudio.json", frame, media).read_text(encoding="utf-8"))
    guesses = [each for task in tasks for each in task.pop("predictions")]
    interface.validate()
    assert all(map(interface.validate_task, tasks)) and all(map(interface.validate_prediction, guesses))
    guesses[0]["result"][0]["to_name"] = "other"
    assert not interface.validate_prediction(guesses[0])


def test_fiftyone_reads_the_samples(frame: pd.DataFrame, media: Path, tmp_path: Path) -> None:
    fiftyone = pytest.importorskip("fiftyone", reason="fiftyone is not installed")
    about = json.loads(write(tmp_path / "p.fiftyone.json", frame, media).read_text(encoding="utf-8"))
    samples = [fiftyone.Sample.from_dict(each) for each in about["samples"]]
    assert [each.verdict.label for each in samples] == ["noisy", "clean", "clean"]
    assert [(each.media_type, each.tags, each["place"]) for each in samples][:1] == [("image", ["test"], 1)]


def test_fiftyone_loads_the_data_set(frame: pd.DataFrame, media: Path, tmp_path: Path) -> None:
    fiftyone = pytest.importorskip("fiftyone", reason="fiftyone is not installed")
    try:
        loaded = fiftyone.Dataset.from_json(str(write(tmp_path / "p.fiftyone.json", frame, media)))
    except fiftyone.core.config.FiftyOneConfigError:
        pytest.skip("fiftyone has no MongoDB here")
    try:
        assert loaded.count_values("verdict.label") == {"clean": 2, "noisy": 1}
        assert loaded.match(fiftyone.ViewField("verdict.confidence") > 0.8).values("slot_id") == ["b#0", "a#1"]
    finally:
        loaded.delete()


def test_cleanlab_has_these_columns(frame: pd.DataFrame, media: Path, tmp_path: Path) -> None:
    cleanlab = pytest.importorskip("cleanlab", reason="cleanlab is not installed")
    table = pd.read_csv(write(tmp_path / "p.cleanlab.csv", frame, media))
    p_N2 = np.array([[0.1, 0.9], [0.9, 0.1]] * 20)
    lab = cleanlab.Datalab({"label": [0, 1, *[1, 0] * 19]}, label_name="label", verbosity=0)
    lab.find_issues(pred_probs=p_N2, issue_types={"label": {}})
    issues = lab.get_issues("label")
    assert {*issues} <= {*table} and issues["is_label_issue"].dtype == table["is_label_issue"].dtype
