"""Malformed files with right hashes: mutates one file of one artifact and signs the workspace again.

`Workspace.sign` recomputes sizes, hashes and ids, of the artifact and of all that were made from it, so that nothing
but the content is wrong. The mutators know the formats: most of what they make can be parsed.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ccr_cli.artifacts import base
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data import toml

Mutator = Callable[[bytes, random.Random], bytes]
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 7, 2**63, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "x", "\0", "\x1b[31m",
    "\u202e", "\ud800", "../../etc/passwd", "0" * 5000, [], [None], [[1], "a"], ["x", 1], {}, {"": {"": []}},
)  # fmt: skip
"""Values that may be of another type than what they replace, or at the end of its range."""


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values in a tree of lists and dicts, its root first."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in steps for place in _paths(inner, (*path, key)))]


def mutate_tree(tree: Any, rng: random.Random) -> Any:
    """Replaces, removes, adds or nests one value of a tree of lists and dicts."""
    places = _paths(tree)
    depth = rng.randint(0, max(map(len, places)))
    path = rng.choice([place for place in places if len(place) == depth])
    if not path:
        return rng.choice(ODD)
    holder = tree
    for step in path[:-1]:
        holder = holder[step]
    how = rng.choice(("replace", "replace", "replace", "remove", "double", "nest", "similar"))
    if how == "remove":
        del holder[path[-1]]
    elif how == "double" and isinstance(holder, list):
        holder.append(holder[path[-1]])
    elif how == "nest":
        holder[path[-1]] = rng.choice(([holder[path[-1]]], {"x": holder[path[-1]]}))
    elif how == "similar" and isinstance(holder[path[-1]], (int, float)):
        holder[path[-1]] = rng.choice(
            (-holder[path[-1]], holder[path[-1]] + 1, holder[path[-1]] * 1000, str(holder[path[-1]]))
        )
    else:
        holder[path[-1]] = rng.choice(ODD)
    return tree


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """Cuts, repeats, flips or replaces bytes."""
    data = bytearray(content)
    at = rng.randrange(len(data) + 1)
    how = rng.randrange(7)
    if how == 0:
        return bytes(data[:at])
    if how == 1:
        return b""
    if how == 2:
        for _ in range(rng.choice((1, 1, 4, 64))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(data)
    if how == 3:
        data[at:at] = rng.choice((b"\xff\xfe", b"\x80", b"\0", b"\xed\xa0\x80", b"[" * 100_000))
    elif how == 4:
        data[at : at + 8] = rng.choice((b"\xff" * 8, struct.pack("<q", 10**12), struct.pack("<q", -1), bytes(8)))
    elif how == 5:
        data = data[at:] + data[:at]
    else:
        data += data[: rng.randrange(len(data) + 1)]
    return bytes(data)


def mutate_json(content: bytes, rng: random.Random) -> bytes:
    """Mutates a JSON file's values, of one line if it has several."""
    if b"\n{" in content:
        lines = content.splitlines(keepends=True)
        at = rng.randrange(len(lines))
        lines[at] = mutate_json(lines[at].strip(), rng) + b"\n"
        return b"".join(lines)
    return json.dumps(mutate_tree(json.loads(content), rng)).encode()


def mutate_toml(content: bytes, rng: random.Random) -> bytes:
    """Mutates a manifest's values; what TOML cannot say is written as JSON, which is no TOML."""
    tree = mutate_tree(tomllib.loads(content.decode()), rng)
    try:
        return toml.dumps(tree).encode()
    except (TypeError, AttributeError, UnicodeEncodeError):
        return json.dumps(tree).encode()


def mutate_parquet(content: bytes, rng: random.Random) -> bytes:
    """Mutates a table's columns, types, rows or values."""
    table = pq.read_table(io.BytesIO(content))
    at = rng.randrange(table.num_columns)
    name, values = table.column_names[at], table.column(at).to_pylist()
    row = rng.randrange(len(values)) if values else 0
    how = rng.choice(
        (
            "drop",
            "rename",
            "type",
            "null",
            "repeat",
            "fewer",
            "none",
            "value",
            "value",
            "value",
            "extra",
            "utf8",
            "order",
        )
    )
    if how == "drop":
        table = table.drop_columns([name])
    elif how == "rename":
        table = table.rename_columns([c + "x" if c == name else c for c in table.column_names])
    elif how == "type":
        table = table.set_column(
            at,
            name,
            pa.array(
                [rng.choice((1, 2)) for _ in values], rng.choice((pa.int8(), pa.float64(), pa.date32(), pa.uint64()))
            ),
        )
    elif how == "null":
        values[row] = None
        table = table.set_column(
            at, pa.field(name, table.schema.types[at], rng.random() < 0.7), pa.array(values, table.schema.types[at])
        )
    elif how == "repeat":
        table = pa.concat_tables([table, table.slice(row, 1)])
    elif how == "fewer":
        table = table.slice(0, row)
    elif how == "none":
        table = table.slice(0, 0)
    elif how == "extra":
        table = table.append_column("extra", pa.array([1] * len(values)))
    elif how == "order":
        table = table.take(rng.sample(range(len(values)), len(values)))
    elif how == "utf8":
        if table.schema.types[at] == pa.string():
            raw = [None if v is None else v.encode() for v in values]
            raw[row] = b"\xff\xfe"
            table = table.set_column(at, table.schema.field(at), pa.array(raw, pa.binary()).view(pa.string()))
    else:
        kind = table.schema.types[at]
        odd: tuple[Any, ...] = ("", "x", "\0", "../x", "\u202e", "q" * 70_000, values[row - 1])
        if pa.types.is_floating(kind):
            odd = (float("nan"), float("inf"), -1e30, -1.0)
        elif pa.types.is_boolean(kind):
            odd = (True, False)
        elif pa.types.is_integer(kind):
            odd = (-1, 0, 2**31 - 1, -(2**31), 10**6)
        elif pa.types.is_struct(kind):
            keys = {
                "bytes": (None, b"", b"x", b"\xff\xd8\xff"),
                "path": (None, "", "../x.png", "x", "\0.png", "q" * 5000),
            }
            odd = (None, *({**(values[row] or {}), key: each} for key, some in keys.items() for each in some))
        values[row] = rng.choice(odd)
        table = table.set_column(at, table.schema.field(at), pa.array(values, kind))
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def mutate_npy(content: bytes, rng: random.Random) -> bytes:
    """Mutates the header or the values of an array."""
    array = np.load(io.BytesIO(content))
    how = rng.randrange(8)
    if how == 0:
        array = array.astype(rng.choice(("f8", "i2", "c8", "?", "S4", "f4")))
    elif how == 1:
        array = array[..., : array.shape[-1] // 2]
    elif how == 2:
        array = array[: len(array) // 2]
    elif how == 3:
        array = rng.choice((array[None], array.ravel(), array.T, array[:0], array[:, :0], np.float16(1) * array[0, 0]))
    elif how in (4, 5):
        array = array.copy()
        array[rng.randrange(len(array)), rng.randrange(array.shape[1])] = rng.choice((np.nan, np.inf, -np.inf, 65504))
    else:
        start = content.index(b"{")
        end = content.index(b"\n", start)
        header = rng.choice(
            (
                f"{{'descr': '<f2', 'fortran_order': False, 'shape': ({10**12}, {array.shape[1]}), }}",
                f"{{'descr': '<f2', 'fortran_order': False, 'shape': ({10**30}, 2), }}",
                "{'descr': '<f2', 'fortran_order': False, 'shape': (-1, 2), }",
                "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
                "{'descr': '<f2', 'fortran_order': 7, 'shape': 'x', }",
                "{'descr': [('a', '<f2'), ('b', 'V0')], 'fortran_order': False, 'shape': (3,), }",
                "{'descr': '<f2', 'fortran_order': True}",
                "(" * 60,
                "{'descr': '\0', ",
                "[1]",
                "os.system('x')",
            )
        )
        return content[:start] + header.encode().ljust(end - start) + content[end:]
    sink = io.BytesIO()
    np.save(sink, array)
    return sink.getvalue()


def mutate_safetensors(content: bytes, rng: random.Random) -> bytes:
    """Mutates the header of named tensors: names, shapes, types, offsets; or their values."""
    size = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8 : 8 + size]), bytearray(content[8 + size :])
    how = rng.randrange(6)
    names = [name for name in header if name != "__metadata__"]
    name = rng.choice(names)
    if how == 0:
        header[name + "x"] = header.pop(name)
    elif how == 1:
        header[name]["shape"] = (
            header[name]["shape"][::-1] if len(header[name]["shape"]) > 1 else [1, *header[name]["shape"]]
        )
    elif how == 2:
        header[name]["dtype"] = rng.choice(("I32", "F16", "BF16", "BOOL", "U8", "X1", "F8_E4M3"))
        header[name]["shape"] = rng.choice(
            (header[name]["shape"], [(header[name]["data_offsets"][1] - header[name]["data_offsets"][0]) // 2])
        )
    elif how == 3:
        start, end = header[name]["data_offsets"]
        data[start:end] = np.full((end - start) // 4, rng.choice((np.nan, np.inf, 1e38)), np.float32).tobytes()[
            : end - start
        ]
    else:
        header = mutate_tree(header, rng)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data)


def mutate_text(content: bytes, rng: random.Random) -> bytes:
    """Mutates a field or a line of a table or list."""
    text = content.decode()
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    how = rng.choice(("value", "value", "value", "repeat", "remove", "swap", "all"))
    if how == "value":
        sign = max("\t,;: ", key=text.count)
        fields = lines[at].split(sign)
        fields[rng.randrange(len(fields))] = rng.choice(
            (
                *(str(value) for value in ODD),
                '"',
                "'",
                "\\",
                "\r",
                "\u2028",
                "=cmd|' /C calc'!A0",
                "a" * 70_000,
                "1e999",
            )
        )
        lines[at] = sign.join(fields)
    elif how == "repeat":
        lines.insert(at, rng.choice(lines))
    elif how == "remove":
        del lines[at]
    elif how == "swap":
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        return "\n".join(lines).encode(rng.choice(("utf-16", "utf-8-sig", "utf-32", "utf-7")), "replace")
    return "\n".join(lines).encode(errors="surrogatepass")


def mutate_zip(content: bytes, rng: random.Random) -> bytes:
    """Mutates a member of an archive, whose checksums are right again."""
    sink = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(sink, "w", rng.choice((0, 8))) as new:
        chosen = rng.choice(old.namelist())
        for name in old.namelist():
            data = old.read(name)
            if name == chosen:
                name = rng.choice((name, name, name, "../x.npy", "x", "\u202e.npy", "a\nb.npy"))
                data = mutated(name if name == chosen else chosen, data, rng)
            new.writestr(name, data)
    return sink.getvalue()


def mutate_gzip(content: bytes, rng: random.Random) -> bytes:
    """Mutates the content of a compressed text, or what is compressed."""
    return gzip.compress(mutate_text(gzip.decompress(content), rng))


def mutate_hdf5(content: bytes, rng: random.Random) -> bytes:
    """Replaces a dataset by one of another type, shape or storage."""
    import h5py

    sink = io.BytesIO(content)
    with h5py.File(sink, "r+") as file:
        name = rng.choice(list(file))
        del file[name]
        how = rng.randrange(9)
        if how == 0:
            file.create_dataset(name, shape=(10**9, 8), dtype="f4", chunks=(1000, 8))
        elif how == 1:
            file[name] = h5py.ExternalLink("/etc/passwd", "/x")
        elif how == 2:
            file[name] = h5py.SoftLink(rng.choice((f"/{name}", "/", "/absent")))
        elif how == 3:
            file[name] = rng.choice((b"text", [b"a", b"b"], 1.0, 1j, [], [[]], True))
        elif how == 4:
            file.create_dataset(name, (3,), h5py.special_dtype(vlen=np.float32))
        elif how == 5:
            file[name] = np.zeros(3, [("a", "f4"), ("b", "S3")])
        elif how == 6:
            file[name] = np.full((2, 8), rng.choice((np.nan, np.inf, 1e38)), "f4")
        elif how == 7:
            file[name] = np.zeros((2, rng.choice((0, 3, 7, 9))), rng.choice(("f2", "f8", "i1", "u8")))
        else:
            file.create_dataset(name, (4, 8), "f4", external=[("/etc/passwd", 0, 128)])
    return sink.getvalue()


def mutate_matlab(content: bytes, rng: random.Random) -> bytes:
    """Replaces a variable by one of another type or shape."""
    import scipy.io
    import scipy.sparse

    tree = {k: v for k, v in scipy.io.loadmat(io.BytesIO(content)).items() if not k.startswith("__")}
    tree[rng.choice(list(tree))] = rng.choice(
        (
            np.zeros((0, 8)),
            np.full((48, 8), np.nan),
            np.zeros((48, 48)),
            np.array([["a", 1]], object),
            "text",
            {"a": {"b": 1}},
            scipy.sparse.csc_matrix((48, 8)),
            scipy.sparse.csc_matrix((10**6, 10**6)),
            np.zeros((2, 48, 8)),
            np.ones((48, 8), complex),
            np.ones((48, 8), bool),
        )
    )
    sink = io.BytesIO()
    scipy.io.savemat(sink, tree, do_compression=rng.random() < 0.5)
    return sink.getvalue()


MUTATORS: dict[str, Mutator] = {
    ".npz": mutate_zip,
    ".xlsx": mutate_zip,
    ".xml": mutate_text,
    ".tsv": mutate_text,
    ".csv": mutate_text,
    ".txt": mutate_text,
    ".gz": mutate_gzip,
    ".h5": mutate_hdf5,
    ".mat": mutate_matlab,
    ".json": mutate_json,
    ".jsonl": mutate_json,
    ".toml": mutate_toml,
    ".parquet": mutate_parquet,
    ".npy": mutate_npy,
    ".safetensors": mutate_safetensors,
}


def mutated(name: str, content: bytes, rng: random.Random) -> bytes:
    """A mutation of a file, mostly one that keeps its format."""
    own = MUTATORS.get(Path(name).suffix, mutate_bytes)
    if content and rng.random() < 0.85:
        try:
            return own(content, rng)
        except (OverflowError, pa.ArrowException, UnicodeEncodeError, ValueError, RecursionError):
            pass
    return mutate_bytes(content, rng) if content else b"x"


class Victim:
    """A workspace whose files are changed and put back."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.records = {path: (path / base.RECORD).read_bytes() for _, path in Workspace(root).places()}
        order = list(base.FOLDERS)
        ranked = sorted(self.records, key=lambda path: order.index(json.loads(self.records[path])["kind"]))
        self.artifacts = ranked
        self._changed: dict[Path, bytes] = {}

    def files(self) -> list[tuple[Path, str]]:
        """Every file of every artifact that ccr reads, with the artifact's folder; of each also its record."""
        named = []
        for path in self.artifacts:
            record = json.loads(self.records[path])
            if record["kind"] not in ("report", "export"):
                named += [(path, entry["path"]) for entry in record["files"] if not entry["path"].startswith("media/")]
                named.append((path, base.RECORD))
        return named

    def change(self, folder: Path, name: str, rng: random.Random) -> None:
        """Mutates a file, and signs the artifact and all that were made from it."""
        file = folder / name
        content = file.read_bytes()
        file.write_bytes(mutated(name, content, rng))
        self.changed(folder, name, content)

    def changed(self, folder: Path, name: str, content: bytes) -> None:
        """Signs an artifact with a file that was changed, and all that were made from it; takes the old content."""
        self._changed[folder / name] = content
        self._sign(folder, name)

    def _sign(self, changed: Path, name: str) -> None:
        ids: dict[str, str] = {}
        for folder in self.artifacts:
            try:
                record = json.loads((folder / base.RECORD).read_bytes())
                old = json.loads(self.records[folder])["id"]
                if folder == changed and name != base.RECORD:
                    for entry in record["files"]:
                        if entry["path"] == name:
                            entry["bytes"], entry["sha256"] = (
                                (folder / name).stat().st_size,
                                base.sha256_file(folder / name),
                            )
                for parent in record["parents"]:
                    parent["id"] = ids.get(parent["id"], parent["id"])
                parents, files = (
                    [base.Parent(**p) for p in record["parents"]],
                    [base.FileEntry(**f) for f in record["files"]],
                )
                record["id"] = base.identity(record["kind"], record["schema"], record["request"], parents, files)
            except (TypeError, KeyError, ValueError, AttributeError, RecursionError):  # the record itself is malformed
                continue
            if record["id"] != old:
                ids[old] = record["id"]
                (folder / base.RECORD).write_text(json.dumps(record), encoding="utf-8", errors="surrogatepass")

    def restore(self) -> None:
        """Puts everything back."""
        for file, content in self._changed.items():
            file.write_bytes(content)
        self._changed.clear()
        for folder, record in self.records.items():
            if (folder / base.RECORD).read_bytes() != record:
                (folder / base.RECORD).write_bytes(record)
