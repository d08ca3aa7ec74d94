"""Models of the hub: weights that are not opened, conversions, what no message repeats, what stands for a folder."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hub_server
import huggingface_hub
import huggingface_hub.constants
import pytest
import torch
import transformers

from ccr_cli import hub
from ccr_cli.encoders import clip
from ccr_cli.errors import ArtifactError, UnavailableError
from ccr_cli.nets.text import build_text_encoder
from ccr_cli.translators import _seq2seq, hf

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
    """An empty cache of the hub, which itself cannot be reached."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    hub_server.point_to("http://127.0.0.1:9", monkeypatch)
    return tmp_path / "cache"


@pytest.fixture
def server(cache: Path, pickled: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hub_server.Hub]:
    """The hub within reach; there the model's `main` is a pickle alone."""
    with hub_server.serve(NAME) as served:
        hub_server.point_to(served.url, monkeypatch)
        served.revisions["main"] = pickled
        yield served


@pytest.fixture
def converted(pickled: Path, tmp_path: Path) -> Path:
    """A copy of the pickle with safetensors beside it, as a conversion leaves it; handler.py is read by nobody."""
    folder = shutil.copytree(pickled, tmp_path / "converted")
    (folder / "README.md").write_text("Tiny.")
    (folder / "handler.py").write_text("raise SystemExit")
    bert(folder)
    return folder


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
            with pytest.raises(UnavailableError, match=re.escape(given)) as caught:
                load()
            assert "refs/pr/N" in str(caught.value.hint) and "docs/troubleshooting.md" in str(caught.value.hint)
    assert hub.missing(NAME) is not None


@pytest.mark.parametrize(
    "pull",
    [None, {"author": "somebody"}, {"title": "Add safetensors"}, {"status": "closed"}],
    ids=["none", "author", "title", "closed"],
)
def test_a_pickle_is_not_even_downloaded(
    pull: dict[str, str] | None, server: hub_server.Hub, converted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if pull is not None:
        server.pull(3, converted, **pull)
    with pytest.raises(UnavailableError, match=NAME):
        hub.locate(NAME, "main")
    assert not [request for request in server.asked if "/resolve/" in request]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("status", ["open", "merged"])
def test_the_conversion_of_the_hub_is_taken_and_found_again(
    status: str,
    server: hub_server.Hub,
    converted: Path,
    pickled: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.pull(5, converted, status=status)
    server.pull(9, pickled, author="somebody")
    server.pull(2, pickled)
    located = hub.locate(NAME, "main")
    assert (located.label, located.revision) == (NAME, hub_server.commit("refs/pr/5"))
    lines = [line for line in capsys.readouterr().err.splitlines() if NAME in line]
    assert len(lines) == 1 and "revision refs/pr/5" in lines[0]
    assert {path.name for path in located.folder.iterdir()} == {"config.json", "model.safetensors", "README.md"}
    assert not [request for request in server.asked if request.startswith("POST")]

    server.asked.clear()
    assert hub.locate(NAME, "main") == hub.find(NAME) == located and server.asked == []
    hub_server.point_to("http://127.0.0.1:9", monkeypatch)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert hub.locate(NAME, "main") == located and hub.missing(NAME) is None
    assert capsys.readouterr().err == ""
    before: Any = transformers.BertModel.from_pretrained(converted).state_dict()
    encoder: Any = build_text_encoder(NAME)
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.model.state_dict().items())


def test_a_pickle_in_the_cache_leads_to_the_conversion(server: hub_server.Hub, converted: Path) -> None:
    huggingface_hub.snapshot_download(NAME)
    assert "pickle" in hub.missing(NAME)[0]  # type: ignore[index]
    server.pull(1, converted)
    assert hub.locate(NAME, "main").revision == hub_server.commit("refs/pr/1")
    assert hub.missing(NAME) is None


def test_the_revision_of_the_user_is_taken_as_it_is(server: hub_server.Hub, converted: Path, pickled: Path) -> None:
    server.pull(1, converted)
    server.revisions["v1"] = pickled
    server.pull(7, converted, author="somebody")
    with pytest.raises(UnavailableError, match=NAME) as caught:
        hub.locate(NAME, "v1")
    assert "refs/pr/N" in str(caught.value.hint)
    assert not [request for request in server.asked if "/discussions" in request]
    assert hub.locate(NAME, "refs/pr/7").revision == hub_server.commit("refs/pr/7")
    assert hub.find(NAME) is None, "what somebody else offers never stands for main, not even out of the cache"
    assert hub.locate(NAME, "main").revision == hub_server.commit("refs/pr/1")
    assert hub.find(NAME, "v1") is None


def test_main_is_found_again_without_a_network(
    server: hub_server.Hub, converted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.revisions["main"] = converted
    located = hub.locate(NAME, "main")
    assert located.revision == hub_server.commit("main")
    hub_server.point_to("http://127.0.0.1:9", monkeypatch)
    assert hub.locate(NAME, "main") == located


@pytest.mark.slow
def test_the_way_out_that_the_page_shows(pickled: Path) -> None:
    section = PAGE.read_text(encoding="utf-8").split("## A model without safetensors")[1]
    command = re.findall(r"^python -c .*$", section, re.MULTILINE)[0]
    subprocess.run([sys.executable, *shlex.split(command)[1:]], cwd=pickled, check=True, timeout=120)
    with pytest.raises(ArtifactError):
        hub.find(str(pickled.parent))
    assert hub.find(str(pickled)) is not None
    encoder: Any = build_text_encoder(str(pickled))
    before = torch.load(pickled / "pytorch_model.bin", weights_only=True)
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.model.state_dict().items())


def test_no_key_is_repeated(server: hub_server.Hub, converted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.revisions["main"] = converted
    real = huggingface_hub.snapshot_download

    def breaks(*args: Any, local_files_only: bool = False, **kwargs: Any) -> str:
        if local_files_only:
            return str(real(*args, local_files_only=True, **kwargs))
        raise ConnectionError("https://me:pw@cdn.example.org/a/b?X-Signature=secret&Key=k timed out, hf_abcdefghijkl")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", breaks)
    with pytest.raises(UnavailableError, match=NAME) as caught:
        hub.locate(NAME, "main")
    assert "https://cdn.example.org/a/b timed out" in caught.value.message
    assert not re.search("secret|Key=|pw|hf_abc", caught.value.message)


def test_what_stands_for_a_folder(tmp_path: Path) -> None:
    bert(tmp_path / "a")
    one = hub.identity(str(tmp_path / "a"))
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "b" / "README.md").write_text("changes nothing")
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


@pytest.mark.parametrize("index", ["{", "[]", "{}", '{"weight_map": [1]}', '{"weight_map": {"a": 1}}'])
def test_a_damaged_list_of_weights(index: str, tmp_path: Path) -> None:
    bert(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ArtifactError):
        hub.find(str(tmp_path))


def test_what_doctor_is_told(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = clip.Config().model
    assert clip.missing() == (f"the default model {name} is not on this machine", f"hf download {name}")
    assert hf.missing() is not None and _seq2seq.FALLBACK in hf.missing()[1]  # type: ignore[index]
    bert(tmp_path / "model")
    monkeypatch.setattr(sys.modules[__name__], "NAME", "Helsinki-NLP/opus-mt-en-zh")
    into_cache(tmp_path / "model", cache)
    assert hf.missing() is None
