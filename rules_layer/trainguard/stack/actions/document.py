"""The alert as one JSON document for machines, with its published schema.

``python -m trainguard.stack.actions.document > docs/schemas/alert-1.json`` renews the published copy.
"""

import sys
from typing import Any, Literal

import msgspec

from trainguard.core.finding import EpisodeEntry, Fact, Severity
from trainguard.core.records import AlertKind

SCHEMA_VERSION: Literal["1"] = "1"
IDENTITY = f"urn:trainguard:alert:{SCHEMA_VERSION}"


class AlertStop(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a stop; ``made`` is null where it is not known."""

    made: bool | None
    decision: str
    why: str
    stop_at: str | None


class AlertDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An alert, and the event ``TrainGuard Finding``; ignore fields that you do not know.

    Attributes
    ----------
    canary : bool
        Whether it is of the weekly canary, and of no job.
    alert_id, fire_id : str
        An alert may come twice, with the same ``alert_id``; all alerts of a fire have its ``fire_id``.
    fired_at : str
        Of the fire, also in later alerts.
    previous_severity, lasted_s : str or None, float or None
        Of an escalation; of a cleared finding.
    faults : list of str
        Of a notice.
    node : str
        ``*`` for the whole job.
    stop_error : str or None
        Why the call that stops failed.
    action : str
        What was done, in a sentence.
    late : bool
        Whether operators sent it.
    withheld, waits_until : str or None
        Why it is not sent to people; until when it waits.
    """

    schema_version: Literal["1"] = SCHEMA_VERSION
    kind: AlertKind
    canary: bool
    alert_id: str
    fire_id: str
    job: str
    job_arn: str
    tuning_job: str | None
    episode: int
    fired_at: str
    previous_severity: Severity | None
    lasted_s: float | None
    faults: list[str]
    rule: str
    node: str
    reason: str
    measured: float | None
    threshold: float | None
    severity: Severity | None
    advice: str | None
    cost: str | None
    episodes: list[EpisodeEntry]
    finding_kind: str
    facts: list[Fact]
    stop: AlertStop
    stop_error: str | None
    action: str
    late: bool
    withheld: str | None
    waits_until: str | None
    report_uri: str
    report_page: str | None
    report_link: str | None
    report_command: str
    run_links: dict[str, str]


def alert_schema() -> dict[str, Any]:
    # The function that sends alerts does without.
    from trainguard.report.document import report_schema  # noqa: PLC0415

    return {**report_schema(AlertDocument, identity=IDENTITY), "title": "Alert about a training job"}


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(alert_schema()), indent=2).decode() + "\n")
