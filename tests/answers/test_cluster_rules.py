"""All that the rules over a job say about random nodes that train together: balance of work, stragglers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.answers.recorded import compare, judged, plain_result
from tests.support.node_snapshots import node_snapshots
from tests.unit.rules.gpu_loads import view_of
from trainguard.formats.profile.snapshots import FloatArray
from trainguard.rules.load_balancing.judging import LoadBalancingParameters
from trainguard.rules.load_balancing.rule import LoadBalancing, LoadBalancingAcrossNodes
from trainguard.rules.load_balancing.window import BalanceWindow
from trainguard.rules.rule_inputs import FrameworkView, JobView, NodeFacts, NodeMinute
from trainguard.rules.straggler.pace import Pace, PaceState, ProcessPace
from trainguard.rules.straggler.rule import Straggler, StragglerParameters

FOLDER = Path(__file__).with_name("clusters")
START = 1_700_000_400.0
CLUSTERS, RANKS = 16, 60
# How often a random cluster is judged.
EVERY_S = 600.0

Random = np.random.Generator


def random_loads(random: Random, points: int) -> FloatArray:
    """Return the utilization of up to three GPUs, steady but for parts in which one is slower, idle, or not sampled."""
    gpus = int(random.choice([1, 2, 2, 3]))
    loads = np.full((points, gpus), float(random.choice([80.0, 90.0, 97.0])))
    for _ in range(int(random.integers(0, 4))):
        begin, gpu = int(random.integers(points)), int(random.integers(gpus))
        level = float(
            random.choice([0.0, 40.0, 60.0, 70.0, 75.0, 90.0, np.nan], p=[0.25, 0.2, 0.15, 0.1, 0.1, 0.1, 0.1])
        )
        loads[begin : begin + int(random.integers(points)), gpu] = level
    if random.random() < 0.3:
        loads[random.random(points) < 0.4, 0] = 0.0
    return loads


def kept_minutes(name: str, loads: FloatArray, interval_s: float) -> Iterator[NodeMinute]:
    """Yield the parts of a node that works from its first point on, a few minutes each."""
    part = round(EVERY_S / interval_s)
    times = START + interval_s * np.arange(len(loads), dtype=np.float64)
    blank = view_of(name, *np.zeros((loads.shape[1], 101), dtype=np.int64), interval_s=interval_s)
    for end in range(part, len(loads) + 1, part):
        seen = [column[~np.isnan(column)].astype(np.int64) for column in loads[:end].T]
        counts = np.array([np.bincount(column, minlength=101) for column in seen])
        view = replace(
            blank,
            watermark_s=float(times[end - 1]),
            first_sample_at=START,
            first_active_at=START,
            ever_active=np.logical_or.reduce(counts[:, 10:] > 0, axis=1),
            kept_total=end,
            kept_times=times[end - part : end],
            kept_gpu_utilization=loads[end - part : end],
            gpu_histogram=counts,
            closed=end + part > len(loads),
        )
        fresh = slice(end - part, end)
        active = np.ones(part, dtype=np.bool_)
        yield NodeMinute(node_snapshots(times[fresh], loads[fresh]), active, active, part, view)


def never_used(name: str, gpus: int, interval_s: float, idle_s: float) -> NodeFacts:
    blank = view_of(name, *np.zeros((gpus, 101), dtype=np.int64), interval_s=interval_s, idle_run_s=idle_s)
    return NodeFacts(name, replace(blank, watermark_s=START + idle_s, first_sample_at=START))


def of_job(facts: Mapping[str, NodeFacts], parameters: LoadBalancingParameters) -> Mapping[str, Any]:
    """Return what is said about a job of such nodes."""
    return plain_result(
        LoadBalancingAcrossNodes().judge(JobView(START, None, None, False, False, False, facts), parameters)
    )


def cluster_answer(seed: int) -> Mapping[str, Any]:
    """Return all verdicts on a random cluster, its nodes and the whole: what it said at last, and of all a hash."""
    random = np.random.default_rng(seed)
    interval_s, rule = float(random.choice([10.0, 30.0, 60.0])), LoadBalancing()
    parameters = LoadBalancingParameters(
        threshold=float(random.choice([0.2, 0.5])), patience_s=float(random.choice([5.0, 3_600.0]))
    )
    points = round(float(random.choice([2_400.0, 6_000.0, 18_000.0])) / interval_s)
    count = int(random.integers(1, 5))
    loads = {f"algo-{number}": random_loads(random, points) for number in range(1, count + 1)}
    if random.random() < 0.3:
        loads["algo-1"] = loads["algo-1"] / 2.0
    states = {name: BalanceWindow() for name in loads}
    unused = random.random() < 0.2
    said: dict[str, list[Any]] = {name: [] for name in (*loads, "job")}
    series = [kept_minutes(name, each, interval_s) for name, each in loads.items()]
    for step, minutes in enumerate(zip(*series, strict=True), 1):
        facts = {}
        for minute in minutes:
            name, state = minute.view.node, states[minute.view.node]
            rule.observe(state, minute, parameters)
            said[name].append(plain_result(rule.judge(state, minute.view, parameters)))
            facts[name] = NodeFacts(name, minute.view, collected={rule.name: state})
        if unused:
            facts["algo-9"] = never_used("algo-9", 2, interval_s, EVERY_S * step)
        said["job"].append(of_job(facts, parameters))
    return {f"{name}": judged(each) for name, each in said.items()}


def test_balance_of_random_clusters_matches_the_reviewed() -> None:
    answers = {
        f"cluster {seed}, {name}": said for seed in range(CLUSTERS) for name, said in cluster_answer(seed).items()
    }
    compare(answers, FOLDER / "LoadBalancing.json")


def random_pace(random: Random, blocks: Sequence[int], work_ms: int, step_ms: int) -> ProcessPace:
    """Return a process whose own work is what it is, or more in some blocks, by waits or not."""
    whole, held = Pace(), {}
    for block in blocks:
        if random.random() < 0.03:
            continue
        steps = int(random.choice([19, 20, 30], p=[0.03, 0.67, 0.3]))
        own = work_ms if random.random() < 0.9 else int(random.choice([100, 120, 125, 150]))
        wait = int(random.choice([0, 5, own // 4, own // 2], p=[0.4, 0.4, 0.1, 0.1]))
        pace = steps, 1_000 * steps * step_ms, 1_000 * steps * own, 1_000 * steps * wait
        whole.add(Pace(*pace))
        held[block] = Pace(*pace)
    return ProcessPace(whole, held or {blocks[-1]: Pace(20, 20_000_000, 2_000_000, 0)})


def random_ranks(seed: int) -> tuple[JobView, StragglerParameters]:
    """Return a job of up to four nodes of up to three ranks, whose work is often on a bound."""
    random = np.random.default_rng(10_000 + seed)
    first, count = int(START) // 300, int(random.choice([2, 3, 4, 5, 8, 12]))
    blocks = range(first, first + count)
    step_ms = int(random.choice([200, 250, 300, 1_200_000]))
    nodes = {}
    slow = int(random.integers(1, 6))
    for number in range(1, int(random.integers(1, 5)) + 1):
        node, state = f"algo-{number}", PaceState()
        for rank in range(int(random.integers(1, 4))):
            work_ms = int(random.choice([125, 126, 150, 200])) if number == slow or random.random() < 0.1 else 100
            state.processes[f"{node}-{rank}"] = random_pace(random, blocks, work_ms, step_ms)
        watermark_s = None if random.random() < 0.2 else 300.0 * (first + count)
        nodes[node] = NodeFacts(node, framework=FrameworkView(node, watermark_s, False), collected={"Straggler": state})
    nodes["algo-9"] = NodeFacts("algo-9")
    started = None if random.random() < 0.1 else START
    view = JobView(started, None if seed % 3 else 300.0 * first + 600.0, None, True, True, seed % 2 > 0, nodes)
    lasting_s = float(random.choice([1.0, 300.0, 301.0, 900.0, 1_500.0, 7_200.0]))
    return view, StragglerParameters(slower=float(random.choice([20.0, 25.0, 50.0])), lasting_s=lasting_s)


def test_stragglers_of_random_ranks_match_the_reviewed() -> None:
    answers = {f"job {seed}": judged([plain_result(Straggler().judge(*random_ranks(seed)))]) for seed in range(RANKS)}
    compare(answers, FOLDER / "Straggler.json")
