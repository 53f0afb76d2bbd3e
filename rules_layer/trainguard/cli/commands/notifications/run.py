"""``trainguard notifications``: the change of a bucket's notifications, shown, and written where that is asked for."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import typer
from botocore.exceptions import ClientError

from trainguard.adapters.aws_errors import error_code, translated
from trainguard.adapters.clients import Clients
from trainguard.cli.output.aws_advice import advised
from trainguard.cli.output.blocks import Block, Cell, Column, Facts, Grid, Line
from trainguard.cli.output.faults import print_fault
from trainguard.cli.output.rendering import show
from trainguard.cli.output.result import REFUSED, SCHEMA_VERSION, CommandResult, print_result
from trainguard.cli.output.terminal import stdout_console
from trainguard.cli.services import bucket_notifications as notifying
from trainguard.cli.services.bucket_notifications import Entry, Wanted
from trainguard.cli.services.deployment import Deployment, Where, find_deployment
from trainguard.cli.services.queue_policy import S3Sends, s3_sends
from trainguard.errors import PortUnavailableError, RequestError

_COLUMNS = (Column("change"), Column("to", folds=True), Column("events"), Column("keys"))
_STYLES = {"added": "green", "removed": "red", "kept": "dim"}
_STAYS = "EventBridge stays on and bills each event. If no other program needs them, add --without-eventbridge."
_SILENT = "The bucket then announces no new object to TrainGuard."


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationsRequest:
    """What was asked for; ``asks`` says that a person is asked before the configuration is written."""

    where: Where
    prefixes: Sequence[str] = ()
    without_eventbridge: bool = False
    remove: bool = False
    apply: bool = False
    asks: bool = True
    as_json: bool = False


class NotificationsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket's notifications as they were, ``before``, and as they are to be, ``after``; ``command`` writes these."""

    schema_version: str = SCHEMA_VERSION
    stack: str
    region: str
    bucket: str
    queue: str
    changed: bool
    written: bool
    before: dict[str, Any]
    after: dict[str, Any]
    command: str


class _Bucket:
    """The stack's existing bucket, and who owns it."""

    def __init__(self, deployment: Deployment, clients: Clients, profile: str | None) -> None:
        self.name = deployment.output("ProfilerOutputUri").removeprefix("s3://").partition("/")[0]
        url = deployment.output("DoorbellQueueUrl")
        here = deployment
        self.queue = f"arn:{here.partition}:sqs:{here.region}:{here.account}:{url.rpartition('/')[2]}"
        self.deployment = deployment
        self._clients = clients
        self._profile = profile
        self._url = url

    def sends(self) -> S3Sends:
        """Return for which buckets the queue's policy lets S3 send."""
        with translated("SQS", "GetQueueAttributes"):
            return s3_sends(self._clients.sqs, self._url)

    def read(self) -> dict[str, Any]:
        """Return the bucket's notifications."""
        with translated("S3", "GetBucketNotificationConfiguration"):
            return notifying.read_configuration(self._clients.s3, self.name, self.deployment.account)

    def write(self, configuration: Mapping[str, Any]) -> None:
        """Replace the bucket's notifications; S3 tries each target before."""
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
                said = error.response.get("Error", {}).get("Message", "no message").rstrip(".")
                remedy = "Nothing was written. `trainguard doctor` says whether queue and key let S3 send."
                raise RequestError(f"S3 does not take the configuration of {self.name}: {said}", remedy) from error

    def command(self, configuration: Mapping[str, Any]) -> str:
        """Return the command of AWS that writes a configuration."""
        whole = msgspec.json.encode(configuration).decode()
        words = ["aws", "s3api", "put-bucket-notification-configuration", "--bucket", self.name]
        words += ["--expected-bucket-owner", self.deployment.account, "--notification-configuration", whole]
        words += ["--region", self.deployment.region]
        return shlex.join([*words, *(["--profile", self._profile] if self._profile else [])])


def notifications_command(request: NotificationsRequest, *, ask: Callable[[str], bool] = typer.confirm) -> int:
    """Show the change and, where that is asked for, write it; return the exit code."""
    if request.apply and request.asks and (request.as_json or not sys.stdin.isatty()):
        print_fault(RequestError("--apply asks before it writes, and nobody can answer here", "Add --yes."))
        return REFUSED
    return print_result(lambda: _made(request, ask), as_json=request.as_json)


def _made(request: NotificationsRequest, ask: Callable[[str], bool]) -> CommandResult:
    try:
        deployment, clients = find_deployment(request.where.stack, request.where.region, request.where.profile)
        bucket = _Bucket(deployment, clients, request.where.profile)
        before = bucket.read()
        after = _changed(request, bucket, before)
        if after == before or not request.apply:
            return _result(bucket, before, after, written=False)
        if request.asks:
            show(stdout_console(), _blocks(bucket, before, after))
            if not ask(f"Write these notifications to {bucket.name}?"):
                return CommandResult(document=_document(bucket, before, after), blocks=[Line("Nothing was written.")])
        if bucket.read() != before:
            raise RequestError(
                f"the notifications of {bucket.name} have changed meanwhile", "Nothing was written: run it again."
            )
        bucket.write(after)
        return _result(bucket, before, after, written=True)
    except PortUnavailableError as fault:
        raise advised(fault) from fault


def _changed(request: NotificationsRequest, bucket: _Bucket, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole configuration that was asked for; raises RequestError."""
    stack = bucket.deployment.stack
    wanted = Wanted(stack=stack, queue=bucket.queue, prefixes=request.prefixes)
    sends = bucket.sends()
    if sends is S3Sends.OF_ACCOUNT:
        raise RequestError(f"stack {stack} makes its bucket and its notifications", "Deploy it again to repair them.")
    if request.remove:
        return notifying.without_messages(before, wanted)
    if sends is S3Sends.NOTHING:
        raise RequestError(
            f"the queue of stack {stack} takes no messages of S3",
            "Deploy it with -c profile_notifications=queue, or ProfileNotifications=queue, before.",
        )
    if others := notifying.overlaps(before, wanted):
        to = "; ".join(f"{each.events} of {each.keys} to {each.target}" for each in others)
        raise RequestError(
            f"S3 refuses a second target for one object, and {bucket.name} sends {to}",
            "Give a --prefix that the others do not have, or deploy with -c profile_notifications=eventbridge.",
        )
    after = notifying.with_messages(before, wanted)
    if request.without_eventbridge:
        after.pop(notifying.EVENT_BRIDGE, None)
    return after


def _document(
    bucket: _Bucket, before: dict[str, Any], after: dict[str, Any], *, written: bool = False
) -> NotificationsDocument:
    return NotificationsDocument(
        stack=bucket.deployment.stack,
        region=bucket.deployment.region,
        bucket=bucket.name,
        queue=bucket.queue,
        changed=after != before,
        written=written,
        before=before,
        after=after,
        command=bucket.command(after),
    )


def _result(bucket: _Bucket, before: dict[str, Any], after: dict[str, Any], *, written: bool) -> CommandResult:
    blocks = _blocks(bucket, before, after)
    if after == before:
        blocks.append(Line("The bucket has these notifications: there is nothing to change."))
    elif written:
        blocks.append(Line("Written."))
    else:
        blocks += [Line("Nothing was written. Add --apply, or run:"), Line(bucket.command(after), whole=True)]
    notes = [_STAYS] if notifying.EVENT_BRIDGE in after and notifying.announced(after, bucket.queue) is not None else []
    if notifying.EVENT_BRIDGE not in after and notifying.announced(after, bucket.queue) is None:
        notes.append(_SILENT)
    return CommandResult(document=_document(bucket, before, after, written=written), blocks=blocks, notes=notes)


def _blocks(bucket: _Bucket, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Block]:
    old, new = notifying.listed(before), notifying.listed(after)
    rows = [_row("kept" if each in new else "removed", each) for each in old]
    rows += [_row("added", each) for each in new if each not in old]
    return [Facts([("bucket", bucket.name), ("queue", bucket.queue)]), Grid(_COLUMNS, rows)]


def _row(change: str, entry: Entry) -> tuple[Cell, str, str, str]:
    return Cell(change, _STYLES[change]), entry.target, entry.events, entry.keys
