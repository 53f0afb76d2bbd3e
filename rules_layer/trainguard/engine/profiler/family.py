"""The family of profiler rules, over what the managed profiler writes of a job's nodes."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from trainguard.core.layout import EndKey
from trainguard.core.ports import ProfileObjects
from trainguard.core.records import FIRST_FAMILY, JobRecord, NodeRecord, StreamKey
from trainguard.engine.family import Family, ObjectEvents, ObjectSource
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.framework_session import FrameworkSession, FrameworkState, FrameworkStream
from trainguard.engine.profiler.listing import ProfileListing
from trainguard.engine.profiler.shared_names import SharedNames
from trainguard.engine.profiler.streams import ProfilerStreams
from trainguard.engine.profiler.system_session import SystemSession
from trainguard.engine.profiler.system_stream import SystemState, SystemStream
from trainguard.engine.streams.job_streams import LazyStreams
from trainguard.engine.streams.session import Session, Stream, item_name
from trainguard.formats.profile.keys import EXPECTED_KEYS, FrameworkKey, SystemKey, match_key
from trainguard.formats.profile.unpack import MAX_OBJECT_BYTES
from trainguard.rules.protocol import AnyRule, FrameworkRule, SystemRule
from trainguard.rules.registry import ALL_RULES, TITLE
from trainguard.state.codec import decode_state


class ProfilerFamily(Family):
    """System metrics and framework events, in two streams of each node."""

    name = FIRST_FAMILY
    title = TITLE
    units = "nodes"
    expected_keys = EXPECTED_KEYS
    events = ObjectEvents(
        wildcards=("*/profiler-output/system/incremental/*.json", "*/profiler-output/framework/pevents/*.json"),
        # The empty metadata of a detailed trace names its times and stands for it.
        ends=(
            ".metadata",
            "/profiler-output/system/training_job_end.ts",
            "/profiler-output/framework/training_job_end.ts",
        ),
    )
    object_cap_bytes = MAX_OBJECT_BYTES
    reads = ("*/profiler-output/*",)
    report = "trainguard.report.job.coverage:PROFILER"

    @property
    def rules(self) -> Sequence[AnyRule]:
        """TrainGuard's own profiler rules, and those of the deployment's package."""
        return ALL_RULES

    def parse_key(self, key: str) -> SystemKey | FrameworkKey | EndKey | None:
        """Read a key of a profile."""
        return match_key(key)

    def open_session(self, record: NodeRecord, source: ObjectSource, plan: RulePlan) -> Session[Any]:
        """Return the session of a node's stream."""
        listing = ProfileListing(objects=source.objects, bucket=source.bucket, root=source.root, node=record.key.node)
        if record.key.stream == "system":
            return SystemSession(record, listing, plan)
        names = None
        if isinstance(source.shared, SharedNames):
            names = partial(source.shared.of_node, source.bucket, source.root, record.key.node)
        return FrameworkSession(record, listing, plan, names)

    def open_stream(self, record: NodeRecord, plan: RulePlan) -> Stream:
        """Return a node's stream from its item."""
        if record.key.stream == "system":
            system = decode_state(item_name(record), record.codec, record.state, SystemState)
            return SystemStream(record.key.node, system, plan)
        framework = decode_state(item_name(record), record.codec, record.state, FrameworkState)
        return FrameworkStream(record.key.node, framework, plan)

    def streams_of(
        self, records: Mapping[StreamKey, NodeRecord], streams: Mapping[StreamKey, Stream]
    ) -> ProfilerStreams:
        """Return the family's streams of a job: system metrics first."""
        ordered = sorted(streams, key=lambda key: key.stream != "system")
        if isinstance(streams, LazyStreams):
            return ProfilerStreams(records, streams.in_order(ordered))
        return ProfilerStreams(records, {key: streams[key] for key in ordered})

    def unit_rules(self, stream: str) -> Sequence[str]:
        """Return the names of the rules over a node's stream."""
        kind = SystemRule if stream == "system" else FrameworkRule
        return [rule.name for rule in self.rules if isinstance(rule, kind)]

    def share(self, objects: ProfileObjects) -> SharedNames:
        """Return the names of framework objects, which are listed once for all nodes of a job."""
        return SharedNames(objects)

    def expected(self, job: JobRecord, known: set[StreamKey]) -> set[StreamKey]:
        """Return the streams of nodes ``algo-1`` and so on, as SageMaker names them."""
        names = [f"algo-{number}" for number in range(1, (job.instance_count or 0) + 1)]
        expected = {StreamKey(job.job, name, "system") for name in names}
        if job.framework_expected or any(key.stream == "framework" for key in known):
            expected |= {StreamKey(job.job, name, "framework") for name in names}
        return expected


PROFILER = ProfilerFamily()
