"""ccr plugins."""

from ccr_cli.commands import common as c


@c.guarded
def plugins(json: bool = False) -> None:
    """List methods, judges, encoders, engines and noise styles: where each comes from, and which do not load.

    They come with ccr, from your own files in its folders, or from installed packages with an entry point of the group
    ccr.methods, ccr.judges, ccr.encoders, ccr.translators or ccr.noise.
    """
    from ccr_cli.stages.plugins import COLUMNS, listed

    c.show_rows("plugins", COLUMNS, listed(), json)


EPILOG = c.examples("ccr plugins", "ccr plugins --json")
