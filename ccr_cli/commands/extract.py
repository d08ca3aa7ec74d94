"""ccr extract."""

import typer

from ccr_cli.commands import common as c
from ccr_cli.stages.extract.options import ExtractOptions, ReadyFeatures
from ccr_cli.stages.shared.options import list_options


@c.guarded
def extract(
    context: typer.Context,
    *,
    options: ExtractOptions,
    existing: ReadyFeatures,
    division: c.Division,
    call: c.BuildCall,
) -> None:
    """Turn media into features with a frozen encoder.

    Reads a dataset and writes features in float16. Items that cannot be decoded are recorded in failures.jsonl, and
    the exit code is 3. --from imports ready-made features, matched by item id; --concat joins features artifacts of one
    data set side by side.
    """
    inputs = call.inputs()
    if "help" in options.settings and (options.encoder or len(inputs.all("dataset")) != 1):  # else its encoder's
        list_options("encoders", options.encoder or "clip")
    from ccr_cli.stages.extract.existing import ready_made

    made = ready_made(inputs, existing, options, c.flags_given(context))
    if made is None:
        from ccr_cli.stages.extract.stage import extract as stage
        from ccr_cli.stages.extract.stage import extract_part
        from ccr_cli.stages.shared.sharding import on_ray, parse_part

        ray = on_ray(division.executor, division.parts, division.shard)
        part = None if division.shard is None else parse_part(division.shard)
        if part is not None and not call.dry_run:
            counts = extract_part(inputs, options, part)
            if call.json:
                c.show_part(inputs, division, extracted=counts)
            return
        if ray:
            from ccr_cli.stages.ray_executor import extract_on_ray

            made = extract_on_ray(inputs, options, division.parts)
        else:
            made = stage(inputs, options)
    if made is None:  # this process is not the first of torchrun
        return
    inputs.note(*(artifact for artifact in inputs.named if artifact.id != made.id))
    c.emit(inputs, [made], call.json)


EPILOG = c.examples(
    "ccr extract",
    "ccr extract datasets/noto-emoji --encoder efficientnet-lite0 --set image_size=128",
    "ccr extract datasets/mine --encoder clip --set model=openai/clip-vit-base-patch32 --media-root /data/images",
    "ccr extract datasets/vatex --from vatex-i3d --encoder-name i3d",
    "ccr extract datasets/f30k --from train_ims.npy --ids train_ids.txt --from test_ims.npy --ids test_ids.txt",
    "ccr extract --concat features/msrvtt/resnext101 features/msrvtt/resnet152 --name resnext101-resnet152",
    "ccr extract datasets/vatex --encoder clip --set fps=2 --media-root /data/vatex --shard 3/64",
    "ccr translate --lang es | ccr extract -",
)
