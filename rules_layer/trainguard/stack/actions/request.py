"""Input of the functions of the fire path, as the outbox and the state machine wrote it."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from trainguard.core.job_policy import JobPolicy
from trainguard.core.records import AlertKind, OutboxEntry, entry_in
from trainguard.core.timestamps import epoch_of, iso_time

# Stands for the decision where none was to be made: an escalation stops nothing.
UNDECIDED = "none"


class Resend(msgspec.Struct):
    """Asks for the alert of the execution ``of``, which could not send it; ``attempt`` counts from 1."""

    of: str
    attempt: int


class AlertInput(msgspec.Struct, rename="camel", kw_only=True):
    """What an alert is about: the input of an execution, an outbox entry and its job.

    ``report_uri`` and ``report_page`` are S3 URIs of ``report.json`` and ``report.html``, ``report_link`` is the page
    in the console. ``faults`` are what a notice reports; the finding's ``rule`` then names what is faulty. ``resend``
    is there where the alert is sent late, on request. ``canary`` marks the stack's own job of SageMaker's.
    """

    job: str
    job_arn: str
    entry: OutboxEntry
    report_uri: str
    alert_id: str | None = None
    report_page: str | None = None
    report_link: str | None = None
    faults: list[str] = []
    tuning_job: str | None = None
    policy: JobPolicy = JobPolicy()
    resend: Resend | None = None
    run_links: dict[str, str] = {}
    canary: bool = False

    @classmethod
    def read(cls, payload: Mapping[str, Any]) -> "AlertInput":
        """Read an execution's input; raises msgspec.ValidationError where it is none of an alert's."""
        return msgspec.convert({**payload, "entry": entry_in(payload)}, cls)

    @property
    def fired_at(self) -> str:
        """The event time of its cause, ISO 8601 in UTC."""
        return iso_time(self.entry.enqueued_at)

    @property
    def own_id(self) -> str:
        """The alert's own name; a warning's is made of its fire's."""
        if self.entry.kind is AlertKind.WARNING:
            return f"{self.entry.fire_id}-warning"
        return self.alert_id or self.entry.fire_id


class StopDecision(msgspec.Struct, frozen=True, rename="camel"):
    """Whether to stop; ``decision`` is stop, grace, dry-run, refused, none or unrecorded.

    ``why`` is a phrase for the alert and the row. ``stop_at``, ISO 8601, is when a grace time ends. ``opted_in`` says
    whether the job's owner has asked for fires of the rule to stop it. ``kind`` is that of the resources, empty for a
    training job; ``action`` is what is done to them on a cluster.
    """

    stop: bool = False
    decision: str = UNDECIDED
    why: str = ""
    stop_at: str | None = None
    opted_in: bool = False
    kind: str = ""
    action: str = ""

    def __post_init__(self) -> None:
        if self.stop_at is not None:
            epoch_of(self.stop_at)


class StopResult(msgspec.Struct):
    """Result of a stop; ``error`` says why it failed, or why ``made`` is None: unknown.

    It is ``pending`` while a cluster's agent has not answered.
    """

    made: bool | None = False
    error: str | None = None
    pending: bool = False


class AlertRequest(msgspec.Struct):
    """Everything that the alert is made of."""

    fire: AlertInput
    decision: StopDecision = msgspec.field(default_factory=StopDecision)
    stop: StopResult = msgspec.field(default_factory=StopResult)

    @classmethod
    def read(cls, event: Mapping[str, Any]) -> "AlertRequest":
        """Read the execution's input as ``fire``, and the stop's result; raises msgspec.ValidationError."""
        fire = event.get("fire") if isinstance(event, Mapping) else None
        if not isinstance(fire, Mapping):
            return msgspec.convert(event, cls)
        decision, stop = outcome_of_call(event)
        return msgspec.convert({"fire": AlertInput.read(fire), "decision": decision, "stop": stop}, cls)

    @property
    def is_about_a_stop(self) -> bool:
        """Whether a stop was made, may have been, has failed, or is to come: this is alerted in any case."""
        return self.stop.made is not False or self.decision.stop or self.fire.entry.kind is AlertKind.WARNING


def outcome_of_call(event: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return decision and result of a stop from a call; of a late alert, its fire's."""
    resend = event["fire"].get("resend")
    source = resend if isinstance(resend, Mapping) else event
    return source.get("decision", {}), source.get("stop", {})


class StopCase(msgspec.Struct, rename="camel"):
    """A fire that asks whether it may stop its training job.

    ``job_created_at`` is when SageMaker created the registered job. ``node`` is ``*`` for the whole job. The
    ``attempt`` is ``first`` right after the fire, and ``final`` when a grace time is over.
    """

    job: str
    job_arn: str
    rule: str
    fire_id: str
    episode: int
    node: str
    fired_at: str
    job_created_at: str | None = None
    policy: JobPolicy = JobPolicy()
    attempt: Literal["first", "final"] = "first"
    warned: bool = True

    def __post_init__(self) -> None:
        epoch_of(self.fired_at)

    @property
    def identity(self) -> str:
        """Name of this one job: SageMaker gives the name and ARN of a deleted job away again."""
        return f"{self.job_arn} {self.job_created_at}"
