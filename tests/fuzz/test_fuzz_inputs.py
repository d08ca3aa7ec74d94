"""Malformed files that a user hands to a command: features, captions, lists, dictionaries, scores, pictures."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import shutil
import signal
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import openpyxl
import pytest
import scipy.io
import toy
from mutate import mutated
from rows import frames_of, in_npz, item_ids
from toy import Chain

from ccr_cli.data.formats.excel import SMALL_WORKBOOK, sheet_rows
from ccr_cli.errors import ArtifactError

FRESH = "fresh"
Call = tuple[str | Path, ...]


class Attack:
    """Valid files, each with the command that reads it."""

    def __init__(self, chain: Chain, place: Path) -> None:
        self.root, self.place = chain.root, place
        self.calls: list[tuple[Path, Call]] = []
        """What is mutated, and the command."""
        place.mkdir()
        for make in (self._features, self._captions, self._tables, self._pictures):
            make(chain)
        self.files = {path.relative_to(place): path.read_bytes() for path in place.rglob("*") if path.is_file()}
        self.around = self._outside()

    def _outside(self) -> set[Path]:
        """Every file and folder near the workspace, but in it and in the caches."""
        return {path for path in self.root.parent.rglob("*") if not path.is_relative_to(self.root)}

    def _add(self, name: str, call: Call) -> None:
        self.calls.append((self.place / name, call))

    def _features(self, chain: Chain) -> None:
        place, ids = self.place, item_ids(chain)
        import h5py

        rows = frames_of(ids, 8)
        first = np.stack([value[0] for value in rows.values()])
        (place / "ids.txt").write_text("\n".join(ids))
        np.save(place / "rows.npy", first)
        scipy.io.savemat(place / "rows.mat", {"feats": first, "other": np.ones((2, 3))})
        in_npz(place / "rows", rows)
        np.savez_compressed(place / "packed.npz", **rows)  # type: ignore[arg-type]
        with h5py.File(place / "rows.h5", "w") as file:
            for name, value in rows.items():
                file.create_dataset(name, data=value, compression="gzip" if name < "c" else None)
        (place / "folder").mkdir()
        for name, value in rows.items():
            np.save(place / "folder" / f"{name}.npy", value)
        (place / "bigfile").mkdir()
        first.astype("<f4").tofile(place / "bigfile" / "feature.bin")
        (place / "bigfile" / "shape.txt").write_text("48 8")
        (place / "bigfile" / "id.txt").write_text(" ".join(ids))
        (place / "bigfile" / "video2frames.txt").write_text(str({name: [name] for name in ids}))
        shutil.copy(place / "rows.npz", place / "rows.pt")
        extract = ("extract", "toy", "--name", FRESH, "--from")
        for name in ("rows.npz", "packed.npz", "rows.h5", "rows.pt"):
            self._add(name, (*extract, place / name))
        for name in ("rows.npy", "rows.mat", "ids.txt"):
            source = place / ("rows.npy" if name == "ids.txt" else name)
            self._add(name, (*extract, source, "--ids", place / "ids.txt"))
        self._add(f"folder/{ids[0]}.npy", (*extract, place / "folder"))
        for name in ("feature.bin", "shape.txt", "id.txt", "video2frames.txt"):
            self._add(f"bigfile/{name}", (*extract, place / "bigfile"))

    def _captions(self, chain: Chain) -> None:
        place = self.place
        texts = [(f"{i}.jpg", "train" if i % 3 else "test", f"a dog, {i}") for i in range(9)]
        lists = {split: [item for item, s, _ in texts if s == split] for split in ("train", "test")}
        table = [("item_id", "media", "split", "lang", "text"), *((i, i, s, "en", t) for i, s, t in texts)]
        for name, sign in (("own.csv", ","), ("own.tsv", "\t")):
            (place / name).write_text("\n".join(sign.join(f'"{v}"' for v in row) for row in table))
        (place / "own.tsv.gz").write_bytes(gzip.compress((place / "own.tsv").read_bytes()))
        book = openpyxl.Workbook()
        for cells in table:
            book.active.append(cells)
        book.save(place / "own.xlsx")
        import pandas as pd

        pd.DataFrame(table[1:], columns=table[0]).to_parquet(place / "own.parquet")
        rows = [dict(zip(table[0], row, strict=True)) for row in table[1:]]
        (place / "own.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
        karpathy = [{"filename": i, "split": s, "sentences": [{"raw": t, "sentid": 0}]} for i, s, t in texts]
        coco = [{"id": n, "image_id": n, "caption": t} for n, (_, _, t) in enumerate(texts)]
        vatex = [
            {"videoID": f"-xGskbsBgI0_00005{n}_000065", "enCap": [t], "chCap": ["狗"]}
            for n, (_, _, t) in enumerate(texts)
        ]
        for name, value in (("karpathy", {"images": karpathy}), ("coco", {"annotations": coco}), ("vatex", vatex)):
            (place / f"{name}.json").write_text(json.dumps(value))
        for split, ids in lists.items():
            (place / f"{split}.txt").write_text("\n".join(ids))
        (place / "en.caption.txt").write_text("\n".join(f"{i}#0 {t}" for i, _, t in texts))
        (place / "all.txt").write_text("\n".join(i for i, _, _ in texts))
        (place / "all.en.txt").write_text("\n".join(t for *_, t in texts) + "\n")
        parts = {
            "X1": np.random.default_rng(0).normal(size=(6, 12)),
            "X2": np.ones((4, 12)),
            "Y": np.eye(3)[np.arange(12) % 3].T,
        }
        order = np.arange(12) + 1
        scipy.io.savemat(
            place / "svcl.mat", {"data": parts | {"split": {"ind_train": order[:8], "ind_test": order[8:]}}}
        )
        formats = Path(__file__).parents[1] / "fixtures" / "formats"
        importing = ("data", "import", "--name", FRESH)
        listed = ("--split", f"train={place / 'train.txt'}", "--split", f"test={place / 'test.txt'}")
        for name in ("own.csv", "own.tsv", "own.tsv.gz", "own.xlsx", "own.parquet", "own.jsonl", "svcl.mat"):
            self._add(name, (*importing, place / name))
        for name, form in (
            ("own.csv", "captions-csv"),
            ("own.jsonl", "jsonl"),
            ("own.parquet", "parquet"),
            ("own.xlsx", "excel"),
        ):
            self._add(name, (*importing, "--format", form, place / name))
        self._add("karpathy.json", (*importing, "--format", "karpathy", place / "karpathy.json"))
        self._add("karpathy.json", (*importing, place / "karpathy.json"))
        self._add("coco.json", (*importing, "--format", "coco", f"train.en={place / 'coco.json'}"))
        self._add("vatex.json", (*importing, "--format", "vatex", f"train={place / 'vatex.json'}"))
        self._add("en.caption.txt", (*importing, "--format", "hashtag", f"en={place / 'en.caption.txt'}", *listed))
        self._add("train.txt", (*importing, "--format", "hashtag", f"en={place / 'en.caption.txt'}", *listed))
        parallel = ("--format", "parallel", place / "all.en.txt", "--lang", "en", "--ids", place / "all.txt", *listed)
        self._add("all.en.txt", (*importing, *parallel))
        self._add("all.txt", (*importing, *parallel))
        pictures = [(name, (chain.folder / "media" / f"{name}.png").read_bytes()) for name in item_ids(chain)[:12]]
        images = [{"bytes": content, "path": f"{name}.png"} for name, content in pictures]
        pd.DataFrame({"image": images, "text": [[name, f"one {name}"] for name, _ in pictures]}).to_parquet(
            place / f"{FRESH}.parquet"
        )
        with tarfile.open(place / f"{FRESH}.tar", "w") as archive:
            for number, (name, content) in enumerate(pictures):
                text = json.dumps({"text": name, "split": "test"}) if number % 2 else name
                for ending, part in (("png", content), ("json" if number % 2 else "txt", text.encode())):
                    info = tarfile.TarInfo(f"a/{name}.{ending}")
                    info.size = len(part)
                    archive.addfile(info, io.BytesIO(part))
        for _ in range(2):
            self._add(f"{FRESH}.parquet", (*importing, place / f"{FRESH}.parquet"))
            self._add(f"{FRESH}.tar", (*importing, f"wds:{place / f'{FRESH}.tar'}"))
        for source, form in (
            ("train_val_videodatainfo.json", "msrvtt"),
            ("activitynet_val_1.json", "activitynet"),
            ("didemo_test_data.json", "didemo"),
        ):
            shutil.copy(formats / source, place / source)
            self._add(source, (*importing, "--format", form, f"train={place / source}"))
        shutil.copytree(chain.folder, place / "toy")
        for name in (
            "manifest.toml",
            "items.tsv",
            "captions.tsv",
            "translations/hand-en-es.tsv",
            "media/red-circle.png",
        ):
            for _ in range(2):
                self._add(f"toy/{name}", (*importing, place / "toy"))

    def _tables(self, chain: Chain) -> None:
        import pandas as pd

        place, run, made = self.place, "toy-es-infonce", ("--name", FRESH, "--device", "cpu")
        words = {**toy.COLOURS, **toy.SHAPES}
        pairs = [f"<e><p><l>{a}</l><r>{b}</r></p></e>" for a, b in words.items()]
        entries = [
            f"<entry><form><orth>{a}</orth></form><sense><cit type='trans'><quote>{b}</quote></cit></sense></entry>"
            for a, b in words.items()
        ]
        (place / "words.tsv").write_text("\n".join(f"{a}\t{b}" for a, b in words.items()))
        (place / "words.tsv.gz").write_bytes(gzip.compress((place / "words.tsv").read_bytes()))
        (place / "dix.xml").write_text(f"<dictionary><section>{''.join(pairs)}</section></dictionary>")
        (place / "tei.xml").write_text(f"<TEI><text><body>{''.join(entries)}</body></text></TEI>")
        translated = chain.find("translation").path
        lexical = ("diagnose", translated, "--judge", "lexical", *made[:2], "--set")
        for name in ("words.tsv", "words.tsv.gz", "dix.xml", "tei.xml"):
            self._add(name, (*lexical, f"dictionary={place / name}"))
        sentences = [(f"here is one {a}", f"aquí hay un {b}") for a, b in words.items()] * 2
        (place / "pairs.tsv").write_text("\n".join(f"{a}\t{b}" for a, b in sentences))
        units = [f"<tu><tuv><seg>{a}</seg></tuv><tuv><seg>{b}</seg></tuv></tu>" for a, b in sentences]
        (place / "pairs.tmx").write_text(f'<?xml version="1.0"?><tmx><body>{"".join(units)}</body></tmx>')
        for name in ("pairs.tsv", "pairs.tmx"):
            self._add(name, (*lexical, f"parallel={place / name}"))
        article, index = "", ""
        digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        for a, b in words.items():
            text = f"{a}\n  {b}\n"
            high, low = divmod(len(article.encode()), 64)
            index += f"{a}\t{digits[high]}{digits[low]}\t{digits[len(text.encode())]}\n"
            article += text
        (place / "d.index").write_text(index)
        (place / "d.dict").write_text(article)
        (place / "z.index").write_text(index)
        (place / "z.dict.dz").write_bytes(gzip.compress(article.encode()))
        for name in ("d.index", "d.dict", "z.dict.dz"):
            self._add(name, (*lexical, f"dictionary={place / name}"))
        exported = place / "pairs.csv"
        toy.ok(
            "diagnose",
            chain.find("run", "infonce").path,
            "--judge",
            "gmm",
            "--export",
            exported,
            *made,
            workspace=chain.root,
        )
        frame = pd.read_csv(exported)
        frame.to_parquet(place / "pairs.parquet")
        frame.to_excel(place / "pairs.xlsx", index=False)
        shutil.copy(exported, place / "list.csv")
        shutil.rmtree(chain.root / "diagnoses" / FRESH)
        frame["caption_id"], frame["score"] = frame["slot_id"], np.arange(len(frame)) / 7
        scored = frame[["caption_id", "score"]]
        scored.to_csv(place / "scores.csv", index=False)
        scored.to_parquet(place / "scores.parquet")
        scored.to_json(place / "scores.jsonl", orient="records", lines=True)
        (place / "bare.txt").write_text("\n".join(map(str, frame["score"])))
        for name in ("scores.csv", "scores.parquet", "scores.jsonl", "bare.txt"):
            self._add(name, ("diagnose", run, "--judge", "scores", "--set", f"scores={place / name}", *made))
        train = ("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, "--name", FRESH)
        for name in ("pairs.csv", "pairs.parquet", "pairs.xlsx"):
            self._add(name, (*train, "--pairs", place / name))
        self._add(
            "list.csv", ("translate", translated, "--only", place / "list.csv", "--engine", "recorded", "--name", FRESH)
        )
        recorded = [{"source": a, "target": b} for a, b in toy.toy().tables["en-es"].items()]
        (place / "table.tsv").write_text(
            "\n".join(["source\ttarget", *(f"{r['source']}\t{r['target']}" for r in recorded)])
        )
        (place / "table.jsonl").write_text("\n".join(map(json.dumps, recorded)) + "\n")
        for name in ("table.tsv", "table.jsonl"):
            self._add(
                name,
                (
                    "translate",
                    "toy",
                    "--lang",
                    "es",
                    "--engine",
                    "recorded",
                    "--set",
                    f"table={place / name}",
                    "--name",
                    FRESH,
                ),
            )
        (place / "queries.txt").write_text("rojo\nun círculo\n")
        self._add("queries.txt", ("search", run, "--queries", place / "queries.txt"))

    def _pictures(self, chain: Chain) -> None:
        place = self.place
        picture = toy.draw("red-circle")
        for kind in ("png", "jpeg", "gif", "bmp", "webp", "tiff"):
            picture.save(place / f"picture.{kind}")
            self._add(
                f"picture.{kind}", ("search", "toy-es-infonce", "--image", place / f"picture.{kind}", "--device", "cpu")
            )
        shutil.copytree(chain.folder / "media", place / "media")
        self._add(
            "media/red-circle.png",
            ("extract", "toy", "--name", FRESH, *toy.ENCODER, "--media-root", place / "media", "--max-failed", "1"),
        )

    def run(self, number: int) -> int:
        """Mutates the file of one call; the exit code. Any exception but a user's error is raised."""
        rng = random.Random(number)
        path, call = rng.choice(self.calls)
        return self.attempt(path, call, mutated(path.name, self.files[path.relative_to(self.place)], rng), number)

    def attempt(self, path: Path, call: Call, content: bytes | None, number: int = 0) -> int:
        """Runs a command on another content of its file, or on a pipe; the exit code."""
        name = path.relative_to(self.place)
        if content is None:
            path.unlink()
            os.mkfifo(path)
        else:
            path.write_bytes(content)
        try:
            done = toy.ccr(*call, workspace=self.root)
            assert done.code in (0, 3) or (done.code in (1, 2, 4, 6) and "error: " in done.err), done
            assert self._outside() == self.around, "written outside of the workspace"
        except BaseException as error:
            error.add_note(f"input {number}: {name}: {' '.join(map(str, call))}")
            raise
        finally:
            path.unlink()
            path.write_bytes(self.files[name])
            for folder in (*self.root.glob(f"*/{FRESH}*"), *self.root.glob(f"*/*/{FRESH}*")):
                shutil.rmtree(folder) if folder.is_dir() else folder.unlink(missing_ok=True)
        return done.code


@pytest.fixture(scope="module")
def inputs(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> Attack:
    """Files for every command that takes some."""
    place = tmp_path_factory.mktemp("inputs")
    shutil.copytree(chain.root, place / "workspace")
    return Attack(Chain(chain.folder, place / "workspace"), place / "files")


@pytest.mark.parametrize("change", ["no sheet", "content types", "compression"])
def test_a_damaged_workbook(change: str, tmp_path: Path) -> None:
    path, book = tmp_path / "own.xlsx", openpyxl.Workbook()
    book.active.append(("item_id", "text"))
    if change == "no sheet":
        book.create_chartsheet()
        book.remove(book.worksheets[0])
    book.save(path)
    content = path.read_bytes()
    if change == "content types":
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "new.xlsx", "w") as new:
            for name in old.namelist():
                new.writestr(name, old.read(name).replace(b"<Override PartName=", b"<Override Part="))
        shutil.move(tmp_path / "new.xlsx", path)
    elif change == "compression":
        with zipfile.ZipFile(path) as old:
            start = old.getinfo("docProps/core.xml").header_offset + 30 + len("docProps/core.xml")
        path.write_bytes(content[:start] + b"\xff" * 20 + content[start + 20 :])
    with pytest.raises(ArtifactError, match=r"own\.xlsx"):
        list(sheet_rows(path))


def test_a_small_workbook_that_unpacks_to_much(tmp_path: Path) -> None:
    path, book = tmp_path / "own.xlsx", openpyxl.Workbook()
    book.active.append(("item_id", "text"))
    book.save(path)
    assert len(list(sheet_rows(path))) == 1
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/unread.xml", bytes(SMALL_WORKBOOK))
    with pytest.raises(ArtifactError) as refusal:
        list(sheet_rows(path))
    assert "CSV" in str(refusal.value.hint)


def test_json_that_is_nested_too_deeply(inputs: Attack) -> None:
    calls = {path.name: call for path, call in inputs.calls if path.suffix in (".json", ".jsonl")}
    assert calls.keys() >= {"scores.jsonl", "table.jsonl", "own.jsonl", "coco.json"}
    for name, call in calls.items():
        path = inputs.place / name
        content = inputs.files[Path(name)]
        assert inputs.attempt(path, call, content[: content.find(b"\n") + 1] + b"[" * 100_000) in (2, 4), name


def test_a_pipe_in_place_of_a_file(inputs: Attack) -> None:
    """Who opens it waits for ever."""
    names = {
        "manifest.toml",
        "items.tsv",
        "own.csv",
        "coco.json",
        "rows.npy",
        "ids.txt",
        "rows.h5",
        "shape.txt",
        "own.xlsx",
        "own.parquet",
    }
    names |= {"pairs.csv", "scores.csv", "table.jsonl", "words.tsv"}
    calls = {path.name: (path, call) for path, call in inputs.calls if path.name in names}
    assert calls.keys() == names
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for path, call in calls.values():
            signal.alarm(60)
            assert inputs.attempt(path, call, None) in (2, 4), path
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_a_few_malformed_inputs(inputs: Attack) -> None:
    assert {4} <= {inputs.run(number) for number in range(40)}


@pytest.mark.slow
def test_malformed_inputs(inputs: Attack) -> None:
    codes = [inputs.run(2000 + number) for number in range(400)]
    assert sum(code == 4 for code in codes) > 100


@pytest.mark.soak
def test_many_malformed_inputs(inputs: Attack) -> None:
    for number in range(100_000):
        inputs.run(2 * 10**6 + number)
