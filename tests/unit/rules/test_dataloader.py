from typing import Any

import msgspec
import pytest

from tests.support.framework_traces import event, read, step
from tests.unit.rules.loaders import DEFAULTS, RULE, START, fetches, folded, job, judge, seconds_of, setup
from trainguard.core.records import Status
from trainguard.rules.dataloader.rule import DataloaderParameters
from trainguard.rules.dataloader.series import MAX_COUNTS, LoaderState
from trainguard.rules.dataloader.text import DataloaderKind
from trainguard.rules.framework_events import MAX_PROCESSES
from trainguard.state.codec import encode_state


@pytest.mark.parametrize(
    ("loaders", "cores", "status"),
    [
        (5, 8, Status.FIRED),
        (6, 8, Status.OK),
        (7, 10, Status.OK),
        (6, 10, Status.FIRED),
        (16, 8, Status.OK),
        (17, 8, Status.FIRED),
    ],
)
def test_loaders_fire_beyond_the_thresholds_only(loaders: int, cores: int, status: Status) -> None:
    result = judge(read(seconds_of(loaders)), cores=cores)

    assert result.status is status
    assert result.measured == pytest.approx(100.0 * loaders / cores)
    assert result.plain_details["algo-1"]["dataloaders"] == loaders


@pytest.mark.parametrize(("count", "status"), [(9, Status.WARMING_UP), (10, Status.WARMING_UP), (11, Status.FIRED)])
def test_patience_needs_more_seconds_with_events_than_given(count: int, status: Status) -> None:
    result = judge(read(seconds_of(2, count)))

    assert result.status is status
    assert result.data_points == count
    if status is Status.WARMING_UP:
        assert result.patience == f"{count}/10"


def test_patience_in_seconds_replaces_the_count() -> None:
    parameters = DataloaderParameters(patience_s=3.0)

    assert judge(read(seconds_of(2, 3)), parameters=parameters).status is Status.WARMING_UP
    assert judge(read(seconds_of(2, 4)), parameters=parameters).status is Status.FIRED


def test_median_between_two_counts_is_not_truncated() -> None:
    events = [each for second in range(12) for each in fetches(second, range(5 if second % 2 else 6))]

    result = judge(read(events))

    assert result.plain_details["algo-1"]["dataloaders"] == 5.5
    assert result.status is Status.FIRED


def test_alternating_loaders_all_count_if_all_were_set_up() -> None:
    events = [setup(8), *(each for second in range(20) for each in fetches(second, [second % 8]))]

    assert judge(read(events)).plain_details["algo-1"]["dataloaders"] == 8


def test_fetches_of_the_training_process_are_no_loader() -> None:
    alone = [event("DataLoaderIter", "DataLoaderIter::GetNext", s, 0.25, pid=905) for s in range(12)]

    result = judge(read([setup(0), *alone, step(0, 0.0, 0.5)]), system_through=START + 20.0, closed=True)

    assert result.measured == 0.0
    assert result.status is Status.FIRED
    assert result.reason.startswith("algo-1 has 0 loader processes for 8 cores: 0 % (min_threshold 70 %). ")
    assert result.wasted_share == pytest.approx(0.15)


def test_two_waiting_processes_lose_the_mean_share_of_time() -> None:
    def waiting(duration_s: float) -> list[dict[str, Any]]:
        return [event("DataLoaderIter", "DataLoaderIter::GetNext", s, duration_s, pid=905) for s in range(12)]

    objects = [read([setup(0), *waiting(duration)], process=f"algo-1-{duration}") for duration in (0.5, 0.75)]

    early, running, ended = (
        judge(*objects, system_through=START + 40.0),
        judge(*objects, system_through=START + 600.0),
        judge(*objects, system_through=START + 40.0, closed=True),
    )

    assert (early.status, running.status) == (Status.WARMING_UP, Status.OK)
    assert early.reason.endswith("Whether the training waits for them is judged 10 min after the start.")
    assert ended.status is Status.FIRED
    assert ended.wasted_share == pytest.approx((6.0 + 9.0) / 2 / 40.0)


@pytest.mark.parametrize("known_by", ["step", "setup", "key"])
def test_workers_named_by_training_process_fetches_count(known_by: str) -> None:
    pid = 905
    events = [
        event("DataLoaderIter", "DataLoaderIter::GetNext", s + worker / 10, 0.01, pid=pid, worker_id=worker)
        for s in range(12)
        for worker in range(6)
    ]
    if known_by == "step":
        events.append(step(0, 0.0, 1.0))
    if known_by == "setup":
        events.insert(0, setup(None))

    process = "algo-1-905" if known_by == "key" else "algo-1-0"
    assert judge(read(events, process=process)).plain_details["algo-1"]["dataloaders"] == 6


def test_timeline_of_a_worker_is_no_training_process_or_fetch() -> None:
    life = read(
        [event("DataLoaderWorker", "DataLoaderWorker", 0.0, 12.0, pid=5001, worker_id=1)], process="algo-1-5001"
    )

    result = judge(read(seconds_of(6)), life)

    details = result.plain_details["algo-1"]
    assert (details["dataloaders"], details["training_processes"]) == (6, 1)
    assert details["dataloading_time"]["p95"] == pytest.approx(0.01, rel=0.01)
    assert details["dataloading_time"]["count"] == 66
    assert details["worker_time"]["p50"] == pytest.approx(12.0, rel=0.01)


def test_worker_batch_times_are_separate_from_their_lifetimes() -> None:
    fetches = read(
        [
            event("DataLoaderWorker", "DataLoaderWorker::Fetch", s / 2, 0.2, pid=5001, worker_id=1, batch=s)
            for s in range(9)
        ],
        process="algo-1-rank0w",
    )

    details = judge(read(seconds_of(6)), fetches).plain_details["algo-1"]

    assert (details["dataloaders"], details["training_processes"], details.get("worker_time")) == (6, 1, None)
    assert (details["fetch_time"]["count"], details["fetch_time"]["p50"]) == (9, pytest.approx(0.2, rel=0.01))


def test_loaders_of_several_processes_add_up_on_their_node() -> None:
    objects = [read(seconds_of(3), process=f"algo-1-{pid}") for pid in (1, 2)]

    result = judge(*objects)

    assert result.status is Status.OK
    assert result.reason == (
        "algo-1 has 6 loader processes of 2 training processes for 8 cores: 75 % (min_threshold 70 %, max_threshold "
        "200 %)."
    )


def test_nodes_are_judged_by_own_cores_and_the_worst_speaks() -> None:
    states = {"algo-1": folded(read(seconds_of(8))), "algo-2": folded(read(seconds_of(2)))}

    result = RULE.judge(job(states), DEFAULTS)

    assert (result.status, result.worst, result.measured) == (Status.FIRED, "algo-2", 25.0)
    assert set(result.plain_details) == {"algo-1", "algo-2"}


def test_ended_training_process_no_longer_counts() -> None:
    later = [each for second in range(700, 720) for each in fetches(second, range(6))]

    result = judge(read(seconds_of(6), process="algo-1-1"), read(later, process="algo-1-2"))

    assert result.plain_details["algo-1"]["dataloaders"] == 6


@pytest.mark.parametrize(("before", "after"), [(4, 6), (6, 4)])
def test_second_shared_by_two_objects_counts_once(before: int, after: int) -> None:
    first = read([*fetches(0, range(6)), *fetches(1, range(before))])
    second = read([*fetches(1.5, range(after)), *fetches(2, range(6))])

    assert folded(first, second).processes[0].counts == {6: 3}


def test_slow_fetch_belongs_to_the_second_in_which_it_ended() -> None:
    state = folded(read([*fetches(10, range(6)), *fetches(2, range(6, 10), duration_s=8.0)]))

    assert state.processes[0].counts == {10: 1}


def test_advice_on_too_few_loaders_has_the_numbers_of_the_job() -> None:
    objects = [read([setup(2, pinned=False), *seconds_of(2)], process=f"algo-1-{pid}") for pid in (1, 2)]

    result = judge(*objects)

    assert result.advice == (
        "Raise num_workers from 2 to about 4 in each of the 2 training processes, one loader process a core of 8; set "
        "pin_memory=True, which is off."
    )
    assert result.affected_share == 1.0
    assert result.wasted_share is None
    assert (result.plain_details["algo-1"]["num_workers"], result.plain_details["algo-1"]["pin_memory"]) == (
        2,
        False,
    )


def test_advice_on_too_many_loaders_is_to_lower_them() -> None:
    events = [each for second in range(20) for each in fetches(second, range(24 if second < 15 else 8))]

    result = judge(read([setup(None, pinned=True), *events]))

    assert result.advice == "Lower num_workers to about 8, one loader process a core of 8."
    assert judge(read([setup(4, pinned=True), *events])).advice == result.advice
    assert result.threshold == 200.0
    assert result.affected_share == 0.75


def test_tensorflow_iterators_have_times_and_no_counts() -> None:
    events = [event("DataIterator", "dataset::GetNext", s, 0.2) for s in range(20)]
    plain = judge(read(events, kind="model_timeline"))
    prefetching = judge(read(events, kind="model_timeline"), read([event("Dataset", "ModelPrefetchDataset", 1.0, 0.1)]))

    assert plain.status is prefetching.status is Status.NOT_APPLICABLE
    assert plain.reason == (
        "The job loads data with TensorFlow, in threads of the training process: there are no loader processes to "
        "count; its pipeline does not prefetch."
    )
    assert plain.advice == "End the tf.data pipeline with prefetch(tf.data.AUTOTUNE)."
    assert plain.plain_details["algo-1"]["prefetch"] is False
    assert plain.plain_details["algo-1"]["tensorflow_time"]["p50"] == pytest.approx(0.2, rel=0.01)
    assert prefetching.plain_details["algo-1"]["prefetch"] is True
    assert prefetching.advice is None


def test_no_loader_events_make_the_rule_inapplicable_and_why() -> None:
    seen = judge(read([step(0, 0.0, 1.0)]))
    expected = RULE.judge(job({}), DEFAULTS)
    ended = RULE.judge(job({}, closed=True), DEFAULTS)
    neither = RULE.judge(job({}, framework_expected=False), DEFAULTS)

    assert (seen.status, expected.status) == (Status.NOT_APPLICABLE, Status.WAITING_FOR_DATA)
    assert "no data loader events" in seen.reason
    assert (ended.status, neither.status) == (Status.NOT_APPLICABLE, Status.NOT_APPLICABLE)
    assert ended.kind == neither.kind == DataloaderKind.NO_FRAMEWORK_METRICS


def test_missing_cpu_sample_waits_for_the_number_of_cores() -> None:
    result = judge(read(seconds_of(2)), cores=0)

    assert result.status is Status.WAITING_FOR_DATA
    assert "number of cores of algo-1" in result.reason


def test_state_of_any_counts_is_bounded_and_loses_no_second() -> None:
    events = [each for second in range(150) for each in fetches(second, range(second + 1))]

    state = folded(read(events))

    process = state.processes[0]
    assert len(process.numbers) <= MAX_COUNTS
    assert process.seconds == 150
    assert process.median == pytest.approx(75.5, abs=3.0)


def test_processes_beyond_the_room_are_counted() -> None:
    state = folded(*(read(seconds_of(4, 3), process=f"algo-1-{pid}") for pid in range(MAX_PROCESSES + 2)))
    restored = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=LoaderState)

    assert (len(state.processes), state.refused) == (MAX_PROCESSES, 2)
    assert len(encode_state(state)) < 4_000
    assert RULE.judge(job({"algo-1": restored}), DEFAULTS) == RULE.judge(job({"algo-1": state}), DEFAULTS)
    assert RULE.clear_after_s(DEFAULTS, 0.5) == 1_800.0


@pytest.mark.parametrize(("cores", "said"), [(1, "for 1 core: 0 %"), (2, "for 2 cores: 0 %")])
def test_given_a_number_of_cores_when_told_then_one_is_one_core(cores: int, said: str) -> None:
    assert said in judge(read([setup(0), *fetches_of_the_main_process(11)]), cores=cores).reason


def fetches_of_the_main_process(count: int) -> list[dict[str, Any]]:
    return [event("DataLoaderIter", "DataLoaderIter::GetNext", second + 0.1, 0.01, pid=905) for second in range(count)]


@pytest.mark.parametrize(("patience", "said"), [(1, "more than 1 second with"), (2, "more than 2 seconds with")])
def test_given_a_patience_when_told_then_one_is_one_second(patience: int, said: str) -> None:
    assert said in judge(read(seconds_of(5, 1)), parameters=DataloaderParameters(patience=patience)).reason
