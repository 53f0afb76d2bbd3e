"""One Lambda execution environment: requests in on stdin, results out on the descriptor named by argv[1].

Both are one JSON object a line, the first one out about the handler. After each invocation a line with ``END_OF_LOG``
ends the log. The file runs under the function's interpreter: it imports the standard library alone.
"""

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any

END_OF_LOG = "\x1eEND-OF-LOG"


class HandlerLoadError(Exception):
    """The handler's module or the handler in it cannot be loaded; `error` is what AWS reports for that."""

    def __init__(self, error: dict[str, object]) -> None:
        super().__init__(error["errorMessage"])
        self.error = error


@dataclass(frozen=True)
class LambdaContext:
    """The context object that AWS hands to a Python handler."""

    aws_request_id: str
    invoked_function_arn: str
    deadline_s: float
    function_name: str = field(default_factory=lambda: os.environ["AWS_LAMBDA_FUNCTION_NAME"])
    function_version: str = field(default_factory=lambda: os.environ["AWS_LAMBDA_FUNCTION_VERSION"])
    memory_limit_in_mb: str = field(default_factory=lambda: os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"])
    log_group_name: str = field(default_factory=lambda: os.environ["AWS_LAMBDA_LOG_GROUP_NAME"])
    log_stream_name: str = field(default_factory=lambda: os.environ["AWS_LAMBDA_LOG_STREAM_NAME"])
    identity: None = None
    client_context: None = None

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int((self.deadline_s - time.monotonic()) * 1000))


Handler = Callable[[Any, LambdaContext], Any]


def describe_error(error: BaseException, *, error_type: str | None = None) -> dict[str, object]:
    """Return `error` in the form in which AWS reports a failed Python function."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename != __file__]
    return {
        "errorMessage": str(error),
        "errorType": error_type or type(error).__name__,
        "stackTrace": traceback.format_list(own),
    }


def load_handler(reference: str) -> Handler:
    """Import the handler named ``package/module.function``; raises HandlerLoadError with AWS's types and messages."""
    module_name, _, function_name = reference.rpartition(".")
    try:
        module = importlib.import_module(module_name.replace("/", "."))
    except ImportError as error:
        report = describe_error(error, error_type="Runtime.ImportModuleError")
        report["errorMessage"] = f"Unable to import module '{module_name}': {error}"
        raise HandlerLoadError(report) from error
    except SyntaxError as error:
        report = describe_error(error, error_type="Runtime.UserCodeSyntaxError")
        report["errorMessage"] = f"Syntax error in module '{module_name}': {error}"
        raise HandlerLoadError(report) from error
    except Exception as error:
        raise HandlerLoadError(describe_error(error)) from error
    handler: Handler | None = getattr(module, function_name, None)
    if handler is None:
        message = f"Handler '{function_name}' missing on module '{module_name}'"
        raise HandlerLoadError({"errorMessage": message, "errorType": "Runtime.HandlerNotFound", "stackTrace": []})
    return handler


def invoke(handler: Handler, request: dict[str, Any]) -> dict[str, object]:
    """Run `handler` on one request and return the reply line: ``{"ok": bool, "payload": JSON text}``."""
    request_id = request["invoke-id"]
    timeout_s = float(os.environ.get("AWS_LAMBDA_FUNCTION_TIMEOUT", "3"))
    context = LambdaContext(
        aws_request_id=request_id,
        invoked_function_arn=request["invoked-function-arn"],
        deadline_s=time.monotonic() + timeout_s,
    )
    os.environ["_X_AMZN_TRACE_ID"] = request.get("trace-id", "")
    try:
        result = handler(json.loads(request["payload"] or "null"), context)
    except Exception as error:
        report = describe_error(error) | {"requestId": request_id}
        trace = "".join(traceback.format_exception(error))
        sys.stderr.write(f"[ERROR] {report['errorType']}: {report['errorMessage']}\n{trace}")
        return {"ok": False, "payload": json.dumps(report)}
    try:
        return {"ok": True, "payload": json.dumps(result)}
    except (TypeError, ValueError) as error:
        report = describe_error(error, error_type="Runtime.MarshalError") | {"requestId": request_id}
        report["errorMessage"] = f"Unable to marshal response: {error}"
        return {"ok": False, "payload": json.dumps(report)}


def _send(replies: IO[str], reply: dict[str, object]) -> None:
    sys.stderr.flush()
    sys.stdout.write(END_OF_LOG + "\n")
    sys.stdout.flush()
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


def main() -> int:
    """Serve requests until stdin ends, which also happens when the emulator dies."""
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as replies:
        try:
            handler = load_handler(os.environ["_HANDLER"])
        except HandlerLoadError as failure:
            sys.stderr.write(f"[ERROR] {failure.error['errorType']}: {failure}\n")
            _send(replies, {"ready": False, "error": failure.error})
            return 1
        _send(replies, {"ready": True})
        for line in sys.stdin:
            _send(replies, invoke(handler, json.loads(line)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
