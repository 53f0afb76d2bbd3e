"""Runs a rule over a synthetic job: evaluator, scheduler and stores in memory, on a clock that the kit moves."""

import copy
import functools
import inspect
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import FunctionType, ModuleType
from typing import Any

from trainguard.core.errors import SyntheticRunError
from trainguard.core.ports import Timing, TrainingJobDescription
from trainguard.core.records import JobRecord, JobStatus, entry_in
from trainguard.core.timestamps import iso_time
from trainguard.engine.batch import BatchProcessor
from trainguard.engine.family import Families
from trainguard.engine.installed import FAMILIES
from trainguard.engine.messages import Message, encode_task
from trainguard.engine.plan import RulePlan, only
from trainguard.engine.reconcile import scheduler_at_once
from trainguard.pricing.table import PriceTable
from trainguard.rules.extension import AnyRule, check_rule, rules_of
from trainguard.rules.parameters import Defaults, parameters_of
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.registry import RESERVED_NAMES
from trainguard.testing.job import SyntheticJob
from trainguard.testing.memory import MemoryWorld
from trainguard.testing.objects import JobObject, objects_of
from trainguard.testing.outcome import Alert, Outcome

_METHODS = ("clear_after_s", "window_points", "observe", "judge")


@dataclass
class Watch:
    """Hands out copies of a rule, so that it keeps its state alone, and keeps one exception of each type and text."""

    rule: AnyRule
    raised: list[BaseException] = field(default_factory=list)

    def copy(self) -> AnyRule:
        kind = type(self.rule)
        found = {name: inspect.getattr_static(kind, name, None) for name in _METHODS}
        methods = {name: self._noting(each) for name, each in found.items() if isinstance(each, FunctionType)}
        # A rule's module says whether it is a deployment's own.
        watched = type(kind.__name__, (kind,), {"__slots__": (), "__module__": kind.__module__, **methods})
        copied = copy.deepcopy(self.rule)
        object.__setattr__(copied, "__class__", watched)
        return copied

    def _noting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            except (Exception, SystemExit) as raised:
                if not any(type(raised) is type(each) and str(raised) == str(each) for each in self.raised):
                    self.raised.append(raised)
                raise

        return call


BUCKET = "profiles"
NAME = "synthetic-job"
_SCHEDULE_S = 60
_AFTER_THE_END_S = 900
_MOST_DELAY_S = 150.0
_TWICE = 0.2
# Of the engine itself, which no rule should cause.
_FAILURES = {"evaluation_failures", "reconcile_failures", "port_failures"}


class _OneRule(Families):
    """The deployment's families, of which one rule runs, with its own parameters."""

    def __init__(self, watch: Watch, parameters: RuleParameters) -> None:
        super().__init__(*FAMILIES)
        self._watch = watch
        self._parameters = parameters

    def plan(self, job: JobRecord, *, defaults: Defaults = "documented", prices: PriceTable | None = None) -> RulePlan:
        """Return the plan of the one rule; each stream gets a copy of the watch."""
        whole = super().plan(replace(job, rule_settings={}), defaults=defaults, prices=prices)
        return only(whole, self._watch.copy(), self._parameters)


class MemoryDeployment:
    """Runs a rule over a job, minute by minute; ``seed`` draws late, disordered and repeated messages, None none."""

    def __init__(self, watch: Watch, parameters: RuleParameters, job: SyntheticJob, *, seed: int | None) -> None:
        self._watch = watch
        self._parameters = parameters
        self._job = job
        self._random = None if seed is None else random.Random(seed)  # noqa: S311 -- draws a test's delays, no secret
        self.world = MemoryWorld()
        self._now = float(job.start)
        self._queue: list[tuple[float, int, Message]] = []
        self._sent = 0

    def run(self, *, ended: bool) -> None:
        """Let the job write its objects, and end where ``ended`` says so; evaluate all of it."""
        services = self.world.services
        timing = Timing(now=lambda: self._now, pause=lambda _: None, has_time=lambda: True)
        families = _OneRule(self._watch, self._parameters)
        batches = BatchProcessor(services=services, timing=timing, bucket=BUCKET, families=families)
        scheduler = scheduler_at_once(services=services, timing=timing, families=families)
        self._describe(JobStatus.IN_PROGRESS)
        *written, end = objects_of(self._job, NAME)
        objects = [*written, end] if ended else written
        until = int(end.at) + _AFTER_THE_END_S
        for minute in range(self._job.start, until + _SCHEDULE_S, _SCHEDULE_S):
            for item in objects:
                if minute - _SCHEDULE_S < item.at <= minute:
                    self._appear(item, is_end=item is end)
            self._deliver(minute, batches)
            scheduler.run()
            self._take_tasks()

    def _describe(self, status: JobStatus) -> None:
        job = self._job
        self.world.training_jobs.set(
            TrainingJobDescription(
                job=NAME,
                arn=f"arn:aws:sagemaker:eu-west-1:111122223333:training-job/{NAME}",
                status=status,
                secondary_status=None,
                instance_type=job.instance_type,
                instance_count=job.nodes,
                created_at=job.start - 60.0,
                started_at=float(job.start),
                ended_at=job.start + job.duration_s if status.is_final else None,
                profiling_interval_ms=round(job.interval_s * 1_000),
                framework_profiling=bool(job.events),
                tags={"trainguard:evaluation-every-s": "60"},
                profile_uri=f"s3://{BUCKET}",
            )
        )

    def _appear(self, item: JobObject, *, is_end: bool) -> None:
        """Put an object into the bucket, and its message on the way."""
        if is_end:
            self._describe(JobStatus.COMPLETED)
        self.world.objects.now = item.at
        self.world.objects.put(BUCKET, item.key, item.body, "application/json")
        detail = {"bucket": {"name": BUCKET}, "object": {"key": item.key}}
        body = json.dumps({"source": "aws.s3", "time": iso_time(item.at), "detail": detail})
        self._send(body, item.at + self._delay())
        if self._random is not None and self._random.random() < _TWICE:
            self._send(body, item.at + self._delay())

    def _delay(self) -> float:
        return 0.0 if self._random is None else self._random.uniform(0.0, _MOST_DELAY_S)

    def _send(self, body: str, at: float) -> None:
        self._sent += 1
        self._queue.append((at, self._sent, Message(f"m{self._sent}", body)))

    def _deliver(self, until: int, batches: BatchProcessor) -> None:
        """Deliver what has arrived by ``until``, and what that sends; move the clock."""
        while due := sorted(entry for entry in self._queue if entry[0] <= until):
            self._queue = [entry for entry in self._queue if entry[0] > until]
            self._now = max(self._now, due[-1][0])
            failed = set(batches.process([message for _, _, message in due]).failed)
            again = [message for _, _, message in due if message.message_id in failed]
            for message in again:
                self._send(message.body, self._now + 2 * _SCHEDULE_S)
            self._take_tasks()
        self._now = max(self._now, float(until))

    def _take_tasks(self) -> None:
        for task in self.world.tasks.drain():
            self._send(encode_task(task), self._now + 1.0)


Parameters = Mapping[str, object] | RuleParameters | None


def run_rule(
    rule: AnyRule, job: SyntheticJob, parameters: Parameters = None, *, ended: bool = True, seed: int | None = None
) -> Outcome:
    """Run one rule over a job, through the engine that is deployed, on stores in memory.

    Objects appear as the job writes them, the scheduler runs each minute, and at the end the job is closed. From one
    evaluation to the next the rule keeps nothing but its state.

    Parameters
    ----------
    parameters : mapping or RuleParameters, optional
        By name, for example ``{"threshold": 80.0}``; a mapping is read as settings are. Else the rule's defaults.
    ended : bool
        Whether the job ends; False leaves it running after its last object.
    seed : int, optional
        Draws how late messages arrive, in which order, and which come twice; None delivers them in order.

    Raises
    ------
    RuleLoadError
        When the rule breaks the protocol of rules.
    RuleConfigError
        When a parameter is unknown, or has a value that it cannot have.
    SyntheticRunError
        When the engine itself failed, which is a defect of TrainGuard.
    """
    check_rule(rule)
    chosen = _parameters(rule, parameters)
    watch = Watch(rule)
    deployment = MemoryDeployment(watch, chosen, job, seed=seed)
    deployment.run(ended=ended)
    world = deployment.world
    if failures := tuple(str(each.where.get("reason")) for each in world.journal.entries if each.what in _FAILURES):
        raise SyntheticRunError(rule.name, failures)
    rows = [row for row in world.rows.of_job(NAME) if row.rule == rule.name]
    rows.sort(key=lambda row: (row.node is not None, row.node or ""))
    entries = [entry_in(each) for each in world.executions.started.values() if each["rule"] == rule.name]
    alerts = tuple(Alert(each.kind, each.enqueued_at - job.start, each.finding) for each in entries)
    return Outcome(rule.name, tuple(rows), alerts, tuple(watch.raised))


def _parameters(rule: AnyRule, given: Parameters) -> RuleParameters:
    if isinstance(given, RuleParameters):
        return given
    settings = {f"{rule.name}_{name}": str(value) for name, value in (given or {}).items()}
    return parameters_of(rule.name, rule.parameters_type, settings)


def assert_boundary(
    rule: AnyRule,
    job_at: Callable[[float], SyntheticJob],
    *,
    quiet_at: float,
    fires_at: float,
    parameters: Parameters = None,
) -> None:
    """Check where a rule begins to fire: not at ``quiet_at``, but at ``fires_at``, on the job of ``job_at(value)``."""
    for value, fires in ((quiet_at, False), (fires_at, True)):
        outcome = run_rule(rule, job_at(value), parameters)
        try:
            outcome.assert_fired() if fires else outcome.assert_not_fired()
        except AssertionError as fault:
            raise AssertionError(f"at {value:g}: {fault}") from fault.__cause__


def assert_delivery_makes_no_difference(
    rule: AnyRule, job: SyntheticJob, parameters: Parameters = None, *, seeds: int = 3
) -> Outcome:
    """Check that a rule says the same in ``seeds`` late and disordered deliveries; return that outcome."""
    expected = run_rule(rule, job, parameters)
    for seed in range(seeds):
        found = run_rule(rule, job, parameters, seed=seed)
        for was, now in zip(_shown(expected), _shown(found), strict=True):
            if was != now:
                raise AssertionError(f"{rule.name} says {now} when messages are late (seed {seed}), and else {was}")
    return expected


def check_package(package: ModuleType) -> tuple[str, ...]:
    """Return the names of a package's rules, as a deployment would find them; raises RuleLoadError."""
    return tuple(rule.name for rule in rules_of(package, RESERVED_NAMES))


def _shown(outcome: Outcome) -> tuple[object, ...]:
    rows = tuple(
        (
            row.target,
            row.status,
            row.finding.reason,
            row.finding.measured,
            row.worst,
            row.data_points,
            row.times_fired,
            row.fired_at,
        )
        for row in outcome.rows
    )
    return (*rows, sorted((each.kind.value, each.at_s, each.finding.reason) for each in outcome.fires))
