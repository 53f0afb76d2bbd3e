"""A bucket's notifications: the stack's among them, the configuration with and without these, and a change of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from botocore.exceptions import ClientError

from trainguard.aws.aws_errors import error_code, translated
from trainguard.aws.dynamodb.stored_form import frozen_mapping
from trainguard.cli.output.rendering import Block, Cell, Grid, Line, TerminalColumn, TerminalFacts
from trainguard.cli.output.result import CommandResult
from trainguard.cli.services.deployment import Deployment
from trainguard.core.canary_name import CANARY_PREFIX
from trainguard.core.errors import RequestError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

EVENT_BRIDGE, QUEUES = "EventBridgeConfiguration", "QueueConfigurations"
_TARGETS: Mapping[str, str] = frozen_mapping(
    {"TopicConfigurations": "TopicArn", QUEUES: "QueueArn", "LambdaFunctionConfigurations": "LambdaFunctionArn"}
)

CREATED = "s3:ObjectCreated:*"
_ANY_CREATED = "s3:ObjectCreated:"

# S3 replaces it as a whole: there is no call that changes a part.
Configuration = Mapping[str, Any]

# One configuration for people: its target, the events, and the keys that it is for.
Entry = tuple[str, str, str]
S3 = "s3.amazonaws.com"
_COLUMNS = (
    TerminalColumn("change"),
    TerminalColumn("to", folds=True),
    TerminalColumn("events"),
    TerminalColumn("keys"),
)
_STYLES = {"added": "green", "removed": "red", "kept": "dim"}
_STAYS = "EventBridge stays on and bills each event. If no other program needs them, add --without-eventbridge."
_SILENT = "The bucket then announces no new object to TrainGuard."


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedNotifications:
    """The stack's needs of a bucket; ``queue`` is an ARN. Without ``prefixes`` all keys are announced."""

    stack: str
    queue: str
    prefixes: Sequence[str] = ()

    def entries(self) -> list[dict[str, Any]]:
        """Return the configurations; with prefixes, the canary's objects are announced too."""
        if not self.prefixes:
            return [{"Id": self._name, "QueueArn": self.queue, "Events": [CREATED]}]
        apart: list[str] = []
        for prefix in sorted({*self.prefixes, CANARY_PREFIX}):
            if not any(prefix.startswith(shorter) for shorter in apart):
                apart.append(prefix)
        return [
            {
                "Id": f"{self._name} {number}",
                "QueueArn": self.queue,
                "Events": [CREATED],
                "Filter": {"Key": {"FilterRules": [{"Name": "prefix", "Value": prefix}]}},
            }
            for number, prefix in enumerate(apart, 1)
        ]

    def has(self, kind: str, entry: Mapping[str, Any]) -> bool:
        """Return whether a configuration is the stack's: it names the queue, or an earlier queue of the stack."""
        return kind == QUEUES and (entry["QueueArn"] == self.queue or entry.get("Id", "").startswith(self._name))

    @property
    def _name(self) -> str:
        return f"{self.stack} new objects"


def read_configuration(client: "S3Client", bucket: str, account: str) -> dict[str, Any]:
    answer: Mapping[str, Any] = client.get_bucket_notification_configuration(Bucket=bucket, ExpectedBucketOwner=account)
    return {name: answer[name] for name in (EVENT_BRIDGE, *_TARGETS) if name in answer}


def with_messages(configured: Configuration, wanted: WantedNotifications) -> dict[str, Any]:
    """Return a whole configuration in which the bucket notifies the queue; the others' parts stay."""
    others = without_messages(configured, wanted)
    present = [each for each in configured.get(QUEUES, []) if wanted.has(QUEUES, each)]
    if _say_the_same(present, wanted.entries()):
        return dict(configured)
    return {**others, QUEUES: [*others.get(QUEUES, []), *wanted.entries()]}


def without_messages(configured: Configuration, wanted: WantedNotifications) -> dict[str, Any]:
    """Return a whole configuration in which the bucket does not notify the queue."""
    kept = {name: [each for each in configured.get(name, []) if not wanted.has(name, each)] for name in _TARGETS}
    events = {EVENT_BRIDGE: configured[EVENT_BRIDGE]} if EVENT_BRIDGE in configured else {}
    return {**events, **{name: entries for name, entries in kept.items() if entries}}


def overlaps(configured: Configuration, wanted: WantedNotifications) -> list[Entry]:
    """Return other configurations with overlapping prefix and suffix: S3 refuses such a configuration as a whole."""
    ours = [_filters(each)[0] for each in wanted.entries()]
    return [
        _entry(each, target)
        for name, target in _TARGETS.items()
        for each in configured.get(name, [])
        if not wanted.has(name, each)
        and any(event.startswith(_ANY_CREATED) for event in each["Events"])
        and any(one.startswith(_filters(each)[0]) or _filters(each)[0].startswith(one) for one in ours)
    ]


def listed(configured: Configuration) -> list[Entry]:
    found: list[Entry] = [("EventBridge", "all events", "all keys")] if EVENT_BRIDGE in configured else []
    return found + [_entry(each, target) for name, target in _TARGETS.items() for each in configured.get(name, [])]


def announced(configured: Configuration, queue: str) -> list[str] | None:
    """Return the prefixes that a bucket announces to a queue, without suffix; empty: all, None: none."""
    found = [
        _filters(each) for each in configured.get(QUEUES, []) if each["QueueArn"] == queue and CREATED in each["Events"]
    ]
    prefixes = sorted(prefix for prefix, suffix in found if not suffix)
    if not prefixes:
        return None
    return [] if "" in prefixes else prefixes


def _say_the_same(present: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the configurations differ in their names alone, as one may have been made by hand."""

    def shown(entries: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
        return sorted((each["QueueArn"], *sorted(each["Events"]), *_filters(each)) for each in entries)

    return shown(present) == shown(wanted)


def _filters(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Return prefix and suffix, of which S3 writes the names in either case."""
    rules = entry.get("Filter", {}).get("Key", {}).get("FilterRules", [])
    shown = {rule["Name"].lower(): rule["Value"] for rule in rules}
    return shown.get("prefix", ""), shown.get("suffix", "")


def _entry(entry: Mapping[str, Any], target: str) -> Entry:
    prefix, suffix = _filters(entry)
    return entry[target], ", ".join(entry["Events"]), f"{prefix}*{suffix}" if prefix or suffix else "all keys"


def s3_sends(client: "SQSClient", url: str) -> Literal["no bucket", "bucket", "account"]:
    """Return for which buckets S3 may send messages to a queue: none, the named one, or all of the account."""
    answer = client.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])
    policy = msgspec.json.decode(answer.get("Attributes", {}).get("Policy", "{}"))
    for statement in policy.get("Statement", []):
        if statement["Effect"] == "Allow" and S3 in services_of(statement):
            named = any("aws:SourceArn" in keys for keys in statement.get("Condition", {}).values())
            return "bucket" if named else "account"
    return "no bucket"


def services_of(statement: Mapping[str, Any]) -> list[str]:
    principal = statement.get("Principal")
    named = principal.get("Service", []) if isinstance(principal, dict) else []
    return named if isinstance(named, list) else [named]


class ExistingBucket:
    """The stack's existing bucket, and who owns it."""

    def __init__(self, deployment: Deployment, profile: str | None) -> None:
        self.name, self.queue = deployment.bucket, deployment.queue_arn
        self.deployment = deployment
        self._clients = deployment.clients
        self._profile = profile

    def read(self) -> dict[str, Any]:
        with translated("S3", "GetBucketNotificationConfiguration"):
            return read_configuration(self._clients.s3, self.name, self.deployment.account)

    def without(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole configuration without the stack's notifications; raises RequestError."""
        self._s3_sends()
        return without_messages(before, WantedNotifications(stack=self.deployment.stack, queue=self.queue))

    def announcing(self, before: Mapping[str, Any], prefixes: Sequence[str], *, events: bool) -> dict[str, Any]:
        """Return the configuration with the stack's notifications; ``events`` keeps EventBridge. RequestError."""
        stack = self.deployment.stack
        if not self._s3_sends():
            raise RequestError(
                f"the queue of stack {stack} takes no messages of S3",
                "Deploy it with -c profile_notifications=queue, or ProfileNotifications=queue, before.",
            )
        wanted = WantedNotifications(stack=stack, queue=self.queue, prefixes=tuple(prefixes))
        if others := overlaps(before, wanted):
            to = "; ".join(f"{sent} of {keys} to {target}" for target, sent, keys in others)
            raise RequestError(
                f"S3 refuses a second target for one object, and {self.name} sends {to}",
                "Give a --prefix that the others do not have, or deploy with -c profile_notifications=eventbridge.",
            )
        after = with_messages(before, wanted)
        if not events:
            after.pop(EVENT_BRIDGE, None)
        return after

    def _s3_sends(self) -> bool:
        """Return whether the queue's policy lets S3 send; raises RequestError for a bucket of the stack."""
        with translated("SQS", "GetQueueAttributes"):
            sends = s3_sends(self._clients.sqs, self.deployment.output("DoorbellQueueUrl"))
        if sends == "account":
            raise RequestError(
                f"stack {self.deployment.stack} makes its bucket and its notifications",
                "Deploy it again to repair them.",
            )
        return sends == "bucket"

    def replace(self, before: Mapping[str, Any], configuration: Mapping[str, Any]) -> None:
        """Replace the bucket's notifications, which were ``before``; S3 tries each target first."""
        if self.read() != before:
            raise RequestError(
                f"the notifications of {self.name} have changed in the meantime", "Nothing was written: run it again."
            )
        with translated("S3", "PutBucketNotificationConfiguration"):
            try:
                self._clients.s3.put_bucket_notification_configuration(
                    Bucket=self.name,
                    NotificationConfiguration=configuration,  # type: ignore[arg-type]  # as S3 itself returned it
                    ExpectedBucketOwner=self.deployment.account,
                )
            except ClientError as error:
                if error_code(error) != "InvalidArgument":
                    raise
                message = error.response.get("Error", {}).get("Message", "no message").rstrip(".")
                remedy = "Nothing was written. `trainguard doctor` says whether queue and key let S3 send."
                raise RequestError(f"S3 does not take the configuration of {self.name}: {message}", remedy) from error

    def command(self, configuration: Mapping[str, Any]) -> str:
        whole = msgspec.json.encode(configuration).decode()
        place = ("--bucket", self.name, "--expected-bucket-owner", self.deployment.account)
        words = ("s3api", "put-bucket-notification-configuration", *place, "--notification-configuration", whole)
        return self.deployment.aws(*words, profile=self._profile)


def change_result(
    bucket: ExistingBucket,
    before: dict[str, Any],
    after: dict[str, Any],
    *,
    written: bool = False,
    refused: bool = False,
) -> CommandResult:
    """Return a change; one that a person ``refused`` to have written was shown before."""
    entries: list[Block] = [Line("Nothing was written.")] if refused else change_blocks(bucket, before, after)
    if after == before:
        entries.append(Line("The bucket has these notifications: there is nothing to change."))
    elif written:
        entries.append(Line("Written."))
    elif not refused:
        entries += [Line("Nothing was written. Add --apply, or run:"), Line(bucket.command(after), whole=True)]
    announces, by_events = announced(after, bucket.queue) is not None, EVENT_BRIDGE in after
    document = {
        "stack": bucket.deployment.stack,
        "region": bucket.deployment.region,
        "bucket": bucket.name,
        "queue": bucket.queue,
        "changed": after != before,
        "written": written,
        "before": before,
        "after": after,
        "command": bucket.command(after),
    }
    note = _STAYS if announces and by_events else "" if announces or by_events else _SILENT
    return CommandResult(document=document, blocks=entries, notes=[note] if note and not refused else [])


def change_blocks(bucket: ExistingBucket, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Block]:
    """Return each configuration, and whether it is kept, removed or added."""
    old, new = listed(before), listed(after)
    changes = [("kept" if each in new else "removed", each) for each in old]
    changes += [("added", each) for each in new if each not in old]
    rows = [(Cell(change, _STYLES[change]), *each) for change, each in changes]
    return [TerminalFacts([("bucket", bucket.name), ("queue", bucket.queue)]), Grid(_COLUMNS, rows)]
