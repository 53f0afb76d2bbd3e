"""Errors of what a command is asked for and of the stack that it works with, and the base of all errors."""

from collections.abc import Sequence


class TrainGuardError(Exception):
    """Base of everything that TrainGuard raises on purpose."""


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


class DeploymentError(TrainGuardError):
    """A deployed stack that a command cannot work with; ``remedy`` is a sentence."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(f"{what}. {remedy}")


class CredentialsError(DeploymentError):
    """AWS credentials that are missing, expired or not accepted."""


class RegionError(DeploymentError):
    """No Region to look for the stack in, or none of that name."""


class StackNotFoundError(DeploymentError):
    """A stack that the Region does not have."""


class StackStateError(DeploymentError):
    """A stack whose resources cannot be relied on: being created or deleted, or rolled back."""


class OutputMissingError(DeploymentError):
    """A stack that lacks an output which a command needs."""


class AccessDeniedError(DeploymentError):
    """A call that the credentials in use may not make."""


class ReportRunFailedError(TrainGuardError):
    """An execution of the report machine that ended without a report."""

    def __init__(self, execution: str, status: str, cause: str) -> None:
        self.execution = execution
        self.status = status
        self.cause = cause
        super().__init__(f"execution {execution} ended as {status}: {cause or 'no cause given'}")
