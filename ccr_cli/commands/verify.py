"""ccr verify: check artifacts against their records."""

from typing import Annotated

import typer

from ccr_cli import console
from ccr_cli.artifacts import base
from ccr_cli.commands import common as c
from ccr_cli.errors import ArtifactError


@c.guarded
def verify(
    deep: Annotated[bool, typer.Option("--deep", help="Also read every file as later stages would.")] = False,
    *,
    call: c.Call,
) -> None:
    """Check every file of an artifact against its hash, and every parent against its id.

    Checks all artifacts of the workspace if none is named. Exits with 4 if something is wrong. With `--deep`, do so
    before you use an artifact that somebody else made: its hashes are right whatever its files hold.
    """
    inputs = call.inputs()
    rows = []
    for kind, path in [(a.kind, a.path) for a in inputs.named] or inputs.workspace.places():
        try:
            artifact = base.load(path, kind)
        except ArtifactError as error:
            console.say(f"error: {error.message}", level=-1, style="bold red")
            rows.append((kind, inputs.workspace.relative(path), "", error.message))
            continue
        problems = base.verify(artifact)
        for parent in artifact.parents:
            try:
                inputs.workspace.linked(artifact, parent)
            except ArtifactError as error:
                problems.append(error.message)
        if deep and not problems:
            from ccr_cli.stages.verify import malformed

            problems += filter(None, [malformed(artifact)])
        shown = inputs.workspace.relative(artifact.path)
        rows.append((artifact.kind, shown, artifact.id[:12], "; ".join(problems) or "ok"))
    c.show_table(("kind", "artifact", "id", "state"), rows)
    if any(state != "ok" for *_, state in rows):
        raise typer.Exit(4)


EPILOG = c.examples("ccr verify", "ccr verify runs/noto-emoji-es-uml-seed0", "ccr verify --deep")
