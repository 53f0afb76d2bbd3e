"""``trainguard kernels``."""

import time
from pathlib import Path
from typing import Annotated

import typer

from trainguard.cli.command import Result, command
from trainguard.cli.options import argument, compare_option, option, out_option, refuse, since_option, status_option

STATUSES = ("judged", "judged in part", "not judged", "unreadable")
FRAMEWORKS = ("pytorch", "jax", "tensorflow", "xla", "unknown")


@command(fails_on_fire=True)
def kernels(
    source: Annotated[
        str,
        argument(
            "TRACE",
            "A trace or memory snapshot of PyTorch, a profile of XLA (xplane.pb), an SQLite export of Nsight Systems, "
            "a folder of them, or s3://bucket/key-or-prefix.",
        ),
    ],
    *,
    out: Annotated[
        Path | None, out_option("Folder for kernels.json and kernels.html; without, nothing is written.")
    ] = None,
    compare: Annotated[str | None, compare_option("Other traces: what changed since them.")] = None,
    model_tflops: Annotated[
        float | None,
        typer.Option(
            "--model-tflops",
            metavar="TFLOP",
            min=0.0,
            help="10^12 operations that the model needs for a step of a rank, for its MFU; else 3 x the forward pass.",
        ),
    ] = None,
    gpu: Annotated[
        str, option("--gpu", "NAME", "The GPU of traces that do not name theirs, such as 'AMD Instinct MI300X'.")
    ] = "",
    listing: Annotated[
        bool, typer.Option("--list", help="List the profiles below a folder or prefix; read no trace.")
    ] = False,
    name: Annotated[str, option("--name", "TEXT", "With --list: part of the name.")] = "",
    since: Annotated[float | None, since_option("With --list: profiles of the last 30d, …")] = None,
    status: Annotated[str, status_option(f"With --list: {', '.join(STATUSES)}.", metavar="STATUS")] = "",
    framework: Annotated[str, option("--made-with", "NAME", f"With --list: {', '.join(FRAMEWORKS)}.")] = "",
    finding: Annotated[str, option("--finding", "RULE", "With --list: a rule that fires.")] = "",
) -> Result:
    """Judge kernel traces: the GPU's time by kernel, step and cause, and its memory, with advice.

    Traces are those of PyTorch's profiler, of JAX and TensorFlow, and SQLite exports of Nsight Systems. Snapshots of
    PyTorch's allocator (torch.cuda.memory) are judged alone or beside traces.

    Exit code 0: the traces were judged, whatever was found. 1: a rule fired and --fail-on-fire was given. 2: they could
    not be read. 3: no trace has any work of a GPU.

    Examples: `trainguard kernels worker0.pt.trace.json.gz`,
    `trainguard kernels logs/plugins/profile --out kernels`, `trainguard kernels report.sqlite --out kernels`,
    `trainguard kernels ./traces --out kernels --json`, `trainguard kernels s3://my-bucket/my-job/traces --out kernels`,
    `trainguard kernels ./today --compare ./yesterday --out kernels`,
    `trainguard kernels s3://my-bucket/jobs --list --since 30d --finding LaunchBound`
    """
    if listing:
        refuse("--list", {"--out": out, "--compare": compare, "--model-tflops": model_tflops, "--gpu": gpu})
        for named, word, words in (("--status", status, STATUSES), ("--made-with", framework, FRAMEWORKS)):
            if word and word not in words:
                raise typer.BadParameter(f"{word!r} is none of {', '.join(words)}", param_hint=named)
        from trainguard.cli.commands.kernels.listed import listed
        from trainguard.cli.services.names import rule_named
        from trainguard.kernels.listing import ListingRequest
        from trainguard.rules.family_rules import bare

        if finding:
            finding = rule_named(f"kernels/{bare(finding)}")
        after = None if since is None else time.time() - since
        return listed(
            source, ListingRequest(name=name, since=after, status=status, framework=framework, finding=finding)
        )
    chosen = {"--name": name, "--since": since, "--status": status, "--made-with": framework, "--finding": finding}
    refuse("a trace that is judged: they go with --list", chosen)
    from trainguard.cli.commands.kernels.judged import judged

    return judged(source, out, compare, model_tflops=model_tflops, gpu=gpu)
