"""ccr serve."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from ccr_cli import console
from ccr_cli.commands import common as c
from ccr_cli.errors import Terminated, UnavailableError


@c.guarded
def serve(
    artifacts: c.Artifacts = None,
    find: c.Find = None,
    lang: c.SearchedLang = None,
    split: c.SearchedSplit = None,
    index: c.ByIndex = False,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes one that is free.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File with the token that requests must bring; needed with --host."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="A further name of this server, e.g. a proxy's; repeat for more."),
    ] = None,
    max_upload: Annotated[int, typer.Option("--max-upload", min=1, help="Largest picture, in MiB.")] = 10,
    max_requests: Annotated[int, typer.Option("--max-requests", min=1, help="Requests at once.")] = 32,
    open_: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    device: c.Device = "auto",
    workspace: c.WorkspaceOption = Path("."),
    quiet: c.Quiet = False,
    verbose: c.Verbose = 0,
) -> None:
    """Search over HTTP, with a page to type into.

    Prints its address and serves until it is stopped. Only this machine can reach it, unless --host says otherwise;
    then requests must bring a token.
    """
    c.setup(quiet, verbose)
    for package in ("fastapi", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise UnavailableError(
                f"a server needs the package {package}, which is not installed", hint="pip install 'ccr-cli[serve]'"
            )
    from ccr_cli.stages.search.choice import choose
    from ccr_cli.stages.search.server import Place
    from ccr_cli.stages.search.server import serve as stage

    place = Place(host, port, tuple(allow_host or ()), token_file, max_upload << 20, max_requests)
    place.rules()
    inputs = c.inputs_from(workspace, artifacts)
    searcher = choose(inputs, split=split, find=find, lang=lang, device=device, index=index)

    def ready(address: str) -> None:
        print(address, flush=True)
        console.say("  Ctrl-C stops it")
        if open_:
            import webbrowser

            webbrowser.open(address)

    try:
        stage(searcher, place, ready)
    except (KeyboardInterrupt, Terminated) as stop:
        console.say("stopped")
        raise typer.Exit(130 if isinstance(stop, KeyboardInterrupt) else 143) from None


EPILOG = c.examples(
    "ccr serve",
    "ccr serve runs/noto-emoji-es-uml-seed0 --split all --open",
    "ccr serve --host 0.0.0.0 --token-file token --allow-host search.example.org",
)
