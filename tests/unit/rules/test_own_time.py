"""What ranks do themselves in steps of one length, where they say how long they wait for each other."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.rules.test_rank_pace import FORWARD, LOADER, ON_GPU, folded, step
from tests.unit.rules.test_straggler import START_S, event, read
from trainguard.core.records import Status
from trainguard.rules.rule_inputs import FrameworkView, JobView, NodeFacts
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.straggler.pace import OwnTime, PaceState
from trainguard.rules.straggler.rule import Straggler, StragglerParameters

BACKWARD, OPTIMIZER, WAIT, SAVED = "Backward-SubModuleInternal", "Optimizer", "peer_wait", "Checkpoint"
STEP_MS, MINUTES, RANKS = 1_000, 20, 4
Events = list[dict[str, Any]]


def timed(*events: dict[str, Any]) -> OwnTime:
    """Return what is known of three steps of a second from the second second on, in milliseconds."""
    state = folded([*events, event(WAIT, 1_000, 0), step(0), step(1_000), step(2_000), step(3_000)])
    found = state.processes["algo-1-rank0"].whole.timed
    parts = [each // 1_000 for each in found.parts_us]
    return OwnTime(found.steps, found.own_us // 1_000, found.peers_us // 1_000, found.least_us // 1_000, parts)


@pytest.mark.parametrize(
    ("events", "own", "peers", "parts"),
    [
        ([], 3_000, 0, [0, 0, 0, 0]),
        ([event(WAIT, 1_500, 200)], 2_800, 200, [0, 0, 0, 0]),
        # Waits that overlap count once, one over the end of a step in both.
        ([event(WAIT, 1_500, 200), event(WAIT, 1_600, 50)], 2_800, 200, [0, 0, 0, 0]),
        ([event(WAIT, 1_900, 200)], 2_800, 200, [0, 0, 0, 0]),
        # A pass is what is left of it without the waits in it, wherever they lie.
        ([event(BACKWARD, 1_200, 500), event(WAIT, 1_500, 200)], 2_800, 200, [0, 0, 300, 0]),
        ([event(BACKWARD, 1_200, 500), event(WAIT, 1_100, 200)], 2_800, 200, [0, 0, 400, 0]),
        ([event(FORWARD, 1_200, 500), event(OPTIMIZER, 1_800, 100)], 3_000, 0, [0, 500, 0, 100]),
        ([event(LOADER, 1_950, 40)], 3_000, 0, [40, 0, 0, 0]),
        # On the GPU, the longer of both.
        ([event(ON_GPU, 1_500, 300, name=WAIT)], 2_700, 300, [0, 0, 0, 0]),
        ([event(ON_GPU, 1_500, 300, name=WAIT), event(WAIT, 1_500, 500)], 2_500, 500, [0, 0, 0, 0]),
        (
            [
                event(BACKWARD, 1_100, 20),
                event(ON_GPU, 1_100, 700, name="backward"),
                event(ON_GPU, 1_600, 200, name=WAIT),
            ],
            2_800,
            200,
            [0, 0, 500, 0],
        ),
        # A checkpoint is nobody's own work, and what waits in it is no second wait.
        ([event(SAVED, 2_100, 400)], 2_600, 0, [0, 0, 0, 0]),
        ([event(SAVED, 2_100, 400), event(WAIT, 2_300, 400)], 2_400, 400, [0, 0, 0, 0]),
    ],
)
def test_own_time_is_the_step_without_waits_for_peers(events: Events, own: int, peers: int, parts: list[int]) -> None:
    found = timed(*events)
    assert (found.steps, found.own_us, found.peers_us, found.parts_us) == (3, own, peers, parts)


def test_time_between_steps_is_own_but_that_of_evaluation() -> None:
    steps = [step(0), step(1_000), step(2_500), step(4_000, 1_000, mode="EVAL"), step(5_500)]
    whole = folded([event(WAIT, 1_100, 100), *steps]).processes["algo-1-rank0"].whole.timed
    assert (whole.steps, whole.own_us, whole.peers_us) == (3, 1_000_000 - 100_000 + 1_500_000 + 1_500_000, 100_000)


@pytest.mark.parametrize(("pauses", "steps", "own_ms"), [(0, 40, 20_000), (4, 36, 18_000), (5, 40, 17_500 + 5 * 4_000)])
def test_rare_pauses_are_left_out_and_frequent_ones_count(pauses: int, steps: int, own_ms: int) -> None:
    at, events = 500, [event(WAIT, 0, 0), step(0, 500)]
    for number in range(40):
        length = 4_000 if number < pauses else 500
        events.append(step(at, length))
        at += length
    found = folded(events).processes["algo-1-rank0"].whole.timed
    assert (found.steps, found.own_us) == (steps, 1_000 * own_ms)


def test_the_least_wait_is_what_communication_takes() -> None:
    waits = [event(WAIT, 1_000 * number + 500, 10 if number == 3 else 300) for number in range(20)]
    steps = [step(1_000 * number) for number in range(-1, 20)]
    found = folded([*waits, *steps]).processes["algo-1-rank0"].whole.timed
    assert (found.steps, found.least_us, found.peers_us) == (20, 20 * 10_000, 19 * 300_000 + 10_000)


# What a rank does in a step beyond 300 ms forward, 400 backward and 100 in the optimizer: milliseconds by part.
Of = Callable[[int, int], dict[str, int]]


def judged(more: Of, *, ranks: int = RANKS, communication_ms: int = 20) -> RuleResult:
    """Judge ranks that wait in the backward pass for the one that has most to do."""
    states: dict[str, PaceState] = {}
    at = dict.fromkeys(range(MINUTES), 150)
    for minute in range(MINUTES):
        works = [[more(rank, 40 * minute + number) for rank in range(ranks)] for number in range(40)]
        for rank in range(ranks):
            node, now, events = f"algo-{rank // 2 + 1}", 60_000 * minute + at[minute], []
            for number, all_works in enumerate(works):
                work, slowest = all_works[rank], max(sum(each.values()) for each in all_works)
                events += _step(now, 40 * minute + number, work, communication_ms + slowest - sum(work.values()))
                now += 800 + communication_ms + slowest + 30
            states.setdefault(node, PaceState()).fold(read(f"{node}-rank{rank}", minute, events))
    through = START_S + 60.0 * MINUTES
    nodes = {
        node: NodeFacts(node, framework=FrameworkView(node, through, closed=False), collected={"Straggler": state})
        for node, state in states.items()
    }
    return Straggler().judge(JobView(float(START_S), None, None, True, True, False, nodes), StragglerParameters())


def _step(start: int, number: int, more: dict[str, int], waits: int) -> Events:
    wait = 20 + more.get("data_wait", 0)
    forward = 300 + more.get("forward", 0)
    backward, optimizer = 400 + more.get("backward", 0), 100 + more.get("optimizer", 0)
    first = start + wait
    second, third = first + forward, first + forward + backward + waits
    return [
        event(LOADER, start, wait),
        event(FORWARD, first, forward),
        event(BACKWARD, second, backward + waits),
        event(WAIT, second + backward, waits),
        event(OPTIMIZER, third, optimizer),
        event("Step:ModeKeys.TRAIN", first, forward + backward + waits + optimizer, step_num=str(number)),
    ]


@pytest.mark.parametrize("part", ["data_wait", "forward", "backward", "optimizer", "other"])
def test_late_rank_is_named_with_its_part_and_cost(part: str) -> None:
    said = judged(lambda rank, _: {part: 400} if rank == 2 else {})
    facts = {each.name: each.value for each in said.facts}
    assert (said.status, facts["rank"], facts["late_in"]) == (Status.FIRED, "algo-2-rank2", part)
    assert facts["own_work"] - facts["own_work_of_peers"] == pytest.approx(0.4, rel=0.01)  # type: ignore[operator]
    assert facts["lost_of_step"] == pytest.approx(100.0 * 400 / 1_250, rel=0.02)
    assert facts["lost_gpu_time"] == pytest.approx(3 * 600 * 0.4, rel=0.35)
    assert said.wasted_share == pytest.approx(0.4 * 40 / 60, rel=0.02)


def test_ranks_late_in_turn_are_uneven_and_none_is_slow() -> None:
    said = judged(lambda rank, number: {"forward": 500} if (7 * number) % RANKS == rank else {})
    facts = {each.name: each.value for each in said.facts}
    assert (said.status, said.kind) == (Status.OK, "uneven")
    assert facts["waited_in_turn"] == pytest.approx(100.0 * 0.75 * 500 / 1_350, rel=0.05)


def test_slow_communication_is_no_wait_for_peers() -> None:
    assert judged(lambda *_: {}, communication_ms=900).kind == "fine"


def test_ranks_of_which_one_tells_no_waits_are_compared_without() -> None:
    def told(rank: int, minute: int) -> Events:
        events = [each for at in (200, 1_200) for each in _step(60_000 * minute + at, minute, {}, 20)]
        return events if rank else [each for each in events if each["pid"] != 8]

    state = PaceState()
    for rank in range(2):
        state.fold(read(f"algo-1-rank{rank}", 0, told(rank, 0)))
    paces = [pace.whole for pace in state.processes.values()]
    assert [each.timed.steps for each in paces] == [0, 1]
    assert paces[0].own_us == paces[1].own_us
