"""ccr review."""

import shlex

import typer

from ccr_cli import console
from ccr_cli.commands import common as c
from ccr_cli.errors import require_packages
from ccr_cli.stages.review.options import ReviewOptions
from ccr_cli.stages.search.options import ListenOptions


@c.guarded
def review(
    *,
    reviewed: ReviewOptions,
    options: ListenOptions,
    open_: bool = False,
    call: c.Call,
) -> None:
    """Judge and correct the suspicious translations of a diagnosis, on a web page.

    The page shows one pair at a time, the most suspicious first, and takes right, wrong, a corrected text, skip and
    undo. Each verdict is written to a file at once, and the same command continues there. ccr translate --only and ccr
    train --verdicts read the file.
    """
    require_packages("ccr review", "serve", "fastapi", "uvicorn")
    from ccr_cli.stages.review.server import serve as stage
    from ccr_cli.stages.review.stage import open_review
    from ccr_cli.stages.search.server import access_rules, bind

    access_rules(options, 0)
    with bind(options) as listening, open_review(call.inputs(), reviewed) as opened:
        state = opened.state()
        file = shlex.quote(str(opened.log.path))
        before = f"; {console.counted(state['done'], 'pair')} done before" if state["done"] else ""
        console.say(f"  {opened.reviewer} reviews {console.counted(state['total'], 'pair')}{before}: {file}")
        code = c.serve_until_stopped(lambda ready: stage(opened, options, listening, ready), open_)
        state = opened.state()
        judged = console.counted(state["judged"], "pair")
        following = f"\n  next: ccr translate --only {file}" if state["judged"] else ""
        console.say(f"stopped; {judged} judged, {state['wrong']} wrong{following}")
    raise typer.Exit(code)


EPILOG = c.examples(
    "ccr review",
    "ccr review latest --worst 100 --open",
    "ccr review latest --reviewer ben --second",
    "ccr diagnose translations/mine/es-hf | ccr review -",
)
