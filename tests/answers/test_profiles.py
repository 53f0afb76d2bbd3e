"""All that sessions and streams of the profiler's family make of random jobs of two nodes, object by object."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.answers.recorded import compare, digest, plain_facts
from tests.support.faults import Faults
from tests.support.memory import MemoryProfileObjects
from tests.support.small_job import BUCKET, INTERVAL_S, JOB, SETTINGS, START, Shape, Upload, uploads
from trainguard.core.layout import EndKey, ProfileRoot, hour_folder
from trainguard.core.records import JobRecord, StreamKey, StreamRecord
from trainguard.engine.family import ObjectSource
from trainguard.engine.installed import FAMILIES
from trainguard.engine.profiler.family import PROFILER, ProfilerStreams
from trainguard.engine.profiler.system_stream import SystemState
from trainguard.engine.streams.job_streams import JobMoment, JobState
from trainguard.engine.streams.session import Announced, Session
from trainguard.rules.rule_inputs import NodeView
from trainguard.state.codec import decode_state

FOLDER = Path(__file__).with_name("profiles")
JOBS, GROUP = 12, 2
ROOT = ProfileRoot("", JOB)
PARAMETERS = {name.partition(":")[2]: value for name, value in SETTINGS.items()}

Random = np.random.Generator


def system_objects(random: Random, node: str, restart: tuple[int, int] | None) -> Iterator[Upload]:
    """Yield the minutes of a node of up to two GPUs, of which the second appears late, busy and idle in turns."""
    interval_s = int(random.choice([INTERVAL_S, 10, 20, 60]))
    gpus, late, level = int(random.choice([0, 1, 2, 2])), int(random.integers(0, 8)), 0.0
    for index in range(30):
        if (restart is not None and restart[0] <= index < restart[1]) or random.random() < 0.04:
            continue
        minute = START + 60 * index
        if random.random() < 0.3:
            level = float(random.choice([0.0, 0.0, 4.0, 20.0, 60.0, 95.0]))
        lines = []
        for second in range(0, 60, interval_s):
            at = minute + second + 0.25
            for gpu in range(gpus if index >= late else min(gpus, 1)):
                busy = 0.0 if random.random() < 0.1 else level
                lines += [_line("GPUUtilization", f"gpu{gpu}", busy, node, at)]
                lines += [_line("GPUMemoryUtilization", f"gpu{gpu}", busy / 2.0, node, at)]
            cores = int(random.choice([1, 2]))
            lines += [
                _line("CPUUtilization", f"cpu{core}", 30.0 + 60.0 * (level < 30.0), node, at) for core in range(cores)
            ]
        if random.random() < 0.04:
            lines.append("{broken\n")
        key = f"{ROOT.system}{hour_folder(minute)}/{minute}.{node}.json"
        yield Upload(minute + 60.5, key, "".join(lines).encode())


def _line(dimension: str, name: str, value: float, node: str, time: float) -> str:
    fields = {"Type": name[:3], "Name": name, "Dimension": dimension, "Value": value, "NodeId": node}
    return json.dumps({**fields, "Timestamp": time}) + "\n"


class Job:
    """A job with its bucket and items, of which each stream is opened again at each look."""

    def __init__(self, seed: int) -> None:
        self.random = random = np.random.default_rng(seed)
        restart = (10, 16) if seed % 3 == 0 else None
        settings = {} if seed % 4 == 3 else PARAMETERS
        self.job = JobRecord(
            JOB, "arn", BUCKET, "", rule_settings=settings, started_at=float(START) - 60.0 * (seed % 2)
        )
        self.job = replace(self.job, framework_expected=seed % 5 == 0)
        self.plan = replace(FAMILIES.plan(self.job), detailed=seed % 2 == 0)
        objects = [each for node in ("algo-1", "algo-2") for each in system_objects(random, node, restart)]
        if seed % 2:
            written = uploads(seed=seed % 3, shape=Shape(restart=(5, 9) if restart else None))
            objects += [each for each in written if "/pevents/" in each.key and random.random() < 0.95]
        self.waiting = sorted(objects, key=lambda each: (each.at, each.key))
        self.objects = MemoryProfileObjects(faults=Faults())
        shared = PROFILER.share(self.objects) if seed % 4 == 1 else None
        self.source = ObjectSource(self.objects, BUCKET, ROOT, PROFILER.object_cap_bytes, shared)
        self.records: dict[StreamKey, StreamRecord] = {}
        self.told: list[Any] = []

    def play(self) -> None:
        """Let objects come in random portions, with messages that are lost, repeated or late."""
        late: list[Upload] = []
        while self.waiting:
            count = int(self.random.choice([1, 9, 20, 40]))
            batch, self.waiting = self.waiting[:count], self.waiting[count:]
            for each in batch:
                self.objects.now = each.at
                self.objects.put(BUCKET, each.key, each.body, "")
            told = late + [each for each in batch if self.random.random() < 0.85]
            late = [each for each in batch if self.random.random() < 0.1]
            for key, messages in self._by_stream(told).items():
                self.moment(key, messages, drain=False)
        for key in sorted(self.records, key=str):
            self.moment(key, [], drain=True)

    def _by_stream(self, told: list[Upload]) -> Mapping[StreamKey, list[Announced]]:
        found: dict[StreamKey, list[Announced]] = {}
        for each in told:
            parsed = PROFILER.parse_key(each.key)
            assert parsed is not None
            assert not isinstance(parsed, EndKey)
            key = StreamKey(JOB, parsed.node, parsed.stream)
            found.setdefault(key, []).append(Announced(each.key, parsed))
        return found

    def moment(self, key: StreamKey, messages: list[Announced], *, drain: bool) -> None:
        """Open a stream, apply what is ready, and save its item."""
        record = self.records.get(key, StreamRecord(key))
        session: Session[Any] = PROFILER.open_session(record, self.source, self.plan)
        now = self.objects.now
        defers = [
            session.defers(messages, every_s=every_s, now=now + later_s, in_turn=in_turn)
            for every_s, later_s, in_turn in ((60.0, 0.0, False), (180.0, 0.0, True), (300.0, 60.0, False))
        ]
        session.announce(messages)
        before = now - 300.0 if self.random.random() < 0.15 else None
        applied = list(session.apply(drain=drain, modified_before=before))
        changed = session.has_changes
        closed = drain and bool(self.random.random() < 0.8)
        saved = session.to_record(closed=closed)
        fires = [[fire.verdict.rule, fire.at, fire.verdict.result.kind] for each in applied for fire in each.fires]
        tallies = [[each.key, each.tally, each.fault] for each in applied]
        view = _view(session.stream.view(closed=False)) if key.stream == "system" else None
        self.told.append(
            [defers, changed, session.near_threshold, fires, tallies, sorted(session.stream.due), view, _item(saved)]
        )
        if drain:
            last = session.stream.finished()
            ends = [[fire.verdict.rule, fire.at] for fire in last.finish()]
            said = [[each.rule, each.result.kind] for each in last.verdicts(closed=True)]
            self.told.append([ends, said, _view(last.view(closed=True)) if key.stream == "system" else None])
        self.records[key] = saved

    def judged(self) -> dict[str, Any]:
        """Judge the job twice from its items, the second time as a job that has ended; return what was said at last."""
        job_state = JobState(watermark_s={"LoadBalancing": float(START) + 1_700.0})
        for closed in (False, True):
            streams = self._opened()
            verdicts, fires = streams.judge(self.job, self.plan, job_state, JobMoment(closed=closed))
            view, failed = streams.job_view(self.job, self.plan, closed=closed)
            nodes = [[name, each.cores, each.waiting, sorted(each.watched)] for name, each in view.nodes.items()]
            facts: list[Any] = [
                view.started_at,
                view.system_through,
                view.first_step_at,
                view.framework_seen,
                view.closed,
            ]
            facts += [
                view.interruptions,
                view.step_runs,
                streams.unpaid_s,
                streams.near_threshold,
                sorted(streams.nodes),
                failed,
            ]
            self.told.append([nodes, facts, [[fire.verdict.rule, fire.at] for fire in fires]])
            said: list[list[Any]] = [
                [
                    *(
                        each.rule,
                        each.result.status.name,
                        each.result.kind,
                        plain_facts(each.result.facts),
                        each.watermark_s,
                    ),
                    *(each.history.violations, each.history.judged, each.history.times_fired),
                ]
                for each in verdicts
            ]
            self.told.append(said)
        return {str(each[0]): [*each[1:3], each[4], *(each[3] if each[1] == "FIRED" else [])] for each in said}

    def _opened(self) -> ProfilerStreams:
        opened = {key: PROFILER.open_stream(record, self.plan) for key, record in self.records.items()}
        return PROFILER.streams_of(self.records, opened)


def _view(view: NodeView) -> list[Any]:
    numbers = [view.watermark_s, view.first_sample_at, view.first_active_at, view.interval_s, view.kept_total]
    columns = [view.kept_gpu_utilization, view.kept_gpu_memory, view.kept_cpu_mean]
    sums = [float(np.nansum(each)) for each in columns]
    return [*numbers, view.gpu_names, view.ever_active.tolist(), view.idle_run_s, asdict(view.idle_time), *sums]


def _item(record: StreamRecord) -> list[Any]:
    said = [record.cursors, record.counters, record.pending, record.watermark_s, record.closed]
    if record.key.stream != "system":
        return said
    state = decode_state("an item", record.codec, record.state, SystemState)
    named = [state.interval_s, state.gpu_interval_s, state.cores, state.near_threshold, state.last_fault, state.skipped]
    return [*said, *named, msgspec.to_builtins(state.use)]


def finding_on(seed: int) -> dict[str, Any]:
    """Return a digest of all that happened on a random job, and what its rules said at last."""
    job = Job(seed)
    job.play()
    verdicts = job.judged()
    items = {key.node_kind: [each.cursors, each.counters] for key, each in sorted(job.records.items(), key=str)}
    return {"all": digest(job.told), **items, **verdicts}


@pytest.mark.parametrize("first", range(0, JOBS, GROUP))
def test_results_of_random_profiles_match_the_reviewed(first: int) -> None:
    compare({f"job {seed}": finding_on(seed) for seed in range(first, first + GROUP)}, FOLDER / f"jobs-{first:02}.json")
