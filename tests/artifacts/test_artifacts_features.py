"""What an artifact of features says of itself."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from ccr_cli.artifacts import base, features
from ccr_cli.data.sampling import Sampling


def test_the_command_that_makes_the_like() -> None:
    """What was given stands in it where the request has its content; of features without a name it says so."""
    parts = [
        {"encoder": "clip", "dtype": "float16", "model": "sha256:0", "pool": "mean"},
        {"encoder": "given", "dtype": "float16", "from": "00"},
    ]
    request = {"encoder": "clip_given", "concat": ["1", "2"], "parts": parts}
    about = {"environment": {"given": [{"model": "my models/b 32"}, {}]}}
    made = base.Artifact(Path("features/toy/x"), "features", 1, "x", "3", request, (), (), {}, about)
    assert features.command(made, Path("datasets/a b")) == (
        "(ccr extract 'datasets/a b' --encoder clip --dtype float16 --pool mean --set 'model=my models/b 32'; "
        "ccr extract 'datasets/a b' --from FILE --encoder-name NAME) | ccr extract - --concat"
        ", and these features again with the same name"
    )


def test_options_of_frames_are_left_out_where_there_are_no_videos() -> None:
    request = {"encoder": "clip", "dtype": "float32", "model": "m", "fps": 2.0, "frames": 0}
    made = base.Artifact(Path("features/toy/x"), "features", 1, "x", "3", request, (), (), {}, {})
    without = "ccr extract datasets/a --encoder clip --set model=m"
    assert features.command(made, Path("datasets/a")) == f"{without} --set fps=2.0 --set frames=0"
    assert features.command(made, Path("datasets/a"), videos=False) == without
    assert {each.name for each in fields(Sampling)} == {*features.FRAMES}
