"""Measure items per second of `ccr extract` against the encoder's forward pass and a loop over single items.

Each variant runs in its own process, on the same files, encoder, device and precision, and they take turns:

- `forward`: the encoder on a prepared batch, repeatedly. No extraction can be faster.
- `ccr`: the stage, from files to the finished artifact, without loading the weights.
- `loop`: the simple script: open, prepare and encode one picture after the other; for a video, decode all frames, then
  encode its clips one by one.
- `decode`: reading and preparing only. If the encoder needs the processors too, `ccr` cannot reach `forward`: `bound`
  is what is left for both, 1 / (1 / forward + 1 / decode on all processors).

Items are photographs of a folder (`--pictures`), else generated ones of 640 x 480; videos are generated. Weights of
`vision` (ViT-B/16), CLIP (ViT-B/32), VideoMAE (base) and I3D are random, so nothing is downloaded: only their speed
means anything. Ratios are taken within a round. `cpu` is processor seconds per item, which hardly depend on other load.

    python benchmarks/extract.py --pictures FOLDER --out benchmarks/results/extract.json
    python benchmarks/extract.py --device cuda --dtype float16 --compile --out benchmarks/results/extract-cuda.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ccr_cli import registry
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.tsv import write_tsv_line
from ccr_cli.encoders.base import DTYPES
from ccr_cli.stages.data.folder import import_folder
from ccr_cli.stages.extract.encoding import BatchEncoder, Resources
from ccr_cli.stages.extract.options import ExtractOptions
from ccr_cli.stages.extract.stage import extract
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.media import MediaReader, Medium
from ccr_cli.stages.shared.options import configure

VARIANTS = ("forward", "ccr", "loop", "decode")
SUBJECTS = {"efficientnet-lite0": "image", "vision": "image", "clip": "image", "i3d": "video", "video": "video"}
FRAMES, SECONDS = 25, 8
"""Of the generated videos: frames a second, and how long they are."""


def make_media(folder: Path, kind: str, count: int, pictures: Path | None) -> list[str]:
    """Puts pictures or videos into a folder; returns their names."""
    folder.mkdir(parents=True)
    if kind == "video":
        make_videos(folder, count)
    elif pictures is not None:
        for source in sorted(pictures.glob("*.jpg"))[:count]:
            shutil.copyfile(source, folder / source.name)
    else:
        dice = np.random.default_rng(0)
        for number in range(count):
            coarse = Image.fromarray(dice.integers(0, 256, (15, 20, 3), dtype=np.uint8))
            coarse.resize((640, 480), Image.Resampling.BICUBIC).save(folder / f"{number:05d}.jpg", quality=90)
    return sorted(path.name for path in folder.iterdir())


def make_videos(folder: Path, count: int) -> None:
    """Makes videos of 320 x 240, H.264: zooms into the Mandelbrot set."""
    import av

    for number in range(count):
        picture = f"mandelbrot=size=320x240:rate={FRAMES}:start_scale={1 + number / 10}"
        with av.open(picture, format="lavfi") as source, av.open(str(folder / f"{number:05d}.mp4"), "w") as out:
            stream = out.add_stream("libx264", rate=FRAMES, width=320, height=240, pix_fmt="yuv420p")
            for frame in islice(source.decode(video=0), FRAMES * SECONDS):
                out.mux(stream.encode(frame.reformat(format="yuv420p")))
            out.mux(stream.encode(None))


def make_data(place: Path, subject: str, count: int, pictures: Path | None) -> None:
    """Writes the media, the weights, and a data set in the folder format."""
    kind = SUBJECTS[subject]
    names = make_media(place / "data" / "media", kind, count, pictures)
    (place / "data" / "manifest.toml").write_text(f'name = "{subject}"\nsource_lang = "en"\n', encoding="utf-8")
    tables = {
        "items": [("item_id", "split", "kind", "media", "label", "group")]
        + [(name, "test", kind, name, "", "") for name in names],
        "captions": [("caption_id", "item_id", "lang", "k", "text", "caption_set")]
        + [(f"{name}-en", name, "en", "0", name, "") for name in names],
    }
    for table, rows in tables.items():
        text = "".join(write_tsv_line(row) for row in rows)
        (place / "data" / f"{table}.tsv").write_text(text, encoding="utf-8", newline="")
    make_weights(place / "weights", subject)


def make_weights(place: Path, subject: str) -> None:
    """Saves a network of the published size with random weights, where no package brings one."""
    torch.manual_seed(0)
    if subject == "clip":
        import transformers

        transformers.CLIPModel(transformers.CLIPConfig()).save_pretrained(place)
        transformers.CLIPImageProcessorPil().save_pretrained(place)
    elif subject == "vision":
        import transformers

        transformers.ViTModel(transformers.ViTConfig()).save_pretrained(place)
        transformers.ViTImageProcessorPil().save_pretrained(place)
    elif subject == "video":
        import transformers

        transformers.VideoMAEModel(transformers.VideoMAEConfig()).save_pretrained(place)
        settings = {"image_processor_type": "VideoMAEImageProcessor", "size": {"shortest_edge": 224}}
        settings |= {"crop_size": {"height": 224, "width": 224}}
        (place / "preprocessor_config.json").write_text(json.dumps(settings), encoding="utf-8")
    elif subject == "i3d":
        from ccr_cli.nets.inception_i3d import InceptionI3d

        place.mkdir()
        torch.save(InceptionI3d(400).state_dict(), place / "rgb.pt")


def options_of(place: Path, subject: str) -> dict[str, str]:
    """The encoder's options."""
    if subject == "i3d":
        return {"weights": str(place / "weights" / "rgb.pt")}
    return {} if subject == "efficientnet-lite0" else {"model": str(place / "weights")}


class Job:
    """One variant, measured in this process.

    Args:
        place: What `make_data` wrote.
        subject: The encoder.
        arguments: Of the command.
    """

    def __init__(self, place: Path, subject: str, arguments: argparse.Namespace) -> None:
        self.place, self.subject, self.arguments = place, subject, arguments
        self.device = torch.device(arguments.device)
        self.names = sorted(path.name for path in (place / "data" / "media").iterdir())
        self.inputs = 0
        """Pictures or clips that were encoded."""

    def encoder(self) -> Any:
        """The encoder, loaded."""
        module = registry.load("encoders", self.subject)
        config = configure(module.Config, options_of(self.place, self.subject), "the benchmark")
        model = module.Encoder(config, self.device, DTYPES[self.arguments.dtype])
        if self.arguments.compile:
            model.compile()
        return model

    def prepared(self, model: Any, names: list[str]) -> Iterator[Tensor]:
        """The inputs of some files, one after the other."""
        reader = MediaReader((self.place / "data" / "media").resolve(), model)
        for name in names:
            yield from reader.read(Medium(SUBJECTS[self.subject], name))

    def forward(self) -> Callable[[], None]:
        """The encoder alone."""
        model = self.encoder()
        size = BatchEncoder(model, Resources(self.device)).size
        some: list[Tensor] = []
        for each in self.prepared(model, self.names):
            some.append(each)
            if len(some) == size:
                break
        batch = torch.stack(some).to(self.device)
        model.encode(batch)
        count = -(-len(self.names) // len(some)) if SUBJECTS[self.subject] == "image" else 2

        def run() -> None:
            for _ in range(count):
                model.encode(batch).cpu()
            self.inputs = count * len(batch)

        return run

    def ccr(self) -> Callable[[], None]:
        """The stage; what it takes to load the encoder is told apart by loading it once more."""
        data = import_folder(Workspace(self.place / "workspace"), str(self.place / "data"))
        a = self.arguments
        options = ExtractOptions(
            self.subject,
            options_of(self.place, self.subject),
            device=a.device,
            dtype=a.dtype,
            compiled=a.compile,
            name=f"timed-{os.getpid()}",
        )

        def run() -> None:
            made = extract(Inputs(Workspace(self.place / "workspace"), [data]), options)
            assert made is not None
            self.inputs = int(made.counts["rows"])

        return run

    def loop(self) -> Callable[[], None]:
        """One item after the other, in batches of one."""
        model = self.encoder()
        for each in self.prepared(model, self.names[:1]):
            model.encode(each[None])

        def run() -> None:
            vectors = []
            for name in self.names:
                vectors += [model.encode(each[None]).cpu().numpy() for each in self.one(model, name)]
            np.save(self.place / "loop.npy", np.concatenate(vectors).astype(np.float16))
            self.inputs = len(vectors)

        return run

    def one(self, model: Any, name: str) -> list[Tensor]:
        """A file's inputs, as they are made by hand: of a video all frames are decoded before some are taken."""
        path = self.place / "data" / "media" / name
        if SUBJECTS[self.subject] == "image":
            with Image.open(path) as image:
                return [model.preprocess(image)]
        import av

        with av.open(str(path)) as container:
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        shown_F = np.arange(len(frames)) / FRAMES
        number_CL = np.searchsorted(shown_F, model.sampling.clips(len(frames) / FRAMES, shown_F), side="right") - 1
        ready = {at: model.preprocess(Image.fromarray(frames[at])) for at in np.unique(number_CL.clip(0))}
        return [torch.stack([ready[at] for at in clip]) for clip in number_CL.clip(0)]

    def decode(self) -> Callable[[], None]:
        """Reading and preparing alone."""
        model = self.encoder()
        torch.set_num_threads(1)

        def run() -> None:
            self.inputs = sum(1 for _ in self.prepared(model, self.names))

        return run

    def measure(self, variant: str) -> dict[str, float]:
        """Runs a variant once.

        Returns:
            Inputs a second, processor seconds an input, and the most memory (MB) that the process took.
        """
        load = 0.0, 0.0
        if variant == "ccr":
            self.encoder()  # what is imported by the way
            start = time.perf_counter(), time.process_time()
            self.encoder()
            load = time.perf_counter() - start[0], time.process_time() - start[1]
        run: Callable[[], None] = getattr(self, variant)()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter(), time.process_time()
        run()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        wall, cpu = time.perf_counter() - start[0] - load[0], time.process_time() - start[1] - load[1]
        figures = {
            "rate": self.inputs / wall,
            "cpu": cpu / self.inputs,
            "memory": peak_memory(),
        }
        if self.device.type == "cuda":
            figures["gpu_memory"] = torch.cuda.max_memory_allocated() / 2**20
        return figures


def peak_memory() -> float:
    """The most memory that this process has held, MB (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def spread(values: list[float], digits: int = 2) -> dict[str, float]:
    """Median, least and most."""
    rounded = [round(each, digits) for each in (statistics.median(values), min(values), max(values))]
    return dict(zip(("median", "min", "max"), rounded, strict=True))


def summarise(rounds: list[dict[str, dict[str, float]]], on_cpu: bool) -> dict[str, Any]:
    """Ratios within the rounds, and what each variant took."""
    processors = len(os.sched_getaffinity(0))

    def bound(rates: dict[str, dict[str, float]]) -> float:
        return 1 / (1 / rates["forward"]["rate"] + 1 / (rates["decode"]["rate"] * processors))

    figures: dict[str, Any] = {
        "share_of_forward": spread([r["ccr"]["rate"] / r["forward"]["rate"] for r in rounds]),
        "times_the_loop": spread([r["ccr"]["rate"] / r["loop"]["rate"] for r in rounds]),
    }
    if on_cpu:
        figures["share_of_bound"] = spread([r["ccr"]["rate"] / bound(r) for r in rounds])
        cost = [(r["forward"]["cpu"] + r["decode"]["cpu"]) / r["ccr"]["cpu"] for r in rounds]
        figures["share_of_bound_by_cpu"] = spread(cost)
    for variant in VARIANTS:
        keys = rounds[0][variant]
        figures[variant] = {key: spread([r[variant][key] for r in rounds], 4 if key == "cpu" else 1) for key in keys}
    return figures


def in_a_process(arguments: argparse.Namespace, place: Path, subject: str, variant: str) -> dict[str, float]:
    """Measures one variant in a process of its own."""
    options = [*("--device", arguments.device), *("--dtype", arguments.dtype), *(["--compile"] * arguments.compile)]
    command = [sys.executable, __file__, *options, "--measure", variant, "--subjects", subject, "--place", str(place)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def compare(arguments: argparse.Namespace, subject: str) -> dict[str, Any]:
    """Measures all variants of a subject, in turns."""
    count = arguments.videos if SUBJECTS[subject] == "video" else arguments.count
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_data(place, subject, count, arguments.pictures)
        files = len(list((place / "data" / "media").iterdir()))
        rounds = []
        for _ in range(arguments.rounds):
            rounds.append({v: in_a_process(arguments, place, subject, v) for v in VARIANTS})
            print(subject, json.dumps(rounds[-1]), file=sys.stderr)
    return {"files": files, **summarise(rounds, arguments.device == "cpu")}


def main() -> None:
    """Prints the figures, and writes them with --out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--subjects", nargs="+", choices=list(SUBJECTS), default=list(SUBJECTS))
    parser.add_argument("--pictures", type=Path, help="folder of .jpg; else they are generated")
    parser.add_argument("--count", type=int, default=1000, help="pictures")
    parser.add_argument("--videos", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", type=Path, help="file for the figures")
    parser.add_argument("--measure", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(Job(arguments.place, arguments.subjects[0], arguments).measure(arguments.measure)))
        return
    figures = {subject: compare(arguments, subject) for subject in arguments.subjects}
    about = {
        "pictures": "photographs" if arguments.pictures else "generated, 640 x 480",
        "videos": f"generated, 320 x 240, {SECONDS} s of {FRAMES} frames",
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "dtype": arguments.dtype,
        "compile": arguments.compile,
        "rounds": arguments.rounds,
        "torch": torch.__version__,
    }
    text = json.dumps({**about, "found": figures}, indent=1) + "\n"
    print(text, end="")
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
