"""Metrics of the search server, in the text format of Prometheus (exposition format 0.0.4)."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
QUERIES = (1, 2, 4, 8, 16, 32, 64)
PATHS = ("/", "/about", "/health", "/media", "/metrics", "/search")
"""Values of the label `path`; any other request is `other`, so that clients cannot create more."""


class Histogram:
    """Counts of values by the smallest bound that they do not exceed."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """Counts a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str) -> Iterator[str]:
        """The samples: values up to each bound, their sum and number."""
        total = 0
        for bound, count in zip([*self._bounds, "+Inf"], self._counts, strict=True):
            total += count
            yield f"{name}_bucket{_labels({'le': str(bound)})} {total}"
        yield f"{name}_sum {self._sum:.6f}"
        yield f"{name}_count {total}"


class Metrics:
    """Counts since the server started. Each metric is written by one thread only."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds = Histogram(SECONDS)
        self.batches = Histogram(QUERIES)
        self.reloads = {"loaded": 0, "failed": 0}

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Counts a request with any status."""
        self._requests[
            method if method in ("GET", "POST") else "other", path if path in PATHS else "other", status
        ] += 1
        self._seconds.add(seconds)

    def text(self, entries: int, about: Mapping[str, str]) -> str:
        """All metrics; `about` are labels that name the served artifacts and the version."""
        requests = [
            f"ccr_requests_total{_labels({'method': method, 'path': path, 'status': str(status)})} {count}"
            for (method, path, status), count in sorted(self._requests.items())
        ]
        reloads = [f"ccr_reloads_total{_labels({'outcome': name})} {count}" for name, count in self.reloads.items()]
        families = [
            ("ccr_requests_total", "counter", "Requests.", requests),
            ("ccr_request_seconds", "histogram", "Time to answer.", self._seconds.lines("ccr_request_seconds")),
            ("ccr_batch_queries", "histogram", "Texts in a batch.", self.batches.lines("ccr_batch_queries")),
            ("ccr_reloads_total", "counter", "Changes noticed with --reload.", reloads),
            ("ccr_entries", "gauge", "Items or captions that are searched.", [f"ccr_entries {entries}"]),
            ("ccr_info", "gauge", "What is served.", [f"ccr_info{_labels(about)} 1"]),
        ]
        lines = [
            line
            for name, kind, meaning, samples in families
            for line in (f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *samples)
        ]
        return "\n".join(lines) + "\n"


def _labels(values: Mapping[str, str]) -> str:
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return "{" + ",".join(f'{name}="{value.translate(escapes)}"' for name, value in values.items()) + "}"
