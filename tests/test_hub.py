"""Models of the hub: weights that are not opened, what is kept out of messages, what stands for a folder."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
import transformers

from ccr_cli import hub
from ccr_cli.encoders import clip
from ccr_cli.errors import ArtifactError, UnavailableError
from ccr_cli.nets.text import build_text_encoder
from ccr_cli.translators import hf

CPU = torch.device("cpu")
NAME = "someone/tiny"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "troubleshooting.md"


def bert(folder: Path) -> transformers.BertModel:
    """Saves a tiny model as safetensors."""
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = transformers.BertModel(transformers.BertConfig(vocab_size=20, **size))
    model.save_pretrained(folder)
    return model


@pytest.fixture
def pickled(tmp_path: Path) -> Path:
    """The same as a pickle alone."""
    model = bert(tmp_path / "old")
    (tmp_path / "old" / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "old" / "pytorch_model.bin")
    return tmp_path / "old"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def into_cache(folder: Path, cache: Path) -> None:
    commit = "0123456789" * 4
    place = cache / f"models--{NAME.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(commit)
    (place / "snapshots").mkdir()
    folder.rename(place / "snapshots" / commit)


def test_a_pickle_is_never_opened(pickled: Path, cache: Path) -> None:
    for given in (str(pickled), NAME):
        if given == NAME:
            into_cache(pickled, cache)
        for load in (
            lambda: clip.Encoder(clip.Config(model=given), CPU, torch.float32),  # noqa: B023
            lambda: hf.Translator("en", "de", hf.Config(model=given), dataset_dir=None, device="cpu"),  # noqa: B023
            lambda: build_text_encoder(given),  # noqa: B023
        ):
            with pytest.raises(UnavailableError, match=r"pickle \(\.bin\) alone") as caught:
                load()
            assert "refs/pr/N" in str(caught.value.hint) and "docs/troubleshooting.md" in str(caught.value.hint)
    assert hub.missing(NAME) is not None


def test_a_pickle_is_not_even_downloaded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [SimpleNamespace(rfilename=name) for name in ("config.json", "pytorch_model.bin", "tf_model.h5")]
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *a, **k: SimpleNamespace(siblings=files))
    with pytest.raises(UnavailableError, match=f"{NAME} has its weights as a pickle"):
        hub.locate(NAME, "main")


def test_the_way_out_that_the_page_shows(pickled: Path) -> None:
    section = PAGE.read_text(encoding="utf-8").split("## A model without safetensors")[1]
    command = re.findall(r"^python -c .*$", section, re.MULTILINE)[0]
    subprocess.run([sys.executable, *shlex.split(command)[1:]], cwd=pickled, check=True, timeout=120)
    with pytest.raises(ArtifactError, match="no complete model"):
        hub.find(str(pickled.parent))
    assert hub.find(str(pickled)) is not None
    encoder: Any = build_text_encoder(str(pickled))
    before = torch.load(pickled / "pytorch_model.bin", weights_only=True)
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.model.state_dict().items())


def test_no_key_is_repeated(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [SimpleNamespace(rfilename=name) for name in ("config.json", "model.safetensors")]
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *a, **k: SimpleNamespace(siblings=files))
    real = huggingface_hub.snapshot_download

    def breaks(*args: Any, local_files_only: bool = False, **kwargs: Any) -> str:
        if local_files_only:
            return str(real(*args, local_files_only=True, **kwargs))
        raise ConnectionError("https://me:pw@cdn.example.org/a/b?X-Signature=secret&Key=k timed out, hf_abcdefghijkl")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", breaks)
    with pytest.raises(UnavailableError, match="its download stopped") as caught:
        hub.locate(NAME, "main")
    assert "https://cdn.example.org/a/b timed out" in caught.value.message
    assert not re.search("secret|Key=|pw|hf_abc", caught.value.message)


def test_what_stands_for_a_folder(tmp_path: Path) -> None:
    bert(tmp_path / "a")
    one = hub.identity(str(tmp_path / "a"))
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "b" / "README.md").write_text("read by nobody")
    assert one == hub.identity(str(tmp_path / "b")) and one["model"].startswith("sha256:")
    assert hub.locate(str(tmp_path / "b"), "main").label == "b"
    found = {one["model"]}
    for path in (tmp_path / "b" / "config.json", tmp_path / "b" / "model.safetensors"):
        content = path.read_bytes()
        path.write_bytes(content + b"\n")
        found.add(hub.identity(str(tmp_path / "b"))["model"])
        path.write_bytes(content)
    (tmp_path / "b" / "tokenizer.json").write_text("{}")
    found.add(hub.identity(str(tmp_path / "b"))["model"])
    assert len(found) == 4


def test_what_doctor_is_told(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = clip.Config().model
    assert clip.missing() == (f"the default model {name} is not on this machine", f"hf download {name}")
    assert hf.missing() is not None and hf.FALLBACK in hf.missing()[1]  # type: ignore[index]
    bert(tmp_path / "model")
    monkeypatch.setattr(sys.modules[__name__], "NAME", "Helsinki-NLP/opus-mt-en-zh")
    into_cache(tmp_path / "model", cache)
    assert hf.missing() is None
