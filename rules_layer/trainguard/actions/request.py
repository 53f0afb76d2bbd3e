"""What the functions of the fire path are given, as the outbox and the state machine wrote it."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from trainguard.execution_input import entry_in
from trainguard.job_policy import JobPolicy
from trainguard.records import AlertKind, OutboxEntry
from trainguard.timestamps import epoch_of, iso_time

UNDECIDED = "none"
"""Stands for the decision where none was to be made: an escalation stops nothing."""


class Resend(msgspec.Struct):
    """That an execution sends the alert of another one, ``of``, which could not; ``attempt`` counts from 1."""

    of: str
    attempt: int


class AlertInput(msgspec.Struct, rename="camel", kw_only=True):
    """What an alert is about: the input of an execution, an outbox entry and its job.

    ``alert_id`` names the alert. ``report_uri`` and ``report_page`` are S3 URIs of ``report.json`` and ``report.html``,
    ``report_link`` is the page in the console. ``faults`` are what a notice tells of, and in a notice the finding's
    ``rule`` names what is faulty. ``tuning_job`` names the tuning job that the job is one of. ``resend`` is there where
    the alert is sent late, on request. ``run_links`` are the pages of the job's run by tool.
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

    @classmethod
    def read(cls, payload: Mapping[str, Any]) -> "AlertInput":
        """Read an execution's input; raises msgspec.ValidationError where it is none of an alert's."""
        return msgspec.convert({**payload, "entry": entry_in(payload)}, cls)

    @property
    def fired_at(self) -> str:
        """The event time at which it came about, ISO 8601 in UTC."""
        return iso_time(self.entry.enqueued_at)

    @property
    def own_id(self) -> str:
        """The alert's own name; a warning's is made of its fire's."""
        if self.entry.kind is AlertKind.WARNING:
            return f"{self.entry.fire_id}-warning"
        return self.alert_id or self.entry.fire_id


class StopDecision(msgspec.Struct, frozen=True, rename="camel"):
    """Whether to stop; ``decision`` is stop, grace, dry-run or refused, ``why`` a phrase for the alert and the row.

    ``decision`` is ``none`` where none was to be made, and ``unrecorded`` where it is not known any more. ``stop_at``,
    ISO 8601, is when a grace time ends. ``opted_in`` says whether the job's owner has asked for fires of the rule to
    stop it.
    """

    stop: bool = False
    decision: str = UNDECIDED
    why: str = ""
    stop_at: str | None = None
    opted_in: bool = False

    def __post_init__(self) -> None:
        """Refuse a time that is none."""
        if self.stop_at is not None:
            epoch_of(self.stop_at)


class StopResult(msgspec.Struct):
    """What came of StopTrainingJob; ``error`` says why it failed, or why ``made`` is None: that is not known."""

    made: bool | None = False
    error: str | None = None


class AlertRequest(msgspec.Struct):
    """Everything that the alert is made of."""

    fire: AlertInput
    decision: StopDecision = msgspec.field(default_factory=StopDecision)
    stop: StopResult = msgspec.field(default_factory=StopResult)

    @classmethod
    def read(cls, event: Mapping[str, Any]) -> "AlertRequest":
        """Read what the state machine gives: the execution's input as ``fire``, and what became of the stop.

        Raises msgspec.ValidationError where a field is missing or of another type.
        """
        fire = event.get("fire") if isinstance(event, Mapping) else None
        return msgspec.convert({**event, "fire": AlertInput.read(fire)} if isinstance(fire, Mapping) else event, cls)

    @property
    def is_about_a_stop(self) -> bool:
        """Whether a stop was made, may have been, was tried in vain, or is to come: that people learn in any case."""
        return self.stop.made is not False or self.decision.stop or self.fire.entry.kind is AlertKind.WARNING


class StopCase(msgspec.Struct, rename="camel"):
    """A fire that asks whether it may stop its training job.

    ``job_created_at`` is when SageMaker created the job that TrainGuard registered. ``node`` is the node whose state
    fired, ``*`` for the whole job. The ``attempt`` is ``first`` right after the fire, and ``final`` when a grace time
    is over.
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

    def __post_init__(self) -> None:
        """Refuse a time that is none."""
        epoch_of(self.fired_at)

    @property
    def identity(self) -> str:
        """Name of this one job: SageMaker gives the name and ARN of a deleted job away again."""
        return f"{self.job_arn} {self.job_created_at}"
