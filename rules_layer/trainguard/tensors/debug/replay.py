"""All complete steps of a run whose files lie there already, in order."""

from collections.abc import Iterator

from trainguard.tensors.debug.keys import END_NAMES, matched_files
from trainguard.tensors.debug.ledger import StepLedger
from trainguard.tensors.debug.run import DebugRun
from trainguard.tensors.debug.step import DebugStep
from trainguard.tensors.files import RunFiles


def complete_steps(
    files: RunFiles, run: DebugRun, ledger: StepLedger, *, ended: bool | None = None
) -> Iterator[DebugStep]:
    """Iterate over the complete steps of a run, in order; each is remembered when the next one is asked for.

    Parameters
    ----------
    files : RunFiles
    run : DebugRun
    ledger : StepLedger
        One that knows nothing yet, or what an earlier call left: then the steps after those come.
    ended : bool or None
        Whether the run has ended; None looks for the mark of its end.

    Raises
    ------
    TelemetryFormatError
        When an index file cannot be read. Call this again with the ledger for the steps after it.
    """
    for file in matched_files(files, "collections/"):
        ledger.add_collections(file.worker, run.collections.workers)
    for file in matched_files(files, "index/"):
        ledger.add_index(file.step, file.worker)
        yield from _taken(run, ledger)
    if ended or (ended is None and has_ended(files)):
        ledger.end()
    yield from _taken(run, ledger)


def has_ended(files: RunFiles) -> bool:
    """Whether the mark of a run's end is there."""
    return any(name in END_NAMES for end in END_NAMES for name in files.names(end))


def _taken(run: DebugRun, ledger: StepLedger) -> Iterator[DebugStep]:
    while complete := ledger.take():
        step = run.open_step(complete.step, complete.workers)
        yield step
        run.remember(step)
