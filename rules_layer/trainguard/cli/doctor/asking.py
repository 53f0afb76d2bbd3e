"""How a check asks AWS: a question that is not answered ends that check and no other."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from botocore.exceptions import BotoCoreError, ClientError

from trainguard.adapters.aws_errors import error_code
from trainguard.errors import TrainGuardError

_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation", "403"})


_GONE = frozenset(
    {"ResourceNotFoundException", "ParameterNotFound", "NotFound", "NotFoundException", "StateMachineDoesNotExist"}
    | {"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "NoSuchBucket"}
)
"""What the services say of something that the stack has made and somebody has deleted."""


class Why(Enum):
    """Why AWS does not answer."""

    DENIED = "denied"
    GONE = "gone"
    OTHER = "other"


class UnansweredError(TrainGuardError):
    """A question that AWS did not answer.

    ``action`` is what IAM calls it, ``why`` whether it may not be asked, what it asks for is gone, or neither.
    """

    def __init__(self, action: str, reason: str, why: Why) -> None:
        self.action = action
        self.reason = reason
        self.why = why
        super().__init__(f"{action} was not answered: {reason}, expected an answer")


@contextmanager
def asking(action: str) -> Iterator[None]:
    """Turn what the client library raises inside the block into UnansweredError.

    A check that gives a code a meaning of its own (a bucket that does not exist) catches it inside the block.

    Parameters
    ----------
    action : str
        What IAM must allow for the call, for example ``lambda:GetFunctionConfiguration``.
    """
    try:
        yield
    except ClientError as error:
        said = error.response.get("Error", {}).get("Message", "no message").rstrip(".")
        raise UnansweredError(action, f"{error_code(error)}: {said}", _why(error_code(error))) from error
    except BotoCoreError as error:
        raise UnansweredError(action, f"{type(error).__name__}: {error}".rstrip("."), Why.OTHER) from error


def _why(code: str) -> Why:
    if code in _DENIED:
        return Why.DENIED
    return Why.GONE if code in _GONE else Why.OTHER
