"""Phases: which mode a stretch of time belongs to, what comes before and after the steps, and how many there can be."""

from itertools import pairwise

import pytest

from tests.unit.timeline.samples import EVAL, PREDICT, START, axis, digest, steps
from trainguard.report.timeline.build import MAX_PHASES, phases_of
from trainguard.report.timeline.series import Phase


def spans(phases: list[Phase]) -> list[tuple[str, float, float]]:
    return [(phase.kind, round(phase.start - START, 3), round(phase.end - START, 3)) for phase in phases]


def test_training_and_then_evaluation_have_a_span_each() -> None:
    job = digest(steps([3.0, 12.0, 21.0], [8.0, 8.0, 8.0]), steps([42.5, 51.0], [7.0, 7.0], mode=EVAL))
    phases, width = phases_of([job], job.axis, started_at=START - 60.0, ended_at=START + 99.0)
    assert spans(phases) == [
        ("initialization", -60.0, 3.0),
        ("training", 3.0, 40.0),
        ("evaluation", 40.0, 58.0),
        ("finalization", 58.0, 99.0),
    ]
    assert width == 10.0


def test_mixed_bucket_belongs_to_the_mode_that_took_longer() -> None:
    training = steps([0.0, 1.0, 2.0, 11.0], [1.0, 1.0, 1.0, 3.0])
    job = digest(training, steps([4.0, 14.0], [3.1, 2.9], mode=EVAL))
    phases, _ = phases_of([job], job.axis, started_at=None, ended_at=None)
    assert spans(phases) == [("evaluation", 0.0, 10.0), ("training", 10.0, 16.9)]


def test_time_of_steps_of_two_nodes_is_added() -> None:
    first = digest(steps([1.0], [5.0]))
    second = digest(steps([1.0], [3.0], process="algo-2-1", mode=EVAL), node="algo-2")
    third = digest(steps([1.0], [3.0], process="algo-3-1", mode=EVAL), node="algo-3")
    phases, _ = phases_of([first, second, third], axis(), started_at=None, ended_at=None)
    assert spans(phases) == [("evaluation", 1.0, 6.0)]


def test_steps_without_length_have_a_phase() -> None:
    phases, _ = phases_of([digest(steps([1.0], [0.0], mode=EVAL))], axis(), started_at=None, ended_at=None)
    assert [phase.kind for phase in phases] == ["evaluation"]


def test_steps_of_another_mode_are_other() -> None:
    phases, _ = phases_of([digest(steps([1.0], [1.0], mode=PREDICT))], axis(), started_at=None, ended_at=None)
    assert [(phase.kind, phase.label) for phase in phases] == [("other", "Other steps")]


def test_given_no_steps_when_told_apart_then_there_are_no_phases() -> None:
    assert phases_of([digest()], axis(), started_at=START + 0.0, ended_at=START + 99.0)[0] == []


@pytest.mark.parametrize(("started_at", "ended_at"), [(None, None), (START + 5.0, START + 20.0)])
def test_loop_is_the_only_phase_without_time_around_the_steps(started_at: float | None, ended_at: float | None) -> None:
    job = digest(steps([3.0, 19.0], [1.0, 5.0]))
    phases, _ = phases_of([job], job.axis, started_at=started_at, ended_at=ended_at)
    assert [phase.kind for phase in phases] == ["training"]


def test_alternating_evaluation_has_bounded_phases_without_gaps() -> None:
    long = axis(2_900, 1)
    training, evaluation = range(0, 2_900, 2), range(1, 2_900, 2)
    job = digest(
        steps(list(training), [0.9 if at % 40 < 20 else 0.1 for at in training]),
        steps(list(evaluation), [0.5] * len(evaluation), mode=EVAL),
        on=long,
    )
    phases, width = phases_of([job], long, started_at=START - 1.0, ended_at=START + 3_000.0)
    assert 2 < len(phases) <= MAX_PHASES
    assert width in (2.0, 4.0, 8.0, 16.0)
    assert all(before.end == after.start for before, after in pairwise(phases))
    assert {phase.kind for phase in phases} >= {"training", "evaluation"}
