"""The stack's table and parameters, as the cluster's own role may use them; boto3 is imported here alone."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Optional

from trainguard_collector.agent.resources import Request

_REQUEST = frozenset(each.name for each in fields(Request))
_KEPT_S = 400 * 86_400
_STATE_KEPT_S = 7 * 86_400
_ALLOWED = "enabled"
_HOLD_STOPS = ("stops", "evaluation")


class StackDesk:
    """See `Desk`; ``clock`` is AWS's time, by which a request is over."""

    def __init__(self, table: str, stack: str, cluster: str, clients: Any = None) -> None:
        if clients is None:
            import boto3
            from botocore.config import Config

            limits = Config(connect_timeout=5, read_timeout=15, retries={"mode": "standard", "max_attempts": 3})
            region = table.split(":")[3] if table.startswith("arn:") else None
            clients = [boto3.client(each, region_name=region, config=limits) for each in ("dynamodb", "ssm")]
        self._dynamodb, self._ssm = clients
        self._table, self._stack = table, stack
        self._read, self._written = f"requests/{cluster}", f"agents/{cluster}"
        self._ahead_s = 0.0

    def clock(self) -> float:
        """Return epoch seconds as AWS had them in its last answer."""
        return time.time() + self._ahead_s

    def requests(self) -> "list[Request]":
        found: list[Request] = []
        with _as_os_errors("query"):
            for page in self._dynamodb.get_paginator("query").paginate(
                TableName=self._table,
                KeyConditionExpression="Purpose = :partition",
                ExpressionAttributeValues={":partition": {"S": self._read}},
                ConsistentRead=True,
            ):
                self._note_clock(page)
                found += filter(None, map(_request, page["Items"]))
        return found

    def publish(self, resource: str, state: "dict[str, Any]") -> None:
        self._put(f"state/{resource}", state, _STATE_KEPT_S)

    def withdraw(self, resource: str) -> None:
        self._called(self._dynamodb.delete_item, Key=self._key(f"state/{resource}"))

    def begin(self, request_id: str) -> Optional[str]:
        try:
            self._put(f"answer/{request_id}", {"stage": "begun"}, _KEPT_S, "attribute_not_exists(Id)")
        except _TakenError:
            return self.stage(request_id)
        return None

    def stage(self, request_id: str) -> Optional[str]:
        found = self._called(self._dynamodb.get_item, Key=self._key(f"answer/{request_id}"), ConsistentRead=True)
        if "Item" not in found:
            return None
        try:
            return str(json.loads(found["Item"]["Document"]["S"])["stage"])
        except (KeyError, TypeError, ValueError):
            return "closed"

    def finish(self, request_id: str, stage: str, why: str) -> None:
        self._put(f"answer/{request_id}", {"stage": stage, "why": why[:500]}, _KEPT_S)

    def objection(self, job: str, rule: str, now: float) -> Optional[str]:
        names = [f"/{self._stack}/{each}" for each in ("stop-switch", "stop-switch-override", "brakes")]
        with _as_os_errors("GetParameters"):
            answer = self._ssm.get_parameters(Names=names)
        values = {each["Name"]: each["Value"] for each in answer.get("Parameters", ())}
        if values.get(names[0]) != _ALLOWED:
            return f"the stop switch is {values.get(names[0])!r}"
        if values.get(names[1], _ALLOWED) != _ALLOWED:
            return f"the stop switch's override is {values[names[1]]!r}"
        return braked(values.get(names[2]), job, rule, now)

    def _key(self, name: str) -> "dict[str, Any]":
        return {"Purpose": {"S": self._written}, "Id": {"S": name}}

    def _put(self, name: str, document: "dict[str, Any]", kept_s: int, condition: "Optional[str]" = None) -> None:
        item = {
            **self._key(name),
            "Document": {"S": json.dumps(document)},
            "ExpiresAt": {"N": str(int(self.clock()) + kept_s)},
        }
        self._called(
            self._dynamodb.put_item, Item=item, **({} if condition is None else {"ConditionExpression": condition})
        )

    def _called(self, call: Any, **given: Any) -> "dict[str, Any]":
        with _as_os_errors(call.__name__):
            answer: dict[str, Any] = call(TableName=self._table, **given)
        self._note_clock(answer)
        return answer

    def _note_clock(self, answer: "dict[str, Any]") -> None:
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        if date:
            self._ahead_s = parsedate_to_datetime(date).timestamp() - time.time()


class _TakenError(Exception):
    """A conditional write found something there."""


@contextmanager
def _as_os_errors(what: str) -> "Iterator[None]":
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as fault:
        if fault.response.get("Error", {}).get("Code") == "ConditionalCheckFailedException":
            raise _TakenError from fault
        raise OSError(f"{what}: {fault}") from fault
    except BotoCoreError as fault:
        raise OSError(f"{what}: {fault}") from fault


def _request(item: "dict[str, Any]") -> Optional[Request]:
    """Return a request; None for one of another version, which is not carried out."""
    try:
        document = json.loads(item["Document"]["S"])
        if document.pop("schema_version") != 1 or set(document) != _REQUEST:
            return None
        return Request(**{**document, "expires_at": float(document["expires_at"])})
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def braked(document: Optional[str], job: str, rule: str, now: float) -> Optional[str]:
    """Return the operators' brake that forbids stops; what cannot be read forbids them."""
    if document is None:
        return None
    try:
        for brake in json.loads(document):
            if brake["what"] not in ("alerts", *_HOLD_STOPS):
                return f"a brake of the kind {brake['what']!r} is not known"
            covers = brake.get("job") in (None, job) and brake.get("rule") in (None, rule)
            until = brake.get("until")
            ended = until is not None and now >= datetime.fromisoformat(until.replace("Z", "+00:00")).timestamp()
            if brake["what"] in _HOLD_STOPS and covers and not ended:
                return f"an operator has braked {brake['what']}: brake {brake['id']}"
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        return f"an operators' brake cannot be read: {fault!r}"
    return None
