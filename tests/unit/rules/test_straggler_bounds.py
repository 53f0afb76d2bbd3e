"""Straggler on each bound: ranks whose blocks are given, and not read from steps."""

from collections.abc import Mapping

import pytest

from trainguard.core.records import Status
from trainguard.rules.rule_inputs import FrameworkView, JobView, NodeFacts
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.straggler.pace import Pace, PaceState, ProcessPace
from trainguard.rules.straggler.rule import Straggler, StragglerParameters

FIRST = 5_000_000
BLOCK_S = 300.0
# Own work in a step, and that part of it that is waiting for data, milliseconds.
Work = tuple[int, int]


def process(*blocks: Work | None, steps: int = 20, step_ms: int = 1_000) -> ProcessPace:
    """Return a process with such blocks of five minutes, and one that goes on."""
    whole, held = Pace(), {}
    for number, block in enumerate((*blocks, blocks[-1])):
        if block is not None:
            pace = steps, 1_000 * steps * step_ms, 1_000 * steps * block[0], 1_000 * steps * block[1]
            whole.add(Pace(*pace))
            held[FIRST + number] = Pace(*pace)
    return ProcessPace(whole, held)


def job(
    nodes: Mapping[str, Mapping[str, ProcessPace]],
    *,
    started_at: float | None = FIRST * BLOCK_S,
    through: float | None = (FIRST + 4) * BLOCK_S,
    system_through: float | None = None,
    detailed: bool = True,
) -> JobView:
    states = {node: {"Straggler": PaceState(dict(of))} for node, of in nodes.items()}
    facts = {
        node: NodeFacts(node, framework=FrameworkView(node, through, closed=False), collected=state)
        for node, state in states.items()
    }
    return JobView(started_at, system_through, None, False, True, False, facts, detailed=detailed)


def judge(view: JobView, *, slower: float = 25.0, lasting_s: float = 900.0) -> RuleResult:
    return Straggler().judge(view, StragglerParameters(slower=slower, lasting_s=lasting_s))


def beside(slow: ProcessPace, *, others: Work = (100, 0), count: int = 3, step_ms: int = 1_000) -> JobView:
    """Return a job of a process and others that do the same in each block."""
    named = {f"algo-1-{number}": process(others, others, others, step_ms=step_ms) for number in range(1, count + 1)}
    return job({"algo-1": named, "algo-2": {"algo-2-0": slow}})


def steady(own_ms: int, wait_ms: int = 0, *, step_ms: int = 1_000) -> ProcessPace:
    return process(*[(own_ms, wait_ms)] * 3, step_ms=step_ms)


@pytest.mark.parametrize(
    ("own_ms", "step_ms", "slower", "status"),
    [
        (200, 1_000, 99.0, Status.FIRED),
        (199, 1_000, 98.0, Status.OK),
        (200, 1_001, 99.0, Status.OK),
        (125, 200, 25.0, Status.OK),
        (126, 200, 25.0, Status.FIRED),
    ],
)
def test_slow_rank_exceeds_threshold_and_a_tenth_of_the_step(
    own_ms: int, step_ms: int, slower: float, status: Status
) -> None:
    said = judge(beside(steady(own_ms, step_ms=step_ms), step_ms=step_ms), slower=slower)
    assert said.status is status
    assert said.measured == pytest.approx(own_ms - 100.0)
    assert (said.threshold, said.worst, said.data_points) == (slower, "algo-2/0", 320)


@pytest.mark.parametrize(("wait_ms", "by_waits"), [(109, False), (110, True)])
def test_waits_of_half_the_delay_put_the_blame_on_data(wait_ms: int, by_waits: bool) -> None:
    said = judge(beside(steady(300, wait_ms), others=(100, 10)))
    assert ("most of it in waits for data" in said.reason) is by_waits
    assert (said.advice or "").startswith("Give algo-2-0 on algo-2" if by_waits else "Look at clocks")


@pytest.mark.parametrize(
    ("blocks", "status"),
    [
        ([(300, 0), (300, 0), (300, 0)], Status.FIRED),
        ([(100, 0), (300, 0), (300, 0)], Status.OK),
        ([(300, 0), (300, 0), (124, 0)], Status.OK),
        ([None, (300, 0), (300, 0)], Status.WARMING_UP),
    ],
)
def test_rank_with_a_fast_or_missing_block_is_no_straggler(blocks: list[Work | None], status: Status) -> None:
    assert judge(beside(process(*blocks))).status is status


@pytest.mark.parametrize(
    ("lasting_s", "patience"), [(0.5, "1/1"), (900.0, "3/3"), (901.0, "3/4"), (3_600.0, "3/12"), (9_000.0, "3/12")]
)
def test_lasting_time_counts_started_blocks_up_to_an_hour(lasting_s: float, patience: str) -> None:
    said = judge(beside(steady(300)), lasting_s=lasting_s)
    assert said.patience == patience
    assert said.status is (Status.FIRED if patience in {"1/1", "3/3"} else Status.WARMING_UP)


def test_single_awaited_block_is_shown_in_the_singular() -> None:
    few = job({"algo-1": {f"algo-1-{number}": process((100, 0), steps=19) for number in range(2)}})
    assert judge(few, lasting_s=300.0).reason == "2 ranks have 0 of the 1 block of 5 min that a verdict takes."


def test_four_slow_ranks_are_named_and_the_others_counted() -> None:
    def of(slow: int, fast: int) -> str:
        ranks = {f"algo-1-{number}": steady(300 if number < slow else 100) for number in range(slow + fast)}
        return judge(job({"algo-1": ranks})).reason

    assert of(2, 4).endswith("4 ranks waited for it in each step of 1 s; slow are algo-1-0, algo-1-1.")
    assert of(4, 6).endswith("slow are algo-1-0, algo-1-1, algo-1-2, algo-1-3.")
    assert of(6, 8).endswith("slow are algo-1-0, algo-1-1, algo-1-2, algo-1-3, and 2 more.")
    assert of(1, 1).endswith("; 1 rank waited for it in each step of 1 s.")


def test_node_is_named_only_if_all_of_its_ranks_are_slow() -> None:
    def of(*slow: str, single: bool = False) -> str:
        names = {"algo-1": ["a", "b"], "algo-2": ["c"] if single else ["c", "d"], "algo-3": ["e", "f", "g"]}
        nodes = {
            node: {f"{node}-{rank}": steady(300 if rank in slow else 100) for rank in ranks}
            for node, ranks in names.items()
        }
        return judge(job(nodes)).reason.partition(":")[0]

    assert of("c", "d") == "Every rank of algo-2 is slow, most of all algo-2-c"
    assert of("c") == "algo-2-c is slow"
    assert of("c", single=True) == "algo-2-c is slow"
    assert of("b", "c") == "algo-1-b is slow"
    assert of("a", "b", "c") == "algo-1-a is slow"


@pytest.mark.parametrize(
    ("started_at", "through", "system_through", "share"),
    [
        (FIRST * BLOCK_S, (FIRST + 4) * BLOCK_S, None, 16.0 / 1_200.0),
        (FIRST * BLOCK_S, (FIRST + 4) * BLOCK_S, (FIRST + 8) * BLOCK_S, 16.0 / 2_400.0),
        (FIRST * BLOCK_S, None, (FIRST + 4) * BLOCK_S, 16.0 / 1_200.0),
        (FIRST * BLOCK_S, FIRST * BLOCK_S + 1.0, None, 1.0),
        (FIRST * BLOCK_S, FIRST * BLOCK_S, None, None),
        (FIRST * BLOCK_S, None, None, None),
        (None, FIRST * BLOCK_S, None, None),
    ],
)
def test_cost_of_a_straggler_is_the_paid_wait_of_the_others(
    started_at: float | None, through: float | None, system_through: float | None, share: float | None
) -> None:
    nodes = {"algo-1": {f"algo-1-{number}": steady(300 if number == 2 else 100) for number in range(4)}}
    said = judge(job(nodes, started_at=started_at, through=through, system_through=system_through))
    assert said.wasted_share == share


def test_onset_of_a_late_slow_rank_is_its_first_slow_block() -> None:
    late = process((300, 0), (100, 0), (300, 0), (300, 0), (300, 0))
    fast = {f"algo-1-{number}": process(*[(100, 0)] * 5) for number in range(3)}
    said = judge(job({"algo-1": {**fast, "algo-1-9": late}}))
    assert said.onset == (FIRST + 2) * BLOCK_S


def test_rank_faster_over_the_whole_job_has_lost_nothing_yet() -> None:
    late = process(*[(10, 0)] * 6, *[(300, 0)] * 3)
    others = {f"algo-1-{number}": process(*[(200, 0)] * 9) for number in range(3)}
    said = judge(job({"algo-1": {**others, "algo-1-9": late}}))
    assert (said.status, said.wasted_share) == (Status.FIRED, 0.0)


def test_slowest_256_ranks_are_in_the_details() -> None:
    ranks = {f"algo-1-{number:03}": steady(100 + number) for number in range(258)}
    said = judge(job({"algo-1": ranks}), slower=250.0)
    shown = said.plain_details["processes"]
    assert list(shown) == [f"algo-1-{number:03}" for number in range(257, 1, -1)]
    assert shown["algo-1-257"] == {
        "own_us": 357_000.0,
        "peers_us": 228_000.0,
        "step_us": 1_000_000.0,
        "steps": 80,
        "is_slow": False,
    }
    assert judge(job({"algo-1": ranks}, detailed=False)).plain_details == {"processes": {}}


def test_awaited_framework_metrics_make_peers_the_missing_part() -> None:
    def of(*, seen: bool, expected: bool) -> str:
        return judge(JobView(0.0, None, None, expected, seen, False, {})).reason

    assert of(seen=False, expected=False).startswith("This job has written no framework metrics")
    assert of(seen=True, expected=False).startswith("The steps of fewer than two ranks")
    assert of(seen=False, expected=True).startswith("The steps of fewer than two ranks")
    assert judge(job({"algo-1": {"algo-1-0": steady(100)}})).plain_details == {"processes": {}}
    assert Straggler().clear_after_s(StragglerParameters(), 60.0) == 1_800.0
