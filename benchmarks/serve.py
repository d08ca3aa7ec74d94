"""Measure requests per second and latency of `ccr serve` over loopback.

A server is started on a run (`--run`, in the workspace) as a user would; clients in another process query it, each over
one open connection, for `--seconds` at each concurrency. The requests:

- `health`: no search; the cost of HTTP itself.
- `words`: searches with words, all different.
- `picture`: searches with a JPEG of 640 x 480, encoded by the run's encoder.
- `media`: small pictures of items, the same few repeatedly.

Server and clients share the machine's processors with other load (`load_before`), so results are lower bounds.

    python benchmarks/serve.py --workspace WORKSPACE --run runs/NAME --out benchmarks/results/serve.json
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
from PIL import Image

CONCURRENCY = (1, 8, 32)
WORDS = ("gato", "perro", "cara", "feliz", "rojo", "mano", "corazón", "sol", "triste", "casa", "árbol", "coche")
Make = Callable[[int], bytes]


def request(method: str, target: str, body: bytes = b"", kind: str = "") -> bytes:
    """A request as it goes over the wire."""
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost"]
    lines += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([*lines, "", ""]).encode() + body


def requests(name: str) -> Make:
    """The n-th request of a kind."""
    if name == "words":
        count = len(WORDS)
        return lambda n: request("GET", f"/search?q={quote(WORDS[n % count] + ' ' + WORDS[n // count % count])}+{n}")
    if name == "picture":
        out = io.BytesIO()
        noise = np.random.default_rng(0).integers(0, 256, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((640, 480)).save(out, "jpeg")
        return lambda n: request("POST", "/search", out.getvalue(), "image/jpeg")
    if name == "media":
        return lambda n: request("GET", f"/media?item={ITEMS[n % len(ITEMS)]}")
    return lambda n: request("GET", "/health")


ITEMS: list[str] = []


async def client(port: int, number: int, step: int, make: Make, until: float, spent: list[float]) -> None:
    """Asks over one connection, one request after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    n = number
    while (start := time.perf_counter()) < until:
        writer.write(make(n))
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise SystemExit(f"the server refused: {head!r}")
        await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
        spent.append(time.perf_counter() - start)
        n += step
    writer.close()


def ask(port: int, name: str, concurrency: int, seconds: float, items: list[str]) -> list[float]:
    """Seconds of each request, by so many clients at once."""
    ITEMS[:] = items
    spent: list[float] = []
    make = requests(name)

    async def all_clients() -> None:
        until = time.perf_counter() + seconds
        await asyncio.gather(*(client(port, i, concurrency, make, until, spent) for i in range(concurrency)))

    asyncio.run(all_clients())
    return spent


def measure(port: int, name: str, seconds: float, items: list[str]) -> dict[str, Any]:
    """Figures of one kind of request, by concurrency."""
    found = {}
    with get_context("spawn").Pool(1) as pool:
        pool.apply(ask, (port, name, 1, min(1.0, seconds), items))  # the first ones wake things up
        for concurrency in CONCURRENCY:
            spent = np.array(pool.apply(ask, (port, name, concurrency, seconds, items))) * 1000
            found[str(concurrency)] = {
                "requests": len(spent),
                "requests_per_second": round(len(spent) / seconds, 1),
                "p50_ms": round(float(np.percentile(spent, 50)), 2),
                "p99_ms": round(float(np.percentile(spent, 99)), 2),
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    load = round(os.getloadavg()[0], 1)
    command = [sys.executable, "-m", "ccr_cli", "serve", args.run, "--split", args.split, "--port", "0", "-q"]
    command += ["--workspace", str(args.workspace), "--device", args.device, "--max-requests", "64"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = urlsplit(server.stdout.readline().strip()).port
            assert port is not None, "the server did not start"
            about = _json(port, "/about")
            hits = _json(port, "/search?q=gato&top=20")["hits"]
            items = [quote(hit["item"], safe="") for hit in hits if hit["picture"]]
            kinds = ["health", "words", *(["picture"] if about["pictures"] else []), *(["media"] if items else [])]
            figures = {name: measure(port, name, args.seconds, items) for name in kinds}
        finally:
            server.terminate()
    import torch

    result = {
        "what": "ccr serve over loopback, clients on the same processors; milliseconds of a request",
        "searched": {key: about[key] for key in ("data", "split", "find", "entries")},
        "seconds_each": args.seconds,
        "by_concurrency": figures,
        "machine": {
            "cores": os.cpu_count(),
            "device": args.device,
            "threads": torch.get_num_threads(),
            "architecture": platform.machine(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "load_before": load,
        },
    }
    text = json.dumps(result, indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


def _json(port: int, target: str) -> Any:
    from urllib.request import urlopen

    with urlopen(f"http://127.0.0.1:{port}{target}", timeout=60) as answer:
        return json.loads(answer.read())


if __name__ == "__main__":
    main()
