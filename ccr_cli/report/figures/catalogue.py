"""The figures of a report in the order of the page.

A new figure is a function in a module of this folder, and an entry here.
"""

from __future__ import annotations

from collections.abc import Mapping

from ccr_cli.report.figures import (
    corruption,
    cross_attention,
    embedding_maps,
    judges,
    lengths,
    noise_curves,
    option_effect,
    outside_gallery,
    pair_scores,
    searches,
    training,
    uncertainty,
)
from ccr_cli.report.figures.figure import Drawing, FigureData, FigureKind

_UML = "ccr train --method uml, then ccr evaluate"
_NOISE = "ccr train --noise 0.4, then ccr"
_LABELLED = "ccr train --method fume, then ccr evaluate --protocol labelled"
_CORRUPT = "ccr train --method uml, then ccr evaluate --corrupt 0.3 and ccr evaluate --corrupt 0.6"

FIGURES = (
    FigureKind("{}", "headline figure against noise", f"{_NOISE} evaluate", noise_curves.headline),
    FigureKind(
        "languages",
        "headline figure by language",
        "ccr train --lang fr --noise 0.4, then ccr evaluate",
        noise_curves.languages,
    ),
    FigureKind(
        "options",
        "effect of an option",
        "ccr train --method uml --sweep beta=0.1,0.3,0.9 | ccr evaluate -",
        option_effect.option_values,
    ),
    FigureKind("training", "validation by epoch", "ccr train", training.validation),
    FigureKind("losses", "terms of the loss by epoch", "ccr train", training.loss_terms),
    FigureKind("beliefs", "beliefs of a judge", "ccr diagnose", judges.beliefs),
    FigureKind("judges", "ROC and precision-recall of the judges", f"{_NOISE} diagnose", judges.detection_curves),
    FigureKind(
        "epochs",
        "intact and mismatched pairs early, midway and late",
        "ccr train --noise 0.4 --set judge=triangle, then ccr diagnose",
        judges.epochs,
    ),
    FigureKind("uncertainty", "uncertainty of training pairs", f"{_NOISE} diagnose", judges.pair_uncertainty),
    FigureKind("risk", "risk against coverage", _UML, uncertainty.risk),
    FigureKind(
        "calibration",
        "right answers against stated confidence",
        "ccr train --method infonce, then ccr evaluate",
        uncertainty.calibration,
    ),
    FigureKind("precision", "precision against recall", _LABELLED, uncertainty.precision),
    FigureKind("deletion", "mAP against deletion", _LABELLED, uncertainty.deletion),
    FigureKind(
        "outside",
        "uncertainty of queries without a match in the gallery",
        f"{_UML} --ood half",
        outside_gallery.out_of_distribution,
    ),
    FigureKind(
        "entropy",
        "entropy against uncertainty",
        "ccr train --method fume --set left_out=3,8, then ccr evaluate",
        outside_gallery.category_entropy,
    ),
    FigureKind("corruption", "uncertainty of corrupted queries", _CORRUPT, corruption.corrupted_queries),
    FigureKind("lengths", "recall by length of the query", "ccr evaluate", lengths.query_lengths),
    FigureKind(
        "scored", "pairs scored by several runs", "ccr diagnose of two runs of the same noise", pair_scores.scored_pairs
    ),
    FigureKind("where", "map of items with their captions", "ccr report --map 20", embedding_maps.item_map),
    FigureKind("pictures", "query pictures", "ccr report --inside 3", searches.picture_queries),
    FigureKind(
        "targets", "soft targets", "ccr train --method disncl, then ccr report --inside 3", searches.soft_targets
    ),
    FigureKind(
        "attention",
        "cross-attention",
        "ccr train --method nrccr, then ccr report --inside 3",
        cross_attention.attention,
    ),
    FigureKind("searches", "example searches", "ccr report --searches 3", searches.text_queries),
)
"""The name {} stands for that of the headline figure."""


def drawn(data: FigureData) -> dict[str, Drawing]:
    """The figures whose data are there, by name. Only inside `canvas.drawing`."""
    drawings = {_name(kind, data): kind.draw(data) for kind in FIGURES}
    return {name: drawing for name, drawing in drawings.items() if drawing is not None and drawing.figure is not None}


def absent(data: FigureData, drawings: Mapping[str, Drawing]) -> list[FigureKind]:
    """The figures whose data are missing."""
    return [kind for kind in FIGURES if _name(kind, data) not in drawings]


def _name(kind: FigureKind, data: FigureData) -> str:
    return kind.name.format(data.main.figure.lower())
