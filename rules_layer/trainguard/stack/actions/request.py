"""Input of the functions of the fire path, as the outbox and the state machine wrote it."""

from collections.abc import Mapping
from typing import Any, Literal, Self

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


class FireInput(msgspec.Struct, rename="camel", kw_only=True):
    """The input of an execution: an outbox entry and its job.

    ``report_uri`` and ``report_page`` are S3 URIs of ``report.json`` and ``report.html``, ``report_link`` is the page
    in the console. ``job_created_at`` is when SageMaker created the registered job. ``faults`` are what a notice
    reports; the finding's ``rule`` then names what is faulty. ``resend`` is there where the alert is sent late, on
    request. ``canary`` marks the stack's own job of SageMaker's.
    """

    job: str
    job_arn: str
    entry: OutboxEntry
    report_uri: str
    job_created_at: str | None = None
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
    def read(cls, payload: object) -> Self:
        """Read an execution's input, and what the class has besides; raises msgspec.ValidationError."""
        if not isinstance(payload, Mapping):
            raise msgspec.ValidationError(f"Expected `object`, got `{type(payload).__name__}`")
        return msgspec.convert({**payload, "entry": entry_in(payload)}, cls)

    @property
    def rule(self) -> str:
        return self.entry.finding.rule

    @property
    def fire_id(self) -> str:
        return self.entry.fire_id

    @property
    def fired_at(self) -> str:
        """The event time of its cause, ISO 8601 in UTC."""
        return iso_time(self.entry.enqueued_at)

    @property
    def own_id(self) -> str:
        """The alert's own name; a warning's is made of its fire's."""
        if self.entry.kind is AlertKind.WARNING:
            return f"{self.fire_id}-warning"
        return self.alert_id or self.fire_id


def fire_of_call(event: object) -> FireInput:
    """Return the execution's input that a task of the state machine passes on; raises msgspec.ValidationError."""
    return FireInput.read(event.get("fire") if isinstance(event, Mapping) else event)


class StopCase(FireInput, rename="camel", kw_only=True):
    """A fire that asks whether it may stop its training job.

    The ``attempt`` is ``first`` right after the fire, and ``final`` when a grace time is over.
    """

    attempt: Literal["first", "final"] = "first"
    warned: bool = True

    @property
    def node(self) -> str:
        """The finding's node; ``*`` for the whole job."""
        return self.entry.finding.where

    @property
    def identity(self) -> str:
        """Name of this one job: SageMaker gives the name and ARN of a deleted job away again."""
        return f"{self.job_arn} {self.job_created_at}"


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

    fire: FireInput
    decision: StopDecision = msgspec.field(default_factory=StopDecision)
    stop: StopResult = msgspec.field(default_factory=StopResult)

    @classmethod
    def read(cls, event: Mapping[str, Any]) -> "AlertRequest":
        """Read the execution's input as ``fire``, and the stop's result; raises msgspec.ValidationError."""
        fire = fire_of_call(event)
        decision, stop = outcome_of_call(event)
        return msgspec.convert({"fire": fire, "decision": decision, "stop": stop}, cls)

    @property
    def is_about_a_stop(self) -> bool:
        """Whether a stop was made, may have been, has failed, or is to come: this is alerted in any case."""
        return self.stop.made is not False or self.decision.stop or self.fire.entry.kind is AlertKind.WARNING


def outcome_of_call(event: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return decision and result of a stop from a call; of a late alert, its fire's."""
    resend = event["fire"].get("resend")
    source = resend if isinstance(resend, Mapping) else event
    return source.get("decision", {}), source.get("stop", {})
