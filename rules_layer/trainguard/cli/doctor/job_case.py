"""What is known of one job, gathered from SageMaker, the tables and the bucket, each asked when it is needed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING

from trainguard.adapters.sagemaker import SageMakerTrainingJobs
from trainguard.adapters.ssm_settings import SsmSettingDocuments
from trainguard.cli.doctor.asking import asking
from trainguard.cli.doctor.site import Site
from trainguard.cli.services.deployment import Stores, open_stores
from trainguard.engine.jobs.job_registry import describe_record
from trainguard.engine.streams.state_items import items_of
from trainguard.errors import ForeignKeyError
from trainguard.layout import ProfileRoot, hour_folder
from trainguard.ports import ListedObject, ProfileObjects, TrainingJobDescription
from trainguard.records import JOB_NODE, JobRecord, NodeRecord, RuleRow
from trainguard.telemetry.keys import ProfileKey, SystemKey, parse_key, parse_trace_key

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import ProfilerConfigOutputTypeDef

_RECENT_S = 7_200.0
_FIRST_LOOK = 2_000
"""Objects at a profile's beginning that are looked at: two pages of a listing."""

_LAST_LOOK = 20_000
"""Objects of its last hours: more than two hours of 128 nodes."""


@dataclass(frozen=True, slots=True)
class SeenProfile:
    """What was seen of a job's profile: its first objects, and the system metrics of its last two hours.

    Attributes
    ----------
    looked_at : int
        Objects at the beginning that were looked at.
    foreign : sequence of str
        Their keys that are no objects of a profile, in order.
    nodes : frozenset of str
        Nodes that have written system metrics.
    first_minute, last_minute : int or None
        The first and the last minute of system metrics, epoch seconds.
    last_modified : float or None
        When S3 got the last of them, epoch seconds.
    """

    looked_at: int
    foreign: Sequence[str]
    nodes: frozenset[str]
    first_minute: int | None
    last_minute: int | None
    last_modified: float | None


class JobCase:
    """One job under examination.

    Parameters
    ----------
    site : Site
        The stack that should look after it.
    job : str
    """

    def __init__(self, site: Site, job: str) -> None:
        self.site = site
        self.job = job

    @cached_property
    def description(self) -> TrainingJobDescription | None:
        """What SageMaker says of the job, with its tags; None when it does not know it."""
        return SageMakerTrainingJobs(client=self.site.clients.sagemaker).describe(self.job)

    @cached_property
    def profiler(self) -> "ProfilerConfigOutputTypeDef":
        """The ProfilerConfig of a job that SageMaker knows, as it was given."""
        with asking("sagemaker:DescribeTrainingJob"):
            answer = self.site.clients.sagemaker.describe_training_job(TrainingJobName=self.job)
        return answer.get("ProfilerConfig", {})

    @cached_property
    def stored(self) -> JobRecord | None:
        """The job's item in Jobs."""
        return self._stores.jobs.load(self.job)

    @cached_property
    def record(self) -> JobRecord:
        """The job's item, or what it would be when its first object rang now."""
        if self.stored is not None:
            return self.stored
        deployment = self.site.deployment
        documents = SsmSettingDocuments(
            client=lambda: self.site.clients.ssm,
            default=deployment.output("DefaultSettingsParameter"),
            path=deployment.output("SettingsPath"),
        )
        root = ProfileRoot.named(self.job)
        return describe_record(self.description, documents, bucket=self.site.bucket, root=root)

    @cached_property
    def nodes(self) -> Sequence[NodeRecord]:
        """The items of the job's nodes."""
        return [record for record in items_of(self.record, self._stores.nodes) if record.key.node != JOB_NODE]

    @cached_property
    def rows(self) -> Sequence[RuleRow]:
        """The rules' rows of the job as a whole."""
        return [row for row in self._stores.rows.of_job(self.job) if row.node is None]

    @property
    def root(self) -> ProfileRoot:
        """Where the profile should lie."""
        return self.record.root

    @property
    def place(self) -> str:
        """The profile's place as an S3 URI."""
        return f"s3://{self.record.bucket}/{self.root.folder}profiler-output/"

    @cached_property
    def profile(self) -> SeenProfile:
        """What lies in the bucket."""
        until = self.record.ended_at or self.site.now
        return look_at(self._stores.objects, self.record.bucket, self.root, until)

    @property
    def objects(self) -> ProfileObjects:
        """The objects of the bucket."""
        return self._stores.objects

    @cached_property
    def _stores(self) -> Stores:
        return open_stores(self.site.deployment, self.site.clients)


def look_at(objects: ProfileObjects, bucket: str, root: ProfileRoot, until: float) -> SeenProfile:
    """Look at a profile's first objects, and at its system metrics from two hours before ``until`` (epoch seconds)."""
    whole = f"{root.folder}profiler-output/"
    first = list(islice(objects.list(bucket, whole, ""), _FIRST_LOOK))
    parsed = [(each, _parsed(each)) for each in first]
    late = f"{root.system}{hour_folder(int(until - _RECENT_S))}/"
    earliest = islice(objects.list(bucket, root.system, ""), 1)
    recent = islice(objects.list(bucket, root.system, late), _LAST_LOOK)
    minutes = sorted(_minutes(chain(first, earliest, recent)))
    return SeenProfile(
        looked_at=len(first),
        foreign=[each.key for each, key in parsed if key is None and parse_trace_key(each.key) is None],
        nodes=frozenset(node for _, _, node in minutes),
        first_minute=minutes[0][0] if minutes else None,
        last_minute=minutes[-1][0] if minutes else None,
        last_modified=minutes[-1][1] if minutes else None,
    )


def _minutes(listed: Iterable[ListedObject]) -> Iterable[tuple[int, float, str]]:
    for each in listed:
        key = _parsed(each)
        if isinstance(key, SystemKey):
            yield key.minute, each.last_modified, key.node


def _parsed(listed: ListedObject) -> ProfileKey | None:
    try:
        return parse_key(listed.key)
    except ForeignKeyError:
        return None
