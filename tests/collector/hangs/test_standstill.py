"""A standstill begins once, after a bound that the job's own pauses set."""

import pytest

from trainguard_collector.hangs.standstill import LEAST_S, LEAST_STEPS, LONGEST_S, Standstill

LOOK_S = 5


def begins(appends: list[int], until: int, *, excused: range = range(0), gone: range = range(0)) -> list[int]:
    """Return when standstills begin for a process that appends at these seconds, and is another one after ``gone``."""
    standstill, found = Standstill(), []
    for at in range(0, until, LOOK_S):
        size = sum(each <= at for each in appends)
        has_begun = at not in gone and size - sum(each < gone.stop <= at for each in appends) >= LEAST_STEPS
        sizes = {} if at in gone else {f"timeline{at >= gone.stop}": size}
        if standstill.look(float(at), sizes, has_begun=has_begun, is_excused=at in excused):
            found.append(at)
    return found


STEPS = list(range(100))


def test_first_steps_that_compile_set_no_bound() -> None:
    (found,) = begins([0, 600, 601, *range(610, 700)], 900)
    assert found - 699 <= LEAST_S + 2 * LOOK_S


@pytest.mark.parametrize(
    ("appends", "first", "last"),
    [
        (STEPS, 160, 165),
        (list(range(0, 1_001, 100)), 1_150, 1_160),
        ([*STEPS, 150, *range(150, 400)], 475, 490),
        (list(range(0, 7_000, 1_300)), 6_500 + int(LONGEST_S), 6_510 + int(LONGEST_S)),
    ],
    ids=["short steps", "long steps", "a pause before", "steps of 22 minutes"],
)
def test_bound_follows_the_longest_pause(appends: list[int], first: int, last: int) -> None:
    found = begins(appends, last + 1_000)
    assert len(found) == 1
    assert first <= found[0] <= last


def test_process_that_has_not_begun_never_stands_still() -> None:
    standstill = Standstill()
    assert not any(
        standstill.look(float(at), {"timeline": 1}, has_begun=False, is_excused=False) for at in range(0, 9_000, 5)
    )


def test_resumed_standstill_counts_as_a_pause() -> None:
    resumed = [*STEPS, *range(300, 400)]
    first, second = begins(resumed, 2_000)
    assert LEAST_S <= first - 99 <= LEAST_S + 2 * LOOK_S
    assert 1.5 * 200 <= second - 399 <= 1.5 * 210 + 2 * LOOK_S


def test_open_checkpoint_is_waited_for_at_most_half_an_hour() -> None:
    (found,) = begins([*STEPS, *range(900, 1_000)], 1_200, excused=range(100, 900))
    assert LEAST_S <= found - 999 <= LEAST_S + 2 * LOOK_S
    (found,) = begins(STEPS, 4_000, excused=range(100, 4_000))
    assert LONGEST_S <= found - 99 <= LONGEST_S + 2 * LOOK_S


def test_hang_that_a_restart_ends_is_no_pause() -> None:
    first, second = begins([*STEPS, *range(1_000, 1_100)], 1_300, gone=range(800, 990))
    assert second - 1_099 <= LEAST_S + 2 * LOOK_S
    assert first < 200


def test_withdrawn_timeline_alone_is_no_progress() -> None:
    standstill = Standstill()
    for at in range(0, 60, 5):
        sizes = {"old": 9} if at < 20 else {}
        assert not standstill.look(float(at), sizes, has_begun=True, is_excused=False)
    assert standstill.look(60.0, {}, has_begun=True, is_excused=False)
    assert not standstill.look(65.0, {"new": 1}, has_begun=True, is_excused=False)
    assert not standstill.is_open
