"""What goes wrong in one trial: drawn by a seed, so that a trial can be repeated, and shrunk one fault at a time."""

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from tests.faults.jobs import POISON, Shape

OUTAGE_S = 3_600.0
LATEST_S = 900.0
# An object that appears this much later than its neighbours is no gap: the order waits for 120 s.
SLOWEST_UPLOAD_S = 110.0

SKEWS_S = ((0, 0), (600, 600), (-600, -600), (600, -600), (0, 240))
# The operations that functions call in trials; a test compares them.
PORTS = (
    "NodeStates.load",
    "NodeStates.save",
    "NodeStates.mark_sent",
    "NodeStates.of_job",
    "RuleStates.publish",
    "RuleStates.load",
    "Jobs.load",
    "Jobs.register",
    "Bookkeeping.admit",
    "Jobs.update_status",
    "Jobs.touch",
    "Jobs.polled_fast",
    "Jobs.polled_slowly",
    "Jobs.set_fast_polling",
    "SettingDocuments.read",
    "ReadableObjects.get",
    "ReadableObjects.list",
    "Executions.start",
    "TrainingJobs.describe",
    "TaskQueue.send",
    "StopBudget.take",
)

# Writes around which a function dies.
DEADLY = (
    "NodeStates.save",
    "NodeStates.mark_sent",
    "Executions.start",
    "RuleStates.publish",
    "Jobs.register",
    "Bookkeeping.admit",
    "Jobs.update_status",
    "Jobs.touch",
    "Jobs.set_fast_polling",
    "TaskQueue.send",
    "StopBudget.take",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes
    ----------
    kind : str
        One of KINDS.
    which : int
        An object, an invocation or an item, as the kind has it; counted round.
    seconds : float
        How late, or when after the job's start.
    number : int
        How many, or how.
    name : str
        A port's operation.
    """

    kind: str
    which: int = 0
    seconds: float = 0.0
    number: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """One job and all that goes wrong with it; ``batch_s`` are the seconds of messages that a function gets at once."""

    shape: Shape
    faults: tuple[Fault, ...] = ()
    batch_s: float = 0.0
    seed: int = 0

    def of(self, kind: str) -> list[Fault]:
        """Return the faults of one kind."""
        return [fault for fault in self.faults if fault.kind == kind]

    def without(self, index: int) -> "Trial":
        """Return the trial without one of its faults."""
        return replace(self, faults=(*self.faults[:index], *self.faults[index + 1 :]))


# Draws a fault of a job that lasts so many seconds.
Draw = Callable[[random.Random, float], Fault]

KINDS: dict[str, Draw] = {
    "late message": lambda rng, _: Fault("late message", rng.randrange(40), rng.uniform(1.0, LATEST_S)),
    "lost message": lambda rng, _: Fault("lost message", rng.randrange(40)),
    "message twice": lambda rng, _: Fault("message twice", rng.randrange(40), rng.uniform(0.0, LATEST_S)),
    "slow upload": lambda rng, _: Fault("slow upload", rng.randrange(40), rng.uniform(1.0, SLOWEST_UPLOAD_S)),
    "after the end": lambda rng, _: Fault("after the end", rng.randrange(2), rng.uniform(30.0, 1_800.0), 1),
    "crash": lambda rng, _: Fault("crash", rng.randrange(20), number=rng.randrange(18)),
    "port fails": lambda rng, _: Fault(
        "port fails", rng.randrange(26), rng.randrange(2), rng.randrange(1, 4), rng.choice(PORTS)
    ),
    "race": lambda rng, _: Fault("race", rng.randrange(1, 26), number=rng.randrange(40)),
    "dies at": lambda rng, _: Fault("dies at", rng.randrange(2), number=rng.randrange(1, 7), name=rng.choice(DEADLY)),
    "frozen": lambda _, __: Fault("frozen"),
    "outage": lambda rng, last: Fault("outage", rng.randrange(1_000), rng.uniform(0.0, last), rng.randrange(3)),
    "no ticks": lambda rng, _: Fault("no ticks", rng.randrange(1, 12), number=rng.randrange(1, 8)),
    "clock": lambda rng, _: Fault("clock", rng.randrange(26), rng.uniform(-600.0, 600.0)),
    "end mark early": lambda rng, last: Fault("end mark early", seconds=rng.uniform(30.0, last)),
    "end mark lost": lambda _, __: Fault("end mark lost"),
    "end event lost": lambda _, __: Fault("end event lost"),
    "end event twice": lambda rng, _: Fault("end event twice", seconds=rng.uniform(0.0, LATEST_S)),
    "redeploy": lambda rng, last: Fault("redeploy", rng.randrange(1, 4), rng.uniform(30.0, last)),
    "damaged item": lambda rng, last: Fault(
        "damaged item", rng.randrange(3), rng.uniform(70.0, last), rng.randrange(1, 1_000)
    ),
    "deleted item": lambda rng, last: Fault("deleted item", rng.randrange(2), rng.uniform(70.0, last)),
    "bad message": lambda rng, last: Fault("bad message", rng.randrange(40), rng.uniform(0.0, last + 600.0)),
    "old task": lambda rng, last: Fault("old task", rng.randrange(2), rng.uniform(100.0, last)),
    "another job": lambda rng, _: Fault("another job", number=rng.randrange(2)),
    "stops taken": lambda _, __: Fault("stops taken"),
}


def drawn(seed: int, kinds: Collection[str] = tuple(KINDS), *, most: int = 6) -> Trial:
    """Draw the trial of a seed, with faults of some kinds."""
    rng = random.Random(seed)
    shape = Shape(
        rng.choice(("one", "one", "grid", "lanes")), skew_s=rng.choice(SKEWS_S) if rng.random() < 0.3 else (0, 0)
    )
    if rng.random() < 0.2:
        shape = replace(shape, poison=((rng.randrange(1, 9), rng.randrange(len(POISON))),))
    names = sorted(kinds)
    last = 60.0 * shape.minutes
    faults = tuple(KINDS[rng.choice(names)](rng, last) for _ in range(rng.randint(1, most)))
    return Trial(shape, faults, rng.choice((0.0, 0.0, 5.0, 20.0)), seed)


def shrunk(trial: Trial, fails: Callable[[Trial], bool]) -> Trial:
    """Return a trial that still fails, and passes without any one of its faults."""
    smaller = True
    while smaller:
        smaller = False
        for index in range(len(trial.faults)):
            without = trial.without(index)
            if fails(without):
                trial, smaller = without, True
                break
    return trial


def shown(trial: Trial) -> str:
    """Return what a person needs to repeat a trial."""
    faults: Sequence[str] = [f"  {fault}" for fault in trial.faults]
    return "\n".join([f"seed {trial.seed}, {trial.shape}, batches of {trial.batch_s} s", *faults])
