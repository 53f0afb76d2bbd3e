"""``trainguard notifications``: the change of a bucket's notifications, shown, and written on request."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from trainguard.aws.aws_errors import error_code, translated
from trainguard.aws.clients import Clients
from trainguard.cli.output.blocks import Block, Cell, Column, Facts, Grid, Line
from trainguard.cli.output.result import CommandResult
from trainguard.cli.services import bucket_notifications as notifying
from trainguard.cli.services.bucket_notifications import S3Sends, Wanted, s3_sends
from trainguard.cli.services.deployment import Deployment
from trainguard.core.errors import RequestError

_COLUMNS = (Column("change"), Column("to", folds=True), Column("events"), Column("keys"))
_STYLES = {"added": "green", "removed": "red", "kept": "dim"}
_STAYS = "EventBridge stays on and bills each event. If no other program needs them, add --without-eventbridge."
_SILENT = "The bucket then announces no new object to TrainGuard."


class Bucket:
    """The stack's existing bucket, and who owns it."""

    def __init__(self, deployment: Deployment, clients: Clients, profile: str | None) -> None:
        self.name, self.queue = deployment.bucket, deployment.queue_arn
        self.deployment = deployment
        self._clients = clients
        self._profile = profile

    def read(self) -> dict[str, Any]:
        with translated("S3", "GetBucketNotificationConfiguration"):
            return notifying.read_configuration(self._clients.s3, self.name, self.deployment.account)

    def without(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole configuration without the stack's notifications; raises RequestError."""
        self._sends()
        return notifying.without_messages(before, Wanted(stack=self.deployment.stack, queue=self.queue))

    def announcing(self, before: Mapping[str, Any], prefixes: Sequence[str], *, events: bool) -> dict[str, Any]:
        """Return the configuration with the stack's notifications; ``events`` keeps EventBridge. RequestError."""
        stack = self.deployment.stack
        if self._sends() is S3Sends.NOTHING:
            raise RequestError(
                f"the queue of stack {stack} takes no messages of S3",
                "Deploy it with -c profile_notifications=queue, or ProfileNotifications=queue, before.",
            )
        wanted = Wanted(stack=stack, queue=self.queue, prefixes=tuple(prefixes))
        if others := notifying.overlaps(before, wanted):
            to = "; ".join(f"{sent} of {keys} to {target}" for target, sent, keys in others)
            raise RequestError(
                f"S3 refuses a second target for one object, and {self.name} sends {to}",
                "Give a --prefix that the others do not have, or deploy with -c profile_notifications=eventbridge.",
            )
        after = notifying.with_messages(before, wanted)
        if not events:
            after.pop(notifying.EVENT_BRIDGE, None)
        return after

    def _sends(self) -> S3Sends:
        """Return for which buckets the queue's policy lets S3 send; raises RequestError where the stack has its own."""
        with translated("SQS", "GetQueueAttributes"):
            sends = s3_sends(self._clients.sqs, self.deployment.output("DoorbellQueueUrl"))
        if sends is S3Sends.OF_ACCOUNT:
            raise RequestError(
                f"stack {self.deployment.stack} makes its bucket and its notifications",
                "Deploy it again to repair them.",
            )
        return sends

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
    bucket: Bucket, before: dict[str, Any], after: dict[str, Any], *, written: bool = False, refused: bool = False
) -> CommandResult:
    """Return a change; one that a person ``refused`` to have written was shown before."""
    entries: list[Block] = [Line("Nothing was written.")] if refused else change_blocks(bucket, before, after)
    if after == before:
        entries.append(Line("The bucket has these notifications: there is nothing to change."))
    elif written:
        entries.append(Line("Written."))
    elif not refused:
        entries += [Line("Nothing was written. Add --apply, or run:"), Line(bucket.command(after), whole=True)]
    announces, by_events = notifying.announced(after, bucket.queue) is not None, notifying.EVENT_BRIDGE in after
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


def change_blocks(bucket: Bucket, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Block]:
    """Return each configuration, and whether it is kept, removed or added."""
    old, new = notifying.listed(before), notifying.listed(after)
    changes = [("kept" if each in new else "removed", each) for each in old]
    changes += [("added", each) for each in new if each not in old]
    rows = [(Cell(change, _STYLES[change]), *each) for change, each in changes]
    return [Facts([("bucket", bucket.name), ("queue", bucket.queue)]), Grid(_COLUMNS, rows)]
