"""Has the evaluator take in the verdict on a capture."""

from trainguard.engine.streams.session import SILENT_S
from trainguard.kernels.captures.keys import ALL_RANKS, KERNELS
from trainguard.ports import NodeTask, TaskQueue
from trainguard.report.captures.plan import CaptureCall


def notify_evaluator(tasks: TaskQueue, call: CaptureCall, *, now: float) -> None:
    """Send the task of the tick, ahead of time; raises PortUnavailableError when it was not taken.

    Parameters
    ----------
    tasks : TaskQueue
    call : CaptureCall
    now : float
        Epoch seconds.
    """
    tasks.send([NodeTask(call.job, ALL_RANKS, KERNELS, "flush", now - SILENT_S, call.generation)])
