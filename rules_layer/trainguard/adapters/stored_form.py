"""The form in which rows and jobs are kept, the same for every kind of store."""

from dataclasses import replace

from trainguard.adapters.facts import stored_finding
from trainguard.adapters.immutable import frozen_record
from trainguard.adapters.timestamps import to_millisecond
from trainguard.records import JobRecord, NodeRecord, RuleRow

REASON_MAX_CHARACTERS = 1024


def stored_row(row: RuleRow) -> RuleRow:
    """Return the row as it reads after a round trip: times to the millisecond, texts that fit on a screen."""
    finding = stored_finding(row.finding)
    advice = finding.advice
    return frozen_record(
        row,
        finding=replace(finding, reason=capped(finding.reason), advice=None if advice is None else capped(advice)),
        evaluated_through=to_millisecond(row.evaluated_through),
        fired_at=to_millisecond(row.fired_at),
    )


def stored_node(record: NodeRecord) -> NodeRecord:
    """Return the item as it reads after a round trip: the findings in its outbox as `stored_finding` has them."""
    outbox = {name: replace(entry, finding=stored_finding(entry.finding)) for name, entry in record.outbox.items()}
    return frozen_record(record, outbox=outbox)


def stored_job(record: JobRecord) -> JobRecord:
    """Return the job as it reads after a round trip: times to the millisecond, urgent unless it is active and calm."""
    return frozen_record(
        record,
        created_at=to_millisecond(record.created_at),
        started_at=to_millisecond(record.started_at),
        ended_at=to_millisecond(record.ended_at),
        last_object_at=to_millisecond(record.last_object_at),
        close_asked_at=to_millisecond(record.close_asked_at),
        left_at=to_millisecond(record.left_at),
        asked_at=to_millisecond(record.asked_at),
        urgent=record.urgent or record.closing or not record.active,
    )


def capped(sentence: str) -> str:
    """Shorten a sentence to 1024 characters; an ellipsis shows that there was more."""
    return sentence if len(sentence) <= REASON_MAX_CHARACTERS else sentence[: REASON_MAX_CHARACTERS - 1] + "…"
