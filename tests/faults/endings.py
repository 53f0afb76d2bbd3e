"""Trials of how a job ends without an event, with the data of every family, and days of scheduler runs behind it.

A trial draws what the job writes, whether SageMaker knows it, and how its messages come. The oracle asks that it is
closed and reported once, that nobody is alerted to a stall, that scheduler runs read and write a bounded number, and
that each stream's item is that of the same job with every message and event at its time.
"""

import random
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from unittest.mock import patch

from tests.families.training.runs import run_files, uploads_of, wakes
from tests.families.training.test_scalars import events
from tests.support.captures import capture
from tests.support.delivered import SYSTEM_1
from tests.support.delivery import Network
from tests.support.small_job import JOB, SETTINGS, START, Upload, describe
from trainguard.core.records import JobStatus
from trainguard.engine import reconcile
from trainguard.engine.streams.session import DELIVERY_COUNTERS
from trainguard.engine.training.stream import STALLED
from trainguard.kernels.captures.keys import KERNELS

FAMILIES_OF_DATA = ("system", "tensors", "scalars", "kernels")
# So long after its start the job has written all, and ends; until then one that saves nothing more does stall.
LAST_S = 1_000.0

# In the normal suite a job outside SageMaker is left after an hour, and ticks go on for three.
LEFT_S, HOURS = 3_600.0, 3

# So long a silent job is looked at each minute, at most; then every third minute, until it is left.
LOOKED_AT_S = 1_800.0


@dataclass(frozen=True)
class Ending:
    """A job that ends without a word.

    Attributes
    ----------
    data : tuple of str
        Of FAMILIES_OF_DATA.
    outside : bool
        SageMaker does not know the job, whose process is killed; else its end's event is lost.
    delays : tuple of float or None
        Of the messages, in turn: seconds, None for lost.
    threshold_s : int
        Of StalledTrainingRule.
    seed : int
    """

    data: tuple[str, ...]
    outside: bool
    delays: tuple[float | None, ...] = (0.5,)
    threshold_s: int = 1_800
    seed: int = 0


def drawn(seed: int) -> Ending:
    """Draw the trial of a seed."""
    rng = random.Random(seed)
    data = tuple(sorted(rng.sample(FAMILIES_OF_DATA, rng.randint(1, len(FAMILIES_OF_DATA)))))
    delays = tuple(rng.choice((0.5, rng.uniform(0.1, 60.0), rng.uniform(60.0, 600.0))) for _ in range(7))
    lost = tuple(None if rng.random() < 0.2 else delay for delay in delays[1:])
    return Ending(data, rng.random() < 0.4, (delays[0], *lost), rng.choice((360, 900, 1_800)), seed)


@cache
def written(data: tuple[str, ...]) -> tuple[Upload, ...]:
    """Return what a job writes, in order."""
    found: list[Upload] = []
    if "system" in data:
        found += SYSTEM_1
    if "tensors" in data:
        found += uploads_of(run_files([1.0, 2.0, 1.0]))
    if "scalars" in data:
        key = f"{JOB}/tensorboard-output/events.out.tfevents.1.host"
        for minute in range(1, 6):
            losses = dict.fromkeys(range(5 * minute), 1.0)
            found.append(Upload(START + 60.0 * minute, key, events(losses)))
    if "kernels" in data:
        found += capture(START + 300.0)
    return tuple(sorted(found, key=lambda each: (each.at, each.key)))


def play(ending: Ending, *, left_s: float, hours: int) -> tuple[Network, int]:
    """Play a trial, with a scheduler run each minute; a job outside SageMaker is left after ``left_s`` of silence.

    Returns the world, and how many stalls were notified while the job ran.
    """
    with patch.object(reconcile, "ABANDONED_S", left_s):
        return _played(ending, hours)


def _played(ending: Ending, hours: int) -> tuple[Network, int]:
    network = Network()
    settings = {**SETTINGS, "trainguard:training/StalledTrainingRule_threshold": str(ending.threshold_s)}
    described = replace(describe(settings), framework_profiling=False, instance_count=1)
    if ending.outside:
        network.world.training_jobs.forget(JOB)
    else:
        network.world.training_jobs.set(described)
    due: list[tuple[float, int, Upload]] = []
    for number, upload in enumerate(written(ending.data)):
        delay = ending.delays[number % len(ending.delays)]
        due.append((upload.at, 0, upload))
        if delay is not None and wakes(upload):
            due.append((upload.at + delay, 1, upload))
    told = 0
    due.sort(key=lambda each: each[:2])
    for minute in range(60 * hours):
        until = START + 60.0 * (minute + 1)
        while due and due[0][0] <= until:
            at, kind, upload = due.pop(0)
            network.run_until(at, batch_s=0.0)
            if kind == 0:
                network.put(upload)
            else:
                network.announce(upload, at)
        network.run_until(until, batch_s=0.0)
        runs = until <= START + LAST_S
        if not (runs or ending.outside):
            network.world.training_jobs.set(replace(described, status=JobStatus.COMPLETED, ended_at=START + LAST_S))
        network.run_scheduler()
        if runs:
            told = stalls(network)
    return network, told


def stalls(network: Network) -> int:
    """Return how many stalls people were notified of."""
    return sum(fire["rule"] == STALLED for fire in network.world.executions.started.values())


def items_of(network: Network) -> dict[str, object]:
    """Return what the streams' items hold at the end.

    But of captures, which wait for an execution that no trial makes: their items say when it was asked for.
    """
    return {
        record.key.node_kind: (
            b"" if record.key.stream == KERNELS else record.state,
            dict(record.cursors),
            {} if record.key.stream == KERNELS else dict(record.pending),
            {name: count for name, count in record.counters.items() if name not in DELIVERY_COUNTERS},
            record.closed,
        )
        for record in network.world.nodes.of_job(JOB)
        if not record.key.is_own
    }


@cache
def in_order(data: tuple[str, ...], outside: bool, threshold_s: int) -> dict[str, object]:
    """Return the items after a run whose every message comes at once."""
    return items_of(play(Ending(data, outside, threshold_s=threshold_s), left_s=LEFT_S, hours=HOURS)[0])


def wrong(ending: Ending, *, left_s: float = LEFT_S, hours: int = HOURS) -> str | None:
    """Play a trial; return what is wrong with what it leaves, None when nothing is."""
    network, told = play(ending, left_s=left_s, hours=hours)
    called = Counter(network.world.faults.calls)
    job = network.job()
    if job.active or not job.closing:
        return "not closed"
    if len(network.world.reports.started) != 1:
        return f"{len(network.world.reports.started)} reports"
    if stalls(network) > told:
        return "a stall of a job that has ended"
    most_saves = 2 * len(written(ending.data)) + (LAST_S + LOOKED_AT_S) / 60.0 + left_s / 180.0 + left_s / 300.0
    if called["NodeStates.save"] > most_saves + 20 or called["TrainingJobs.describe"] > left_s / 360.0 + 20:
        return f"{called['NodeStates.save']} items saved, {called['TrainingJobs.describe']} descriptions"
    if ending == Ending(ending.data, ending.outside, threshold_s=ending.threshold_s):
        return None  # it is the run in order
    expected, found = in_order(ending.data, ending.outside, ending.threshold_s), items_of(network)
    different = [name for name in sorted(expected.keys() | found.keys()) if expected.get(name) != found.get(name)]
    return f"items of {', '.join(different)} differ from those of the run in order" if different else None
