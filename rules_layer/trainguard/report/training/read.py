"""A run's debug-output read for a report, in as many parts as it takes: each goes on where the one before stopped."""

from collections.abc import Callable, Collection, Mapping

import msgspec

from trainguard.errors import ObjectMissingError, TelemetryFormatError
from trainguard.report.training.digest import Digester, TrainingDigest
from trainguard.tensors.debug.history import RunHistory
from trainguard.tensors.debug.ledger import StepLedger
from trainguard.tensors.files import RunFiles

MOST_UNREAD = 1_000
"""Steps that may be unreadable before the rest of the run is given up."""


class RunPart(msgspec.Struct, kw_only=True):
    """How far a run was read; all of it is stored between two calls.

    Attributes
    ----------
    digest : TrainingDigest
    ledger : StepLedger
        Which steps were taken.
    history : RunHistory
        By which steps find the saved steps before them.
    done : bool
        Whether all steps that were complete are in the digest.
    scalars : bytes
        An encoded `ScalarPart` of the files of scalars; empty where none was read.
    """

    digest: TrainingDigest = msgspec.field(default_factory=TrainingDigest)
    ledger: StepLedger = msgspec.field(default_factory=StepLedger)
    history: RunHistory = msgspec.field(default_factory=RunHistory)
    done: bool = False
    scalars: bytes = b""


def read_on(
    files: RunFiles,
    name: str,
    part: RunPart,
    *,
    wanted: Collection[str] = (),
    confusion: Mapping[str, str] | None = None,
    has_time: Callable[[], bool] = lambda: True,
    ended: bool | None = None,
) -> RunPart:
    """Fold the complete steps after those of a part into its digest, at least one of them.

    Parameters
    ----------
    files : RunFiles
        The files below ``debug-output/``.
    name : str
        What the run is called in errors.
    part : RunPart
    wanted : collection of str
        Tensors to show before others.
    confusion : mapping of str to str
        Parameters of Confusion that name labels and predictions.
    has_time : callable
        Asked after each step; False leaves the rest to the next call.
    ended : bool or None
        Whether the run has ended; None looks for the mark of its end.

    Raises
    ------
    RunMissingError
        When there is no collections file, or none that can be read.
    """
    from trainguard.tensors.debug.replay import complete_steps  # noqa: PLC0415 -- this one imports protobuf
    from trainguard.tensors.debug.run import find_run  # noqa: PLC0415

    run = find_run(files, name)
    run.history = part.history
    digester = Digester(part.digest, wanted=wanted, confusion=confusion)
    while part.digest.unread < MOST_UNREAD:
        try:
            for step in complete_steps(files, run, part.ledger, ended=ended):
                digester.fold(step)
                if not has_time():
                    run.remember(step)
                    digester.done()
                    return part
        except (TelemetryFormatError, ObjectMissingError) as fault:
            part.digest.note_unread(fault)
        else:
            break
    digester.done()
    part.done = True
    return part


def encode_part(part: RunPart) -> bytes:
    """Return a part as JSON."""
    return msgspec.json.encode(part)


def decode_part(body: bytes, name: str) -> RunPart:
    """Read a part back; raises TelemetryFormatError, which names it, when it is none."""
    try:
        return msgspec.json.decode(body, type=RunPart)
    except (msgspec.MsgspecError, RecursionError) as fault:
        raise TelemetryFormatError(name, str(fault)) from fault
