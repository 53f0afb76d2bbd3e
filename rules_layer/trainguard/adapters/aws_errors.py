"""Where errors of the AWS client library become errors of TrainGuard, and the only place that knows their shape."""

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError

from trainguard.errors import PortUnavailableError


def error_code(error: ClientError) -> str:
    """Return the service's error code, such as ``ConditionalCheckFailedException``."""
    return error.response.get("Error", {}).get("Code", "")


@contextmanager
def translated(service: str, operation: str) -> Iterator[None]:
    """Turn what the client library raises inside the block into PortUnavailableError.

    An adapter that gives a code a meaning of its own (an object that is missing, a condition that does not hold)
    catches it inside the block. Everything else, throttling and denied access alike, is a call that may succeed later.
    """
    try:
        yield
    except ClientError as error:
        message = error.response.get("Error", {}).get("Message", "no message")
        raise PortUnavailableError(service, operation, f"{error_code(error)}: {message}") from error
    except BotoCoreError as error:
        raise PortUnavailableError(service, operation, f"{type(error).__name__}: {error}") from error
