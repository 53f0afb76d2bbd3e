"""Jobs outside SageMaker: what ``<job>/job.json`` says about a job, which has no ARN and so can never be stopped."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from trainguard.core.errors import JobFileError
from trainguard.core.ports import TrainingJobDescription
from trainguard.core.records import OUTSIDE_ARN, JobStatus
from trainguard.core.text import one_line
from trainguard.engine.settings.job_settings import run_pages
from trainguard.engine.settings.tag_names import NAMESPACE, STOP_TAG
from trainguard.formats.profile.assemble import SHORTEST_CONFIGURED_MS

MAX_BYTES = 64 * 1024
MAX_TAGS = 200

_LONGEST_NAME = 128
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_NAME)]
_Text = Annotated[str, msgspec.Meta(max_length=256)]
_Time = Annotated[datetime, msgspec.Meta(tz=True)] | Annotated[float, msgspec.Meta(ge=0.0, lt=32_503_680_000.0)]
_Value = _Text | int | float | bool
_BatchJob = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9-]{1,64}([:#][0-9]{1,5})?\Z")]
_Instance = Annotated[str, msgspec.Meta(pattern=r"^i-[0-9a-f]{8,17}\Z")]
_Cluster = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")]
# A Job of Kubernetes, a Workload of Kueue, or a job of Slurm.
_Workload = Annotated[
    str, msgspec.Meta(pattern=r"^((job|kueue)/[a-z0-9-]{1,63}/[a-z0-9.-]{1,253}|slurm/[0-9]{1,10})\Z")
]
_Count = Annotated[int, msgspec.Meta(ge=1, le=1_000)]


class JobResources(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    batch_job: _BatchJob | None = None
    instances: Annotated[list[_Instance], msgspec.Meta(max_length=64)] = []
    cluster: _Cluster | None = None
    workload: _Workload | None = None

    @property
    def named(self) -> tuple[str, ...]:
        if self.workload is not None:
            return (f"workload/{self.cluster}/{self.workload}",)
        if self.batch_job is not None:
            return (f"batch-job/{self.batch_job}",)
        return tuple(dict.fromkeys(f"instance/{each}" for each in self.instances))


class JobFile(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of ``job.json``; times are ISO 8601 or epoch seconds, ``settings`` as tags ``trainguard:<name>``."""

    schema_version: Literal[1] = 1
    name: _Name
    status: Literal["InProgress", "Stopping", "Stopped", "Completed", "Failed"] | None = None
    instance_type: _Name | None = None
    instance_count: _Count | None = None
    started_at: _Time | None = None
    ended_at: _Time | None = None
    profiling_interval_ms: Annotated[int, msgspec.Meta(ge=SHORTEST_CONFIGURED_MS, le=3_600_000)] | None = None
    framework_metrics: bool = False
    settings: dict[_Name, _Value] = msgspec.field(default_factory=dict)
    tags: dict[_Name, _Text] = msgspec.field(default_factory=dict)
    resources: JobResources = JobResources()
    platform: _Name | None = None
    queue: _Name | None = None


_FIELDS = {field.name: field for field in msgspec.structs.fields(JobFile)}


def read_job_file(key: str, body: bytes, job: str | None) -> TrainingJobDescription:
    """Return what the file says about ``job``, or about whichever job it names; raises JobFileError."""
    if len(body) > MAX_BYTES:
        raise JobFileError(key, None, f"over {MAX_BYTES:,} bytes long", f"at most {MAX_BYTES:,}")
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise JobFileError(key, None, body[:80].decode("utf-8", "replace"), f"JSON ({fault})") from fault
    if not isinstance(document, dict):
        raise JobFileError(key, None, document, 'an object such as {"name": "my-job"}')
    if "name" not in document:
        raise JobFileError(key, "name", None, "the job's name" if job is None else _name_expected(job))
    file = JobFile(**{name: _field(key, name, value) for name, value in document.items()})
    _check(key, file, job)
    tags = {f"{NAMESPACE}{name}": str(value) for name, value in file.settings.items()} | file.tags
    return TrainingJobDescription(
        job=job or file.name,
        arn=f"{OUTSIDE_ARN}{job or file.name}",
        status=_status(file),
        instance_type=file.instance_type,
        instance_count=file.instance_count,
        started_at=_epoch(file.started_at),
        ended_at=_epoch(file.ended_at),
        profiling_interval_ms=file.profiling_interval_ms,
        framework_profiling=file.framework_metrics,
        tags={name: value for name, value in tags.items() if name != STOP_TAG},
        run_links=run_pages(tags),
        resources=file.resources.named,
        platform=_shown(file.platform),
        queue=_shown(file.queue),
    )


def _shown(text: str | None) -> str | None:
    return None if text is None else one_line(text, _LONGEST_NAME)


def _field(key: str, name: str, value: Any) -> Any:
    field = _FIELDS.get(name)
    if field is None:
        raise JobFileError(key, name, value, f"one of the fields {', '.join(_FIELDS)}")
    try:
        return msgspec.convert(value, field.type)
    except msgspec.ValidationError as fault:
        raise JobFileError(key, name, value, str(fault).removeprefix("Expected ")) from fault


def _name_expected(job: str) -> str:
    return f"{job!r}, the folder that the file lies in"


def _check(key: str, file: JobFile, job: str | None) -> None:
    """Refuse what each field allows and all together do not."""
    if job is not None and file.name != job:
        raise JobFileError(key, "name", file.name, _name_expected(job))
    if len(file.settings) + len(file.tags) > MAX_TAGS:
        raise JobFileError(key, "settings", f"{len(file.settings) + len(file.tags)} long, with the tags", f"{MAX_TAGS}")
    resources = file.resources
    if sum((resources.batch_job is not None, bool(resources.instances), resources.workload is not None)) > 1:
        raise JobFileError(key, "resources", "of two kinds", "batch_job, instances, or cluster and workload")
    if (resources.cluster is None) != (resources.workload is None):
        raise JobFileError(key, "resources", "of half a workload", "cluster and workload")
    started_at, ended_at = _epoch(file.started_at), _epoch(file.ended_at)
    if ended_at is not None and not _status(file).is_final:
        raise JobFileError(key, "status", file.status, "Completed, Failed or Stopped, because ended_at is given")
    if started_at is not None and ended_at is not None and ended_at < started_at:
        raise JobFileError(key, "ended_at", file.ended_at, f"a time that is not before started_at, {file.started_at}")


def _status(file: JobFile) -> JobStatus:
    return JobStatus.UNKNOWN if file.status is None else JobStatus(file.status)


def _epoch(time: datetime | float | None) -> float | None:
    return time.timestamp() if isinstance(time, datetime) else time
