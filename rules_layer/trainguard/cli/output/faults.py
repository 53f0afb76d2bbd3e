"""Faults on stderr: one sentence with what to do, also where AWS's answer is behind it."""

from trainguard.cli.output.terminal import print_note
from trainguard.errors import PortUnavailableError, TrainGuardError


def print_fault(fault: TrainGuardError) -> None:
    """Print a fault to stderr, with what to do about it where AWS's answer is behind it."""
    print_note(f"trainguard: {advised_fault(fault)}")


def advised_fault(fault: TrainGuardError) -> TrainGuardError:
    """Return the fault, or one that says what to do where AWS's answer is behind it."""
    behind: BaseException | None = fault
    while behind is not None and not isinstance(behind, PortUnavailableError):
        behind = behind.__cause__
    if behind is None:
        return fault
    # The AWS client library takes long to import, and has been where such a fault comes from.
    from trainguard.cli.output.aws_advice import advised

    with_advice = advised(behind)
    return fault if with_advice is behind else with_advice
