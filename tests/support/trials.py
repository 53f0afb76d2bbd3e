"""Trials of the whole engine: a small job whose messages a hostile network delivers, while evaluators die and race."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.support.delivery import Network, final_state
from tests.support.memory import MemoryJobs, MemoryWorld
from tests.support.small_job import MINUTES, SETTINGS, START, STEADY, Shape, Upload, describe, uploads
from trainguard.core.records import JobRecord, JobStatus

# How processes write. Lanes that are always early, once, several times in a row, and a job that starts again.
SHAPES = {
    "steady": STEADY,
    "early": Shape({(1, 70): [335.0], (1, 71): [346.0], (2, 70): [372.0], (2, 71): [343.0]}),
    "four early": Shape({(2, 70): [400.0, 412.0, 424.0, 436.0], (1, 71): [350.0, 359.0, 368.0, 377.0]}),
    "two minutes early": Shape({(2, 71): [200.0, 222.0, 500.0], (1, 70): [333.0, 600.0]}),
    "restart": Shape({(2, 70): [222.0]}, restart=(5, 11)),
}

BOUND_S = 119.0
# A message may come long after its object's node has gone on, as one does whose evaluator died twice.
LATEST_S = 900.0


class JobsOfAnInterval(MemoryJobs):
    """Jobs whose nodes are evaluated every ``every_s`` seconds, whatever was registered, once that is set."""

    every_s: float | None = None

    def load(self, job: str) -> JobRecord | None:
        """Return the job's item, or None."""
        record = super().load(job)
        if record is None or self.every_s is None:
            return record
        return replace(record, policy=msgspec.structs.replace(record.policy, evaluation_every_s=self.every_s))


@dataclass(frozen=True, slots=True)
class Race:
    """A second evaluator that gets the message of object ``upload`` while a first one is about to save.

    ``at`` is the share of the job's time after which it happens, ``nth`` counts the first one's saves.
    """

    at: float
    nth: int
    upload: int


@dataclass(frozen=True, slots=True)
class Trial:
    """What happens to the messages of one job.

    Attributes
    ----------
    shape : str
        The name of one of SHAPES.
    delays : sequence of float or None
        Seconds after which each object's message arrives; None: it never does.
    repeats : sequence of (int, float)
        Objects whose message comes again, and when, in seconds after the bound.
    crashes : sequence of (float, int)
        After which share of the job's time an evaluator or a run of the scheduler dies, and after how many port calls.
    races : sequence of Race
    batch_s : float
        Seconds of messages that one evaluator gets at once.
    ticks : collection of int
        The minutes at which the scheduler runs.
    every_s : tuple of (float, float)
        How often a node is evaluated, seconds: in the first half of the job, and from then on.
    """

    shape: str
    delays: Sequence[float | None]
    repeats: Sequence[tuple[int, float]] = ()
    crashes: Sequence[tuple[float, int]] = ()
    races: Sequence[Race] = ()
    batch_s: float = 0.0
    ticks: frozenset[int] = frozenset()
    every_s: tuple[float, float] = (60.0, 60.0)


@cache
def uploads_of(shape: str) -> tuple[Upload, ...]:
    """Return the job's objects in upload order."""
    return tuple(uploads(shape=SHAPES[shape]))


def plain(shape: str) -> Trial:
    """Return the trial in which every message comes once, in order and in time."""
    return Trial(shape, [0.5] * len(uploads_of(shape)), ticks=frozenset(range(1, MINUTES + 3)))


@cache
def reference(shape: str) -> dict[str, object]:
    """Return the state after plain delivery, evaluated each minute."""
    network = play(plain(shape))
    assert network.crashes == 0
    return final_state(network.world)


def delays_of_early(shape: str, late_s: float | None) -> list[float | None]:
    """Return delays with which files that were closed early have messages so late, or none, and all others in time."""
    last: dict[str, float] = {}
    delays: list[float | None] = []
    for upload in uploads_of(shape):
        process = upload.key.partition("_")[2]
        is_early = process in last and upload.at - last[process] < 45.0
        delays.append(late_s if is_early else 0.5)
        last[process] = upload.at
    return delays


def play(trial: Trial) -> Network:
    """Put every object when it appears, let happen what the trial says, end the job, and return the network."""
    world, objects = MemoryWorld(), uploads_of(trial.shape)
    first_s, then_s = trial.every_s
    world.jobs = jobs = JobsOfAnInterval(faults=world.faults)
    network = Network(world)
    tags = SETTINGS | {"trainguard:evaluation-every-s": f"{first_s:g}"}
    world.training_jobs.set(describe(tags))
    end = objects[-1].at
    happenings: list[tuple[float, int, Any]] = [(upload.at, 0, upload) for upload in objects]
    announced = [(upload.at + delay, 1, upload) for upload, delay in zip(objects, trial.delays, strict=True) if delay]
    announced += [(objects[index].at + BOUND_S + delay, 1, objects[index]) for index, delay in trial.repeats]
    happenings += announced
    happenings += [(START + 60.0 * minute, 2, None) for minute in trial.ticks]
    happenings += [(START + 60.0 * MINUTES * share, 3, calls) for share, calls in trial.crashes]
    happenings += [(START + 60.0 * MINUTES * race.at, 4, race) for race in trial.races]
    happenings += [(START + 30.0 * MINUTES, 5, then_s)] if then_s != first_s else []
    for at, kind, what in sorted(happenings, key=lambda each: each[:2]):
        network.run_until(at, batch_s=trial.batch_s)
        if kind == 0:
            network.put(what)
        elif kind == 1:
            network.announce(what, at)
        elif kind == 2:
            network.run_scheduler()
        elif kind == 3:
            network.doomed.append(what)
        elif kind == 5:
            jobs.every_s = what
        else:
            there = [upload for upload in objects if upload.at <= at]
            network.rivals.append((what.nth, there[what.upload % len(there)]))
    network.run_until(end + 4_000.0, batch_s=trial.batch_s)
    world.training_jobs.set(describe(tags, status=JobStatus.COMPLETED))
    for minute in range(70, 90):
        if not network.job().active and not network.queue:
            break
        network.run_scheduler()
        network.run_until(end + 60.0 * minute, batch_s=trial.batch_s)
    return network


def check(trial: Trial) -> None:
    """Play a trial, and compare what it leaves with what plain delivery leaves."""
    network, expected = play(trial), reference(trial.shape)
    state = final_state(network.world)
    assert state.keys() == expected.keys()
    for name, value in state.items():
        assert value == expected[name], name
    assert network.job().active is False
    assert network.queue == []


IN_TIME = st.one_of(st.just(0.5), st.floats(0.1, BOUND_S))
WHENEVER = st.one_of(st.just(0.5), st.floats(0.1, BOUND_S), st.floats(BOUND_S, LATEST_S), st.none())


INTERVALS = st.sampled_from([60.0, 180.0, 300.0])


@st.composite
def trials(draw: st.DrawFn) -> Trial:
    """Draw a trial: messages late and lost, or all of them in time."""
    shape = draw(st.sampled_from(sorted(SHAPES)))
    count = len(uploads_of(shape))
    delay = draw(st.sampled_from([IN_TIME, WHENEVER]))
    races = st.builds(Race, st.floats(0.1, 1.2), st.integers(1, 3), st.integers(0, count - 1))
    return Trial(
        shape=shape,
        delays=draw(st.lists(delay, min_size=count, max_size=count)),
        repeats=draw(st.lists(st.tuples(st.integers(0, count - 1), st.floats(0.0, 600.0)), max_size=6)),
        crashes=draw(st.lists(st.tuples(st.floats(0.0, 1.2), st.integers(0, 40)), max_size=4)),
        races=draw(st.lists(races, max_size=4)),
        batch_s=draw(st.sampled_from([0.0, 5.0, 20.0])),
        ticks=frozenset(draw(st.sets(st.integers(1, MINUTES + 3), max_size=8))),
        every_s=draw(st.tuples(INTERVALS, INTERVALS)),
    )
