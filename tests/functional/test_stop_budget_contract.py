"""StopBudget: so many stops an hour and no more, whoever asks and however often; the hour slides."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.functional.tables import BOOKKEEPING
from tests.functional.worlds import MotoUnderTest
from tests.support.faults import Faults
from tests.support.memory import MemoryStopBudget
from trainguard.aws.dynamodb.fire_path import DynamoStopBudget
from trainguard.core.errors import StateConflictError
from trainguard.core.stores import StopBudget
from trainguard.stack.actions.stop_rate_limit import HOUR_S, Stop, take

NOW = 1_795_248_000.0


@pytest.fixture(params=["memory", "moto"])
def budget(request: pytest.FixtureRequest) -> StopBudget:
    """Return a budget of which nothing is taken."""
    if request.param == "memory":
        return MemoryStopBudget(faults=Faults())
    moto_world: MotoUnderTest = request.getfixturevalue("moto_world")
    return DynamoStopBudget(client=moto_world.dynamodb, table=BOOKKEEPING)


def taken(budget: StopBudget, fire: str, *, at: float = NOW, limit: int = 2) -> bool:
    return budget.take(fire, f"job-of-{fire}", now=at, limit=limit)


def test_first_fires_get_the_ceiling_and_the_rest_none(budget: StopBudget) -> None:
    assert [taken(budget, fire) for fire in ("a", "b", "c")] == [True, True, False]


def test_repeated_request_of_a_fire_takes_no_second_stop(budget: StopBudget) -> None:
    assert [taken(budget, fire) for fire in ("a", "a", "a", "b", "a", "c")] == [True, True, True, True, True, False]


def test_fires_of_one_job_share_a_stop(
    budget: StopBudget,
) -> None:
    asked = [("a", "job"), ("b", "job"), ("c", "other"), ("d", "job"), ("e", "third"), ("a", "job")]
    granted = [budget.take(fire, job, now=NOW, limit=2) for fire, job in asked]
    assert granted == [True, True, True, True, False, True]


def test_lowered_ceiling_holds_for_a_repeated_request(budget: StopBudget) -> None:
    assert taken(budget, "a")
    assert not taken(budget, "a", limit=0)


@pytest.mark.parametrize(("later_s", "granted"), [(HOUR_S - 0.5, False), (HOUR_S, True), (HOUR_S + 0.5, True)])
def test_full_hour_has_room_once_it_has_passed(budget: StopBudget, later_s: float, granted: bool) -> None:
    assert taken(budget, "a", limit=1)
    assert taken(budget, "b", at=NOW + later_s, limit=1) is granted


def test_stops_across_the_full_hour_count_together(
    budget: StopBudget,
) -> None:
    stroke = NOW - NOW % HOUR_S + HOUR_S
    assert [taken(budget, fire, at=stroke - 1.0) for fire in ("a", "b")] == [True, True]
    assert not taken(budget, "c", at=stroke + 1.0)


def test_ceiling_of_none_grants_nothing(budget: StopBudget) -> None:
    assert not taken(budget, "a", limit=0)


def test_concurrent_fires_get_no_more_than_the_ceiling() -> None:
    budget = MemoryStopBudget(faults=Faults())
    granted: list[bool] = []
    threads = [
        threading.Thread(target=lambda fire=fire: granted.append(taken(budget, fire, limit=5)))
        for fire in map(str, range(40))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(granted) == 5


def racing(budget: DynamoStopBudget, monkeypatch: pytest.MonkeyPatch, moto_world: MotoUnderTest, times: int) -> None:
    """Let another fire take a stop between reading and writing, so many times."""
    other = DynamoStopBudget(client=moto_world.dynamodb, table=BOOKKEEPING)
    rivals = iter(range(times))
    load = budget._load

    def overtaken() -> tuple[int, dict[str, Stop]]:
        loaded = load()
        if (rival := next(rivals, None)) is not None:
            assert taken(other, f"rival-{rival}", limit=100)
        return loaded

    monkeypatch.setattr(budget, "_load", overtaken)


@pytest.mark.parametrize(("limit", "granted"), [(2, True), (1, False)])
def test_fire_written_earlier_is_counted_before_the_answer(
    moto_world: MotoUnderTest, monkeypatch: pytest.MonkeyPatch, limit: int, granted: bool
) -> None:
    budget = DynamoStopBudget(client=moto_world.dynamodb, table=BOOKKEEPING)
    racing(budget, monkeypatch, moto_world, times=1)
    assert taken(budget, "a", limit=limit) is granted


def test_repeatedly_losing_the_write_grants_nothing(moto_world: MotoUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = DynamoStopBudget(client=moto_world.dynamodb, table=BOOKKEEPING)
    racing(budget, monkeypatch, moto_world, times=4)
    with pytest.raises(StateConflictError, match="Bookkeeping/stops"):
        taken(budget, "a", limit=100)


def test_granted_stops_name_fires_jobs_and_times(
    moto_world: MotoUnderTest,
) -> None:
    taken(DynamoStopBudget(client=moto_world.dynamodb, table=BOOKKEEPING), "a")
    assert moto_world.entry("stops", "last-hour")["Stops"] == {
        "M": {"a": {"M": {"Job": {"S": "job-of-a"}, "At": {"S": "2026-11-21T08:00:00.000Z"}}}}
    }


@given(
    asked=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3 * int(HOUR_S)).map(float)), max_size=40),
    limit=st.integers(0, 4),
)
def test_no_hour_admits_more_than_the_ceiling(asked: list[tuple[int, float]], limit: int) -> None:
    stops: dict[str, Stop] = {}
    granted: list[float] = []
    for number, (fire, at) in enumerate(sorted(asked, key=lambda each: each[1])):
        name = f"{fire}-{number // 3}"
        sandboxed = take(stops, name, f"job-of-{name}", now=at, limit=limit)
        if sandboxed is not None:
            if name not in stops or at - stops[name].at >= HOUR_S:
                granted.append(at)
            stops = sandboxed
    assert all(sum(at - HOUR_S < each <= at for each in granted) <= limit for at in granted)
