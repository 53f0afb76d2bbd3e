"""All that sessions of the training family do with random jobs: files of scalars that grow, and steps as they come."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.answers.recorded import compare, digest, plain_facts
from tests.families.training.runs import DEBUG, FAMILIES, SCALAR, run_files
from tests.support.faults import Faults
from tests.support.memory import MemoryProfileObjects
from tests.support.small_job import BUCKET, JOB, START
from tests.support.tensor_files import event, frame, simple_scalar
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobRecord, StreamKey, StreamRecord
from trainguard.engine.family import ObjectSource
from trainguard.engine.streams.session import Announced, Applied, state_of
from trainguard.engine.training import scalar_files, scalar_session
from trainguard.engine.training.debug_session import DebugSession, DebugState
from trainguard.engine.training.runs import SharedRuns
from trainguard.engine.training.scalar_files import ScalarState
from trainguard.engine.training.scalar_session import ScalarSession
from trainguard.engine.training.stream import match_key

FOLDER = Path(__file__).with_name("steps")
JOBS, GROUP = 60, 10
LATER_S = (10.0, 59.0, 60.0, 61.0, 300.0, 301.0, 900.0)
TABLE = "step,train_loss,eval_loss\n"
# Two event files that follow each other, one of another folder, tables of two runs, and the log of a trainer.
NAMES = (
    "tensorboard-output/events.out.tfevents.1.h",
    "tensorboard-output/events.out.tfevents.2.h",
    "tensorboard-output/val/events.out.tfevents.1.h",
    "trainer-output/version_9/metrics.csv",
    "trainer-output/version_10/metrics.csv",
    "checkpoints/checkpoint-{}/trainer_state.json",
)

PLAN = FAMILIES.plan(JobRecord(JOB, "arn", BUCKET, ""))

Random = np.random.Generator


class Place:
    """A bucket with a clock, and the item of one stream in it."""

    def __init__(self, key: StreamKey) -> None:
        self.objects = MemoryProfileObjects(faults=Faults(), page_size=7)
        self.objects.now = START
        self.source = ObjectSource(self.objects, BUCKET, ProfileRoot("", JOB), 64 * 1024, SharedRuns())
        self.record = StreamRecord(key)
        self.told: list[Any] = []

    def put(self, name: str, body: bytes) -> None:
        """Write an object of the job."""
        self.objects.put(BUCKET, f"{JOB}/{name}", body, "")

    def look(
        self, names: list[str], *, drain: bool, modified_before: float | None, closed: bool, lost: bool = False
    ) -> None:
        """Open the stream, announce objects, and apply what is there; where that is not ``lost``, save the item."""
        kind = ScalarSession if self.record.key == SCALAR else DebugSession
        session = kind(self.record, self.source, PLAN)
        session.announce([Announced(each, match_key(f"{JOB}/{each}")) for each in names])
        applied = [_applied(each) for each in session.apply(drain=drain, modified_before=modified_before)]
        changed = session.has_changes
        saved = session.to_record(closed=closed)
        self.told.append([applied, changed, session.has_changes, _item(saved)])
        if closed:
            last = session.stream.finished()
            fires = [[each.verdict.rule, each.verdict.result.kind] for each in last.finish()]
            said = [
                [each.rule, each.result.status.name, each.result.kind, *plain_facts(each.result.facts)]
                for each in last.verdicts(closed=True)
            ]
            self.told.append([fires, said, last.state.notes])
        if not lost:
            self.record = saved

    def summary(self) -> dict[str, Any]:
        """Return what the item says at last, and a digest of all that was said."""
        item = _item(self.record)
        shown = ("cursors", "counters", "pending", "watermark", "steps", "step", "progress_s", "last_fault")
        return {
            "all": digest(self.told),
            **{name: item[name] for name in shown if item.get(name)},
            "verdicts": self.told[-1][1],
            "notes": self.told[-1][2],
        }


def _applied(each: Applied) -> list[Any]:
    return [
        each.key,
        [[fire.verdict.rule, fire.at, fire.verdict.result.kind] for fire in each.fires],
        each.tally,
        each.fault,
    ]


def _item(record: StreamRecord) -> dict[str, Any]:
    stored: Any = state_of(record, ScalarState if record.key == SCALAR else DebugState)
    state = {name: msgspec.to_builtins(getattr(stored, name)) for name in stored.__struct_fields__}
    item = {"cursors": record.cursors, "counters": record.counters, "pending": record.pending}
    return {**item, "watermark": record.watermark_s, "closed": record.closed, **state}


class Logs:
    """A job's random files of scalars, by name: which step each has come to, and what it holds."""

    def __init__(self, random: Random) -> None:
        self.random = random
        chosen = [name for name in NAMES if random.random() < 0.45] or list(NAMES[:1])
        self.steps = {name: 0 if "version" not in name else int(random.choice([0, 4])) for name in chosen}
        self.rows: dict[str, list[tuple[int, float, bool]]] = {name: [] for name in chosen}

    def grow(self, name: str) -> tuple[str, bytes]:
        """Let a file grow by some steps, or start again; return its name and bytes."""
        if self.random.random() < 0.08:
            self.rows[name] = self.rows[name][-2:]
        for _ in range(int(self.random.integers(1, 9))):
            self.steps[name] += int(self.random.choice([1, 1, 1, 2]))
            loss = float(self.random.choice([1.0, 2.0, 99.0, 101.0, 300.0]))
            self.rows[name].append((self.steps[name], loss, self.random.random() < 0.3))
        broken = self.random.random() < 0.05
        if name.endswith(".csv"):
            lines = [f"{step},,{loss}\n" if tests else f"{step},{loss},\n" for step, loss, tests in self.rows[name]]
            return name, (TABLE + "".join(lines) + ("x,1.0,\n" if broken else "")).encode()
        if name.endswith(".json"):
            log = [{"step": step, "eval_loss" if tests else "loss": loss} for step, loss, tests in self.rows[name]]
            return name.format(self.steps[name]), b"{" if broken else json.dumps({"log_history": log}).encode()
        head = frame(event(b"", step=0, at=START))
        frames = [
            frame(event(simple_scalar("loss" if tests else "train/loss", loss), step=step, at=self._at(step)))
            for step, loss, tests in self.rows[name]
        ]
        return name, head + b"".join(frames) + (b"\x07" * 64 if broken else b"")

    def _at(self, step: int) -> float:
        return START + step if step % 7 else START * 2.0


def scalars_of(seed: int) -> dict[str, Any]:
    """Play a job whose files of scalars grow, with messages that come or not."""
    random = np.random.default_rng(seed)
    logs, place = Logs(random), Place(SCALAR)
    for round_ in range(9):
        place.objects.now += float(random.choice(LATER_S))
        grown = [logs.grow(name) for name in logs.rows if random.random() < 0.6]
        for name, body in grown:
            place.put(name, body)
        if random.random() < 0.05 and grown:
            place.objects.remove(BUCKET, f"{JOB}/{grown[0][0]}")
        announced = [name for name, _ in grown if random.random() < 0.8]
        before = place.objects.now - 300.0 if random.random() < 0.2 else None
        place.look(announced, drain=round_ == 8, modified_before=before, closed=round_ == 8)
    return place.summary()


def uploads(random: Random, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a run of up to three workers as they come: some late, some never, some broken."""
    losses = random.choice([1.0, 50.0, 100.0, 101.0, 300.0], int(random.integers(4, 14))).tolist()
    weights = {step: float(step // 2) for step in range(len(losses))}
    files = run_files(losses, workers=1 + seed % 3, weights=weights, ended=bool(random.random() < 0.6))
    late = 0.0 if seed % 4 else 3.0

    def order(name: str) -> float:
        if not name.startswith(("events", "index")):
            return -1.0 if name.startswith("collections") else 1e9
        step = int(name.rpartition("/")[2].partition("_")[0])
        return step + (0.0 if name.startswith("events") else 0.5 + late * float(random.random()))

    for name in sorted(files, key=order):
        chance = random.random()
        if (name.startswith("index") and chance < 0.05) or (name.startswith("collections") and chance < 0.1):
            continue
        broken = 0.05 <= chance < 0.1 and not name.endswith(".ts")
        yield name, files[name][: len(files[name]) // 2] if broken else files[name]


def steps_of(seed: int) -> dict[str, Any]:
    """Play a job that writes debug-output, with messages that come, come twice, or not."""
    random = np.random.default_rng(1_000 + seed)
    place = Place(DEBUG)
    files = list(uploads(random, seed))
    while files:
        count = int(random.integers(1, 12))
        batch, files = files[:count], files[count:]
        place.objects.now += float(random.choice(LATER_S))
        for name, body in batch:
            place.put(f"debug-output/{name}", body)
        told = [name for name, _ in batch if not name.startswith("events") and random.random() < 0.8]
        again = [told[0]] if told and random.random() < 0.2 else []
        before = place.objects.now - 300.0 if random.random() < 0.2 else None
        names = [f"debug-output/{name}" for name in (*told, *again)]
        place.look(names, drain=False, modified_before=before, closed=False, lost=bool(random.random() < 0.1))
    place.objects.now += 900.0
    place.look([], drain=True, modified_before=None, closed=True)
    return place.summary()


@pytest.mark.parametrize("first", range(0, JOBS, GROUP))
def test_results_of_random_scalar_files_match_the_reviewed(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalar_files, "PIECE_BYTES", 250)
    monkeypatch.setattr(scalar_files, "PIECE_ROWS", 3)
    monkeypatch.setattr(scalar_session, "MOST_WAITING", 6)
    monkeypatch.setattr(scalar_session, "ROWS_AT_ONCE", 2)
    answers = {f"job {seed}": scalars_of(seed) for seed in range(first, first + GROUP)}
    compare(answers, FOLDER / f"scalars-{first:02}.json")


@pytest.mark.parametrize("first", range(0, JOBS, GROUP))
def test_results_of_random_debug_output_match_the_reviewed(
    first: int,
) -> None:
    answers = {f"job {seed}": steps_of(seed) for seed in range(first, first + GROUP)}
    compare(answers, FOLDER / f"debug-{first:02}.json")
