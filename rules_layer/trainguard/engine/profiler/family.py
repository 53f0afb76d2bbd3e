"""The family of profiler rules, over what the managed profiler writes of a job's nodes: their streams and verdicts."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import msgspec

from trainguard.core.errors import RuleFailedError
from trainguard.core.finding import Fact
from trainguard.core.ports import ReadableObjects
from trainguard.core.records import FIRST_FAMILY, JOB_NODE, JobRecord, Status, StreamKey, StreamRecord
from trainguard.engine.family import Family, ObjectEvents, ObjectSource
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.correlate import Correlation
from trainguard.engine.profiler.framework_session import MICROSECONDS, FrameworkSession, FrameworkState, FrameworkStream
from trainguard.engine.profiler.job_time import (
    interruptions,
    job_ledger,
    without_steps,
    works_at,
)
from trainguard.engine.profiler.listing import SharedNames
from trainguard.engine.profiler.system_stream import SystemSession, SystemState, SystemStream
from trainguard.engine.streams.job_streams import (
    FamilyStreams,
    FamilyVerdicts,
    JobMoment,
    JobState,
    JobStreams,
    LazyStreams,
)
from trainguard.engine.streams.rule_runner import RuleRunner, shown
from trainguard.engine.streams.session import AnyStream, Gap, Session, item_name
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import VANISHED_S, Fire, RuleOutcome, combine
from trainguard.formats.profile.keys import EXPECTED_KEYS, match_key
from trainguard.formats.profile.system import MAX_OBJECT_BYTES
from trainguard.ledger.bucket import StepShares
from trainguard.ledger.job import Ledger
from trainguard.ledger.node import Span, without
from trainguard.planning.finish import Point
from trainguard.pricing.cost import PaidTime
from trainguard.rules.gpu_health.rule import GPUHealth
from trainguard.rules.protocol import AnyJobRule, AnyRule, FrameworkRule, RuleParameters, SystemRule
from trainguard.rules.registry import ALL_RULES, TITLE, spec_of
from trainguard.rules.rule_inputs import JobView, NodeFacts
from trainguard.rules.rule_result import RuleResult
from trainguard.state.codec import decode_state
from trainguard.state.gpu_time import GpuTime

GPU_HEALTH = GPUHealth.spec.name


@dataclass(frozen=True)
class ProfilerStreams(FamilyStreams):
    """System metrics and framework events of a job's nodes."""

    @classmethod
    def of(cls, streams: JobStreams) -> "ProfilerStreams":
        held = streams.families.get(FIRST_FAMILY)
        return held if isinstance(held, cls) else cls({}, {})

    @cached_property
    def system(self) -> Mapping[str, SystemStream]:
        return {key.node: each for key, each in self.streams.items() if isinstance(each, SystemStream)}

    @cached_property
    def framework(self) -> Mapping[str, FrameworkStream]:
        return {key.node: each for key, each in self.streams.items() if isinstance(each, FrameworkStream)}

    @property
    def system_through(self) -> float | None:
        return self.watermarks.get("system")

    @property
    def near_threshold(self) -> bool:
        return any(stream.state.near_threshold for stream in self.system.values())

    @cached_property
    def nodes(self) -> frozenset[str]:
        return frozenset({*self.system, *self.framework})

    @cached_property
    def first_at(self) -> float | None:
        starts = (stream.state.kept.first_sample_at for stream in self.system.values())
        return min((at for at in starts if at is not None), default=None)

    @property
    def newest_step(self) -> Point | None:
        processes = [each for stream in self.framework.values() for each in stream.state.time.processes.values()]
        numbered = ((each.last_ms / 1_000, each.last_number) for each in processes if each.last_number >= 0)
        return max(numbered, default=None)

    @cached_property
    def first_step_at(self) -> float | None:
        starts = (stream.state.first_step_us for stream in self.framework.values())
        first_us = min((at for at in starts if at is not None), default=None)
        return None if first_us is None else first_us / MICROSECONDS

    @cached_property
    def _waiting(self) -> Mapping[str, int]:
        return {key.node: len(each.pending) for key, each in self.records.items() if key.stream == "framework"}

    @cached_property
    def step_runs(self) -> tuple[tuple[float, float], ...]:
        runs = [run for stream in self.framework.values() for run in stream.state.step_runs_us]
        return tuple((start / MICROSECONDS, end / MICROSECONDS) for start, end in runs)

    @cached_property
    def interruptions(self) -> tuple[tuple[float, float], ...]:
        """Times in which the job had no instance, epoch seconds: no samples, no steps, then a start-up."""
        silences = interruptions((stream.state.kept, stream.state.watermark_s) for stream in self.system.values())
        spans = without_steps(silences, self.step_runs)
        return tuple(span for span in spans if True not in self._work_after(span))

    @cached_property
    def restarts(self) -> tuple[tuple[float, float], ...]:
        """Those of the interruptions after which GPUs are known to idle at first, as in a start-up."""
        return tuple(span for span in self.interruptions if False in self._work_after(span))

    def _work_after(self, span: tuple[float, float]) -> set[bool | None]:
        return {works_at(stream.use, span[1]) for stream in self.system.values()}

    @cached_property
    def unpaid_s(self) -> float:
        return sum(end - start for start, end in self.interruptions)

    def gaps(self, job: JobRecord) -> Sequence[Gap]:
        numbers = range(1, 0 if job.is_outside else (job.instance_count or 0) + 1)
        expected = dict.fromkeys([*(f"algo-{number}" for number in numbers), *sorted(self.framework)])
        return tuple(_gaps_of(self.system, expected, job, self.restarts)) if self.nodes else ()

    def ledger(self, paid_time: PaidTime, *, ended: bool, shares: StepShares | None = None) -> Ledger | None:
        steps = {node: stream.state.time for node, stream in self.framework.items()}
        sampled = {node: stream.sampled for node, stream in self.system.items()}
        return job_ledger(sampled, steps, paid_time, unpaid=self.interruptions, ended=ended, shares=shares)

    def judge(self, job: JobRecord, plan: RulePlan, job_state: JobState, moment: JobMoment) -> FamilyVerdicts:
        """Return the verdict of each profiler rule on the job; moves the episodes. No rule reads a clock."""
        correlation = Correlation(plan)
        by_node = self.unit_verdicts(partial(self._seen, correlation, plan))
        correlation.add_to(by_node)
        view, failed = self.job_view(job, plan, closed=moment.closed)
        view = replace(view, hang=job_state.hang, gpu_faults=_gpu_faults(by_node.get(GPU_HEALTH, {})))
        runner = RuleRunner(plan.job_rules, job_state.stored_rules, plan)

        def judge(rule: AnyJobRule, _: None, parameters: RuleParameters) -> RuleResult:
            if rule.name in failed:
                return RuleResult(Status.ERROR, failed[rule.name])
            return rule.judge(shown(rule, view), parameters)

        fires = runner.run(
            None, judge, watermark_s=self.watermark_s or 0.0, interval_s=plan.interval_s, ledger=moment.ledger
        )
        of_job = {each.rule: self._settled(each, plan) for each in runner.verdicts(judge, interval_s=plan.interval_s)}
        verdicts = []
        names = dict.fromkeys(rule.name for rule in plan.by_family.get(FIRST_FAMILY, ()))
        node_rules = plan.node_rules
        for rule in names:
            parts = dict(by_node.get(rule, {}))
            if rule in of_job and (parts or rule not in node_rules):
                parts[JOB_NODE] = of_job[rule]
            verdicts.append(combine(rule, parts, len(view.nodes)) if parts else _without_data(rule, job, plan))
        return verdicts, [_as_known(fire, of_job[fire.verdict.rule], job_state) for fire in fires]

    def _seen(
        self,
        correlation: Correlation,
        plan: RulePlan,
        key: StreamKey,
        stream: AnyStream,
        verdicts: Sequence[RuleOutcome],
    ) -> None:
        """Read a judged stream for the job; keep no more of it where nobody reads details."""
        if isinstance(stream, SystemStream):
            correlation.note_system(stream, verdicts)
        elif isinstance(stream, FrameworkStream):
            correlation.note_framework(stream)
        if plan.detailed or not isinstance(self.streams, LazyStreams):
            return
        if isinstance(stream, SystemStream):
            stream.release(cast("Callable[[], SystemStream]", self.streams.opener(key)))
        elif isinstance(stream, FrameworkStream):
            stream.release()

    def job_view(self, job: JobRecord, plan: RulePlan, *, closed: bool) -> tuple[JobView, dict[str, str]]:
        """Return the view of rules over the whole job, and the fault of each joined rule that failed on a node."""
        nodes, failed = {}, {}
        joined, compared = [rule.name for rule in plan.joined_rules], plan.compared_rules
        for node in sorted(self.nodes):
            nodes[node], faults = self._node_facts(node, joined, compared, closed=closed)
            failed.update(faults)
        starts = (job.started_at, self.first_at)
        view = JobView(
            started_at=min((at for at in starts if at is not None), default=None),
            system_through=self.system_through,
            first_step_at=self.first_step_at,
            framework_expected=job.framework_expected,
            framework_seen=any(key.stream == "framework" and record.cursors for key, record in self.records.items()),
            closed=closed,
            nodes=nodes,
            interruptions=self.interruptions,
            step_runs=self.step_runs,
            detailed=plan.detailed,
            evaluation_every_s=job.evaluation_every_s,
        )
        return view, failed

    def _node_facts(
        self, node: str, joined: Sequence[str], compared: Collection[str], *, closed: bool
    ) -> tuple[NodeFacts, dict[str, str]]:
        system, framework = self.system.get(node), self.framework.get(node)
        collected: dict[str, msgspec.Struct] = {}
        watched: dict[str, msgspec.Struct] = {}
        failed: dict[str, str] = {}
        for name in joined:
            if framework is None:
                break
            try:
                collected[name] = framework.state_of(name)
            except RuleFailedError as fault:
                failed[name] = f"{node}: {fault}"
        for name in compared:
            try:
                watched.update({} if system is None else {name: system.state_of(name)})
            except RuleFailedError as fault:
                failed[name] = f"{node}: {fault}"
        facts = NodeFacts(
            node=node,
            system=None if system is None else system.view(closed=closed),
            cores=0 if system is None else system.state.cores,
            framework=None if framework is None else framework.view(closed=closed),
            collected={**watched, **collected},
            watched=watched,
            waiting=self._waiting.get(node, 0),
            use=GpuTime if system is None else system.sampled.use,
        )
        return facts, failed

    def _settled(self, verdict: RuleOutcome, plan: RulePlan) -> RuleOutcome:
        """Count one violation an episode, not a reconciliation; a node's finding is known as far as its watermark."""
        node = (verdict.result.worst or JOB_NODE).partition("/")[0]
        joined = any(rule.name == verdict.rule for rule in plan.joined_rules)
        joined &= verdict.rule not in plan.compared_rules
        read = (self.framework,) if joined else (self.system, self.framework)
        named = [of_kind[node].state.watermark_s for of_kind in read if node in of_kind]
        furthest = self.watermarks.get("framework") if joined else self.watermark_s
        watermark_s = max((mark for mark in named if mark is not None), default=furthest)
        history = msgspec.structs.replace(verdict.history, violations=verdict.history.times_fired, judged=0)
        return replace(verdict, history=history, watermark_s=watermark_s)


def _gpu_faults(of_nodes: Mapping[str, RuleOutcome]) -> dict[str, tuple[str, tuple[Fact, ...]]]:
    found = {node: verdict.result for node, verdict in of_nodes.items()}
    return {node: (each.kind, each.facts) for node, each in found.items() if each.status is Status.FIRED}


# A fault could hide where so much of a node's time has no samples: such a job is not called healthy.
LACKING_SHARE = 0.05

NAMED_SPANS = 3


def _gaps_of(
    system: Mapping[str, SystemStream], expected: Iterable[str], job: JobRecord, unpaid: Sequence[Span]
) -> Iterator[Gap]:
    """Yield the gaps of a job that must have the nodes ``expected``, outside of ``unpaid``, epoch seconds."""
    wrote = {node: stream for node, stream in system.items() if stream.state.watermark_s is not None}
    silent = sorted({*system, *expected} - set(wrote), key=lambda name: (len(name), name))
    most = len(silent) if job.instance_count is None else max(job.instance_count - len(wrote), 0)
    for node in silent[:most]:
        yield Gap("silent", node)
    last = max((stream.state.watermark_s or 0.0 for stream in wrote.values()), default=0.0)
    for node, stream in sorted(wrote.items()):
        behind_s = last - (stream.state.watermark_s or 0.0)
        if behind_s >= VANISHED_S:
            yield Gap("stopped", node, behind_s)
        lack = _lack(node, stream, unpaid)
        if lack is not None:
            yield lack


def _lack(node: str, stream: SystemStream, unpaid: Sequence[Span]) -> Gap | None:
    kept, until = stream.state.kept, stream.state.watermark_s
    if kept.first_sample_at is None or until is None:
        return None
    begin = kept.first_sample_at
    silent = [max(min(end, until) - max(start, begin), 0.0) for start, end in unpaid]
    whole_s = until - begin - sum(silent)
    # The last sample before a silence stands for an interval of it.
    missing_s = kept.missing_s - sum(max(each - stream.interval_s, 0.0) for each in silent)
    if whole_s <= 0.0 or missing_s < LACKING_SHARE * whole_s:
        return None
    gaps = tuple(gap for gap in kept.gaps if without([gap], unpaid))
    return Gap("no samples", node, missing_s, whole_s, gaps[-NAMED_SPANS:])


def _as_known(fire: Fire, verdict: RuleOutcome, job_state: JobState) -> Fire:
    """Let a fire of the whole job be as old as its row's EvaluatedThrough, else a stop would never see a newer row."""
    marks = [mark for mark in (verdict.watermark_s, job_state.watermark_s.get(verdict.rule)) if mark is not None]
    return replace(fire, at=max(marks, default=fire.at))


def _without_data(rule: str, job: JobRecord, plan: RulePlan) -> RuleOutcome:
    of_framework = "framework" in spec_of(rule).inputs
    if rule in plan.faults:
        result = RuleResult(Status.ERROR, str(plan.faults[rule]))
    elif job.framework_expected or not of_framework:
        kind = "framework" if of_framework else "system"
        result = RuleResult(Status.WAITING_FOR_DATA, f"no {kind} metrics were read.")
    else:
        result = RuleResult(Status.NOT_APPLICABLE, "This job has written no framework metrics, which the rule needs.")
    return RuleOutcome(rule, result, FiringHistory())


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
    rules: Sequence[AnyRule] = ALL_RULES
    parse_key = staticmethod(match_key)

    def open_session(self, record: StreamRecord, source: ObjectSource, plan: RulePlan) -> Session[Any]:
        return (SystemSession if record.key.stream == "system" else FrameworkSession)(record, source, plan)

    def open_stream(self, record: StreamRecord, plan: RulePlan) -> AnyStream:
        if record.key.stream == "system":
            system = decode_state(item_name(record), record.codec, record.state, SystemState)
            return SystemStream(record.key.node, system, plan)
        framework = decode_state(item_name(record), record.codec, record.state, FrameworkState)
        return FrameworkStream(record.key.node, framework, plan)

    def streams_of(
        self, records: Mapping[StreamKey, StreamRecord], streams: Mapping[StreamKey, AnyStream]
    ) -> ProfilerStreams:
        ordered = sorted(streams, key=lambda key: key.stream != "system")
        if isinstance(streams, LazyStreams):
            return ProfilerStreams(records, streams.in_order(ordered))
        return ProfilerStreams(records, {key: streams[key] for key in ordered})

    def unit_rules(self, stream: str) -> Sequence[str]:
        kind = SystemRule if stream == "system" else FrameworkRule
        return [rule.name for rule in self.rules if isinstance(rule, kind)]

    def share(self, objects: ReadableObjects) -> SharedNames:
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
