"""``trainguard kernels``."""

from pathlib import Path
from typing import Annotated

import typer

from trainguard.cli.options import AsJson, FailOnFire, out_option


def kernels(
    source: Annotated[
        str,
        typer.Argument(
            metavar="TRACE",
            help="A trace of the PyTorch profiler, a folder of them, or s3://bucket/key-or-prefix.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[Path, out_option("Folder for kernels.json.")],
    fail_on_fire: FailOnFire = False,
    as_json: AsJson = False,
) -> None:
    """Judge traces of the PyTorch profiler: the GPU's time by kernel, step and cause, with advice.

    Exit code 0: the traces were judged, whatever was found. 1: a rule fired and --fail-on-fire was given. 2: they could
    not be read. 3: no trace has any work of a GPU.

    Examples: `trainguard kernels worker0.pt.trace.json.gz --out kernels`,
    `trainguard kernels ./traces --out kernels --json`, `trainguard kernels s3://my-bucket/my-job/traces --out kernels`
    """
    from trainguard.cli.commands.kernels.run import KernelsRequest, kernels_command

    request = KernelsRequest(source=source, out=out, fail_on_fire=fail_on_fire, as_json=as_json)
    raise typer.Exit(kernels_command(request))
