"""Straggler on its thresholds: whose own work is slower, in steps that all have the same length."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from trainguard.core.records import Status
from trainguard.formats.profile.columns import FrameworkEvents, read_framework_object
from trainguard.rules.rule_inputs import FrameworkView, JobView, NodeFacts
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.straggler.pace import PaceState
from trainguard.rules.straggler.rule import Straggler, StragglerParameters, median_of_others

START_S = 1_700_000_100
STEP_MS, FORWARD_MS, WAIT_MS, LATE_MS = 1_000, 300, 20, 600
PHASES = {"Step:ModeKeys.TRAIN": 1, "Forward-SubModuleInternal": 2, "DataLoaderIter": 3, "Step:ModeKeys.EVAL": 4}
PHASES |= {"GPU-functions-dev:0": 5, "Backward-SubModuleInternal": 6, "Optimizer": 7, "peer_wait": 8, "Checkpoint": 9}
# Milliseconds of a rank (from 0) in a minute (from 0).
Of = Callable[[int, int], int]


def event(phase: str, start_ms: int, length_ms: int, name: str = "", **args: Any) -> dict[str, Any]:
    shown = {"name": name or phase, "pid": PHASES[phase], "ph": "X", "ts": 1_000 * start_ms, "dur": 1_000 * length_ms}
    return {**shown, "args": args}


def read(process: str, minute: int, events: Sequence[dict[str, Any]]) -> FrameworkEvents:
    origin = {"start_time_since_epoch_in_micros": START_S * 1_000_000}
    heads = [{"name": "process_name", "ph": "M", "pid": 0, "args": origin}]
    heads += [{"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}} for name, pid in PHASES.items()]
    end_us = (START_S + 60 * (minute + 1)) * 1_000_000
    return read_framework_object("key", json.dumps([*heads, *events]).encode(), process=process, end_us=end_us)


def minute_of(minute: int, forward_ms: int, wait_ms: int, late: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Return 50 steps of a second: a wait for data before each, a forward pass in it, LATE_MS longer in some."""
    events = []
    for number in range(50):
        start = 60_000 * minute + 1_200 * number + 150
        longer = LATE_MS * (number in late)
        events += [
            event("DataLoaderIter", start - wait_ms, wait_ms),
            event("Forward-SubModuleInternal", start + 5, forward_ms + longer),
            event("Step:ModeKeys.TRAIN", start, STEP_MS, step_num=str(50 * minute + number)),
        ]
    return events


def judge(
    ranks: int = 4,
    *,
    minutes: int = 30,
    forward: Of = lambda *_: FORWARD_MS,
    late: Callable[[int], Sequence[int]] = lambda _: (),
    wait: Of = lambda *_: WAIT_MS,
    per_node: int = 4,
    extra: Callable[[int, int], list[dict[str, Any]]] = lambda *_: [],
    parameters: StragglerParameters | None = None,
    started_s: float = 0.0,
) -> RuleResult:
    states: dict[str, PaceState] = {}
    rule, given = Straggler(), parameters or StragglerParameters()
    for rank in range(ranks):
        node = f"algo-{rank // per_node + 1}"
        state = states.setdefault(node, PaceState())
        for minute in range(minutes):
            events = [*minute_of(minute, forward(rank, minute), wait(rank, minute), late(rank)), *extra(rank, minute)]
            rule.observe(state, read(f"{node}-rank{rank}", minute, events), given)
    nodes = {
        node: NodeFacts(
            node,
            framework=FrameworkView(node, START_S + 60.0 * minutes, closed=False),
            collected={"Straggler": state},
        )
        for node, state in states.items()
    }
    view = JobView(START_S + started_s, None, float(START_S), True, True, closed=False, nodes=nodes)
    return rule.judge(view, given)


def slow(rank: int, forward_ms: int, since: int = 0) -> Of:
    return lambda each, minute: forward_ms if each == rank and minute >= since else FORWARD_MS


def test_given_equal_ranks_when_judged_then_none_is_slow() -> None:
    said = judge()
    assert said.status is Status.OK
    assert said.reason.startswith("No rank of 4 is slower than its peers: from 2023-11-14 22:25 to 22:40 UTC ")


@pytest.mark.parametrize(("forward_ms", "status"), [(580, Status.OK), (581, Status.FIRED)])
def test_longer_forward_passes_fire_above_the_threshold_only(forward_ms: int, status: Status) -> None:
    assert judge(forward=lambda rank, _: forward_ms if rank == 2 else 460).status is status


def waits_for_peers(late: Callable[[int], Sequence[int]]) -> Callable[[int, int], list[dict[str, Any]]]:
    """Return what ranks wait for their peers after each forward pass, until the step ends."""

    def waits(rank: int, minute: int) -> list[dict[str, Any]]:
        events = []
        for number in range(50):
            longer = LATE_MS * (number in late(rank))
            start = 60_000 * minute + 1_200 * number + 155 + FORWARD_MS + longer
            events.append(event("peer_wait", start, 690 - longer))
        return events

    return waits


@pytest.mark.parametrize("tells_waits", [False, True])
@pytest.mark.parametrize(
    ("ranks", "late", "status"),
    [
        (2, [range(34), range(34, 50)], Status.OK),  # in turn, in the same steps of each block
        (3, [range(30), range(30, 40), range(40, 50)], Status.OK),
        (3, [(), range(12), ()], Status.OK),  # pauses of a rank
        (3, [(), range(40), ()], Status.FIRED),
        (2, [(), range(50)], Status.FIRED),
    ],
)
def test_only_a_rank_late_in_most_steps_is_slow(
    ranks: int, late: list[Sequence[int]], status: Status, tells_waits: bool
) -> None:
    extra = waits_for_peers(late.__getitem__) if tells_waits else lambda *_: []
    assert judge(ranks, late=late.__getitem__, extra=extra).status is status


def test_slow_rank_is_named_with_its_work_and_the_others_loss() -> None:
    said = judge(forward=slow(2, 600))
    assert said.reason.startswith(
        "algo-1-rank2 is slow: from 2023-11-14 22:25 to 22:40 UTC its own work in a step took 620 ms, 93.8 % longer "
        "than its peers' 320 ms"
    )
    assert "3 ranks waited for it in each step of 1.02 s" in said.reason
    assert said.worst == "algo-1/rank2"
    assert said.wasted_share == pytest.approx(0.3 * 50 / 60, rel=0.02)
    assert "clocks" in (said.advice or "")


def test_rank_waiting_for_data_has_its_loading_to_blame() -> None:
    said = judge(wait=lambda rank, _: 145 if rank == 1 else WAIT_MS, forward=lambda *_: 100)
    assert said.status is Status.FIRED
    assert "most of it in waits for data" in said.reason
    assert "data loading" in (said.advice or "")


def test_node_with_only_slow_ranks_is_named() -> None:
    said = judge(6, per_node=2, forward=lambda rank, _: 500 if rank in {2, 3} else FORWARD_MS)
    assert said.reason.startswith("Every rank of algo-2 is slow")
    assert "of algo-2" in (said.advice or "")


def test_doubled_small_part_of_the_step_delays_nobody() -> None:
    assert judge(forward=lambda rank, _: 180 if rank == 0 else 90, wait=lambda *_: 1).status is Status.OK


def test_late_slow_rank_is_named_after_three_blocks() -> None:
    assert judge(minutes=38, forward=slow(1, 600, since=25)).status is Status.OK
    said = judge(minutes=45, forward=slow(1, 600, since=25))
    assert said.status is Status.FIRED
    assert said.onset == pytest.approx(START_S + 60.0 * 25.0, abs=300.0)


def test_a_rank_slow_from_the_start_is_slow_since_the_job() -> None:
    said = judge(forward=slow(2, 600), minutes=20, started_s=17.0)
    assert said.onset == START_S + 17.0


def test_evaluation_on_one_rank_is_no_work_of_its_steps() -> None:
    def evaluated(rank: int, minute: int) -> list[dict[str, Any]]:
        at = 60_000 * minute + 1_200 * 49 + 1_155
        return [event("Forward-SubModuleInternal", at, 30)] * 9 if rank == 0 else []

    assert judge(extra=evaluated).status is Status.OK


def test_gpu_times_longer_than_the_calls_count() -> None:
    def on_gpu(rank: int, minute: int) -> list[dict[str, Any]]:
        length = 700 if rank == 3 else 350
        return [
            event("GPU-functions-dev:0", 60_000 * minute + 1_200 * number + 160, length, name="forward")
            for number in range(50)
        ]

    said = judge(forward=lambda *_: 10, extra=on_gpu)
    assert (said.status, said.worst) == (Status.FIRED, "algo-1/rank3")


def test_given_one_rank_when_judged_then_there_are_no_peers() -> None:
    assert judge(1).status is Status.NOT_APPLICABLE


def test_young_job_says_how_much_is_missing() -> None:
    said = judge(minutes=12)
    assert (said.status, said.patience) == (Status.WARMING_UP, "2/3")


def test_missing_framework_metrics_make_the_rule_inapplicable() -> None:
    view = JobView(float(START_S), None, None, False, False, closed=False)
    assert Straggler().judge(view, StragglerParameters()).status is Status.NOT_APPLICABLE


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8])
def test_median_of_the_others_leaves_out_each_value_itself(size: int) -> None:
    values = np.random.default_rng(size).integers(0, 5, size).astype(np.float64)
    expected = [float(np.median(np.delete(values, index))) for index in range(size)]
    assert median_of_others(values).tolist() == expected
