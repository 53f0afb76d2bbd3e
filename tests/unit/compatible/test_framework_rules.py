from typing import Any

import pytest

from tests.unit.compatible.profiles import STEP, Profile, event, origin, phase, report
from trainguard.managed import framework_rules

CPU = "CPUUtilization"
ITER, WORKER, INITIALIZE = "DataLoaderIter", "DataLoaderWorker", "DataLoaderIterInitialize"
PHASES = (phase(1, ITER), phase(2, WORKER), phase(3, INITIALIZE), phase(4, STEP), phase(5, "Dataset"))


def loading(events: list[dict[str, Any]], *, cores: int = 4, minutes: int = 1, **parameters: Any) -> dict[str, Any]:
    profile = Profile().minute(0, [(CPU, f"cpu{core}", 1, 50) for core in range(cores)]).minutes(minutes)
    profile.trace(60 * minutes + 30, [origin(), *PHASES, *events])
    return report(profile, "Dataloader", **parameters)


def seconds_of(processes: int, count: int) -> list[dict[str, Any]]:
    """Loading by so many processes in each of ``count`` seconds."""
    return [event("GetNext", 1, 1 + at, 0.01, pid=pid) for at in range(count) for pid in range(processes)]


@pytest.mark.parametrize(("seconds", "triggered"), [(9, 0), (10, 0), (11, 1)])
def test_too_few_loaders_are_judged_above_patience_only(seconds: int, triggered: int) -> None:
    found = loading(seconds_of(2, seconds))

    assert (found["RuleTriggered"], found["Violations"]) == (triggered, triggered)


@pytest.mark.parametrize(("processes", "violations"), [(2, 1), (3, 0), (8, 0), (9, 1)])
def test_loaders_at_70_and_200_percent_of_cores_are_allowed(processes: int, violations: int) -> None:
    assert loading(seconds_of(processes, 12))["Violations"] == violations


def test_violations_in_three_windows_trigger_the_rule_once() -> None:
    events = [event("GetNext", 1, 1.5 + at, 0.01, pid=7) for at in range(170)]

    found = loading(events, minutes=3, patience=0)

    assert (found["RuleTriggered"], found["Violations"], found["Datapoints"]) == (1, 3, 170)


def test_loading_has_settings_first_and_unknown_prefetching() -> None:
    start = event("__init__", 3, 0.5, 0.1, num_workers=2, pin_memory=False)
    lifetime = event("worker", 2, 1, 5, pid=9)

    details = loading([start, lifetime, *seconds_of(1, 2)])["Details"]

    assert list(details) == ["pin_memory", "num_workers", "cores", "dataloaders", "dataloading_time"]
    assert (details["pin_memory"], details["num_workers"], details["cores"]) == (False, 2, 4)
    assert details["dataloading_time"]["p50"] == 0.01
    assert details["dataloading_time"]["binedges"][-1] == 5
    assert sum(details["dataloading_time"]["probs"]) == 3


@pytest.mark.parametrize(("names", "shown"), [(("GetNext", "Prefetch"), True), (("Prefetch", "GetNext"), None)])
def test_prefetching_followed_by_a_pytorch_event_is_unknown(names: tuple[str, str], shown: bool | None) -> None:
    at = {"GetNext": 1, "Prefetch": 5}

    details = loading([event(name, at[name], 2, 0.01, pid=1) for name in names])["Details"]

    assert details.get("prefetch") is shown


def test_tensorflow_iterators_are_ignored() -> None:
    found = loading([event("dataset::GetNext", 5, 1 + at, 0.5) for at in range(20)])

    assert (found["Datapoints"], found["Details"]) == (0, {})


def test_more_seconds_than_the_limit_restart_the_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(framework_rules, "_MOST_COUNTS", 20)
    events = seconds_of(8, 30) + [event("GetNext", 1, 61 + at, 0.01, pid=1) for at in range(3)]

    assert loading(events, minutes=2)["Details"]["dataloaders"] == 1


def overall(events: list[dict[str, Any]], *names: dict[str, Any]) -> dict[str, Any]:
    profile = Profile().minutes(1).trace(90, [origin(), *PHASES, *names, *events])
    details: dict[str, Any] = report(profile, "OverallFrameworkMetrics")["Details"]
    return details


def steps(count: int) -> list[dict[str, Any]]:
    """Steps of 0.6 s, one a second."""
    return [event(STEP, 4, 1 + at, 0.6, step_num=str(at)) for at in range(count)]


@pytest.mark.parametrize(("count", "others"), [(1, 0), (2, 0.4), (3, 0.4), (4, 0.8)])
def test_others_of_steps_subtracts_itself(count: int, others: float) -> None:
    # others(i) = (end(i) - start(0)) - (sum of the steps + others(i - 1)): 0, 0.4, 0.4, 0.8 of i * 0.4 truly idle.
    shares = overall(steps(count))["phase"]

    assert list(shares) == [STEP, "others"]
    assert shares["others"] == pytest.approx(100 * others / (0.6 * count + others))


def test_sums_are_halved_from_the_second_gpu_phase_on() -> None:
    names = (phase(6, "gpu_functions-dev:0"), phase(7, "gpu_functions-dev:1"))
    gpus = [event("op", 6, 1, 0.1), event("op", 7, 1.7, 0.1)]
    first, second = steps(2)

    shares = overall([first, *gpus, second], *names)["phase"]

    others = 1.6 - (1.2 + 0.0) / 2
    assert shares["others"] == pytest.approx(100 * others / (1.2 + others))


def test_shares_of_events_have_keys_and_labels_in_order() -> None:
    names = [phase(6, "cpu_functions"), phase(7, "GPU:0"), phase(8, "Forward-SubModuleInternal")]
    names += [phase(9, "Backward-SubModuleInternal"), phase(10, "Forward")]
    events = [event("model", 10, 1, 1), event("conv", 6, 1, 3), event("conv", 7, 1, 1), event("tiny", 6, 1, 0.01)]
    events += [event("l1", 8, 1, 1), event("l1", 9, 1, 3), *steps(1)]

    details = overall(events, *names)

    keys = "ratio CPU CPU_total GPU GPU_total phase phase_time general forward_backward"
    assert list(details) == keys.split()
    assert details["ratio"] == {"GPU:0": pytest.approx(100 / 4.01), "cpu_functions": pytest.approx(301 / 4.01)}
    assert details["CPU"] == {"conv": 100}
    assert details["forward_backward"] == {"Forward pass": 25, "Backward pass": 75}
    assert details["general"] == {"Forward": 100}


def test_events_without_duration_cause_no_division_by_zero() -> None:
    details = overall([event("op", 6, 1, 0)], phase(6, "cpu_functions"))

    assert (details["ratio"], details["CPU"]) == ({"cpu_functions": 0}, {})
