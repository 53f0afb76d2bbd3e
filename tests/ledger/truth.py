"""Jobs of known truth: phases of known length, written as the profiles that such a job leaves, and their ledger."""

import itertools
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.profile_folder import START, ProfileFolder, event, step
from trainguard.core.records import JobRecord
from trainguard.engine.diagnosis.case import ledger_of, paid_time_of
from trainguard.engine.installed import FAMILIES
from trainguard.engine.profiler.family import ProfilerStreams
from trainguard.ledger.bucket import Bucket, StepShares
from trainguard.ledger.job import Ledger
from trainguard.local.analysis import evaluated_profile
from trainguard.local.runs import open_job

# A counter of utilization looks back so far.
SAMPLED_OVER_S = 1.0

LATE_S = 0.4


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a job: what the GPUs' time in it is, ``seconds`` long.

    ``busy`` is the GPUs' utilization, 0 to 1, while no process waits. Training has steps of ``step_s``, of which each
    waits ``wait_s`` for its batch; ``lost`` is the bucket of what the GPUs leave undone. In collectives all GPUs are
    busy for ``communication_s`` of a step, all but the first node's first for ``peers_s`` before it. ``attempt`` counts
    restarts, ``first_step`` is the number of the first step, ``sampled`` says whether samples are there. ``whole`` is
    the bucket of all of it, whatever the GPUs do.
    """

    lost: Bucket
    seconds: float
    busy: float = 0.0
    step_s: float = 0.0
    wait_s: float = 0.0
    event: str = ""
    attempt: int = 0
    sampled: bool = True
    first_step: int | None = None
    whole: Bucket | None = None
    communication_s: float = 0.0
    peers_s: float = 0.0


def start_up(seconds: float) -> Phase:
    """Loading, before the first work."""
    return Phase(Bucket.START_UP, seconds)


def train(seconds: float, *, busy: float = 1.0, step_s: float = 1.7, wait_s: float = 0.0, **more: Any) -> Phase:
    """Steps, of which the rest of the GPUs' time has no source."""
    return Phase(Bucket.UNEXPLAINED, seconds, busy, step_s, wait_s, **more)


def save(seconds: float, **more: Any) -> Phase:
    """A checkpoint, during which the GPUs idle."""
    return Phase(Bucket.CHECKPOINT, seconds, event="Checkpoint", **more)


def evaluate(seconds: float, busy: float = 0.4, **more: Any) -> Phase:
    """An evaluation that uses the GPUs in part."""
    return Phase(Bucket.EVALUATION, seconds, busy, event="Evaluation", **more)


def pause(seconds: float, **more: Any) -> Phase:
    """Idle GPUs, and nobody says why."""
    return Phase(Bucket.IDLE, seconds, **more)


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job: its phases, and how it is recorded.

    ``unused`` GPUs of each node do nothing. With ``framework`` each GPU in use has a process that writes its steps; of
    several nodes only the first one's first process saves and evaluates. ``silent_nodes`` are paid for and write
    nothing. ``intervals`` are the distances of samples, where they are not all ``every_s``; ``marks`` says which phases
    are a hang, or compute garbage.
    """

    phases: Sequence[Phase]
    every_s: float = 10.0
    nodes: int = 1
    gpus: int = 1
    unused: int = 0
    framework: bool = True
    silent_nodes: int = 0
    intervals: Sequence[float] = ()
    marks: Mapping[Bucket, Sequence[int]] = field(default_factory=dict)

    @property
    def begins(self) -> list[float]:
        """Seconds from the start at which each phase begins, and the end."""
        return [0.0, *itertools.accumulate(phase.seconds for phase in self.phases)]

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.begins[-1]

    def span(self, number: int) -> tuple[float, float]:
        """Return when a phase was, epoch seconds."""
        return START + self.begins[number], START + self.begins[number + 1]


def truth(job: KnownJob) -> dict[Bucket, float]:
    """Return the share, 0 to 1, of each bucket in the paid time."""
    found: defaultdict[Bucket, float] = defaultdict(float)
    used, all_gpus = job.nodes * job.gpus, (job.nodes * (job.gpus + job.unused))
    paid = (all_gpus + job.silent_nodes * (job.gpus + job.unused)) * job.seconds
    found[Bucket.NO_SAMPLES] = job.silent_nodes * (job.gpus + job.unused) * job.seconds
    marked = {number: bucket for bucket, numbers in job.marks.items() for number in numbers}
    for number, phase in enumerate(job.phases):
        whole = marked.get(number, phase.whole if phase.sampled else Bucket.NO_SAMPLES)
        if whole is not None:
            found[whole] += all_gpus * phase.seconds
            continue
        waits = phase.wait_s / phase.step_s * phase.seconds if phase.wait_s else 0.0
        busy = phase.busy * (phase.seconds - waits)
        communication = phase.communication_s / phase.step_s * phase.seconds if phase.step_s else 0.0
        peers = phase.peers_s / phase.step_s * phase.seconds if phase.step_s else 0.0
        found[Bucket.COMMUNICATION] += used * communication
        found[Bucket.PEERS] += (used - 1) * peers
        found[Bucket.COMPUTE] += used * (busy - communication) - (used - 1) * peers
        found[Bucket.DATA if job.framework else Bucket.UNEXPLAINED] += used * waits
        found[phase.lost] += used * (phase.seconds - waits - busy)
        outside = phase.lost in {Bucket.START_UP, Bucket.TAIL}
        found[phase.lost if outside else Bucket.IDLE] += (all_gpus - used) * phase.seconds
    return {bucket: seconds / paid for bucket, seconds in found.items() if seconds}


def ledger(job: KnownJob, shares: StepShares | None = None, **record: Any) -> Ledger:
    """Write the job's profile, evaluate it, and return its ledger, marked as the job says."""
    with tempfile.TemporaryDirectory(prefix="ledger-") as place:
        folder = ProfileFolder(Path(place))
        for node in range(1, job.nodes + 1):
            write_system(job, node, folder)
            if job.framework:
                write_steps(job, node, folder)
        folder.end()
        profile = open_job(str(folder.path.parent))
        known = {"started_at": float(START), "instance_count": job.nodes + job.silent_nodes, **record}
        described = JobRecord(job="known", arn="unknown:known", bucket="", prefix="", **known)
        plan = FAMILIES.plan(described, defaults="documented")
        done = evaluated_profile(profile, described, plan, None, timelines=False)
        streams = FAMILIES.open(done.job.job, done.plan, done.records)
        found = ledger_of(done.job, done.plan, streams)
        if shares is not None:
            paid_time = paid_time_of(done.job, done.plan, streams)
            traced = ProfilerStreams.of(streams).ledger(paid_time, ended=streams.closed, shares=shares)
            assert traced is not None
            found = traced
    for bucket, numbers in job.marks.items():
        found.mark(bucket, [job.span(number) for number in numbers])
    return found


def shares_of(found: Ledger) -> dict[Bucket, float]:
    """Return the share of each bucket that has any."""
    return {entry.bucket: entry.share for entry in found.entries() if entry.share}


def _sample_times(job: KnownJob) -> np.ndarray[Any, Any]:
    if job.intervals:
        times = np.cumsum([*job.intervals])
        return times[times < job.seconds]
    return np.arange(min(job.every_s, 1.0) * 0.37, job.seconds, job.every_s)


def _percents(job: KnownJob) -> np.ndarray[Any, Any]:
    """Return what a GPU in use is sampled at, percent."""
    times, (edges, busy) = _sample_times(job), _utilization(job)
    done = np.concatenate([[0.0], np.cumsum(busy * np.diff(edges))])
    window = min(job.every_s, SAMPLED_OVER_S)
    values = np.diff(
        np.stack([np.interp(np.maximum(times - window, 0.0), edges, done), np.interp(times, edges, done)]), axis=0
    )
    percents: np.ndarray[Any, Any] = np.clip(100.0 * values[0] / window, 0.0, 100.0).round(2)
    return percents


def sampling_error(job: KnownJob) -> float:
    """Return by how much samples alone are wrong about the GPUs' busy time, as a share, 0 to 1, of all of it.

    Few looks of a second each see more or less of short waits than there are: no ledger of them can be truer.
    """
    times, (edges, busy) = _sample_times(job), _utilization(job)
    held = np.diff(np.append(times, job.seconds))
    seen, there = float((_percents(job) * held).sum() / held.sum()) / 100.0, float(busy @ np.diff(edges)) / job.seconds
    return abs(seen - there)


def write_system(job: KnownJob, node: int, folder: ProfileFolder) -> None:
    times, percents = _sample_times(job), _percents(job)
    numbers = np.clip(np.searchsorted(job.begins, times, side="right") - 1, 0, len(job.phases) - 1)
    sampled = np.array([phase.sampled for phase in job.phases])[numbers]
    columns: dict[str, Any] = {f"gpu{gpu}": percents[sampled] for gpu in range(job.gpus)}
    columns |= {f"gpu{job.gpus + gpu}": 0.0 for gpu in range(job.unused)}
    folder.system(times[sampled], {"cpu0": 20.0, **columns}, node=f"algo-{node}")


def _utilization(job: KnownJob) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the GPUs' utilization, 0 to 1, between edges in seconds: first a step's wait, then its work."""
    edges, busy = [0.0], []
    for begin, phase in zip(job.begins, job.phases, strict=False):
        pieces = [(phase.seconds, phase.busy)]
        if phase.step_s:
            count = int(phase.seconds / phase.step_s)
            pieces = [(phase.wait_s, 0.0), (phase.step_s - phase.wait_s, phase.busy)] * count
            pieces.append((phase.seconds - count * phase.step_s, phase.busy))
        at = begin
        for length, level in pieces:
            if length > 0.0:
                at += length
                edges.append(at)
                busy.append(level)
    return np.array(edges), np.array(busy)


def write_steps(job: KnownJob, node: int, folder: ProfileFolder) -> None:
    for attempt in range(max(phase.attempt for phase in job.phases) + 1):
        for process in range(job.gpus):
            lead = node == 1 and process == 0
            pid = 100 * (attempt + 1) + process
            folder.timeline(_events(job, attempt, pid, lead=lead), pid=pid, node=f"algo-{node}")


def _events(job: KnownJob, attempt: int, pid: int, *, lead: bool) -> Iterator[dict[str, Any]]:
    number = 0
    for begin, phase in zip(job.begins, job.phases, strict=False):
        if phase.attempt != attempt:
            continue
        number = number if phase.first_step is None else phase.first_step
        if phase.event and lead:
            yield event(phase.event, phase.event.lower(), begin, phase.seconds)
        for place in range(int(phase.seconds / phase.step_s) if phase.step_s else 0):
            at = begin + place * phase.step_s
            if phase.wait_s:
                yield event("DataLoaderIter", "DataLoaderIter::GetNext", at, phase.wait_s, pid=pid)
            waits_s = phase.communication_s + (0.0 if lead else phase.peers_s)
            if waits_s:
                yield event("GPU-functions-dev:0", "peer_wait", at + phase.step_s - 0.01 - waits_s, waits_s)
            yield step(number, at + phase.wait_s, phase.step_s - phase.wait_s - 0.001, pid=pid)
            number += 1
