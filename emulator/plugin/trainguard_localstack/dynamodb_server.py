"""The DynamoDB engine: moto's DynamoDB behind HTTP, corrected in three places on which conditional writes depend.

moto checks and writes in two steps, cannot serialise an old item with a nested Binary, and counts base64 text. Runs as
its own process, ``python -m trainguard_localstack.dynamodb_server PORT``, and ends with its parent.
"""

import base64
import json
import os
import sys
import threading
from types import SimpleNamespace

from moto.dynamodb import exceptions
from moto.dynamodb.models.dynamo_type import DynamoType
from moto.dynamodb.models.utilities import dynamo_json_dump
from moto.dynamodb.responses import DynamoHandler
from werkzeug.serving import WSGIRequestHandler, run_simple
from werkzeug.wrappers import Request, Response

from .dynamodb_updates import check_updates_once

_ONE_REQUEST_AT_A_TIME = threading.RLock()


def make_requests_atomic() -> None:
    """Let one request finish before the next begins."""
    call_action = DynamoHandler.call_action

    def call_alone(handler: DynamoHandler) -> object:
        with _ONE_REQUEST_AT_A_TIME:
            return call_action(handler)

    DynamoHandler.call_action = call_alone


def return_binary_of_failed_conditions() -> None:
    """Serialise the items in moto's error messages as DynamoDB's JSON, in which bytes are base64 text."""
    exceptions.json = SimpleNamespace(dumps=dynamo_json_dump, loads=json.loads)


def measure_binary_by_its_bytes() -> None:
    """Count a Binary's bytes, not its base64 text."""
    size_of_others = DynamoType.size

    def size(value: DynamoType) -> int:
        if not value.is_binary():
            return size_of_others(value)
        return len(value.value if isinstance(value.value, bytes) else base64.b64decode(value.value))

    DynamoType.size = size


def end_with_parent() -> None:
    """Exit when stdin ends: that is when the emulator has ended, in whatever way."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


class _KeepAlive(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_args: object) -> None:
        pass


@Request.application
def application(request: Request) -> Response:
    status, headers, body = DynamoHandler.dispatch(request, request.url, request.headers)
    return Response(body, status, headers)


def main() -> None:
    make_requests_atomic()
    return_binary_of_failed_conditions()
    measure_binary_by_its_bytes()
    check_updates_once()
    end_with_parent()
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=_KeepAlive)


if __name__ == "__main__":
    main()
