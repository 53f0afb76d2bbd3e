"""Registers a job: described once, its settings resolved, its configuration kept in its item."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import msgspec

from trainguard.core.canary_name import CANARY_MARK, is_marked, planted_at
from trainguard.core.errors import JobFileError, ObjectMissingError, TooManyNamesError
from trainguard.core.finding import Finding
from trainguard.core.job_policy import MOST_NEW_JOBS, MOST_OTHER_STREAMS, JobPolicy
from trainguard.core.layout import JOB_NAME, ProfileRoot
from trainguard.core.ports import (
    Executions,
    JobServices,
    Services,
    SettingDocuments,
    TrainingJobDescription,
    TrainingJobs,
)
from trainguard.core.records import OUTSIDE_ARN, AlertKind, JobRecord, JobStatus, OutboxEntry, StreamKey, StreamRecord
from trainguard.core.stores import Bookkeeping, Jobs
from trainguard.core.text import one_line
from trainguard.engine.family import Families
from trainguard.engine.jobs.job_description import lies_elsewhere, profile_place, stop_allowed
from trainguard.engine.jobs.job_file import MAX_BYTES, read_job_file
from trainguard.engine.outbox import execution_name, fire_payload
from trainguard.engine.settings.job_settings import (
    NO_PLACE,
    SettingFault,
    Source,
    fault_sentences,
    resolve,
)
from trainguard.engine.settings.sources import asks, configured, read_document, settings_name, tag_source, unusable
from trainguard.engine.settings.tag_names import FRAMEWORK_EXPECTED, FRAMEWORK_TAG, SETTINGS_TAG, owners_of
from trainguard.engine.streams.job_streams import JobStreams
from trainguard.engine.streams.session import expiry

LEFT_OUT = "streams_left_out"
_NAMED = re.compile(r"algo-([1-9][0-9]{0,5})")


def check_stream(job: JobRecord, record: StreamRecord, jobs: Jobs) -> None:
    """Admit the stream of an item; raises TooManyNamesError for a new one beyond the job's limit."""
    if record.version or record.key.is_own or is_named(job, record.key):
        return
    known_full = job.streams_left_out and job.other_streams >= MOST_OTHER_STREAMS
    if known_full or not jobs.admit_stream(job.job, MOST_OTHER_STREAMS):
        raise TooManyNamesError(
            f"streams of job {job.job}", MOST_OTHER_STREAMS, "beside those of the nodes that SageMaker names"
        )


def check_new_job(bookkeeping: Bookkeeping, now: float) -> None:
    """Admit a name that objects brought, at ``now`` (epoch seconds); raises TooManyNamesError beyond the limit."""
    if not bookkeeping.admit(now, MOST_NEW_JOBS):
        raise TooManyNamesError("new names of jobs", MOST_NEW_JOBS, "within an hour")


def is_named(job: JobRecord, key: StreamKey) -> bool:
    """Whether SageMaker names the node of a stream: ``algo-1`` to ``algo-<instance count>``."""
    match = None if job.is_outside else _NAMED.fullmatch(key.node)
    return match is not None and int(match[1]) <= (job.instance_count or 0)


def recount(job: JobRecord, streams: JobStreams, jobs: Jobs) -> None:
    """Correct the number of a job's other streams: an evaluation that failed may have counted one twice."""
    actual = sum(not is_named(job, key) for key in streams.records)
    if job.other_streams > actual:
        jobs.recount_streams(job.job, job.other_streams, actual)


def left_out(job: JobRecord) -> dict[str, int]:
    return {LEFT_OUT: 1} if job.streams_left_out else {}


# Stands where a rule's name would in a notice about a job's settings.
SETTINGS = "Settings"

# Faults in a notice's text, and in its document: SNS takes 256 kB, of all protocols together.
_MOST_SHOWN, _MOST_SENT = 5, 20

LONGEST_FAULT = 1_000

# Between two questions to SageMaker about one job because of objects that are not judged.
ASKED_EVERY_S = 300.0

_ADVICE = (
    "Correct it for the next job: settings are read once, when a job becomes known. "
    "`trainguard params validate` checks them before a job starts."
)


@dataclass(frozen=True, slots=True)
class JobRegistry:
    services: JobServices
    families: Families
    now: Callable[[], float]

    def ensure(
        self,
        bookkeeping: Bookkeeping,
        *,
        bucket: str,
        root: ProfileRoot,
        known_jobs: TrainingJobs | None = None,
        announced: bool = False,
    ) -> JobRecord | None:
        """Return the job's item; create it from what SageMaker says when there is none.

        A job that SageMaker does not know has no tags, and can never be stopped. SageMaker is asked about it again when
        its file or an end mark arrived (``announced``), when it is closed, and now and then when objects come from
        another place. A job whose configuration names another bucket is not evaluated; None when what was met under its
        name before was. Raises PortUnavailableError when its settings cannot be read now, TooManyNamesError when
        objects brought too many new names. ``known_jobs`` may have asked SageMaker before.
        """
        jobs = self.services.jobs
        known = job_of_place(jobs, bucket, root)
        if known is not None and not (known.is_outside and (announced or self._is_uncertain(known, bucket, root))):
            return known
        if known is None:
            check_new_job(bookkeeping, self.now())
        description = (known_jobs or self.services.training_jobs).describe(root.job)
        if description is not None and lies_elsewhere(description, bucket):
            known = known or jobs.register(self._elsewhere(description, bucket, root))
            return None if known.policy.evaluated else known
        if known is None:
            return self.register(description, bucket=bucket, root=root)
        is_outside = description is None or description.is_outside
        if is_outside and (known.bucket, known.prefix) != (bucket, root.prefix):
            why = f"s3://{bucket}/{root.folder} is its place, not s3://{known.bucket}/{known.root.folder}"
            return self._register_again(known, description, bucket=bucket, root=root, why=why)
        return self.adopt(known, description)

    def register(self, description: TrainingJobDescription | None, *, bucket: str, root: ProfileRoot) -> JobRecord:
        """Create the job's item and notify once of faults in its settings; return the stored item."""
        record = describe_record(description, self.services.settings, bucket=bucket, root=root)
        if not record.policy.evaluated:
            record = replace(record, active=False, expires_at=expiry(None, self.now()))
        self._give_notice(record, description)
        # An evaluator that asked before SageMaker knew the job may have been first.
        return self._noted(self.adopt(self.services.jobs.register(record), description))

    def adopt(self, known: JobRecord, description: TrainingJobDescription | None) -> JobRecord:
        """Return the job's item, a new one if SageMaker did not know the job and now does.

        ``description`` must be of a job whose profile lies in the bucket of ``known``. Nothing that was computed before
        is the job's: anybody may have written objects under its name. Several that recognise a job at once make the
        same item. It stays active until the scheduler has cleared what was left. The item of a place stays; the job
        gets one under its own name.
        """
        if description is None or description.is_outside or not known.is_outside:
            return known
        if known.job != description.job:
            return self.register(description, bucket=known.bucket, root=known.root)
        why = f"SageMaker knows it as {description.arn}"
        return self._register_again(known, description, bucket=known.bucket, root=known.root, why=why)

    def _register_again(
        self, known: JobRecord, description: TrainingJobDescription | None, *, bucket: str, root: ProfileRoot, why: str
    ) -> JobRecord:
        record = describe_record(description, self.services.settings, bucket=bucket, root=root)
        record = replace(record, generation=known.generation + 1)
        self._give_notice(record, description)
        self.services.journal.count("jobs_recognised", job=known.job, reason=why)
        return self._noted(self.services.jobs.adopt(record))

    def _give_notice(self, record: JobRecord, description: TrainingJobDescription | None) -> None:
        """Notify of faults in a job's settings before the item is written: a repeated start is refused by its name."""
        if record.setting_faults and (record.policy.evaluated or asks(description.tags if description else {})):
            start_notice(record, self.services.executions, self.now())

    def _noted(self, registered: JobRecord) -> JobRecord:
        for fault in registered.setting_faults:
            self.services.journal.count("configuration_faults", job=registered.job, reason=fault)
        return registered

    def _is_uncertain(self, known: JobRecord, bucket: str, root: ProfileRoot) -> bool:
        """Whether to ask SageMaker if objects are of another job than the one outside that has their name."""
        if known.policy.evaluated and (known.bucket, known.prefix) == (bucket, root.prefix):
            return not known.active
        now = self.now()
        if known.asked_at is not None and now - known.asked_at < ASKED_EVERY_S:
            return False
        return self.services.jobs.ask(known.job, now, ASKED_EVERY_S)

    def _elsewhere(self, description: TrainingJobDescription, bucket: str, root: ProfileRoot) -> JobRecord:
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
    """Return the item of the job to which objects of a place would belong, as far as the table knows; or None.

    A bare name is SageMaker's. As long as SageMaker knows no such job it is that of the folder at the bucket's root;
    each other place has a name of its own. An older version's item for another place keeps the bare name until somebody
    has a right to it.
    """
    known = jobs.load(root.job)
    if not root.prefix or (known is not None and not known.is_outside):
        return known
    if known is not None and (known.bucket, known.prefix) == (bucket, root.prefix):
        return known
    return jobs.load(root.place_name)


class KnownJobs:
    """Asks SageMaker what a job is, then the job's own file; each question once, so it serves one piece of work."""

    def __init__(self, services: Services, *, bucket: str, root: ProfileRoot) -> None:
        self._services = services
        self._bucket = bucket
        self._root = root
        self._described: dict[str, TrainingJobDescription | None] = {}
        self._file_descriptions: dict[str, TrainingJobDescription | None] = {}

    def describe(self, job: str) -> TrainingJobDescription | None:
        if job not in self._described:
            self._described[job] = self._services.training_jobs.describe(job) or self.job_file_description(job)
        return self._described[job]

    def job_file_description(self, job: str) -> TrainingJobDescription | None:
        """Return what the job's own file says, also that it cannot be used; None when there is none."""
        if job not in self._file_descriptions:
            self._file_descriptions[job] = self._read(job)
        return self._file_descriptions[job]

    def _read(self, job: str) -> TrainingJobDescription | None:
        key = self._root.job_file
        try:
            return read_job_file(key, self._services.objects.get(self._bucket, key, MAX_BYTES), job)
        except ObjectMissingError:
            return None
        except JobFileError as fault:
            self._services.journal.count("bad_job_files", job=job, key=key, reason=str(fault))
            return TrainingJobDescription(job, f"{OUTSIDE_ARN}{job}", JobStatus.UNKNOWN, file_fault=str(fault))


MOST_FOLDERS = 13

_NAME = re.compile(JOB_NAME)


class JobFolderIndex:
    """The jobs' folders of one bucket, as far as the table has them; each is looked up once."""

    def __init__(self, jobs: Jobs, bucket: str) -> None:
        self._jobs = jobs
        self._bucket = bucket
        self._known: dict[ProfileRoot, bool] = {}

    def root_above(self, bucket: str, key: str) -> ProfileRoot | None:
        """Return the root of the innermost job's folder above an object, or None; raises PortUnavailableError."""
        if bucket != self._bucket:
            return None
        folders = key.split("/")[:-1]
        for depth in range(len(folders), max(len(folders) - MOST_FOLDERS, 0), -1):
            *above, name = folders[:depth]
            root = ProfileRoot("".join(f"{each}/" for each in above), name)
            if _NAME.fullmatch(name) and self._is_known(root):
                return root
        return None

    def _is_known(self, root: ProfileRoot) -> bool:
        if root not in self._known:
            record = job_of_place(self._jobs, self._bucket, root)
            self._known[root] = record is not None and (record.bucket, record.root) == (self._bucket, root)
        return self._known[root]


_AS_DESCRIBED = {each.name for each in fields(JobRecord)} & {each.name for each in fields(TrainingJobDescription)} - {
    "job",
    "arn",
}


def describe_record(
    description: TrainingJobDescription | None, documents: SettingDocuments, *, bucket: str, root: ProfileRoot
) -> JobRecord:
    """Resolve a job's item from its description, its tags and the deployment's documents.

    Where the job's configuration names a place for its profile, objects elsewhere are not its profile; where it names
    none, anybody's objects count, and nothing may stop the job.
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
        framework_expected=description.framework_profiling or description.tags.get(FRAMEWORK_TAG) == FRAMEWORK_EXPECTED,
        stop_allowed=stop_allowed(description),
        canary=_is_own_canary(description, documents),
        **{name: getattr(description, name) for name in _AS_DESCRIBED},
    )
    return _with_settings(record, description, documents)


def _is_own_canary(description: TrainingJobDescription, documents: SettingDocuments) -> bool:
    """Whether a job is the stack's own canary; no other name makes the mark be read."""
    if description.is_outside or planted_at(description.job) is None:
        return False
    marked = documents.read(f"{documents.path}{CANARY_MARK}")
    return is_marked(description.job, description.created_at or 0.0, marked)


def _with_settings(
    record: JobRecord, description: TrainingJobDescription | None, documents: SettingDocuments
) -> JobRecord:
    tags = {} if description is None else description.tags
    rules = configured(description.profiler_rules, description.debugger_rules) if description else configured(())
    named = settings_name(tags, documents.path)
    sources = [tag_source(tags), rules]
    if isinstance(named, SettingFault):
        sources.append(Source(SETTINGS_TAG, faults=(named,)))
    elif named is not None:
        sources.append(_document(documents, named, f"SSM parameter {named}"))
    sources.append(_document(documents, documents.default, f"stack default {documents.default}"))
    nowhere = description is not None and not description.is_outside and profile_place(description) is None
    if nowhere and record.stop_allowed:
        sources.append(Source("ProfilerConfig", faults=(NO_PLACE,)))
    resolved = resolve(record.root.job, sources, asked=asks(tags))
    policy = resolved.policy
    if nowhere:
        policy = msgspec.structs.replace(policy, stops=msgspec.structs.replace(policy.stops, rules=()))
    return replace(
        record,
        rule_settings=resolved.parameters,
        policy=policy,
        setting_sources=resolved.sources,
        setting_faults=fault_sentences(resolved.faults),
        rules_elsewhere=rules.elsewhere,
        rule_places=rules.places,
        training_rules=resolved.training_rules,
        owners=owners_of(tags, resolved.owner_tags),
        time_limit_s=resolved.time_limit_s or record.time_limit_s,
        total_steps=resolved.total_steps or record.total_steps,
    )


def _document(documents: SettingDocuments, name: str, called: str) -> Source:
    body = documents.read(name)
    return unusable(called, "not there", "a JSON document of settings") if body is None else read_document(called, body)


def start_notice(record: JobRecord, executions: Executions, now: float) -> None:
    """Start the execution that notifies, once a job, of faults in its settings."""
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
