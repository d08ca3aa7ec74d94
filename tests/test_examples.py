"""The scripts in examples/ run from end to end."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import tinydual
import toy

from ccr_cli.artifacts.evaluation import results
from ccr_cli.artifacts.workspace import Workspace

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.slow
def test_the_tour_runs_and_what_it_promises_is_there(tmp_path: Path) -> None:
    data = toy.bilingual().write(tmp_path / "toy")
    corrections = tmp_path / "corrections.tsv"
    toy.write_table(corrections, ("source", "target"), [("red circle", "redondel colorado")])
    root = tmp_path / "workspace"
    secrets = {name: "s3cretvalue" for name in ("HF_TOKEN", "DEEPL_API_KEY")} | {"USER": "alicesuser"}
    more = {"WORKSPACE": str(root), "EPOCHS": "1", "DATA": str(data), "CORRECTIONS": str(corrections), **secrets}
    done = subprocess.run(
        ["bash", EXAMPLES / "emoji.sh"], env=toy.environment(root, **more), capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    assert all(Path(line.split(": ")[1].strip()).is_file() for line in done.stdout.splitlines()[-3:])
    workspace = Workspace(root)
    assert len(workspace.artifacts("run")) == 9 and len(workspace.artifacts("evaluation")) == 9
    (mended,) = [t for t in workspace.artifacts("translation") if t.name == "es-corrected"]
    captions = pd.read_parquet(mended.file("captions.parquet"))
    assert "redondel colorado" in set(captions["text"])
    assert workspace.artifacts("report") and workspace.artifacts("export")
    suffixes = {path.suffix for path in root.rglob("*")}
    assert suffixes >= {".json", ".jsonl", ".parquet", ".safetensors", ".npy", ".html", ".pdf", ".png", ".svg", ".tex"}
    machine = [str(tmp_path), str(Path(sys.executable).parent.parent), *secrets.values()]
    machine += [platform.node()] if len(platform.node()) > 5 else []  # a short name is in any binary file
    assert [found for _, path in workspace.places() for found in toy.holders(path, machine)] == []


@pytest.mark.slow
def test_the_first_hour_with_own_data_runs(tmp_path: Path) -> None:
    data, root = toy.toy().write(tmp_path / "toy"), tmp_path / "workspace"
    more = {"WORKSPACE": str(root), "EPOCHS": "1", "DATA": str(data)}
    script = ["bash", str(EXAMPLES / "products.sh")]
    done = subprocess.run(script, env=toy.environment(root, **more), capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    assert all(Path(line.split(": ")[1].strip()).is_file() for line in done.stdout.splitlines()[-2:])
    (products,) = Workspace(root).artifacts("dataset")
    (evaluation,) = Workspace(root).artifacts("evaluation")
    assert evaluation.request["queries"] == "mt"
    counts = products.counts
    assert counts["captions.en"] == 96 and sum(counts[f"items.{split}"] for split in ("train", "val", "test")) == 48
    assert not any(key.startswith("captions.") and key != "captions.en" for key in counts)


@pytest.mark.slow
def test_vectors_of_sentence_transformers_are_those_of_the_model(sources: toy.Chain, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    model, data = tinydual.save("clip", tmp_path / "model"), sources.find("dataset", "toy").path
    call = [
        sys.executable,
        str(EXAMPLES / "vectors.py"),
        str(data),
        str(model),
        str(model),
        str(sources.folder / "media"),
    ]
    done = subprocess.run(
        call, cwd=tmp_path, env=toy.environment(tmp_path), capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    root = tmp_path / "workspace"
    toy.copy_datasets(sources.root, root)
    files = ("--text-vectors", tmp_path / "texts.parquet", "--visual-vectors", tmp_path / "pictures.parquet")
    by_vectors = toy.ok("evaluate", "--zero-shot", *files, "--device", "cpu", workspace=root).made
    by_model = toy.ok("evaluate", "--zero-shot", "--model", model, "--device", "cpu", workspace=root).made
    one, other = ({r["lang"]: r["SumR"] for r in results(made)} for made in (by_vectors, by_model))
    assert one == pytest.approx(other, abs=10), "rounding may exchange two neighbours among twelve pictures"


def test_scripts_parse_and_need_their_arguments() -> None:
    for script in EXAMPLES.glob("*.sh"):
        subprocess.run(["bash", "-n", script], check=True)
        assert script.stat().st_mode & 0o111, f"{script.name} is not executable"
    done = subprocess.run(["bash", EXAMPLES / "flickr8k-cn.sh"], capture_output=True, text=True)
    assert done.returncode == 2 and "DATA_FOLDER" in done.stderr
