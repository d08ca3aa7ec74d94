"""Reading ahead in threads, and batches that fit: order, bounds, errors, memory."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ccr_cli.data.sampling import Sampling
from ccr_cli.errors import ResourceError
from ccr_cli.stages.extract.encoding import BatchEncoder, Resources, encode
from ccr_cli.stages.extract.write_features import Pieces
from ccr_cli.stages.shared import prefetch
from ccr_cli.stages.shared.media import MediaError, MediaReader, Medium
from ccr_cli.stages.shared.prefetch import End, Prefetch

CPU = torch.device("cpu")


class Mean:
    """An encoder whose vectors can be told beforehand; refuses batches that are too large, as a full device does."""

    dim = 3
    sampling = Sampling()

    def __init__(self, most: int = 10**9, rows: int = 0) -> None:
        self.most, self.rows = most, rows
        self.sizes: list[int] = []

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        return torch.from_numpy(np.array(image.convert("RGB").resize((4, 4)), dtype=np.float32)).permute(2, 0, 1)

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        if len(batch) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        self.sizes.append(len(batch))
        mean_BD = batch.mean(dim=(2, 3))
        return mean_BD[:, None] + torch.arange(self.rows)[:, None] if self.rows else mean_BD


@pytest.fixture
def pictures(tmp_path: Path) -> list[Medium]:
    for number in range(10):
        Image.new("RGB", (8, 8), (number, 2 * number, 100)).save(tmp_path / f"{number}.png")
    return [Medium("image", f"{number}.png") for number in range(10)]


def run(place: Path, media: list[Medium], model: Mean, size: int = 6, batch: int | None = 4) -> Pieces:
    pieces = Pieces(place / "mine.parts", place / "mine", [str(at) for at in range(len(media))], size)
    pieces.folder.mkdir()
    told = encode(pieces, pieces.todo(), media, MediaReader(place, model), Resources(CPU, batch, 3), pooled=False)
    assert len(told) == len(media)
    return pieces


def test_batches_stay_inside_a_piece(tmp_path: Path, pictures: list[Medium]) -> None:
    model = Mean()
    pieces = run(tmp_path, pictures, model)
    assert pieces.bounds() == [(0, 6), (6, 10)] and model.sizes == [4, 2, 4] and pieces.todo() == []
    found = [item.rows_ND for first, _ in pieces.bounds() for item in pieces.read(first)]
    wanted = [[[number, 2 * number, 100]] for number in range(10)]
    assert [rows is not None and rows.tolist() for rows in found] == wanted


def test_several_rows_an_input(tmp_path: Path, pictures: list[Medium]) -> None:
    pieces = run(tmp_path, pictures, Mean(rows=2))
    rows = pieces.read(0)[3].rows_ND
    assert rows is not None and rows.tolist() == [[3, 6, 100], [4, 7, 101]]


def test_batches_are_halved_until_they_fit(tmp_path: Path, pictures: list[Medium]) -> None:
    model = Mean(most=3)
    pieces = run(tmp_path, pictures, model, size=10, batch=None)
    assert model.sizes == [2] * 5
    assert [item.rows_ND is not None for item in pieces.read(0)] == [True] * 10
    forward = BatchEncoder(Mean(most=3), Resources(CPU))
    inputs = [torch.full((3, 4, 4), float(number)) for number in range(10)]
    assert [int(value) for part in forward(inputs) for value in part[:, 0, 0]] == list(range(10)) and forward.size == 2


def test_memory_that_does_not_suffice_is_said(tmp_path: Path) -> None:
    inputs = [torch.zeros(3, 4, 4)] * 4
    with pytest.raises(ResourceError, match=r"\b4\b") as caught:
        BatchEncoder(Mean(most=3), Resources(CPU, 4))(inputs)
    assert caught.value.hint == "--batch-size auto"
    with pytest.raises(ResourceError, match=r"\b1\b"):
        BatchEncoder(Mean(most=0), Resources(CPU))(inputs)


def test_numbers_that_cannot_be_stored_fail_an_item(tmp_path: Path, pictures: list[Medium]) -> None:
    class Wild(Mean):
        def encode(self, batch: torch.Tensor) -> torch.Tensor:
            found = super().encode(batch)
            found[found[:, 0] == 3] = torch.nan
            found[found[:, 0] == 5] = 70_000
            return found

    pieces = run(tmp_path, pictures, Wild())
    items = pieces.read(0) + pieces.read(6)
    assert [at for at, item in enumerate(items) if item.rows_ND is None] == [3, 5]
    assert str(items[3].error).startswith("NotFinite: ")


def test_a_video_that_is_called_a_picture_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.webm").write_bytes(b"no picture")
    (tmp_path / "a.png").write_bytes(b"no picture")
    reader = MediaReader(tmp_path, Mean())
    with pytest.raises(MediaError, match=r"a\.webm"):
        list(reader.read(Medium("image", "a.webm")))
    with pytest.raises(MediaError, match=r"UnidentifiedImageError: a\.png"):
        list(reader.read(Medium("image", "a.png")))


def test_what_an_encoder_raises_is_no_fault_of_an_item(tmp_path: Path, pictures: list[Medium]) -> None:
    class Broken(Mean):
        def encode(self, batch: torch.Tensor) -> torch.Tensor:
            raise ZeroDivisionError

    before = threading.active_count()  # other tests may have left some
    with pytest.raises(ZeroDivisionError):
        run(tmp_path, pictures, Broken())
    assert threading.active_count() <= before, "no thread is left behind"


def test_parts_come_in_order_and_few_wait(tmp_path: Path) -> None:
    dice = np.random.default_rng(0)
    lengths = dice.integers(0, 9, 60).tolist()
    lock, state = threading.Lock(), {"made": 0, "taken": 0, "most": 0}

    def parts(length: int) -> Iterator[int]:
        for at in range(length):
            time.sleep(0.0003 * (length % 3))
            with lock:
                state["made"] += 1
                state["most"] = max(state["most"], state["made"] - state["taken"])
            yield at
        if length == 7:
            raise ValueError("seven")

    found: dict[int, list[int]] = {}
    ends: dict[int, End[object]] = {}
    ahead: Prefetch[int, int] = Prefetch(lengths, parts, workers=4, most=10)
    for number, part in ahead:
        if isinstance(part, End):
            ends[number] = part
            continue
        found.setdefault(number, []).append(part)
        state["taken"] += 1
    assert list(ends) == list(range(60))
    assert [found.get(number, []) for number in range(60)] == [list(range(length)) for length in lengths]
    assert [isinstance(end.error, ValueError) for end in ends.values()] == [length == 7 for length in lengths]
    assert state["most"] <= 10 + 4 + 10, "those that wait, one in the hands of each thread, and those taken together"


def test_nobody_waits_for_a_taker_that_has_left() -> None:
    def parts(task: int) -> Iterator[int]:
        yield from range(100)

    before = threading.active_count()
    taken = iter(Prefetch(list(range(50)), parts, workers=4, most=3))
    assert next(taken)[1] == 0
    taken.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


class Long:
    """Stands for the decoder of videos: `media` is the number of frames, and nothing lies on the disk."""

    def __init__(self, rows: int) -> None:
        self.model = Mean(rows=rows)
        self.model.dim = 256

    def read(self, medium: Medium) -> Iterator[torch.Tensor]:
        for number in range(int(str(medium.media))):
            yield torch.full((256, 1, 1), float(number % 7))


@pytest.mark.parametrize("pooled", [False, True])
def test_long_videos_take_no_more_memory_than_short_ones(pooled: bool, tmp_path: Path) -> None:
    """512 rows of 256 numbers a frame: of 160 frames 40 MB as halves, 80 MB as floats."""
    most = []
    for frames in (10, 160):
        place = tmp_path / str(frames)
        pieces = Pieces(place, tmp_path / "mine", ["a", "b"], 2)
        place.mkdir()
        media = [Medium("video", str(frames)), Medium("video", str(frames + 1))]
        tracemalloc.start()
        told = encode(pieces, pieces.todo(), media, Long(512), Resources(CPU, 2, 1), pooled=pooled)  # type: ignore[arg-type]
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert told == [None, None]
        rows = [item.rows_ND for item in pieces.read(0)]
        assert [len(each) for each in rows if each is not None] == (
            [1, 1] if pooled else [frames * 512, (frames + 1) * 512]
        )
    assert most[1] < 2 * most[0], "the rows of 150 frames more are not there at once"


def test_means_do_not_depend_on_batches(tmp_path: Path, pictures: list[Medium]) -> None:
    found = []
    for batch in (1, 7):
        pieces = Pieces(tmp_path / str(batch), tmp_path / "mine", ["a"], 1)
        pieces.folder.mkdir()
        encode(pieces, [(0, 1)], [Medium("video", "100")], Long(3), Resources(CPU, batch, 2), pooled=True)  # type: ignore[arg-type]
        rows = pieces.read(0)[0].rows_ND
        assert rows is not None
        found.append(rows.tolist())
    mean = np.float16(np.mean([number % 7 for number in range(100)]) + 1)
    assert found[0] == found[1] == [[mean] * 256]


def test_only_so_many_tasks_are_under_way() -> None:
    begun = []

    def parts(task: int) -> Iterator[int]:
        begun.append(task)
        yield task

    taken: list[tuple[int, int | End[object]]] = []
    for number, part in Prefetch(range(1000), parts, workers=2, most=5):
        taken.append((number, part))
        assert len(begun) <= number + 5
    assert [part for _, part in taken if not isinstance(part, End)] == list(range(1000))


def test_a_file_that_gives_nothing_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "PATIENCE", 0.05)
    released = threading.Event()

    def parts(task: int) -> Iterator[int]:
        if task == 1:
            released.wait(30)
        yield task

    taken = iter(Prefetch([0, 1], parts, workers=2, most=3))
    assert next(taken) == (0, 0)
    taken.close()  # type: ignore[attr-defined]
    assert not released.is_set(), "the thread hangs still"
    hanging = [thread for thread in threading.enumerate() if "_work" in thread.name]
    released.set()
    for thread in hanging:
        thread.join()
    assert len(hanging) == 1
