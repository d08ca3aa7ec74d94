"""noise: a synthetic mismatch of the training triplets, drawn once and shared by every method and language."""

from __future__ import annotations

from ccr_cli.artifacts import base, dataset, noise
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data import mismatch as draw
from ccr_cli.errors import no_share


def make_noise(
    workspace: Workspace,
    data: base.Artifact,
    ratio: float,
    *,
    style: str = "caption",
    target: str = "translation",
    seed: int = 0,
    name: str | None = None,
    force: bool = False,
) -> base.Artifact:
    """Draws which training triplets are mismatched.

    Args:
        workspace: Where to.
        data: The dataset artifact, its only parent.
        ratio: Nominal share of mismatched triplets.
        style: `caption` (singly) or `image` (all captions of an item together).
        target: `translation` (T alone) or `pair` (S and T together).
        seed: Seed of the draw.
        name: Name of the artifact.
        force: Draw again.

    Returns:
        The noise artifact.

    Raises:
        UsageError: If the ratio is not one, or there is no such style or target.
    """
    if not 0 < ratio <= 1:
        raise no_share("--noise ", ratio)
    draw.check(style, target)
    request = {"ratio": ratio, "style": style, "target": target, "seed": seed}
    name = name or f"{style}-{target}-{ratio:g}-seed{seed}"

    def write(site: Build) -> dict[str, int]:
        source = dataset.read(data)
        train = set(source.items.loc[source.items["split"] == "train", "item_id"])
        captions = source.captions[source.captions["lang"] == source.source_lang]
        pairs = draw.mismatch(captions[captions["item_id"].isin(train)], ratio, style, target, seed)
        write_table(site.folder / "pairs.parquet", pairs, noise.PAIRS)
        wrong = int((pairs["vt_wrong"] | pairs["vs_wrong"]).sum())
        facts = {**request, "nominal": ratio, "effective": wrong / max(len(pairs), 1)}
        base.write_json(site.folder / "noise.json", facts)
        return {"triplets": len(pairs), "mismatched": wrong}

    return build_artifact(workspace, "noise", name, request, [data], write=write, force=force)
