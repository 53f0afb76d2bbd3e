"""All that the rules over a node say about random nodes, minute by minute."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.answers.recorded import compare, judged, plain_result
from tests.property.test_rules_state import EAGER
from tests.unit.rules.device_minutes import DevicesAt, Readings, device_minutes
from tests.unit.rules.node_replay import NodeSeries, replayed
from trainguard.formats.profile import snapshots as names
from trainguard.rules.protocol import AnySystemRule
from trainguard.rules.registry import SYSTEM_RULES
from trainguard.rules.rule_inputs import NodeMinute

FOLDER = Path(__file__).with_name("nodes")
NODES = 14
INTERVALS_S = (1.0, 5.0, 10.0, 30.0, 60.0)
# Slow by heat, off the bus, memory that is broken, a narrow link, rows that cannot be replaced, a program's error.
FAULTS: Sequence[Mapping[str, float]] = (
    {},
    {names.SM_CLOCK: 1_000.0, names.THROTTLE_REASONS: 32.0, names.TEMPERATURE: 91.0},
    {names.XID: 79.0, names.LOST: 1.0},
    {names.XID: 48.0, names.ECC_UNCORRECTED: 3.0},
    {names.LINK_WIDTH: 8.0},
    {names.REMAPPING_FAILED: 1.0},
    {names.XID: 13.0},
)

Random = np.random.Generator


@cache
def random_node(seed: int) -> NodeSeries:
    """Return a node of up to four GPUs and an hour or two, of phases that differ in pace, and with samples missing."""
    random = np.random.default_rng(seed)
    interval_s = INTERVALS_S[seed % len(INTERVALS_S)]
    points = int(random.integers(2_400, 7_200) / max(interval_s, 5.0))
    gpus = int(random.integers(1, 5))
    gpu, memory = np.zeros((points, gpus)), np.zeros((points, gpus))
    cpu, io_wait = np.zeros(points), np.zeros(points)
    begin = 0
    while begin < points:
        end = min(points, begin + int(random.integers(20, max(21, points // 3))))
        _phase(random, gpu[begin:end], memory[begin:end], cpu[begin:end], io_wait[begin:end])
        begin = end
    memory += np.linspace(0.0, float(random.choice([0.0, 0.0, 30.0])), points)[:, np.newaxis]
    gpu[random.random(points) < float(random.choice([0.0, 0.03]))] = np.nan
    return NodeSeries(gpu, cpu, memory.clip(0.0, 100.0), io_wait, interval_s)


def _phase(random: Random, gpu: Any, memory: Any, cpu: Any, io_wait: Any) -> None:
    """Fill a phase: busy, low, idle, idle again and again, or one GPU slower than the others."""
    level = float(random.choice([0.0, 4.0, 9.0, 30.0, 55.0, 85.0, 97.0]))
    gpu[:] = (level + random.normal(0.0, 2.0, gpu.shape)).clip(0.0, 100.0).round()
    kind = int(random.integers(4))
    if kind == 0:
        gpu[random.random(len(gpu)) < random.uniform(0.1, 0.7)] = 0.0
    if kind == 1:
        gpu[:, 0] *= float(random.choice([0.0, 0.5, 0.8]))
    memory[:] = gpu * random.uniform(0.2, 0.7)
    cpu[:] = (float(random.choice([20.0, 60.0, 91.0, 99.5])) + random.normal(0.0, 1.0, cpu.shape)).clip(0.0, 100.0)
    io_wait[:] = float(random.choice([0.0, 0.0, 20.0, 60.0]))


def random_readings(seed: int, node: NodeSeries) -> DevicesAt:
    """Return what else is measured of a node's GPUs; nothing of each third node, and faults of some GPUs."""
    random = np.random.default_rng(1_000 + seed)
    minutes = int(len(node.gpu) * node.interval_s // 60.0) + 1
    growth, hollow = float(random.choice([0.0, 2e8, 4e8])), random.random() < 0.3
    faulty, from_minute, fault = int(random.integers(4)), int(random.integers(minutes)), int(random.integers(7))
    hung_from = int(random.integers(minutes)) if random.random() < 0.3 else minutes

    def at(number: int) -> Readings:
        if seed % 3 == 0:
            return {}
        begin = int(number * 60.0 / node.interval_s)
        found: dict[str, dict[str, float]] = {}
        for gpu in range(node.gpu.shape[1]):
            rows = node.gpu[begin : begin + max(1, int(60.0 / node.interval_s)), gpu]
            busy = float(np.nan_to_num(rows).mean()) if rows.size else 0.0
            shown = {
                names.POWER: 110.0 if number >= hung_from and busy > 50.0 else 70.0 + 3.3 * busy,
                names.POWER_LIMIT: 400.0,
                names.MEMORY_USED: 2e10 + growth * number,
                names.MEMORY_TOTAL: 8e10,
                names.SM_ACTIVITY: busy * (0.1 if hollow else 0.8),
                names.SM_CLOCK: 1_900.0,
                names.SM_CLOCK_MAXIMUM: 1_980.0,
                names.TEMPERATURE: 60.0,
                names.THROTTLE_REASONS: 4.0,
                names.LINK_WIDTH: 16.0,
                names.LINK_WIDTH_MAXIMUM: 16.0,
                names.ECC_UNCORRECTED: 0.0,
                names.REMAPPING_FAILED: 0.0,
                names.XID: 0.0,
                names.LOST: 0.0,
            }
            if gpu == faulty and number >= from_minute:
                shown |= FAULTS[fault]
            for metric, value in shown.items():
                found.setdefault(metric, {})[f"gpu{gpu}"] = value
        full = float(min(node.io_wait_max[begin : begin + 1].sum(), 1.0))
        return {**found, names.DISK_READ: {names.NODE: 1e6 * full}, names.DISK_WRITE: {names.NODE: 1e4}}

    return at


@cache
def random_minutes(seed: int, *, closed: bool) -> Sequence[NodeMinute]:
    """Return the minutes of a random node, which all rules see."""
    node = random_node(seed)
    return list(device_minutes(node, random_readings(seed, node), closed=closed))


@pytest.mark.parametrize("rule", SYSTEM_RULES, ids=lambda rule: rule.name)
def test_minutes_of_random_nodes_match_the_reviewed(
    rule: AnySystemRule,
) -> None:
    answers = {}
    for seed in range(NODES):
        parameters = EAGER.get(rule.name, rule.parameters_type()) if seed % 2 else rule.parameters_type()
        seen = replayed(rule, parameters, random_minutes(seed, closed=seed % 5 > 0))
        answers[f"node {seed}"] = judged([plain_result(each) for each in seen.results])
    compare(answers, FOLDER / f"{rule.name}.json")
