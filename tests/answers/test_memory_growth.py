"""All that GPUMemoryIncrease says about random series of memory activity, and of memory in use, window by window."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.answers.recorded import compare, judged, plain_result
from tests.unit.rules.device_minutes import devices
from tests.unit.rules.memory_replay import RULE, minutes
from trainguard.formats.profile.snapshots import FloatArray
from trainguard.rules.gpu_memory_increase.rule import GPUMemoryIncreaseParameters
from trainguard.rules.rule_inputs import NodeMinute

FOLDER = Path(__file__).with_name("memory")
SERIES, DEVICES = 36, 16
Random = np.random.Generator


def random_series(random: Random, points: int) -> FloatArray:
    """Return whole percents of a GPU: levels that stay, rise, jump, or fall back."""
    parts: list[FloatArray] = []
    level = float(random.choice([10.0, 20.0, 30.0]))
    while sum(map(len, parts)) < points:
        length, kind = int(random.integers(10, points // 2)), int(random.integers(5))
        after = level + float(random.choice([-10.0, 5.0, 10.0, 11.0, 20.0, 40.0]))
        if kind == 0:
            parts.append(np.full(length, level))
        elif kind == 1:
            parts.append(np.linspace(level, after, length))
        elif kind == 2:
            parts.append(np.full(length, after))
        elif kind == 3:
            parts.append(level + (after - level) * (np.arange(length, dtype=np.float64) % 20.0) / 20.0)
        else:
            parts.append(level + (after - level) * (1.0 - np.exp(-np.arange(length) / 20.0)))
        level = float(parts[-1][-1])
    return np.rint(np.concatenate(parts)[:points]).clip(0.0, 100.0)


def random_minutes(random: Random) -> tuple[Iterator[NodeMinute], GPUMemoryIncreaseParameters]:
    """Return the parts of a node of up to three GPUs, of which one may come late, and its parameters."""
    interval_s = float(random.choice([12.5, 50.0, 60.0]))
    points, gpus = int(random.choice([120, 200, 320])), int(random.integers(1, 4))
    memory = np.column_stack([random_series(random, points) for _ in range(gpus)])
    load = np.full(points, float(random.choice([50.0, 90.0, 100.0])))
    load[int(random.integers(points)) :] = float(random.choice([10.0, 45.0, 100.0]))
    memory[random.random(memory.shape) < float(random.choice([0.0, 0.1]))] = np.nan
    if random.random() < 0.2:
        memory[: int(random.integers(points)), 0] = np.nan
    if random.random() < 0.1:
        memory[points // 2 :, -1] = np.nan
    increase = float(random.choice([5.0, 10.0]))
    parameters = GPUMemoryIncreaseParameters(increase=increase)
    if random.random() < 0.3:
        parameters = GPUMemoryIncreaseParameters(increase=increase, window=20, patience=int(random.choice([0, 20])))
    part = int(random.choice([7, 20, 20, 41]))
    found = minutes(memory, interval_s=interval_s, a_minute=part, held=20, load=load)
    return paused(found, int(random.integers(points)), float(random.choice([0.0, 0.0, 7_200.0]))), parameters


def paused(found: Iterator[NodeMinute], begin: int, pause_s: float) -> Iterator[NodeMinute]:
    """Yield minutes of which those after so many points are later by a pause; the last ends the stream."""
    held = next(found)
    for minute in found:
        yield held
        view = minute.view
        if view.kept_total > begin:
            view = replace(view, kept_times=view.kept_times + pause_s, watermark_s=(view.watermark_s or 0.0) + pause_s)
        held = replace(minute, view=view)
    yield replace(held, view=replace(held.view, closed=True))


def answer(said: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the last judgement, the last that fired where it is another, and a hash of all."""
    fired = [each for each in said if each["status"] == "FIRED"]
    shown = {"fired": len(fired), **judged(said)}
    return shown | ({"last fire": judged(fired[-1:])} if fired and said[-1]["status"] != "FIRED" else {})


def test_random_activity_matches_the_reviewed() -> None:
    answers = {}
    for seed in range(SERIES):
        parts, parameters = random_minutes(np.random.default_rng(seed))
        state, said = RULE.state_type(), []
        for minute in parts:
            RULE.observe(state, minute, parameters)
            said.append(plain_result(RULE.judge(state, minute.view, parameters)))
        answers[f"series {seed}"] = answer(said)
    compare(answers, FOLDER / "activity.json")


def random_use(random: Random, count: int) -> FloatArray:
    """Return gigabytes in use by minute: a leak, a cache that fills, a sawtooth, steps, or several of them."""
    at = np.arange(count, dtype=np.float64)
    used = np.full(count, float(random.choice([10.0, 30.0, 70.0])))
    since = at - int(random.integers(count // 2))
    kind = int(random.integers(5))
    if kind in {0, 4}:
        used += np.maximum(since, 0.0) * float(random.choice([2.0, 6.0, 12.0])) / 60.0
    if kind == 1:
        used += 20.0 * (1.0 - np.exp(-at / 20.0))
    if kind in {2, 4}:
        used += float(random.choice([0.5, 4.0])) * (at % 30.0) / 30.0
    if kind == 3:
        used += 12.0 * (since > 0.0)
    if random.random() < 0.4:
        used[int(random.integers(count)) :] = used.max()
    return used.clip(0.0, 80.0)


def test_random_memory_use_matches_the_reviewed() -> None:
    answers = {}
    for seed in range(DEVICES):
        random = np.random.default_rng(seed)
        count, gpus = int(random.choice([70, 130, 200])), int(random.integers(1, 4))
        used = np.column_stack([random_use(random, count) for _ in range(gpus)])
        parts = minutes(np.full((count, gpus), 40.0), interval_s=60.0, a_minute=1, held=5)
        parameters = GPUMemoryIncreaseParameters(increase=float(random.choice([5.0, 10.0])))
        state, said = RULE.state_type(), []
        for number, minute in enumerate(parts):
            values = {f"gpu{gpu}": 1e9 * float(used[number, gpu]) for gpu in range(gpus)}
            found = devices(number, {"MemoryUsedBytes": values, "MemoryTotalBytes": dict.fromkeys(values, 8e10)})
            shown = replace(minute, devices=found, view=replace(minute.view, closed=number == count - 1))
            RULE.observe(state, shown, parameters)
            if number % 10 == 0 or shown.view.closed:
                said.append(plain_result(RULE.judge(state, shown.view, parameters)))
        answers[f"devices {seed}"] = answer(said)
    compare(answers, FOLDER / "in_use.json")
