"""Bounds of the training family: when a job has stalled, which times can be believed, and which file is read next."""

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.families.training.step_rules import RULES
from tests.support.faults import Faults
from tests.support.memory import MemoryProfileObjects
from tests.support.small_job import BUCKET, JOB
from tests.support.tensor_files import event, frame
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobRecord, JobStatus, Status
from trainguard.engine.family import Families, ObjectSource
from trainguard.engine.training import scalar_files
from trainguard.engine.training.debug_session import DebugState
from trainguard.engine.training.family import TrainingFamily, judge_stall
from trainguard.engine.training.older_runs import _in_age
from trainguard.engine.training.runs import FoundCollections, SharedRuns
from trainguard.engine.training.scalar_files import FileState, ScalarFiles, ScalarState, lowest_first
from trainguard.engine.training.stream import STALLED, StepStream, StepStreamState, believed
from trainguard.formats.tensors.debug.json_files import Collections
from trainguard.formats.tensors.scalars.names import ScalarNames
from trainguard.rules.training.stalled_training import StalledTrainingRule, StalledTrainingRuleParameters

FAMILIES = Families(TrainingFamily([*RULES, StalledTrainingRule()], [STALLED]))
RUNS = JobRecord(JOB, "arn", BUCKET, "", JobStatus.IN_PROGRESS, secondary_status="Training")
NOW = 1_700_000_000.0


def state(
    progress_s: float | None = NOW, *, looked_s: float = NOW + 1_801.0, steps: int = 7, **said: Any
) -> StepStreamState:
    return StepStreamState(progress_s=progress_s, looked_s=looked_s, steps=steps, step=70, **said)


def judged(*states: StepStreamState, job: JobRecord = RUNS) -> tuple[Status, str, int]:
    said = judge_stall(StalledTrainingRule(), job, states, StalledTrainingRuleParameters())
    return said.status, said.reason, said.data_points


@pytest.mark.parametrize(
    ("busy", "status"),
    [(0.5, Status.OK), (0.94, Status.OK), (0.49, Status.FIRED), (0.999, Status.FIRED), (None, Status.FIRED)],
)
def test_working_gpus_are_no_stall_and_spinning_ones_may_be(busy: float | None, status: Status) -> None:
    asked = []

    def share(span: tuple[float, float]) -> float | None:
        asked.append(span)
        return busy

    rule, parameters = StalledTrainingRule(), StalledTrainingRuleParameters()
    silent = state(looked_s=NOW + 9_000.0)
    said = judge_stall(rule, RUNS, [silent], parameters, share)
    assert said.status is status
    assert asked == [(NOW + 7_200.0, NOW + 9_000.0)]
    if status is Status.OK:
        assert said.reason == (
            f"No step was saved for 2.5 h, and the GPUs worked on: they were busy for {100 * (busy or 0):.3g} % of "
            "the time."
        )


STALLS = (
    "Step 70: no step was saved for 30 min after step 70, and training has not ended; "
    "that is above the threshold of 30 min."
)
CAME = "The newest object came 30 min before the last look."
CAME_NOW = "The newest object came 60 s before the last look."


@pytest.mark.parametrize(
    ("states", "status", "reason"),
    [
        ([state()], Status.FIRED, STALLS),
        ([state(looked_s=NOW + 1_800.0)], Status.OK, CAME),
        ([state(None)], Status.WARMING_UP, "No step was saved."),
        ([state(None), state()], Status.FIRED, STALLS),
        ([state(NOW - 900.0), state()], Status.FIRED, STALLS),
        ([state(), state(NOW - 900.0)], Status.FIRED, STALLS),
        ([state(), state(looked_s=NOW + 60.0)], Status.OK, CAME_NOW),
        ([state(looked_s=NOW + 60.0), state()], Status.OK, CAME_NOW),
        ([state(), state(ended=True)], Status.OK, "Training has ended."),
    ],
)
def test_clock_uses_the_newest_object_and_oldest_request(
    states: list[StepStreamState], status: Status, reason: str
) -> None:
    points = 7 if status is Status.FIRED or reason in {CAME, CAME_NOW} else 0
    assert judged(*states) == (status, reason, points)


@pytest.mark.parametrize(
    ("changed", "status", "reason"),
    [
        ({"closing": True}, Status.OK, "Training has ended."),
        ({"status": JobStatus.COMPLETED}, Status.OK, "Training has ended."),
        ({"status": JobStatus.STOPPING}, Status.NOT_APPLICABLE, "The job's status is Stopping: whether it still"),
        ({"secondary_status": None}, Status.FIRED, ""),
        ({"secondary_status": "Uploading"}, Status.OK, CAME),
    ],
)
def test_job_that_may_not_be_training_does_not_stall(changed: dict[str, Any], status: Status, reason: str) -> None:
    found = judged(state(), job=replace(RUNS, **changed))
    assert found[0] is status
    assert found[1].startswith(reason)


def stream(of: StepStreamState, job: JobRecord = RUNS) -> StepStream[StepStreamState]:
    return StepStream("a unit", of, FAMILIES.plan(job))


@pytest.mark.parametrize(
    ("of", "after_s", "overdue"),
    [
        (state(), 1_800.0, False),
        (state(), 1_801.0, True),
        (state(None), 10_000.0, False),
        (state(ended=True), 10_000.0, False),
    ],
)
def test_stream_is_overdue_once_silent_past_the_threshold(of: StepStreamState, after_s: float, overdue: bool) -> None:
    assert stream(of).is_overdue(NOW + after_s) is overdue
    assert stream(of, replace(RUNS, training_rules=("training/HighLoss",))).is_overdue(NOW + after_s) is False


def test_stream_ended_without_a_step_is_not_judged() -> None:
    assert stream(StepStreamState()).finish() == []
    assert StepStreamState().looked_s == 0.0
    assert (StepStreamState().steps, StepStreamState().ended, DebugState().last_complete) == (0, False, -1)


@pytest.mark.parametrize(
    ("at", "seen"),
    [
        (1.0, 1.0),
        (0.0, NOW),
        (-1.0, NOW),
        (math.nan, NOW),
        (math.inf, NOW),
        (NOW + 3_600.0, NOW + 3_600.0),
        (NOW + 3_601.0, NOW),
    ],
)
def test_impossible_step_time_falls_back_to_its_file(at: float, seen: float) -> None:
    assert believed(at, NOW) == seen


def test_file_of_the_least_advanced_source_is_chosen_by_name() -> None:
    assert lowest_first([(3, "a"), (1, "c"), (1, "b")]) == "b"
    assert lowest_first([]) is None


class Bucket:
    """Objects of a job, each put at a time."""

    def __init__(self, prefix: str = "") -> None:
        self.objects = MemoryProfileObjects(faults=Faults())
        self.files = ScalarFiles(ObjectSource(self.objects, BUCKET, ProfileRoot(prefix, JOB), 64 * 1024))

    def put(self, name: str, at: float, body: bytes = b"") -> None:
        self.objects.now = at
        self.objects.put(BUCKET, name, body, "")


@pytest.mark.parametrize(
    ("first", "second", "newest"),
    [
        ((0.0, 10), (60.0, 5), 2),
        ((59.0, 10), (60.0, 5), 2),
        ((0.0, 10), (59.0, 5), 1),
        ((0.0, 10), (59.0, 10), 2),
        ((59.0, 5), (0.0, 10), 2),
        ((60.0, 5), (59.0, 10), 1),
    ],
)
def test_newest_minute_counts_and_of_equal_ones_the_largest_log(
    first: tuple[float, int], second: tuple[float, int], newest: int
) -> None:
    bucket = Bucket()
    for number, (at, size) in ((1, first), (2, second)):
        bucket.put(f"{JOB}/checkpoints/checkpoint-{number}/trainer_state.json", 6_000.0 + at, bytes(size))
    bucket.put(f"{JOB}/checkpoints/other.bin", 6_000.0)
    (found,) = bucket.files.listed().values()
    assert found.listed.key.endswith(f"checkpoint-{newest}/trainer_state.json")


def test_job_below_checkpoints_of_another_takes_none_of_them() -> None:
    bucket = Bucket("other/checkpoints/")
    bucket.put(f"other/checkpoints/{JOB}/trainer-output/metrics.csv", 6_000.0)
    assert bucket.files.listed() == {}


@pytest.mark.parametrize(
    ("first", "second", "older"),
    [
        (("version_9", 0.0), ("version_10", 0.0), 0),
        (("version_10", 0.0), ("version_9", 60.0), 1),
        (("version_10", 0.0), ("version_9", 61.0), 0),
        (("version_9", 61.0), ("version_10", 0.0), 1),
        (("version_9", 60.0), ("version_10", 0.0), 0),
        (("b", 0.0), ("a", 0.0), 1),
    ],
)
def test_later_run_of_two_logs_is_newer_and_number_breaks_ties(
    first: tuple[str, float], second: tuple[str, float], older: int
) -> None:
    bucket = Bucket()
    for folder, at in (first, second):
        bucket.put(f"{JOB}/trainer-output/{folder}/metrics.csv", NOW + at)
    found = bucket.files.listed()
    both = [found[f"trainer-output/{folder}/metrics.csv"] for folder, _ in (first, second)]
    assert _in_age(*both) == (both[older], both[1 - older])


def test_event_longer_than_a_piece_is_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scalar_files, "PIECE_BYTES", 100)
    body = frame(event(b"\x12" + bytes([90]) + bytes(90), step=1, at=NOW))
    asked: list[int] = []
    bucket = Bucket()
    read = bucket.objects.get_range

    def noted(bucket: str, key: str, start: int, size: int) -> bytes:
        asked.append(size)
        return read(bucket, key, start, size)

    monkeypatch.setattr(bucket.objects, "get_range", noted)
    for size, whole in ((100, False), (101, True)):
        bucket.put(f"{JOB}/tensorboard-output/events.out.tfevents.1", NOW, body[:size])
        (file,) = bucket.files.listed().values()
        asked.clear()
        assert bucket.files.read(file, FileState("")) is None
        assert (max(asked) > 100) is whole


def test_first_scalar_names_are_kept_with_a_mark_for_more() -> None:
    names, met = ScalarNames(), ScalarState()
    met.meet({f"train/x{number}" for number in range(10, 21)} | {"train/loss_a"}, names)
    assert (len(met.scalars.names), met.scalars.more) == (12, False)
    met.meet({f"train/loss_{letter}" for letter in "bcdef"}, names)
    assert (len(met.names), met.scalars.more, len(met.scalars.names)) == (13, True, 12)
    assert met.losses == [f"train/loss_{letter}" for letter in "abcd"]


@pytest.mark.parametrize(("step", "until", "repeated"), [(None, 5, 0), (3, 5, 4), (9, 5, 5), (4, 5, 5)])
def test_restarted_stream_has_fired_its_earlier_steps(step: int | None, until: int, repeated: int) -> None:
    begun = ScalarState(step=step, files={"a": FileState("a", 7, 8, 9.0)}, mode_place=2)
    begun.restart(until)
    assert (begun.repeated, begun.mode_place) == (repeated, -1)
    assert (begun.files["a"].taken, begun.files["a"].size, begun.files["a"].modified_s) == (0, 0, 0.0)


def test_oldest_held_collections_make_room() -> None:
    shared, found = SharedRuns(), FoundCollections((), 1, Collections({}), {})
    for number in range(34):
        shared.keep(BUCKET, ProfileRoot("", f"job-{number}"), found)
    assert [root.job for _, root in shared.held] == [f"job-{number}" for number in range(2, 34)]
