"""ccr serve."""

import typer

from ccr_cli import console
from ccr_cli.commands import common as c
from ccr_cli.errors import UsageError, require_packages
from ccr_cli.stages.search.options import SearchOptions, ServerOptions


@c.guarded
def serve(
    *,
    searched: SearchOptions,
    options: ServerOptions,
    open_: bool = False,
    call: c.Call,
) -> None:
    """Serve search over HTTP, with a web page.

    Prints its address and serves until it is stopped. Only this machine can reach it, unless --host says otherwise;
    then requests must send a token.
    """
    require_packages("ccr serve", "serve", "fastapi", "uvicorn")
    from ccr_cli.stages.search.server import access_rules
    from ccr_cli.stages.search.server import serve as stage
    from ccr_cli.stages.search.stage import Searcher, open_searcher

    access_rules(options, options.max_upload << 20)
    if options.reload and "-" in (call.artifacts or []):
        raise UsageError("--reload reads the artifacts again and cannot take them from standard input")

    def opened() -> Searcher:
        searcher = open_searcher(call.inputs(), searched)
        searcher.calibrate()
        return searcher

    searcher, reopen = opened(), (opened if options.reload else None)
    if code := c.serve_until_stopped(lambda ready: stage(searcher, options, ready, reopen), open_):
        console.say("stopped")
        raise typer.Exit(code)


EPILOG = c.examples(
    "ccr serve",
    "ccr serve runs/noto-emoji-es-uml-seed0 --split all --open",
    "ccr serve --host 0.0.0.0 --token-file token --allow-host search.example.org",
)
