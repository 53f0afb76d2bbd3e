"""What is remembered of data loaders, and what is said about them, on its bounds."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from tests.support.framework_traces import SECOND, START_US, event, read
from tests.unit.rules.loaders import (
    DEFAULTS,
    RULE,
    START,
    fetches,
    folded,
    job,
    judge,
    own_fetches,
    seconds_of,
    setup,
)
from trainguard.core.records import Status
from trainguard.rules.dataloader.details import LoaderWaiting, LoopWaits
from trainguard.rules.dataloader.rule import DataloaderParameters
from trainguard.rules.dataloader.series import LoaderState, LoadingProcess
from trainguard.rules.dataloader.text import text
from trainguard.rules.rule_result import FactSheet, RuleResult

BLOCK = 600 * SECOND
# A full block of ten minutes, counted since the epoch.
AT = START_US // BLOCK


def waited(*ends_s: float, wait_s: float = 60.0) -> LoadingProcess:
    """Return a process that waited before some seconds after START, and had events until the last of them."""
    process = LoadingProcess("algo-1-905", first_us=START_US)
    for end_s in ends_s:
        end_us = START_US + round(end_s * SECOND)
        process.wait(np.array([end_us]), np.array([round(wait_s * SECOND)]))
        process.last_us = end_us
    return process


def test_waits_of_the_newest_four_ten_minute_blocks_are_kept() -> None:
    process = waited(60.0, 599.0, 600.0, 1_300.0, 1_900.0, 2_399.0)
    assert process.waits == {AT: 120 * SECOND, AT + 1: 60 * SECOND, AT + 2: 60 * SECOND, AT + 3: 120 * SECOND}
    later = waited(60.0, 599.0, 600.0, 1_300.0, 1_900.0, 2_400.0)
    assert list(later.waits) == [AT + 1, AT + 2, AT + 3, AT + 4]
    assert later.waited_us == 6 * 60 * SECOND
    assert later.recent_wait == 4 * 60 / 1_800


@pytest.mark.parametrize(
    ("ends_s", "share"),
    [
        ((60.0, 899.0), None),
        ((60.0, 899.999999), None),
        ((60.0, 900.0), 120 / 900),
        ((900.0,), None),
        ((600.0, 1_500.0), 120 / 900),
    ],
)
def test_waits_under_15_minutes_have_no_recent_share(ends_s: tuple[float, ...], share: float | None) -> None:
    assert waited(*ends_s).recent_wait == share


def test_share_of_parallel_fetch_waits_is_at_most_one() -> None:
    assert waited(300.0, 900.0, wait_s=800.0).recent_wait == 1.0
    assert LoadingProcess("algo-1-905", first_us=START_US).recent_wait is None


@pytest.mark.parametrize(("later_s", "alive"), [(599, 2), (600, 1)])
def test_process_is_over_ten_minutes_behind_its_neighbour(later_s: int, alive: int) -> None:
    state = folded(read(fetches(0, range(2)), process="algo-1-1"), read(fetches(later_s, range(2)), process="algo-1-2"))
    assert len(state.alive) == alive


def test_nearest_numbers_are_joined_into_the_commoner_one() -> None:
    def process(**changes: object) -> LoadingProcess:
        numbers = {10 * number: 2 for number in range(1, 64)} | {15: 1, 25: 9}
        made = LoadingProcess("algo-1-905", second=7, loaders=10, numbers=numbers)
        for name, value in changes.items():
            setattr(made, name, value)
        return made

    joined = process()
    joined.close_second()
    assert len(joined.numbers) == 64
    assert (joined.numbers[10], 15 in joined.numbers) == (4, False)
    alike = process(numbers={3 * number: 1 for number in range(65)} | {4: 1}, loaders=3)
    del alike.numbers[192]
    alike.numbers[3] = 0
    alike.close_second()
    assert (alike.numbers[3], 4 in alike.numbers) == (2, False)
    rarer = process(numbers={3 * number: 1 for number in range(64)} | {4: 5}, loaders=9)
    rarer.close_second()
    assert (rarer.numbers[4], 3 in rarer.numbers) == (6, False)
    assert sum(rarer.numbers.values()) == 64 + 5 + 1
    assert list(rarer.numbers) == sorted(rarer.numbers)


@pytest.mark.parametrize(("declared", "counted"), [(1_023, 1_023), (1_024, 1_024), (1_025, 1_024)])
def test_unreasonable_number_of_workers_is_counted_as_1024(declared: int, counted: int) -> None:
    state = folded(read([setup(declared), *fetches(0, [0])]))
    assert (state.processes[0].declared, state.processes[0].median) == (counted, counted)


def test_setups_with_missing_fields_keep_the_process_id() -> None:
    first = read([setup(4, pinned=True, pid=77), *fetches(0, range(1))])
    silent = event("DataLoaderIterInitialize", "init", 2.0, 0.1)
    process = folded(first, read([silent, *fetches(3, range(1))])).processes[0]
    assert (process.main_pid, process.declared, process.pinned) == (77, -1, -1)


@pytest.mark.parametrize(("count", "level"), [(256, 0), (257, 1)])
def test_fetch_bins_are_joined_beyond_their_limit(count: int, level: int) -> None:
    durations_us = [*range(1, 200), *(200 * 1.05**number for number in range(1, count - 198))]
    events = [event("DataLoaderIter", "DataLoaderIter::GetNext", 1.0, each / 1e6, pid=9) for each in durations_us]
    state = folded(read(events))
    assert (state.iterator_us.total, state.iterator_us.level) == (count, level)


def test_late_objects_do_not_reopen_closed_seconds() -> None:
    state = folded(read(fetches(5, range(3))), read([*fetches(4, range(6)), *fetches(6, range(2))]))
    assert state.processes[0].counts == {3: 1, 2: 1}


@pytest.mark.parametrize(("process", "loaders"), [("algo-1-905", 0), ("algo-1-rank0", 1), ("algo-1-906", 1)])
def test_fetches_without_a_worker_in_a_trainer_key_are_no_loader(process: str, loaders: int) -> None:
    state = folded(read(own_fetches(0.5, range(3)), process=process))
    assert state.processes[0].median == loaders
    assert state.processes[0].waited_us == (0 if loaders else 3 * SECOND // 2)


def test_worker_number_of_an_unknown_process_is_no_loader() -> None:
    life = event("DataLoaderWorker", "DataLoaderWorker", 0.0, 0.5, worker_id=3)
    state = folded(read([event("DataLoaderIter", "DataLoaderIter::GetNext", 0.0, 0.1), life], process="algo-1-0"))
    assert state.processes[0].counts == {0: 1}
    assert state.processes[0].first_us == START_US
    assert state.processes[0].last_us == START_US + SECOND // 2


def few(numbers: Iterable[int], least: float, most: float) -> RuleResult:
    events = [each for second, number in enumerate(numbers) for each in fetches(second, range(number))]
    return judge(read(events), parameters=DataloaderParameters(min_threshold=least, max_threshold=most), cores=10)


@pytest.mark.parametrize(
    ("numbers", "limits", "share"),
    [
        ([6] * 9 + [7] * 3, (70.0, 200.0), 9 / 12),
        ([7] * 12, (70.5, 200.0), 1.0),
        ([20] * 3 + [21] * 9, (70.0, 200.0), 9 / 12),
        ([20] * 3 + [21] * 9, (70.0, 200.5), 9 / 12),
    ],
)
def test_seconds_on_the_limit_are_not_affected(numbers: list[int], limits: tuple[float, float], share: float) -> None:
    result = few(numbers, *limits)
    assert result.status is Status.FIRED
    assert result.affected_share == share


@pytest.mark.parametrize(
    ("waiting", "share", "alarming"),
    [
        (LoaderWaiting(0.0, 60.0, 0.15), 0.15, True),
        (LoaderWaiting(0.0, 60.0, 0.1499, 10.0), 0.1499, False),
        (LoaderWaiting(0.0, 60.0, 0.9, 75.0), 0.25, True),
        (LoaderWaiting(0.0, 60.0, 0.9, 75.0, part=0.5), 0.125, False),
        (LoaderWaiting(0.0, 60.0, None, 90.625), 0.09375, False),
        (LoaderWaiting(0.0, 60.0, None), None, True),
    ],
)
def test_given_waits_and_use_when_asked_then_the_smaller_counts(
    waiting: LoaderWaiting, share: float | None, alarming: bool
) -> None:
    assert (waiting.share, waiting.is_alarming) == (share, alarming)


def test_costlier_of_whole_loop_and_newest_part_is_used() -> None:
    whole, late, unknown = LoaderWaiting(0.0, 9.0, 0.2), LoaderWaiting(5.0, 9.0, 0.3), LoaderWaiting(0.0, 9.0, None)

    assert LoopWaits(whole, late).costliest is late
    assert LoopWaits(late, whole).costliest is late
    assert LoopWaits(whole, None).costliest is LoopWaits(whole, unknown).costliest is whole


@pytest.mark.parametrize(("few", "many", "worst"), [(2, 20, "algo-1"), (5, 25, "algo-2")])
def test_node_furthest_from_its_loader_limit_speaks(few: int, many: int, worst: str) -> None:
    states = {node: folded(read(seconds_of(loaders))) for node, loaders in (("algo-1", few), ("algo-2", many))}
    result = RULE.judge(job(states), DEFAULTS)
    assert result.worst == worst
    assert result.threshold == (70.0 if worst == "algo-1" else 200.0)


def test_loss_never_exceeds_the_time_that_passed() -> None:
    result = judge(read(own_fetches(0.9, range(100))), system_through=START + 60.0, closed=True)
    assert result.wasted_share == pytest.approx(0.9, rel=0.01)


@pytest.mark.parametrize(("elapsed_s", "status"), [(599.0, Status.WARMING_UP), (600.0, Status.FIRED)])
def test_loading_cost_is_judged_after_ten_running_minutes(elapsed_s: float, status: Status) -> None:
    assert judge(read(own_fetches(0.9, range(100))), system_through=START + elapsed_s).status is status


@pytest.mark.parametrize("unknown", ["started_at", "system_through"])
def test_cost_is_omitted_if_the_time_of_the_job_is_unknown(unknown: str) -> None:
    changes: dict[str, Any] = {unknown: None}
    result = judge(read(own_fetches(0.9, range(100))), **changes)
    assert (result.status, result.wasted_share) == (Status.FIRED, None)


@pytest.mark.parametrize(("declared", "said"), [(8, " from 8 to about 4"), (4, " to about 4"), (3, " to about 4")])
def test_set_up_number_equal_to_the_maximum_is_not_advised(declared: int, said: str) -> None:
    assert f"Lower num_workers{said}" in (judge(read([setup(declared), *seconds_of(12)]), cores=4).advice or "")


@pytest.mark.parametrize(("declared", "said"), [(7, " from 7 to about 8"), (8, " to about 8")])
def test_set_up_number_equal_to_the_minimum_is_not_advised(declared: int, said: str) -> None:
    objects = [read(seconds_of(2)), read([setup(declared), *fetches(30, range(2))], process="algo-1-905")]
    result = judge(*objects, parameters=replace_limits(95.0))
    assert f"Raise num_workers{said}" in (result.advice or "")


def replace_limits(least: float) -> DataloaderParameters:
    return DataloaderParameters(min_threshold=least, max_threshold=200.0)


def test_advice_on_many_set_ups_names_four_numbers() -> None:
    objects = [read([setup(1 + each), *seconds_of(1, 12)], process=f"algo-1-{each}") for each in range(5)]
    assert "from 1/2/3/4 to about 20 in each of the 5" in (judge(*objects, cores=100).advice or "")


def test_more_processes_than_cores_are_advised_one_loader_each() -> None:
    objects = [read(seconds_of(3, 12), process=f"algo-1-{each}") for each in range(3)]
    assert "num_workers to about 1 in each of the 3" in (judge(*objects, cores=2).advice or "")


@pytest.mark.parametrize(("name", "told"), [("GetNext", True), ("Prefetch", False)])
def test_advice_names_a_pipeline_that_does_not_prefetch(name: str, told: bool) -> None:
    pipeline = read([event("Dataset", f"dataset::{name}", 1.0, 0.1)], kind="model_timeline")
    assert ("end the tf.data pipeline" in (judge(read(seconds_of(2)), pipeline).advice or "")) is told


def test_given_a_finding_when_told_in_a_summary_then_few_or_many() -> None:
    found = {loaders: judge(read(seconds_of(loaders))) for loaders in (2, 8, 17)}
    clauses = {number: text(FactSheet(each.status, each.kind, each.facts)).clause for number, each in found.items()}
    assert clauses == {
        2: "there were too few data loader processes for the cores",
        8: "",
        17: "there were too many data loader processes for the cores",
    }


def test_first_128_processes_of_a_too_large_state_are_judged() -> None:
    state = LoaderState()
    for pid in range(130):
        RULE.observe(state, read(fetches(0, [1]), process=f"algo-1-{pid}"), DEFAULTS)
    assert (len(state.processes), state.refused) == (128, 2)
    shown = RULE.judge(job({"algo-1": state}), replace_limits(1.0)).plain_details["algo-1"]
    assert "training_processes_not_judged" in shown
    assert RULE.judge(job({"algo-1": state}, detailed=False), DEFAULTS).plain_details == {}


def test_the_loop_lasts_from_first_to_last_loader_event() -> None:
    step = event("Step:ModeKeys.TRAIN", "Step:ModeKeys.TRAIN", 0.0, 30.0, pid=905)
    (process,) = folded(read([step, *fetches(10.0, [1]), *fetches(20.0, [1])])).processes
    assert (process.first_us, process.last_us) == (START_US + 10_100_000, START_US + 20_110_000)


def test_a_process_known_by_steps_keeps_its_later_fetches() -> None:
    step = event("Step:ModeKeys.TRAIN", "Step:ModeKeys.TRAIN", 0.0, 1.0, pid=905)
    fetch = [event("DataLoaderIter", "DataLoaderIter::GetNext", second, 0.5, pid=905) for second in (1.0, 90.0)]
    (process,) = folded(
        read([fetch[0], step], process="algo-1-rank0"), read([fetch[1]], process="algo-1-rank0")
    ).processes
    assert process.waited_us == 1_000_000
    assert process.counts == {0: 2}
