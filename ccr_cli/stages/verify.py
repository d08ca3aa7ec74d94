"""verify: everything that later stages would read of an artifact, read once."""

import torch

from ccr_cli.artifacts import base, dataset, diagnosis, evaluation, features, index, noise, run, translation
from ccr_cli.errors import CcrError
from ccr_cli.stages.search.faiss_index import Index
from ccr_cli.stages.shared.load_run import load_method


def malformed(artifact: base.Artifact) -> str | None:
    """What is wrong with the content of an artifact whose hashes are right; None if every file can be used."""
    try:
        _read(artifact)
    except CcrError as error:
        return error.message
    return None


def _read(artifact: base.Artifact) -> None:
    match artifact.kind:
        case "dataset":
            dataset.read(artifact).text_features()
        case "translation":
            translation.read(artifact)
            translation.read_quality(artifact)
            translation.quality(artifact)
        case "noise":
            noise.read(artifact)
            artifact.json("noise.json")
        case "features":
            rows = features.read_index(artifact)
            features.read_rows(artifact, list(rows["item_id"]), pooled=True)
        case "run":
            load_method(artifact, torch.device("cpu"))
            run.history(artifact)
            run.stopped(artifact)
            for _ in run.evidence(artifact):
                pass
        case "evaluation":
            evaluation.results(artifact)
            evaluation.read_ranks(artifact)
            evaluation.read_outside(artifact)
        case "diagnosis":
            diagnosis.summary(artifact)
            diagnosis.read_pairs(artifact)
        case "index":
            Index.open(artifact, len(index.entries(artifact)))
