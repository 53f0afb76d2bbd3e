"""Errors of what a command is asked for."""

from collections.abc import Sequence

from trainguard.core.error_base import TrainGuardError


class OutputError(TrainGuardError):
    """A folder or file into which reports cannot be written."""

    def __init__(self, place: str, reason: str) -> None:
        self.place = place
        self.reason = reason
        super().__init__(f"output {place!r} cannot be written: {reason}; expected a folder that can be")


class RequestError(TrainGuardError):
    """A request on the command line that cannot be carried out; ``remedy`` is a sentence."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(f"{what}. {remedy}")


class UnknownNameError(TrainGuardError):
    """A name for which there is nothing; ``similar`` are names that it may stand for."""

    def __init__(self, kind: str, name: str, place: str, similar: Sequence[str]) -> None:
        self.kind = kind
        self.name = name
        self.similar = tuple(similar)
        perhaps = f"; perhaps you mean {' or '.join(similar)}" if similar else ""
        super().__init__(f"there is no {kind} {name!r} in {place}{perhaps}")
