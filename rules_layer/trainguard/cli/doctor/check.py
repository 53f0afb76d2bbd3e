"""What a check of the doctor finds: a level, a sentence with numbers, and what to do about it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum

from botocore.exceptions import BotoCoreError, ClientError

from trainguard.aws.aws_errors import error_code
from trainguard.core.errors import TrainGuardError

DEPLOY = "Deploy the stack again: `make deploy`."


class Level(StrEnum):
    """Level of a finding; FAIL is what keeps TrainGuard from working."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One line of the diagnosis; ``advice`` is None where all is well, ``command`` is ready for a shell."""

    check: str = ""
    level: Level
    found: str
    advice: str | None = None
    command: str | None = None


Findings = CheckResult | Iterable[CheckResult]
"""What a check returns, its name left out."""


def under_name(name: str, found: Findings) -> Iterator[CheckResult]:
    for each in (found,) if isinstance(found, CheckResult) else found:
        yield replace(each, check=name)


def ok(found: str) -> CheckResult:
    return CheckResult(level=Level.OK, found=found)


def warn(found: str, advice: str, command: str | None = None) -> CheckResult:
    """Return what may do harm, or could not be examined."""
    return CheckResult(level=Level.WARN, found=found, advice=advice, command=command)


def fail(found: str, advice: str, command: str | None = None) -> CheckResult:
    """Return what keeps TrainGuard from working."""
    return CheckResult(level=Level.FAIL, found=found, advice=advice, command=command)


def unless(faults: Sequence[CheckResult], found: str) -> Sequence[CheckResult]:
    """Return the faults; where there is none, that all is well."""
    return faults or (ok(found),)


def span(seconds: float) -> str:
    """Return a duration for people, for example ``12 min``."""
    seconds = max(seconds, 0.0)
    for unit, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation", "403"})
_GONE = frozenset(
    {"ResourceNotFoundException", "ParameterNotFound", "NotFound", "NotFoundException", "StateMachineDoesNotExist"}
    | {"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "NoSuchBucket"}
)
"""Error codes for something that the stack has made and somebody has deleted."""


class UnansweredError(TrainGuardError):
    """A question that AWS did not answer; ``action`` is IAM's name for it, ``code`` that of AWS's error."""

    def __init__(self, action: str, reason: str, code: str = "") -> None:
        self.action = action
        self.reason = reason
        self.is_denied = code in _DENIED
        self.is_gone = code in _GONE
        super().__init__(f"{action} was not answered: {reason}, expected an answer")


@contextmanager
def asking(action: str) -> Iterator[None]:
    """Turn the client library's errors into UnansweredError; ``action`` is what IAM must allow."""
    try:
        yield
    except ClientError as error:
        message = error.response.get("Error", {}).get("Message", "no message").rstrip(".")
        raise UnansweredError(action, f"{error_code(error)}: {message}", error_code(error)) from error
    except BotoCoreError as error:
        raise UnansweredError(action, f"{type(error).__name__}: {error}".rstrip(".")) from error
