"""ccr index."""

from ccr_cli.commands import common as c
from ccr_cli.stages.search.options import IndexOptions


@c.guarded
def index(*, options: IndexOptions, call: c.BuildCall) -> None:
    """Build a search index, for galleries of hundreds of thousands of items.

    Writes an artifact with a FAISS index and its recall against exact search. `ccr search` uses it with --index, or if
    it is among the artifacts.
    """
    inputs = call.inputs()
    from ccr_cli.commands.show import show_summary
    from ccr_cli.stages.search.build_index import index as stage

    made = stage(inputs, options)
    show_summary(made)
    c.emit(inputs, [made], call.json)


EPILOG = c.examples(
    "ccr index",
    "ccr index runs/vatex-zh-uml-seed0 --split all --type hnsw",
    "ccr index --recall 0.95 | ccr search - --query-file words.txt --json",
)
