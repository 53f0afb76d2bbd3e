"""A story in its alerts, whole also where each run of the scheduler dies after any of its calls."""

import json
from dataclasses import replace

import pytest

from tests.functional.engine.test_failing_half_way import shifted
from tests.support.delivery import Network
from tests.support.faults import Crash
from tests.support.small_job import Upload, describe, uploads

RULE = "LowGPUUtilization"


def minutes(*, busy: int | None, after: int) -> list[Upload]:
    """Return a quarter of an hour of one node from a minute on, its GPUs as busy as that."""
    chosen = [each for each in uploads(low=False) if "system/incremental" in each.key and "algo-1" in each.key]
    loaded = []
    for upload in chosen:
        lines = [json.loads(line) for line in upload.body.splitlines()]
        for line in lines:
            if busy is not None and line["Dimension"] == "GPUUtilization":
                line["Value"] = float(busy)
        body = "".join(json.dumps(line) + "\n" for line in lines).encode()
        loaded.append(Upload(upload.at, upload.key, body))
    moved: list[Upload] = shifted(loaded, after)
    return moved


# A job whose GPUs are not quite busy, then idle, then busy for longer than they idled.
STORY = [
    *minutes(busy=68, after=0),
    *minutes(busy=2, after=14),
    *minutes(busy=None, after=28),
    *minutes(busy=None, after=42),
]


def lone() -> Network:
    """Return a network whose job has one node, and as many GPUs as write metrics."""
    network = Network()
    alone = replace(describe(), instance_type="ml.own.2xlarge", instance_count=1, framework_profiling=False)
    network.world.training_jobs.set(alone)
    return network


def live(*, dying_after: int | None = None) -> Network:
    """Let the story happen with a scheduler run a minute; each dies after so many calls, and another one follows."""
    network = lone()
    for upload in STORY:
        network.put(upload)
        network.announce(upload, upload.at)
        network.run_until(upload.at, batch_s=0.0)
        if dying_after is not None:
            network.doomed = [dying_after]
            network.run_scheduler()
            network.doomed = []
        network.run_scheduler()
    return network


def test_fire_growth_and_end_are_alerted_in_order() -> None:
    network = live()
    told = [each for each in network.world.executions.started.values() if each["rule"] == RULE]
    assert [each["kind"] for each in told] == ["fire", "escalation", "cleared"]
    fire, grown, ended = told
    assert (grown["alertId"], ended["alertId"]) == (f"{fire['fireId']}-critical", f"{fire['fireId']}-cleared")
    assert (grown["previousSeverity"], grown["severity"]) == (fire["severity"], "critical")
    assert str(fire["firedAt"]) < str(grown["firedAt"]) < str(ended["firedAt"])
    assert isinstance(ended["lastedS"], float)
    assert 14 * 60.0 < ended["lastedS"] < 56 * 60.0
    assert network.job().episodes[RULE] == 1


def test_finding_back_after_a_scheduler_crash_is_a_new_fire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = lone()
    again = minutes(busy=40, after=56)

    def arrive(chosen: list[Upload], *, ticking: bool) -> None:
        for upload in chosen:
            network.put(upload)
            network.announce(upload, upload.at)
            network.run_until(upload.at, batch_s=0.0)
            if ticking:
                network.run_scheduler()

    def die(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(network.world.jobs, "raise_episode", die)
        arrive(STORY, ticking=True)
    arrive(again[:6], ticking=False)
    arrive(again[6:], ticking=True)
    told = [each for each in network.world.executions.started.values() if each["rule"] == RULE]
    assert [each["kind"] for each in told if each["kind"] != "escalation"] == ["fire", "cleared", "fire"]


def alerts(network: Network) -> list[tuple[str, str]]:
    """Return kind and alert id of every execution, in order."""
    started = network.world.executions.started.values()
    return [(str(payload["kind"]), str(payload["alertId"])) for payload in started]


@pytest.fixture(scope="module")
def undisturbed() -> list[tuple[str, str]]:
    return alerts(live())


@pytest.mark.parametrize("dying_after", [0, 1, 3, 6, 11])
def test_dying_runs_notify_once_and_lose_nothing(undisturbed: list[tuple[str, str]], dying_after: int) -> None:
    dying = live(dying_after=dying_after)
    assert dying.crashes > 0
    assert alerts(dying) == undisturbed
