"""The functions as they are deployed, on moto: each takes any event, and answers or fails by a name."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest
from moto import mock_aws

from tests.functional.deployment import (
    BUCKET,
    JOB,
    PREFIX,
    Deployment,
    Function,
    event,
    object_message,
    recorded_objects,
    ringing,
)
from tests.functional.offline import offline_clients
from tests.fuzz.target import Target, documents, of_document
from tests.support.printing import printed
from tests.unit.actions.test_ops_items import MemoryOpsItems
from trainguard.aws.dynamodb.central import statement_of
from trainguard.core.errors import TrainGuardError
from trainguard.core.records import JobRecord

# A named error; msgspec refuses an event of our own state machines that has another shape, and the call fails.
REFUSALS = (TrainGuardError, msgspec.ValidationError, UnicodeError)

_RUN = "3f1c2a7e-0d6b-4c88-9a41-6c1b7d2e5f90"
_PLACE = {"job": JOB, "bucket": BUCKET, "prefix": PREFIX}
_CAPTURE = {
    **_PLACE,
    "capture": "20260714T093000Z-0123abcd",
    "run": _RUN,
    "generation": 0,
    "folder": f"{PREFIX}{JOB}/k/",
}
_TRACE = {**_PLACE, "key": "k", "name": "n", "etag": "e", "rows": 10}
_MADE = JobRecord(
    job=JOB, arn=f"arn:aws:sagemaker:us-east-1:111122223333:training-job/{JOB}", bucket=BUCKET, prefix=PREFIX
)
_STATEMENT = msgspec.to_builtins(statement_of(_MADE, [], stack="TrainGuard", region="us-east-1", now=1_800_000_000.0))
_STOP = {"asker": "arn:aws:lambda:us-east-1:111122223333:function:DecideStop", "fire_id": "f1", "job": JOB}
_BROKEN_GPU = {
    **dict.fromkeys(("job", "job_arn", "reason", "report_uri", "fired_at"), "x"),
    "node": "algo-1",
    "finding_kind": "xid",
    "facts": [{"name": "xid", "value": 79, "node": "algo-1", "device": "gpu3"}],
}
_RUN_FILE = event("s3_object_created_system")
_NAMES: dict[str, tuple[str, ...]] = {
    "evaluate_objects": ("sqs_objects", "sqs_task_flush", "sqs_task_close", "sqs_training_job_end", "sqs_rule_output"),
    "scheduler": ("scheduler",),
    "reconcile_job": ("reconcile_job",),
    "job_lifecycle": ("training_job_in_progress", "training_job_completed", "training_job_failed"),
    "decide_stop": ("decide_stop", "decide_stop_final"),
    "send_alert": ("send_alert", "send_alert_cleared", "send_alert_stop_refused", "send_alert_warning"),
    "build_report": ("build_report_full", "build_report_fire", "build_report_state", "build_report_drop"),
    "plan_report": ("plan_report",),
    "digest_profile": ("digest_profile",),
}
_FIRE = event("send_alert")["fire"]
# What a function's state machine has called before it, which leaves a list in the bucket.
_BEFORE = {"build_report": "plan_report", "join_capture": "plan_capture"}

_DOCUMENTS: dict[str, tuple[dict[str, Any], ...]] = {
    "poll_source": ({"job": JOB, "at": 1_800_000_000.0}, _RUN_FILE),
    "canary": (
        {"step": "plant", "time": "2026-11-21T08:01:00Z"},
        {"step": "look", "time": "2026-11-21T08:31:00Z"},
        {"step": "end", "time": "2026-11-21T08:46:00Z"},
    ),
    "verdict": ({"path": "/verdict", "query": f"job={JOB}", "method": "GET", "headers": {"host": "h"}, "body": ""},),
    "weekly_digest": ({"time": "2026-11-23T07:00:00Z"},),
    "record_fire": ({"fire": _FIRE}, {"fire": _FIRE, "alert": {"action": "sent", "alertId": "a"}}),
    "stop_job": ({"fire": _FIRE, "decision": {"stop": True, "decision": "stop"}},),
    "plan_capture": (_CAPTURE,),
    "digest_trace": (_TRACE,),
    "join_capture": (_CAPTURE,),
    "send_statements": ({"time": "2026-11-23T11:00:00Z"}, {"time": "2026-11-23T11:00:00Z", "job": JOB}),
    "keep_statement": ({"account": "111122223333", "detail": _STATEMENT},),
    "admit_stop": (_STOP,),
    "open_ops_items": ({"detail": _BROKEN_GPU},),
    "draw_fleet": ({"time": "2026-11-23T07:00:00Z"},),
}


class _Bus:
    """An organisation's bus, which takes all."""

    def put_events(self, *, Entries: list[Any]) -> dict[str, Any]:  # noqa: N803 -- of boto3
        return {"FailedEntryCount": 0, "Entries": [{} for _ in Entries]}


class _Deployed:
    """One function, with the recorded job's first minutes in its stores while ``around`` is entered."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._function: Function | None = None

    @contextmanager
    def around(self) -> Iterator[None]:
        """Deploy it on an empty moto."""
        with ExitStack() as stack:
            output = stack.enter_context(printed())
            stack.enter_context(mock_aws())
            patched = stack.enter_context(pytest.MonkeyPatch.context())
            clients = offline_clients()
            deployment = Deployment(clients, patched, output)
            for topic in ("alerts", "chat"):
                clients.sns.create_topic(Name=topic)
            deployment.create_training_job()
            first = recorded_objects()[:3]
            deployment.put(first)
            messages = [object_message(each.key, at=each.appears_at) for each in first]
            deployment.function("evaluate_objects")(ringing(messages))
            if (before := _BEFORE.get(self._name)) is not None:
                deployment.function(before)(_given(before)[0])
            self._function = deployment.function(self._name)
            if self._name == "send_statements":
                vars(self._function.module)["bus"] = _Bus()
            if self._name == "open_ops_items":
                vars(self._function.module)["ops_items"] = MemoryOpsItems()
            yield
        self._function = None

    def read(self, given: Any) -> object:
        """Call it with an event."""
        if self._function is None:
            raise RuntimeError(f"{self._name} is not deployed: enter the target's `around` first")
        return self._function(_request(given) if self._name == "verdict" else given).value


def _request(given: Any) -> dict[str, Any]:
    """Return the event of a function's URL: a caller chooses path, query, method, headers and body, and no more."""
    chosen = given if isinstance(given, dict) else {"path": given}
    path, query, method = (str(chosen.get(name)) for name in ("path", "query", "method"))
    headers = chosen.get("headers")
    named = {str(name).lower(): str(value) for name, value in headers.items()} if isinstance(headers, dict) else {}
    request: dict[str, Any] = {"version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": query}
    request |= {"headers": named, "body": str(chosen.get("body")), "isBase64Encoded": False}
    if parameters := dict(parse_qsl(query, keep_blank_values=True)):
        request["queryStringParameters"] = parameters
    http = {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1", "userAgent": "any"}
    return request | {"requestContext": {"http": http, "stage": "$default", "requestId": "r", "accountId": "1"}}


def _given(name: str) -> list[Any]:
    """Return events that a function takes."""
    return [*(event(each) for each in _NAMES.get(name, ())), *_DOCUMENTS.get(name, ())]


def _target(name: str) -> Target:
    function = _Deployed(name)
    return Target(
        f"function {name}",
        documents(*_given(name)),
        of_document(function.read),
        REFUSALS,
        function.around,
    )


# All functions of the stack; a test compares them with the folder ``lambdas``.
FUNCTION_TARGETS = tuple(_target(name) for name in sorted(_NAMES.keys() | _DOCUMENTS.keys()))
