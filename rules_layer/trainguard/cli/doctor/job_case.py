"""Records of one job from SageMaker, the tables and the bucket, each read when it is needed."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING

from trainguard.aws.sagemaker import SageMakerTrainingJobs
from trainguard.aws.ssm import SsmSettingDocuments
from trainguard.cli.doctor.site import CheckResult, Site, asking, ok, warn
from trainguard.core.errors import UnreadableKeyError
from trainguard.core.layout import RESULTS_FOLDER, ProfileRoot, hour_folder
from trainguard.core.ports import ListedObject, ProfileObjects, TrainingJobDescription
from trainguard.core.records import JOB_NODE, JobRecord, RuleRow, StreamRecord
from trainguard.core.text import one_line
from trainguard.core.units import counted
from trainguard.engine.jobs.job_registry import describe_record
from trainguard.engine.kernels.session import MOST_FOLDERS, CaptureState
from trainguard.engine.streams.session import items_of, state_of
from trainguard.formats.profile.keys import ProfileKey, SystemKey, parse_key, parse_trace_key
from trainguard.kernels.captures.keys import (
    DATABASE_ENDINGS,
    DEEPEST,
    KERNELS,
    TRACE_ENDINGS,
    TRACE_FOLDER,
    is_named,
    match_below,
    match_key,
)
from trainguard.local.traces import is_snapshot_name

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import ProfilerConfigOutputTypeDef

_RECENT_S = 7_200.0
_FIRST_LOOK = 2_000

_LAST_LOOK = 20_000
MOST_LOOKED_AT = 20_000
_NAMED = 3
_LONGEST = 160
_LAST = "\U0010ffff"

# A folder, and whether its memory snapshots are meant, or its traces.
Sort = tuple[str, bool]

# Traces and snapshots of a job: how many of each sort, keys by why they are not read, whether there are more.
SeenTraces = tuple[Mapping[Sort, int], Mapping[str, Sequence[str]], bool]


@dataclass(frozen=True, slots=True)
class SeenProfile:
    """A job's first objects, with ``foreign`` keys, and its newest system metrics; times in epoch seconds."""

    looked_at: int
    foreign: Sequence[str]
    nodes: frozenset[str]
    first_minute: int | None
    last_minute: int | None
    last_modified: float | None


class JobCase:
    def __init__(self, site: Site, job: str) -> None:
        self.site = site
        self.job = job

    @cached_property
    def description(self) -> TrainingJobDescription | None:
        """SageMaker's description of the job, with its tags; None when it does not know it."""
        return SageMakerTrainingJobs(client=lambda: self.site.clients.sagemaker).describe(self.job)

    @property
    def tags(self) -> Mapping[str, str]:
        """The job's tags; none of one that SageMaker does not know."""
        return {} if self.description is None else self.description.tags

    @cached_property
    def profiler(self) -> "ProfilerConfigOutputTypeDef":
        """The ProfilerConfig of a job that SageMaker knows, as it was given."""
        with asking("sagemaker:DescribeTrainingJob"):
            answer = self.site.clients.sagemaker.describe_training_job(TrainingJobName=self.job)
        return answer.get("ProfilerConfig", {})

    @cached_property
    def stored(self) -> JobRecord | None:
        return self.site.deployment.stores.jobs.load(self.job)

    @cached_property
    def record(self) -> JobRecord:
        """The job's item, or what it would be when its first object was announced now."""
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
    def nodes(self) -> Sequence[StreamRecord]:
        return [
            record for record in items_of(self.record, self.site.deployment.stores.nodes) if record.key.node != JOB_NODE
        ]

    @cached_property
    def rows(self) -> Sequence[RuleRow]:
        return [row for row in self.site.deployment.stores.rows.of_job(self.job) if row.node is None]

    @property
    def root(self) -> ProfileRoot:
        return self.record.root

    @property
    def place(self) -> str:
        return f"s3://{self.record.bucket}/{self.root.folder}profiler-output/"

    @cached_property
    def profile(self) -> SeenProfile:
        until = self.record.ended_at or self.site.now
        return look_at(self.site.deployment.stores.objects, self.record.bucket, self.root, until)

    @property
    def objects(self) -> ProfileObjects:
        return self.site.deployment.stores.objects


def look_at(objects: ProfileObjects, bucket: str, root: ProfileRoot, until: float) -> SeenProfile:
    """Read a profile's first objects, and its system metrics from two hours before ``until`` (epoch seconds)."""
    whole = f"{root.folder}profiler-output/"
    first = list(islice(objects.list(bucket, whole, ""), _FIRST_LOOK))
    parsed = [(each, _parsed(each)) for each in first]
    late = f"{root.system}{hour_folder(int(until - _RECENT_S))}/"
    earliest = islice(objects.list(bucket, root.system, ""), 1)
    recent = islice(objects.list(bucket, root.system, late), _LAST_LOOK)
    keys = ((each, _parsed(each)) for each in chain(first, earliest, recent))
    minutes = sorted((key.minute, each.last_modified, key.node) for each, key in keys if isinstance(key, SystemKey))
    return SeenProfile(
        looked_at=len(first),
        foreign=[each.key for each, key in parsed if key is None and parse_trace_key(each.key) is None],
        nodes=frozenset(node for _, _, node in minutes),
        first_minute=minutes[0][0] if minutes else None,
        last_minute=minutes[-1][0] if minutes else None,
        last_modified=minutes[-1][1] if minutes else None,
    )


def _parsed(listed: ListedObject) -> ProfileKey | None:
    try:
        return parse_key(listed.key)
    except UnreadableKeyError:
        return None


def look_at_traces(objects: ProfileObjects, bucket: str, root: ProfileRoot) -> SeenTraces:
    """Find the traces and snapshots below a job's folder; raises PortUnavailableError."""
    listed = list(islice(_listed(objects, bucket, root), MOST_LOOKED_AT + 1))
    folders: Counter[Sort] = Counter()
    unread: defaultdict[str, list[str]] = defaultdict(list)
    for each in listed[:MOST_LOOKED_AT]:
        found = match_below(each.key, root)
        if found is not None:
            folders[found.folder, found.is_snapshot] += 1
        elif each.key.endswith((*TRACE_ENDINGS, *DATABASE_ENDINGS)) or is_snapshot_name(each.key):
            unread[_why(each.key)].append(each.key)
    return folders, unread, len(listed) > MOST_LOOKED_AT


def check_traces(case: JobCase) -> Iterable[CheckResult]:
    """Judge whether a job's kernel traces and memory snapshots are read."""
    seen = look_at_traces(case.objects, case.record.bucket, case.root)
    stream = next((each for each in case.nodes if each.key.family == KERNELS), None)
    state = CaptureState() if stream is None else state_of(stream, CaptureState)
    met = {*((each, False) for each in state.folders), *((each, True) for each in state.snapshot_folders)}
    return grade_traces(seen, met, case.root)


def grade_traces(seen: SeenTraces, met: Set[Sort], root: ProfileRoot) -> Iterator[CheckResult]:
    """Judge traces and snapshots; ``met`` are those that the evaluator knows to have some, the newest 32 of each."""
    found, unread, is_cut = seen
    more = f" among the first {MOST_LOOKED_AT:,} objects" if is_cut else ""
    if not found and not unread:
        yield ok(f"no kernel traces below {_short(root.folder)}{more}")
        return
    for of_snapshots, what in ((False, "kernel trace"), (True, "memory snapshot")):
        mine = {folder: number for (folder, is_snapshot), number in found.items() if is_snapshot == of_snapshots}
        yield from _graded(mine, {folder for folder, is_snapshot in met if is_snapshot == of_snapshots}, what, more)
    for why, keys in sorted(unread.items()):
        yield warn(
            f"{counted(len(keys), 'file')} not read, {why}: {_named(keys)}",
            f"Copy traces to {TRACE_FOLDER}/ below the job's folder, or read them with `trainguard kernels`.",
        )


def _graded(found: Mapping[str, int], met: Set[str], what: str, more: str) -> Iterator[CheckResult]:
    if found:
        files = counted(sum(found.values()), what)
        yield ok(f"{files} in {counted(len(found), 'folder')}{more}: {_named(sorted(found))}")
    new = sorted(set(found) - met)
    if new and len(met) < MOST_FOLDERS:
        yield warn(
            f"the evaluator does not know {counted(len(new), 'folder')} with {what}s: {_named(new)}",
            "They came before the job was known, or their messages did not arrive. Upload one of each folder again: "
            "all of the folder are then judged.",
        )


def _why(key: str) -> str:
    named = match_key(key)
    if named is not None:
        return f"as its folder names the job {named.root.job}"
    if key.endswith(DATABASE_ENDINGS):
        return f"as only databases below {TRACE_FOLDER}/ are taken for traces"
    if not is_named(key):
        return "as the stack takes memory snapshots by lower-case names in .pickle, .pkl or memory_snapshot.json"
    return f"as it lies below more than {DEEPEST} folders, or a part of its path is empty"


def _listed(objects: ProfileObjects, bucket: str, root: ProfileRoot) -> Iterator[ListedObject]:
    """Yield a job's objects without its system metrics and its results, which hold no trace."""
    skipped = (root.system, f"{root.folder}{RESULTS_FOLDER}/")
    after: str | None = ""
    while after is not None:
        begin, after = after, None
        for each in objects.list(bucket, root.folder, begin):
            inside = next((folder for folder in skipped if each.key.startswith(folder)), None)
            if inside is not None and each.key < inside + _LAST:
                after = inside + _LAST
                break
            yield each


def _named(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else ""
    return ", ".join(map(_short, keys[:_NAMED])) + more


def _short(key: str) -> str:
    return one_line(key, _LONGEST)
