"""Judged pairs in the formats of other tools, selected by the ending of the file name.

- `.labelstudio.json`: tasks with pre-annotations for Label Studio (https://labelstud.io/guide/predictions); its JSON
  export is read, too (https://labelstud.io/guide/task_format).
- `.fiftyone.json`: what `fiftyone.Dataset.from_json` loads (https://docs.voxel51.com/api/fiftyone.core.dataset.html), a
  sample per pair with a picture.
- `.cleanlab.csv`: the columns of label issues of cleanlab's `Datalab`
  (https://docs.cleanlab.ai/stable/cleanlab/datalab/guide/issue_type_description.html). The given label of every pair is
  `clean`, and its quality score is P(clean): low is bad.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from ccr_cli.console import counted, warn
from ccr_cli.errors import UsageError

Pictures = Callable[[str], Path | None]
"""Function from an item's id to the path of its picture; None if it has none."""
LOCAL = "/data/local-files/?d="
"""Prefix of local files in tasks; the path relative to LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT follows."""
VERDICT, CORRECTION, TEXT = "verdict", "correction", "translated"
"""Names of the tags of the labelling configuration in docs/diagnose.md."""
_FIELD = "fiftyone.core.fields."


def _records(frame: pd.DataFrame) -> Any:
    """Returns the rows as dictionaries of JSON values; floats keep the seven significant digits of float32."""
    columns = {n: [float(f"{x:.7g}") for x in v] if v.dtype.kind == "f" else v.astype(object) for n, v in frame.items()}
    return pd.DataFrame({str(n): v for n, v in columns.items()}, index=frame.index).astype(object).to_dict("records")


def _confidence(row: Mapping[str, Any]) -> float:
    """The probability of the verdict."""
    return float(row["p_clean"] if row["verdict"] == "clean" else 1 - row["p_clean"])


def labelstudio(frame: pd.DataFrame, pictures: Pictures, root: Path | None) -> bytes:
    """Returns Label Studio tasks; paths of pictures are relative to the folder above the media root."""
    tasks = []
    for row in _records(frame):
        path = pictures(row["item_id"])
        place = path.relative_to(root.resolve().parent).as_posix() if path and root else ""
        choice = {"from_name": VERDICT, "to_name": TEXT, "type": "choices", "value": {"choices": [row["verdict"]]}}
        guess = {"model_version": "ccr", "score": _confidence(row), "result": [choice]}
        guesses = [] if row["verdict"] == "not judged" else [guess]
        tasks.append({"data": row | {"image": LOCAL + quote(place) if place else ""}, "predictions": guesses})
    return json.dumps(tasks, ensure_ascii=False, indent=1).encode()


def fiftyone(frame: pd.DataFrame, pictures: Pictures, root: Path | None) -> bytes:
    """Returns a FiftyOne data set; UsageError if no pair has a picture."""
    samples = []
    for row in _records(frame):
        if path := pictures(row["item_id"]):
            confidence = {} if row["verdict"] == "not judged" else {"confidence": _confidence(row)}
            verdict = {"_cls": "Classification", "label": row["verdict"], **confidence}
            tags = [row["split"]] if row.get("split") else []
            fields = {name: value for name, value in row.items() if name != "split"}
            samples.append({"filepath": str(path), "tags": tags, **fields, "verdict": verdict})
    if not samples:
        raise UsageError("FiftyOne shows pictures, and no pair has one here", hint="--export pairs.csv")
    if missing := len(frame) - len(samples):
        warn(f"{counted(missing, 'pair')} without a picture left out")
    kinds = {"i": "IntField", "f": "FloatField"}
    fields = {str(n): _FIELD + kinds.get(v.dtype.kind, "StringField") for n, v in frame.items() if n != "split"}
    fields["verdict"] = f"{_FIELD}EmbeddedDocumentField(fiftyone.core.labels.Classification)"
    about = {"name": "ccr-pairs", "media_type": "image", "sample_fields": fields, "samples": samples}
    return json.dumps(about, ensure_ascii=False).encode()


def label_issues(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns a table of cleanlab's label issues, in the order of the pairs."""
    ids = [n for n in ("slot_id", "source_caption_id", "item_id", "split", "lang", "alternative") if n in frame]
    noisy = frame["verdict"] == "noisy"
    return frame[[*ids, "source_text", "translation", "verdict"]].assign(
        is_label_issue=noisy,
        label_score=frame["p_clean"],
        given_label="clean",
        predicted_label=noisy.map({True: "noisy", False: "clean"}),
    )


TOOLS = {".labelstudio.json": labelstudio, ".fiftyone.json": fiftyone}
ISSUES = ".cleanlab.csv"


def annotated(content: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the cells of each Label Studio task, after the header as number 0.

    Verdict and correction come from the last annotation that was not skipped; without one, they stay as exported.

    Raises:
        ValueError: If the content is not a list of such tasks.
    """
    try:
        tasks = json.loads(content)
        names = [name for name in tasks[0]["data"] if name != "image"]
        yield 0, names
        for number, task in enumerate(tasks, 1):
            cells = dict(task["data"])
            answers = [a for a in task.get("annotations") or () if not a.get("was_cancelled")]
            for part in max(answers, key=lambda a: str(a.get("updated_at", "")))["result"] if answers else ():
                if part["from_name"] == VERDICT:
                    cells[VERDICT] = part["value"]["choices"][0]
                elif part["from_name"] == CORRECTION:
                    text = part["value"]["text"]
                    cells[CORRECTION] = text if isinstance(text, str) else " ".join(text)
            yield number, ["" if cells.get(name) is None else str(cells[name]) for name in names]
    except (AttributeError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"no tasks of Label Studio with `data` and `annotations` ({error})") from None
