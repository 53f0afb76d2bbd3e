"""Errors of commands that work with a deployed stack."""

from trainguard.core.error_base import TrainGuardError


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
