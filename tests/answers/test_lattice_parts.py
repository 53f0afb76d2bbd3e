"""All that parts of the rules over a node say about inputs whose values lie on thresholds."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.answers.lattice_hangs import hang_minutes, lattice_batches, lattice_progress, lattice_steps, plan_of
from tests.answers.lattice_nodes import JOB_START
from tests.answers.lattice_parts import (
    ACTIVITY,
    FAULTY,
    GPUS,
    HEALTH,
    HELD,
    IDLE,
    LOAD,
    SIGNS,
    TENSORS,
    part_minutes,
    part_view,
    plain_view,
    randoms,
)
from tests.answers.recorded import compare, digest, plain_facts, plain_result, rounded
from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.formats.profile.snapshots import SM_ACTIVITY, DeviceSamples, DeviceSeries
from trainguard.rules.gpu_health.rule import GPUHealth, GPUHealthParameters
from trainguard.rules.hung_job.rule import HungJob, HungJobOverNodes, HungJobParameters
from trainguard.rules.hung_job.state import ProgressState, WatchState, behind
from trainguard.rules.low_gpu_utilization.devices import (
    BusyMinutes,
    GpuSigns,
    HeldMemory,
    fold_activity,
    fold_held,
    fold_signs,
    held_memory,
    held_while_idle,
    is_known,
    low_activity_gpus,
    sign_of_work,
    threshold_of,
)
from trainguard.rules.low_gpu_utilization.node import (
    IDLE_FINDING_S,
    idleness_of,
    judge_breaks,
    judge_idle,
    judge_weak,
    regular_breaks,
)
from trainguard.rules.low_gpu_utilization.results import (
    InstanceMinutes,
    activity_facts,
    fold_instances,
    judge_instances,
    judge_low_activity,
    pause_facts,
)
from trainguard.rules.overall_system_usage.rule import METRICS, Percentiles, facts_of, is_oversized, says_enough
from trainguard.rules.rule_inputs import JobView, NodeFacts, NodeView
from trainguard.rules.rule_result import FactSheet
from trainguard.rules.windows import never_active, undecided_text, warming_up

FOLDER = Path(__file__).with_name("lattice")
GROUP = 50
LASTING_S = (30.0, 60.0, 61.0, 120.0, 240.0, 7_200.0)
INSTANCES = ("gpu0.mig0", "gpu0.mig1")

COMMON: Mapping[str, Any] = {"details": {}}

Part = Callable[[], Iterator[Any]]


def _active(view: NodeView, since: float) -> tuple[Fact, ...]:
    where = {"device": "gpu0", "start": since, "end": view.watermark_s}
    return (view.fact("mean_sm_activity", 12.0, "%", series=SM_ACTIVITY, **where),)


def _idleness() -> Iterator[Any]:
    for random in randoms(300):
        view = part_view(random)
        idleness = idleness_of(view)
        if idleness is None:
            yield plain_view(view)
            continue
        yield {
            **plain_view(view),
            **asdict(idleness),
            "kind": idleness.kind,
            "said": plain_result(
                judge_weak(view, idleness, random.choice([(), _active(view, idleness.since)]), [], COMMON)
                if idleness.look == "weak"
                else judge_idle(view, idleness, {}, [], COMMON)
            ),
        }


def _breaks() -> Iterator[Any]:
    for random in randoms(300):
        view = part_view(random)
        breaks = regular_breaks(view)
        found = None if breaks is None else {**asdict(breaks), "said": plain_result(judge_breaks(view, breaks, COMMON))}
        yield {"breaks": view.idle_time.breaks, "found": found, "facts": plain_facts(pause_facts(view))}


def _held() -> Iterator[Any]:
    for random in randoms(40):
        held: dict[str, HeldMemory] = {}
        for minute in part_minutes(random, HELD, 30, utilization=IDLE):
            fold_held(held, minute, 10.0)
            view = replace(
                minute.view, watermark_s=(minute.view.watermark_s or 0.0) + random.choice([0.0, 180.0, 181.0])
            )
            found, idle = held_memory(held, view), idleness_of(view)
            alone = held_while_idle(held, view, "gpu1", random.choice([120.0, 300.0, 600.0, IDLE_FINDING_S]))
            yield [
                is_known(held, view),
                None if found is None else asdict(found),
                None if alone is None else [asdict(alone[0]), alone[1]],
                None if idle is None or idle.look == "weak" else plain_result(judge_idle(view, idle, held, [], COMMON)),
            ]


def _signs() -> Iterator[Any]:
    for random in randoms(60):
        signs: dict[str, GpuSigns] = {}
        for minute in part_minutes(random, SIGNS, 30):
            fold_signs(signs, minute)
            sign = sign_of_work(signs, minute.view, 0.0)
            shown = {"activity": "mean_sm_activity", "power": "power", "power_at_work": "power_at_work"}
            values = {each.name: each.value for each in sign}
            yield {"gpu": sign[0].device, **{key: values.get(name) for key, name in shown.items()}} if sign else None


def _activity() -> Iterator[Any]:
    for number, random in enumerate(randoms(60)):
        minutes: dict[str, BusyMinutes] = {}
        for minute in part_minutes(random, TENSORS if number % 2 else ACTIVITY, 80 if number % 10 == 0 else 25):
            fold_activity(minutes, minute, 20.0, 70.0)
            lasting_s = random.choice(LASTING_S)
            said = judge_low_activity(minutes, minute.view, lasting_s, 20.0, COMMON)
            yield [
                [_low_activity(*each) for each in low_activity_gpus(minutes, lasting_s)],
                None if said is None else plain_result(said),
                [plain_facts(activity_facts(minutes, gpu, minute.view)) for gpu in GPUS],
            ]


def _low_activity(gpu: str, held: BusyMinutes, p95: float) -> dict[str, Any]:
    newest = slice(-held.low_sm, None)
    return {
        "gpu": gpu,
        "p95": p95,
        "busy": sum(held.utilization[newest]) / len(held.utilization[newest]),
        "minutes": len(held.activity[newest]),
        "since": held.since,
        "start": float(held.begun[newest][0]),
        "newest": float(held.begun[-1]),
        "end": held.until,
        "lost_min": held.lost,
        "measure": held.measure,
        "threshold": threshold_of(held.measure, 20.0),
        "power": held.power,
    }


def _instances() -> Iterator[Any]:
    for number, random in enumerate(randoms(40)):
        instances: dict[str, InstanceMinutes] = {}
        lasting_s = random.choice(LASTING_S)
        for minute in part_minutes(random, ACTIVITY, 70 if number % 8 == 0 else 25, (*INSTANCES, "gpu1")):
            fold_instances(instances, minute, 20.0)
            yield plain_result(judge_instances(instances, minute.view, 20.0, lasting_s))


def _warm_up() -> Iterator[Any]:
    for random in randoms(150):
        view = part_view(random)
        view = replace(view, watermark_s=None) if random.random() < 0.1 else view
        needed = random.choice([0, 1, 20, 120, 361])
        points = random.choice([0, needed - 1, needed, needed + 1])
        unused = undecided_text(FactSheet(Status.WARMING_UP, *never_active(view))).reason
        yield [unused, plain_result(warming_up(max(points, 0), needed, view, {}))]


def _hung_nodes() -> Iterator[Any]:
    rule, parameters = HungJob(), HungJobParameters()
    for random in randoms(30):
        state = WatchState()
        for minute in hang_minutes(random, plan_of(random, random.choice([20, 20, 30]))):
            rule.observe(state, minute, parameters)
            view = replace(minute.view, detailed=random.random() < 0.1)
            yield [*plain_result(rule.judge(state, view, parameters)).values(), state.quiet_s, state.longest_s]


def _hung_jobs() -> Iterator[Any]:
    rule, parameters = HungJobOverNodes(), HungJobParameters()
    for random in randoms(30):
        count = random.randint(1, 2)
        states = {f"algo-{number}": WatchState() for number in range(1, count + 1)}
        silent_from = random.choice([8, 15, 99, 99]) if count > 1 else 99
        plan = plan_of(random, random.choice([20, 20, 30]))
        for number, minutes in enumerate(zip(*(hang_minutes(random, plan) for _ in states), strict=True)):
            for (node, state), minute in zip(states.items(), minutes, strict=True):
                if node == "algo-1" or number < silent_from:
                    state.fold(minute, 0.5)
            since = max(state.quiet_since or state.at or 0.0 for state in states.values())
            steps = {node: lattice_steps(random, node, since) for node in states}
            nodes = {
                node: NodeFacts(
                    node,
                    minute.view,
                    collected={"HungJob": steps[node]},
                    watched={"HungJob": state},
                    waiting=int(random.random() < 0.1),
                )
                for (node, state), minute in zip(states.items(), minutes, strict=True)
            }
            started_at = random.choice([None, JOB_START - 600.0])
            view = JobView(started_at, since, None, False, False, False, nodes, detailed=random.random() < 0.1)
            yield plain_result(rule.judge(view, parameters))


def _hung_steps() -> Iterator[Any]:
    for random in randoms(60):
        state = ProgressState()
        for _ in range(4):
            state.fold(lattice_batches(random))
            yield [msgspec.to_builtins(state), behind(state.processes)]
        processes = lattice_progress(random)
        yield {**{name: [each.number, each.pace_us] for name, each in processes.items()}, "late": behind(processes)}


def _health() -> Iterator[Any]:
    rule = GPUHealth()
    for number, random in enumerate(randoms(60)):
        state, parameters = rule.state_type(), GPUHealthParameters(loaded_minutes=random.choice([1, 2, 5, 99]))
        for minute in part_minutes(random, FAULTY if number % 3 == 0 else HEALTH, 25, utilization=LOAD):
            rule.observe(state, minute, parameters)
            later = (minute.view.watermark_s or 0.0) + random.choice([0.0, 0.0, 840.0, 870.0, 871.0, 930.0])
            view = replace(minute.view, watermark_s=later, first_sample_at=JOB_START, detailed=random.random() < 0.1)
            yield plain_result(rule.judge(state, view, parameters))


def _usage() -> Iterator[Any]:
    levels = (0.0, 69.0, 70.0, 71.0, 90.0)
    for random in randoms(400):
        usage = {
            metric: Percentiles(*sorted((random.choice(levels) for _ in range(5)), reverse=True))
            for metric in METRICS
            if random.random() < 0.7
        }
        enough = says_enough(random.choice([1, 19, 20, 49, 50, 51]), random.choice([10.0, 25.0, 30.0]))
        found = facts_of(part_view(random), usage, enough=enough)
        yield [found[0], plain_facts(found[1]), is_oversized(usage)]


def _xids() -> Iterator[Any]:
    rule, parameters = GPUHealth(), GPUHealthParameters()
    minute = next(part_minutes(Random(1), {}, 1, ("gpu0",)))
    times = minute.snapshots.times
    for code in range(200):
        state = rule.state_type()
        codes = np.append(0.0, np.full(times.size - 1, float(code)))
        found = DeviceSamples({"XID": {"gpu0": DeviceSeries(times, codes)}})
        rule.observe(state, replace(minute, devices=found), parameters)
        said = rule.judge(state, minute.view, parameters)
        yield [code, said.kind, plain_facts(said.facts)]


PARTS: Mapping[str, Part] = {
    "xids": _xids,
    "health": _health,
    "hung_jobs": _hung_jobs,
    "hung_nodes": _hung_nodes,
    "hung_steps": _hung_steps,
    "usage": _usage,
    "idleness": _idleness,
    "breaks": _breaks,
    "held": _held,
    "signs": _signs,
    "activity": _activity,
    "instances": _instances,
    "warm_up": _warm_up,
}


@pytest.mark.parametrize("part", PARTS)
def test_rule_parts_on_thresholds_match_the_reviewed(
    part: str,
) -> None:
    said = [rounded(each) for each in PARTS[part]()]
    answers = {}
    for begin in range(0, len(said), GROUP):
        group = said[begin : begin + GROUP]
        answers[f"from {begin}"] = {"all": digest(group), "last": group[-1]}
    compare(answers, FOLDER / f"part_{part}.json")
