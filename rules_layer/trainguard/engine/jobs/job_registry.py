"""How a job becomes known: described once, its settings resolved, its configuration kept in its item."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import msgspec

from trainguard.engine.jobs.admission import check_new_job
from trainguard.engine.jobs.job_description import (
    FRAMEWORK_EXPECTED,
    FRAMEWORK_TAG,
    lies_elsewhere,
    profile_place,
    stop_allowed,
)
from trainguard.engine.outbox.fires import execution_name, fire_payload
from trainguard.engine.streams.state_items import expiry
from trainguard.finding import Finding
from trainguard.job_policy import JobPolicy
from trainguard.layout import ProfileRoot
from trainguard.plain_text import one_line
from trainguard.ports import Executions, Journal, Services, SettingDocuments, TrainingJobDescription, TrainingJobs
from trainguard.records import OUTSIDE_ARN, AlertKind, JobRecord, OutboxEntry
from trainguard.settings.document import read_document, unusable
from trainguard.settings.faults import NO_PLACE, SettingFault, fault_sentences
from trainguard.settings.owners import owners_of
from trainguard.settings.resolve import resolve
from trainguard.settings.rule_configurations import configured
from trainguard.settings.source import Source
from trainguard.settings.tag_names import SETTINGS_TAG
from trainguard.settings.tags import asks, settings_name, tag_source
from trainguard.stores import Jobs

SETTINGS = "Settings"
"""Stands where a rule's name would in a notice of what is wrong with a job's settings."""

_MOST_SHOWN, _MOST_SENT = 5, 20
"""So many faults a notice has in its text, and in its document: SNS takes 256 kB, of all protocols together."""

LONGEST_FAULT = 1_000

ASKED_EVERY_S = 300.0
"""SageMaker is asked this rarely about one job because of objects that are not judged."""

_ADVICE = (
    "Correct it for the next job: settings are read once, when a job becomes known. "
    "`trainguard params validate` checks them before a job starts."
)


@dataclass(frozen=True, slots=True)
class JobRegistry:
    """Registers jobs; ``now`` gives epoch seconds."""

    jobs: Jobs
    training_jobs: TrainingJobs
    settings: SettingDocuments
    executions: Executions
    journal: Journal
    now: Callable[[], float]

    @classmethod
    def of(cls, services: Services, now: Callable[[], float]) -> Self:
        """Return what registers jobs with a function's services."""
        return cls(
            jobs=services.jobs,
            training_jobs=services.training_jobs,
            settings=services.settings,
            executions=services.executions,
            journal=services.journal,
            now=now,
        )

    def ensure(self, *, bucket: str, root: ProfileRoot, announced: bool = False) -> JobRecord | None:
        """Return the job's item; create it from what SageMaker says when there is none.

        A job that SageMaker does not know (a profile copied into the bucket, a cluster of one's own) has no tags, and
        can never be stopped. SageMaker is asked about it again when its file or an end mark arrived (``announced``),
        when it is closed, and now and then when objects come from another place, or for a job that is not evaluated: it
        may have come to know a job of that name.

        A job whose configuration names another bucket than the objects' is not evaluated, as its item says; None when
        what was met under its name before was. Raises PortUnavailableError when its settings cannot be read now: no job
        is registered with less than was configured. Raises TooManyNamesError when objects brought too many new names.
        """
        known = job_of_place(self.jobs, bucket, root)
        if known is not None and not (known.is_outside and (announced or self._is_doubtful(known, bucket, root))):
            return known
        if known is None:
            check_new_job(self.jobs, self.now())
        description = self.training_jobs.describe(root.job)
        if description is not None and lies_elsewhere(description, bucket):
            known = known or self.jobs.register(self._elsewhere(description, bucket, root))
            return None if known.policy.evaluated else known
        if known is None:
            return self.register(description, bucket=bucket, root=root)
        is_outside = description is None or description.is_outside
        if is_outside and (known.bucket, known.prefix) != (bucket, root.prefix):
            why = f"s3://{bucket}/{root.folder} is its place, not s3://{known.bucket}/{known.root.folder}"
            return self._begin_anew(known, description, bucket=bucket, root=root, why=why)
        return self.recognise(known, description)

    def register(self, description: TrainingJobDescription | None, *, bucket: str, root: ProfileRoot) -> JobRecord:
        """Create the job's item and tell once what is wrong with its settings; return the stored item."""
        record = describe_record(description, self.settings, bucket=bucket, root=root)
        if not record.policy.evaluated:
            record = replace(record, active=False, expires_at=expiry(None, self.now()))
        self._give_notice(record, description)
        # An evaluator that asked before SageMaker knew the job may have been first.
        return self._noted(self.recognise(self.jobs.register(record), description))

    def recognise(self, known: JobRecord, description: TrainingJobDescription | None) -> JobRecord:
        """Return the job's item, which is a new one if it was of a job that SageMaker did not know, and now does.

        Settings are resolved from the job's tags, its place is the one that its configuration names, and nothing that
        was computed before is its own: who wrote objects under its name before may have been anybody. Several that
        recognise a job at once make the same item, and one of them stores it. It stays active until the tick has
        cleared what was left, also where the job is not to be evaluated. The item of a place stays what it is: the job
        gets one of its own, under its own name.

        ``description`` must be of a job whose profile lies in the bucket of ``known``.
        """
        if description is None or description.is_outside or not known.is_outside:
            return known
        if known.job != description.job:
            return self.register(description, bucket=known.bucket, root=known.root)
        why = f"SageMaker knows it as {description.arn}"
        return self._begin_anew(known, description, bucket=known.bucket, root=known.root, why=why)

    def _begin_anew(
        self,
        known: JobRecord,
        description: TrainingJobDescription | None,
        *,
        bucket: str,
        root: ProfileRoot,
        why: str,
    ) -> JobRecord:
        """Put the item of the job that a name belongs to in place of what was met under it before."""
        record = describe_record(description, self.settings, bucket=bucket, root=root)
        record = replace(record, generation=known.generation + 1)
        self._give_notice(record, description)
        self.journal.count("jobs_recognised", job=known.job, reason=why)
        return self._noted(self.jobs.recognise(record))

    def _give_notice(self, record: JobRecord, description: TrainingJobDescription | None) -> None:
        """Tell people what is wrong with the settings of a job whose owner, or whose stack, wants it evaluated.

        Before the item is written: what dies in between repeats the start, which is refused by its name.
        """
        if record.setting_faults and (record.policy.evaluated or asks(description.tags if description else {})):
            start_notice(record, self.executions, self.now())

    def _noted(self, registered: JobRecord) -> JobRecord:
        for fault in registered.setting_faults:
            self.journal.count("configuration_faults", job=registered.job, reason=fault)
        return registered

    def _is_doubtful(self, known: JobRecord, bucket: str, root: ProfileRoot) -> bool:
        """Whether SageMaker is to be asked if objects are of another job than the one outside that has their name.

        Anybody may write any number of objects that are not judged: for those it is asked once in a while.
        """
        if known.policy.evaluated and (known.bucket, known.prefix) == (bucket, root.prefix):
            return not known.active
        now = self.now()
        if known.asked_at is not None and now - known.asked_at < ASKED_EVERY_S:
            return False
        return self.jobs.ask(known.job, now, ASKED_EVERY_S)

    def _elsewhere(self, description: TrainingJobDescription, bucket: str, root: ProfileRoot) -> JobRecord:
        """Return the item of objects that bear the name of a job whose profile belongs into another bucket."""
        now = self.now()
        return JobRecord(
            job=root.place_name,
            arn=f"{OUTSIDE_ARN}{root.place_name}",
            bucket=bucket,
            prefix=root.prefix,
            active=False,
            expires_at=expiry(None, now),
            policy=JobPolicy(evaluated=False, why=f"its profile belongs into {description.profile_uri}"),
            asked_at=now,
        )


def job_of_place(jobs: Jobs, bucket: str, root: ProfileRoot) -> JobRecord | None:
    """Return the item of the job to which objects of a place would belong, as far as the table knows; None for none.

    A name by itself is SageMaker's: its job has it, and what lies elsewhere is nobody's. As long as SageMaker knows no
    such job the name is that of the folder at the bucket's root, and each other place has a name of its own. Only an
    item that an older version made for another place goes on under the name by itself, until somebody has a right to
    that.
    """
    known = jobs.load(root.job)
    if not root.prefix or (known is not None and not known.is_outside):
        return known
    if known is not None and (known.bucket, known.prefix) == (bucket, root.prefix):
        return known
    return jobs.load(root.place_name)


def describe_record(
    description: TrainingJobDescription | None, documents: SettingDocuments, *, bucket: str, root: ProfileRoot
) -> JobRecord:
    """Resolve a job's item from its description, its tags and the deployment's documents.

    Where the job's configuration names a place for its profile, that place is the job's own, whatever ``bucket`` and
    ``root`` say: objects elsewhere that carry its name are not its profile.

    Tags named ``trainguard:<Rule>_<parameter>`` are rule settings; ``trainguard:stop-on-fire`` with the value
    ``allowed``, to the letter, is the owner's permission to stop the job. Where the configuration names no place,
    anybody's objects count as the job's profile, and nothing may stop it.
    """
    if description is None:
        name = root.place_name
        record = JobRecord(job=name, arn=f"{OUTSIDE_ARN}{name}", bucket=bucket, prefix=root.prefix)
        return _with_settings(record, None, documents)
    own = profile_place(description)
    if own is not None:
        bucket, root = own
    name = root.place_name if description.is_outside else description.job
    record = JobRecord(
        job=name,
        arn=f"{OUTSIDE_ARN}{name}" if description.is_outside else description.arn,
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
        file_fault=description.file_fault,
        run_links=description.run_links,
        resources=description.resources,
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
    nowhere = description is not None and not description.is_outside and profile_place(description) is None
    if nowhere and record.stop_allowed:
        sources.append(Source("ProfilerConfig", faults=(NO_PLACE,)))
    resolved = resolve(record.root.job, sources, asked=asks(tags))
    return replace(
        record,
        rule_settings=resolved.parameters,
        policy=_unstoppable(resolved.policy) if nowhere else resolved.policy,
        setting_sources=resolved.sources,
        setting_faults=fault_sentences(resolved.faults),
        rules_elsewhere=rules.elsewhere,
        rule_places=rules.places,
        training_rules=resolved.training_rules,
        owners=owners_of(tags, resolved.owner_tags),
    )


def _unstoppable(policy: JobPolicy) -> JobPolicy:
    return msgspec.structs.replace(policy, stops=msgspec.structs.replace(policy.stops, rules=()))


def _document(documents: SettingDocuments, name: str, called: str) -> Source:
    body = documents.read(name)
    return unusable(called, "not there", "a JSON document of settings") if body is None else read_document(called, body)


def start_notice(record: JobRecord, executions: Executions, now: float) -> None:
    """Start the execution that tells people, once a job, what is wrong with its settings."""
    faults = [one_line(fault, LONGEST_FAULT) for fault in record.setting_faults]
    shown = "\n".join(faults[:_MOST_SHOWN])
    more = f"\nand {len(faults) - _MOST_SHOWN} more" if len(faults) > _MOST_SHOWN else ""
    entry = OutboxEntry(
        fire_id=hashlib.sha256(repr((record.arn, SETTINGS)).encode()).hexdigest()[:20],
        episode=0,
        enqueued_at=now,
        finding=Finding(rule=SETTINGS, node=None, reason=shown + more, advice=_ADVICE),
        kind=AlertKind.NOTICE,
    )
    payload = {**fire_payload(entry, record), "faults": faults[:_MOST_SENT]}
    executions.start(execution_name(entry, record.job), payload)
