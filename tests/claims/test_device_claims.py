"""What is said about GPUs by their further series is true; and the checker finds what is not."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.claims.check import checked, wrong_facts
from tests.claims.context import Raw, raw_of
from tests.claims.device_jobs import Shows, write_device_job
from tests.claims.product import report_of

HEAT, CAP = 0x20, 0x4
GPUS = 4


class Said(NamedTuple):
    """A job's samples, and its report."""

    raw: Raw
    report: dict[str, Any]


def healthy(gpu: int, minute: int, sample: int) -> dict[str, float | None]:
    """Return what a GPU at work shows: its clock and its power are no others' and no other minute's."""
    return {
        "GPUUtilization": 95.0 - gpu,
        "GPUMemoryUtilization": 40.0,
        "SMClockMHz": 1_500.0 + 3.0 * gpu + minute % 5 + sample,
        "ThrottleReasons": float(CAP),
        "PCIeLinkWidth": 16.0,
        "ECCUncorrectedErrors": 2.0,
        "XID": 0.0,
        "Lost": 0.0,
        "PowerWatts": 300.0 + 7.0 * gpu + minute % 7 + sample,
    }


def hot(gpu: int, minute: int, sample: int) -> Shows:
    """Show a GPU that is throttled in most of the newest minutes, and in some before that do not count."""
    slow = gpu == 1 and (minute in {4, 5} or (minute >= 18 and minute != 21))
    clock = {"SMClockMHz": 1_100.0 + minute + sample, "ThrottleReasons": float(HEAT)} if slow else {}
    return {**healthy(gpu, minute, sample), **clock}


def all_hot(gpu: int, minute: int, sample: int) -> Shows:
    """Show GPUs that are all throttled once they have worked: nothing but their own past is a measure."""
    slow = {"SMClockMHz": 1_200.0 + gpu + minute, "ThrottleReasons": float(HEAT)} if minute >= 15 else {}
    return {**healthy(gpu, minute, sample), **slow}


def broken(gpu: int, minute: int, sample: int) -> Shows:
    """Show codes of a program and of hardware, twice, beside errors of memory of another GPU."""
    shown = healthy(gpu, minute, sample)
    if gpu == 2 and minute >= 9:
        shown |= {"XID": 45.0, "XIDCount45": float(minute), "XIDCount74": 1.0 if minute < 14 else 3.0}
    if gpu == 3 and minute >= 12:
        shown |= {"ECCUncorrectedErrors": 5.0 if minute < 16 else 9.0}
    return shown


def errors(gpu: int, minute: int, sample: int) -> Shows:
    """Show errors of memory that come one after another."""
    return {**healthy(gpu, minute, sample), "ECCUncorrectedErrors": float(gpu == 1) * max(minute - 11, 0)}


def silent(gpu: int, minute: int, sample: int) -> Shows:
    """Show a GPU that has no sample any more."""
    return {} if gpu == 3 and minute >= 15 else healthy(gpu, minute, sample)


def unanswered(gpu: int, minute: int, sample: int) -> Shows:
    """Show a GPU of which the driver tells nothing any more, from the middle of a minute on."""
    fails = gpu == 0 and (minute, sample) >= (16, 3)
    return {"Unanswered": 1.0} if fails else {**healthy(gpu, minute, sample), "Unanswered": 0.0}


def narrow(gpu: int, minute: int, sample: int) -> Shows:
    """Show two GPUs whose links have lost lanes."""
    return {**healthy(gpu, minute, sample), "PCIeLinkWidth": 4.0 if gpu >= 2 and minute >= 13 else 16.0}


def hung(gpu: int, minute: int, sample: int) -> Shows:
    """Show GPUs that wait for an idle one after their work."""
    waits = {"GPUUtilization": 100.0, "GPUMemoryUtilization": 0.0, "PowerWatts": 90.0 + 2.0 * gpu + minute + sample}
    idle = {"GPUUtilization": 0.0, "GPUMemoryUtilization": 0.0, "PowerWatts": 60.0 + minute + sample}
    return {**healthy(gpu, minute, sample), **({} if minute < 20 else idle if gpu == 1 else waits)}


def leaking(gpu: int, minute: int, sample: int) -> Shows:
    """Show two GPUs whose memory in use rises, one of them from the beginning, and two that keep theirs."""
    used = 20e9 + 0.3e9 * max(minute - 10 * gpu, 0) * (gpu < 2) + 1e7 * sample
    return {**healthy(gpu, minute, sample), "MemoryUsedBytes": used, "MemoryTotalBytes": 80e9}


def leaking_share(gpu: int, minute: int, sample: int) -> Shows:
    """Show memory in use that rises, as a share alone."""
    share = 25.0 + 0.4 * max(minute - 10 * gpu, 0) * (gpu < 2) + 0.02 * sample
    return {**healthy(gpu, minute, sample), "MemoryUsedPercent": share}


def holding_share(gpu: int, minute: int, sample: int) -> Shows:
    """Show GPUs that work, and then hold their memory and do nothing."""
    idle = {"GPUUtilization": 0.0, "GPUMemoryUtilization": 0.0} if minute >= 30 else {}
    return {**healthy(gpu, minute, sample), "MemoryUsedPercent": 60.0 + gpu + 0.1 * sample, **idle}


def engine(gpu: int, minute: int, sample: int) -> Shows:
    """Show instances of partitioned GPUs by their engines: one of the first GPU is low from some time on."""
    low = 4.0 + 0.3 * (minute % 5) if gpu == 0 and minute >= 30 else 70.0
    activity = {"mig0.EngineActivityPercent": low + 0.1 * sample, "mig1.EngineActivityPercent": 80.0 + minute % 3}
    return {name: value for name, value in activity.items() if gpu < 2}


def rising(gpu: int, minute: int, sample: int) -> Shows:
    """Show a GPU whose memory activity rises in steps that grow less even, and one that has jumped before."""
    level = {0: 20.0 + 0.5 * minute + 2.0 * (minute % 3), 1: 20.0 if minute < 40 else 45.0}.get(gpu, 30.0)
    return {"GPUUtilization": 95.0, "GPUMemoryUtilization": level + 0.5 * sample}


def jumping(gpu: int, minute: int, sample: int) -> Shows:
    """Show a GPU whose memory activity jumps far, and another one that jumps less far later."""
    level = {0: 20.0 if minute < 40 else 45.0, 1: 25.0 if minute < 80 else 40.0}.get(gpu, 30.0)
    return {"GPUUtilization": 95.0, "GPUMemoryUtilization": level + 0.5 * sample}


def ramping(gpu: int, minute: int, sample: int) -> Shows:
    """Show a GPU whose memory activity rises steeply up to the end."""
    level = 20.0 + (2.0 * max(minute - 45, 0) if gpu == 2 else 0.0)
    return {"GPUUtilization": 95.0, "GPUMemoryUtilization": level + 0.5 * sample}


def rising_of_late(gpu: int, minute: int, sample: int) -> Shows:
    """Show two GPUs whose memory activity fell and rises again, one of them by less than counts."""
    level = 40.0 - 0.3 * minute if minute < 65 else 20.5 + (0.35 if gpu == 0 else 0.15) * (minute - 65)
    return {"GPUUtilization": 95.0, "GPUMemoryUtilization": (level if gpu < 2 else 30.0) + 0.1 * sample}


JOBS: dict[str, tuple[Callable[[int, int, int], Shows], int]] = {
    "hot": (hot, 24),
    "all_hot": (all_hot, 24),
    "broken": (broken, 20),
    "errors": (errors, 20),
    "silent": (silent, 20),
    "unanswered": (unanswered, 20),
    "narrow": (narrow, 20),
    "hung": (hung, 32),
    "leaking": (leaking, 130),
    "leaking_share": (leaking_share, 130),
    "holding_share": (holding_share, 75),
    "engine": (engine, 120),
    "rising": (rising, 120),
    "jumping": (jumping, 90),
    "ramping": (ramping, 75),
    "rising_of_late": (rising_of_late, 110),
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Said]:
    """Return what gives a job's samples and its true report, which is made once."""
    made: dict[str, Said] = {}

    def of(name: str) -> Said:
        if name not in made:
            shows, minutes = JOBS[name]
            folder = write_device_job(shows, tmp_path_factory.mktemp(name), gpus=GPUS, minutes=minutes)
            made[name] = Said(raw_of(folder), report_of(folder))
        return made[name]._replace(report=copy.deepcopy(made[name].report))

    return of


CHANGES = [
    ("hot", "clock", 5.0),
    ("hot", "clock_lost", 1.0),
    ("hot", "clock_of_peers", 5.0),
    ("hot", "throttled_minutes", 1),
    ("all_hot", "clock_lost", 1.0),
    ("all_hot", "other_gpus", -1),
    ("broken", "times", 1),
    ("broken", "xid", 5),
    ("errors", "ecc_errors", 1),
    ("silent", "silent_minutes", 1),
    ("unanswered", "unanswered_minutes", -1),
    ("narrow", "lanes", 4.0),
    ("narrow", "lanes_before", -4.0),
    ("hung", "power", 2.0),
    ("hung", "power_at_work", 2.0),
    ("leaking", "increase", 1.0),
    ("leaking", "rise_time", 120.0),
    ("leaking", "memory_in_use", 2e8),
    ("leaking", "memory_in_use_share", 0.5),
    ("leaking", "hourly_increase", 0.5),
    ("leaking", "hourly_bytes", 2e8),
    ("leaking", "time_left_at_end", 60.0),
    ("leaking", "gpus_affected", 1),
    ("leaking_share", "increase", 1.0),
    ("leaking_share", "memory_in_use_share", 0.5),
    ("leaking_share", "hourly_increase", 0.5),
    ("leaking_share", "time_left_at_end", 60.0),
    ("holding_share", "memory_in_use_share", 0.5),
    ("holding_share", "gpus_holding", -1),
    ("engine", "p95_sm_activity", 1.0),
    ("engine", "highest_sm_activity", 1.0),
    ("engine", "instances", 1),
    ("engine", "low_time", 300.0),
    ("engine", "gpus_affected", 1),
    ("rising", "increase", 1.0),
    ("rising", "window", 30.0),
    ("rising", "p5_activity_at_work", 1.0),
    ("rising", "highest_mean_activity", 1.0),
    ("rising", "hourly_increase", 1.0),
    ("jumping", "strongest_jump", 1.0),
    ("jumping", "level_before", 1.0),
    ("jumping", "level_after", 1.0),
    ("ramping", "floor_of_rise", 1.0),
    ("ramping", "time_left_at_end", 30.0),
    ("rising_of_late", "rise_time", 300.0),
    ("rising_of_late", "gpus_affected", 1),
    ("rising", "trend_z", 0.1),
]


@pytest.mark.parametrize("name", JOBS)
def test_what_is_said_of_gpus_by_their_series_is_true(said: Callable[[str], Said], name: str) -> None:
    job = said(name)
    told = [fact["name"] for finding in job.report["findings"] for fact in finding["facts"]]
    found = checked(name, job.raw, job.report)
    assert not found.untrue
    assert not found.unknown
    assert {fact for of, fact, _ in CHANGES if of == name} <= set(told)


@pytest.mark.parametrize(("name", "fact", "more"), CHANGES)
def test_a_wrong_fact_of_gpus_is_found(said: Callable[[str], Said], name: str, fact: str, more: float) -> None:
    job = said(name)
    finding = next(each for each in job.report["findings"] if fact in {one["name"] for one in each["facts"]})
    next(each for each in finding["facts"] if each["name"] == fact)["value"] += more
    untrue = wrong_facts(job.raw, job.report, finding["rule"])
    assert any(f"{fact} = " in each or f" {fact}: " in each for each in untrue)
