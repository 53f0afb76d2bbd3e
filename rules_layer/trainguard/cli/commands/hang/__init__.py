"""``trainguard hang``."""

from typing import Annotated

from trainguard.cli.command import Result, command
from trainguard.cli.options import argument


@command(fails_on_fire=True)
def hang(
    folder: Annotated[
        str,
        argument(
            "FOLDER",
            "Dumps of PyTorch's flight recorder and stacks of py-spy or faulthandler, one of a rank; or "
            "s3://bucket/prefix.",
        ),
    ],
) -> Result:
    """Say which rank holds up a job that stands still, where it is, who waits for it, and what to do.

    Reads dumps of NCCL, RCCL and gloo, as pickle or JSON; no pickle is loaded. A file's name ends with its rank:
    nccl_trace_rank_12, stack_12.txt. Set TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 to get dumps.

    Exit code 0: it was judged. 1: a rank is named, and --fail-on-fire was given. 2: nothing could be read. 3: no rank
    can be named.

    Examples: `trainguard hang ./dumps`, `trainguard hang ./dumps --json`, `trainguard hang s3://my-bucket/my-job/dumps`
    """
    from trainguard.cli.commands.hang.shown import hang_result
    from trainguard.local.hangs import judge_hang

    return hang_result(folder, judge_hang(folder))
