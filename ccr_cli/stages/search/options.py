"""The options of `ccr search`, `ccr index` and `ccr serve`: a field is a flag, in the order of the help."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from ccr_cli.errors import UsageError, no_file
from ccr_cli.stages.shared.options import option

FINDS = ("items", "captions")
_SPLITS, _SPLIT = "Items to search: train, val, test or all.", "test; all if ccr made the split, or there is none"


@dataclass(frozen=True)
class SearchOptions:
    """What is searched."""

    find: str | None = option(None, "What to search: items or captions.", show_default="items")
    lang: str | None = option(
        None, "Use a run trained on this language; with --find captions, search only its captions."
    )
    split: str | None = option(None, _SPLITS, show_default=_SPLIT)
    index: bool = option(False, "Use the workspace's index of the run (or name an index as an artifact).")
    device: str = "auto"

    def filled(self) -> "SearchOptions":
        """Returns the options with defaults filled in, except the split; raises UsageError if a value is unknown."""
        from ccr_cli.data.splits import ALL, refuse_unknown

        options = replace(self, find="items" if self.find is None else self.find)
        if options.find not in FINDS:
            raise UsageError(f"unknown --find {options.find!r}; it is {' or '.join(FINDS)}")
        if options.split is not None:
            refuse_unknown(options.split, ALL)
        return options


@dataclass(frozen=True)
class QueryOptions:
    """The query, if it is a picture instead of words, and the number of results."""

    image: Path | None = option(None, "Search with a picture instead of words.")
    top: int = option(5, "Number of results.", min=1)


def require_picture(path: Path) -> Path:
    """Returns the path of a query picture; UsageError if there is no such file."""
    if not path.is_file():
        if re.match("[a-z]+:/", str(path)):
            raise UsageError(f"there is no file {path}", hint="ccr reads pictures from files: download it first")
        raise no_file(path)
    return path


def require_text(query: str, what: str, hint: str = 'ccr search "una cara sonriente"') -> str:
    """Returns a query; UsageError, which calls it `what`, if it came as bytes that are not UTF-8."""
    try:
        query.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} is not UTF-8", hint) from None
    return query


def parse_bytes(flag: str, text: str) -> int:
    """Reads a size such as `4GB`, `500M` or `1.5GiB`; UsageError if it is not a size, or is 0."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT])(I?)B?", text.strip().upper())
    size = float(match[1]) * (1024 if match[3] else 1000) ** (" KMGT".index(match[2])) if match else 0
    if size < 1:
        raise UsageError(f"{flag} {text!r} is not a size", hint=f"{flag} 4GB")
    return int(size)


@dataclass(frozen=True)
class IndexOptions:
    """The options of `ccr index`."""

    split: str | None = option(None, _SPLITS, show_default=_SPLIT)
    find: str = option("items", "What to search: items or captions.")
    lang: str | None = option(
        None, "Use a run trained on this language; with --find captions, index only its captions."
    )
    kind: str | None = option(
        None,
        "Kind of index: ivf (cells), hnsw (graph), or a FAISS factory string such as IVF4096,SQ8.",
        "--factory",
        was="--type",
        show_default="ivf; with --memory, the most exact that fits",
    )
    memory: int | None = option(
        None,
        "Most memory of the index, such as 4GB.",
        metavar="SIZE",
        command_line=(str | None, lambda text: parse_bytes("--memory", text)),
    )
    recall: float = option(0.99, "Fraction of the ten most similar entries that queries must find (above 0, up to 1).")
    device: str = "auto"
    name: str | None = None
    force: bool = False


@dataclass(frozen=True)
class ListenOptions:
    """Where a server listens, and how many requests it takes."""

    host: str = option("127.0.0.1", "Address to listen on.")
    port: int = option(8000, "Port to listen on; 0 takes a free one.", min=0, max=65535)
    token_file: Path | None = option(
        None, "File with the token that requests must send; required if --host admits other machines."
    )
    allow_host: tuple[str, ...] = option(
        (), "Also accept this Host name, e.g. a proxy's; repeat for more.", command_line=(list[str] | None, tuple)
    )
    max_requests: int = option(32, "Most requests at once.", min=1)


@dataclass(frozen=True)
class ServerOptions(ListenOptions):
    """The options of the server of `ccr serve`."""

    max_upload: int = option(10, "Largest body of a request, in MiB.", min=1)
    reload: bool = option(False, "Load what would be served now when the workspace's artifacts change.", "--reload")
