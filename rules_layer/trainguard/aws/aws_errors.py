"""Turns errors of the AWS client library into errors of TrainGuard; no other module knows their shape."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from trainguard.core.errors import PortUnavailableError

Answer = TypeVar("Answer")


def error_code(error: ClientError) -> str:
    """Return the service's error code, such as ``ConditionalCheckFailedException``."""
    return error.response.get("Error", {}).get("Code", "")


@contextmanager
def translated(service: str, operation: str) -> Iterator[None]:
    """Turn the client library's errors into PortUnavailableError; catch a code with its own meaning inside."""
    try:
        yield
    except ClientError as error:
        message = error.response.get("Error", {}).get("Message", "no message")
        raise PortUnavailableError(service, operation, f"{error_code(error)}: {message}") from error
    except BotoCoreError as error:
        raise PortUnavailableError(service, operation, f"{type(error).__name__}: {error}") from error


def unless(codes: Collection[str], call: Callable[[], Answer]) -> Answer | None:
    """Return what a call answers; None where it is refused with one of ``codes``, which are answers, too."""
    try:
        return call()
    except ClientError as error:
        if error_code(error) in codes:
            return None
        raise
