from typing import Any

import msgspec
import numpy as np
import pytest

from tests.support.framework_traces import SECOND, START_US, event, read, step
from trainguard.core.records import Status
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.rules.framework_events import RECENT_MINUTES, EventClass, class_of_phase
from trainguard.rules.overall_framework_metrics.rule import (
    KEPT_NAMES,
    TOP_OPERATORS,
    FrameworkTimeState,
    OverallFrameworkMetrics,
)
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.rule_inputs import FrameworkView
from trainguard.rules.rule_result import RuleResult

RULE = OverallFrameworkMetrics()
DEFAULTS = RuleParameters()
VIEW = FrameworkView(node="algo-1", watermark_s=1_700_000_000.0, closed=False)


def folded(*objects: FrameworkEvents) -> FrameworkTimeState:
    state = RULE.state_type()
    for each in objects:
        RULE.observe(state, each, DEFAULTS)
    return state


def judge(*objects: FrameworkEvents) -> RuleResult:
    return RULE.judge(folded(*objects), VIEW, DEFAULTS)


@pytest.mark.parametrize(
    ("phase", "kind", "expected"),
    [
        ("cpu_functions", "pythontimeline", EventClass.CPU),
        ("/host:CPU", "tf_trace", EventClass.CPU),
        ("gpu_functions-dev:3", "pythontimeline", EventClass.GPU),
        ("/device:GPU:0/stream:all", "tf_trace", EventClass.GPU),
        ("Step:ModeKeys.EVAL", "pythontimeline", EventClass.STEP),
        ("Forward-SubModuleInternal", "pythontimeline", EventClass.FORWARD),
        ("Backward-SubModuleInternal", "pythontimeline", EventClass.BACKWARD),
        ("Forward", "pythontimeline", EventClass.GENERAL),
        ("DataIterator", "model_timeline", EventClass.GENERAL),
        ("DistributedAdam_Allreduce/gpu_Step", "horovod_timeline", EventClass.HOROVOD),
        ("cpu", "smdataparallel_timeline", EventClass.SMDATAPARALLEL),
    ],
)
def test_file_decides_the_phase_before_the_name(phase: str, kind: str, expected: EventClass) -> None:
    assert class_of_phase(phase, kind) is expected


def test_nested_operators_have_only_their_own_time() -> None:
    details = judge(
        read(
            [
                event("cpu_functions", "aten::inner", 1.0, 1.0, tid=1),
                event("cpu_functions", "aten::outer", 0.0, 4.0, tid=1),
                event("cpu_functions", "aten::inner", 0.0, 4.0, tid=2),
            ]
        )
    ).plain_details

    assert details["CPU_total"] == {"aten::inner": 5 * SECOND, "aten::outer": 3 * SECOND}
    assert details["CPU"] == {"aten::inner": 62.5, "aten::outer": 37.5}


def test_ratio_of_both_operator_kinds_names_their_phases() -> None:
    details = judge(
        read([event("cpu_functions", "a", 0.0, 1.0, tid=1), event("gpu_functions-dev:1", "b", 0.0, 3.0, tid=0)])
    ).plain_details

    assert details["ratio"] == {"gpu_functions-dev:1": 75.0, "cpu_functions": 25.0}
    assert details["GPU_total"] == {"b": 3 * SECOND}


def test_others_is_the_loop_minus_its_steps() -> None:
    result = judge(read([step(0, 0.0, 2.0), step(1, 3.0, 4.0), step(2, 9.0, 1.0, "Step:ModeKeys.EVAL")]))

    assert result.plain_details["phase_time"] == {
        "Step:ModeKeys.TRAIN": 6 * SECOND,
        "Step:ModeKeys.EVAL": 1 * SECOND,
        "others": 3 * SECOND,
    }
    assert result.plain_details["phase"]["others"] == pytest.approx(30.0)
    assert result.reason == (
        "1 process of algo-1 spent 70 % of the 10 s of training loop in steps and 30 % between them."
    )


@pytest.mark.parametrize(
    ("steps", "phases"),
    [
        ([step(0, 1.0, 2.0)], {"Step:ModeKeys.TRAIN": 2 * SECOND, "others": 0}),
        ([step(0, 1.0, 0.0), step(1, 4.0, 0.0)], {"others": 3 * SECOND}),
        ([step(0, 1.0, 0.0)], {}),
    ],
)
def test_phases_took_the_time_without_gaps_or_step_lengths(steps: list[dict[str, Any]], phases: dict[str, int]) -> None:
    details = judge(read(steps)).plain_details

    assert details["phase_time"] == phases
    assert details["phase"] == {name: 100.0 * time / sum(phases.values()) for name, time in phases.items()}


def test_overlapping_steps_count_no_time_twice() -> None:
    first = read([step(0, 0.0, 6.0), step(1, 2.0, 6.0)])
    second = read([step(2, 7.0, 3.0)])

    state = folded(first, second)

    assert state.loops[0].covered_us == 10 * SECOND
    assert state.loops[0].others_us == 0


def test_two_processes_have_separate_loops() -> None:
    early = read([step(0, 0.0, 1.0), step(1, 1.0, 1.0)], process="algo-1-1")
    late = read([step(0, 100.0, 1.0), step(1, 103.0, 1.0)], process="algo-1-2")

    result = judge(early, late)

    assert result.plain_details["phase_time"]["others"] == 2 * SECOND
    assert result.plain_details["processes"] == 2
    assert result.reason == (
        "2 processes of algo-1 spent, on average, 66.7 % of the 3 s of training loop in steps and 33.3 % between them."
    )


def test_longest_operator_of_each_kind_is_named_with_its_share() -> None:
    events = [
        step(0, 0.0, 4.0),
        event("cpu_functions", "aten::conv2d", 0.0, 3.0, tid=1),
        event("cpu_functions", "aten::add", 3.0, 1.0, tid=1),
        event("gpu_functions-dev:0", "gemm", 0.0, 2.0, tid=0),
    ]

    assert judge(read(events)).reason == (
        "1 process of algo-1 spent 100 % of the 4 s of training loop in steps and 0 % between them; of the time of CPU "
        "operators aten::conv2d took the most, 75 %; of the time of GPU operators gemm took the most, 100 %."
    )


def test_passes_and_horovod_have_their_managed_names() -> None:
    details = judge(
        read(
            [
                event("Forward-SubModuleInternal", "fc", 0.0, 1.0),
                event("Backward-SubModuleInternal", "fc", 1.0, 3.0),
                event("Forward", "model", 0.0, 1.0),
            ]
        ),
        read([event("grad_0", "ALLREDUCE", 1.0, 2.0)], kind="horovod_timeline"),
        read([event("all", "reduce", 1.0, 2.0)], kind="smdataparallel_timeline"),
    ).plain_details

    assert details["forward_backward"] == {"Forward pass": 25.0, "Backward pass": 75.0}
    assert details["general"] == {"Forward": 100.0}
    assert details["horovod"] == {"ALLREDUCE": 100.0}
    assert details["smdataparallel"] == {"reduce": 100.0}


def test_single_pass_has_nothing_to_compare() -> None:
    assert "forward_backward" not in judge(read([event("Forward-SubModuleInternal", "fc", 0.0, 1.0)])).plain_details


def test_operators_beyond_the_limit_are_other_without_loss() -> None:
    count = KEPT_NAMES + 40
    events = [event("cpu_functions", f"op{number}", number, 0.1 + number / 1e4, tid=1) for number in range(count)]

    totals = judge(read(events)).plain_details["CPU_total"]

    assert len(totals) == TOP_OPERATORS + 1
    assert list(totals)[:2] == [f"op{count - 1}", f"op{count - 2}"]
    assert list(totals)[-1] == "other"
    assert sum(totals.values()) == sum(each["dur"] for each in events)


def test_given_no_event_when_judged_then_it_waits() -> None:
    assert judge().status is Status.WAITING_FOR_DATA
    assert judge(read([])).reason == "no framework event of algo-1 was written."


def test_events_without_steps_are_noted_and_never_fire() -> None:
    result = judge(read([event("cpu_functions", "a", 0.0, 1.0, tid=1)]))

    assert result.status is Status.OK
    assert result.reason == "algo-1 wrote 1 framework events and no training step."
    assert result.plain_details["phase"] == {}


def test_event_over_several_minutes_is_split_by_minute() -> None:
    state = folded(read([event("DataLoaderIter", "next", 30.0, 100.0, pid=1), step(0, 30.0, 20.0)]))

    parts = {each.minute - START_US // (60 * SECOND): each for each in state.minutes}
    assert {minute: each.classes_us[EventClass.GENERAL] for minute, each in parts.items()} == {
        0: 30 * SECOND,
        1: 60 * SECOND,
        2: 10 * SECOND,
    }
    assert parts[0].classes_us[EventClass.STEP] == 20 * SECOND
    assert parts[0].phases.top(1) == {"DataLoaderIter": 30 * SECOND, "other": 20 * SECOND}
    assert [each.processes for each in state.minutes] == [1, 1, 1]


@pytest.mark.parametrize(("until_us", "minutes"), [(0, [60 * SECOND]), (1, [60 * SECOND, 1])])
def test_event_ending_on_a_minute_is_in_one_and_after_it_in_two(until_us: int, minutes: list[int]) -> None:
    state = folded(read([event("DataLoaderIter", "next", 0.0, 60.0 + until_us / SECOND, pid=1)]))

    assert [each.phases.total_us for each in state.minutes] == minutes
    shortest = folded(read([event("DataLoaderIter", "next", 0.0, 1 / SECOND, pid=1)]))
    assert [each.phases.total_us for each in shortest.minutes] == [1]


@pytest.mark.parametrize(("count", "other"), [(8, 0), (9, SECOND)])
def test_eight_largest_phases_of_a_minute_are_kept(count: int, other: int) -> None:
    (minute,) = folded(read([event(f"phase {each}", "x", 0.0, 1.0 + each) for each in range(count)])).minutes

    assert (len(minute.phases.names), minute.phases.other_us) == (8, other)


def test_worker_time_by_minute_is_not_that_of_the_trainer() -> None:
    training = read([step(0, 30.0, 20.0)])
    workers = read([event("DataLoaderWorker", "DataLoaderWorker::Fetch", 30.0, 9.0, pid=7)], process="algo-1-rank0w")

    state = folded(training, workers)

    assert [each.process for each in state.loops] == [training.table.process]
    assert [each.processes for each in state.minutes] == [1]
    assert state.minutes[0].classes_us[EventClass.GENERAL] == 0
    assert state.events == 2


def test_common_time_of_nested_operators_counts_once() -> None:
    state = folded(
        read(
            [
                event("cpu_functions", "inner", 50.0, 20.0, tid=1),
                event("cpu_functions", "outer", 40.0, 40.0, tid=1),
            ]
        )
    )

    assert [each.classes_us[EventClass.CPU] for each in state.minutes] == [20 * SECOND, 20 * SECOND]


def test_processes_sharing_a_minute_each_count_once() -> None:
    objects = [
        read([event("Forward", "m", at, 10.0)], process=process)
        for at in (0.0, 20.0, 70.0)
        for process in ("algo-1-1", "algo-1-2")
    ]

    assert [each.processes for each in folded(*objects).minutes] == [2, 2]


def test_newest_30_minutes_of_events_remain() -> None:
    state = folded(*(read([event("Forward", "m", 60.0 * minute, 30.0)]) for minute in range(75)))
    late = read([event("Forward", "m", 60.0 * 10, 30.0), event("Forward", "m", 60.0 * 50, 30.0)])
    RULE.observe(state, late, DEFAULTS)

    first = START_US // (60 * SECOND)
    assert [each.minute - first for each in state.minutes] == list(range(75 - RECENT_MINUTES, 75))
    assert state.minutes[5].classes_us[EventClass.GENERAL] == 60 * SECOND


def test_event_that_ends_with_the_30th_minute_keeps_the_first() -> None:
    state = folded(read([event("Forward", "m", 0.0, 60.0 * RECENT_MINUTES)]))

    assert len(state.minutes) == RECENT_MINUTES
    assert state.minutes[0].minute == START_US // (60 * SECOND)


def busy_object(process: int, minute: int, operators: int) -> FrameworkEvents:
    random = np.random.default_rng([process, minute])
    events: list[Any] = []
    for number in range(30):
        at = 60.0 * minute + 2.0 * number
        events.append(step(number, at, 0.4 + random.normal(0, 0.01)))
        for name in random.integers(0, operators, 8).tolist():
            events.append(event("cpu_functions", f"aten::operator_{name}", at, 0.3 * random.random(), tid=1))
            events.append(event("gpu_functions-dev:0", f"kernel_{name}", at, 0.3 * random.random(), tid=0))
        events.append(event(f"phase_{number % 12}", "x", at, 0.1))
    return read(events, process=f"algo-1-{process}")


def test_given_a_state_when_stored_and_read_then_it_is_the_same() -> None:
    state = folded(busy_object(1, 0, 30), busy_object(2, 0, 30))

    restored = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=type(state))

    assert RULE.judge(restored, VIEW, DEFAULTS) == RULE.judge(state, VIEW, DEFAULTS)
    assert RULE.clear_after_s(DEFAULTS, 0.5) == 180.0
