"""ccr rebuild."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from ccr_cli import console
from ccr_cli.artifacts import base
from ccr_cli.artifacts.build import without_option
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.commands import common as c
from ccr_cli.errors import ArtifactError


@c.guarded
def rebuild(*, call: c.ListCall) -> None:
    """Make stale artifacts again: those made from an earlier state of a data set or of another artifact.

    Repeats the command of each one (of the named, or of all in the workspace), parents first, and prints its path. What
    is made from one that fails is left out.
    """
    workspace, blocked, made = (inputs := call.inputs()).workspace, set[str](), list[Path]()
    chosen, error = {artifact.path for artifact in inputs.named}, None
    while artifact := _next(workspace, chosen, blocked):
        try:
            _make(workspace, artifact, again=artifact.path in made)
            made.append(artifact.path)
        except ArtifactError as failed:
            blocked.add(workspace.relative(artifact.path))
            if error:
                console.warn(f"{failed.message}\n  try: {failed.hint}")
            error = error or failed
    made = [path for path in made if workspace.relative(path) not in blocked]
    if call.json:
        c.show_json({"made": [c.artifact_facts(base.load(path)) for path in made]})
    else:
        for path in made:
            print(path)
    if error:
        sys.stdout.flush()
        raise error
    if not made and not call.json:
        console.say("nothing is stale")


def _next(workspace: Workspace, chosen: set[Path], blocked: set[str]) -> base.Artifact | None:
    """The next stale artifact of the chosen ones (or of all); adds those made from `blocked` ones to `blocked`."""
    for artifact in workspace.to_rebuild(workspace.artifacts()):
        name = workspace.relative(artifact.path)
        if any(link.path in blocked for link in artifact.parents):
            blocked.add(name)
        elif name not in blocked and (not chosen or artifact.path in chosen):
            return artifact
    return None


def _make(workspace: Workspace, artifact: base.Artifact, *, again: bool) -> None:
    """Repeats the command of a stale artifact; ArtifactError if it fails, or has already been repeated (`again`)."""
    command = without_option(artifact.rebuild_command(), "--workspace")  # its path may be relative to another folder
    name = workspace.relative(artifact.path)
    if again:
        problem = f"{name} is stale still: its command makes another artifact, perhaps as a file has changed"
        raise ArtifactError(problem, hint=f"under its name: {shlex.join(base.with_name(command, artifact.name))}")
    if not command:
        raise ArtifactError(f"{name} is stale still", hint=artifact.rebuild_hint())
    console.say(f"rebuild {name}: {' '.join(command)}")
    env = os.environ | {"CCR_WORKSPACE": str(workspace.root)}
    words = [sys.executable, "-m", "ccr_cli", *command[1:]]
    code = subprocess.run(words, env=env, stdout=subprocess.DEVNULL).returncode
    if code not in (0, 3):  # 3: done, but some items failed
        raise ArtifactError(f"{name} could not be made again (exit code {code})", hint=artifact.rebuild_hint())


EPILOG = c.examples("ccr rebuild", "ccr data import products.csv --force && ccr rebuild", "ccr rebuild latest")
