"""How a job becomes known: described once, its settings resolved, its configuration kept in its item."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainguard.engine.evaluate import expiry
from trainguard.engine.fires import execution_name, fire_payload
from trainguard.engine.registration import FRAMEWORK_EXPECTED, FRAMEWORK_TAG, profile_place, stop_allowed
from trainguard.ports import Executions, Jobs, Journal, SettingDocuments, TrainingJobDescription, TrainingJobs
from trainguard.records import JOB_NODE, AlertKind, JobRecord, OutboxEntry
from trainguard.settings.document import read_document, unusable
from trainguard.settings.faults import SettingFault, told_faults
from trainguard.settings.resolve import resolve
from trainguard.settings.rule_configurations import configured
from trainguard.settings.source import Source
from trainguard.settings.tag_names import SETTINGS_TAG
from trainguard.settings.tags import asks, settings_name, tag_source
from trainguard.telemetry.keys import ProfileRoot

SETTINGS = "Settings"
"""Stands where a rule's name would in a notice of what is wrong with a job's settings."""

_MOST_SHOWN, _MOST_SENT = 5, 20
"""So many faults a notice has in its text, and in its document: SNS takes 256 kB, of all protocols together."""

_ADVICE = (
    "Correct it for the next job: settings are read once, when a job becomes known. "
    "`trainguard params validate` checks them before a job starts."
)


@dataclass(frozen=True, slots=True)
class Registrar:
    """Registers jobs; ``now`` gives epoch seconds."""

    jobs: Jobs
    training_jobs: TrainingJobs
    settings: SettingDocuments
    executions: Executions
    journal: Journal
    now: Callable[[], float]

    def ensure(self, *, bucket: str, root: ProfileRoot) -> JobRecord:
        """Return the job's item; create it from what SageMaker says when there is none.

        A job that SageMaker does not know (a profile copied into the bucket, a cluster of one's own) has no tags, and
        can never be stopped. Raises PortUnavailableError when its settings cannot be read now: no job is registered
        with less than was configured.
        """
        known = self.jobs.load(root.job)
        if known is not None:
            return known
        return self.register(self.training_jobs.describe(root.job), bucket=bucket, root=root)

    def register(self, description: TrainingJobDescription | None, *, bucket: str, root: ProfileRoot) -> JobRecord:
        """Create the job's item and tell once what is wrong with its settings; return the stored item."""
        record = describe_record(description, self.settings, bucket=bucket, root=root)
        if not record.policy.evaluated:
            record = replace(record, active=False, expires_at=expiry(None, self.now()))
        if record.setting_faults and (record.policy.evaluated or asks(description.tags if description else {})):
            # Before the item: what dies in between repeats the start, which is refused by its name.
            start_notice(record, self.executions, self.now())
        registered = self.jobs.register(record)
        for fault in registered.setting_faults:
            self.journal.count("configuration_faults", job=record.job, reason=fault)
        return registered


def describe_record(
    description: TrainingJobDescription | None, documents: SettingDocuments, *, bucket: str, root: ProfileRoot
) -> JobRecord:
    """Resolve a job's item from its description, its tags and the deployment's documents.

    Where the job's configuration names a place for its profile, that place is the job's own, whatever ``bucket`` and
    ``root`` say: objects elsewhere that carry its name are not its profile.

    Tags named ``trainguard:<Rule>_<parameter>`` are rule settings; ``trainguard:stop-on-fire`` with the value
    ``allowed``, to the letter, is the owner's permission to stop the job.
    """
    if description is None:
        record = JobRecord(job=root.job, arn=f"unknown:{root.job}", bucket=bucket, prefix=root.prefix)
        return _with_settings(record, None, documents)
    own = profile_place(description)
    if own is not None:
        bucket, root = own
    record = JobRecord(
        job=description.job,
        arn=description.arn,
        bucket=bucket,
        prefix=root.prefix,
        status=description.status,
        secondary_status=description.secondary_status,
        instance_type=description.instance_type,
        instance_count=description.instance_count,
        created_at=description.created_at,
        started_at=description.started_at,
        ended_at=description.ended_at,
        profiling_interval_ms=description.profiling_interval_ms,
        framework_expected=description.framework_profiling or description.tags.get(FRAMEWORK_TAG) == FRAMEWORK_EXPECTED,
        stop_allowed=stop_allowed(description),
        tuning_job=description.tuning_job,
    )
    return _with_settings(record, description, documents)


def _with_settings(
    record: JobRecord, description: TrainingJobDescription | None, documents: SettingDocuments
) -> JobRecord:
    tags = {} if description is None else description.tags
    rules = configured(description.profiler_rules, description.debugger_rules) if description else configured(())
    named = settings_name(tags, documents.path)
    sources = [tag_source(tags), rules.source]
    if isinstance(named, SettingFault):
        sources.append(Source(SETTINGS_TAG, faults=(named,)))
    elif named is not None:
        sources.append(_document(documents, named, f"SSM parameter {named}"))
    sources.append(_document(documents, documents.default, f"stack default {documents.default}"))
    resolved = resolve(record.job, sources, asked=asks(tags))
    return replace(
        record,
        rule_settings=resolved.parameters,
        policy=resolved.policy,
        setting_sources=resolved.sources,
        setting_faults=told_faults(resolved.faults),
        rules_elsewhere=rules.elsewhere,
        rule_places=rules.places,
    )


def _document(documents: SettingDocuments, name: str, called: str) -> Source:
    body = documents.read(name)
    return unusable(called, "not there", "a JSON document of settings") if body is None else read_document(called, body)


def start_notice(record: JobRecord, executions: Executions, now: float) -> None:
    """Start the execution that tells people, once a job, what is wrong with its settings."""
    faults = record.setting_faults
    shown = "\n".join(faults[:_MOST_SHOWN])
    more = f"\nand {len(faults) - _MOST_SHOWN} more" if len(faults) > _MOST_SHOWN else ""
    entry = OutboxEntry(
        fire_id=hashlib.sha256(repr((record.arn, SETTINGS)).encode()).hexdigest()[:20],
        rule=SETTINGS,
        episode=0,
        node=JOB_NODE,
        enqueued_at=now,
        reason=shown + more,
        measured=None,
        threshold=None,
        advice=_ADVICE,
        kind=AlertKind.NOTICE,
    )
    payload = {**fire_payload(entry, record), "faults": list(faults[:_MOST_SENT])}
    executions.start(execution_name(entry, record.job), payload)
