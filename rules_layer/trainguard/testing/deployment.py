"""A deployment in memory that runs one rule: evaluator, scheduler and stores, on a clock that the kit moves."""

import copy
import functools
import inspect
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

from trainguard.core.ports import Timing, TrainingJobDescription
from trainguard.core.records import JobRecord, JobStatus, RuleRow
from trainguard.core.timestamps import iso_time
from trainguard.engine.family import Families
from trainguard.engine.installed import FAMILIES
from trainguard.engine.messages.batch import BatchProcessor
from trainguard.engine.messages.created_objects import Message, encode_task
from trainguard.engine.plan import RulePlan, only
from trainguard.engine.reconcile import scheduler_at_once
from trainguard.pricing.table import PriceTable
from trainguard.rules.extension import AnyRule
from trainguard.rules.parameters import Defaults
from trainguard.rules.protocol import RuleParameters
from trainguard.testing.job import SyntheticJob
from trainguard.testing.memory.world import MemoryWorld
from trainguard.testing.objects import JobObject, objects_of

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


class Deployment:
    """Runs a rule over a job, minute by minute; ``seed`` draws late, disordered and repeated messages, None none."""

    def __init__(self, watch: Watch, parameters: RuleParameters, job: SyntheticJob, *, seed: int | None) -> None:
        self._watch = watch
        self._parameters = parameters
        self._job = job
        self._random = None if seed is None else random.Random(seed)  # noqa: S311 -- draws a test's delays, no secret
        self._world = MemoryWorld()
        self._now = float(job.start)
        self._queue: list[tuple[float, int, Message]] = []
        self._sent = 0

    def run(self, *, ended: bool) -> None:
        """Let the job write its objects, and end where ``ended`` says so; evaluate all of it."""
        services = self._world.services
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

    @property
    def rows(self) -> tuple[RuleRow, ...]:
        """The rule's rows: the job's, then those of its nodes."""
        name = self._watch.rule.name
        rows = (row for row in self._world.rows.of_job(NAME) if row.rule == name)
        return tuple(sorted(rows, key=lambda row: (row.node is not None, row.node or "")))

    @property
    def alerts(self) -> tuple[dict[str, object], ...]:
        """Inputs of alerts, in the order of their starts."""
        return tuple(self._world.executions.started.values())

    @property
    def failures(self) -> tuple[str, ...]:
        """Failures of the engine itself, which no rule should cause."""
        counted = {"evaluation_failures", "reconcile_failures", "port_failures"}
        return tuple(str(each.where.get("reason")) for each in self._world.journal.entries if each.what in counted)

    def _describe(self, status: JobStatus) -> None:
        job = self._job
        self._world.training_jobs.set(
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
        self._world.objects.now = item.at
        self._world.objects.put(BUCKET, item.key, item.body, "application/json")
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
        for task in self._world.tasks.drain():
            self._send(encode_task(task), self._now + 1.0)
