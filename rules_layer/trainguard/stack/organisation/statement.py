"""The event by which an account's stack states what it knows of a job, and the central stack's input.

A statement holds all of it, so that the newest one is right whatever was lost, repeated or late before it.
``python -m trainguard.stack.organisation.statement > docs/schemas/statement-1.json`` renews the published schema.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal

import msgspec

from trainguard.core.errors import PortUnavailableError
from trainguard.core.records import JobRecord, RuleRow
from trainguard.core.timestamps import TimedEvent, epoch_of
from trainguard.report.document import encode_schema, report_schema
from trainguard.report.fleet.fleet import Fleet

EVENT_TYPE = "TrainGuard Statement"
SCHEMA_VERSION: Literal["1"] = "1"
IDENTITY = f"urn:trainguard:statement:{SCHEMA_VERSION}"

# An event has 256 KB, its envelope included.
MOST_BYTES = 240_000

# A schedule asks each hour: one run may be missed.
LOOK_BACK_S = 3 * 3_600.0
# A central account forgets an active job that nobody states any more.
FORGOTTEN_AFTER_S = 3 * 86_400

_CLOCKS_APART_S = 300.0
_SENDERS = 10

Account = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{12}$")]
Region = Annotated[str, msgspec.Meta(pattern=r"^[a-z]{2,}(-[a-z]+)+-[0-9]$")]
StatedItem = dict[str, dict[str, Any]]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]


class JobStatement(msgspec.Struct, frozen=True, kw_only=True):
    """What an account's stack knows of one job.

    Attributes
    ----------
    stated_at : str
        When the tables were read, ISO 8601 in UTC: a later statement replaces an earlier one.
    stack, region : str
        Of the stack. The account is in the event's envelope, where nobody else can write it.
    verdict : dict
        The verdict on the job, by the schema ``urn:trainguard:verdict:1``.
    item, rows : dict, list of dict
        The job's item, and its rows of no node, as the tables have them, in DynamoDB's JSON.
    rows_left_out : int
        Rows that an event had no room for; those that fired come first.
    """

    schema_version: Literal["1"] = SCHEMA_VERSION
    kind: Literal["statement"] = "statement"
    stated_at: str
    stack: Name
    region: Region
    job: Name
    verdict: dict[str, Any]
    item: StatedItem
    rows: list[StatedItem]
    rows_left_out: int = 0


class StatedEvent(msgspec.Struct, frozen=True):
    """A statement as the central bus brings it."""

    account: Account
    detail: JobStatement

    @property
    def name(self) -> str:
        """The job's name in the central tables."""
        return f"{self.account}/{self.detail.region}/{self.detail.job}"

    def stated_at(self, now: float) -> float:
        """Return when it was stated, epoch seconds; raises ValueError for no time, and for one after ``now``."""
        at = epoch_of(self.detail.stated_at)
        if at > now + _CLOCKS_APART_S:
            raise ValueError(f"stated_at is {self.detail.stated_at}, expected a time that has been")
        return at


class StatementCall(TimedEvent, frozen=True):
    """Asks for the statement of one ``job``, on which a finding was published, or of all that did something."""

    job: str | None = None

    def wanted(self, jobs: Iterable[JobRecord]) -> list[JobRecord]:
        """Return the jobs that are active or did something in the hours before."""
        fleet = Fleet(stack="", region="", since=self.time.timestamp() - LOOK_BACK_S)
        return [each for each in jobs if fleet.wants(each)]


def send_all(jobs: Sequence[JobRecord], send: Callable[[JobRecord], None]) -> None:
    """Send the statement of each job; raises PortUnavailableError after the last where any was not sent."""
    with ThreadPoolExecutor(_SENDERS, thread_name_prefix="statements") as senders:
        failed = [fault for fault in senders.map(lambda job: _fault_of(send, job), jobs) if fault]
    if failed:
        raise PortUnavailableError("EventBridge", "PutEvents", f"{len(failed)} of {len(jobs)} jobs: {failed[0]}")


def _fault_of(send: Callable[[JobRecord], None], job: JobRecord) -> str | None:
    try:
        send(job)
    except PortUnavailableError as fault:
        return str(fault)
    return None


def fitting(rows: Sequence[RuleRow], sizes: Mapping[str, int], room: int) -> list[RuleRow]:
    """Return the rows that an event has room for, in bytes by ``sizes`` of targets: those that fired come first."""
    taken: list[RuleRow] = []
    for row in sorted(rows, key=lambda row: (row.times_fired == 0, row.target)):
        if (room := room - sizes[row.target]) < 0:
            break
        taken.append(row)
    return taken


def statement_schema() -> dict[str, Any]:
    schema = report_schema(JobStatement, identity=IDENTITY)
    schema["$defs"]["JobStatement"]["properties"]["verdict"] |= {"$ref": "urn:trainguard:verdict:1"}
    return {**schema, "title": "What an account states of a training job"}


if __name__ == "__main__":
    sys.stdout.buffer.write(encode_schema(statement_schema()))
